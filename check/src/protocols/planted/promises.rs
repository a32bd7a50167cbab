//! Promises of an arbiter: a ledger of two tenants below a root, whose grants are charged, widened, made smaller and ended, while others
//! wait, pass and give up. Each bug leaves out one step.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};

use bursar_machine::{Event, Lock, Machine};
use bursar_rig::Watched;

use super::bug::Planted;
use crate::protocols::books::run;
use crate::random::Random;

/// Step that is left out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Bug {
    CancelledNotReturned,
    EndToldLate,
    RootForgotten,
    PassedOnceMore,
    WaitersForgotten,
    PromiseLoweredFirst,
}

#[rustfmt::skip]
pub(super) fn all<M: Watched>() -> Vec<Planted<M>> {
    planted![
        "cancelled-grant": "an ask is given up that was granted meanwhile, and its grant is lost",
            scenario, Some(Bug::CancelledNotReturned), None;
        "ended-unwoken": "a grant ends, and the last of its bytes returns before the ledger asks to be told",
            scenario, Some(Bug::EndToldLate), None;
        "root-forgotten": "a grant is widened, and that is promised at its tenant and not at the root",
            scenario, Some(Bug::RootForgotten), None;
        "passed-once-more": "a waiter is passed once more than the bound",
            scenario, Some(Bug::PassedOnceMore), None;
        "widened-past-waiter": "a grant is widened with bytes that somebody waits for",
            scenario, Some(Bug::WaitersForgotten), None;
        "promised-twice": "a grant is made smaller, and its bytes are promised to others before it can no longer charge them",
            scenario, Some(Bug::PromiseLoweredFirst), None;
    ]
}

/// Limits of the root and of each tenant.
const MAX: [i64; 3] = [10, 8, 8];
const PASSES_MAX: u32 = 1;

/// The group of a grant.
struct Group<M: Machine> {
    tenant: usize,
    state: M::Mutex<State>,
}

struct State {
    max: i64,
    charged: i64,
    /// Bytes that are promised until all have returned. Set when the grant ends with some.
    ended: Option<i64>,
}

struct Grant<M: Machine> {
    group: Arc<Group<M>>,
    bytes: i64,
    is_shrinking: bool,
}

struct Waiter<M: Machine> {
    group: Arc<Group<M>>,
    bytes: i64,
    passed: u32,
    /// Number of times that others got bytes while it waited: what `passed` must bound.
    taken: u32,
    served: Arc<M::Event>,
}

struct Ledger<M: Machine> {
    promised: [i64; 3],
    grants: Vec<Grant<M>>,
    waiting: Vec<Waiter<M>>,
}

struct World<M: Machine> {
    ledger: M::Mutex<Ledger<M>>,
    bug: Option<Bug>,
    // Not the machine's words: counting costs no step.
    charged: [AtomicI64; 3],
}

impl<M: Machine> Group<M> {
    fn levels(&self) -> [usize; 2] {
        [0, self.tenant]
    }
}

impl<M: Machine> Ledger<M> {
    fn fits(&self, group: &Group<M>, bytes: i64) -> bool {
        let has_room = |at: usize| self.promised[at] + bytes <= MAX[at];
        group.levels().into_iter().all(has_room)
    }

    fn promise(&mut self, group: &Group<M>, bytes: i64) {
        for at in group.levels() {
            self.promised[at] += bytes;
        }
    }

    /// Notes that somebody behind the first `ahead` that wait gets bytes.
    fn take_ahead(&mut self, ahead: usize) {
        for one in &mut self.waiting[..ahead] {
            one.taken += 1;
            assert!(one.taken <= PASSES_MAX, "it is passed too often");
        }
    }

    /// Grants an ask behind the first `ahead` that wait, if it fits and they may be passed.
    fn grant(&mut self, ahead: usize, group: &Arc<Group<M>>, bytes: i64, passes_max: u32) -> bool {
        let mut passed = self.waiting[..ahead].iter().map(|one| one.passed);
        if !self.fits(group, bytes) || passed.any(|passed| passed >= passes_max) {
            return false;
        }
        self.take_ahead(ahead);
        self.waiting[..ahead]
            .iter_mut()
            .for_each(|one| one.passed += 1);
        self.promise(group, bytes);
        self.grants.push(Grant {
            group: group.clone(),
            bytes,
            is_shrinking: false,
        });
        true
    }

    fn find(&self, group: &Arc<Group<M>>) -> Option<usize> {
        let is_its = |grant: &Grant<M>| Arc::ptr_eq(&grant.group, group);
        self.grants.iter().position(is_its)
    }
}

impl<M: Machine> World<M> {
    fn has(&self, bug: Bug) -> bool {
        self.bug == Some(bug)
    }

    fn passes_max(&self) -> u32 {
        PASSES_MAX + u32::from(self.has(Bug::PassedOnceMore))
    }

    /// Changes the ledger, and serves all that can be served then.
    fn change(&self, change: impl FnOnce(&mut Ledger<M>)) {
        let mut served = Vec::new();
        {
            let mut ledger = self.ledger.lock();
            change(&mut ledger);
            let mut at = 0;
            while let Some(one) = ledger.waiting.get(at) {
                let (group, bytes) = (one.group.clone(), one.bytes);
                if ledger.grant(at, &group, bytes, self.passes_max()) {
                    served.push(ledger.waiting.remove(at).served);
                } else {
                    at += 1;
                }
            }
        }
        served.iter().for_each(|served| served.set());
    }

