//! Promises, waiters, and their order. Every decision is made here, under the arbiter's lock.
//!
//! **The promise.** A grant of `bytes` is a promise at each limit on its way to the root. The room at a limit is
//! `max - (charged + promised and not yet charged)`. It is never more than `max - promised`. Nothing is charged ahead: a charge that
//! is made outside of all grants may take what is promised. Then the query that it was promised to is refused as any other.
//!
//! **The order.** A tenant's waiters have an order that no time changes: see [`crate::queue::Place`]. Tenants are in order of precedence, then
//! of the bytes that they have now for their weight, then of those that they were granted so far. A waiter that cannot be served is passed by those that can. The first waiter of a tenant
//! counts how often. When that reaches a bound, no other ask is admitted through the limit in its way until it is.
//!
//! Nothing here calls a user's code: handles and wakers to drop, and wakers to wake, go to [`After`].

mod credit;
mod grower;
mod growth;

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::Waker;
use std::time::Duration;

use bursar::{Charge, Group, Machine};

pub(crate) use self::grower::{Call, GrowNeed, Grown};
use self::grower::{Grower, Leaving};
use crate::ask::{AdmitError, Ask, Least};
use crate::decision::Decision;
use crate::engine::{Engine, Stop};
use crate::policy::{Order, Policy, ns};
use crate::queue::{Place, Queue, Waiter};
use crate::real::{Real, Strain};
use crate::report::{Admissions, Counts, Granted, NotWidened, Refused, Waiting};

/// Waiters of one tenant behind its first that one look examines.
const EXAMINED_MAX: usize = 32;
/// Grants that one look for unused bytes makes smaller.
const SHRUNK_MAX: usize = 64;
/// Refusals that are kept.
const REFUSALS_MAX: usize = 16;

/// Work for the time after the lock, because it may run a user's code.
pub(crate) struct After<M: Machine> {
    pub(crate) wake: Vec<Waker>,
    pub(crate) drop_wakers: Vec<Waker>,
    pub(crate) drop_groups: Vec<Group<M>>,
    pub(crate) drop_engines: Vec<Arc<dyn Engine>>,
    pub(crate) drop_charges: Vec<Charge<M>>,
    /// Decisions that were made, to tell.
    pub(crate) decided: Vec<Decision>,
}

impl<M: Machine> Default for After<M> {
    fn default() -> Self {
        Self {
            wake: Vec::new(),
            drop_wakers: Vec::new(),
            drop_groups: Vec::new(),
            drop_engines: Vec::new(),
            drop_charges: Vec::new(),
            decided: Vec::new(),
        }
    }
}

/// Terms of a grant.
#[derive(Clone, Debug)]
pub(crate) struct Terms {
    pub(crate) grant: u64,
    /// Bytes; `u64::MAX` if no limit is on the way.
    pub(crate) bytes: u64,
    pub(crate) width: u32,
    pub(crate) waited: Duration,
    pub(crate) idle_since_ns: Arc<AtomicU64>,
}

/// Answer to an ask.
pub(crate) enum Asked {
    Granted(Terms),
    /// Queued, with this number.
    Waiting(u64),
    /// Refused by a look, which has counted it.
    Refused(AdmitError),
}

/// A group on the way of a tenant.
struct Level<M: Machine> {
    group: Group<M>,
    /// Tenants at and below it.
    tenants: u32,
    /// Bytes of grants below it. Wider than a limit, so that it is exact whatever limits were in force.
    promised: u128,
    /// Bytes that it keeps for queries that are asked to give back memory.
    credit: Option<Charge<M>>,
}

impl<M: Machine> Level<M> {
    fn promised(&self) -> u64 {
        u64::try_from(self.promised).unwrap_or(u64::MAX)
    }
}

struct Tenant<M: Machine> {
    group: Group<M>,
    /// Numbers of its group and of all above.
    chain: Arc<[u32]>,
    grants: u32,
    promised: u128,
    /// Bytes granted so far for its weight. A tenant that comes begins with [`Ledger::served`].
    served: u64,
    queue: Queue,
    rank: Option<Rank>,
    /// The lowest limit in the way of its first waiter, when that was last looked at.
    blocked_at: Option<u32>,
    /// The grant that has the tenant for itself.
    alone: Option<u64>,
    /// The lowest limit on its way when its waiters were last compared with it: none needs more.
    cap: u64,
}

/// Place of a tenant that has waiters: precedence, bytes that it has now for its weight, bytes that it was granted so far for its
/// weight, its first waiter.
type Rank = (Reverse<i32>, u64, u64, Place, u32);

struct Grant<M: Machine> {
    tenant: u32,
    chain: Arc<[u32]>,
    /// None until it is made.
    group: Option<Group<M>>,
    name: String,
    /// Promised bytes; 0 if no limit was on the way.
    bytes: u64,
    is_unlimited: bool,
    least: u64,
    /// Bytes that it keeps for requests that cannot wait: see [`crate::Widener::wait_for_room`].
    kept: u64,
    width: u32,
    /// It wished for more partitions.
    is_narrowed: bool,
    granted_ns: u64,
    waited: Duration,
    /// Its limit is being lowered.
    is_shrinking: bool,
    /// It grows before anybody is admitted.
    goes_first: bool,
    /// Grants that are inside of it.
    inside: u32,
    /// The grant that this one is inside of.
    parent: Option<u64>,
    /// Time at which its client had all that it asked for; 0 while it asks.
    idle_since_ns: Arc<AtomicU64>,
    score: i32,
    engine: Option<Arc<dyn Engine>>,
    leaving: Option<Leaving>,
    /// It was told to stop.
    stop: Option<Arc<Stop>>,
    /// Bytes that it had charged when it was last asked in vain.
    vain_at: Option<u64>,
}

impl<M: Machine> Grant<M> {
    fn charged(&self) -> u64 {
        self.group.as_ref().map_or(0, Group::reserved)
    }
}

/// A grant that has ended, with bytes that are charged still.
struct Ended<M: Machine> {
    chain: Arc<[u32]>,
    group: Group<M>,
    /// Time until which those that wait expect its bytes.
    until_ns: u64,
    /// It was inside of another one. Its bytes count there, and return to that one's promise.
    is_inside: bool,
}

/// Bytes of grants that are promised and not yet charged, at each level. Read once a look.
type Uncharged = BTreeMap<u32, u64>;

/// State of an arbiter.
pub(crate) struct Ledger<M: Machine> {
    root: Group<M>,
    pub(crate) policy: Policy,
    levels: BTreeMap<u32, Level<M>>,
    tenants: BTreeMap<u32, Tenant<M>>,
    orders: BTreeMap<u32, (Group<M>, Order)>,
    ranks: BTreeSet<Rank>,
    grants: BTreeMap<u64, Grant<M>>,
    /// Grants by the number of their group.
    by_group: BTreeMap<u32, u64>,
    decided: BTreeMap<u64, Result<Terms, AdmitError>>,
    /// Grants that have ended, with bytes that are charged still.
    ended: BTreeMap<u64, Ended<M>>,
    /// Bytes that the tenant that was served last had been granted before, for its weight: the start time of fair queueing (Goyal, Vin and
    /// Cheng, 1996). So a tenant that was away for long is not owed for that time.
    served: u64,
    deadlines: BTreeSet<(u64, u32, u64)>,
    next: u64,
    last_end_ns: u64,
    end_interval_ns: u64,
    counts: Counts,
    /// The last refusals and their times, oldest first.
    refusals: VecDeque<(u64, Refused)>,
    /// Queries that run and wait for memory.
    growers: BTreeMap<u64, Grower>,
    /// Since when levels are above a limit that was lowered.
    over_since_ns: BTreeMap<u32, u64>,
    decided_so_far: u64,
    /// The bytes that the process really took at the last look, if they are known.
    real: Option<Real>,
    /// Time until which nobody else is asked or stopped for them: memory that a query frees may return to the system later.
    real_rests_until_ns: u64,
    /// The last decisions and their times, oldest first.
    decisions: VecDeque<(u64, Decision)>,
}

