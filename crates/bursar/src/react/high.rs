//! Usage above `high`: reclaim, then sleep, or a debt that the caller waits for.
//!
//! `high` refuses nothing. A charge above it waits, by the square of how far above. A little over is hardly felt. A group far
//! over is slowed to a crawl, in which a supervisor may still act. The *overage* is the part of `high` by which usage exceeds
//! it, `r`. A charge of one batch waits `64 r^2` seconds. A larger or smaller charge waits in proportion:
//!
//! | usage, % of `high` | 101 | 102 | 105 | 110 | 117 | 118 and more |
//! |---|---|---|---|---|---|---|
//! | wait for a batch, ms | none (6.4) | 25.6 | 160 | 640 | 1849.6 | 2000 |
//!
//! After `mm/memcontrol.c` (`calculate_high_delay`) of Linux 6.1 to 7.3. The kernel counts in jiffies, and drops fractions of a
//! jiffy before it multiplies by the size of the charge. At 100 Hz a jiffy is as long as the wait that is ignored. So there an
//! overage of 1 % never waits, however big the charge, and a wait of less than 20 ms is none. Here the unit is nanoseconds: the
//! same on each machine, and never less than the wait that the kernel asks its timer for.

use std::fmt;
use std::time::Duration;

use bursar_machine::{AtomicWord, Machine, MemoryOrder};

use super::core::Core;
use super::core::HighPolicy;
use super::hooks::Reason;
use super::reclaim::{self, RECLAIM_TRIES};
use super::{fork, pressure, tell, trace};
use crate::bytes::Bytes;
use crate::limit::{Event, Limit};

/// Interval at which a throttled task looks whether it still must sleep.
const SLEEP_NS: u64 = 100_000_000;

/// Binary places of an overage.
#[doc(alias = "MEMCG_DELAY_PRECISION_SHIFT")]
const PRECISION_SHIFT: u32 = 20;
/// Seconds for the square of an overage of 1 are 2 to the power of this and of `PRECISION_SHIFT` less: `40 - 34`, so 64.
#[doc(alias = "MEMCG_DELAY_SCALING_SHIFT")]
const SCALING_SHIFT: u32 = 14;
/// A page of the kernel on most machines, bytes.
const PAGE_BYTES: u64 = 4096;
/// The charge that waits for just the time of the formula, bytes: `MEMCG_CHARGE_BATCH` is 64 pages.
#[doc(alias = "MEMCG_CHARGE_BATCH")]
const BATCH_BYTES: u64 = 64 * PAGE_BYTES;
/// No charge waits longer; the kernel has `2 * HZ` jiffies.
#[doc(alias = "MEMCG_MAX_HIGH_DELAY_JIFFIES")]
const DELAY_NS_MAX: u64 = 2_000_000_000;
/// The longest wait that is ignored, because sleep is not worth it; the kernel has `HZ / 100` jiffies.
const DELAY_NS_IGNORED: u64 = 10_000_000;
/// With an overage of 4096 times `high` even a charge of one byte waits for the longest time: `64 * 2^24 / 2^18` seconds. So
/// clamping there changes no result, and squares stay within 64 bits.
const OVERAGE_MAX: u128 = (1 << (PRECISION_SHIFT + 12)) - 1;

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
    penalty_of(highs, bytes)
}

