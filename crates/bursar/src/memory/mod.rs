//! A memory: one tree of groups, usually one per process.

mod builder;
mod cgroup;
mod drift;
#[cfg(test)]
mod stock_tests;
#[cfg(test)]
mod tests;

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use bursar_machine::host::{CgroupError, ResidentError, Ticker, resident};
use bursar_machine::{Host, Machine};

use crate::bytes::Bytes;
use crate::group::Group;
use crate::react::{Core, Leftover, LimitReached, fork, leftover, lifetime, limits, refusal, tell};
use crate::snapshot::Snapshot;
use crate::tree::{self, FlushCounts, FlushPolicy, Freshness, Keep, NotFresh, ROOT, Statistic};
pub use builder::{Builder, MemoryError};
use cgroup::{Follow, FromCgroup};
pub use drift::Drift;

/// Listed records of ended groups that a tick looks at.
const REAPED: usize = 1024;

/// One tree of groups with its statistics. Cloning gives another handle of the same memory.
///
/// The parameter `M`, here and in other types, is the machine that a memory runs on. It is [`Host`], the threads of this
/// process, except in simulations. Write `Memory` and ignore it.
///
/// [`fmt::Display`] draws the tree of groups with usage and limits.
///
/// On the host, the core of a memory stay allocated until the process ends, so that a charge can return to them without
/// counting references. They take about 64 KiB for each CPU that touches them, and 1.5 KiB for each group at a time. The memory
/// that users charge is not part of this. Make one `Memory` per process, not one per request.
///
/// # Fork
/// `fork` waits until no thread is inside an operation of a memory, so the child has consistent core (counters and records). The child's
/// core are a copy: a charge or a return in one process does not show in the other. The child may read, charge,
/// and drop what it holds. In the child, bytes that other threads had charged stay charged.
///
/// Before the child starts threads, it should do one operation that is not for signal handlers, such as [`Memory::tick`].
/// This repairs what other threads left half done. Until then [`Group::reserved`] may be wrong, and
/// [`Engine::try_charge_nowait`](crate::engine::Engine::try_charge_nowait) is refused. A child with work of its own begins again with [`Memory::reset_after_fork`].
/// No ticker ticks in the child: neither that of [`Builder::ticker`] nor that of [`Memory::start_ticker`].
///
/// Other libraries may register handlers of forks (`pthread_atfork`) that take a lock. Make the first memory before they
/// do, or hold none of their locks while you call Bursar. Otherwise a fork and such a thread may wait for each other.
pub struct Memory<M: Machine = Host> {
    core: M::Shared<Core<M>>,
    /// Set by [`Builder::max_from_cgroup`].
    cgroup: Option<Arc<Follow>>,
    /// Set by [`Builder::ticker`].
    ticker: Option<Arc<Ticker>>,
}

impl<M: Machine> Clone for Memory<M> {
    fn clone(&self) -> Self {
        Self {
            core: self.core.clone(),
            cgroup: self.cgroup.clone(),
            ticker: self.ticker.clone(),
        }
    }
}

/// Short enough for a line of a log.
impl<M: Machine> fmt::Debug for Memory<M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let groups = self.core.tree().group_count();
        f.debug_struct("Memory")
            .field("machine", &self.core.tree().machine)
            .field("groups", &groups.saturating_sub(self.removed_groups()))
            .field("reserved", &format_args!("{}", Bytes(self.reserved())))
            .finish_non_exhaustive()
    }
}

impl Memory<Host> {
    /// Starts a thread that calls [`Memory::tick`] four times per flush period, until the returned value is dropped.
    ///
    /// So `let _ = memory.start_ticker()` stops the thread at once; [`Builder::ticker`] has no such trap. If the memory was
    /// built with [`Builder::max_from_cgroup`], the thread also calls [`Memory::reread_cgroup`] once per flush period. A cgroup
    /// that cannot be read leaves the last limit. A forked child has no such thread and may start its own.
    ///
    /// # Errors
    /// The system's error if it cannot start a thread.
    pub fn start_ticker(&self) -> std::io::Result<Ticker> {
        // Without a ticker of its own, which would keep itself alive.
        let memory = Self {
            ticker: None,
            ..self.clone()
        };
        let period = Duration::from_nanos(self.core.tree().flush_period_ns);
        let period = (period / 4).max(Duration::from_millis(1));
        let mut cgroup_due_ns = 0;
        Ticker::start("bursar-tick", period, move || {
            memory.tick();
            memory.tick_cgroup(&mut cgroup_due_ns);
        })
    }