/// Place of an ask among those that wait.
#[derive(Clone, Copy)]
struct InQueue {
    /// The first of its tenant.
    is_first: bool,
    /// Whether any other waits.
    has_others: bool,
}

/// Result of a look at one ask.
enum Look {
    Fits { bytes: u64, width: u32 },
    Blocked(u32),
}

impl<M: Machine> Ledger<M> {
    pub(crate) fn new(root: Group<M>, policy: Policy) -> Self {
        Self {
            root,
            policy,
            levels: BTreeMap::new(),
            tenants: BTreeMap::new(),
            orders: BTreeMap::new(),
            ranks: BTreeSet::new(),
            grants: BTreeMap::new(),
            by_group: BTreeMap::new(),
            decided: BTreeMap::new(),
            ended: BTreeMap::new(),
            served: 0,
            deadlines: BTreeSet::new(),
            next: 0,
            last_end_ns: 0,
            end_interval_ns: 0,
            counts: Counts::default(),
            refusals: VecDeque::new(),
            growers: BTreeMap::new(),
            over_since_ns: BTreeMap::new(),
            decided_so_far: 0,
            real: None,
            real_rests_until_ns: 0,
            decisions: VecDeque::new(),
        }
    }

    pub(crate) fn set_order(
        &mut self,
        group: &Group<M>,
        order: Option<Order>,
        after: &mut After<M>,
    ) {
        let number = group.engine().number();
        let before = match order {
            Some(order) => self.orders.insert(number, (group.clone(), order)),
            None => self.orders.remove(&number),
        };
        after.drop_groups.extend(before.map(|(group, _)| group));
        self.rerank(number);
    }

    /// Answers an ask: grants it, queues it, or refuses it.
    pub(crate) fn ask(
        &mut self,
        ask: &Ask<M>,
        waker: Option<Waker>,
        now_ns: u64,
        after: &mut After<M>,
    ) -> Result<Asked, AdmitError> {
        let answer = self.try_ask(ask, waker, now_ns, after);
        if let Err(error) = &answer {
            self.note_refusal(ask.group.path(), &ask.name, error, now_ns);
        }
        answer
    }

    fn try_ask(
        &mut self,
        ask: &Ask<M>,
        waker: Option<Waker>,
        now_ns: u64,
        after: &mut After<M>,
    ) -> Result<Asked, AdmitError> {
        let (narrowest, widest) = (*ask.width.start(), *ask.width.end());
        if narrowest == 0 || narrowest > widest {
            return Err(AdmitError::BadWidth);
        }
        if ask.least.is_none_or(|least| least.at(widest) == 0) && ask.wanted == Some(0) {
            return Err(AdmitError::Nothing);
        }
        if let (Some(least), Some(wanted)) = (ask.least, ask.wanted)
            && !ask.is_guess
            && least.at(narrowest) > wanted
        {
            let least = least.at(narrowest);
            return Err(AdmitError::LeastAboveWanted { least, wanted });
        }
        if ask.group.is_removed() {
            return Err(removed(&ask.group));
        }
        let mut chain = vec![ask.group.clone()];
        while let Some(parent) = chain.last().and_then(Group::parent) {
            chain.push(parent);
        }
        if chain.last() != Some(&self.root) {
            after.drop_groups.append(&mut chain);
            return Err(AdmitError::OtherMemory);
        }
        let cap = self.cap_on(&chain).map_or(u64::MAX, |(cap, _)| cap);
        let number = self.number();
        let share = |cap: u64| match cap {
            u64::MAX => 0,
            cap => (u128::from(cap) * u128::from(self.policy.default_percent) / 100) as u64,
        };
        let least = ask.least.unwrap_or_else(|| Least {
            query: ask.wanted.unwrap_or(u64::MAX).min(share(cap)),
            partition: 0,
        });
        let wanted = ask.wanted.unwrap_or_else(|| match (ask.least, cap) {
            (_, u64::MAX) => u64::MAX,
            (Some(least), _) => least.at(widest),
            (None, cap) => share(cap),
        });
        let arrived = i128::from(now_ns);
        let worth = i128::from(ask.score) * i128::from(ns(self.policy.ageing));
        let waiter = Waiter {
            number,
            name: ask.name.clone(),
            least,
            wanted,
            width: (narrowest, widest),
            is_alone: ask.is_alone,
            is_guess: ask.is_guess || ask.least.is_none(),
            score: ask.score,
            place: (arrived - worth, number),
            arrived_ns: now_ns,
            deadline_ns: ask
                .patience
                .map_or(u64::MAX, |patience| now_ns.saturating_add(ns(patience))),
            passed: 0,
            first_passed_ns: None,
            kept_since_ns: None,
            waker: None,
        };
        let smallest = waiter.least_at(narrowest, cap).max(1);
        if smallest > cap {
            let error = self.never_fits_at(&chain, smallest);
            after.drop_groups.append(&mut chain);
            return Err(error);
        }
        let around = chain
            .iter()
            .find_map(|group| self.by_group.get(&group.engine().number()));
        if let Some(&parent) = around {
            after.drop_groups.append(&mut chain);
            return self
                .ask_inside(parent, &ask.group, waiter, now_ns, after)
                .map(Asked::Granted);
        }
        let tenant = self.enlist(&mut chain);
        after.drop_groups.append(&mut chain);
        let others_wait = !self.ranks.is_empty();
        let seen = &mut self.tenants.get_mut(&tenant).expect("enlisted").cap;
        *seen = cap.max(*seen);
        if others_wait {
            self.enqueue(tenant, Waiter { waker, ..waiter });
            self.look(now_ns, after);
        } else {
            // Nobody is passed, nobody is due, and nobody else can be served.
            let place = InQueue {
                is_first: true,
                has_others: false,
            };
            match self.assess(
                tenant,
                (&waiter, place),
                cap,
                now_ns,
                &mut None,
                &self.kept_for_growers(now_ns),
            ) {
                Look::Fits { bytes, width } => {
                    after.drop_wakers.extend(waker);
                    let terms = self.grant(tenant, &waiter, bytes, width, now_ns);
                    return Ok(Asked::Granted(terms));
                }
                Look::Blocked(at) => {
                    self.enqueue(tenant, Waiter { waker, ..waiter });
                    self.tenants.get_mut(&tenant).expect("enlisted").blocked_at = Some(at);
                }
            }
        }
        match self.decided.remove(&number) {
            Some(Ok(terms)) => Ok(Asked::Granted(terms)),
            Some(Err(error)) => Ok(Asked::Refused(error)),
            None if ask.patience == Some(Duration::ZERO) => {
                let error = self.timed_out(tenant, number, now_ns);
                let waiter = self.dequeue(tenant, number).expect("it is not decided");
                after.drop_wakers.extend(waiter.waker);
                self.unlist(tenant, after);
                Err(error)
            }
            None => Ok(Asked::Waiting(number)),
        }
    }

    fn note_refusal(&mut self, group: String, name: &str, error: &AdmitError, now_ns: u64) {
        self.counts.refuse(error);
        if self.refusals.len() == REFUSALS_MAX {
            self.refusals.pop_front();
        }
        let refused = Refused {
            group,
            name: name.to_owned(),
            why: error.clone(),
            age: Duration::ZERO,
        };
        self.refusals.push_back((now_ns, refused));
    }

    fn number(&mut self) -> u64 {
        self.next += 1;
        self.next
    }

