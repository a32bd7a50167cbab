//! Settings of a memory, and how one is made of them.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use bursar_machine::host::{CgroupError, StartError};
use bursar_machine::{Host, Machine};

use super::Memory;
use super::cgroup::{Follow, FromCgroup};
use crate::group::Group;
use crate::limit::{Counters, Limits, SHARDS_PER_SLICE, STOCK_MAX_MAX, StockSettings};
use crate::pages::Zeroed;
use crate::react::{Core, HighPolicy, PassingRule, Policies, PressurePolicy, Recursive};
use crate::tree::{BadSchema, CreateError, FlushPolicy, Layout, Statistic, Tree};
use crate::zones::PageOptions;

/// The kernel's `FLUSH_TIME`: 2 s.
#[doc(alias = "FLUSH_TIME")]
const FLUSH_PERIOD: Duration = Duration::from_secs(2);
/// Long enough that fences take 0.01 % of the time of a CPU, short enough that slots in use outnumber idle ones. Judgement.
const RETIRE_PERIOD: Duration = Duration::from_millis(10);

/// Reason why a memory cannot be made.
#[derive(Clone, PartialEq, Eq)]
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

bursar_machine::debug_as_message!(
    enum MemoryError {
        Start(error),
        DuplicateStatistic { name },
        UnnamedStatistic,
        TooManyStatistics,
        OutOfMemory,
        Cgroup(error),
        NoCgroup,
        Ticker(kind),
        NoTicker,
        BadPageOptions { reason },
        BadPressurePolicy { reason },
    }
);

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
    pub(super) cgroup: Option<FromCgroup>,
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

    /// Sets how far a waiting charge ([`Group::charge_async`]) that does not fit is passed by others that fit: at most `times`, and no
    /// more once it has waited for `time`; 32 times and 10 s unless set. Then room is kept for it: no waiting charge behind it gets
    /// memory below the limit in its way, until it is served or dropped.
    ///
    /// With 0 times each waiting charge is served in turn, and a large one keeps all behind it waiting.
    pub fn passing(self, times: u32, time: Duration) -> Self {
        let passing = PassingRule {
            times_max: times,
            waited_max_ns: u64::try_from(time.as_nanos()).unwrap_or(u64::MAX),
        };
        let policies = Policies {
            passing,
            ..self.policies
        };
        Self { policies, ..self }
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

    /// Sets whether the end of a group with bytes charged panics; no unless set. For tests that must leave nothing behind.
    ///
    /// The panic comes from the call that ends the group: [`Group::close`], [`Group::remove`], or the drop of its last
    /// handle. The group has ended then, and the message is that of [`Memory::leftovers`]. A thread that unwinds already panics no second
    /// time. A charge that outlives its group is no error otherwise, so drop charges before handles: the fields of a struct drop in
    /// their order.
    ///
    /// ```should_panic
    /// use bursar::{Limits, Memory};
    ///
    /// let memory = Memory::builder().panic_on_leftovers(true).build().unwrap();
    /// let query = memory.root().child("query", Limits::none()).unwrap();
    /// std::mem::forget(query.try_charge(1 << 20).unwrap());
    /// drop(query);
    /// ```
    pub fn panic_on_leftovers(self, panics: bool) -> Self {
        let policies = Policies {
            panics_on_leftovers: panics,
            ..self.policies
        };
        Self { policies, ..self }
    }

    /// Sets that one in `one_in` charges is followed to the code that made it; 0, for none, unless set. [`Memory::leftovers`] shows that
    /// code for bytes that are left behind.
    ///
    /// Only builds with debug assertions or the feature `call-sites` follow charges. In such a build a followed charge costs some
    /// microseconds, for its backtrace. At most 65,536 are followed at a time, and then the next 8,192 are not. The charges of [`Group::try_charge`],
    /// [`Group::charge`] and [`Group::charge_async`] are followed, and no others.
    pub fn sample_call_sites(self, one_in: u32) -> Self {
        let policies = Policies {
            sampled_one_in: one_in,
            ..self.policies
        };
        Self { policies, ..self }
    }

    /// Sets the most stock that a CPU may hold of a group, bytes: 64 MiB unless set, and at most 1 GiB.
    ///
    /// Stock is a number of bytes that a CPU has charged ahead for later charges, or kept of bytes that were returned. Charges and returns
    /// that it covers do not reach the counters that all CPUs share. A CPU may hold 256 KiB of a group, as in the kernel, or 32
    /// requests of the size that it sees if that is more. Near a limit it holds less: all CPUs and groups below a limit together may hold
    /// a quarter of the room that is left, and what they hold beyond 256 KiB each comes out of a sixteenth of it.
    ///
    /// [`Group::reserved`] and [`Group::peak`] include stock. Of that, CPUs charge an eighth of what a group has ahead of need, or 128 KiB
    /// each if that is more. The rest is returned bytes that they keep until they need them, or a tick takes them back. With 0 there is no stock, and each operation changes the counters of all groups above.
    #[doc(alias = "MEMCG_CHARGE_BATCH")]
    pub fn stock_max(self, bytes: u64) -> Self {
        let stock = StockSettings {
            stock_max: bytes.min(STOCK_MAX_MAX),
            ..self.stock
        };
        Self { stock, ..self }
    }

    /// Shards of which a drain takes the stock back in one turn; 256 unless set, and at most 256. If this is below 64, it is also the number of shards that
    /// a walk folds under one hold of a lock. For explorations, where a drain or a fold of a few shards should have several turns.
    #[doc(hidden)]
    pub fn shards_per_slice(self, shards: usize) -> Self {
        let stock = StockSettings {
            shards_per_slice: shards.clamp(1, SHARDS_PER_SLICE),
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
    /// clones. A [`Group`] is no such handle, and [`Group::memory`] returns none. So keep the `Memory` as long as its groups.
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

    /// Makes the root's limit follow the memory limit of this process's cgroup. It is the smaller of [`Builder::max`] and the
    /// cgroup's limit less `keep_free` bytes. These are for memory that is not charged: code, stacks, the allocator's slack, page
    /// cache, other processes of the cgroup. If the cgroup's limit is smaller, the root's limit is 0, and every charge is refused.
    ///
    /// The limit is the smallest of the cgroup and of those above it. If none has a limit, [`Builder::max`] holds.
    /// [`Builder::build`] reads it, and fails if it cannot. Each [`Memory::reread_cgroup`] reads it again, and so does a
    /// ticker ([`Builder::ticker`]) once per flush period.
    ///
    /// ```
    /// use bursar::{Memory, MemoryError};
    ///
    /// let builder = Memory::builder().max(64 << 30);
    /// let memory = match builder.clone().max_from_cgroup(512 << 20).build() {
    ///     // No cgroups here: the number above must do.
    ///     Err(MemoryError::Cgroup(error)) => {
    ///         eprintln!("{error}");
    ///         builder.build()?
    ///     }
    ///     other => other?,
    /// };
    /// assert!(memory.root().limits().max <= 64 << 30);
    /// # Ok::<(), MemoryError>(())
    /// ```
    #[doc(alias = "memory.max")]
    #[doc(alias = "memory.limit_in_bytes")]
    pub fn max_from_cgroup(self, keep_free: u64) -> Self {
        Self {
            cgroup: Some(FromCgroup::of_this_process(keep_free)),
            ..self
        }
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
            BadSchema::OutOfMemory => MemoryError::OutOfMemory,
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
        let core = counters.and_then(|counters| Core::new(counters, self.policies, self.pages));
        Ok(Memory {
            core: core
                .and_then(M::try_share)
                .ok_or(MemoryError::OutOfMemory)?,
            cgroup: None,
            ticker: None,
        })
    }
}

impl<M: Machine> Memory<M> {
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
        let cgroup = self.cgroup.as_ref();
        fresh.cgroup = cgroup.map(|follow| Arc::new(follow.copy()));
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
        for (from, to) in &pairs {
            let settings = from.core().counters.counter(from.index());
            if settings.zeroes_on_free() {
                to.set_zero_on_free(Zeroed::Yes);
            }
            if !settings.may_be_victim() {
                to.exclude_from_victims();
            }
        }
        let groups = pairs.into_iter().skip(1).map(|(_, copy)| copy);
        Ok((fresh, groups.collect()))
    }
}