    /// Reads the limit of this process's cgroup again, and sets the root's limit as [`Builder::max_from_cgroup`] says. Returns the
    /// cgroup's limit, bytes; `None` for no limit. Without [`Builder::max_from_cgroup`] it only reads.
    ///
    /// This overrides a limit that [`crate::Group::set_max`] set on the root. [`Memory::set_max`] sets one that stays.
    ///
    /// # Errors
    /// [`CgroupError`] if the cgroup cannot be read. The last limit stays.
    pub fn reread_cgroup(&self) -> Result<Option<u64>, CgroupError> {
        let Some(follow) = &self.cgroup else {
            return FromCgroup::of_this_process(0).read();
        };
        follow.reread(&self.root())
    }

    /// Changes the limit of [`Builder::max`]. The root's limit is `bytes`, or what [`Builder::max_from_cgroup`] leaves if
    /// that is less. Reads no files. [`crate::Group::set_max`] says what holds when this returns.
    pub fn set_max(&self, bytes: u64) {
        let Some(follow) = &self.cgroup else {
            return self.root().set_max(bytes);
        };
        follow.set_max(&self.root(), bytes);
    }

    /// Rereads the cgroup if the time has come, for a ticker; `due_ns` is when that is.
    fn tick_cgroup(&self, due_ns: &mut u64) {
        let now_ns = self.machine().now_ns();
        if self.cgroup.is_some() && now_ns >= *due_ns {
            *due_ns = now_ns.saturating_add(self.core.tree().flush_period_ns);
            // Nothing reports an error here: the last limit stays, and `reread_cgroup` returns the error to its caller.
            let _ = self.reread_cgroup();
        }
    }

    /// Compares the charged bytes of this memory with the memory that the process uses.
    ///
    /// `charged` comes from an exact read, or from the last flush where the memory's policy forbids that
    /// ([`crate::FlushPolicy::PeriodicOnly`]). The numbers are read one after the other: bytes that are charged and
    /// touched meanwhile may be in one and not in the other. The kernel may batch its counters, which hides up to 128 KiB
    /// for each CPU, and more on machines with more than 16 CPUs. The resident memory is that of all memories in the process.
    ///
    /// ```
    /// use bursar::{Limits, Memory};
    ///
    /// let memory = Memory::host()?;
    /// let cache = memory.root().child("cache", Limits::none())?;
    /// let charge = cache.try_charge(1 << 20)?;
    /// match memory.drift() {
    ///     Ok(drift) => {
    ///         assert!(drift.charged >= 1 << 20);
    ///         println!("{} bytes are not charged", drift.unaccounted());
    ///     }
    ///     // Not on Linux, or no /proc.
    ///     Err(error) => eprintln!("{error}"),
    /// }
    /// # drop(charge);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// [`ResidentError`] if the system does not tell, as outside of Linux or without `/proc`.
    pub fn drift(&self) -> Result<Drift, ResidentError> {
        let reading = match self.root().read(Freshness::Exact) {
            Ok(reading) => reading,
            Err(NotFresh { cached }) => cached,
        };
        let resident = resident()?;
        Ok(Drift {
            resident: resident.bytes,
            resident_anonymous: resident.anonymous_bytes,
            reserved: self.reserved(),
            // No usage is below 0.
            charged: u64::try_from(reading.usage().value).unwrap_or(0),
        })
    }
}

impl<M: Machine> Memory<M> {
    /// The root of the tree.
    pub fn root(&self) -> Group<M> {
        Group::new(self.core.clone(), ROOT)
    }

    /// Does the periodic upkeep. Call it from a timer several times per flush period, or use [`Builder::ticker`]. It is cheap if
    /// there is nothing to do.
    ///
    /// * Flushes the whole tree if the last flush is older than the flush period.
    /// * Does a step of a pass over idle slots ([`Builder::retire_period`]).
    /// * Takes back all stock if a CPU may hold more than 256 KiB of a group, and else the stock below a limit that has too little room for it.
    /// * Frees records of removed groups.
    /// * Wakes tasks that wait for memory, for pressure or for the end of a group, and calls pressure callbacks, if nothing else has
    ///   done so. For example, stall falls with time alone.
    /// * Looks after the page lists of all CPUs once per period. [`Memory::housekeeping`] spreads this over time.
    pub fn tick(&self) {
        {
            let _operation = fork::operation(&self.core);
            let tree = &self.core.tree();
            let is_due = tree::age_ns(tree, ROOT) >= tree.flush_period_ns;
            if is_due {
                tree::flush(tree, ROOT, Keep::Folded);
            }
            // A pass folds what it finds, and between flushes such a memory's numbers stay as they are.
            if is_due || tree.policy != FlushPolicy::PeriodicOnly {
                tree::retire(tree);
            }
            if let Some(zones) = self.core.pages.zones() {
                zones.tick(&|shard| self.core.pages.is_left_alone(shard));
            }
        }
        lifetime::reap(&self.core, REAPED);
        limits::trim(&self.core);
        // Stall averages change with time alone.
        tell::all(&self.core);
    }