    /// Finds the tenant of a chain of groups, or makes it. Takes the handles that it keeps.
    fn enlist(&mut self, chain: &mut Vec<Group<M>>) -> u32 {
        let number = chain[0].engine().number();
        if self.tenants.contains_key(&number) {
            return number;
        }
        let numbers: Arc<[u32]> = chain.iter().map(|group| group.engine().number()).collect();
        let group = chain[0].clone();
        for group in chain.drain(..) {
            let level = self.levels.entry(group.engine().number());
            let level = level.or_insert(Level {
                group,
                tenants: 0,
                promised: 0,
                credit: None,
            });
            level.tenants += 1;
        }
        let tenant = Tenant {
            group,
            chain: numbers,
            grants: 0,
            promised: 0,
            served: self.served,
            queue: Queue::default(),
            rank: None,
            blocked_at: None,
            alone: None,
            cap: 0,
        };
        self.tenants.insert(number, tenant);
        number
    }

    /// Forgets a tenant without grants and waiters.
    fn unlist(&mut self, number: u32, after: &mut After<M>) {
        let is_idle = |tenant: &Tenant<M>| tenant.grants == 0 && tenant.queue.is_empty();
        if !self.tenants.get(&number).is_some_and(is_idle) {
            return;
        }
        let tenant = self.tenants.remove(&number).expect("just seen");
        for at in tenant.chain.iter() {
            let level = self.levels.get_mut(at).expect("a tenant keeps its levels");
            level.tenants -= 1;
            if level.tenants == 0 {
                let level = self.levels.remove(at).expect("just seen");
                after.drop_charges.extend(level.credit);
                after.drop_groups.push(level.group);
            }
        }
        after.drop_groups.push(tenant.group);
    }

    fn enqueue(&mut self, number: u32, waiter: Waiter) {
        if waiter.deadline_ns != u64::MAX {
            self.deadlines
                .insert((waiter.deadline_ns, number, waiter.number));
        }
        let tenant = self.tenants.get_mut(&number).expect("enlisted");
        tenant.queue.insert(waiter);
        self.rerank(number);
    }

    fn dequeue(&mut self, number: u32, waiter: u64) -> Option<Waiter> {
        let tenant = self.tenants.get_mut(&number)?;
        let waiter = tenant.queue.remove(waiter)?;
        tenant.blocked_at = tenant.blocked_at.filter(|_| !tenant.queue.is_empty());
        self.deadlines
            .remove(&(waiter.deadline_ns, number, waiter.number));
        self.rerank(number);
        Some(waiter)
    }

    fn order_of(&self, number: u32) -> Order {
        self.orders
            .get(&number)
            .map_or_else(Order::default, |(_, order)| *order)
    }

    /// Puts a tenant where it belongs among those that wait.
    fn rerank(&mut self, number: u32) {
        let order = self.order_of(number);
        let Some(tenant) = self.tenants.get_mut(&number) else {
            return;
        };
        let by_weight = order.by_weight(u64::try_from(tenant.promised).unwrap_or(u64::MAX));
        let first = tenant.queue.first();
        let rank = first.map(|first| {
            (
                Reverse(order.precedence),
                by_weight,
                tenant.served,
                first.place,
                number,
            )
        });
        if tenant.rank != rank {
            if let Some(before) = tenant.rank {
                self.ranks.remove(&before);
            }
            self.ranks.extend(rank);
            tenant.rank = rank;
        }
    }

    /// Room at a level, bytes: exact from `needed` to `enough`. Only there does it read what all grants have charged, which takes long if many run.
    fn room_at(&self, at: u32, needed: u64, enough: u64, uncharged: &mut Option<Uncharged>) -> u64 {
        // These go back to those that keep them before anybody else gets them.
        self.room_at_with(at, needed, enough, uncharged, self.credit_missing(at))
    }

    /// The same, of a limit that is smaller by `to_keep`.
    fn room_at_with(
        &self,
        at: u32,
        needed: u64,
        enough: u64,
        uncharged: &mut Option<Uncharged>,
        to_keep: u64,
    ) -> u64 {
        let level = &self.levels[&at];
        let max = level.group.limits().max;
        if max == u64::MAX {
            return u64::MAX;
        }
        let max = max.saturating_sub(to_keep);
        let reserved = level.group.reserved();
        let surely = max.saturating_sub(reserved.saturating_add(level.promised()));
        if surely >= enough {
            return surely;
        }
        let at_most = max.saturating_sub(reserved.max(level.promised()));
        if at_most < needed {
            return at_most;
        }
        let uncharged = uncharged.get_or_insert_with(|| self.uncharged());
        let charged_or_promised = reserved.saturating_add(uncharged.get(&at).copied().unwrap_or(0));
        max.saturating_sub(charged_or_promised.max(level.promised()))
    }

    fn uncharged(&self) -> Uncharged {
        let mut of_tenants = BTreeMap::<u32, u64>::new();
        let outer = self.grants.values().filter(|grant| grant.parent.is_none());
        for grant in outer {
            let left = grant.bytes.saturating_sub(grant.charged());
            let sum = of_tenants.entry(grant.tenant).or_default();
            *sum = sum.saturating_add(left);
        }
        let mut all = Uncharged::new();
        for (tenant, left) in of_tenants {
            for &at in self.tenants[&tenant].chain.iter() {
                let sum = all.entry(at).or_default();
                *sum = sum.saturating_add(left);
            }
        }
        all
    }

    /// Notes what the process really takes.
    pub(crate) fn set_real(&mut self, real: Option<Real>) {
        self.real = real;
    }

    /// The lines that the real bytes of the process have crossed.
    pub(super) fn strain(&self) -> Strain {
        let max = self.root.limits().max;
        let strain = |real| self.policy.real.strain(real, max);
        self.real.map_or_else(Strain::default, strain)
    }

    /// Whether a level has grants, or bytes of ended ones, that will return.
    fn may_free(&self, at: u32) -> bool {
        let has_grants = self.levels.get(&at).is_some_and(|level| level.promised > 0);
        has_grants || self.has_ended(at)
    }

    fn has_ended(&self, at: u32) -> bool {
        let returns = |ended: &Ended<M>| ended.chain.contains(&at) && ended.group.reserved() > 0;
        self.ended_outside().any(returns)
    }

    /// Grants that have ended, without those that were inside of others.
    fn ended_outside(&self) -> impl Iterator<Item = &Ended<M>> {
        self.ended.values().filter(|ended| !ended.is_inside)
    }

    /// Whether to keep others from a level for one that waits there: only if bytes will return soon. An idle grant waits for its client, which
    /// may never come back. `but` is the grant of the one that waits. `with_empty`: a grant without bytes is waited for, too.
    fn keeps(&self, at: u32, but: Option<u64>, with_empty: bool, now_ns: u64) -> bool {
        let runs = |(&id, grant): (&u64, &Grant<M>)| {
            let counts = with_empty || grant.bytes > 0;
            let counts = counts && Some(id) != but && grant.parent.is_none();
            counts && grant.chain.contains(&at) && self.runs(grant, now_ns)
        };
        self.grants.iter().any(runs) || self.has_ended(at)
    }

    /// Whether a grant's query is not idle, or has been so for a short time only.
    fn runs(&self, grant: &Grant<M>, now_ns: u64) -> bool {
        // Relaxed: a time that stands for itself.
        let idle_since = grant.idle_since_ns.load(Ordering::Relaxed);
        idle_since == 0 || now_ns.saturating_sub(idle_since) < ns(self.policy.idle_after)
    }

