//! The arbiter, its futures and its grants: all that happens outside of the lock.

use std::collections::BTreeMap;
use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Weak};
use std::task::{Context, Poll, Wake, Waker};
use std::time::Duration;

use bursar::{Charge, ChargeError, Emptied, Group, Host, Limits, Machine, Memory, Ticker};
use bursar_machine::Lock;

use crate::ask::{AdmitError, Ask};
use crate::bed::Bed;
use crate::decision::Decision;
use crate::engine::{Answer, Asks, Stop, call};
use crate::grow_error::DrawError;
use crate::ledger::{After, Asked, Call, Ledger, Terms};
use crate::policy::{Order, Policy};
use crate::real::{Gauge, Real};
use crate::report::{Admissions, Counts, NotWidened};
use crate::trace::Trace;

/// Decides which queries of one memory start, when, and how wide they run.
///
/// Cloning makes another handle. It has no thread of its own: see [the crate's page](crate#time) for when it looks.
pub struct Arbiter<M: Machine = Host> {
    inner: Arc<Inner<M>>,
}

pub(crate) struct Inner<M: Machine> {
    memory: Memory<M>,
    ledger: M::Mutex<Ledger<M>>,
    /// The ends of grants that have ended with bytes that are still charged, by the number of the grant.
    ending: M::Mutex<BTreeMap<u64, Emptied<M>>>,
    /// [`Machine::forks`] of the process that the waiters are in.
    forks: AtomicU64,
    trace: Trace<M>,
    /// Looks at what the process really takes.
    gauge: Option<Gauge>,
}

impl<M: Machine> Clone for Arbiter<M> {
    fn clone(&self) -> Self {
        Self {
            inner: self.inner.clone(),
        }
    }
}

impl<M: Machine> fmt::Debug for Arbiter<M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Arbiter")
            .field("memory", &self.inner.memory)
            .finish_non_exhaustive()
    }
}

/// Looks again when the last byte of an ended grant has returned.
struct LookAgain<M: Machine> {
    inner: Weak<Inner<M>>,
    grant: u64,
}

impl<M: Machine> Wake for LookAgain<M> {
    fn wake(self: Arc<Self>) {
        if let Some(inner) = self.inner.upgrade() {
            inner.poll_ending(self.grant);
        }
    }
}

impl<M: Machine> Inner<M> {
    fn now_ns(&self) -> u64 {
        self.memory.machine().now_ns()
    }

    /// Changes the ledger, and runs what must run after that without a lock.
    pub(crate) fn with<R>(
        &self,
        change: impl FnOnce(&mut Ledger<M>, u64, &mut After<M>) -> R,
    ) -> R {
        let now_ns = self.now_ns();
        let mut after = After::default();
        let result = {
            // A fork waits for it, so that no child finds the lock taken.
            let _operation = self.memory.machine().operation();
            let mut ledger = self.ledger.lock();
            let forks = self.memory.machine().forks();
            // Relaxed: under the lock, and a child has one thread.
            if self.forks.load(Ordering::Relaxed) != forks {
                self.forks.store(forks, Ordering::Relaxed);
                ledger.forget_waiters(&mut after);
            }
            let result = change(&mut ledger, now_ns, &mut after);
            #[cfg(debug_assertions)]
            ledger.check();
            result
        };
        for waker in after.wake.drain(..) {
            // One tenant's waker must not end the task of another.
            call(self.memory.machine(), "a waker of an ask", || waker.wake());
        }
        for decision in &after.decided {
            self.trace.decided(decision);
        }
        drop(after);
        result
    }

    fn look(&self) {
        self.with(|ledger, now_ns, after| ledger.look(now_ns, after));
    }

    /// Looks at what the process really takes.
    fn look_at_real(&self) {
        if let Some(gauge) = &self.gauge {
            let machine = self.memory.machine();
            let real = call(machine, "the gauge of real bytes", gauge).flatten();
            self.with(|ledger, _, _| ledger.set_real(real));
        }
    }

