//! Values that a run observed, decoded and analysed: the content of reports and recordings.
//!
//! Times are nanoseconds of the kernel's monotonic clock. Jiffies are the kernel's `jiffies`, in full. Lists are in the order
//! of their first time. A value that this kernel does not show is `None`.

use std::collections::BTreeSet;
use std::fmt;
use std::marker::PhantomData;

use serde::de::{Error, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer, Serialize};

use crate::pressure::Pressure;
use crate::writer::Writer;

/// Bound of each list, so that memory does not grow with the length of a run, or with a claim of a file. Of 56 bytes each, or more.
pub(crate) const ITEMS: usize = 2_000_000;
/// The lock is released where the gap is so many times that elsewhere.
const RELEASE_GAP: u64 = 2;

/// Everything that one run observed.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Seen {
    /// The observed machine.
    pub machine: Machine,
    /// Program that wrote the file that this was read from. `None`: a live run.
    #[serde(skip)]
    pub recorded_by: Option<Writer>,
    /// Whether the names are pseudonyms.
    pub is_redacted: bool,
    /// Whether page events were traced, which makes upkeep take longer.
    pub deep: bool,
    /// Whether waits for spin locks were traced, and no pages.
    #[serde(default)]
    pub locks: bool,
    /// First moment.
    pub start_ns: u64,
    /// Last moment.
    pub end_ns: u64,
    /// Calls of `vmstat_update`.
    #[serde(deserialize_with = "bounded")]
    pub upkeep: Vec<Upkeep>,
    /// Calls of `refresh_cpu_vm_stats()` itself, where the kernel permits probes.
    #[serde(deserialize_with = "bounded")]
    pub refreshes: Vec<Refresh>,
    /// Runs of pages under a zone lock. Deep mode only.
    #[serde(deserialize_with = "bounded")]
    pub bursts: Vec<Burst>,
    /// Waits for spin locks. Deep mode only.
    #[serde(deserialize_with = "bounded")]
    pub waits: Vec<Wait>,
    /// Requests to fold statistics of cgroups.
    #[serde(deserialize_with = "bounded")]
    pub flushes: Vec<Flush>,
    /// Reads of one cgroup's `memory.stat` that the observation did itself.
    #[serde(default, deserialize_with = "bounded")]
    pub reads: Vec<StatRead>,
    /// Way in which this kernel gives up the zone lock within a burst of frees outside of upkeep.
    pub release: Release,
    /// The same within upkeep.
    #[serde(default)]
    pub decay_release: Release,
    /// Names of the tasks in `flushes` that still ran when they were looked up.
    #[serde(deserialize_with = "bounded")]
    pub tasks: Vec<Task>,
    /// Paths of the cgroups in `flushes` that could be found.
    #[serde(deserialize_with = "bounded")]
    pub cgroups: Vec<Cgroup>,
    /// Pressure during the run, where the kernel has it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pressure: Option<Pressure>,
    /// Losses: events and items that the figures do not include.
    pub losses: Losses,
    /// Events or fields that were wanted and are not there. In a file, an event without a record is not there.
    #[serde(deserialize_with = "bounded")]
    pub missing: Vec<Missing>,
}

/// Set of events, and their price.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Mode {
    /// Upkeep and flushes: a few events a CPU and second.
    Light,
    /// Waits for spin locks alone: two events a wait.
    Locks,
    /// Upkeep, flushes, waits for spin locks, and each page under a zone lock.
    Deep,
}

impl Mode {
    /// Name, as its option has it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Light => "light",
            Self::Locks => "locks",
            Self::Deep => "deep",
        }
    }
}

/// The observed machine.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Machine {
    /// The kernel's release, as of `uname -r`.
    pub kernel: String,
    /// CPUs that were online when the run began.
    pub cpus: usize,
    /// Ticks a second.
    pub hz: Option<u32>,
    /// Source of `hz`.
    pub hz_source: Option<HzSource>,
    /// Time between two upkeeps of a CPU: `vm.stat_interval`.
    pub interval_s: Option<u32>,
    /// Whether the processor says that it runs under a hypervisor. `None`: a file that does not say so.
    pub virtualized: Option<bool>,
    /// Zones with pages.
    #[serde(deserialize_with = "bounded")]
    pub zones: Vec<Zone>,
}

/// Origin of the number of ticks a second.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum HzSource {
    /// Jiffies of events against their times.
    Slope,
    /// The configuration of the kernel.
    Config,
}

