//! Reclaim: asking the holders of memory to free some, before a charge is refused.
//!
//! A *reclaimer* is a function that a user registered with a group. It spills, evicts or cancels, and returns how many bytes it
//! freed. When a limit is in the way, the group's own reclaimers are asked first, in their order. Then come those of its
//! descendants: first of groups above their effective `low`, beginning with the group that exceeds it most. If that was not
//! enough, of groups above their effective `min`. A group within its `min` is never asked.
//!
//! The number that a reclaimer returns only ends the round. Whether the charge then fits is tried. The number of rounds is
//! bounded ([`RECLAIM_TRIES`]).
//!
//! Reclaimers run without any lock of ours. The panic of a reclaimer unwinds through the charge that called it, which then
//! charges nothing. A charge made by a reclaimer never starts reclaim itself, as with the kernel's `PF_MEMALLOC`. It is refused
//! where it does not fit. The emergency reserve ([`crate::EmergencyReserve`]) is for such charges.

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

/// Reason why a reclaimer is asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Reason {
    /// A charge left the usage above `high`, or `high` was set below the usage. Bytes that are not freed slow the charging task
    /// down, or become its debt.
    High,
    /// A charge does not fit below `max`, or `max` was set below the usage. Charges are refused if nothing is freed.
    Max,
    /// [`crate::Group::reclaim`].
    Asked,
}

/// Request to a reclaimer. One charge may ask several times, and several charges may ask at once.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct ReclaimRequest {
    /// Bytes wanted of this reclaimer in this call, at least 1. It may free more.
    pub target: u64,
    /// The reason.
    pub reason: Reason,
    /// The path of the group whose limit is in the way: the reclaimer's own group or one above it.
    pub scope: String,
}

/// The functions that users register.
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

/// Result of a round of reclaim.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Round {
    /// Whether any reclaimer was asked.
    pub(super) asked: bool,
    /// Bytes that reclaimers say they freed.
    pub(super) freed: u64,
}

/// A descendant whose reclaimers may be asked.
struct Candidate<'a, M: Machine> {
    group: Referred<'a, M>,
    /// Its usage when its protection was computed.
    usage: u64,
    low: u64,
    min: u64,
}

/// The protection that counts in a pass.
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
    /// Registers a reclaimer, and returns its number for [`Ledger::remove_reclaimer`]. The caller holds a reference of the
    /// group.
    pub(crate) fn add_reclaimer(&self, index: u32, order: i32, call: Arc<ReclaimFn>) -> u64 {
        let number = {
            let mut reclaimers = self.hooks(index).reclaimers.lock();
            let number = reclaimers.registered;
            reclaimers.registered += 1;
            // Behind others of the same order.
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
        // Its drop runs the user's code.
        drop(removed);
    }

    /// Whether the calling task is in a reclaimer of this memory.
    pub(super) fn is_reclaiming(&self) -> bool {
        let task = self.tree.machine.task();
        self.reclaiming.lock().contains(&task)
    }

    /// Asks for `target` bytes of `scope` and the groups below, once each. Asks none if the calling task reclaims already.
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
                // Bytes charged since are not taken from it: its protection was computed without them.
                let usage = self.usage(one.group.index).min(one.usage);
                protection::reclaimable(usage, protected)
            };
            // Their usage changes meanwhile. The order goes by the usage now, and the request by the usage then.
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
            // The event counts at most the bytes that the group had, so that sums stay sums whatever the reclaimer returns. The
            // round believes the number in full, because the reclaimer may have freed bytes that came meanwhile. At worst there
            // is another round.
            self.count(index, Event::Reclaimed, freed.min(held));
            if freed == 0 {
                self.count(index, Event::ReclaimFailed, 1);
            }
            round.freed = round.freed.saturating_add(freed);
            left = left.saturating_sub(freed);
        }
    }

    /// The groups below `scope` that have reclaimers, with their protection against reclaim of `scope`.
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

    /// Asks for the excess after a limit was lowered, as long as that helps.
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

    /// [`Ledger::reclaim`] on request. Returns the bytes that reclaimers say they freed.
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
        // Relaxed: see `add_reclaimer`. Without reclaimers there is no stall to count.
        if self.counter(scope).settings.reclaimers.load(Order::Relaxed) == 0 {
            return Round::default();
        }
        let _stalled = self.stall(stalled);
        self.reclaim(scope, target, reason)
    }
}