    /// Keeps bytes below each limit that lacks some of those that it is to keep.
    fn keep_credits(&self) {
        let lacking = self.with(|ledger, _, after| ledger.credits_missing(after));
        for (at, group, bytes) in lacking {
            // Not under the lock: if others took them just now, it asks reclaimers.
            let charge = || group.try_charge(bytes);
            let charged = call(self.memory.machine(), "a reclaimer", charge);
            if let Some(Ok(charge)) = charged {
                self.with(|ledger, _, after| ledger.keep_credit(at, charge, after));
            }
        }
    }

    /// Lowers the grants that have more than they need, if somebody waits for that.
    pub(crate) fn shrink(&self) {
        let shrinks = self.with(|ledger, now_ns, after| match ledger.has_waiters() {
            true => {
                ledger.take_back_untaken(now_ns, after);
                ledger.begin_shrinks(now_ns)
            }
            false => Vec::new(),
        });
        if shrinks.is_empty() {
            return;
        }
        for (grant, group, kept) in shrinks {
            self.lower(grant, &group, kept);
        }
        self.look();
    }

    /// Lowers a grant to `kept` bytes, or to what it has charged by then.
    fn lower(&self, grant: u64, group: &Group<M>, kept: u64) {
        self.set_max(group, kept);
        let bytes = kept.max(group.reserved());
        self.with(|ledger, _, _| ledger.end_shrink(grant, bytes));
        self.settle(grant, group);
    }

    /// Gives a grant's group the limit that the ledger says. Each task that has changed one of them comes here, so the last one
    /// leaves them equal.
    pub(crate) fn settle(&self, grant: u64, group: &Group<M>) {
        while let Some(bytes) = self.with(|ledger, _, _| ledger.bytes_of(grant))
            && group.limits().max != bytes
        {
            self.set_max(group, bytes);
        }
    }

    /// Asks and stops queries, if others wait for memory that they hold.
    pub(crate) fn relieve(self: &Arc<Self>) {
        let needy = self.with(|ledger, now_ns, _| ledger.needy(now_ns));
        let machine = self.memory.machine();
        for needy in needy {
            let said = needy.engines.iter().filter_map(|(id, engine)| {
                let bytes = call(machine, "`reclaimable` of an engine", || {
                    engine.reclaimable()
                })?;
                Some((*id, bytes))
            });
            let said = said.collect();
            let calls =
                self.with(|ledger, now_ns, after| ledger.decide(&needy, &said, now_ns, after));
            for (engine, grant, told) in calls {
                match told {
                    Call::Ask { bytes, decision } => {
                        let asks: Arc<dyn Asks> = self.clone();
                        let answer = Answer {
                            asks: Arc::downgrade(&asks),
                            grant,
                            decision,
                        };
                        if call(machine, "`ask` of an engine", || engine.ask(bytes, answer))
                            .is_none()
                        {
                            self.answered(grant, decision, 0);
                        }
                    }
                    Call::Stop(stop) => {
                        call(machine, "`stop` of an engine", || engine.stop(&stop));
                    }
                }
            }
        }
    }

    /// Sets a limit. It holds even if a reclaimer that it asks panics, which must not harm the query that this is done for.
    fn set_max(&self, group: &Group<M>, bytes: u64) {
        let what = "a reclaimer that was asked because a grant got smaller";
        call(self.memory.machine(), what, || group.set_max(bytes));
    }

    fn widen(
        &self,
        grant: u64,
        group: &Group<M>,
        more: u64,
        is_before_asks: bool,
    ) -> Result<u64, NotWidened> {
        let bytes =
            self.with(|ledger, now_ns, _| ledger.widen(grant, more, is_before_asks, now_ns))?;
        self.settle(grant, group);
        Ok(bytes)
    }