/// A zone of `/proc/zoneinfo`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Zone {
    /// NUMA node.
    pub node: u32,
    /// Name: `DMA32`, `Normal`.
    pub name: String,
    /// First page frame.
    pub start_pfn: u64,
    /// Page frames from the first to the last, with holes.
    pub spanned_pages: u64,
    /// Pages that the page allocator manages.
    pub managed_pages: u64,
    /// Watermark `min`.
    pub min_pages: u64,
    /// Watermark `low`.
    pub low_pages: u64,
    /// Watermark `high`.
    pub high_pages: u64,
    /// Pages that a CPU's list takes or gives at once.
    pub pcp_batch: u32,
    /// Pages that a CPU's list may hold: the largest of all CPUs.
    pub pcp_high: u64,
}

/// One call of the work item `vmstat_update`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Upkeep {
    /// The CPU.
    pub cpu: u32,
    /// Jiffy that the timer was set for. `None`: the shepherd queued the work without a timer, or the setting was not seen.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub target_jiffy: Option<u64>,
    /// Jiffy of the wheel's bucket: the target, rounded up.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub slot_jiffy: Option<u64>,
    /// Jiffy at which the timer expired.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub expire_jiffy: Option<u64>,
    /// Time at which the timer expired.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub expire_ns: Option<u64>,
    /// First moment.
    pub start_ns: u64,
    /// Last moment.
    pub end_ns: u64,
    /// Pages that page lists gave back meanwhile. Deep mode only.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pages: Option<u64>,
}

/// One call of `refresh_cpu_vm_stats()`. The times of `vmstat_update` include it and more.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Refresh {
    /// The CPU.
    pub cpu: u32,
    /// The function that called it.
    pub caller: RefreshCaller,
    /// First moment, of the probe at the begin.
    pub start_ns: u64,
    /// Last moment, of the probe at the end.
    pub end_ns: u64,
}

/// Caller of `refresh_cpu_vm_stats()`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum RefreshCaller {
    /// `vmstat_update`.
    Periodic,
    /// The idle task, before the CPU sleeps.
    IdleEntry,
    /// Another, such as a read of `stat_refresh`.
    Other,
}

/// Pages that one CPU moved between its lists and one zone, without a pause.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Burst {
    /// The CPU.
    pub cpu: u32,
    /// Thread that ran.
    pub pid: i32,
    /// Place in [`Machine::zones`].
    #[serde(skip_serializing_if = "Option::is_none")]
    pub zone: Option<u16>,
    /// Direction.
    pub kind: BurstKind,
    /// First moment.
    pub start_ns: u64,
    /// Last moment.
    pub end_ns: u64,
    /// Number of pages, of all orders.
    pub pages: u64,
    /// Whether this was one hold of the lock.
    pub hold: Hold,
    /// Work of the thread. `None`: the events do not show it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub context: Option<Context>,
}

/// Work in which pages move.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Context {
    /// `vmstat_update`, which lets lists decay.
    Upkeep,
    /// `kswapd`.
    Kswapd,
    /// Reclaim by a task that needs memory.
    DirectReclaim,
    /// The end of a process.
    Exit,
    /// Anything else that a task does, drains of all lists included.
    Task,
}

/// Path on which pages go from a CPU's list back to the zone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Path {
    /// Upkeep lets a list decay.
    Decay,
    /// A task frees pages, and the list is full.
    Free,
}

impl Path {
    /// Both.
    pub const ALL: [Self; 2] = [Self::Decay, Self::Free];
}

/// Direction of a burst.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum BurstKind {
    /// From a CPU's list to the zone.
    Drain,
    /// From the zone to a CPU's list, or to an allocation.
    Refill,
}

/// Whether a burst was one hold of the zone lock.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Hold {
    /// The kernel reported the hold itself.
    Traced,
    /// Another CPU waited for the lock meanwhile, and got it only after the burst.
    Proven,
    /// Another CPU moved pages of this zone meanwhile.
    Refuted,
    /// Nothing shows whether the lock was released.
    #[default]
    Unknown,
}

/// Way in which the kernel gives up the zone lock within bursts that are larger than a batch.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Release {
    /// Bursts that were larger than a batch.
    pub bursts: u64,
    /// Median gap between two pages at a multiple of the batch.
    pub gap_at_batch_ns: Option<u64>,
    /// Median gap between two pages elsewhere.
    pub gap_elsewhere_ns: Option<u64>,
}

/// A wait for a lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Wait {
    /// The CPU.
    pub cpu: u32,
    /// Thread that ran.
    pub pid: i32,
    /// Kind of lock.
    pub lock: LockKind,
    /// The lock's address. Recordings leave it out, because it tells where the kernel is in memory.
    #[serde(skip)]
    pub address: u64,
    /// First moment.
    pub start_ns: u64,
    /// Last moment.
    pub end_ns: u64,
}