    /// The most bytes that all grants of a group can have together: what the limits on its way leave beside that which is charged outside of
    /// grants.
    pub(crate) fn most(&self, group: &Group<M>, after: &mut After<M>) -> u64 {
        let mut charged: BTreeMap<u32, u64> = BTreeMap::new();
        let outer = self.grants.values().filter(|grant| grant.parent.is_none());
        let running = outer.map(|grant| (&grant.chain, grant.charged()));
        let ended = self
            .ended_outside()
            .map(|ended| (&ended.chain, ended.group.reserved()));
        for (chain, bytes) in running.chain(ended) {
            for &at in chain.iter() {
                let charged = charged.entry(at).or_default();
                *charged = bytes.saturating_add(*charged);
            }
        }
        let mut chain = vec![group.clone()];
        while let Some(parent) = chain.last().and_then(Group::parent) {
            chain.push(parent);
        }
        let mut to_keep = None;
        let mut most = u64::MAX;
        for group in &chain {
            let max = group.limits().max;
            if max == u64::MAX {
                continue;
            }
            let number = group.engine().number();
            // Bytes that this way keeps are not outside. They count whether or not they are there yet.
            let to_keep = *to_keep.get_or_insert_with(|| self.credit_of(max));
            let kept = self.kept_on(&chain).min(to_keep);
            let of_grants = charged.get(&number).copied().unwrap_or(0);
            let outside = group
                .reserved()
                .saturating_sub(of_grants)
                .saturating_sub(kept);
            most = most.min(max.saturating_sub(to_keep).saturating_sub(outside));
        }
        after.drop_groups.append(&mut chain);
        most
    }

    fn never_fits_at(&self, chain: &[Group<M>], least: u64) -> AdmitError {
        let (max, limited) = self.cap_on(chain).expect("a group has itself on its way");
        AdmitError::NeverFits {
            limited: limited.path(),
            max,
            least,
        }
    }

    fn cap_of(&self, tenant: &Tenant<M>) -> u64 {
        let way = tenant.chain.iter().map(|at| &self.levels[at].group);
        self.cap_on(way).map_or(u64::MAX, |(cap, _)| cap)
    }

    /// [`Ledger::assess`] of a waiter in the queue of a tenant.
    fn assess_queued(
        &self,
        number: u32,
        waiter: u64,
        cap: u64,
        now_ns: u64,
        uncharged: &mut Option<Uncharged>,
        kept: &BTreeMap<u32, u32>,
    ) -> Look {
        let queue = &self.tenants[&number].queue;
        let place = InQueue {
            is_first: queue.first().is_some_and(|first| first.number == waiter),
            has_others: queue.len() > 1 || self.ranks.len() > 1,
        };
        let waiter = queue.get(waiter).expect("it waits");
        self.assess(number, (waiter, place), cap, now_ns, uncharged, kept)
    }

    /// Looks whether an ask can be served now. Levels in `kept` have no room but for the tenant that they are kept for.
    fn assess(
        &self,
        number: u32,
        (
            waiter,
            InQueue {
                is_first,
                has_others,
            },
        ): (&Waiter, InQueue),
        cap: u64,
        now_ns: u64,
        uncharged: &mut Option<Uncharged>,
        kept: &BTreeMap<u32, u32>,
    ) -> Look {
        let tenant = &self.tenants[&number];
        if tenant.alone.is_some() || waiter.is_alone && tenant.grants > 0 {
            return Look::Blocked(number);
        }
        let (narrowest, widest) = match (waiter.width, self.strain().is_narrow) {
            ((narrowest, _), true) => (narrowest, narrowest),
            (width, false) => width,
        };
        let may_be_narrowest =
            now_ns.saturating_sub(waiter.arrived_ns) >= ns(self.policy.narrow_after);
        // The widest that the limits ever allow. The wish counts only up to that.
        let ever = widest_within(waiter, cap, cap);
        let floor = match may_be_narrowest {
            true => narrowest,
            false => {
                let part = u64::from(widest) * u64::from(self.policy.narrowest_percent);
                let part = u32::try_from(part.div_ceil(100)).unwrap_or(widest);
                part.clamp(narrowest, ever.max(narrowest))
            }
        };
        let wanted = waiter.wanted.max(waiter.least_at(widest, cap)).min(cap);
        // While others wait, nobody gets more than it needs, so that more of them run.
        let enough = match (waiter.is_alone, has_others) {
            (true, _) => u64::MAX,
            (false, true) => waiter.least_at(widest, cap),
            (false, false) => wanted,
        };
        let needed = waiter.least_at(floor, cap).max(1);
        let mut room = u64::MAX;
        for &at in tenant.chain.iter() {
            let is_kept = kept
                .get(&at)
                .is_some_and(|&other| other != number || !is_first);
            let here = match is_kept {
                true => 0,
                false => self.room_at(at, needed, enough, uncharged),
            };
            if here < needed {
                // With nothing to wait for, an estimate counts less than what there is.
                let takes_what_is = waiter.is_guess && here > 0 && !self.may_free(at);
                if !takes_what_is {
                    return Look::Blocked(at);
                }
            }
            room = room.min(here);
        }
        if cap == u64::MAX {
            return Look::Fits {
                bytes: u64::MAX,
                width: widest,
            };
        }
        let width = match room < needed {
            true => narrowest,
            false => widest_within(waiter, cap, room).min(widest).max(floor),
        };
        let bytes = match (waiter.is_alone, has_others) {
            (true, _) => room,
            (false, true) => waiter.least_at(width, cap).min(room).max(1),
            (false, false) => wanted.max(waiter.least_at(width, cap)).min(room).max(1),
        };
        Look::Fits { bytes, width }
    }

    /// Does what a look at a waiter says: grants it, or notes what blocks its tenant.
    fn follow(
        &mut self,
        number: u32,
        waiter: u64,
        look: Look,
        now_ns: u64,
        after: &mut After<M>,
        uncharged: &mut Option<Uncharged>,
    ) {
        match look {
            Look::Blocked(at) => {
                self.tenants.get_mut(&number).expect("it waits").blocked_at = Some(at);
            }
            Look::Fits { bytes, width } => {
                self.count_passes(number, waiter, now_ns);
                let mut waiter = self.dequeue(number, waiter).expect("it waits");
                let terms = self.grant(number, &waiter, bytes, width, now_ns);
                if let Some(uncharged) = uncharged {
                    for &at in self.grants[&terms.grant].chain.iter() {
                        let sum = uncharged.entry(at).or_default();
                        *sum = sum.saturating_add(if bytes == u64::MAX { 0 } else { bytes });
                    }
                }
                self.decided.insert(waiter.number, Ok(terms));
                after.wake.extend(waiter.waker.take());
            }
        }
    }

    /// Counts a pass for the first waiter of each tenant whose way is blocked where this one is served.
    ///
    /// One that room is kept for passes nobody: it was passed for long enough itself.
    fn count_passes(&mut self, number: u32, waiter: u64, now_ns: u64) {
        let served = self.tenants[&number].queue.get(waiter).expect("it waits");
        if self.is_due(served, now_ns) {
            return;
        }
        let chain = self.tenants[&number].chain.clone();
        let waiting: Vec<u32> = self.ranks.iter().map(|&(.., number)| number).collect();
        for other in waiting {
            let tenant = self.tenants.get_mut(&other).expect("it has a rank");
            let is_on_way = tenant.blocked_at.is_some_and(|at| chain.contains(&at));
            if let Some(first) = tenant.queue.first_mut()
                && is_on_way
                && first.number != waiter
            {
                first.passed = first.passed.saturating_add(1);
                first.first_passed_ns.get_or_insert(now_ns);
                self.counts.passes += 1;
            }
        }
    }

    fn grant(
        &mut self,
        number: u32,
        waiter: &Waiter,
        bytes: u64,
        width: u32,
        now_ns: u64,
    ) -> Terms {
        let promised = if bytes == u64::MAX { 0 } else { bytes };
        let order = self.order_of(number);
        let tenant = self.tenants.get_mut(&number).expect("it waits");
        self.served = self.served.max(tenant.served);
        tenant.served = tenant.served.saturating_add(order.by_weight(promised));
        tenant.grants += 1;
        tenant.promised += u128::from(promised);
        let chain = tenant.chain.clone();
        for at in chain.iter() {
            let level = self.levels.get_mut(at).expect("a tenant keeps its levels");
            level.promised += u128::from(promised);
        }
        self.rerank(number);
        let terms = self.insert(number, chain, waiter, (bytes, width), None, now_ns);
        if waiter.is_alone {
            self.tenants.get_mut(&number).expect("it waits").alone = Some(terms.grant);
        }
        terms
    }

