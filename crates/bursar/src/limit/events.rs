//! Events at a group's limits, counted as they happen (the kernel's `memory.events`).
//!
//! Events are rare, so they are counted at once: at the group itself, and in the sums of all groups above it.

use std::fmt;
use std::time::Duration;

use bursar_machine::{AtomicWord, Machine, MemoryOrder};

use crate::bytes::Bytes;

/// One kind of event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Event {
    Low,
    High,
    Max,
    Refused,
    Overshot,
    Drained,
    Reclaimed,
    ReclaimFailed,
    ReclaimUnreturned,
    Throttled,
    OverReturned,
    Panicked,
    GaveUp,
}

const EVENTS: usize = 13;

/// Counts of events at a group's limits. They only grow.
///
/// Each field says at which group it is counted. [`crate::Group::events`] adds up a group and all that are or were below it;
/// [`crate::Group::own_events`] counts the group alone.
#[doc(alias = "memory.events")]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Events {
    /// Times that reclaim asked the group although its usage was within its effective `low`, because reclaim found no other memory.
    /// Counted at the group that was asked.
    pub low: u64,
    /// Charges that left the usage above `high` although all stock was taken back. They asked reclaimers, and then slept or left a
    /// debt. Counted at each group whose `high` was exceeded.
    pub high: u64,
    /// Charges that did not fit under `max` although all stock was taken back, or that are larger than `max`. They asked reclaimers,
    /// were refused, or waited. A charge that tries again counts again. Counted at the group whose `max` it is.
    pub max: u64,
    /// Charges that `max` refused in the end, without those of [`Engine::try_charge_nowait`](crate::engine::Engine::try_charge_nowait). Counted at the group whose `max`
    /// it is.
    pub refused: u64,
    /// Charges that could not be refused and left the usage above `max`. Counted at each group whose `max` was exceeded.
    pub overshot: u64,
    /// Bytes of stock that were taken back from CPUs. Counted at the group whose limit was in the way.
    pub drained_bytes: u64,
    /// Bytes that reclaimers reported as freed. A number beyond the usage of the group is cut to that usage. Counted at the group of
    /// the reclaimer.
    pub reclaimed_bytes: u64,
    /// Calls of reclaimers that returned 0. If most calls do, the reclaimer probably tries a lock that the charging task holds: see
    /// [`crate::Group::add_reclaimer`]. Counted at the group of the reclaimer.
    #[doc(alias = "zone_reclaim_failed")]
    pub reclaim_failed: u64,
    /// Calls of reclaimers that reported bytes although not one came back to the group while they ran. If most calls do, the reclaimer
    /// returns before the charges of its bytes are dropped. Also counts a call beside which other tasks charged as many bytes. Counted
    /// at the group of the reclaimer.
    pub reclaim_unreturned: u64,
    /// Time that charges slept for a `high`, here or above. Counted at the group that was charged.
    pub throttled: Duration,
    /// Bytes that were returned although the group did not have them: a bug of the code that returned them
    /// ([`Engine::uncharge`](crate::engine::Engine::uncharge)). Counted at the group that they were returned to. A return that may not
    /// wait ([`Charge::release_nowait`](crate::Charge::release_nowait)) may be counted by a later operation.
    pub over_returned_bytes: u64,
    /// Calls of [`crate::Group::on_pressure`] callbacks and of wakers that panicked. The panic was caught. Counted at the
    /// group that was watched or waited for.
    pub panicked_callbacks: u64,
    /// Charges that waited ([`crate::Group::charge_async`]) and were given up before they were served. Counted at the group that was
    /// charged.
    pub gave_up: u64,
}

impl Events {
    /// Events since `before`, which must be earlier counts of the same group. If a count is less than before, as for another
    /// group, the result is 0.
    #[must_use]
    pub fn since(&self, before: &Events) -> Events {
        Events {
            low: self.low.saturating_sub(before.low),
            high: self.high.saturating_sub(before.high),
            max: self.max.saturating_sub(before.max),
            refused: self.refused.saturating_sub(before.refused),
            overshot: self.overshot.saturating_sub(before.overshot),
            drained_bytes: self.drained_bytes.saturating_sub(before.drained_bytes),
            reclaimed_bytes: self.reclaimed_bytes.saturating_sub(before.reclaimed_bytes),
            reclaim_failed: self.reclaim_failed.saturating_sub(before.reclaim_failed),
            reclaim_unreturned: self
                .reclaim_unreturned
                .saturating_sub(before.reclaim_unreturned),
            throttled: self.throttled.saturating_sub(before.throttled),
            over_returned_bytes: self
                .over_returned_bytes
                .saturating_sub(before.over_returned_bytes),
            panicked_callbacks: self
                .panicked_callbacks
                .saturating_sub(before.panicked_callbacks),
            gave_up: self.gave_up.saturating_sub(before.gave_up),
        }
    }
}