/// The lock of a wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum LockKind {
    /// A zone's lock, by the stack of a waiter or by an event of its own.
    Zone,
    /// Another spin lock, or one that no stack named.
    Other,
}

/// One request to fold a group's statistics.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Flush {
    /// The cgroup's number: that of its directory.
    pub cgroup: u64,
    /// CPU of the task that flushed.
    pub cpu: u32,
    /// Thread that ran.
    pub pid: i32,
    /// First moment.
    pub start_ns: u64,
    /// Last moment.
    pub end_ns: u64,
    /// Time spent waiting for the lock.
    pub wait_ns: u64,
    /// Time with the lock, of all holds.
    pub held_ns: u64,
    /// Longest hold. `None` without a hold.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub held_ns_max: Option<u64>,
    /// Number of times that the lock was taken.
    pub holds: u32,
    /// Whether the kernel found too few updates and returned old values. `None`: this kernel does not show requests.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub skipped: Option<bool>,
    /// Whether the periodic flusher asked, or another caller that must have new values.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub forced: Option<bool>,
    /// Updates that were not folded yet, as the kernel counts them.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pending: Option<i64>,
    /// Whether a worker of the kernel ran (`kworker`).
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub by_worker: bool,
}

/// Number of the root cgroup's directory.
pub const ROOT: u64 = 1;

/// Beneficiary of a flush.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FlushFor {
    /// A task that wants statistics, in user space or in the kernel.
    Reader,
    /// Nobody: the periodic flush, or a caller that must have new values.
    Period,
    /// Nobody: the cgroup was removed.
    Removal,
}

impl Flush {
    /// Beneficiary. A worker of the kernel that flushes without a request does so because the cgroup was removed. Old kernels
    /// do not show requests, so their periodic flush is known by the root.
    pub fn beneficiary(&self) -> FlushFor {
        match (self.forced, self.by_worker, self.cgroup) {
            (Some(true), ..) | (None, true, ROOT) => FlushFor::Period,
            (None, true, _) => FlushFor::Removal,
            _ => FlushFor::Reader,
        }
    }

    /// Time of the flush: waits for the lock, and holds. Pauses of its task between two holds do not count.
    pub fn time_ns(&self) -> u64 {
        self.wait_ns.saturating_add(self.held_ns)
    }
}

/// A read of a cgroup's `memory.stat`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct StatRead {
    /// The cgroup's number: that of its directory.
    pub cgroup: u64,
    /// First moment.
    pub start_ns: u64,
    /// Last moment.
    pub end_ns: u64,
    /// CPU time of the reader meanwhile, with its waits for spin locks.
    pub cpu_ns: u64,
    /// Set if the answer was old.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub stale: Option<Stale>,
}

/// An old answer: it did not change, and the usage of the cgroup did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Stale {
    /// Time since the answer was given first.
    pub unchanged_ns: u64,
    /// Change of the usage since then.
    pub moved_bytes: u64,
}

/// A task's name.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Task {
    /// Thread ID.
    pub pid: i32,
    /// Name, as of `/proc/PID/comm`.
    pub name: String,
}

/// A cgroup's path.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Cgroup {
    /// Number of its directory.
    pub id: u64,
    /// Path below the mount of the memory controller.
    pub path: String,
}

/// Losses: events and items that the figures do not include.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Losses {
    /// Events that were read.
    pub events_read: u64,
    /// Events that the kernel overwrote or dropped because a buffer was full.
    pub events_lost: u64,
    /// CPUs that lost events.
    #[serde(deserialize_with = "bounded")]
    pub cpus: Vec<u32>,
    /// Bytes that could not be decoded.
    pub bytes_undecoded: u64,
    /// Items that had no room in the lists of [`Seen`].
    pub items_left_out: u64,
}

/// An event or a field that is not there, and what it takes with it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Missing {
    /// The event, the field or the kernel feature, as it reads after "No".
    pub what: String,
    /// Columns that cannot be shown.
    pub removes: String,
}

impl Missing {
    /// The fact, as a sentence.
    pub fn sentence(&self) -> String {
        format!("No {}.", self.what)
    }
}

impl Seen {
    /// Marks the bursts of `kswapd`, once the names of tasks are known.
    pub(crate) fn mark_kswapd(&mut self, is_kswapd: impl Fn(i32) -> bool) {
        for burst in self.bursts.iter_mut().filter(|it| is_kswapd(it.pid)) {
            burst.context = Some(Context::Kswapd);
        }
    }

