//! A memory: one tree of groups, usually one per process.

mod cgroup;
mod drift;
#[cfg(test)]
mod tests;
mod upkeep;

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use bursar_machine::host::{CgroupError, StartError, Ticker};
use bursar_machine::{AtomicWord, Host, Machine, Order};

use crate::books::Books;
use crate::charge::{
    Bytes, HighPolicy, Ledger, Limits, Policies, PressurePolicy, REAPED_BY_TICK, Recursive,
    STOCK_MAX_MAX,
};
use crate::group::Group;
use crate::pages::PageOptions;
use crate::stats::{
    BadSchema, CreateError, FlushCounts, FlushPolicy, Layout, ROOT, Statistic, Tree,
};
use cgroup::{Follow, FromCgroup};
pub use drift::Drift;

/// The kernel's `FLUSH_TIME`: 2 s.
#[doc(alias = "FLUSH_TIME")]
const FLUSH_PERIOD: Duration = Duration::from_secs(2);

/// One tree of groups with its statistics. Cloning gives another handle of the same memory.
///
/// `M`, here and in all types that have it, is what a memory runs on: [`Host`], threads of this machine, unless you
/// simulate. Write `Memory` and forget it.
///
/// On the host, the books of a memory (not the memory that its users charge) stay allocated until the process ends, so
/// that a charge can return to them without counting references: about 64 KiB for each CPU that touches it and 1 KiB
/// for each group at a time. Make one per process, not one per request.
///
/// # Fork
/// `fork` waits until no thread is inside an operation of a memory, so that the child finds the books whole. There they
/// are a copy of their own: what is charged or returned in one process is not in the other. The child may read, charge,
/// and drop what it holds; what threads that are gone had charged stays charged, also what they were about to return.
/// Before it starts threads it should do one operation that is not for signal handlers, such as [`Memory::tick`], which puts
/// right what those threads left half done. Until then [`Group::reserved`] may be off and [`Group::try_charge_nowait`] is
/// refused. A child that has nothing in common with its parent's work begins again with
/// [`Memory::reset_after_fork`]. A ticker does not tick in the child, whether the memory has it or you.
pub struct Memory<M: Machine = Host> {
    books: M::Shared<Books<M>>,
    /// Set by [`Builder::max_from_cgroup`].
    cgroup: Option<Arc<Follow>>,
    /// Set by [`Builder::ticker`].
    ticker: Option<Arc<Ticker>>,
}

impl<M: Machine> Clone for Memory<M> {
    fn clone(&self) -> Self {
        Self {
            books: self.books.clone(),
            cgroup: self.cgroup.clone(),
            ticker: self.ticker.clone(),
        }
    }
}

/// Short enough for a line of a log.
impl<M: Machine> fmt::Debug for Memory<M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let groups = self.books.tree.group_count();
        f.debug_struct("Memory")
            .field("machine", &self.books.tree.machine)
            .field("groups", &groups.saturating_sub(self.removed_groups()))
            .field("reserved", &format_args!("{}", Bytes(self.reserved())))
            .finish_non_exhaustive()
    }
}

/// Why a memory could not be made.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum MemoryError {
    /// The host cannot be used as asked.
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
    /// There is no memory for the root group.
    OutOfMemory,
    /// The limit of this process's cgroup was asked for ([`Builder::max_from_cgroup`]) and could not be read.
    Cgroup(CgroupError),
    /// [`Builder::max_from_cgroup`] goes with [`Builder::build`]: a machine that is handed in has no cgroup.
    NoCgroup,
    /// The thread of [`Builder::ticker`] cannot be started.
    Ticker(std::io::ErrorKind),
    /// [`Builder::ticker`] goes with [`Builder::build`]: a machine that is handed in has no threads.
    NoTicker,
    /// The [`PageOptions`] make no sense.
    BadPageOptions {
        /// What is wrong with them.
        reason: &'static str,
    },
    /// The [`PressurePolicy`] makes no sense.
    BadPressurePolicy {
        /// What is wrong with it.
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

/// How to make a [`Memory`]; see [`Memory::builder`].
#[derive(Clone, Debug)]
#[must_use = "a builder makes nothing until it builds"]
pub struct Builder {
    statistics: &'static [Statistic],
    policy: FlushPolicy,
    flush_period: Duration,
    limits: Limits,
    policies: Policies,
    cgroup: Option<FromCgroup>,
    pages: PageOptions,
    ticks: bool,
}

impl Memory<Host> {
    /// A memory on this host, without statistics of its own, without a limit at the root.
    ///
    /// # Errors
    /// [`MemoryError`], see there.
    pub fn host() -> Result<Self, MemoryError> {
        Self::builder().build()
    }

    /// Settings for a memory.
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
            limits: Limits::none(),
            policies: Policies::default(),
            cgroup: None,
            pages: PageOptions::default(),
            ticks: false,
        }
    }

    /// Starts a thread that calls [`Memory::tick`], and [`Memory::reread_cgroup`] once per flush period if the memory was
    /// built with [`Builder::max_from_cgroup`], until the returned value is dropped: `let _ = memory.start_ticker()` stops it at
    /// once. [`Builder::ticker`] has no such trap. A cgroup that cannot be read leaves the last limit. A forked child has no
    /// such thread and may start one of its own.
    ///
    /// # Errors
    /// What the system says if it cannot start a thread.
    pub fn start_ticker(&self) -> std::io::Result<Ticker> {
        // Without a ticker of its own, which would keep itself alive.
        let memory = Self {
            ticker: None,
            ..self.clone()
        };
        let period = Duration::from_nanos(self.books.tree.flush_period_ns);
        let period = (period / 4).max(Duration::from_millis(1));
        let mut cgroup_due_ns = 0;
        Ticker::start("bursar-tick", period, move || {
            memory.tick();
            memory.tick_cgroup(&mut cgroup_due_ns);
        })
    }
}

