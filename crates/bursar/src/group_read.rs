//! Statistics of a group, reading it, and watching it.

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use bursar_machine::{AtomicWord, Machine, MemoryOrder};

use crate::consumers::{self, By, Consumer, Protection, Ranked, Victim};
use crate::futures::{Emptied, PressureChanged};
use crate::group::Group;
use crate::limit::Events;
use crate::memory::Memory;
use crate::react::{
    Level, Pressure, ReclaimRequest, TreeReport, pressure, reclaim, refusal, report,
};
use crate::registration::Registration;
use crate::snapshot::{self, Snapshot};
use crate::tree::{Freshness, Handle, NotFresh, sealed};

/// # Statistics
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
    /// const ROWS: Counter = Counter::from_name(STATISTICS, "rows");
    /// const OPEN_FILES: Gauge = Gauge::from_name(STATISTICS, "open files");
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
        if !self.core().tree().declares(place) {
            self.refuse_foreign(place.name);
        }
        let delta = H::signed(delta);
        self.core()
            .tree()
            .add(self.index(), self.slot(), place, delta);
    }

    /// Given no more than the group, so that the fast path stays as it is.
    #[cold]
    #[inline(never)]
    fn refuse_foreign(&self, statistic: &str) -> ! {
        panic!(
            "cannot add statistic {statistic:?} to {self}: its handle belongs to another declaration of statistics than the memory's"
        );
    }

    /// Reads the group and everything below it at once: usage, statistics, limits, events, pressure.
    ///
    /// The freshness is that of every group. One flush of the subtree provides it; a bound on an error may need a second one,
    /// and [`Freshness::Cached`] needs none. [`Snapshot`] says what adds up.
    ///
    /// The walk costs a short lock for each group, and the snapshot about a kilobyte. No read waits for it, and the removal of a
    /// group for one walk at most. Snapshots of one memory wait for each other. Reclaimers, callbacks and wakers may take snapshots
    /// too.
    ///
    /// # Errors
    /// [`NotFresh`] if the memory's policy forbids the flush that this needs; the error carries the cached reading of this
    /// group. A [`Freshness::Cached`] snapshot never fails.
    #[doc(alias = "css_for_each_descendant_pre")]
    pub fn snapshot(&self, freshness: Freshness) -> Result<Snapshot, NotFresh> {
        snapshot::snapshot(self, freshness)
    }

    /// Bytes reserved for the group and everything below it, now. Limits are compared with this number. It includes stock. A charge that is
    /// refused may count here for a moment: up to the limit, or up to the highest number so far if the group has ever exceeded its limit.
    #[doc(alias = "memory.current")]
    pub fn reserved(&self) -> u64 {
        self.core().counters.counter(self.index()).reserved()
    }

    /// The highest number of bytes that were ever reserved, by charges that succeeded.
    #[doc(alias = "memory.peak")]
    pub fn peak(&self) -> u64 {
        self.core()
            .counters
            .counter(self.index())
            .peak
            .load(MemoryOrder::Relaxed)
    }

    /// Keeps a report of the tree at the group's highest peak, until the value that this returns is dropped; see
    /// [`Group::peak_report`].
    ///
    /// An operation that finds more bytes reserved than in the last report makes a new one, without locks and at most every 100 ms.
    /// So a peak that is over sooner may be missed; [`crate::diagnosis::GroupState::peak`] in the report tells how high it was by then. A
    /// charge from stock is no such operation, because its bytes were reserved before. [`crate::Memory::tick`] is one.
    pub fn keep_peak(&self) -> Registration {
        report::keep_peak(self.core(), self.index());
        let registration = Registration::new("peak", self, report::stop_keeping_peak);
        report::look_at_peak(self.core(), self.index());
        registration
    }

    /// The tree at the highest peak that [`Group::keep_peak`] has seen. `None` if it has seen no byte.
    ///
    /// ```
    /// use bursar::{Limits, Memory};
    ///
    /// let memory = Memory::builder().build()?;
    /// let _kept = memory.root().keep_peak();
    /// let query = memory.root().child("query", Limits::none())?;
    /// drop(query.try_charge(64 << 20)?);
    /// let report = memory.root().peak_report().expect("the charge");
    /// assert_eq!(report.largest[0].path, "/query");
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn peak_report(&self) -> Option<Arc<TreeReport>> {
        report::peak(self.core(), self.index())
    }

    /// Counts of events at the limits of this group and of all groups that are or were below it. [`Events`] says at which group
    /// each event is counted.
    #[doc(alias = "memory.events")]
    pub fn events(&self) -> Events {
        self.core().counters.counter(self.index()).events.total()
    }

    /// Counts of events at this group's own limits, by its own charges and by those from below.
    #[doc(alias = "memory.events.local")]
    pub fn own_events(&self) -> Events {
        self.core().counters.counter(self.index()).events.own()
    }

    /// Returns the memory that the group belongs to. Unlike the handle that was built, this one keeps no ticker running
    /// ([`Builder::ticker`](crate::Builder::ticker)), and does not follow a cgroup ([`Builder::max_from_cgroup`](crate::Builder::max_from_cgroup)).
    pub fn memory(&self) -> Memory<M> {
        Memory::of_group(self)
    }
}

