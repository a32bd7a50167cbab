//! Reclaim: asking the holders of memory to free some, before a charge is refused.
//!
//! A *reclaimer* is a function that a user registered with a group. It spills, evicts or cancels, and returns how many bytes it
//! freed. When a limit is in the way, the group's own reclaimers are asked first, in their order. Then come those of its
//! descendants: first of groups above their effective `low`, beginning with the group that exceeds it most. If that was not
//! enough, of groups above their effective `min`. A group within its `min` is never asked.
//!
//! None is asked if all together could not free enough for the charge ([`may_make_room`]): a size that a client chose would empty
//! every cache for nothing. A charge that waits asks once for each poll, because what others return may be the rest.
//!
//! The number that a reclaimer returns only ends the round. Whether the charge then fits is tried. The number of rounds is
//! bounded ([`RECLAIM_TRIES`]).
//!
//! Reclaimers run without any lock of ours. The panic of a reclaimer unwinds through the charge that called it, which then
//! charges nothing. A charge made by a reclaimer never starts reclaim itself, as with the kernel's `PF_MEMALLOC`. It is refused
//! where it does not fit. The emergency reserve ([`crate::EmergencyReserve`]) is for such charges.

use std::cmp::Reverse;
use std::sync::Arc;

use bursar_machine::{AtomicWord, Lock, Machine, MemoryOrder};

use super::core::Core;
use super::hooks::{Hooks, Reason, ReclaimFn, ReclaimRequest, Reclaimer, Reclaimers};
use super::lifetime::{self, Referred};
use super::protection;
use super::{pressure, trace};
use crate::limit::Event;

/// Number of times that a charge asks for reclaim before it is refused.
#[doc(alias = "MAX_RECLAIM_RETRIES")]
pub(super) const RECLAIM_TRIES: u32 = 16;

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
    core: &'a Core<M>,
    task: u64,
}

impl<M: Machine> Drop for Reclaiming<'_, M> {
    fn drop(&mut self) {
        let mut reclaiming = self.core.reclaiming.lock();
        reclaiming.retain(|&task| task != self.task);
    }
}

impl Reclaimers {
    /// Registers a reclaimer behind others of the same order. Returns its number.
    fn add(&mut self, order: i32, call: Arc<ReclaimFn>) -> u64 {
        let number = self.registered;
        self.registered += 1;
        let at = self.list.partition_point(|other| other.order <= order);
        let reclaimer = Reclaimer {
            number,
            order,
            call,
        };
        self.list.insert(at, reclaimer);
        number
    }

    /// Ends a registration. The caller drops the value outside of locks, because that runs the user's code.
    fn remove(&mut self, number: u64) -> Option<Arc<ReclaimFn>> {
        let at = self.list.iter().position(|one| one.number == number);
        at.map(|at| self.list.remove(at).call)
    }

    fn is_empty(&self) -> bool {
        self.list.is_empty()
    }

    fn calls(&self) -> Vec<Arc<ReclaimFn>> {
        self.list.iter().map(|one| one.call.clone()).collect()
    }
}

/// Registers a reclaimer, and returns its number for [`remove`]. The caller holds a reference of the
/// group.
pub(crate) fn add<M: Machine>(core: &Core<M>, index: u32, order: i32, call: Arc<ReclaimFn>) -> u64 {
    let number = lifetime::hooks(core, index)
        .reclaimers
        .lock()
        .add(order, call);
    // Relaxed: a charge that comes at the same time may miss it.
    let chain = core.tree().chain(index);
    chain.for_each(|at| {
        let count = &core.counters.counter(at).settings.reclaimers;
        count.fetch_add(1, MemoryOrder::Relaxed);
    });
    number
}

/// Ends a registration. A call that is under way goes on.
pub(crate) fn remove<M: Machine>(core: &Core<M>, index: u32, number: u64) {
    let removed = lifetime::hooks(core, index)
        .reclaimers
        .lock()
        .remove(number);
    let chain = core.tree().chain(index);
    chain.for_each(|at| {
        let count = &core.counters.counter(at).settings.reclaimers;
        count.fetch_sub(1, MemoryOrder::Relaxed);
    });
    // Its drop runs the user's code.
    drop(removed);
}

/// Whether the calling task is in a reclaimer of this memory.
pub(super) fn is_reclaiming<M: Machine>(core: &Core<M>) -> bool {
    let task = core.tree().machine.task();
    core.reclaiming.lock().contains(&task)
}

/// Asks for `target` bytes of `scope` and the groups below, once each. Asks none if the calling task reclaims already.
pub(super) fn reclaim<M: Machine>(
    core: &Core<M>,
    scope: u32,
    target: u64,
    reason: Reason,
) -> Round {
    let mut round = Round::default();
    if target == 0 || !has_any(core, scope) || is_reclaiming(core) {
        return round;
    }
    let task = core.tree().machine.task();
    core.reclaiming.lock().push(task);
    let reclaiming = Reclaiming { core, task };
    let request = |target| ReclaimRequest {
        target,
        reason,
        scope: core.tree().path(scope),
    };
    ask(core, scope, target, &request, &mut round);
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
            let usage = core.counters.usage(one.group.index).min(one.usage);
            protection::reclaimable(usage, protected)
        };
        // Their usage changes meanwhile. The order goes by the usage now, and the request by the usage then.
        let mut candidates = candidates(core, scope);
        candidates.sort_by_cached_key(|one| Reverse(excess(one)));
        for one in &candidates {
            let more = target.saturating_sub(round.freed).min(excess(one));
            if more == 0 {
                continue;
            }
            let index = one.group.index;
            if pass == Pass::AboveMin && core.counters.usage(index) <= one.low {
                core.counters.count(index, Event::Low, 1);
            }
            ask(core, index, more, &request, &mut round);
        }
    }
    drop(reclaiming);
    if round.asked {
        trace::reclaimed(core, scope, target, round.freed);
    }
    round
}