impl fmt::Display for Events {
    /// Prints the counts that are not 0.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut lead = "";
        let mut show = |name: &str, value: &dyn fmt::Display, is_zero: bool| {
            if is_zero {
                return Ok(());
            }
            write!(f, "{}{name} {value}", std::mem::replace(&mut lead, ", "))
        };
        show("low", &self.low, self.low == 0)?;
        show("high", &self.high, self.high == 0)?;
        show("max", &self.max, self.max == 0)?;
        show("refused", &self.refused, self.refused == 0)?;
        show("overshot", &self.overshot, self.overshot == 0)?;
        let (drained, reclaimed) = (self.drained_bytes, self.reclaimed_bytes);
        show("drained", &Bytes(drained), drained == 0)?;
        show("reclaimed", &Bytes(reclaimed), reclaimed == 0)?;
        let failed = self.reclaim_failed;
        show("reclaim failed", &failed, failed == 0)?;
        let unreturned = self.reclaim_unreturned;
        show("reclaim unreturned", &unreturned, unreturned == 0)?;
        let slept_ms = format_args!("{:.1} ms", self.throttled.as_secs_f64() * 1e3).to_string();
        show("throttled", &slept_ms, self.throttled.is_zero())?;
        let over_returned = self.over_returned_bytes;
        show("over-returned", &Bytes(over_returned), over_returned == 0)?;
        let panicked = self.panicked_callbacks;
        show("panicked callbacks", &panicked, panicked == 0)?;
        show("gave up", &self.gave_up, self.gave_up == 0)?;
        if lead.is_empty() {
            f.write_str("nothing")?;
        }
        Ok(())
    }
}

/// The counts of one group.
pub(crate) struct EventCounts<M: Machine> {
    // Apart from the words that charges use.
    own: Box<[M::Word]>,
    /// Of the group, and of all that are or were below it.
    total: Box<[M::Word]>,
}

impl<M: Machine> EventCounts<M> {
    pub(crate) fn new() -> Self {
        let words = || (0..EVENTS).map(|_| M::Word::new(0)).collect();
        Self {
            own: words(),
            total: words(),
        }
    }

    pub(crate) fn clear(&self) {
        // Relaxed, here and below: statistics.
        let words = self.own.iter().chain(&*self.total);
        words.for_each(|word| word.store(0, MemoryOrder::Relaxed));
    }

    fn read(words: &[M::Word]) -> Events {
        let count = |event: Event| words[event as usize].load(MemoryOrder::Relaxed);
        Events {
            low: count(Event::Low),
            high: count(Event::High),
            max: count(Event::Max),
            refused: count(Event::Refused),
            overshot: count(Event::Overshot),
            drained_bytes: count(Event::Drained),
            reclaimed_bytes: count(Event::Reclaimed),
            reclaim_failed: count(Event::ReclaimFailed),
            reclaim_unreturned: count(Event::ReclaimUnreturned),
            throttled: Duration::from_nanos(count(Event::Throttled)),
            over_returned_bytes: count(Event::OverReturned),
            panicked_callbacks: count(Event::Panicked),
            gave_up: count(Event::GaveUp),
        }
    }

    /// Counts at the group itself.
    pub(super) fn count_own(&self, event: Event, amount: u64) {
        self.own[event as usize].fetch_add(amount, MemoryOrder::Relaxed);
    }

    /// Counts in the sum of the group and all that is below it.
    pub(super) fn count_total(&self, event: Event, amount: u64) {
        self.total[event as usize].fetch_add(amount, MemoryOrder::Relaxed);
    }

    pub(crate) fn own(&self) -> Events {
        Self::read(&self.own)
    }

    pub(crate) fn total(&self) -> Events {
        Self::read(&self.total)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_read_well() {
        assert_eq!(Events::default().to_string(), "nothing");
        let before = Events {
            low: 2,
            drained_bytes: 5,
            ..Events::default()
        };
        let after = Events {
            low: 3,
            drained_bytes: 5,
            reclaimed_bytes: 1 << 20,
            reclaim_failed: 2,
            reclaim_unreturned: 3,
            throttled: Duration::from_micros(1_500),
            ..Events::default()
        };
        let new = after.since(&before);
        assert_eq!(
            new.to_string(),
            "low 1, reclaimed 1.00 MiB, reclaim failed 2, reclaim unreturned 3, throttled 1.5 ms"
        );
        assert_eq!(before.since(&after), Events::default());
    }
}