/// # Reclaim and pressure
impl<M: Machine> Group<M> {
    /// Registers a reclaimer: a function that frees memory of this group by spilling, evicting or cancelling work.
    ///
    /// It is called before this group's `max` or one above refuses a charge, when a `high` is exceeded, and by
    /// [`Group::reclaim`]. It returns the number of bytes that it freed. Before it returns, it must drop the
    /// [`crate::Charge`]s of these bytes. The number itself frees nothing: a number beyond the group's usage is cut to the usage, and the
    /// charge is tried again. [`crate::Events::reclaim_unreturned`] counts calls that reported bytes and returned none.
    ///
    /// Reclaimers of the group whose limit is in the way come first, then those of groups below it. Among these groups, the one that
    /// exceeds its protection most is first. Within a group the lowest `order` is first, then the earliest registration. One charge may
    /// call a reclaimer several times: for memory above the effective `low`, then for memory above the effective `min`, in up to 16 rounds
    /// as long as something is freed. Reclaimers of a removed group are called only by what is called on that group itself:
    /// [`Group::reclaim`], and limits that are lowered.
    ///
    /// The function runs in the task whose charge needs the memory. Bursar holds no lock then, but that task may hold locks of
    /// its own. So the function should only try to take locks, and **never charge while you hold a lock that the reclaimer takes**.
    /// A cache that charges under its own lock is refused, because its reclaimer finds the lock taken and frees nothing;
    /// [`crate::Events::reclaim_failed`] counts these calls.
    ///
    /// Several tasks may run the function at once, each with its own target. It may charge, return and read bytes, and make and remove
    /// groups, also this one. Its own charges never start reclaim. If it needs memory to free memory, give it a
    /// [`crate::EmergencyReserve`]. If it hands work to other threads, their charges may start reclaim. If it panics, the charge that
    /// called it unwinds and charges nothing. Dropping the registration does not interrupt running calls.
    ///
    /// Dropping a charge may call wakers and pressure callbacks, so do not drop one while you hold a lock that these take. The example collects
    /// charges first, and drops them after the lock. A closure that owns its own [`Registration`], directly or not, is never
    /// freed; let it hold a [`std::sync::Weak`].
    ///
    /// ```
    /// use std::sync::{Arc, Mutex};
    /// use bursar::{Charge, Limits, Memory};
    ///
    /// let memory = Memory::host()?;
    /// let cache = memory.root().child("cache", Limits::max(8 << 20))?;
    /// let pages: Arc<Mutex<Vec<Charge>>> = Arc::default();
    /// let evicted = pages.clone();
    /// let _reclaimer = cache.add_reclaimer(0, move |request| {
    ///     let (mut freed, mut out) = (0, Vec::new());
    ///     let Ok(mut pages) = evicted.try_lock() else { return 0 };
    ///     while freed < request.target && let Some(page) = pages.pop() {
    ///         freed += page.bytes();
    ///         out.push(page);
    ///     }
    ///     drop(pages);        // first the lock, then what it guarded
    ///     drop(out);
    ///     freed
    /// });
    /// for _ in 0..100 {
    ///     let page = cache.try_charge(1 << 20)?;      // never refused: it evicts
    ///     pages.lock().unwrap().push(page);
    /// }
    /// assert!(cache.events().reclaimed_bytes >= 92 << 20);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[doc(alias = "shrinker")]
    pub fn add_reclaimer(
        &self,
        order: i32,
        function: impl Fn(&ReclaimRequest) -> u64 + Send + Sync + 'static,
    ) -> Registration {
        let number = reclaim::add(self.core(), self.index(), order, Arc::new(function));
        Registration::new("reclaimer", self, move |core, index| {
            reclaim::remove(core, index, number);
        })
    }

