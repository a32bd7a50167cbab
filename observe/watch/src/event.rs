//! Events that the analysis uses, and their way from records.

use serde::Serialize;

use crate::format::{EventFormat, Field};
use crate::tracefs::probes;

/// One of the three problems, which events show.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Problem {
    /// All CPUs do their upkeep in the same instant.
    UpkeepHerd,
    /// CPUs wait for a zone's lock while another one frees or takes many pages.
    ZoneLock,
    /// Readers of memory statistics wait for each other.
    MemcgFlush,
}

/// An event with its time and place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Event {
    /// Kernel's monotonic clock.
    pub time_ns: u64,
    /// CPU of the buffer.
    pub cpu: u32,
    /// Thread that ran.
    pub pid: i32,
    /// The event.
    pub kind: Kind,
}

/// Event with the fields that the analysis uses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(missing_docs, reason = "the fields have the kernel's names")]
pub enum Kind {
    /// `vmstat_update` begins.
    WorkStart { work: u64 },
    /// `vmstat_update` ended.
    WorkEnd { work: u64 },
    /// A timer of delayed work was set.
    TimerStart {
        timer: u64,
        expires: u64,
        bucket_expiry: Option<u64>,
        now: Option<u64>,
    },
    /// A timer of delayed work expired.
    TimerExpire {
        timer: u64,
        now: u64,
        baseclk: Option<u64>,
    },
    /// The lock of statistics is taken.
    RstatContended { id: u64, cpu: i32 },
    /// The lock of statistics was got, after a wait if it was contended.
    RstatLocked {
        id: u64,
        cpu: i32,
        contended: Option<bool>,
    },
    /// The lock of statistics is about to be released.
    RstatUnlock { id: u64, cpu: i32 },
    /// Statistics of a memory cgroup are wanted.
    MemcgFlush {
        id: u64,
        stats_updates: i64,
        force: bool,
        needs_flush: bool,
    },
    /// A page left a CPU's list for its zone.
    PcpuDrain { pfn: u64, order: u32 },
    /// A page was taken from a zone.
    AllocZoneLocked { pfn: u64, order: u32 },
    /// A wait for a lock begins.
    ContentionBegin { lock_addr: u64 },
    /// A wait for a lock ended.
    ContentionEnd { lock_addr: u64 },
    /// Stack of the event before on this CPU.
    Stack { names_zone_lock: bool },
    /// A zone's lock was got.
    ZoneLocked { node: i32, wait_ns: Option<u64> },
    /// A zone's lock is about to be released.
    ZoneUnlock { node: i32 },
    /// A lock that others wait for is about to be released.
    ContendedRelease { lock_addr: u64 },
    /// A zone's lock was got to move up to this many pages to or from a CPU's list.
    PcpuLocked { pages: u64 },
    /// A task begins to reclaim memory for itself.
    ReclaimBegin,
    /// It has ended.
    ReclaimEnd,
    /// A thread ends.
    Exit,
    /// `refresh_cpu_vm_stats()` begins.
    RefreshBegin,
    /// `refresh_cpu_vm_stats()` ended.
    RefreshEnd,
    /// CPUs lost events before this place.
    Lost,
}

/// An event as the kernel names it.
#[derive(Clone, Copy, Debug)]
pub struct Wanted {
    /// Directory below `events`.
    pub system: &'static str,
    /// Name of the event.
    pub name: &'static str,
    /// Fields without which the event is of no use.
    needed: &'static [&'static str],
    /// Fields that may be missing.
    optional: &'static [&'static str],
    /// Columns that are lost with the event. Empty: an event of newer kernels that replaces an inference.
    pub removes: &'static str,
    make: fn(&[Option<u64>]) -> Option<Kind>,
}

/// Columns that are lost without calls of `vmstat_update`.
pub const WORK: &str = "durations of vmstat_update";
/// Columns that are lost without timers that are set.
pub const TARGETS: &str = "targets and wheel slots of upkeep";
/// Columns that are lost without timers that expire.
pub const LATENESS: &str = "lateness of upkeep";
/// Columns that are lost without requests for statistics.
pub const REQUESTS: &str = "requests for memcg statistics, skips and pending updates";
/// Columns that are lost without probes.
pub const REFRESH: &str =
    "durations of refresh_cpu_vm_stats() itself, which vmstat_update includes";
/// Columns that are lost without the lock of statistics.
pub const RSTAT: &str = "waits for and holds of the lock of cgroup statistics";
/// Columns that are lost without pages.
pub const PAGES: &str = "pages per burst";
/// Columns that are lost without reclaim and ends of processes.
pub const CONTEXT: &str = "work in which pages are freed";
/// Columns that are lost without waits for spin locks, or without what names their lock.
pub const WAITS: &str = "waits for the zone lock";

/// Defines lists of events: system, name, needed fields, optional fields, what is lost without it, and its making.
macro_rules! wanted {
    ($($(#[$doc:meta])* $list:ident: $count:literal = {
        $($system:literal $name:expr, [$($needed:literal)*] [$($optional:literal)*] $removes:expr, |$it:pat_param| $kind:expr;)*
    })*) => {
        $($(#[$doc])* pub const $list: [Wanted; $count] = [$(Wanted {
            system: $system,
            name: $name,
            needed: &[$($needed),*],
            optional: &[$($optional),*],
            removes: $removes,
            make: |$it| Some($kind),
        }),*];)*
    };
}