    /// The mode of the run, or the one that has the events of a file.
    pub fn mode(&self) -> Mode {
        match (self.deep, self.locks) {
            (true, _) => Mode::Deep,
            (false, true) => Mode::Locks,
            (false, false) => Mode::Light,
        }
    }

    /// Whether an event, or a field of it, is not there.
    pub fn lacks(&self, event: &str) -> bool {
        let mut missing = self.missing.iter();
        missing.any(|missing| missing.what.contains(event))
    }

    /// Whether anything is not there that takes this part with it.
    pub fn loses(&self, part: &str) -> bool {
        self.missing.iter().any(|missing| missing.removes == part)
    }

    /// Whether the kernel gives up the zone lock within bursts of frees that are larger than a batch, by its behaviour. Takes
    /// keep the lock in all versions.
    ///
    /// A gap at each batch says that it does. Its absence says nothing: a lock that nobody waits for is released and taken again
    /// within the time of an event.
    pub fn releases_each_batch(&self, path: Path) -> Option<bool> {
        let batch = self
            .machine
            .zones
            .iter()
            .map(|zone| zone.pcp_batch)
            .max()
            .unwrap_or(0);
        let is_of = |burst: &&Burst| {
            burst.kind == BurstKind::Drain
                && (burst.context == Some(Context::Upkeep)) == (path == Path::Decay)
        };
        let frees = self.bursts.iter().filter(is_of);
        let large = frees.filter(|burst| burst.pages > u64::from(batch));
        let [mut whole, mut cut] = [0, 0];
        for burst in large {
            match burst.hold {
                Hold::Traced | Hold::Proven => whole += 1,
                Hold::Refuted => cut += 1,
                Hold::Unknown => {}
            }
        }
        let release = match path {
            Path::Decay => &self.decay_release,
            Path::Free => &self.release,
        };
        let has_gaps = || {
            let [at_batch, elsewhere] = [release.gap_at_batch_ns?, release.gap_elsewhere_ns?];
            (release.bursts >= 10 && at_batch >= RELEASE_GAP * elsewhere.max(1)).then_some(true)
        };
        match (whole, cut) {
            (0, 0) => has_gaps(),
            (whole, cut) => Some(cut > whole),
        }
    }

    /// Puts each list into the order of time.
    pub fn sort(&mut self) {
        self.upkeep.sort_by_key(|it| (it.start_ns, it.cpu));
        self.refreshes.sort_by_key(|it| (it.start_ns, it.cpu));
        self.bursts.sort_by_key(|it| (it.start_ns, it.cpu));
        self.waits.sort_by_key(|it| (it.start_ns, it.cpu));
        self.flushes.sort_by_key(|it| (it.start_ns, it.cpu));
        self.reads.sort_by_key(|it| it.start_ns);
    }

    /// Marks the flushes by workers of the kernel, once the names of tasks are known.
    pub(crate) fn mark_workers(&mut self) {
        let named = self
            .tasks
            .iter()
            .filter(|it| it.name.starts_with("kworker/"));
        let workers: BTreeSet<i32> = named.map(|it| it.pid).collect();
        for flush in &mut self.flushes {
            flush.by_worker |= workers.contains(&flush.pid);
        }
    }

    /// Whether the machine may be a guest, in which waits for locks may be invisible: it does not say, and none was seen.
    pub fn may_be_guest(&self) -> bool {
        self.machine.virtualized.unwrap_or(self.waits.is_empty())
    }

    /// Number of records of all kinds.
    pub fn records(&self) -> usize {
        let Self {
            upkeep,
            refreshes,
            bursts,
            waits,
            flushes,
            reads,
            ..
        } = self;
        upkeep.len() + refreshes.len() + bursts.len() + waits.len() + flushes.len() + reads.len()
    }

    /// Duration of the observation.
    pub fn duration_ns(&self) -> u64 {
        self.end_ns.saturating_sub(self.start_ns)
    }
}

/// Reads a list of at most [`ITEMS`].
fn bounded<'de, D: Deserializer<'de>, T: Deserialize<'de>>(from: D) -> Result<Vec<T>, D::Error> {
    struct List<T>(PhantomData<T>);

    impl<'de, T: Deserialize<'de>> Visitor<'de> for List<T> {
        type Value = Vec<T>;

        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            write!(f, "a list of at most {ITEMS}")
        }

        fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Vec<T>, A::Error> {
            let mut list = Vec::new();
            while let Some(item) = items.next_element()? {
                if list.len() == ITEMS {
                    return Err(A::Error::invalid_length(ITEMS + 1, &self));
                }
                list.push(item);
            }
            Ok(list)
        }
    }

    from.deserialize_seq(List(PhantomData))
}