/// Calls a group's own reclaimers until they have freed `target` bytes together.
fn ask<M: Machine>(
    core: &Core<M>,
    index: u32,
    target: u64,
    request: &dyn Fn(u64) -> ReclaimRequest,
    round: &mut Round,
) {
    let Some(hooks) = core.hooks(index) else {
        return;
    };
    let calls = hooks.reclaimers.lock().calls();
    let mut left = target;
    for call in calls {
        if left == 0 {
            break;
        }
        round.asked = true;
        let held = core.counters.usage(index);
        let freed = call(&request(left));
        // The event counts at most the bytes that the group had, so totals stay correct if a reclaimer reports too much. The
        // round uses the reported number unchanged, because the reclaimer may have freed bytes that came meanwhile. At worst
        // there is another round.
        core.counters
            .count(index, Event::Reclaimed, freed.min(held));
        // The least that can be charged now, because bytes may have come back as stock.
        let (least, _) = core.counters.usage_range(index);
        if freed == 0 {
            core.counters.count(index, Event::ReclaimFailed, 1);
        } else if least.cast_unsigned() >= held {
            core.counters.count(index, Event::ReclaimUnreturned, 1);
        }
        round.freed = round.freed.saturating_add(freed);
        left = left.saturating_sub(freed);
    }
}

/// The groups below `scope` that have reclaimers, with their protection against reclaim of `scope`.
fn candidates<M: Machine>(core: &Core<M>, scope: u32) -> Vec<Candidate<'_, M>> {
    let mut found = Vec::new();
    let wanted = |at| has_any(core, at);
    protection::walk(core, scope, wanted, |index, usage, protected| {
        let own = core.hooks(index);
        let has_own = own.is_some_and(|own| !own.reclaimers.lock().is_empty());
        if has_own {
            found.push(Candidate {
                group: lifetime::referred(core, index),
                usage,
                low: protected.low,
                min: protected.min,
            });
        }
    });
    found
}

/// Asks for the excess after a limit was lowered, as long as that helps.
pub(super) fn down_to<M: Machine>(
    core: &Core<M>,
    index: u32,
    reason: Reason,
    limit: impl Fn() -> u64,
) {
    for _ in 0..RECLAIM_TRIES {
        // Full: after the limit was set.
        let usage = core.counters.usage_now(index);
        let over = usage.saturating_sub(limit());
        let round = stalled(core, index, index, over, reason);
        if round.freed == 0 {
            break;
        }
    }
}

/// [`reclaim`] on request. Returns the bytes that reclaimers say they freed.
pub(crate) fn asked<M: Machine>(core: &Core<M>, index: u32, target: u64) -> u64 {
    let mut freed = 0_u64;
    for _ in 0..RECLAIM_TRIES {
        let left = target.saturating_sub(freed);
        let round = reclaim(core, index, left, Reason::Asked);
        if round.freed == 0 {
            break;
        }
        freed = freed.saturating_add(round.freed);
    }
    freed
}

/// [`reclaim`] whose time counts as a stall of `stalled` and all above it.
pub(super) fn stalled<M: Machine>(
    core: &Core<M>,
    stalled: u32,
    scope: u32,
    target: u64,
    reason: Reason,
) -> Round {
    // Without reclaimers there is no stall to count.
    if !has_any(core, scope) {
        return Round::default();
    }
    let _stalled = pressure::stall(core, stalled);
    reclaim(core, scope, target, reason)
}

/// One round of reclaim for a charge that does not fit at `limiting`.
pub(super) fn for_charge<M: Machine>(
    core: &Core<M>,
    index: u32,
    limiting: u32,
    bytes: u64,
) -> Round {
    let over = over(core, limiting, bytes);
    stalled(core, index, limiting, over, Reason::Max)
}

/// Whether a charge may fit at `limiting` once reclaimers have freed all that they may be asked for. Otherwise they would lose
/// their memory in vain.
///
/// The limiting group's own reclaimers may be asked for everything. Others are asked for the usage of their group above its
/// effective `min`. Groups inside each other are counted twice, and usage changes meanwhile. So `true` means only "perhaps".
pub(super) fn may_make_room<M: Machine>(core: &Core<M>, limiting: u32, bytes: u64) -> bool {
    if !has_any(core, limiting) || is_reclaiming(core) {
        return false;
    }
    let has_own = |own: &Hooks<M>| !own.reclaimers.lock().is_empty();
    core.hooks(limiting).is_some_and(has_own) || {
        let found = candidates(core, limiting);
        let freeable = found
            .iter()
            .map(|one| protection::reclaimable(one.usage, one.min));
        freeable.fold(0, u64::saturating_add) >= over(core, limiting, bytes)
    }
}

/// Bytes that must go for a charge to fit at `limiting`; at least 1.
fn over<M: Machine>(core: &Core<M>, limiting: u32, bytes: u64) -> u64 {
    let counter = core.counters.counter(limiting);
    // Relaxed: only how much to ask for. Whether the charge fits is tried.
    let usage = core.counters.usage(limiting);
    let max = counter.settings.max.load(MemoryOrder::Relaxed);
    usage.saturating_add(bytes).saturating_sub(max).max(1)
}

/// Whether reclaimers are registered at or below a group.
fn has_any<M: Machine>(core: &Core<M>, at: u32) -> bool {
    // Relaxed: see `add`.
    let count = &core.counters.counter(at).settings.reclaimers;
    count.load(MemoryOrder::Relaxed) != 0
}