    /// Makes the record of a grant, whose bytes are promised already.
    fn insert(
        &mut self,
        tenant: u32,
        chain: Arc<[u32]>,
        waiter: &Waiter,
        (bytes, width): (u64, u32),
        parent: Option<u64>,
        now_ns: u64,
    ) -> Terms {
        let id = self.number();
        let promised = if bytes == u64::MAX { 0 } else { bytes };
        let least = match waiter.is_alone && parent.is_none() {
            // A query that is alone keeps all, though others wait.
            true => promised,
            false => waiter.least.at(width).min(promised),
        };
        let waited_ns = now_ns.saturating_sub(waiter.arrived_ns);
        let idle_since_ns = Arc::new(AtomicU64::new(0));
        self.counts.admitted += 1;
        self.counts.waited += u64::from(waited_ns > 0);
        self.counts.narrowed += u64::from(width < waiter.width.1);
        self.counts.nested += u64::from(parent.is_some());
        let grant = Grant {
            tenant,
            chain,
            group: None,
            name: waiter.name.clone(),
            bytes: promised,
            is_unlimited: bytes == u64::MAX,
            least,
            kept: 0,
            width,
            is_narrowed: width < waiter.width.1,
            granted_ns: now_ns,
            waited: Duration::from_nanos(waited_ns),
            is_shrinking: false,
            goes_first: false,
            inside: 0,
            parent,
            idle_since_ns: idle_since_ns.clone(),
            score: waiter.score,
            engine: None,
            leaving: None,
            stop: None,
            vain_at: None,
        };
        self.grants.insert(id, grant);
        Terms {
            grant: id,
            bytes,
            width,
            waited: Duration::from_nanos(waited_ns),
            idle_since_ns,
        }
    }

    /// Bytes of a grant that are neither charged nor promised to grants inside of it.
    fn left_of(&self, id: u64) -> u64 {
        let Some(grant) = self.grants.get(&id) else {
            return 0;
        };
        match grant.is_unlimited {
            true => u64::MAX,
            false => grant.bytes.saturating_sub(self.used_of(id, grant)),
        }
    }

    /// Bytes of a grant that are charged, or promised to grants inside of it.
    fn used_of(&self, id: u64, grant: &Grant<M>) -> u64 {
        if grant.inside == 0 {
            return grant.charged();
        }
        let inside = self
            .grants
            .values()
            .filter(|inside| inside.parent == Some(id));
        let uncharged = inside.map(|inside| inside.bytes.saturating_sub(inside.charged()));
        uncharged.fold(grant.charged(), u64::saturating_add)
    }

    /// Serves an ask from the grant that it is inside of, or refuses it.
    fn ask_inside(
        &mut self,
        parent: u64,
        group: &Group<M>,
        waiter: Waiter,
        now_ns: u64,
        after: &mut After<M>,
    ) -> Result<Terms, AdmitError> {
        let mut left = self.left_of(parent);
        let around = self.grants.get_mut(&parent).expect("found by its group");
        // Limits between the two count as well.
        let mut level = Some(group.clone());
        while let Some(group) = level
            && around.group.as_ref() != Some(&group)
        {
            left = left.min(group.limits().max.saturating_sub(group.reserved()));
            level = group.parent();
            after.drop_groups.push(group);
        }
        let width = widest_within(&waiter, left, left);
        if width < waiter.width.0 {
            return Err(AdmitError::Nested {
                grant: around.group.as_ref().map_or_else(String::new, Group::path),
                left,
                least: waiter.least.at(waiter.width.0),
            });
        }
        let bytes = match left {
            u64::MAX => u64::MAX,
            left => waiter.wanted.max(waiter.least_at(width, left)).min(left),
        };
        around.inside += 1;
        let (tenant, chain) = (around.tenant, around.chain.clone());
        Ok(self.insert(tenant, chain, &waiter, (bytes, width), Some(parent), now_ns))
    }

    /// Serves all that can be served now, in their order.
    pub(crate) fn look(&mut self, now_ns: u64, after: &mut After<M>) {
        self.serve_growers(now_ns, after);
        self.refuse_in_vain(now_ns, after);
        loop {
            let mut uncharged = None;
            while let Some((number, waiter, look)) = self.next(now_ns, &mut uncharged) {
                self.follow(number, waiter, look, now_ns, after, &mut uncharged);
            }
            // One that goes may be what room was kept for.
            if !self.refuse_late(now_ns, after) {
                return;
            }
        }
    }

    /// The next waiter that can be served.
    fn next(&mut self, now_ns: u64, uncharged: &mut Option<Uncharged>) -> Option<(u32, u64, Look)> {
        let ranked: Vec<u32> = self.ranks.iter().map(|&(.., number)| number).collect();
        let mut kept = self.kept_for_growers(now_ns);
        let mut due: Vec<(u64, u64, u32)> = ranked
            .iter()
            .filter_map(|&number| {
                let first = self.tenants[&number].queue.first()?;
                let since_ns = first.first_passed_ns.unwrap_or(first.arrived_ns);
                self.is_due(first, now_ns)
                    .then_some((since_ns, first.number, number))
            })
            .collect();
        due.sort_unstable();
        for &(_, first, number) in &due {
            let cap = self.cap_of(&self.tenants[&number]);
            match self.assess_queued(number, first, cap, now_ns, uncharged, &kept) {
                fits @ Look::Fits { .. } => return Some((number, first, fits)),
                Look::Blocked(at) => {
                    // Room is kept where some will be free. Elsewhere nobody would ever be served.
                    // A grant of 0 bytes frees none, and keeps out who must be alone.
                    let queue = &self.tenants[&number].queue;
                    let is_alone = queue.get(first).is_some_and(|first| first.is_alone);
                    let may_free = self.keeps(at, None, is_alone && at == number, now_ns);
                    let tenant = self.tenants.get_mut(&number).expect("it waits");
                    tenant.blocked_at = Some(at);
                    let waiter = tenant.queue.get_mut(first).expect("it waits");
                    let since_ns = waiter.kept_since_ns.unwrap_or(now_ns);
                    waiter.kept_since_ns = may_free.then_some(since_ns);
                    if may_free && self.policy.keeps_room(now_ns.saturating_sub(since_ns)) {
                        kept.entry(at).or_insert(number);
                    }
                }
            }
        }
        for number in ranked {
            let tenant = &self.tenants[&number];
            let first = tenant.queue.first().expect("it has a rank").number;
            let cap = self.cap_of(tenant);
            match self.assess_queued(number, first, cap, now_ns, uncharged, &kept) {
                fits @ Look::Fits { .. } => return Some((number, first, fits)),
                Look::Blocked(at) => {
                    self.tenants.get_mut(&number).expect("it waits").blocked_at = Some(at);
                }
            }
            let tenant = &self.tenants[&number];
            if tenant.queue.len() == 1 || tenant.alone.is_some() {
                continue;
            }
            let rooms = tenant.chain.iter().map(|at| match kept.contains_key(at) {
                true => 0,
                false => self.room_at(*at, 1, u64::MAX, uncharged),
            });
            let room = rooms.min().unwrap_or(u64::MAX);
            for other in tenant.queue.that_may_fit(room, EXAMINED_MAX) {
                if let fits @ Look::Fits { .. } =
                    self.assess_queued(number, other, cap, now_ns, uncharged, &kept)
                {
                    return Some((number, other, fits));
                }
            }
        }
        None
    }

