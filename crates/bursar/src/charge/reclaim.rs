//! Reclaim: asking those who hold memory to give some back, before a charge is refused.
//!
//! A *reclaimer* is a function that a user registered with a group: it spills, evicts or cancels, and says how many bytes it
//! freed. When a limit is in the way, the group's own reclaimers are asked first, in their order; then those of its
//! descendants, first of groups above their effective `low`, the one that exceeds it most first, then, if that was not
//! enough, of groups above their effective `min`. A group within its `min` is never asked.
//!
//! What a reclaimer says is believed only as far as it costs nothing: it ends the round, but whether the charge then fits
//! is decided by trying it. Rounds are bounded ([`RECLAIM_TRIES`]).
//!
//! Reclaimers run without any lock of ours. One that panics unwinds through the charge that called it, which then charges
//! nothing. A charge made by a reclaimer never starts reclaim itself, as with the kernel's `PF_MEMALLOC`: it is refused
//! where it does not fit, and has the emergency reserve ([`crate::EmergencyReserve`]) to turn to.

use std::cmp::Reverse;
use std::sync::Arc;

use bursar_machine::{AtomicWord, Lock, Machine, Order};

use super::Ledger;
use super::events::Event;
use super::ledger::Referred;
use super::protection;

/// How often a charge asks for reclaim before it is refused.
#[doc(alias = "MAX_RECLAIM_RETRIES")]
pub(super) const RECLAIM_TRIES: u32 = 16;

/// Why memory is to be given back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Reason {
    /// A charge left the usage above `high`, or `high` was set below the usage. Whoever charges is slowed down by what
    /// is not freed.
    High,
    /// A charge does not fit below `max`, or `max` was set below the usage. Charges are refused if nothing is freed.
    Max,
    /// [`crate::Group::reclaim`].
    Asked,
}

/// What a reclaimer is asked for. One charge may ask several times, as may several charges at once.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct ReclaimRequest {
    /// Bytes wanted of this reclaimer in this call; never 0. Freeing more is fine.
    pub target: u64,
    /// Why.
    pub reason: Reason,
    /// The path of the group whose limit is in the way: the reclaimer's own or one above it.
    pub scope: String,
}

/// What users register.
pub(crate) type ReclaimFn = dyn Fn(&ReclaimRequest) -> u64 + Send + Sync;

struct Reclaimer {
    number: u64,
    order: i32,
    call: Arc<ReclaimFn>,
}

/// The reclaimers of one group, in the order in which they are asked.
#[derive(Default)]
pub(crate) struct Reclaimers {
    list: Vec<Reclaimer>,
    registered: u64,
}

/// What a round of reclaim came to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Round {
    /// Whether anybody was asked.
    pub(super) asked: bool,
    /// Bytes that they say they freed.
    pub(super) freed: u64,
}

/// A descendant that may be asked.
struct Candidate<'a, M: Machine> {
    group: Referred<'a, M>,
    /// When its protection was worked out.
    usage: u64,
    low: u64,
    min: u64,
}

/// Which protection counts.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Pass {
    AboveLow,
    AboveMin,
}

/// A task that runs reclaimers, until dropped.
struct Reclaiming<'a, M: Machine> {
    ledger: &'a Ledger<M>,
    task: u64,
}

impl<M: Machine> Drop for Reclaiming<'_, M> {
    fn drop(&mut self) {
        let mut reclaiming = self.ledger.reclaiming.lock();
        reclaiming.retain(|&task| task != self.task);
    }
}

impl<M: Machine> Ledger<M> {
    /// Registers a reclaimer; returns its number for [`Ledger::remove_reclaimer`]. The caller refers to the group.
    pub(crate) fn add_reclaimer(&self, index: u32, order: i32, call: Arc<ReclaimFn>) -> u64 {
        let number = {
            let mut reclaimers = self.hooks(index).reclaimers.lock();
            let number = reclaimers.registered;
            reclaimers.registered += 1;
            // Behind those of the same order.
            let at = reclaimers
                .list
                .partition_point(|other| other.order <= order);
            let reclaimer = Reclaimer {
                number,
                order,
                call,
            };
            reclaimers.list.insert(at, reclaimer);
            number
        };
        // Relaxed: a charge that comes at the same time may miss it.
        let chain = self.tree.chain(index);
        chain.for_each(|at| {
            let count = &self.counter(at).settings.reclaimers;
            count.fetch_add(1, Order::Relaxed);
        });
        number
    }

    /// Ends a registration. A call that is under way goes on.
    pub(crate) fn remove_reclaimer(&self, index: u32, number: u64) {
        let removed = {
            let mut reclaimers = self.hooks(index).reclaimers.lock();
            let at = reclaimers.list.iter().position(|one| one.number == number);
            at.map(|at| reclaimers.list.remove(at))
        };
        let chain = self.tree.chain(index);
        chain.for_each(|at| {
            let count = &self.counter(at).settings.reclaimers;
            count.fetch_sub(1, Order::Relaxed);
        });
        // Its drop is the user's code.
        drop(removed);
    }

    /// Whether the calling task is in a reclaimer of this memory.
    pub(super) fn is_reclaiming(&self) -> bool {
        let task = self.tree.machine.task();
        self.reclaiming.lock().contains(&task)
    }