    /// Looks again if all bytes of an ended grant have returned. Otherwise their return comes here.
    fn poll_ending(self: &Arc<Self>, grant: u64) {
        let waker = Waker::from(Arc::new(LookAgain {
            inner: Arc::downgrade(self),
            grant,
        }));
        let mut context = Context::from_waker(&waker);
        let empty = self.with_ending(|ending| {
            let one = ending.get_mut(&grant)?;
            // Calls no user's code: the waker that this one replaces is ours.
            let is_ready = Pin::new(one).poll(&mut context).is_ready();
            is_ready.then(|| ending.remove(&grant))?
        });
        if let Some(empty) = empty {
            drop(empty);
            self.with(|ledger, now_ns, after| ledger.forget_ended(grant, now_ns, after));
        }
    }

    fn with_ending<R>(&self, change: impl FnOnce(&mut BTreeMap<u64, Emptied<M>>) -> R) -> R {
        // A fork waits for it.
        let _operation = self.memory.machine().operation();
        change(&mut self.ending.lock())
    }
}

impl<M: Machine> Asks for Inner<M> {
    fn answered(&self, grant: u64, decision: u64, bytes: u64) {
        if let Some(group) = self.with(|ledger, _, _| ledger.answer(grant, decision, bytes)) {
            self.settle(grant, &group);
        }
        // Others are asked by those that wait, and not here: an engine may answer while it is asked.
        self.with(|ledger, now_ns, after| {
            ledger.look(now_ns, after);
            ledger.wake_first_growers(now_ns, after);
        });
    }

    fn is_expected(&self, grant: u64, decision: u64) -> bool {
        self.with(|ledger, now_ns, _| ledger.is_expected(grant, decision, now_ns))
    }
}

impl<M: Machine> Arbiter<M> {
    /// Makes the arbiter of a memory. Make one for each memory: two know nothing of each other's promises.
    pub fn new(memory: &Memory<M>, policy: Policy) -> Self {
        Self::make(memory, policy, None)
    }

    /// Makes an arbiter that also looks at what the process really takes, by `gauge`, at each [`Arbiter::tick`]. It counts against the limit of the
    /// root by the lines of [`Policy::real`]. A limit that follows the process's cgroup ([`bursar::Builder::max_from_cgroup`]) moves the lines.
    /// While `gauge` returns `None`, only reservations count. Queries that are asked or stopped for it yield by their reservations: what they take without
    /// reserving it is expected to go with these.
    ///
    /// ```
    /// use bursar::Memory;
    /// use bursar_arbiter::{Arbiter, Policy, Real};
    ///
    /// let memory = Memory::builder().max(1 << 30).build()?;
    /// let arbiter = Arbiter::with_real(&memory, Policy::default(), Real::of_process);
    /// arbiter.tick();
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn with_real(
        memory: &Memory<M>,
        policy: Policy,
        gauge: impl Fn() -> Option<Real> + Send + Sync + 'static,
    ) -> Self {
        Self::make(memory, policy, Some(Box::new(gauge)))
    }

    fn make(memory: &Memory<M>, policy: Policy, gauge: Option<Gauge>) -> Self {
        Self {
            inner: Arc::new(Inner {
                memory: memory.clone(),
                ledger: M::Mutex::new(Ledger::new(memory.root(), policy)),
                ending: M::Mutex::new(BTreeMap::new()),
                forks: AtomicU64::new(memory.machine().forks()),
                trace: Trace::new(memory.machine()),
                gauge,
            }),
        }
    }

    /// Asks, and waits until the ask is granted. Dropping the future gives up.
    ///
    /// # Errors
    /// [`AdmitError`]. A future without [`Ask::patience`] ends only with a grant, or when waiting is in vain.
    pub fn admit(&self, ask: Ask<M>) -> Admit<M> {
        Admit {
            inner: self.inner.clone(),
            ask,
            state: State::New,
        }
    }

