//! Bursar's desk: groups of a memory, and the arbiter that engines use.

use std::collections::BTreeMap;
use std::future::Future;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Wake, Waker};
use std::time::Duration;

use bursar::{Charge, Freshness, Group, Limits, Memory};
use bursar_arbiter::{Answer, Arbiter, Ask, Engine, Grant, GrowError, Policy, Stop, VictimOrder};
use bursar_rig::bed::Bed;
use bursar_rig::timer::Timers;

use super::desk::{Denied, Desk, Moment, Start};
use super::parameters::{Parameters, of_percent};

const MIB: u64 = 1 << 20;

/// The desk.
pub(super) struct Own<'a, M: Timers> {
    arbiter: Arbiter<M>,
    tenants: Vec<Group<M>>,
    own: &'a Parameters,
    /// Queries that have begun, by number. Not the machine's lock: it stands for pointers that a real engine has.
    queries: Mutex<BTreeMap<u64, Arc<Running<M>>>>,
    /// All that may sleep.
    beds: Mutex<BTreeMap<u64, Arc<Bed<M>>>>,
    next: AtomicU64,
    is_closed: AtomicBool,
}

/// A query that has begun.
struct Running<M: Timers> {
    grant: Grant<M>,
    side: Arc<Side<M>>,
    charges: Mutex<Vec<Charge<M>>>,
}

/// Its side that the arbiter sees.
struct Side<M: Timers> {
    can_spill: bool,
    group: Group<M>,
    machine: M,
    /// Greatest age of what it says.
    age_ns: u64,
    /// Time and bytes of what it says, if that may be old.
    said: Mutex<(u64, u64)>,
    asked: Mutex<Option<Answer>>,
    is_stopped: AtomicBool,
    bed: Arc<Bed<M>>,
}

impl<M: Timers> Engine for Side<M> {
    fn reclaimable(&self) -> u64 {
        if !self.can_spill {
            return 0;
        }
        // A look at the clock takes time too.
        if self.age_ns == 0 {
            return self.group.reserved();
        }
        let mut said = locked(&self.said);
        let now_ns = self.machine.now_ns();
        if now_ns >= said.0 + self.age_ns {
            *said = (now_ns, self.group.reserved());
        }
        said.1
    }

    fn ask(&self, _: u64, answer: Answer) {
        *locked(&self.asked) = Some(answer);
        self.bed.wake_by_ref();
    }

