//! Events at a group's limits, counted as they happen (the kernel's `memory.events`).
//!
//! Events are rare, so they are counted at once: at the group itself, and in the sums of all groups above it.

use std::fmt;
use std::time::Duration;

use bursar_machine::{AtomicWord, Machine, MemoryOrder};

use crate::bytes::Bytes;
use crate::room;

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
    /// All counters: name, explanation, and getter. A name ends with the unit, `_bytes` or `_ns`, unless it counts events.
    #[rustfmt::skip]
    #[allow(clippy::type_complexity, reason = "a row of a table")]
    pub const COUNTERS: [(&'static str, &'static str, fn(&Self) -> u64); EVENTS] = [
        ("low", "Times that reclaim asked a group within its low", |it| it.low),
        ("high", "Charges that left the usage above high", |it| it.high),
        ("max", "Charges that at first did not fit under max", |it| it.max),
        ("refused", "Charges that max refused", |it| it.refused),
        ("overshot", "Charges above max that could not be refused", |it| it.overshot),
        ("drained_bytes", "Stock taken back from CPUs", |it| it.drained_bytes),
        ("reclaimed_bytes", "Bytes that reclaimers freed", |it| it.reclaimed_bytes),
        ("reclaim_failed", "Calls of reclaimers that freed nothing", |it| it.reclaim_failed),
        ("reclaim_unreturned", "Calls of reclaimers that reported bytes of which none came back", |it| it.reclaim_unreturned),
        ("throttled_ns", "Time that charges slept above high", |it| ns(it.throttled)),
        ("over_returned_bytes", "Bytes returned that were not charged, by a bug of the program", |it| it.over_returned_bytes),
        ("panicked_callbacks", "Callbacks that panicked", |it| it.panicked_callbacks),
        ("gave_up", "Charges that waited and were given up", |it| it.gave_up),
    ];

    fn new(count: impl Fn(Event) -> u64) -> Self {
        Self {
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

    fn count(&self, event: Event) -> u64 {
        let (_, _, get) = Self::COUNTERS[event as usize];
        get(self)
    }

    /// Events since `before`, which must be earlier counts of the same group. If a count is less than before, as for another
    /// group, the result is 0.
    #[must_use]
    pub fn since(&self, before: &Events) -> Events {
        Self::new(|event| self.count(event).saturating_sub(before.count(event)))
    }
}

fn ns(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}

impl fmt::Display for Events {
    /// Prints the counts that are not 0.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut lead = "";
        for (name, _, get) in Self::COUNTERS {
            let count = get(self);
            if count == 0 {
                continue;
            }
            let is_word = |part: &&str| !matches!(*part, "bytes" | "ns");
            let words: Vec<&str> = name.split('_').filter(is_word).collect();
            write!(f, "{lead}{} ", words.join(" "))?;
            match name.rsplit('_').next() {
                Some("bytes") => Bytes(count).fmt(f)?,
                Some("ns") => write!(f, "{:.1} ms", count as f64 / 1e6)?,
                _ => count.fmt(f)?,
            }
            lead = ", ";
        }
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
    /// Counts of the group and of all that are or were below it.
    total: Box<[M::Word]>,
}

impl<M: Machine> EventCounts<M> {
    /// `None` if there is no memory for it.
    pub(crate) fn new() -> Option<Self> {
        let words = || room::boxed(EVENTS, || M::Word::new(0));
        Some(Self {
            own: words()?,
            total: words()?,
        })
    }

    pub(crate) fn clear(&self) {
        // Relaxed, here and below: statistics.
        let words = self.own.iter().chain(&*self.total);
        words.for_each(|word| word.store(0, MemoryOrder::Relaxed));
    }

    fn read(words: &[M::Word]) -> Events {
        Events::new(|event| words[event as usize].load(MemoryOrder::Relaxed))
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

    #[test]
    fn each_counter_reads_its_event() {
        let counts = Events::new(|event| event as u64 + 1);
        let read = Events::COUNTERS.map(|(_, _, get)| get(&counts));
        assert_eq!(read, std::array::from_fn(|index| index as u64 + 1));
    }
}