    /// Whether room is kept for the first waiter of a tenant.
    fn is_due(&self, first: &Waiter, now_ns: u64) -> bool {
        let since = first.first_passed_ns;
        first.passed >= self.policy.passes_max
            || since.is_some_and(|since| now_ns.saturating_sub(since) >= ns(self.policy.passed_max))
    }

    /// Refuses all whose time is over. Returns whether there was one.
    fn refuse_late(&mut self, now_ns: u64, after: &mut After<M>) -> bool {
        let mut has_refused = false;
        while let Some(&(deadline_ns, number, waiter)) = self.deadlines.first()
            && deadline_ns <= now_ns
        {
            let error = self.timed_out(number, waiter, now_ns);
            let Some(waiter) = self.dequeue(number, waiter) else {
                self.deadlines.pop_first();
                continue;
            };
            self.refuse(number, waiter, error, now_ns, after);
            self.unlist(number, after);
            has_refused = true;
        }
        has_refused
    }

    /// Refuses all whose waiting is in vain.
    fn refuse_in_vain(&mut self, now_ns: u64, after: &mut After<M>) {
        let waiting: Vec<u32> = self.ranks.iter().map(|&(.., number)| number).collect();
        for number in waiting {
            let tenant = &self.tenants[&number];
            let cap = self.cap_of(tenant);
            let lost = match tenant.group.is_removed() {
                true => tenant
                    .queue
                    .in_order()
                    .map(|waiter| waiter.number)
                    .collect(),
                false if cap < tenant.cap => tenant.queue.above(cap),
                false => Vec::new(),
            };
            self.tenants.get_mut(&number).expect("it has a rank").cap = cap;
            for one in lost {
                let Some(mut waiter) = self.dequeue(number, one) else {
                    continue;
                };
                let tenant = &self.tenants[&number];
                if tenant.group.is_removed() {
                    let error = removed(&tenant.group);
                    self.refuse(number, waiter, error, now_ns, after);
                } else if waiter.is_guess {
                    // Its size in the queue is now what the limit allows.
                    waiter.least = Least {
                        query: cap,
                        partition: 0,
                    };
                    self.enqueue(number, waiter);
                } else {
                    let groups: Vec<Group<M>> = tenant
                        .chain
                        .iter()
                        .map(|at| self.levels[at].group.clone())
                        .collect();
                    let error = self.never_fits_at(&groups, waiter.least.at(waiter.width.0));
                    after.drop_groups.extend(groups);
                    self.refuse(number, waiter, error, now_ns, after);
                }
            }
            self.unlist(number, after);
        }
    }

    /// Refuses a waiter of a tenant, which has left its queue.
    fn refuse(
        &mut self,
        number: u32,
        waiter: Waiter,
        error: AdmitError,
        now_ns: u64,
        after: &mut After<M>,
    ) {
        let group = self.tenants[&number].group.path();
        self.note_refusal(group, &waiter.name, &error, now_ns);
        self.decided.insert(waiter.number, Err(error));
        after.wake.extend(waiter.waker);
    }

    /// The error of a waiter whose time is over. Call before it leaves the queue.
    fn timed_out(&self, number: u32, waiter: u64, now_ns: u64) -> AdmitError {
        let tenant = self.tenants.get(&number);
        let at = tenant.and_then(|tenant| tenant.blocked_at);
        let level = self.levels.get(&at.unwrap_or(number));
        let arrived_ns = tenant.and_then(|tenant| tenant.queue.get(waiter));
        let arrived_ns = arrived_ns.map_or(now_ns, |waiter| waiter.arrived_ns);
        AdmitError::TimedOut {
            waited: Duration::from_nanos(now_ns.saturating_sub(arrived_ns)),
            limited: level.map_or_else(String::new, |level| level.group.path()),
            retry_after: self.retry_after(),
        }
    }

    /// Those that wait, times the mean time between the ends of grants; 10 ms to 60 s. Call before the waiter in question leaves its queue.
    fn retry_after(&self) -> Duration {
        let interval_ns = match self.end_interval_ns {
            0 => ns(Duration::from_secs(1)),
            interval => interval,
        };
        let all = interval_ns.saturating_mul(self.waiting() as u64);
        Duration::from_nanos(all).clamp(Duration::from_millis(10), Duration::from_secs(60))
    }

    /// Takes the decision about a waiter, if there is one. Otherwise the waker is woken when there is.
    ///
    /// # Errors
    /// The waiter's number is not known any more: a forked child has forgotten it.
    pub(crate) fn poll(
        &mut self,
        group: &Group<M>,
        number: u64,
        waker: Option<Waker>,
        now_ns: u64,
        after: &mut After<M>,
    ) -> Result<Option<Result<Terms, AdmitError>>, Unknown> {
        if !self.decided.contains_key(&number) {
            self.look(now_ns, after);
        }
        if let Some(decision) = self.decided.remove(&number) {
            after.drop_wakers.extend(waker);
            return Ok(Some(decision));
        }
        let tenant = self.tenants.get_mut(&group.engine().number());
        let Some(waiter) = tenant.and_then(|tenant| tenant.queue.get_mut(number)) else {
            after.drop_wakers.extend(waker);
            return Err(Unknown);
        };
        after
            .drop_wakers
            .extend(std::mem::replace(&mut waiter.waker, waker));
        Ok(None)
    }

    /// Ends a wait. A grant that was made meanwhile goes back.
    pub(crate) fn cancel(
        &mut self,
        group: &Group<M>,
        number: u64,
        now_ns: u64,
        after: &mut After<M>,
    ) {
        self.counts.cancelled += 1;
        match self.decided.remove(&number) {
            Some(Ok(terms)) => {
                self.end(terms.grant, now_ns, after);
            }
            Some(Err(_)) => (),
            None => {
                let tenant = group.engine().number();
                if let Some(waiter) = self.dequeue(tenant, number) {
                    after.drop_wakers.extend(waiter.waker);
                }
                self.unlist(tenant, after);
                // It may have been what room was kept for.
                self.look(now_ns, after);
            }
        }
    }

    /// Ends a grant whose group could not be made.
    pub(crate) fn undo(&mut self, id: u64, error: &AdmitError, now_ns: u64, after: &mut After<M>) {
        self.counts.admitted -= 1;
        if let Some(grant) = self.grants.get(&id) {
            self.counts.waited -= u64::from(grant.waited > Duration::ZERO);
            self.counts.narrowed -= u64::from(grant.is_narrowed);
            self.counts.nested -= u64::from(grant.parent.is_some());
            let (tenant, name) = (grant.tenant, grant.name.clone());
            let group = self.tenants.get(&tenant).map(|tenant| tenant.group.path());
            self.note_refusal(group.unwrap_or_default(), &name, error, now_ns);
        }
        self.end(id, now_ns, after);
        self.counts.ended -= 1;
    }

    /// Notes the group of a grant.
    pub(crate) fn set_group(&mut self, id: u64, group: Group<M>) {
        self.by_group.insert(group.engine().number(), id);
        self.grants.get_mut(&id).expect("it has not ended").group = Some(group);
    }

