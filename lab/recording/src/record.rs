//! The records. Times are nanoseconds of `CLOCK_MONOTONIC`.

/// Reason why upkeep ran.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(u8)]
pub enum Cause {
    /// Its own timer had expired.
    Timer = 0,
    /// The shepherd queued it without a delay.
    Shepherd = 1,
    /// The CPU was about to be idle.
    IdleEntry = 2,
    /// Not known: its queueing was before the recording, or such events were not recorded.
    #[default]
    Unknown = 3,
}

/// One call of a CPU's upkeep.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Upkeep {
    /// The CPU.
    pub cpu: u32,
    /// Reason of the call.
    pub cause: Cause,
    /// Tick that its timer was set for (`expires` of `timer_start`).
    pub target_jiffy: Option<u64>,
    /// Tick of the wheel's slot in which the timer was: the target, rounded up (`bucket_expiry`).
    pub slot_jiffy: Option<u64>,
    /// Tick at which the timer expired.
    pub expire_jiffy: Option<u64>,
    /// Moment when the timer expired.
    pub expire_ns: Option<u64>,
    /// Its beginning.
    pub start_ns: u64,
    /// Its end.
    pub end_ns: u64,
    /// Pages that it gave back to zones.
    pub pages: Option<u64>,
}

/// Direction of a burst.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(u8)]
pub enum BurstKind {
    /// From a CPU's lists to a zone.
    #[default]
    Drain = 0,
    /// From a zone to a CPU's lists.
    Refill = 1,
}

/// Relation of a burst to holds of the zone's lock.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(u8)]
pub enum Hold {
    /// One hold, as the kernel itself reported.
    Traced = 0,
    /// One hold: another CPU waited for the lock meanwhile, and got it only afterwards.
    Proven = 1,
    /// Several holds: another CPU moved pages of the same zone meanwhile.
    Several = 2,
    /// Not known whether one or several.
    #[default]
    Unknown = 3,
}

/// A run of pages that one task moved between a CPU's lists and a zone. The pages of upkeep are bursts, too.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Burst {
    /// The CPU.
    pub cpu: u32,
    /// Task that was running.
    pub pid: u32,
    /// The zone: its place in the header's list.
    pub zone: Option<u16>,
    /// Direction.
    pub kind: BurstKind,
    /// The first event of the run.
    pub start_ns: u64,
    /// The last event of the run.
    pub end_ns: u64,
    /// Pages moved.
    pub pages: u64,
    /// Order of its blocks; `None` if they differ.
    pub order: Option<u8>,
    /// Whether it was one hold of the zone's lock.
    pub hold: Hold,
}

/// One request to flush a group's statistics, and the flush if there was one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Flush {
    /// The cgroup, by its number (inode of its directory).
    pub cgroup: u64,
    /// CPU of the task that wanted it.
    pub cpu: u32,
    /// The task.
    pub pid: u32,
    /// The request: before any wait.
    pub start_ns: u64,
    /// End of the flush, or of the request if it was skipped.
    pub end_ns: u64,
    /// Wait for the lock within that time, if waits were recorded.
    pub wait_ns: Option<u64>,
    /// Time with the lock within that time, if it was recorded.
    pub held_ns: Option<u64>,
    /// Whether nothing was flushed, because too few updates were pending.
    pub is_skipped: Option<bool>,
    /// Whether it had to be done regardless of that: the periodic flush, and callers that decide by the numbers.
    pub is_forced: Option<bool>,
    /// Updates that were pending.
    pub pending_updates: Option<u64>,
}

/// One read of `memory.stat`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StatRead {
    /// The process that read.
    pub pid: u32,
    /// The cgroup, by its number.
    pub cgroup: u64,
    /// Beginning of the read.
    pub start_ns: u64,
    /// Its length.
    pub latency_ns: u64,
    /// Age of the oldest update that the answer missed, if a probe measured it.
    pub staleness_ns: Option<u64>,
}

/// Lock that was waited for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(u8)]
pub enum LockKind {
    /// A zone's lock.
    Zone = 0,
    /// The lock of flushes.
    Rstat = 1,
    /// Any other lock.
    #[default]
    Other = 2,
}

/// One wait for a contended lock.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Wait {
    /// The CPU that waited.
    pub cpu: u32,
    /// The lock.
    pub lock: LockKind,
    /// Beginning of the wait.
    pub start_ns: u64,
    /// Its end.
    pub end_ns: u64,
}

/// Change of the number of CPUs that are online.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CpuChange {
    /// Moment when it was noticed.
    pub at_ns: u64,
    /// CPUs that were online from then on.
    pub cpus_online: u32,
}

/// The end of a recording. A file without it was cut off.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct End {
    /// Length of the recording, nanoseconds.
    pub duration_ns: u64,
    /// Events that the kernel's rings lost.
    pub lost_events: u64,
    /// Records of all kinds.
    pub records: u64,
    /// Median gap between two pages of a burst at multiples of the batch, where a kernel may release the zone's lock.
    pub gap_at_batch_ns: Option<u64>,
    /// The same gap elsewhere.
    pub gap_elsewhere_ns: Option<u64>,
}