wanted! {
    /// Calls of `vmstat_update`: begin and end.
    WORK_EVENTS: 2 = {
        "workqueue" "workqueue_execute_start", ["work"] [] WORK, |it| Kind::WorkStart { work: it[0]? };
        "workqueue" "workqueue_execute_end", ["work"] [] WORK, |it| Kind::WorkEnd { work: it[0]? };
    }

    /// Timers of delayed work: set and expired.
    TIMER_EVENTS: 2 = {
        "timer" "timer_start", ["timer" "expires"] ["bucket_expiry" "now"] TARGETS,
            |it| Kind::TimerStart { timer: it[0]?, expires: it[1]?, bucket_expiry: it[2], now: it[3] };
        "timer" "timer_expire_entry", ["timer" "now"] ["baseclk"] LATENESS,
            |it| Kind::TimerExpire { timer: it[0]?, now: it[1]?, baseclk: it[2] };
    }

    /// Statistics of cgroups: requests, and the lock.
    FLUSH_EVENTS: 4 = {
        "memcg" "memcg_flush_stats", ["id" "stats_updates" "force" "needs_flush"] []
            REQUESTS,
            |it| Kind::MemcgFlush { id: it[0]?, stats_updates: it[1]? as i64, force: it[2]? != 0, needs_flush: it[3]? != 0 };
        "cgroup" "cgroup_rstat_lock_contended", ["id" "cpu"] [] RSTAT, |it| Kind::RstatContended { id: it[0]?, cpu: it[1]? as i32 };
        "cgroup" "cgroup_rstat_locked", ["id" "cpu"] ["contended"] RSTAT,
            |it| Kind::RstatLocked { id: it[0]?, cpu: it[1]? as i32, contended: it[2].map(|it| it != 0) };
        "cgroup" "cgroup_rstat_unlock", ["id" "cpu"] [] RSTAT, |it| Kind::RstatUnlock { id: it[0]?, cpu: it[1]? as i32 };
    }

    /// Pages under a zone lock. Deep mode only.
    PAGE_EVENTS: 2 = {
        "kmem" "mm_page_pcpu_drain", ["pfn" "order"] [] PAGES, |it| Kind::PcpuDrain { pfn: it[0]?, order: it[1]? as u32 };
        "kmem" "mm_page_alloc_zone_locked", ["pfn" "order"] [] PAGES, |it| Kind::AllocZoneLocked { pfn: it[0]?, order: it[1]? as u32 };
    }

    /// Work of threads that free pages. Deep mode only.
    CONTEXT_EVENTS: 5 = {
        "vmscan" "mm_vmscan_direct_reclaim_begin", [] [] CONTEXT, |_| Kind::ReclaimBegin;
        "vmscan" "mm_vmscan_direct_reclaim_end", [] [] CONTEXT, |_| Kind::ReclaimEnd;
        "vmscan" "mm_vmscan_memcg_reclaim_begin", [] [] "", |_| Kind::ReclaimBegin;
        "vmscan" "mm_vmscan_memcg_reclaim_end", [] [] "", |_| Kind::ReclaimEnd;
        "sched" "sched_process_exit", [] [] CONTEXT, |_| Kind::Exit;
    }

    /// Waits for spin locks. Deep mode only.
    WAIT_EVENTS: 2 = {
        "lock" "contention_begin", ["lock_addr"] [] WAITS, |it| Kind::ContentionBegin { lock_addr: it[0]? };
        "lock" "contention_end", ["lock_addr"] [] WAITS, |it| Kind::ContentionEnd { lock_addr: it[0]? };
    }

    /// Holds of a zone's lock, in kernels that tell them. Deep mode only.
    HOLD_EVENTS: 5 = {
        "kmem" "mm_zone_locked", ["node_id"] ["wait_ns"] "", |it| Kind::ZoneLocked { node: it[0]? as i32, wait_ns: it[1] };
        "kmem" "mm_zone_lock_unlock", ["node_id"] [] "", |it| Kind::ZoneUnlock { node: it[0]? as i32 };
        "kmem" "mm_page_pcpu_drain_zone_locked", ["nr_pages"] [] "", |it| Kind::PcpuLocked { pages: it[0]? };
        "kmem" "mm_page_pcpu_refill_zone_locked", ["nr_pages"] [] "", |it| Kind::PcpuLocked { pages: it[0]? };
        "lock" "contended_release", ["lock_addr"] [] "", |it| Kind::ContendedRelease { lock_addr: it[0]? };
    }

    /// Probes at the begin and end of `refresh_cpu_vm_stats()`, in a group of this process's own.
    REFRESH_EVENTS: 2 = {
        "" probes::BEGIN, [] [] REFRESH, |_| Kind::RefreshBegin;
        "" probes::END, [] [] REFRESH, |_| Kind::RefreshEnd;
    }
}