    /// Asks, and returns a grant if there is one at once.
    ///
    /// # Errors
    /// [`AdmitError`]; [`AdmitError::TimedOut`] if the ask would have to wait.
    pub fn try_admit(&self, ask: Ask<M>) -> Result<Grant<M>, AdmitError> {
        let mut admit = self.admit(ask.patience(Duration::ZERO));
        match Pin::new(&mut admit).poll(&mut Context::from_waker(Waker::noop())) {
            Poll::Ready(answer) => answer,
            Poll::Pending => unreachable!("it has no patience"),
        }
    }

    /// Sets the place of a group among those that asks are made for; `None` sets the default again. Keeps the group as a handle does until then.
    pub fn set_order(&self, group: &Group<M>, order: impl Into<Option<Order>>) {
        let order = order.into();
        self.inner
            .with(|ledger, _, after| ledger.set_order(group, order, after));
    }

    /// Looks who can be served, whose time is over, and which grants have more than they need.
    pub fn tick(&self) {
        // Some returns wake nobody: see `Group::emptied`.
        let ending: Vec<u64> = self
            .inner
            .with_ending(|ending| ending.keys().copied().collect());
        for grant in ending {
            self.inner.poll_ending(grant);
        }
        self.inner.look_at_real();
        self.inner.keep_credits();
        self.inner.look();
        self.inner.shrink();
        self.inner.relieve();
    }

    /// The last decisions that were made in shortages, oldest first: at most 64.
    pub fn decisions(&self) -> Vec<Decision> {
        self.inner
            .with(|ledger, now_ns, _| ledger.decisions(now_ns))
    }

    /// Grants, waiters and counts at this moment.
    pub fn admissions(&self) -> Admissions {
        self.inner
            .with(|ledger, now_ns, _| ledger.admissions(now_ns))
    }

    /// The counts of [`Arbiter::admissions`] alone, at no cost that grows with the asks that wait.
    pub fn counts(&self) -> Counts {
        self.inner.with(|ledger, _, _| ledger.counts())
    }

    /// The most bytes that all grants of a group can have together: what the limits on its way leave beside that which is charged outside of
    /// grants. A query that needs more never fits as things are; `u64::MAX` if there is no limit.
    pub fn most(&self, group: &Group<M>) -> u64 {
        self.inner
            .with(|ledger, _, after| ledger.most(group, after))
    }

    /// The memory.
    pub fn memory(&self) -> &Memory<M> {
        &self.inner.memory
    }
}

impl Arbiter<Host> {
    /// Starts a thread that calls [`Arbiter::tick`] every `period`, until the returned value is dropped. Choose it by the time that a query may
    /// wait too long.
    ///
    /// # Errors
    /// The system's error if it cannot start a thread.
    pub fn start_ticker(&self, period: Duration) -> std::io::Result<Ticker> {
        let arbiter = self.clone();
        Ticker::start("bursar-admit", period, move || arbiter.tick())
    }

    /// [`Arbiter::admit`] that blocks the thread.
    ///
    /// # Errors
    /// [`AdmitError`].
    pub fn admit_blocking(&self, ask: Ask) -> Result<Grant, AdmitError> {
        let bed = Arc::new(Bed::default());
        let waker = Waker::from(bed.clone());
        // Polls notice the changes that time alone makes.
        let period = self.inner.with(|ledger, _, _| ledger.policy.narrow_after);
        let period = period.max(Duration::from_millis(1));
        let rest = ask.patience.map_or(period, |patience| patience.min(period));
        let mut admit = self.admit(ask);
        loop {
            if let Poll::Ready(answer) = Pin::new(&mut admit).poll(&mut Context::from_waker(&waker))
            {
                return answer;
            }
            bed.sleep(rest.max(Duration::from_millis(1)));
        }
    }
}

/// An ask that waits; see [`Arbiter::admit`]. Dropping it gives up.
///
/// # Panics
/// If polled after it was ready.
#[must_use = "a future does nothing unless it is polled"]
pub struct Admit<M: Machine = Host> {
    inner: Arc<Inner<M>>,
    ask: Ask<M>,
    state: State,
}

