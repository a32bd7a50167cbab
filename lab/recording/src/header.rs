//! The machine that was observed.

/// Kind of event that was recorded.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u8)]
pub enum Event {
    /// Beginning and end of upkeep: the work item `vmstat_update`.
    UpkeepWork = 0,
    /// The timed function is `refresh_cpu_vm_stats` itself, and not the work item around it.
    UpkeepFunction = 1,
    /// Timers of upkeep as they were set: targets.
    TimerTargets = 2,
    /// Timers of upkeep as they expired: slots and moments.
    TimerSlots = 3,
    /// Bursts of pages from CPU lists to a zone.
    Drains = 4,
    /// Bursts of pages from a zone to CPU lists.
    Refills = 5,
    /// Holds of the zone's lock as the kernel itself reports them, not inferred.
    ZoneHolds = 6,
    /// Waits for contended locks.
    LockWaits = 7,
    /// Waits for the lock of flushes, and its holds.
    FlushLocks = 8,
    /// Decisions to flush a group's statistics: pending updates, and skips.
    FlushDecisions = 9,
    /// Latency of reads of `memory.stat`.
    StatReads = 10,
    /// Staleness of what those reads returned.
    Staleness = 11,
}

impl Event {
    /// All kinds.
    pub const ALL: [Self; 12] = [
        Self::UpkeepWork,
        Self::UpkeepFunction,
        Self::TimerTargets,
        Self::TimerSlots,
        Self::Drains,
        Self::Refills,
        Self::ZoneHolds,
        Self::LockWaits,
        Self::FlushLocks,
        Self::FlushDecisions,
        Self::StatReads,
        Self::Staleness,
    ];
}

/// Set of kinds of events that a recording has. A kind that is absent was not available or not requested, and its
/// absence from the records says nothing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Events(pub(crate) u64);

impl Events {
    /// The set of these kinds.
    pub fn of(kinds: &[Event]) -> Self {
        Self(kinds.iter().fold(0, |bits, kind| bits | 1 << *kind as u8))
    }

    /// Returns whether the kind is in the set.
    pub fn has(self, kind: Event) -> bool {
        self.0 >> kind as u8 & 1 == 1
    }

    /// The same set with one more kind.
    #[must_use]
    pub fn with(self, kind: Event) -> Self {
        Self(self.0 | 1 << kind as u8)
    }
}

/// NUMA node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Node {
    /// Its number.
    pub node: u32,
    /// CPUs on it; 0 for a node of memory only.
    pub cpus: u32,
}

/// Zone, from `/proc/zoneinfo`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Zone {
    /// Its node.
    pub node: u32,
    /// Its name, such as `Normal`.
    pub name: String,
    /// Its managed pages.
    pub managed_pages: u64,
    /// Pages of its lowest watermark.
    pub min_pages: u64,
    /// Pages of its low watermark.
    pub low_pages: u64,
    /// Pages of its high watermark.
    pub high_pages: u64,
    /// Pages that a CPU's lists moved in one batch.
    pub pcp_batch: u64,
    /// Pages that a CPU's lists kept: the greatest value among the CPUs when the recording began.
    pub pcp_high: u64,
    /// Range in which the kernel tunes that; `None` before 6.7.
    pub pcp_high_range: Option<(u64, u64)>,
}

/// The machine, and the conditions of the recording.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Header {
    /// Kernel release, as `uname -r` prints it.
    pub kernel_release: String,
    /// Ticks a second of the kernel (`HZ`), if known.
    pub hz: Option<u32>,
    /// Size of a page.
    pub page_bytes: u32,
    /// Interval of upkeep (`vm.stat_interval`), milliseconds.
    pub stat_interval_ms: u64,
    /// CPUs that were online when the recording began.
    pub cpus_online: u32,
    /// CPUs that may exist: numbers of CPUs are below it.
    pub cpus_possible: u32,
    /// Whether it is a virtual machine, in which waits for locks may be invisible.
    pub is_virtual: bool,
    /// NUMA nodes.
    pub nodes: Vec<Node>,
    /// Zones that have pages.
    pub zones: Vec<Zone>,
    /// Beginning of the recording, nanoseconds of `CLOCK_MONOTONIC`. All other times are of the same clock.
    pub start_ns: u64,
    /// Kinds of events that were recorded.
    pub events: Events,
}
