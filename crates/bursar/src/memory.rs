//! A memory: one tree of groups, usually one per process.

mod cgroup;
mod drift;
#[cfg(test)]
mod tests;

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use bursar_machine::host::{CgroupError, StartError, Ticker};
use bursar_machine::{Host, Machine};

use crate::bytes::Bytes;
use crate::group::Group;
use crate::limit::{Counters, Limits, STOCK_MAX_MAX, StockSettings};
use crate::react::{Core, HighPolicy, Policies, PressurePolicy, Recursive, fork, lifetime, upkeep};
use crate::snapshot::Snapshot;
use crate::tree::{
    self, BadSchema, CreateError, FlushCounts, FlushPolicy, Freshness, Keep, Layout, NotFresh,
    ROOT, Statistic, Tree,
};
use crate::zones::PageOptions;
use cgroup::{Follow, FromCgroup};
pub use drift::Drift;

/// The kernel's `FLUSH_TIME`: 2 s.
#[doc(alias = "FLUSH_TIME")]
const FLUSH_PERIOD: Duration = Duration::from_secs(2);
/// Long enough that fences take 0.01 % of the time of a CPU, short enough that slots in use outnumber idle ones. Judgement.
const RETIRE_PERIOD: Duration = Duration::from_millis(10);

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

/// Reason why a memory cannot be made.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum MemoryError {
    /// The host cannot be used as requested.
    Start(StartError),
    /// Two statistics have the same name.
    DuplicateStatistic {
        /// The name.
        name: &'static str,
    },
    /// A statistic has no name.
    UnnamedStatistic,
    /// The statistics need more than 252 words.
    TooManyStatistics,
    /// The root group cannot be allocated.
    OutOfMemory,
    /// The limit of this process's cgroup cannot be read ([`Builder::max_from_cgroup`]).
    Cgroup(CgroupError),
    /// [`Builder::max_from_cgroup`] was used with [`Builder::build_on`]: such a machine has no cgroup.
    NoCgroup,
    /// The thread of [`Builder::ticker`] cannot be started.
    Ticker(std::io::ErrorKind),
    /// [`Builder::ticker`] was used with [`Builder::build_on`]: such a machine has no threads.
    NoTicker,
    /// The [`PageOptions`] contradict themselves.
    BadPageOptions {
        /// The reason: the option at fault and its bounds.
        reason: &'static str,
    },
    /// The [`PressurePolicy`] contradicts itself.
    BadPressurePolicy {
        /// The reason: the number at fault and its bounds.
        reason: &'static str,
    },
}

impl fmt::Display for MemoryError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Start(error) => error.fmt(f),
            Self::DuplicateStatistic { name } => {
                write!(f, "the statistic {name:?} is declared twice")
            }
            Self::UnnamedStatistic => f.write_str("a statistic needs a name"),
            Self::TooManyStatistics => f.write_str("too many statistics: at most 252 words"),
            Self::OutOfMemory => f.write_str("no memory for the root group"),
            Self::Cgroup(error) => error.fmt(f),
            Self::NoCgroup => f.write_str(
                "max_from_cgroup needs build(): a machine that is handed in has no cgroup",
            ),
            Self::Ticker(kind) => write!(f, "cannot start the ticker's thread: {kind}"),
            Self::NoTicker => {
                f.write_str("ticker needs build(): a machine that is handed in has no threads")
            }
            Self::BadPageOptions { reason } => write!(f, "bad page options: {reason}"),
            Self::BadPressurePolicy { reason } => write!(f, "bad pressure policy: {reason}"),
        }
    }
}

impl std::error::Error for MemoryError {}

/// Settings of a [`Memory`]; see [`Memory::builder`].
#[derive(Clone, Debug)]
#[must_use = "a builder makes nothing until it builds"]
pub struct Builder {
    statistics: &'static [Statistic],
    policy: FlushPolicy,
    flush_period: Duration,
    retire_period: Duration,
    limits: Limits,
    policies: Policies,
    stock: StockSettings,
    cgroup: Option<FromCgroup>,
    pages: PageOptions,
    ticks: bool,
}

impl Memory<Host> {
    /// Makes a memory on this host without declared statistics and without a limit at the root.
    ///
    /// # Errors
    /// [`MemoryError::Start`] or [`MemoryError::OutOfMemory`].
    pub fn host() -> Result<Self, MemoryError> {
        Self::builder().build()
    }

    /// Returns the settings of a new memory, for changes.
    ///
    /// ```
    /// use bursar::{FlushPolicy, Memory, Statistic};
    ///
    /// const STATISTICS: &[Statistic] = &[Statistic::counter("rows")];
    /// let memory = Memory::builder()
    ///     .statistics(STATISTICS)
    ///     .policy(FlushPolicy::Combining)
    ///     .max(8 << 30)
    ///     .build()?;
    /// # Ok::<(), bursar::MemoryError>(())
    /// ```
    pub fn builder() -> Builder {
        Builder {
            statistics: &[],
            policy: FlushPolicy::default(),
            flush_period: FLUSH_PERIOD,
            retire_period: RETIRE_PERIOD,
            limits: Limits::none(),
            policies: Policies::default(),
            stock: StockSettings::default(),
            cgroup: None,
            pages: PageOptions::default(),
            ticks: false,
        }
    }

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
}