/// State of a future that waits in the ledger.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum State {
    New,
    /// With this number.
    Waiting(u64),
    Done,
}

impl<M: Machine> fmt::Debug for Admit<M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Admit")
            .field("ask", &self.ask)
            .finish_non_exhaustive()
    }
}

impl<M: Machine> Unpin for Admit<M> {}

impl<M: Machine> Future for Admit<M> {
    type Output = Result<Grant<M>, AdmitError>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let this = &mut *self;
        // Runs the runtime's code, so before the lock.
        let waker = context.waker().clone();
        if let State::Waiting(number) = this.state {
            let own = Some(waker.clone());
            let polled = this.inner.with(|ledger, now_ns, after| {
                ledger.poll(&this.ask.group, number, own, now_ns, after)
            });
            match polled {
                Ok(Some(decision)) => return Poll::Ready(this.end(decision)),
                Ok(None) => return Poll::Pending,
                // A forked child asks anew.
                Err(_) => this.state = State::New,
            }
        }
        assert!(this.state == State::New, "polled after it was ready");
        let asked = this
            .inner
            .with(|ledger, now_ns, after| ledger.ask(&this.ask, Some(waker), now_ns, after));
        match asked {
            Ok(Asked::Granted(terms)) => Poll::Ready(this.end(Ok(terms))),
            Ok(Asked::Waiting(number)) => {
                this.state = State::Waiting(number);
                this.inner.shrink();
                this.inner.trace.waits(&this.ask);
                Poll::Pending
            }
            Ok(Asked::Refused(error)) | Err(error) => Poll::Ready(this.end(Err(error))),
        }
    }
}

impl<M: Machine> Admit<M> {
    /// Does what was decided.
    fn end(&mut self, decision: Result<Terms, AdmitError>) -> Result<Grant<M>, AdmitError> {
        self.state = State::Done;
        let answer = decision.and_then(|terms| self.make(terms));
        let trace = &self.inner.trace;
        match &answer {
            Ok(grant) => trace.granted(grant.group(), grant.width, grant.waited),
            Err(error) => trace.refused(&self.ask, error),
        }
        answer
    }

    /// Makes the group of a grant.
    fn make(&self, terms: Terms) -> Result<Grant<M>, AdmitError> {
        let limits = match terms.bytes {
            u64::MAX => Limits::none(),
            bytes => Limits::max(bytes),
        };
        match self.ask.group.child(&self.ask.name, limits) {
            Ok(group) => {
                self.inner
                    .with(|ledger, _, _| ledger.set_group(terms.grant, group.clone()));
                Ok(Grant {
                    widener: Widener {
                        inner: self.inner.clone(),
                        grant: terms.grant,
                        group,
                        is_before_asks: false,
                    },
                    width: terms.width,
                    waited: terms.waited,
                    idle_since_ns: terms.idle_since_ns,
                })
            }
            Err(error) => {
                let error = AdmitError::Create(error);
                self.inner
                    .with(|ledger, now_ns, after| ledger.undo(terms.grant, &error, now_ns, after));
                Err(error)
            }
        }
    }
}

impl<M: Machine> Drop for Admit<M> {
    fn drop(&mut self) {
        if let State::Waiting(number) = self.state {
            self.inner.with(|ledger, now_ns, after| {
                ledger.cancel(&self.ask.group, number, now_ns, after)
            });
        }
    }
}

/// The right of one query to run, with a group of its own.
///
/// Charge the query's memory to [`Grant::group`] or below it, at most [`Grant::bytes`]. Dropping the grant closes that group: see
/// [`Group::close`]. Bytes that are still charged to it count at the limits above until they return.
pub struct Grant<M: Machine = Host> {
    pub(crate) widener: Widener<M>,
    width: u32,
    waited: Duration,
    idle_since_ns: Arc<AtomicU64>,
}