/// Records to events, by the numbers and fields that the running kernel gives them.
#[derive(Clone, Debug, Default)]
pub struct Decoder {
    known: Vec<Option<Known>>,
    pid: Option<Field>,
    stack: Option<Stack>,
}

#[derive(Clone, Debug)]
struct Known {
    fields: Vec<Option<Field>>,
    make: fn(&[Option<u64>]) -> Option<Kind>,
}

#[derive(Clone, Debug)]
struct Stack {
    id: u16,
    caller: usize,
    /// Address ranges of functions that take a zone's lock.
    functions: Vec<(u64, u64)>,
}

/// A field that may be missing without a loss, because an event of its own tells the same.
const SPARE: &str = "contended";
/// Most fields of a wanted event.
const FIELDS: usize = 4;
/// Frames of a stack that are looked at: the event, one or two that wait, and the function that takes the lock.
const FRAMES: usize = 5;

impl Decoder {
    /// Learns an event. Returns the optional fields that are missing, or the needed field without which nothing is learned.
    pub fn learn(
        &mut self,
        wanted: &Wanted,
        format: &EventFormat,
    ) -> Result<Vec<&'static str>, &'static str> {
        let names = wanted.needed.iter().chain(wanted.optional);
        let fields: Vec<_> = names
            .clone()
            .map(|name| format.field(name).cloned())
            .collect();
        let missing: Vec<_> = names
            .zip(&fields)
            .filter(|(name, field)| field.is_none() && **name != SPARE)
            .map(|(name, _)| *name)
            .collect();
        if let Some(name) = missing.iter().find(|name| wanted.needed.contains(name)) {
            return Err(name);
        }
        let id = usize::from(format.id);
        if self.known.len() <= id {
            self.known.resize(id + 1, None);
        }
        self.pid = self
            .pid
            .take()
            .or_else(|| format.field("common_pid").cloned());
        self.known[id] = Some(Known {
            fields,
            make: wanted.make,
        });
        Ok(missing)
    }

    /// Learns the event that holds stacks. `functions` are the address ranges of functions that take a zone's lock.
    pub fn learn_stack(&mut self, format: &EventFormat, functions: Vec<(u64, u64)>) {
        let caller = format.field("caller").map(|field| field.offset);
        self.stack = caller.map(|caller| Stack {
            id: format.id,
            caller,
            functions,
        });
    }

    /// The event of a record. `None`: an event that nobody learned, or a record that is too short.
    pub fn decode(&self, time_ns: u64, cpu: u32, record: &[u8]) -> Option<Event> {
        let id = u16::from_ne_bytes(record.get(..2)?.try_into().ok()?);
        let pid = self.pid.as_ref()?.number(record)? as i32;
        let kind = match &self.stack {
            Some(stack) if stack.id == id => stack.kind(record),
            _ => {
                let known = self.known.get(usize::from(id))?.as_ref()?;
                let mut values = [None; FIELDS];
                for (value, field) in values.iter_mut().zip(&known.fields) {
                    *value = field.as_ref().and_then(|field| field.number(record));
                }
                (known.make)(&values)?
            }
        };
        Some(Event {
            time_ns,
            cpu,
            pid,
            kind,
        })
    }
}

impl Stack {
    fn kind(&self, record: &[u8]) -> Kind {
        let frames = record.get(self.caller..).unwrap_or(&[]).chunks_exact(8);
        let mut frames = frames
            .take(FRAMES)
            .filter_map(|it| Some(u64::from_ne_bytes(it.try_into().ok()?)));
        let takes = |address: u64| {
            self.functions
                .iter()
                .any(|&(from, to)| (from..to).contains(&address))
        };
        Kind::Stack {
            names_zone_lock: frames.any(takes),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The layout is that of the posted patch: no kernel with this event was at hand.
    #[test]
    fn a_posted_event_is_decoded_by_its_format() {
        let text = "name: mm_page_pcpu_drain_zone_locked\nID: 9\nformat:\n\
            \tfield:int common_pid;\toffset:4;\tsize:4;\tsigned:1;\n\
            \tfield:int nid;\toffset:8;\tsize:4;\tsigned:1;\n\
            \tfield:int zid;\toffset:12;\tsize:4;\tsigned:1;\n\
            \tfield:unsigned long nr_pages;\toffset:16;\tsize:8;\tsigned:0;\n";
        let format = EventFormat::parse(text).expect("a format");
        let wanted = HOLD_EVENTS.iter().find(|it| it.name == format.name);
        let mut decoder = Decoder::default();
        let learned = decoder.learn(wanted.expect("in the table"), &format);
        assert_eq!(learned, Ok(vec![]));
        let mut record = vec![0; 24];
        record[..2].copy_from_slice(&9_u16.to_ne_bytes());
        record[4..8].copy_from_slice(&7_i32.to_ne_bytes());
        record[16..].copy_from_slice(&126_u64.to_ne_bytes());
        let event = decoder.decode(5, 3, &record).expect("an event");
        assert_eq!(
            (event.pid, event.kind),
            (7, Kind::PcpuLocked { pages: 126 })
        );
        assert_eq!(decoder.decode(5, 3, &record[..20]), None);
    }
}