    /// Calls the reclaimers of the group and of groups below for `bytes`, as long as they free some, in at most 16 rounds.
    /// Returns the bytes that they claim to have freed.
    #[doc(alias = "memory.reclaim")]
    pub fn reclaim(&self, bytes: u64) -> u64 {
        reclaim::asked(self.core(), self.index(), bytes)
    }

    /// Declares that one more task works for the group, until the registration is dropped. With such declarations
    /// [`crate::Stall::full`] reports the time in which no task could work. Declare all tasks of a group or none.
    pub fn work(&self) -> Registration {
        pressure::work_begins(self.core(), self.index());
        Registration::new("work", self, pressure::work_ends)
    }

    /// Calls `tell` at each change of the group's level of pressure. The first change is from [`crate::Level::None`], so the
    /// function is called at once if there is pressure now.
    ///
    /// Calls come one at a time, without locks, from the task whose charge, return or [`crate::Memory::tick`] found the change.
    /// Levels that follow each other quickly may be skipped, but never the last one.
    ///
    /// A panic of the function is caught and counted in [`crate::Events::panicked_callbacks`]. It does not reach the task that
    /// found the change, which may be dropping a [`crate::Charge`]. The registration stays, and other callbacks are called.
    pub fn on_pressure(&self, tell: impl Fn(Pressure) + Send + Sync + 'static) -> Registration {
        let number = pressure::subscribe(self.core(), self.index(), Arc::new(tell));
        let registration = Registration::new("watcher", self, move |core, index| {
            pressure::unsubscribe(core, index, number);
        });
        pressure::tell(self.core(), self.index());
        registration
    }

    /// Pressure on the group: by its own limits, and by the stalls of tasks that charge the group or groups below.
    ///
    /// Limits of an ancestor do not count. Read the pressure of the ancestor for these.
    #[doc(alias = "memory.pressure")]
    pub fn pressure(&self) -> Pressure {
        pressure::now(self.core(), self.index())
    }

    /// Waits until the level of pressure differs from `from`, and returns it.
    ///
    /// Levels by usage change with charges and returns. Levels by stall fall with time, and only [`crate::Memory::tick`] or a
    /// ticker ([`crate::Builder::ticker`]) wakes a task for that.
    #[must_use = "a future does nothing unless it is polled"]
    pub fn pressure_changed(
        &self,
        from: Level,
    ) -> impl Future<Output = Level> + Send + Unpin + use<M> {
        PressureChanged {
            group: self.clone(),
            from,
            number: None,
        }
    }

    /// Waits until the group is removed and empty: no byte is charged to it or to any group that is or was below it. Then
    /// [`Group::reserved`] is 0. The groups above have the bytes back at that moment, too, or some microseconds later if the last byte was
    /// charged to a removed group below. Call it after [`Group::close`] or [`Group::remove`]. If called before, it also waits for the
    /// removal. For the root it never ends. It keeps the group like a handle.
    ///
    /// All charges count: [`Charge`](crate::Charge)s, pages, reserves, and allocations that `bursar_alloc` charged to the group, wherever they
    /// are now. Stock does not count, because a removed group has none. Handles do not count, nor do charges of 0 bytes.
    /// The future does not wait for an infallible charge that comes after the end. Statistics may lag behind: an update or a return that runs
    /// in another thread at this moment may be missing from a [`Group::read`].
    ///
    /// The future is `Send + 'static` and needs no runtime; [`Emptied::wait`] blocks instead. Some returns wake no task: those
    /// of [`Charge::release_nowait`](crate::Charge::release_nowait) and frees of `bursar_alloc`. Then the next other charge or return wakes it, or
    /// [`crate::Memory::tick`]. So have a ticker ([`crate::Builder::ticker`]).
    #[must_use = "a future does nothing unless it is polled"]
    pub fn emptied(&self) -> Emptied<M> {
        Emptied {
            group: self.clone(),
            number: None,
        }
    }
}

