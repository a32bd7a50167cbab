//! Usage above `high`: reclaim, then sleep, or a debt that the caller waits for.

use std::fmt;
use std::time::Duration;

use bursar_machine::{AtomicWord, Machine, Order};

use super::events::Event;
use super::limits::Limit;
use super::reclaim::{RECLAIM_TRIES, Reason};
use super::throttle;
use super::{Bytes, Ledger};

/// Interval at which a throttled task looks whether it still must sleep.
const SLEEP_NS: u64 = 100_000_000;

/// How a charge pays for usage above a `high`. By default it leaves a debt, so a `high` throttles only callers that take that
/// debt ([`crate::Group::take_debt`]) and wait.
///
/// First stock is taken back and reclaimers are asked. Then a charge pays for the bytes that stay above the `high` of its
/// group, or of a group above. [`crate::Group::charge_async`] owes under either policy. So does
/// [`crate::Group::try_charge_nowait`], which asks no reclaimers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
#[non_exhaustive]
pub enum HighPolicy {
    /// No charge sleeps. The bytes charged become a debt of the group that was charged. A caller that can wait takes it with
    /// [`crate::Group::take_debt`]. If no caller does, nothing is slowed down. This is the default.
    #[default]
    Owe,
    /// The charge sleeps before it returns, for the time that the kernel's formula gives: 64 s times the square of `(usage -
    /// high) / high` for each 256 KiB charged, at most 2 s. It looks every 100 ms whether the usage is still above `high`, so
    /// it wakes when `high` is raised.
    ///
    /// The sleep blocks the thread, also in [`crate::Group::try_charge`]. Do not use this policy where threads serve other
    /// tasks meanwhile, as on an async runtime.
    Throttle,
}

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

impl<M: Machine> Ledger<M> {
    /// Usage and `high` of those groups on the way from `index` to the root that have a `high`.
    fn highs(&self, index: u32) -> impl Iterator<Item = (u32, u64, Limit)> + '_ {
        self.tree.chain(index).filter_map(|at| {
            let counter = self.counter(at);
            // Relaxed: throttling is a matter of degree.
            let high = counter.settings.high.load(Order::Relaxed);
            // Spares a look at a word that all CPUs write.
            (high != Limit::MAX).then(|| (at, counter.usage.load(Order::Relaxed), high))
        })
    }

    fn is_over_high(&self, index: u32) -> bool {
        self.highs(index).any(|(_, usage, high)| usage > high)
    }

    /// Notes a debt if a `high` is exceeded. Async-signal-safe.
    pub(crate) fn owe_for_high(&self, index: u32, bytes: u64) {
        if self.count_high(index) {
            self.owe(index, bytes);
        }
    }

    /// Counts the event at each group whose `high` is exceeded. Returns whether there is one.
    fn count_high(&self, index: u32) -> bool {
        let mut is_over = false;
        for (at, usage, high) in self.highs(index) {
            if usage > high {
                self.count(at, Event::High, 1);
                is_over = true;
            }
        }
        is_over
    }

    fn owe(&self, index: u32, bytes: u64) {
        // Relaxed: a number that is read later.
        let debt = &self.counter(index).debt_bytes;
        debt.fetch_add(bytes, Order::Relaxed);
    }

    /// Asks reclaimers for the bytes above a `high`, and pays for those that stay. Call after a charge that reserved `bytes`.
    pub(super) fn pay_for_high(&self, index: u32, bytes: u64, policy: HighPolicy) {
        if !self.is_over_high(index) || self.is_reclaiming() {
            return;
        }
        self.drain_above_high(index);
        self.count_high(index);
        let mut tries = RECLAIM_TRIES;
        while tries > 0 && self.is_over_high(index) && self.reclaim_above_high(index) > 0 {
            tries -= 1;
        }
        if !self.is_over_high(index) {
            return;
        }
        match policy {
            HighPolicy::Throttle => self.throttle(index, bytes),
            HighPolicy::Owe => self.owe(index, bytes),
        }
    }

    /// Takes stock back below each `high` that is exceeded, because no task should wait for memory in no use. No new stock is
    /// held there while it is exceeded.
    fn drain_above_high(&self, index: u32) {
        let over = self.highs(index).filter(|(_, usage, high)| usage > high);
        // The highest of these groups. The others are below it.
        if let Some((at, ..)) = over.last()
            && self.has_holders(at)
        {
            self.drain_closed(at, || ());
            self.notice(at);
        }
    }

    /// Asks for the bytes above each `high` on the way. Returns the bytes that reclaimers say they freed.
    fn reclaim_above_high(&self, index: u32) -> u64 {
        let freed = self.highs(index).map(|(at, usage, high)| {
            let over = usage.saturating_sub(high);
            self.reclaim_stalled(index, at, over, Reason::High).freed
        });
        freed.fold(0, u64::saturating_add)
    }

    fn penalty(&self, index: u32, bytes: u64) -> Duration {
        let highs = self.highs(index).map(|(_, usage, high)| (usage, high));
        throttle::penalty_of(highs, bytes)
    }

    fn throttle(&self, index: u32, bytes: u64) {
        let delay = self.penalty(index, bytes);
        if delay.is_zero() {
            return;
        }
        let machine = &self.tree.machine;
        let _stalled = self.stall(index);
        let begun_ns = machine.now_ns();
        let end_ns = begun_ns + delay.as_nanos() as u64;
        let mut now_ns = begun_ns;
        // In parts, because `high` may be raised, and others may return bytes.
        while now_ns < end_ns && self.is_over_high(index) {
            machine.sleep_until(end_ns.min(now_ns + SLEEP_NS));
            now_ns = machine.now_ns();
        }
        self.count(index, Event::Throttled, now_ns.saturating_sub(begun_ns));
    }

    /// Takes the debt of a group. The caller pays for it.
    pub(crate) fn take_debt(&self, index: u32) -> Debt {
        // First, because the delay depends on the usage that is left.
        self.drain_above_high(index);
        let bytes = self.counter(index).debt_bytes.swap(0, Order::Relaxed);
        Debt {
            bytes,
            delay: self.penalty(index, bytes),
        }
    }
}
