//! Counting statistics, and reading them.

use bursar_machine::{AtomicWord, Machine, MemoryOrder};

use super::Group;
use crate::limit::Events;
use crate::react::fork;
use crate::tree::{Freshness, Handle, Keep, NotFresh, Reading, sealed};

/// # Statistics and readings
impl<M: Machine> Group<M> {
    /// Adds to a statistic of the group. Lock-free, async-signal-safe, and the same cost at any depth, except for statistics
    /// that are [`crate::Statistic::eager`].
    ///
    /// One call adds at most [`i64::MAX`] to a counter. More is a bug of the caller, usually a difference below 0. It is
    /// counted modulo 2^64, so the counter goes down ([`crate::Statistic::counter`]).
    ///
    /// ```
    /// use bursar::{Counter, Freshness, Gauge, Limits, Memory, Statistic};
    ///
    /// const STATISTICS: &[Statistic] = &[Statistic::counter("rows"), Statistic::gauge("open files")];
    /// const ROWS: Counter = Counter::of(STATISTICS, "rows");
    /// const OPEN_FILES: Gauge = Gauge::of(STATISTICS, "open files");
    ///
    /// let memory = Memory::builder().statistics(STATISTICS).build()?;
    /// let query = memory.root().child("query", Limits::none())?;
    /// query.add(ROWS, 1000);
    /// query.add(OPEN_FILES, 2);
    /// query.add(OPEN_FILES, -1);
    /// let reading = memory.root().read(Freshness::Exact)?;
    /// assert_eq!((reading.get(ROWS).value, reading.get(OPEN_FILES).value), (1000, 1));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Panics
    /// If the handle belongs to another declaration of statistics than the memory's. In builds with debug assertions, if a
    /// counter is to grow by more than [`i64::MAX`]; nothing changes then.
    #[doc(alias = "mod_memcg_state")]
    #[doc(alias = "count_memcg_events")]
    #[inline(always)]
    pub fn add<H: Handle>(&self, statistic: H, delta: H::Delta) {
        let place = sealed::Sealed::resolve(&statistic).0;
        if !self.core.tree().declares(place) {
            self.refuse_foreign(place.name);
        }
        let delta = H::signed(delta);
        self.core.tree().add(self.index, &self.slot, place, delta);
    }

    /// Given no more than the group, so that the fast path stays as it is.
    #[cold]
    #[inline(never)]
    fn refuse_foreign(&self, statistic: &str) -> ! {
        panic!(
            "cannot add statistic {statistic:?} to {self}: its handle belongs to another declaration of statistics than the memory's"
        );
    }

    /// Reads the usage and all statistics of the group and everything below it, as one snapshot.
    ///
    /// ```
    /// use bursar::{Freshness, Limits, Memory};
    ///
    /// let memory = Memory::host()?;
    /// let tenant = memory.root().child("tenant", Limits::none())?;
    /// let charge = tenant.try_charge(48 << 20)?;
    /// assert_eq!(tenant.read(Freshness::Exact)?.usage_bytes(), 48 << 20);
    /// // Cheaper: what the last flush left, and the range in which the truth lies.
    /// let usage = tenant.read(Freshness::Cached)?.usage();
    /// assert!((usage.lo..=usage.hi).contains(&(48 << 20)));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// [`NotFresh`] if the memory's policy forbids the flush that this needs. It carries the cached reading.
    #[doc(alias = "memory.stat")]
    pub fn read(&self, freshness: Freshness) -> Result<Reading, NotFresh> {
        let _operation = fork::operation(&self.core);
        let usage_range = || self.core.counters.usage_range(self.index);
        let found = self.core.tree().read(self.index, freshness, usage_range);
        self.told(found)
    }

    /// Reads as [`Freshness::Exact`] does, and brings the numbers of the group and all groups below it up to date: a
    /// [`Freshness::Cached`] read of any of these then misses no update that returned before this call. So one call serves a decision
    /// over many groups.
    ///
    /// # Errors
    /// As [`Group::read`].
    #[doc(alias = "css_rstat_flush")]
    pub fn flush(&self) -> Result<Reading, NotFresh> {
        let _operation = fork::operation(&self.core);
        self.told(self.core.tree().exact(self.index, Keep::Folded))
    }

    /// Adds bytes returned too often to a reading; without one, to the error.
    fn told(&self, reading: Option<Reading>) -> Result<Reading, NotFresh> {
        let told = |reading: Reading| reading.with_over_returned(self.events().over_returned_bytes);
        reading.map(told).ok_or_else(|| NotFresh {
            cached: told(self.cached()),
        })
    }

    fn cached(&self) -> Reading {
        let range = self.core.counters.usage_range(self.index);
        self.core.tree().cached(self.index, range)
    }

    /// Bytes reserved for the group and everything below it, now. Limits are compared with this number. It includes stock. A
    /// charge that an ancestor refuses may count here for a moment, but never above the limit.
    #[doc(alias = "memory.current")]
    pub fn reserved(&self) -> u64 {
        self.core.counters.usage_now(self.index)
    }

    /// The highest number of bytes that were ever reserved. A charge that an ancestor refused may be included.
    #[doc(alias = "memory.peak")]
    pub fn peak(&self) -> u64 {
        self.core
            .counters
            .counter(self.index)
            .peak
            .load(MemoryOrder::Relaxed)
    }
}

/// # Events
impl<M: Machine> Group<M> {
    /// Counts of events at the limits of this group and of all groups that are or were below it. [`Events`] says at which group
    /// each event is counted.
    #[doc(alias = "memory.events")]
    pub fn events(&self) -> Events {
        self.core.counters.counter(self.index).events.total()
    }

    /// Counts of events at this group's own limits, by its own charges and by those from below.
    #[doc(alias = "memory.events.local")]
    pub fn own_events(&self) -> Events {
        self.core.counters.counter(self.index).events.own()
    }
}