    /// Waits for a grant, or gives up at once.
    fn ask(&self, tenant: usize, bytes: i64, gives_up: bool) -> Option<Arc<Group<M>>> {
        let group = Arc::new(Group {
            tenant,
            state: M::Mutex::new(State {
                max: bytes,
                charged: 0,
                ended: None,
            }),
        });
        let served = Arc::new(M::Event::new());
        {
            let mut ledger = self.ledger.lock();
            let ahead = ledger.waiting.len();
            if ledger.grant(ahead, &group, bytes, self.passes_max()) {
                return Some(group);
            }
            ledger.waiting.push(Waiter {
                group: group.clone(),
                bytes,
                passed: 0,
                taken: 0,
                served: served.clone(),
            });
        }
        if !gives_up {
            served.wait();
            return Some(group);
        }
        self.change(|ledger| {
            ledger
                .waiting
                .retain(|one| !Arc::ptr_eq(&one.group, &group));
            if let Some(at) = ledger.find(&group) {
                let grant = ledger.grants.remove(at);
                if !self.has(Bug::CancelledNotReturned) {
                    ledger.promise(&group, -grant.bytes);
                }
            }
        });
        None
    }

    fn charge(&self, group: &Group<M>, bytes: i64) -> i64 {
        let mut state = group.state.lock();
        let bytes = bytes.min(state.max - state.charged);
        state.charged += bytes;
        // Relaxed, here and below: one thread of the host runs all tasks.
        for at in group.levels() {
            self.charged[at].fetch_add(bytes, Ordering::Relaxed);
        }
        bytes
    }

    fn uncharge(&self, group: &Group<M>, bytes: i64) {
        let ended = {
            let mut state = group.state.lock();
            state.charged -= bytes;
            for at in group.levels() {
                self.charged[at].fetch_sub(bytes, Ordering::Relaxed);
            }
            let is_empty = state.charged == 0;
            state.ended.take_if(|_| is_empty)
        };
        if let Some(ended) = ended {
            self.change(|ledger| ledger.promise(group, -ended));
        }
    }

    fn widen(&self, group: &Arc<Group<M>>, more: i64) {
        let mut ledger = self.ledger.lock();
        let is_awaited = !ledger.waiting.is_empty() && !self.has(Bug::WaitersForgotten);
        let at = ledger.find(group).expect("it has not ended");
        if is_awaited || ledger.grants[at].is_shrinking || !ledger.fits(group, more) {
            return;
        }
        let waiting = ledger.waiting.len();
        ledger.take_ahead(waiting);
        ledger.promise(group, more);
        if self.has(Bug::RootForgotten) {
            ledger.promised[0] -= more;
        }
        ledger.grants[at].bytes += more;
        group.state.lock().max += more;
    }

    /// Takes what it has not charged from the first grant.
    fn shrink(&self) {
        let group = {
            let mut ledger = self.ledger.lock();
            let Some(first) = ledger.grants.first_mut().filter(|one| !one.is_shrinking) else {
                return;
            };
            first.is_shrinking = true;
            first.group.clone()
        };
        let lower = || {
            let mut state = group.state.lock();
            state.max = state.charged;
            state.max
        };
        let kept = match self.has(Bug::PromiseLoweredFirst) {
            true => group.state.lock().charged,
            false => lower(),
        };
        self.change(|ledger| {
            let Some(at) = ledger.find(&group) else {
                return;
            };
            let grant = &mut ledger.grants[at];
            grant.is_shrinking = false;
            let before = std::mem::replace(&mut grant.bytes, kept);
            ledger.promise(&group, kept - before);
        });
        if self.has(Bug::PromiseLoweredFirst) {
            lower();
        }
    }

    /// Ends a grant. Its charged bytes are promised until they return.
    fn end(&self, group: &Arc<Group<M>>) {
        let is_told_late = self.has(Bug::EndToldLate);
        let mut kept = 0;
        self.change(|ledger| {
            let at = ledger.find(group).expect("it has not ended");
            let grant = ledger.grants.remove(at);
            let mut state = group.state.lock();
            kept = state.charged;
            state.max = kept;
            state.ended = (kept > 0 && !is_told_late).then_some(kept);
            ledger.promise(group, kept - grant.bytes);
        });
        if is_told_late && kept > 0 {
            group.state.lock().ended = Some(kept);
        }
    }

    fn check(&self) {
        for (charged, max) in self.charged.iter().zip(MAX) {
            let charged = charged.load(Ordering::Relaxed);
            assert!(charged <= max, "{charged} bytes are charged of {max}");
        }
    }
}

fn scenario<M: Watched>(machine: &M, seed: u64, bug: Option<Bug>) {
    let world = World::<M> {
        ledger: M::Mutex::new(Ledger {
            promised: [0; 3],
            grants: Vec::new(),
            waiting: Vec::new(),
        }),
        bug,
        charged: [0, 0, 0].map(AtomicI64::new),
    };
    let world = &world;
    // Each task returns bytes of a grant, which another may have ended or be about to end.
    let left = &M::Mutex::new(Vec::new());
    let query = move |mut random: Random| {
        for _ in 0..2 {
            let (tenant, bytes) = (1 + random.below(2) as usize, 2 + random.below(6) as i64);
            let Some(group) = world.ask(tenant, bytes, random.below(3) == 0) else {
                continue;
            };
            let mut charged = world.charge(&group, bytes / 2);
            if random.below(2) == 0 {
                world.widen(&group, 1);
            }
            charged += world.charge(&group, i64::MAX);
            left.lock().push((group.clone(), charged));
            world.end(&group);
            let one = left.lock().pop();
            let (group, charged) = one.expect("each has left one");
            world.uncharge(&group, charged);
        }
    };
    let shrink = |_: Random| (0..2).for_each(|_| world.shrink());
    run(
        machine,
        seed,
        || world.check(),
        tasks![query, query, query, shrink],
    );
    let promised = world.ledger.lock().promised;
    assert_eq!(promised, [0; 3], "bytes that nobody holds");
}
