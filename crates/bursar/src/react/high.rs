//! Usage above `high`: reclaim, then sleep, or a debt that the caller waits for.

use std::fmt;
use std::time::Duration;

use bursar_machine::{AtomicWord, Machine, MemoryOrder};

use super::core::Core;
use super::policies::HighPolicy;
use super::reclaim::{self, RECLAIM_TRIES};
use super::reclaimers::Reason;
use super::{fork, stalling, tell, throttle, trace};
use crate::bytes::Bytes;
use crate::limit::{Event, Limit};

/// Interval at which a throttled task looks whether it still must sleep.
const SLEEP_NS: u64 = 100_000_000;

/// Bytes charged while a `high` was exceeded, and the time that their owner should wait by the kernel's formula; see
/// [`crate::Group::take_debt`].
#[must_use = "a debt that was taken is forgotten unless the caller waits"]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Debt {
    /// The number of bytes.
    pub bytes: u64,
    /// The time to wait, by the usage and `high` at the moment the debt was taken. Zero below `high`, and at most 2 s for any
    /// number of bytes.
    pub delay: Duration,
}

impl fmt::Display for Debt {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} owe {} ms", Bytes(self.bytes), self.delay.as_millis())
    }
}

/// Usage and `high` of those groups on the way from `index` to the root that have a `high`.
fn highs<M: Machine>(core: &Core<M>, index: u32) -> impl Iterator<Item = (u32, u64, Limit)> + '_ {
    core.tree().chain(index).filter_map(|at| {
        let counter = core.counters.counter(at);
        // Relaxed: throttling is a matter of degree.
        let high = counter.settings.high.load(MemoryOrder::Relaxed);
        // Spares a look at a word that all CPUs write.
        (high != Limit::MAX).then(|| (at, counter.usage(MemoryOrder::Relaxed), high))
    })
}

fn is_over_high<M: Machine>(core: &Core<M>, index: u32) -> bool {
    core.counters.has_high() && highs(core, index).any(|(_, usage, high)| usage > high)
}

/// Notes a debt if a `high` is exceeded. Async-signal-safe.
pub(crate) fn owe_if_above<M: Machine>(core: &Core<M>, index: u32, bytes: u64) {
    if count_high(core, index) {
        owe(core, index, bytes);
    }
}

/// Counts the event at each group whose `high` is exceeded. Returns whether there is one.
fn count_high<M: Machine>(core: &Core<M>, index: u32) -> bool {
    let mut is_over = false;
    if !core.counters.has_high() {
        return false;
    }
    for (at, usage, high) in highs(core, index) {
        if usage > high {
            core.counters.count(at, Event::High, 1);
            is_over = true;
        }
    }
    is_over
}

fn owe<M: Machine>(core: &Core<M>, index: u32, bytes: u64) {
    // Relaxed: a number that is read later.
    let debt = &core.counters.counter(index).debt_bytes;
    debt.fetch_add(bytes, MemoryOrder::Relaxed);
}

/// Asks reclaimers for the bytes above a `high`, and pays for those that stay. Call after a charge that reserved `bytes`.
pub(super) fn pay<M: Machine>(core: &Core<M>, index: u32, bytes: u64, policy: HighPolicy) {
    if !is_over_high(core, index) || reclaim::is_reclaiming(core) {
        return;
    }
    drain_above_high(core, index);
    count_high(core, index);
    let mut tries = RECLAIM_TRIES;
    while tries > 0 && is_over_high(core, index) && reclaim_above_high(core, index) > 0 {
        tries -= 1;
    }
    if !is_over_high(core, index) {
        return;
    }
    match policy {
        HighPolicy::Throttle => throttle(core, index, bytes),
        HighPolicy::Owe => owe(core, index, bytes),
    }
}

/// Takes stock back below each `high` that is exceeded, because no task should wait for memory in no use. No new stock is
/// held there while it is exceeded.
fn drain_above_high<M: Machine>(core: &Core<M>, index: u32) {
    let over = highs(core, index).filter(|(_, usage, high)| usage > high);
    // The highest of these groups. The others are below it.
    if let Some((at, ..)) = over.last()
        && core.counters.has_holders(at)
    {
        fork::drain(core, at);
        tell::changed(core, at);
    }
}

/// Asks for the bytes above each `high` on the way. Returns the bytes that reclaimers say they freed.
fn reclaim_above_high<M: Machine>(core: &Core<M>, index: u32) -> u64 {
    let freed = highs(core, index).map(|(at, usage, high)| {
        let over = usage.saturating_sub(high);
        reclaim::stalled(core, index, at, over, Reason::High).freed
    });
    freed.fold(0, u64::saturating_add)
}

fn penalty<M: Machine>(core: &Core<M>, index: u32, bytes: u64) -> Duration {
    let highs = highs(core, index).map(|(_, usage, high)| (usage, high));
    throttle::penalty_of(highs, bytes)
}

fn throttle<M: Machine>(core: &Core<M>, index: u32, bytes: u64) {
    let delay = penalty(core, index, bytes);
    if delay.is_zero() {
        return;
    }
    let machine = &core.tree().machine;
    let _stalled = stalling::stall(core, index);
    let begun_ns = machine.now_ns();
    let end_ns = begun_ns + delay.as_nanos() as u64;
    let mut now_ns = begun_ns;
    // In parts, because `high` may be raised, and others may return bytes.
    while now_ns < end_ns && is_over_high(core, index) {
        machine.sleep_until(end_ns.min(now_ns + SLEEP_NS));
        now_ns = machine.now_ns();
    }
    let slept_ns = now_ns.saturating_sub(begun_ns);
    core.counters.count(index, Event::Throttled, slept_ns);
    trace::throttled(core, index, Duration::from_nanos(slept_ns));
}

/// Takes the debt of a group. The caller pays for it.
pub(crate) fn take_debt<M: Machine>(core: &Core<M>, index: u32) -> Debt {
    // First, because the delay depends on the usage that is left.
    drain_above_high(core, index);
    let bytes = core
        .counters
        .counter(index)
        .debt_bytes
        .swap(0, MemoryOrder::Relaxed);
    Debt {
        bytes,
        delay: penalty(core, index, bytes),
    }
}