/// # Consumers and victims
impl<M: Machine> Group<M> {
    /// The biggest of the groups below this one, at any depth, biggest first. Groups that rank 0 are left out. A group includes
    /// all that is below it, so it comes before its children. [`Group::top_leaves`] has groups without
    /// children only.
    ///
    /// ```
    /// use bursar::{By, Bytes, Limits, Memory};
    ///
    /// let memory = Memory::host()?;
    /// let tenant = memory.root().child("tenant", Limits::max(256 << 20))?;
    /// let charge = tenant.try_charge(48 << 20)?;
    /// for one in memory.root().top(5, By::Reserved) {
    ///     let shown = format!("{} uses {} of {}", one.path, Bytes(one.reserved), Bytes::display_limit(one.limits.max));
    ///     assert_eq!(shown, "/tenant uses 48.0 MiB of 256 MiB");
    /// }
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn top(&self, count: usize, by: By) -> Vec<Consumer> {
        consumers::top(self, count, by, Ranked::All)
    }

    /// Ranks as [`Group::top`] does, but only groups without children: with three levels, the queries and not their tenants.
    pub fn top_leaves(&self, count: usize, by: By) -> Vec<Consumer> {
        consumers::top(self, count, by, Ranked::Leaves)
    }

    /// The biggest children by bytes reserved, biggest first.
    pub fn largest_children(&self, count: usize) -> Vec<(String, u64)> {
        refusal::largest_children(self.core(), self.index(), count)
    }

    /// The group's effective `min` and `low`: bytes that are protected when reclaim is for the root. They are shares of its
    /// ancestors' protection by the kernel's formula, and at most its usage.
    #[doc(alias = "page_counter_calculate_protection")]
    pub fn protection(&self) -> Protection {
        consumers::protection(self)
    }

    /// Chooses the group to end when nothing else frees memory. Candidates are the groups below this one that have no children. The
    /// choice is the group whose usage exceeds its effective `low` most ([`Group::protection`]). If no group exceeds its `low`, it is
    /// the group that exceeds its effective `min` most. `None` if no group exceeds that either.
    ///
    /// [`Group::choose_victims`] chooses several. Groups excluded by [`Group::exclude_from_victims`] are never chosen.
    ///
    /// One [`Group::flush`] of this group brings all candidates up to date. Charges of other tasks meanwhile may make
    /// another group the biggest.
    ///
    /// This only chooses. To end the victim, cancel its work, so that it drops its charges. [`Group::remove`] returns no bytes.
    ///
    /// # Errors
    /// [`NotFresh`] if the memory's policy forbids readers to flush.
    #[doc(alias = "oom_badness")]
    pub fn choose_victim(&self) -> Result<Option<(Self, Victim)>, NotFresh> {
        Ok(consumers::choose_victims(self, 1, |_| true)?.pop())
    }

    /// Chooses as [`Group::choose_victim`] does, among the groups for which `may_end` returns `true`. Return `false` for
    /// groups that are ending already. `may_end` is called once for each candidate, without a lock.
    ///
    /// # Errors
    /// [`NotFresh`] if the memory's policy forbids readers to flush.
    pub fn choose_victim_where(
        &self,
        may_end: impl Fn(&Self) -> bool,
    ) -> Result<Option<(Self, Victim)>, NotFresh> {
        Ok(consumers::choose_victims(self, 1, may_end)?.pop())
    }

    /// Chooses `count` groups, or all candidates if these are fewer, in the order in which [`Group::choose_victim`] would choose
    /// them one after the other. First come the groups whose usage exceeds their effective `low`, by the number of bytes; then
    /// those that exceed only their effective `min`. Groups that exceed neither are left out. One [`Group::flush`] brings all
    /// candidates up to date, so 50 victims cost as much as one.
    ///
    /// # Errors
    /// [`NotFresh`] if the memory's policy forbids readers to flush.
    pub fn choose_victims(&self, count: usize) -> Result<Vec<(Self, Victim)>, NotFresh> {
        consumers::choose_victims(self, count, |_| true)
    }

    /// Excludes the group from [`Group::choose_victim`] for good. For a group whose memory no caller can free, such as the
    /// group that pays for allocations of no tenant. Groups below it are not excluded.
    #[doc(alias = "oom_score_adj")]
    pub fn exclude_from_victims(&self) {
        self.core()
            .counters
            .counter(self.index())
            .exclude_from_victims();
    }
}

impl TreeReport {
    /// The tree around a group now, as refusals by its limits show it, and its age. It is renewed at most every 100 ms.
    pub fn around<M: Machine>(group: &Group<M>) -> (Arc<Self>, Duration) {
        refusal::tree(group.core(), group.index())
    }
}
