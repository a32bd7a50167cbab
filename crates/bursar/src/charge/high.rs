//! Above `high`: reclaim, then waiting, or a debt for the caller to wait for.

use std::time::Duration;

use bursar_machine::{AtomicWord, Machine, Order};

use super::Ledger;
use super::events::Event;
use super::limits::Limit;
use super::reclaim::{RECLAIM_TRIES, Reason};
use super::throttle;

/// What a charge above `high` does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
#[non_exhaustive]
pub enum HighPolicy {
    /// The charging task sleeps, for as long as the kernel's formula says, at most two seconds. Charges that may not wait
    /// ([`crate::Group::try_charge_nowait`], [`crate::Group::charge_async`]) leave a debt instead.
    #[default]
    Throttle,
    /// Nobody sleeps: what was charged becomes a debt of the group, which [`crate::Group::take_debt`] hands to whoever is in
    /// a place to wait.
    Owe,
}

/// Bytes that were charged while a `high` was exceeded, and how long the kernel's formula would have their owner wait.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Debt {
    /// The bytes.
    pub bytes: u64,
    /// The time, as of now.
    pub delay: Duration,
}

impl<M: Machine> Ledger<M> {
    /// Usage and `high` of the groups on the way from `index` to the root that have one.
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
        let mut is_over = false;
        for (at, usage, high) in self.highs(index) {
            if usage > high {
                self.count(at, Event::High, 1);
                is_over = true;
            }
        }
        if is_over {
            // Relaxed: a number that is taken later.
            let debt = &self.counter(index).debt_bytes;
            debt.fetch_add(bytes, Order::Relaxed);
        }
    }

    /// After a charge for which `bytes` were reserved: pays for what is above a `high`.
    pub(super) fn pay_for_high(&self, index: u32, bytes: u64) {
        if !self.is_over_high(index) || self.is_reclaiming() {
            return;
        }
        self.drain_above_high(index);
        if !self.is_over_high(index) {
            return;
        }
        if self.policies.high == HighPolicy::Owe {
            return self.owe_for_high(index, bytes);
        }
        for (at, usage, high) in self.highs(index) {
            if usage > high {
                self.count(at, Event::High, 1);
            }
        }
        for _ in 0..RECLAIM_TRIES {
            let freed = self.reclaim_above_high(index);
            let delay = self.penalty(index, bytes);
            if delay.is_zero() {
                return;
            }
            if freed == 0 {
                return self.throttle(index, delay);
            }
        }
    }

    /// Takes stock back below each `high` that is exceeded: nobody is to wait for what nobody uses. While it is exceeded no
    /// new stock is held there.
    fn drain_above_high(&self, index: u32) {
        let over = self.highs(index).filter(|(_, usage, high)| usage > high);
        // The highest one, below which are the others.
        if let Some((at, ..)) = over.last()
            && self.has_holders(at)
        {
            self.drain_closed(at, || ());
            self.notice(at);
        }
    }

    /// Asks for what exceeds each `high` on the way; returns the bytes that reclaimers say they freed.
    fn reclaim_above_high(&self, index: u32) -> u64 {
        let highs: Vec<_> = self.highs(index).collect();
        let freed = highs.into_iter().map(|(at, usage, high)| {
            let over = usage.saturating_sub(high);
            self.reclaim_stalled(index, at, over, Reason::High).freed
        });
        freed.fold(0, u64::saturating_add)
    }

    fn penalty(&self, index: u32, bytes: u64) -> Duration {
        let highs = self.highs(index).map(|(_, usage, high)| (usage, high));
        throttle::penalty_of(highs, bytes)
    }

    fn throttle(&self, index: u32, delay: Duration) {
        let machine = &self.tree.machine;
        let _stalled = self.stall(index);
        let begun_ns = machine.now_ns();
        let delay_ns = u64::try_from(delay.as_nanos()).unwrap_or(u64::MAX);
        machine.sleep_until(begun_ns.saturating_add(delay_ns));
        let slept_ns = machine.now_ns().saturating_sub(begun_ns);
        self.count(index, Event::Throttled, slept_ns);
    }

    /// Takes the debt of a group: who takes it pays for it.
    pub(crate) fn take_debt(&self, index: u32) -> Debt {
        let bytes = self.counter(index).debt_bytes.swap(0, Order::Relaxed);
        if bytes > 0 {
            self.drain_above_high(index);
        }
        Debt {
            bytes,
            delay: self.penalty(index, bytes),
        }
    }
}