impl Builder {
    /// Which statistics groups keep.
    pub fn statistics(self, statistics: &'static [Statistic]) -> Self {
        Self { statistics, ..self }
    }

    /// Who flushes.
    pub fn policy(self, policy: FlushPolicy) -> Self {
        Self { policy, ..self }
    }

    /// How old [`Memory::tick`] lets cached numbers become; 2 s unless set.
    pub fn flush_period(self, flush_period: Duration) -> Self {
        Self {
            flush_period,
            ..self
        }
    }

    /// The limit of the root, bytes.
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

    /// Whether protection that a group does not use itself goes to its children; [`Recursive::Yes`] unless set, as systemd
    /// mounts the kernel's control groups.
    #[doc(alias = "memory_recursiveprot")]
    pub fn recursive_protection(self, recursive: Recursive) -> Self {
        let policies = Policies {
            recursive,
            ..self.policies
        };
        Self { policies, ..self }
    }

    /// What makes which level of pressure.
    pub fn pressure_policy(self, pressure: PressurePolicy) -> Self {
        let policies = Policies {
            pressure,
            ..self.policies
        };
        Self { policies, ..self }
    }

    /// The most stock that a CPU may hold of a group, bytes; 256 KiB unless set, as in the kernel, and at most 1 GiB. Charges and
    /// returns of less than a quarter of it seldom reach the counters that all CPUs share, so an engine whose requests are of about 1 MiB is
    /// well served with 8 MiB. Near a limit it is less: a CPU that comes to hold stock takes its part of a quarter of what is left then. What
    /// groups hold adds up, and [`Group::reserved`] and [`Group::peak`] include it. With 0 there is none, and each operation goes to all groups on the way up.
    #[doc(alias = "MEMCG_CHARGE_BATCH")]
    pub fn stock_max(self, bytes: u64) -> Self {
        let policies = Policies {
            stock_max: bytes.min(STOCK_MAX_MAX),
            ..self.policies
        };
        Self { policies, ..self }
    }

    /// Shards of which a drain takes the stock back in one turn; 256 unless set. For explorations, where a drain of a few
    /// shards should have several turns.
    #[doc(hidden)]
    pub fn shards_per_slice(self, shards: usize) -> Self {
        let policies = Policies {
            shards_per_slice: shards.max(1),
            ..self.policies
        };
        Self { policies, ..self }
    }

    /// What pages are like; reserved when the first is asked for.
    pub fn pages(self, pages: PageOptions) -> Self {
        Self { pages, ..self }
    }

    /// Whether the memory has a ticker of its own; none unless set. It does what that of [`Memory::start_ticker`] does, until
    /// the last handle of this memory is dropped: the [`Memory`] that was built and its clones. A [`Group`] is no such
    /// handle, nor is what [`Group::memory`] returns. So keep the memory for as long as the groups are used.
    ///
    /// A forked child has no such thread, and [`Memory::reset_after_fork`] starts none. Start one there by
    /// [`Memory::start_ticker`].
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
    /// [`MemoryError`], see there.
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