impl<M: Machine> fmt::Debug for Grant<M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Grant")
            .field("group", self.group())
            .field("bytes", &self.bytes())
            .field("width", &self.width)
            .field("waited", &self.waited)
            .finish()
    }
}

impl<M: Machine> Grant<M> {
    /// The group of the query, below the group that was asked for.
    pub fn group(&self) -> &Group<M> {
        &self.widener.group
    }

    /// Bytes that the group may have now: its `max`.
    pub fn bytes(&self) -> u64 {
        self.group().limits().max
    }

    /// Number of partitions that the query may run with. It never changes.
    pub fn width(&self) -> u32 {
        self.width
    }

    /// Time that the ask waited.
    pub fn waited(&self) -> Duration {
        self.waited
    }

    /// Charges the group. If the grant is too small, and nobody waits for what is there, makes it larger first.
    ///
    /// # Errors
    /// [`ChargeError`], as [`Group::try_charge`].
    pub fn try_charge(&self, bytes: u64) -> Result<Charge<M>, ChargeError> {
        self.widener.try_charge(self.group(), bytes)
    }

    /// A handle that makes the grant larger, for pools. It does not keep the grant.
    pub fn widener(&self) -> Widener<M> {
        self.widener.clone()
    }

    /// Changes the size of the grant to `bytes`, but not below what is charged, or promised to a [`Widener::grow`] that waits. Returns the new size.
    /// A grant without a limit is not lowered, nor is one that loses bytes to others at this moment.
    ///
    /// # Errors
    /// [`NotWidened`] if the grant cannot have that much.
    pub fn resize(&self, bytes: u64) -> Result<u64, NotWidened> {
        let Widener {
            inner,
            grant,
            group,
            ..
        } = &self.widener;
        if bytes >= self.bytes() {
            let more = bytes.saturating_sub(group.reserved());
            return inner.widen(*grant, group, more, false);
        }
        if let Some(group) = inner.with(|ledger, _, _| ledger.begin_shrink(*grant)) {
            inner.lower(*grant, &group, bytes);
            inner.look();
        }
        Ok(self.bytes())
    }

    /// Lets the query grow before anybody else is admitted, from now on. For one that cannot run again: it has delivered rows, or this
    /// is its last try. Such a query is not stopped.
    ///
    /// # Errors
    /// The reason why it was told to stop before. Then it must end, and nothing changes.
    pub fn grow_first(&self) -> Result<(), Arc<Stop>> {
        let Widener { inner, grant, .. } = &self.widener;
        inner.with(|ledger, _, _| ledger.set_goes_first(*grant))
    }

    /// Says whether the client has all that it asked for and asks for no more. After [`Policy::idle_after`], the grant of such a
    /// query may lose what it has not charged, if others wait. It takes no lock, so call it for each batch.
    pub fn set_idle(&self, is_idle: bool) {
        let since_ns = match is_idle {
            true => self.widener.inner.now_ns().max(1),
            false => 0,
        };
        // Relaxed: a time that stands for itself.
        self.idle_since_ns.store(since_ns, Ordering::Relaxed);
    }
}

impl<M: Machine> Drop for Grant<M> {
    fn drop(&mut self) {
        let Widener {
            inner,
            grant,
            group,
            ..
        } = &self.widener;
        group.close().expect("a grant's group is not the root");
        if inner.with(|ledger, now_ns, after| ledger.end(*grant, now_ns, after)) {
            inner.with_ending(|ending| ending.insert(*grant, group.emptied()));
            inner.poll_ending(*grant);
        }
    }
}

/// A handle that makes a grant larger; see [`Grant::widener`].
pub struct Widener<M: Machine = Host> {
    pub(crate) inner: Arc<Inner<M>>,
    pub(crate) grant: u64,
    pub(crate) group: Group<M>,
    is_before_asks: bool,
}