impl Builder {
    /// Sets the statistics that groups keep.
    pub fn statistics(self, statistics: &'static [Statistic]) -> Self {
        Self { statistics, ..self }
    }

    /// Sets when statistics are flushed.
    pub fn policy(self, policy: FlushPolicy) -> Self {
        Self { policy, ..self }
    }

    /// Sets the period after which [`Memory::tick`] flushes; 2 s unless set.
    pub fn flush_period(self, flush_period: Duration) -> Self {
        Self {
            flush_period,
            ..self
        }
    }

    /// Sets the least time between two passes over idle slots that readers do, 10 ms unless set. The steps of one pass are a tenth of
    /// that apart, at least.
    ///
    /// A slot is one group's counters of one CPU. A read looks at all slots of its groups that are not retired; a slot that two passes
    /// find unchanged is retired. Ticks do steps of a pass, and so does one exact read in many: after it has its answer, if reads of its group have
    /// looked at 8,192 slots since. A step looks at up to 1,024 groups and slots and interrupts the CPUs that run the process
    /// once. The next update of a retired slot costs some hundred nanoseconds more. 0: each exact read does a step.
    pub fn retire_period(self, retire_period: Duration) -> Self {
        Self {
            retire_period,
            ..self
        }
    }

    /// Sets the limit of the root, bytes.
    pub fn max(self, max: u64) -> Self {
        Self {
            limits: Limits { max, ..self.limits },
            ..self
        }
    }

    /// Sets how charges pay for usage above a `high`; [`HighPolicy::Owe`] unless set, which never sleeps.
    pub fn high_policy(self, high: HighPolicy) -> Self {
        let policies = Policies {
            high,
            ..self.policies
        };
        Self { policies, ..self }
    }

    /// Sets whether protection that no child of a group claims goes to all its children. [`Recursive::Yes`] unless set, which is
    /// how systemd mounts the kernel's control groups.
    #[doc(alias = "memory_recursiveprot")]
    pub fn recursive_protection(self, recursive: Recursive) -> Self {
        let policies = Policies {
            recursive,
            ..self.policies
        };
        Self { policies, ..self }
    }

    /// Sets the thresholds that map usage and stall time to a level of pressure.
    pub fn pressure_policy(self, pressure: PressurePolicy) -> Self {
        let policies = Policies {
            pressure,
            ..self.policies
        };
        Self { policies, ..self }
    }

    /// Sets the most stock that a CPU may hold of a group, bytes: 256 KiB unless set, as in the kernel, and at most 1 GiB.
    ///
    /// Stock is a number of bytes that a CPU has charged ahead for later charges. Charges and returns of less than a quarter of this
    /// size seldom reach the counters that all CPUs share. So 8 MiB suits an engine whose requests are of about 1 MiB. Near a
    /// limit a CPU holds less: its share of a quarter of the room that is left. The stock of groups adds up, and [`Group::reserved`] and
    /// [`Engine::peak`](crate::engine::Engine::peak) include it. With 0 there is no stock, and each operation changes the counters of all groups above.
    #[doc(alias = "MEMCG_CHARGE_BATCH")]
    pub fn stock_max(self, bytes: u64) -> Self {
        let stock = StockSettings {
            stock_max: bytes.min(STOCK_MAX_MAX),
            ..self.stock
        };
        Self { stock, ..self }
    }

    /// Shards of which a drain takes the stock back in one turn; 256 unless set. If this is below 64, it is also the number of shards that
    /// a walk folds under one hold of a lock. For explorations, where a drain or a fold of a few shards should have several turns.
    #[doc(hidden)]
    pub fn shards_per_slice(self, shards: usize) -> Self {
        let stock = StockSettings {
            shards_per_slice: shards.max(1),
            ..self.stock
        };
        Self { stock, ..self }
    }

    /// Sets the options of pages. Address space for pages is reserved at the first request.
    pub fn pages(self, pages: PageOptions) -> Self {
        Self { pages, ..self }
    }

    /// Sets whether the memory has its own ticker, a thread that does what [`Memory::start_ticker`] says; no unless set.
    ///
    /// The thread runs until the last handle of the memory is dropped: the [`Memory`] that [`Builder::build`] returns, and its
    /// clones. A [`Group`] is no such handle, and [`Engine::memory`](crate::engine::Engine::memory) returns none. So keep the `Memory` as long as its groups.
    ///
    /// A forked child has no such thread, and [`Memory::reset_after_fork`] starts none. Call [`Memory::start_ticker`] there.
    ///
    /// ```
    /// let memory = bursar::Memory::builder().max(8 << 30).ticker(true).build()?;
    /// # Ok::<(), bursar::MemoryError>(())
    /// ```
    pub fn ticker(self, ticks: bool) -> Self {
        Self { ticks, ..self }
    }