    fn stop(&self, _: &Arc<Stop>) {
        // Relaxed, as all that stands for a word of the engine: the bed orders it.
        self.is_stopped.store(true, Ordering::Relaxed);
        self.bed.wake_by_ref();
    }
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl<'a, M: Timers> Own<'a, M> {
    pub(super) fn new(machine: &M, own: &'a Parameters) -> Result<Self, String> {
        let bytes = own.memory_mib(machine.cpus()) * MIB;
        let memory = Memory::builder().max(bytes).build_on(machine.clone());
        let memory = memory.map_err(|error| error.to_string())?;
        let tenants = (0..own.tenants).map(|tenant| {
            memory
                .root()
                .child(format!("tenant-{tenant}"), Limits::none())
        });
        let tenants: Result<Vec<_>, _> = tenants.collect();
        let mut policy = Policy::default();
        if own.own_stops_largest {
            policy.yielding.victim = VictimOrder::Largest;
        }
        policy.yielding.ask_after = Duration::from_millis(own.own_ask_after_ms);
        policy.yielding.stop_after = Duration::from_millis(own.own_stop_after_ms);
        Ok(Self {
            tenants: tenants.map_err(|error| error.to_string())?,
            arbiter: Arbiter::new(&memory, policy),
            own,
            queries: Mutex::new(BTreeMap::new()),
            beds: Mutex::new(BTreeMap::new()),
            next: AtomicU64::new(0),
            is_closed: AtomicBool::new(false),
        })
    }

    fn is_closed(&self) -> bool {
        self.is_closed.load(Ordering::Relaxed)
    }

    fn query(&self, id: u64) -> Arc<Running<M>> {
        locked(&self.queries)[&id].clone()
    }

    fn told(&self, query: &Running<M>) -> Result<(), Denied> {
        if self.is_closed() {
            return Err(Denied::Over);
        }
        if query.side.is_stopped.load(Ordering::Relaxed) {
            return Err(Denied::Stopped);
        }
        if locked(&query.side.asked).is_some() {
            let charges = locked(&query.charges);
            let held: u64 = charges.iter().map(Charge::bytes).sum();
            return Err(Denied::Spill(held / MIB));
        }
        Ok(())
    }

    /// Polls a future until it is ready, or until `told` says what comes first.
    fn wait<F: Future + Unpin>(
        &self,
        bed: &Arc<Bed<M>>,
        mut future: F,
        told: impl Fn() -> Result<(), Denied>,
    ) -> Result<F::Output, Denied> {
        let waker = Waker::from(bed.clone());
        let mut context = Context::from_waker(&waker);
        loop {
            if let Poll::Ready(answer) = Pin::new(&mut future).poll(&mut context) {
                return Ok(answer);
            }
            told()?;
            bed.wait();
            told()?;
        }
    }
}

impl<M: Timers> Desk for Own<'_, M> {
    fn begin(&self, start: &Start<'_>) -> Result<u64, Denied> {
        let id = self.next.fetch_add(1, Ordering::Relaxed);
        let bed = Bed::new();
        locked(&self.beds).insert(id, bed.clone());
        let tenant = &self.tenants[start.tenant as usize % self.tenants.len()];
        let is_last = start.nth == self.own.tries;
        let asked_mib = match start.nth {
            1 => of_percent(start.query.estimate_mib, self.own.own_ask_percent),
            // A quarter more than it turned out to need, as `TenantEngine` asks.
            _ => {
                start.needed_mib.max(of_percent(
                    start.query.estimate_mib,
                    self.own.own_ask_percent,
                )) * 5
                    / 4
            }
        };
        let most = self.arbiter.most(tenant);
        let asked = (asked_mib.max(1) * MIB).min(most.max(1));
        let ask = Ask::new(tenant, format!("query-{id}"));
        let ask = ask
            .least(asked, 0)
            .wanted(asked)
            .estimated()
            .score(start.query.score as i32);
        let told = || {
            if self.is_closed() {
                Err(Denied::Over)
            } else {
                Ok(())
            }
        };
        let admitted = self.wait(&bed, self.arbiter.admit(ask), told);
        let grant = match admitted {
            Ok(Ok(grant)) => grant,
            other => {
                locked(&self.beds).remove(&id);
                return Err(other.err().unwrap_or(Denied::Refused));
            }
        };
        if is_last {
            grant.grow_first().expect("it was just admitted");
        }
        let machine = self.arbiter.memory().machine();
        let age_ns = self.own.numbers_age_ms * 1_000_000;
        let begun_ns = if age_ns > 0 { machine.now_ns() } else { 0 };
        let side = Arc::new(Side {
            can_spill: start.query.can_spill,
            group: grant.group().clone(),
            machine: machine.clone(),
            age_ns,
            said: Mutex::new((begun_ns, 0)),
            asked: Mutex::new(None),
            is_stopped: AtomicBool::new(false),
            bed,
        });
        grant.attach(side.clone());
        let charges = Mutex::new(Vec::new());
        let running = Arc::new(Running {
            grant,
            side,
            charges,
        });
        locked(&self.queries).insert(id, running);
        Ok(id)
    }

    fn grow(&self, id: u64, mib: u64) -> Result<(), Denied> {
        let query = self.query(id);
        self.told(&query)?;
        let bed = query.side.bed.clone();
        let grown = self.wait(&bed, query.grant.grow(mib * MIB), || self.told(&query))?;
        match grown {
            Ok(charge) => {
                locked(&query.charges).push(charge);
                Ok(())
            }
            Err(GrowError::Stopped(_)) => Err(Denied::Stopped),
            Err(_) => Err(Denied::Refused),
        }
    }

    fn go_on(&self, id: u64) -> Result<(), Denied> {
        self.told(&self.query(id))
    }

    fn spilled(&self, id: u64, mib: u64) {
        let query = self.query(id);
        let mut left = mib * MIB;
        let mut returned = Vec::new();
        {
            let mut charges = locked(&query.charges);
            while left > 0
                && let Some(charge) = charges.pop()
            {
                left = left.saturating_sub(charge.bytes());
                returned.push(charge);
            }
        }
        drop(returned);
        let answer = locked(&query.side.asked).take();
        if let Some(answer) = answer {
            answer.freed(mib * MIB);
        }
    }

    fn end(&self, id: u64) {
        let query = locked(&self.queries).remove(&id).expect("it runs");
        locked(&self.beds).remove(&id);
        let charges = std::mem::take(&mut *locked(&query.charges));
        drop(charges);
        // With it the grant, unless an engine's call is on its way.
        drop(query);
    }

    fn tick(&self) {
        self.arbiter.memory().tick();
        self.arbiter.tick();
    }

    fn lower(&self, limit_mib: u64) {
        self.arbiter.memory().root().set_max(limit_mib * MIB);
        self.tick();
    }

    fn close(&self) {
        self.is_closed.store(true, Ordering::Relaxed);
        let beds: Vec<_> = locked(&self.beds).values().cloned().collect();
        for bed in beds {
            bed.wake_by_ref();
        }
    }

    fn now(&self) -> Moment {
        let root = self.arbiter.memory().root();
        let used = root
            .read(Freshness::Exact)
            .map_or(0, |reading| reading.usage_bytes());
        Moment {
            limit_mib: root.limits().max / MIB,
            used_mib: used.div_ceil(MIB),
        }
    }

    fn stops(&self) -> u64 {
        self.arbiter.counts().stopped
    }
}