impl<M: Machine> Clone for Widener<M> {
    fn clone(&self) -> Self {
        Self {
            inner: self.inner.clone(),
            grant: self.grant,
            group: self.group.clone(),
            is_before_asks: self.is_before_asks,
        }
    }
}

impl<M: Machine> fmt::Debug for Widener<M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Widener").field(&self.group).finish()
    }
}

/// Number of times that a charge makes its grant larger before it is refused.
const WIDEN_TRIES: u32 = 4;

impl<M: Machine> Widener<M> {
    /// A handle that makes the grant larger even while others wait, if the memory is there. For requests that end the query if they are refused.
    /// Memory is kept from it only for queries that run, come before it in the [order](crate#yielding), and have waited for
    /// [`crate::Yielding::passed_max`].
    pub fn before_asks(&self) -> Self {
        Self {
            is_before_asks: true,
            ..self.clone()
        }
    }

    /// Makes the grant large enough for `more` bytes beyond what is charged to its group. Never waits. Returns the bytes that it may have then.
    ///
    /// # Errors
    /// [`NotWidened`]. Nothing changes then.
    pub fn widen(&self, more: u64) -> Result<u64, NotWidened> {
        self.inner
            .widen(self.grant, &self.group, more, self.is_before_asks)
    }

    /// The group of the grant.
    pub fn group(&self) -> &Group<M> {
        &self.group
    }

    /// Whether asks, or queries that run, wait for a limit on the way of the grant. For a query that may end early if it keeps others waiting.
    pub fn others_wait(&self) -> bool {
        self.inner
            .with(|ledger, _, _| ledger.others_wait(self.grant))
    }

    /// Draws from the bytes that are kept for queries that are asked to give back memory ([`crate::Yielding::spill_credit`]), if this one is asked now
    /// ([`crate::Engine::ask`]) and has not answered. They are charged to the group of the grant, and to no limit twice. Return them before the answer.
    ///
    /// # Errors
    /// [`DrawError`]. Nothing changes then.
    pub fn draw(&self, bytes: u64) -> Result<Charge<M>, DrawError> {
        let Self {
            inner,
            grant,
            group,
            ..
        } = self;
        let mut drawn = inner.with(|ledger, now_ns, _| ledger.draw(*grant, bytes, now_ns))?;
        inner.settle(*grant, group);
        match drawn.1.move_to(group) {
            Ok(()) => Ok(drawn.1),
            Err(error) => {
                inner.with(|ledger, _, after| ledger.undo_draw(*grant, drawn, after));
                inner.settle(*grant, group);
                Err(DrawError::Move(error))
            }
        }
    }

    /// Charges `group`, which is the grant's or one below it. If the grant is too small, and nobody waits for what is there, makes it
    /// larger first.
    ///
    /// # Errors
    /// [`ChargeError`], as [`Group::try_charge`].
    pub fn try_charge(&self, group: &Group<M>, bytes: u64) -> Result<Charge<M>, ChargeError> {
        self.retry(
            || group.try_charge(bytes),
            |error| match error {
                ChargeError::LimitReached(reached) if reached.limited == self.group.path() => {
                    Some(bytes)
                }
                _ => None,
            },
        )
    }

    /// Tries what needs memory of the grant. If it fails, and `missing` returns the bytes that the grant lacks, makes the grant larger and
    /// tries again, at most 4 times: others may take what was added.
    ///
    /// # Errors
    /// That of the last try.
    pub fn retry<T, E>(
        &self,
        mut attempt: impl FnMut() -> Result<T, E>,
        missing: impl Fn(&E) -> Option<u64>,
    ) -> Result<T, E> {
        let mut outcome = attempt();
        for _ in 0..WIDEN_TRIES {
            match outcome.as_ref().err().and_then(&missing) {
                Some(bytes) if self.widen(bytes).is_ok() => outcome = attempt(),
                _ => break,
            }
        }
        outcome
    }
}
