//! What happened to a group's limits, counted as it happens (the kernel's `memory.events`).
//!
//! Events are rare, so they are counted at once: at the group itself, and in the sums of all groups above it.

use std::time::Duration;

use bursar_machine::{AtomicWord, Machine, Order};

use super::Ledger;

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
    Throttled,
}

const EVENTS: usize = 8;

/// How often the limits of a group mattered, and what followed. Grows only.
#[doc(alias = "memory.events")]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Events {
    /// How often reclaim took from the group although its usage was within its effective `low`, because there was nothing
    /// else to take.
    pub low: u64,
    /// How often a charge left the usage above `high`, and was throttled or its debt noted.
    pub high: u64,
    /// How often a charge met `max` with all stock taken back; then reclaim was tried, or the charge refused.
    pub max: u64,
    /// Fallible charges that `max` refused in the end.
    pub refused: u64,
    /// Infallible charges that left the usage above `max`.
    pub overshot: u64,
    /// Bytes of stock that were taken back from CPUs.
    pub drained_bytes: u64,
    /// Bytes that reclaimers said they had freed.
    pub reclaimed_bytes: u64,
    /// How long charges were made to wait for `high`.
    pub throttled: Duration,
}

/// The counts of one group.
pub(crate) struct EventCounts<M: Machine> {
    own: [M::Word; EVENTS],
    /// The group's own, and those of all that are or were below it.
    total: [M::Word; EVENTS],
}

impl<M: Machine> EventCounts<M> {
    pub(crate) fn new() -> Self {
        let words = || std::array::from_fn(|_| M::Word::new(0));
        Self {
            own: words(),
            total: words(),
        }
    }

    pub(crate) fn clear(&self) {
        // Relaxed, here and below: statistics.
        let words = self.own.iter().chain(&self.total);
        words.for_each(|word| word.store(0, Order::Relaxed));
    }

    fn read(words: &[M::Word; EVENTS]) -> Events {
        let count = |event: Event| words[event as usize].load(Order::Relaxed);
        Events {
            low: count(Event::Low),
            high: count(Event::High),
            max: count(Event::Max),
            refused: count(Event::Refused),
            overshot: count(Event::Overshot),
            drained_bytes: count(Event::Drained),
            reclaimed_bytes: count(Event::Reclaimed),
            throttled: Duration::from_nanos(count(Event::Throttled)),
        }
    }

    pub(crate) fn own(&self) -> Events {
        Self::read(&self.own)
    }

    pub(crate) fn total(&self) -> Events {
        Self::read(&self.total)
    }
}

impl<M: Machine> Ledger<M> {
    /// Counts `amount` of an event at a group and in the sums of all above it.
    pub(super) fn count(&self, index: u32, event: Event, amount: u64) {
        self.counter(index).events.own[event as usize].fetch_add(amount, Order::Relaxed);
        for at in self.tree.chain(index) {
            self.counter(at).events.total[event as usize].fetch_add(amount, Order::Relaxed);
        }
    }
}