    /// Makes the memory on this host.
    ///
    /// # Errors
    /// [`MemoryError`]: a setting is wrong, or the host cannot do what it asks for.
    pub fn build(mut self) -> Result<Memory, MemoryError> {
        let host = Host::start().map_err(MemoryError::Start)?;
        let ticks = std::mem::take(&mut self.ticks);
        let mut memory = match self.cgroup.take() {
            None => self.build_on(host)?,
            Some(from) => {
                let follow = Follow::new(from, self.limits.max).map_err(MemoryError::Cgroup)?;
                let memory = self.max(follow.root_max()).build_on(host)?;
                Memory {
                    cgroup: Some(Arc::new(follow)),
                    ..memory
                }
            }
        };
        if ticks {
            let ticker = memory.start_ticker();
            let ticker = ticker.map_err(|error| MemoryError::Ticker(error.kind()))?;
            memory.ticker = Some(Arc::new(ticker));
        }
        Ok(memory)
    }

    /// Makes the memory on a given machine. Not together with [`Builder::max_from_cgroup`] or [`Builder::ticker`].
    ///
    /// # Errors
    /// [`MemoryError`]: a setting is wrong, or there is no memory.
    pub fn build_on<M: Machine>(self, machine: M) -> Result<Memory<M>, MemoryError> {
        if self.cgroup.is_some() {
            return Err(MemoryError::NoCgroup);
        }
        if self.ticks {
            return Err(MemoryError::NoTicker);
        }
        let checked = self.policies.pressure.check();
        checked.map_err(|reason| MemoryError::BadPressurePolicy { reason })?;
        let checked = self.pages.check();
        checked.map_err(|reason| MemoryError::BadPageOptions { reason })?;
        let layout = Layout::new(self.statistics, machine.nodes()).map_err(|bad| match bad {
            BadSchema::Duplicate(name) => MemoryError::DuplicateStatistic { name },
            BadSchema::Empty => MemoryError::UnnamedStatistic,
            BadSchema::TooMany => MemoryError::TooManyStatistics,
        })?;
        let periods = (self.flush_period, self.retire_period);
        let tree = Tree::new(
            machine,
            layout,
            self.policy,
            periods,
            self.stock.shards_per_slice,
        )
        .map_err(|_: CreateError| MemoryError::OutOfMemory)?;
        let counters = Counters::new(tree, self.stock, self.limits);
        let core = Core::new(counters, self.policies, self.pages);
        Ok(Memory {
            core: M::share(core),
            cgroup: None,
            ticker: None,
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
    /// * Takes back the stock below a limit if it is more than a quarter of the room that the limit has left.
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
        upkeep::tick(&self.core);
    }

    /// Makes a new memory with the same settings and the same tree of groups and limits, in which nothing is charged or counted.
    /// It is for a forked child with work of its own.
    ///
    /// The old memory, its groups and charges stay valid and separate: an inherited charge is returned to it when dropped. The
    /// handles of the new groups are returned too, without the root, parents before children. Dropping a handle removes its group.
    ///
    /// # Errors
    /// [`MemoryError::OutOfMemory`].
    pub fn reset_after_fork(&self) -> Result<(Self, Vec<Group<M>>), MemoryError> {
        let tree = &self.core.tree();
        let builder = Builder {
            statistics: tree.layout.statistics,
            policy: tree.policy,
            flush_period: Duration::from_nanos(tree.flush_period_ns),
            retire_period: Duration::from_nanos(tree.retirer.period_ns),
            limits: self.root().limits(),
            policies: self.core.policies,
            stock: self.core.counters.stock,
            cgroup: None,
            pages: self.core.pages.options().clone(),
            ticks: false,
        };
        let mut fresh = builder.build_on(tree.machine.clone())?;
        fresh.cgroup = self.cgroup.clone();
        let mut pairs = vec![(self.root(), fresh.root())];
        let mut position = 0;
        while position < pairs.len() {
            let (from, to) = &pairs[position];
            let mut below = Vec::new();
            for child in from.children() {
                let copy = to.child(child.name(), child.limits());
                below.push((child, copy.map_err(|_| MemoryError::OutOfMemory)?));
            }
            pairs.extend(below);
            position += 1;
        }
        let groups = pairs.into_iter().skip(1).map(|(_, copy)| copy);
        Ok((fresh, groups.collect()))
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
}

impl<M: Machine> Memory<M> {
    pub(crate) fn of_group(group: &Group<M>) -> Self {
        Self {
            core: group.core().clone(),
            cgroup: None,
            ticker: None,
        }
    }
}

impl<M: Machine> Memory<M> {
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