    /// Asks for `target` bytes of `scope` and what is below, once each. Nobody is asked by a task that reclaims already.
    pub(super) fn reclaim(&self, scope: u32, target: u64, reason: Reason) -> Round {
        let mut round = Round::default();
        let has_any = |at: u32| {
            // Relaxed: see `add_reclaimer`.
            self.counter(at).settings.reclaimers.load(Order::Relaxed) != 0
        };
        if target == 0 || !has_any(scope) || self.is_reclaiming() {
            return round;
        }
        let task = self.tree.machine.task();
        self.reclaiming.lock().push(task);
        let _reclaiming = Reclaiming { ledger: self, task };
        let request = |target| ReclaimRequest {
            target,
            reason,
            scope: self.tree.path(scope),
        };
        self.ask(scope, target, &request, &mut round);
        for pass in [Pass::AboveLow, Pass::AboveMin] {
            if round.freed >= target {
                break;
            }
            let excess = |one: &Candidate<'_, M>| {
                let protected = match pass {
                    Pass::AboveLow => one.low.max(one.min),
                    Pass::AboveMin => one.min,
                };
                // What it charged since is not taken from it: it was not there to be protected.
                let usage = self.usage(one.group.index).min(one.usage);
                protection::reclaimable(usage, protected)
            };
            // Their usage changes meanwhile; the order is as of now, and what is asked for as of then.
            let mut candidates = self.candidates(scope);
            candidates.sort_by_cached_key(|one| Reverse(excess(one)));
            for one in &candidates {
                let more = target.saturating_sub(round.freed).min(excess(one));
                if more == 0 {
                    continue;
                }
                let index = one.group.index;
                if pass == Pass::AboveMin && self.usage(index) <= one.low {
                    self.count(index, Event::Low, 1);
                }
                self.ask(index, more, &request, &mut round);
            }
        }
        round
    }

    /// Calls a group's own reclaimers until they have freed `target` bytes together.
    fn ask(
        &self,
        index: u32,
        target: u64,
        request: &dyn Fn(u64) -> ReclaimRequest,
        round: &mut Round,
    ) {
        let Some(hooks) = self.counter(index).hooks() else {
            return;
        };
        let calls: Vec<Arc<ReclaimFn>> = {
            let reclaimers = hooks.reclaimers.lock();
            reclaimers.list.iter().map(|one| one.call.clone()).collect()
        };
        let mut left = target;
        for call in calls {
            if left == 0 {
                break;
            }
            round.asked = true;
            let held = self.usage(index);
            let freed = call(&request(left));
            // Counted up to what there was, so that sums stay sums whatever it says. Believed in full, for it may have freed
            // what came meanwhile: at worst there is another round.
            self.count(index, Event::Reclaimed, freed.min(held));
            if freed == 0 {
                self.count(index, Event::ReclaimFailed, 1);
            }
            round.freed = round.freed.saturating_add(freed);
            left = left.saturating_sub(freed);
        }
    }

    /// The groups below `scope` that have reclaimers, with the protection that they have against reclaim of `scope`.
    fn candidates(&self, scope: u32) -> Vec<Candidate<'_, M>> {
        let mut found = Vec::new();
        // Relaxed: see `add_reclaimer`.
        let has_any = |at: u32| self.counter(at).settings.reclaimers.load(Order::Relaxed) != 0;
        self.walk_protected(scope, has_any, |index, usage, standing| {
            let has_own = self.counter(index).hooks().is_some_and(|hooks| {
                let reclaimers = hooks.reclaimers.lock();
                !reclaimers.list.is_empty()
            });
            if has_own {
                found.push(Candidate {
                    group: self.referred(index),
                    usage,
                    low: standing.low,
                    min: standing.min,
                });
            }
        });
        found
    }

    /// After a limit was lowered: asks for what the usage exceeds it by, as long as that helps.
    pub(super) fn reclaim_down_to(&self, index: u32, reason: Reason, limit: impl Fn() -> u64) {
        for _ in 0..RECLAIM_TRIES {
            // Full: after the limit was set.
            let usage = self.counter(index).usage.load(Order::Full);
            let over = usage.saturating_sub(limit());
            let round = self.reclaim_stalled(index, index, over, reason);
            if round.freed == 0 {
                break;
            }
        }
    }

    /// [`Ledger::reclaim`] on request; returns the bytes that reclaimers say they freed.
    pub(crate) fn reclaim_asked(&self, index: u32, target: u64) -> u64 {
        let mut freed = 0_u64;
        for _ in 0..RECLAIM_TRIES {
            let left = target.saturating_sub(freed);
            let round = self.reclaim(index, left, Reason::Asked);
            if round.freed == 0 {
                break;
            }
            freed = freed.saturating_add(round.freed);
        }
        freed
    }

    /// [`Ledger::reclaim`] whose time counts as a stall of `stalled` and all above it.
    pub(super) fn reclaim_stalled(
        &self,
        stalled: u32,
        scope: u32,
        target: u64,
        reason: Reason,
    ) -> Round {
        // Relaxed: see `add_reclaimer`. Without anybody to ask there is no stall to count.
        if self.counter(scope).settings.reclaimers.load(Order::Relaxed) == 0 {
            return Round::default();
        }
        let _stalled = self.stall(stalled);
        self.reclaim(scope, target, reason)
    }
}
