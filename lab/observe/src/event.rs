//! Events that the analysis uses, and their way from records.

use crate::format::{EventFormat, Field};
use crate::tracefs::probes;

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
    /// The lock of statistics was got.
    RstatLocked { id: u64, cpu: i32 },
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

const WORK: &str = "durations of vmstat_update";
/// Columns that are lost without probes.
pub const REFRESH: &str =
    "durations of refresh_cpu_vm_stats() itself, which vmstat_update includes";
const RSTAT: &str = "waits for and holds of the lock of cgroup statistics";
const PAGES: &str = "pages per burst";
const WAITS: &str = "waits for the zone lock";

/// Calls of `vmstat_update`: begin and end.
pub const WORK_EVENTS: [Wanted; 2] = [
    Wanted {
        system: "workqueue",
        name: "workqueue_execute_start",
        needed: &["work"],
        optional: &[],
        removes: WORK,
        make: |it| Some(Kind::WorkStart { work: it[0]? }),
    },
    Wanted {
        system: "workqueue",
        name: "workqueue_execute_end",
        needed: &["work"],
        optional: &[],
        removes: WORK,
        make: |it| Some(Kind::WorkEnd { work: it[0]? }),
    },
];

/// Timers of delayed work: set and expired.
pub const TIMER_EVENTS: [Wanted; 2] = [
    Wanted {
        system: "timer",
        name: "timer_start",
        needed: &["timer", "expires"],
        optional: &["bucket_expiry", "now"],
        removes: "targets and wheel slots of upkeep",
        make: |it| {
            Some(Kind::TimerStart {
                timer: it[0]?,
                expires: it[1]?,
                bucket_expiry: it[2],
                now: it[3],
            })
        },
    },
    Wanted {
        system: "timer",
        name: "timer_expire_entry",
        needed: &["timer", "now"],
        optional: &["baseclk"],
        removes: "lateness of upkeep",
        make: |it| {
            Some(Kind::TimerExpire {
                timer: it[0]?,
                now: it[1]?,
                baseclk: it[2],
            })
        },
    },
];

/// Statistics of cgroups: requests, and the lock.
pub const FLUSH_EVENTS: [Wanted; 4] = [
    Wanted {
        system: "memcg",
        name: "memcg_flush_stats",
        needed: &["id", "stats_updates", "force", "needs_flush"],
        optional: &[],
        removes: "requests for memcg statistics, skips and pending updates",
        make: |it| {
            Some(Kind::MemcgFlush {
                id: it[0]?,
                stats_updates: it[1]? as i64,
                force: it[2]? != 0,
                needs_flush: it[3]? != 0,
            })
        },
    },
    Wanted {
        system: "cgroup",
        name: "cgroup_rstat_lock_contended",
        needed: &["id", "cpu"],
        optional: &[],
        removes: RSTAT,
        make: |it| {
            Some(Kind::RstatContended {
                id: it[0]?,
                cpu: it[1]? as i32,
            })
        },
    },
    Wanted {
        system: "cgroup",
        name: "cgroup_rstat_locked",
        needed: &["id", "cpu"],
        optional: &[],
        removes: RSTAT,
        make: |it| {
            Some(Kind::RstatLocked {
                id: it[0]?,
                cpu: it[1]? as i32,
            })
        },
    },
    Wanted {
        system: "cgroup",
        name: "cgroup_rstat_unlock",
        needed: &["id", "cpu"],
        optional: &[],
        removes: RSTAT,
        make: |it| {
            Some(Kind::RstatUnlock {
                id: it[0]?,
                cpu: it[1]? as i32,
            })
        },
    },
];

/// Pages under a zone lock. Deep mode only.
pub const PAGE_EVENTS: [Wanted; 2] = [
    Wanted {
        system: "kmem",
        name: "mm_page_pcpu_drain",
        needed: &["pfn", "order"],
        optional: &[],
        removes: PAGES,
        make: |it| {
            Some(Kind::PcpuDrain {
                pfn: it[0]?,
                order: it[1]? as u32,
            })
        },
    },
    Wanted {
        system: "kmem",
        name: "mm_page_alloc_zone_locked",
        needed: &["pfn", "order"],
        optional: &[],
        removes: PAGES,
        make: |it| {
            Some(Kind::AllocZoneLocked {
                pfn: it[0]?,
                order: it[1]? as u32,
            })
        },
    },
];

/// Waits for spin locks. Deep mode only.
pub const WAIT_EVENTS: [Wanted; 2] = [
    Wanted {
        system: "lock",
        name: "contention_begin",
        needed: &["lock_addr"],
        optional: &[],
        removes: WAITS,
        make: |it| Some(Kind::ContentionBegin { lock_addr: it[0]? }),
    },
    Wanted {
        system: "lock",
        name: "contention_end",
        needed: &["lock_addr"],
        optional: &[],
        removes: WAITS,
        make: |it| Some(Kind::ContentionEnd { lock_addr: it[0]? }),
    },
];

/// Holds of a zone's lock, in kernels that tell them. Deep mode only.
pub const HOLD_EVENTS: [Wanted; 5] = [
    Wanted {
        system: "kmem",
        name: "mm_zone_locked",
        needed: &["node_id"],
        optional: &["wait_ns"],
        removes: "",
        make: |it| {
            Some(Kind::ZoneLocked {
                node: it[0]? as i32,
                wait_ns: it[1],
            })
        },
    },
    Wanted {
        system: "kmem",
        name: "mm_zone_lock_unlock",
        needed: &["node_id"],
        optional: &[],
        removes: "",
        make: |it| {
            Some(Kind::ZoneUnlock {
                node: it[0]? as i32,
            })
        },
    },
    pcpu_locked("mm_page_pcpu_drain_zone_locked"),
    pcpu_locked("mm_page_pcpu_refill_zone_locked"),
    Wanted {
        system: "lock",
        name: "contended_release",
        needed: &["lock_addr"],
        optional: &[],
        removes: "",
        make: |it| Some(Kind::ContendedRelease { lock_addr: it[0]? }),
    },
];

const fn pcpu_locked(name: &'static str) -> Wanted {
    Wanted {
        system: "kmem",
        name,
        needed: &["nr_pages"],
        optional: &[],
        removes: "",
        make: |it| Some(Kind::PcpuLocked { pages: it[0]? }),
    }
}

/// Probes at the begin and end of `refresh_cpu_vm_stats()`, in a group of this process's own.
pub const REFRESH_EVENTS: [Wanted; 2] = [
    Wanted {
        system: "",
        name: probes::BEGIN,
        needed: &[],
        optional: &[],
        removes: REFRESH,
        make: |_| Some(Kind::RefreshBegin),
    },
    Wanted {
        system: "",
        name: probes::END,
        needed: &[],
        optional: &[],
        removes: REFRESH,
        make: |_| Some(Kind::RefreshEnd),
    },
];

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

/// At most this many fields has a wanted event.
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
            .filter(|(_, field)| field.is_none())
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