    /// Ends a grant. Its charged bytes still count at the limits above, as charged.
    ///
    /// Returns whether there are any. Then the caller calls [`Ledger::forget_ended`] when they have returned.
    pub(crate) fn end(&mut self, id: u64, now_ns: u64, after: &mut After<M>) -> bool {
        let Some(mut grant) = self.grants.remove(&id) else {
            return false;
        };
        if let Some(group) = &grant.group {
            self.by_group.remove(&group.engine().number());
        }
        self.end_growth(id, &mut grant, after);
        self.counts.ended += 1;
        match grant.parent {
            Some(parent) => {
                if let Some(parent) = self.grants.get_mut(&parent) {
                    parent.inside -= 1;
                }
            }
            None => {
                self.change_promise(&grant.chain, grant.tenant, grant.bytes, 0);
                let tenant = self
                    .tenants
                    .get_mut(&grant.tenant)
                    .expect("a grant keeps it");
                tenant.grants -= 1;
                tenant.alone = tenant.alone.filter(|&alone| alone != id);
                let interval = now_ns.saturating_sub(self.last_end_ns);
                if self.last_end_ns != 0 {
                    // Mean of about the last eight.
                    self.end_interval_ns = match self.end_interval_ns {
                        0 => interval,
                        mean => mean - mean / 8 + interval / 8,
                    };
                }
                self.last_end_ns = now_ns;
                self.unlist(grant.tenant, after);
            }
        }
        let has_bytes = grant.charged() > 0;
        match grant.group.take() {
            Some(group) if has_bytes => {
                let ended = Ended {
                    chain: grant.chain.clone(),
                    group,
                    until_ns: now_ns.saturating_add(ns(self.policy.yielding.stop_max)),
                    is_inside: grant.parent.is_some(),
                };
                self.ended.insert(id, ended);
            }
            group => after.drop_groups.extend(group),
        }
        self.look(now_ns, after);
        self.wake_first_growers(now_ns, after);
        has_bytes
    }

    /// Forgets a grant that has ended, and whose bytes have returned. Others may have waited for them.
    pub(crate) fn forget_ended(&mut self, id: u64, now_ns: u64, after: &mut After<M>) {
        let ended = self.ended.remove(&id);
        after.drop_groups.extend(ended.map(|ended| ended.group));
        self.look(now_ns, after);
        self.wake_first_growers(now_ns, after);
    }

    /// Takes grants back that nobody has taken for long. Their futures ask anew when they are polled.
    pub(crate) fn take_back_untaken(&mut self, now_ns: u64, after: &mut After<M>) {
        let idle_after = ns(self.policy.idle_after);
        let untaken = self.decided.iter().filter_map(|(&number, decision)| {
            let id = decision.as_ref().ok()?.grant;
            let age_ns = now_ns.saturating_sub(self.grants.get(&id)?.granted_ns);
            (age_ns >= idle_after).then_some((number, id))
        });
        for (number, id) in untaken.collect::<Vec<_>>() {
            self.decided.remove(&number);
            self.end(id, now_ns, after);
        }
    }

    fn change_promise(&mut self, chain: &[u32], number: u32, before: u64, bytes: u64) {
        let change =
            |promised: &mut u128| *promised = *promised - u128::from(before) + u128::from(bytes);
        for at in chain {
            change(
                &mut self
                    .levels
                    .get_mut(at)
                    .expect("a tenant keeps its levels")
                    .promised,
            );
        }
        change(
            &mut self
                .tenants
                .get_mut(&number)
                .expect("a grant keeps it")
                .promised,
        );
        self.rerank(number);
    }

    /// Promises a grant so many bytes more than it has charged, and returns what its group's `max` must be.
    ///
    /// # Errors
    /// [`NotWidened`]. Nothing changes then.
    pub(crate) fn widen(
        &mut self,
        id: u64,
        more: u64,
        is_before_asks: bool,
        now_ns: u64,
    ) -> Result<u64, NotWidened> {
        let grant = self.grants.get(&id).ok_or(NotWidened::Ended)?;
        if grant.is_unlimited {
            return Ok(u64::MAX);
        }
        let needed = grant.charged().saturating_add(more);
        if needed <= grant.bytes {
            return Ok(grant.bytes);
        }
        let missing = needed - grant.bytes;
        let widened = match grant.parent {
            Some(parent) => {
                let left = self.left_of(parent);
                if grant.is_shrinking {
                    Err(NotWidened::Busy)
                } else if missing > left {
                    Err(NotWidened::NoRoom)
                } else {
                    Ok(missing)
                }
            }
            None => self.widened_by(id, missing, is_before_asks, now_ns),
        };
        match &widened {
            Ok(_) => self.counts.widened += 1,
            Err(_) => self.counts.not_widened += 1,
        }
        let by = widened?;
        let grant = self.grants.get_mut(&id).expect("just seen");
        let (before, bytes) = (grant.bytes, grant.bytes.saturating_add(by));
        if bytes == u64::MAX && grant.parent.is_none() {
            // The limits on its way are gone.
            (grant.is_unlimited, grant.bytes) = (true, 0);
            let (chain, tenant) = (grant.chain.clone(), grant.tenant);
            self.change_promise(&chain, tenant, before, 0);
            return Ok(bytes);
        }
        grant.bytes = bytes;
        let (parent, chain, tenant) = (grant.parent, grant.chain.clone(), grant.tenant);
        if parent.is_none() {
            self.change_promise(&chain, tenant, before, bytes);
        }
        Ok(bytes)
    }

    /// Lets a grant grow before anybody is admitted.
    pub(crate) fn set_goes_first(&mut self, id: u64) -> Result<(), Arc<Stop>> {
        if let Some(grant) = self.grants.get_mut(&id) {
            if let Some(stop) = &grant.stop {
                return Err(stop.clone());
            }
            grant.goes_first = true;
        }
        Ok(())
    }

    /// Bytes by which a grant grows that misses some: a quarter of what it has, if that is there and nobody waits for it.
    fn widened_by(
        &self,
        id: u64,
        missing: u64,
        is_before_asks: bool,
        now_ns: u64,
    ) -> Result<u64, NotWidened> {
        let grant = &self.grants[&id];
        if grant.is_shrinking {
            return Err(NotWidened::Busy);
        }
        let others_wait = !grant.goes_first && self.is_awaited(&grant.chain);
        if others_wait && (!is_before_asks || self.is_kept_from(id, now_ns)) {
            return Err(NotWidened::OthersWait);
        }
        let wished = match others_wait {
            true => missing,
            false => missing.max(grant.bytes / 4),
        };
        let mut uncharged = None;
        let rooms = grant
            .chain
            .iter()
            .map(|&at| self.room_at(at, missing, wished, &mut uncharged));
        let room = rooms.min().unwrap_or(u64::MAX);
        match room >= missing {
            true => Ok(wished.min(room)),
            false => Err(NotWidened::NoRoom),
        }
    }

    /// Whether an ask or a query that runs waits for a level.
    fn is_awaited(&self, chain: &[u32]) -> bool {
        let is_awaited = |&(.., number): &Rank| {
            let blocked_at = self.tenants[&number].blocked_at;
            blocked_at.is_some_and(|at| chain.contains(&at))
        };
        self.ranks.iter().any(is_awaited) || self.is_awaited_by_growers(chain)
    }

    /// Whether others wait for a limit on the way of a grant.
    pub(crate) fn others_wait(&self, id: u64) -> bool {
        let grant = self.grants.get(&id);
        grant.is_some_and(|grant| self.is_awaited(&grant.chain))
    }

    /// Bytes that a grant may have now; `u64::MAX` for no limit, and `None` if it has ended.
    pub(crate) fn bytes_of(&self, id: u64) -> Option<u64> {
        let grant = self.grants.get(&id)?;
        Some(if grant.is_unlimited {
            u64::MAX
        } else {
            grant.bytes
        })
    }

    /// Begins to lower a grant as its query wants. Returns its group.
    pub(crate) fn begin_shrink(&mut self, id: u64) -> Option<Group<M>> {
        let grant = self.grants.get_mut(&id)?;
        if grant.is_shrinking || grant.is_unlimited {
            return None;
        }
        let group = grant.group.clone()?;
        grant.is_shrinking = true;
        grant.kept = 0;
        Some(group)
    }