    /// Makes the memory on a machine. Not together with [`Builder::max_from_cgroup`].
    ///
    /// # Errors
    /// [`MemoryError`], see there.
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
        let tree = Tree::new(machine, layout, self.policy, self.flush_period)
            .map_err(|_: CreateError| MemoryError::OutOfMemory)?;
        let ledger = Ledger::new(tree, self.policies, self.limits);
        let books = Books::new(ledger, self.pages.clone());
        Ok(Memory {
            books: M::share(books),
            cgroup: None,
            ticker: None,
        })
    }
}

impl<M: Machine> Group<M> {
    /// The memory that the group is of. Made from a group it follows no cgroup of its own accord, and rereads none
    /// ([`Builder::max_from_cgroup`]), and it keeps no ticker running ([`Builder::ticker`]); all else is the same.
    pub fn memory(&self) -> Memory<M> {
        Memory {
            books: self.books().clone(),
            cgroup: None,
            ticker: None,
        }
    }
}

impl<M: Machine> Memory<M> {
    /// The root of the tree.
    pub fn root(&self) -> Group<M> {
        Group::new(self.books.clone(), ROOT)
    }

    /// Periodic upkeep: flushes the whole tree if the last time is longer ago than the flush period, and then takes
    /// back stock that is more than a quarter of what a limit has left; frees records of removed groups; tells those
    /// who watch pressure or wait for memory what they have not been told, among others that stall has abated. Cheap if
    /// there is nothing to do; call it from a timer several times a period (one that comes just before a flush is due
    /// leaves it to the next), or see [`Memory::start_ticker`], which does so four times. The lists of pages of all CPUs are
    /// looked after in one call a period; [`Memory::housekeeping`] has each at a time of its own.
    pub fn tick(&self) {
        {
            let _operation = self.books.operation();
            let tree = &self.books.tree;
            if tree.age_ns(ROOT) >= tree.flush_period_ns {
                tree.flush(ROOT);
            }
            if let Some(zones) = self.books.zones() {
                zones.tick(&|shard| self.books.is_left_alone(shard));
            }
        }
        self.books.reap(REAPED_BY_TICK);
        self.books.trim();
        // Stall averages change with time alone.
        self.books.notice_all();
    }

    /// A fresh memory with the same statistics, flushes and tree of groups with their limits, in which nothing is charged
    /// or counted: what a forked child wants that does work of its own.
    ///
    /// This memory, its groups and charges stay valid, and separate: inherited charges are dropped into it as ever. Groups
    /// live as long as somebody holds a handle, so all of the new ones but the root come along, parents before children;
    /// dropping those that are not needed removes them.
    ///
    /// # Errors
    /// [`MemoryError::OutOfMemory`].
    pub fn reset_after_fork(&self) -> Result<(Self, Vec<Group<M>>), MemoryError> {
        let tree = &self.books.tree;
        let builder = Builder {
            statistics: tree.layout.statistics,
            policy: tree.policy,
            flush_period: Duration::from_nanos(tree.flush_period_ns),
            limits: self.root().limits(),
            policies: self.books.policies,
            cgroup: None,
            pages: self.books.page_options().clone(),
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

    /// How flushes came about so far.
    pub fn flush_counts(&self) -> FlushCounts {
        self.books.tree.combiner.counts()
    }

    /// The statistics that groups keep.
    pub fn statistics(&self) -> &'static [Statistic] {
        self.books.tree.layout.statistics
    }

    pub(crate) fn books(&self) -> &M::Shared<Books<M>> {
        &self.books
    }

    /// The machine.
    pub fn machine(&self) -> &M {
        &self.books.tree.machine
    }

    /// The group at a path of names separated by `/`, from the root. Empty names are skipped, so `a/b`, `/a/b/` and `//a//b` are the
    /// same group. [`Group::find`] takes one name and is exact.
    pub fn find(&self, path: &str) -> Option<Group<M>> {
        path.split('/')
            .filter(|name| !name.is_empty())
            .try_fold(self.root(), |group, name| group.find(name))
    }

    /// Removed groups whose records wait for their last handle or charge.
    pub fn removed_groups(&self) -> usize {
        self.books.removed_groups()
    }

    /// Bytes of per-CPU words that a group takes on each CPU that touches it (rounded up to whole pages over all groups).
    pub fn bytes_per_group_and_cpu(&self) -> u64 {
        (self.books.tree.layout.words * 8).next_multiple_of(64) as u64
    }

    /// Bytes reserved in the whole tree now, stock included.
    pub fn reserved(&self) -> u64 {
        self.books.counter(ROOT).usage.load(Order::Full)
    }
}