    /// Counts of flushes so far.
    pub fn flush_counts(&self) -> FlushCounts {
        tree::flush_counts(self.core.tree())
    }

    /// Statistics that groups keep.
    pub fn statistics(&self) -> &'static [Statistic] {
        self.core.tree().layout.statistics
    }

    pub(crate) fn core(&self) -> &M::Shared<Core<M>> {
        &self.core
    }

    /// Machine that the memory runs on.
    pub fn machine(&self) -> &M {
        &self.core.tree().machine
    }

    /// Finds the group at a path of names separated by `/`, from the root. Empty names are skipped: `a/b`, `/a/b/` and `//a//b`
    /// are the same. [`Group::find`] takes one name and is exact.
    pub fn find(&self, path: &str) -> Option<Group<M>> {
        path.split('/')
            .filter(|name| !name.is_empty())
            .try_fold(self.root(), |group, name| group.find(name))
    }

    /// Number of removed groups whose records wait for their last handle or charge.
    pub fn removed_groups(&self) -> usize {
        lifetime::removed_groups(&self.core)
    }

    /// Bytes of per-CPU words that a group takes on each CPU that touches it. The sum of all groups is rounded up to whole pages.
    pub fn bytes_per_group_and_cpu(&self) -> u64 {
        (self.core.tree().layout.words * 8).next_multiple_of(64) as u64
    }

    /// Bytes that are reserved in the whole tree now, stock included.
    pub fn reserved(&self) -> u64 {
        self.core.counters.counter(ROOT).reserved()
    }

    pub(crate) fn of_group(group: &Group<M>) -> Self {
        Self {
            core: group.core().clone(),
            cgroup: None,
            ticker: None,
        }
    }

    /// The last refusals that looked at the tree, the oldest first, each with its age: at most 16.
    ///
    /// The refusals of one limit share a look for 100 ms, so of these only the first is kept.
    pub fn refusals(&self) -> Vec<(Duration, LimitReached)> {
        refusal::kept(&self.core)
    }

    /// The groups that have ended, and to which bytes are still charged: at most 64, the biggest first. A group that had no bytes when it ended is
    /// not among them, even if bytes were charged to it later.
    ///
    /// ```
    /// use bursar::{Limits, Memory};
    ///
    /// let memory = Memory::builder().sample_call_sites(1).build()?;
    /// let query = memory.root().child("query", Limits::none())?;
    /// let cached = query.try_charge(1 << 20)?;
    /// drop(query);
    /// let leftovers = memory.leftovers();
    /// assert_eq!((&leftovers[0].path[..], leftovers[0].bytes), ("/query", 1 << 20));
    /// // Where it was charged; empty in release builds without the feature `call-sites`.
    /// println!("{:?}", leftovers[0].call_sites);
    /// drop(cached);
    /// assert!(memory.leftovers().is_empty());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn leftovers(&self) -> Vec<Leftover> {
        leftover::kept(&self.core)
    }

    /// Reads the whole tree at once; see [`Group::snapshot`].
    ///
    /// # Errors
    /// [`NotFresh`] if the memory's policy forbids the flush that this needs.
    pub fn snapshot(&self, freshness: Freshness) -> Result<Snapshot, NotFresh> {
        self.root().snapshot(freshness)
    }
}

/// The tree of all groups with usage and limits, as a [`Snapshot`] shows it. The numbers are [`Freshness::Exact`], so each
/// printing flushes; where the memory's policy forbids that, they are [`Freshness::Cached`]. Use [`Memory::snapshot`] to choose.
impl<M: Machine> fmt::Display for Memory<M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let exact = self.snapshot(Freshness::Exact);
        let shown = exact.or_else(|_| self.snapshot(Freshness::Cached));
        shown.expect("needs no flush").fmt(f)
    }
}