fn throttle<M: Machine>(core: &Core<M>, index: u32, bytes: u64) {
    let delay = penalty(core, index, bytes);
    if delay.is_zero() {
        return;
    }
    let machine = &core.tree().machine;
    let _stalled = pressure::stall(core, index);
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

/// Time that a charge of `bytes` waits in a group, given usage and `high` (bytes) of it and of each group above it.
///
/// Zero, or more than 10 ms and at most 2 s. The group furthest above its `high` decides: waits do not add up. A `high` of
/// `u64::MAX` is none, and one of less than a page counts as a page.
#[doc(alias = "mem_cgroup_handle_over_high")]
#[doc(alias = "mem_find_max_overage")]
fn penalty_of(overages: impl Iterator<Item = (u64, u64)>, bytes: u64) -> Duration {
    let greatest = overages.map(|(usage, high)| overage(usage, high)).max();
    delay(greatest.unwrap_or(0), bytes)
}

/// Usage above `high` as a part of `high`, with `PRECISION_SHIFT` binary places.
#[doc(alias = "calculate_overage")]
fn overage(usage: u64, high: u64) -> u128 {
    // The kernel's `high` is a whole number of pages, at least one, so that there is a divisor.
    let high = high.max(PAGE_BYTES);
    let above = u128::from(usage.saturating_sub(high));
    ((above << PRECISION_SHIFT) / u128::from(high)).min(OVERAGE_MAX)
}

#[doc(alias = "calculate_high_delay")]
fn delay(overage: u128, bytes: u64) -> Duration {
    // At most 64 + 30 bits, and 60 after the shift; a charge has 64 more, which fits.
    let batch_ns = (overage * overage * 1_000_000_000) >> (PRECISION_SHIFT + SCALING_SHIFT);
    let delay_ns = batch_ns * u128::from(bytes) / u128::from(BATCH_BYTES);
    let delay_ns = delay_ns.min(u128::from(DELAY_NS_MAX)) as u64;
    if delay_ns <= DELAY_NS_IGNORED {
        return Duration::ZERO;
    }
    Duration::from_nanos(delay_ns)
}

#[cfg(test)]
mod tests {
    use bursar_rig::random::Random;

    use super::*;

    /// One group.
    fn penalty(usage: u64, high: u64, bytes: u64) -> Duration {
        penalty_of(std::iter::once((usage, high)), bytes)
    }

    const MIB: u64 = 1 << 20;
    const BATCH: u64 = 256 << 10;

    /// Waits in microseconds, rounded: an overage is dropped below 2^-20.
    fn waits_us(usage: u64, high: u64, bytes: u64) -> u64 {
        (penalty(usage, high, bytes).as_nanos() as u64 + 500) / 1000
    }

    #[test]
    fn worked_cases() {
        // Usage, high, bytes, microseconds: 64 s * r^2 * bytes / 256 KiB.
        let cases = [
            // 1 %: 64 s / 10,000 = 6.4 ms, below the floor; with twice the batch, 12.8 ms; half a batch of 2 %.
            (101 * MIB, 100 * MIB, BATCH, 0),
            (101 * MIB, 100 * MIB, 2 * BATCH, 12_800),
            (102 * MIB, 100 * MIB, BATCH, 25_600),
            (102 * MIB, 100 * MIB, BATCH / 2, 12_800),
            // 1/64 and 5/64, without rounding: 64 s / 4096 = 15.625 ms, and 25 times that.
            (65 * MIB, 64 * MIB, BATCH, 15_625),
            (69 * MIB, 64 * MIB, BATCH, 390_625),
            // 10 %: 64 s / 100; twice the batch; four times, 2.56 s, capped. A page, 640 ms / 64, is not above 10 ms.
            (110 * MIB, 100 * MIB, BATCH, 640_000),
            (110 * MIB, 100 * MIB, 2 * BATCH, 1_280_000),
            (110 * MIB, 100 * MIB, 4 * BATCH, 2_000_000),
            (110 * MIB, 100 * MIB, 4096, 0),
            // 50 % and 100 %: 16 s and 64 s for a batch, capped; a page of it, 250 ms and 1 s.
            (150 * MIB, 100 * MIB, BATCH, 2_000_000),
            (150 * MIB, 100 * MIB, 4096, 250_000),
            (200 * MIB, 100 * MIB, BATCH, 2_000_000),
            (200 * MIB, 100 * MIB, 4096, 1_000_000),
            // At or below `high`, or without one, or nothing charged.
            (100 * MIB, 100 * MIB, BATCH, 0),
            (99 * MIB, 100 * MIB, u64::MAX, 0),
            (u64::MAX, u64::MAX, u64::MAX, 0),
            (200 * MIB, 100 * MIB, 0, 0),
            // `high` of less than a page is a page, so a page is not above it. 9 pages of 8: 64 s / 64.
            (4096, 0, BATCH, 0),
            (4096, 1, BATCH, 0),
            (9 * 4096, 8 * 4096, BATCH, 1_000_000),
            (8192, 0, 1024, 250_000),
            // One byte waits for the longest from 90.51 times `high` on, and at 90, 64 s * 90^2 / 2^18.
            (u64::MAX, 0, u64::MAX, 2_000_000),
            (u64::MAX, 0, 1, 2_000_000),
            (91 * MIB, MIB, 1, 1_977_539),
            (u64::MAX, u64::MAX - 1, u64::MAX, 0),
        ];
        for (usage, high, bytes, expected_us) in cases {
            let found_us = waits_us(usage, high, bytes);
            // 2^-20 of overage, of 1 % and more, is at most 1 in 5,000 of its square.
            let slack_us = expected_us / 5000;
            assert!(
                (expected_us - slack_us..=expected_us).contains(&found_us),
                "{usage} {high} {bytes}: {found_us}, not {expected_us}"
            );
        }
    }

    /// A group exactly at its `high` is not above it.
    #[test]
    fn stock_stays_while_no_high_is_exceeded() {
        let memory = crate::Memory::host().unwrap();
        let group = memory.root().child("group", crate::Limits::none()).unwrap();
        let _held = group.try_charge(100).unwrap();
        let reserved = group.reserved();
        assert!(reserved > 100, "stock is held, or this shows nothing");
        let settings = &group.core().counters.counter(group.index()).settings;
        settings.high.store(reserved, MemoryOrder::Full);
        drain_above_high(group.core(), group.index());
        assert_eq!(group.reserved(), reserved);
        settings.high.store(reserved - 1, MemoryOrder::Full);
        drain_above_high(group.core(), group.index());
        assert_eq!(group.reserved(), 100);
    }

    #[test]
    fn the_edges_of_waiting() {
        // r = 1/64 of a batch is 15,625,000 ns exactly, so 59.6 ns a byte: 167,772 bytes are the last not to wait.
        assert_eq!(penalty(65 * MIB, 64 * MIB, 167_772), Duration::ZERO);
        let first = penalty(65 * MIB, 64 * MIB, 167_773);
        assert_eq!(first, Duration::from_nanos(10_000_050));
        // The exact square root of 2/64 is 0.17677: 117.67 % is the last below the cap, and 118 % is at it.
        assert!(penalty(117_670, 100_000, BATCH) < Duration::from_secs(2));
        assert_eq!(penalty(117_680, 100_000, BATCH), Duration::from_secs(2));
        // The exact floor itself is none: 2^18 bytes at r = 1/80 are 10 ms, less what is dropped.
        assert_eq!(penalty(81 * MIB, 80 * MIB, BATCH), Duration::ZERO);
    }

    #[test]
    fn the_furthest_above_decides() {
        let group = (101 * MIB, 100 * MIB);
        let parent = (110 * MIB, 100 * MIB);
        // 200 MiB above, but only by 2 %.
        let root = (10_200 * MIB, 10_000 * MIB);
        for line in [[group, parent, root], [parent, root, group]] {
            let found = penalty_of(line.into_iter(), BATCH);
            assert_eq!(found, penalty(110 * MIB, 100 * MIB, BATCH));
        }
        let unlimited = [(u64::MAX, u64::MAX), (5, u64::MAX)];
        assert_eq!(penalty_of(unlimited.into_iter(), BATCH), Duration::ZERO);
        assert_eq!(penalty_of(std::iter::empty(), BATCH), Duration::ZERO);
    }

    #[test]
    fn more_of_anything_waits_no_less() {
        let mut random = Random::new(0x7417);
        let mut any = || {
            let shift = random.below(64);
            random.number() >> shift
        };
        for _ in 0..50_000 {
            let (usage, high, bytes, more) = (any(), any(), any(), any());
            let wait = penalty(usage, high, bytes);
            let seen = format!("{usage} {high} {bytes} {more}");
            assert!(wait.is_zero() || wait > Duration::from_millis(10), "{seen}");
            assert!(wait <= Duration::from_secs(2), "{seen}");
            assert!(
                wait <= penalty(usage.saturating_add(more), high, bytes),
                "{seen}"
            );
            assert!(
                wait <= penalty(usage, high, bytes.saturating_add(more)),
                "{seen}"
            );
            assert!(
                wait >= penalty(usage, high.saturating_add(more), bytes),
                "{seen}"
            );
        }
    }
}