    /// Begins to lower the grants that have more than they need now, on the way of those that wait. Returns each with the bytes that it
    /// keeps.
    pub(crate) fn begin_shrinks(&mut self, now_ns: u64) -> Vec<(u64, Group<M>, u64)> {
        let blocked: BTreeSet<u32> = self
            .ranks
            .iter()
            .filter_map(|&(.., number)| self.tenants[&number].blocked_at)
            .chain(self.awaited(now_ns).map(|(at, _)| at))
            .collect();
        let grown = self.grown_grants();
        let mut found = Vec::new();
        for (&id, grant) in &self.grants {
            let is_on_way = grant.chain.iter().any(|at| blocked.contains(at));
            let may = !grant.is_shrinking && !grant.is_unlimited && grant.parent.is_none();
            let may = may && is_on_way && !grown.contains(&id);
            let Some(group) = grant.group.as_ref().filter(|_| may) else {
                continue;
            };
            let is_idle = !self.runs(grant, now_ns);
            let kept = match is_idle {
                true => 0,
                false if grant.goes_first => continue,
                false => group.peak().max(grant.least).max(grant.kept),
            };
            let kept = kept.max(self.used_of(id, grant));
            let was_alone = is_idle && self.tenants[&grant.tenant].alone == Some(id);
            if kept < grant.bytes || was_alone {
                found.push((
                    id,
                    group.clone(),
                    kept.min(grant.bytes),
                    grant.tenant,
                    was_alone,
                ));
                if found.len() == SHRUNK_MAX {
                    break;
                }
            }
        }
        let begin = |(id, group, kept, tenant, was_alone)| {
            self.grants.get_mut(&id).expect("just found").is_shrinking = true;
            if was_alone {
                // Nobody knows when its client goes on.
                self.tenants
                    .get_mut(&tenant)
                    .expect("a grant keeps it")
                    .alone = None;
            }
            (id, group, kept)
        };
        found.into_iter().map(begin).collect()
    }

    /// Ends what [`Ledger::begin_shrink`] or [`Ledger::begin_shrinks`] began: the grant has `bytes` now, unless it had fewer before. It keeps
    /// what was promised to its waits meanwhile.
    pub(crate) fn end_shrink(&mut self, id: u64, bytes: u64) {
        let Some(grant) = self.grants.get(&id) else {
            return;
        };
        // Relaxed: a time that stands for itself.
        let room = match grant.idle_since_ns.load(Ordering::Relaxed) {
            0 => grant.kept,
            _ => 0,
        };
        let kept = self.used_of(id, grant).max(self.needed(id, 0)).max(room);
        let grant = self.grants.get_mut(&id).expect("just seen");
        grant.is_shrinking = false;
        let before = grant.bytes;
        grant.bytes = bytes.max(kept).min(before);
        grant.least = grant.least.min(grant.bytes);
        let bytes = grant.bytes;
        self.counts.shrunk += u64::from(bytes < before);
        if grant.parent.is_none() {
            let (chain, tenant) = (grant.chain.clone(), grant.tenant);
            self.change_promise(&chain, tenant, before, bytes);
        }
    }

    /// Forgets all that wait, in a forked child: their tasks are in the parent.
    pub(crate) fn forget_waiters(&mut self, after: &mut After<M>) {
        let numbers: Vec<u32> = self.tenants.keys().copied().collect();
        for number in numbers {
            let tenant = self.tenants.get_mut(&number).expect("just listed");
            let waiters = tenant.queue.take_all();
            tenant.blocked_at = None;
            after
                .drop_wakers
                .extend(waiters.into_iter().filter_map(|waiter| waiter.waker));
            self.rerank(number);
            self.unlist(number, after);
        }
        self.deadlines.clear();
        self.forget_growers(after);
        let untaken: Vec<u64> = self
            .decided
            .values()
            .flatten()
            .map(|terms| terms.grant)
            .collect();
        self.decided.clear();
        for grant in untaken {
            self.end(grant, 0, after);
        }
    }

    /// The path of a grant's group that is not made yet.
    fn path_of(&self, tenant: u32, name: &str) -> String {
        let group = self.tenants.get(&tenant).map(|tenant| tenant.group.path());
        let above = group.unwrap_or_default();
        format!("{}/{name}", above.trim_end_matches('/'))
    }

    pub(crate) fn admissions(&self, now_ns: u64) -> Admissions {
        let grants = self.grants.values().map(|grant| Granted {
            path: grant
                .group
                .as_ref()
                .map_or_else(|| self.path_of(grant.tenant, &grant.name), Group::path),
            bytes: if grant.is_unlimited {
                u64::MAX
            } else {
                grant.bytes
            },
            charged: grant.charged(),
            width: grant.width,
            waited: grant.waited,
            age: Duration::from_nanos(now_ns.saturating_sub(grant.granted_ns)),
        });
        let waiting = self.ranks.iter().flat_map(|&(.., number)| {
            let tenant = &self.tenants[&number];
            let at = tenant.blocked_at.unwrap_or(number);
            let blocked_by = self.levels.get(&at).map(|level| level.group.path());
            tenant
                .queue
                .in_order()
                .enumerate()
                .map(move |(place, waiter)| Waiting {
                    group: tenant.group.path(),
                    name: waiter.name.clone(),
                    least: waiter.least.at(waiter.width.0),
                    waited: Duration::from_nanos(now_ns.saturating_sub(waiter.arrived_ns)),
                    passed: waiter.passed,
                    is_kept_room: place == 0
                        && self.is_due(waiter, now_ns)
                        && waiter.kept_since_ns.is_some_and(|since_ns| {
                            self.policy.keeps_room(now_ns.saturating_sub(since_ns))
                        }),
                    blocked_by: blocked_by.clone().unwrap_or_default(),
                })
        });
        let refusals = self.refusals.iter().map(|(at_ns, refused)| Refused {
            age: Duration::from_nanos(now_ns.saturating_sub(*at_ns)),
            ..refused.clone()
        });
        Admissions {
            grants: grants.collect(),
            waiting: waiting.collect(),
            refusals: refusals.collect(),
            counts: self.counts(),
        }
    }

    pub(crate) fn counts(&self) -> Counts {
        Counts {
            waiting: self.waiting() as u64,
            ..self.counts.clone()
        }
    }

    /// Asks that wait.
    fn waiting(&self) -> usize {
        let queues = self
            .ranks
            .iter()
            .map(|&(.., number)| self.tenants[&number].queue.len());
        queues.sum()
    }

    /// Whether anybody waits, to begin or to go on.
    pub(crate) fn has_waiters(&self) -> bool {
        !self.ranks.is_empty() || !self.growers.is_empty()
    }

    /// Checks what must hold at each moment.
    #[cfg(any(test, debug_assertions))]
    pub(crate) fn check(&self) {
        for (at, level) in &self.levels {
            let below = self
                .grants
                .values()
                .filter(|grant| grant.parent.is_none() && grant.chain.contains(at));
            let sum: u128 = below.map(|grant| u128::from(grant.bytes)).sum();
            assert_eq!(
                level.promised, sum,
                "the promise at {at} is the sum of its grants"
            );
        }
        self.check_growers();
        for (number, tenant) in &self.tenants {
            assert_eq!(
                tenant.rank.is_some(),
                !tenant.queue.is_empty(),
                "those that wait have a rank"
            );
            assert!(
                tenant.grants > 0 || !tenant.queue.is_empty(),
                "the tenant {number} is of no use"
            );
        }
    }
}

/// A waiter that is in no queue.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Unknown;

/// The greatest width of a waiter's range that needs at most `room`; 0 for none.
fn widest_within(waiter: &Waiter, cap: u64, room: u64) -> u32 {
    let (narrowest, widest) = waiter.width;
    if waiter.least_at(narrowest, cap) > room {
        return 0;
    }
    if waiter.least_at(widest, cap) <= room {
        return widest;
    }
    // Then a partition takes bytes, and the part for the query fits.
    let width = room.saturating_sub(waiter.least.query) / waiter.least.partition.max(1);
    u32::try_from(width)
        .unwrap_or(widest)
        .clamp(narrowest, widest)
}

fn removed<M: Machine>(group: &Group<M>) -> AdmitError {
    AdmitError::Removed {
        group: group.path(),
    }
}
