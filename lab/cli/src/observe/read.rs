//! `bursar observe --read`: the document of a file, which needs no privilege and no kernel.

use std::fs::{self, File};
use std::io::{BufReader, Read};
use std::path::Path;
use std::process::ExitCode;

use bursar_observe::event::{
    FLUSH_EVENTS, PAGE_EVENTS, TIMER_EVENTS, WAIT_EVENTS, WORK_EVENTS, Wanted,
};
use bursar_observe::foreign::{self, ForeignError};
use bursar_observe::seen::{self, Cgroup, Losses, Machine, Missing, Seen, Task};
use bursar_observe::symbols::Symbols;
use bursar_observe::writer::Writer;
use bursar_recording::{
    BurstKind, Event, Header, Hold, LockKind, MAGIC, Names, Recording, Upkeep, Wait,
};

use super::document::Document;
use super::options::Observe;
use super::people::write;
use super::replay::unreadable;
use super::text::PEOPLE;
use super::{record, replay};
use crate::failure::{Failure, warn};
use crate::options::Global;
use crate::output::{Output, refuse_to_replace};
use crate::place::Place;

/// Pages of a batch where no zone says so: those of 4 KiB pages.
const BATCH: u64 = 63;

/// A file that was read.
struct Contents {
    damage: Option<String>,
    seen: Seen,
    /// The file, if it is a recording.
    recording: Option<Recording>,
}

/// Reads a file, and writes its document and, if asked, its recording.
pub fn read(path: &Path, observe: &Observe, global: &Global) -> Result<ExitCode, Failure> {
    let format = global.page_format()?;
    let inputs = || {
        [Some(path.to_owned()), observe.kallsyms.clone()]
            .into_iter()
            .flatten()
    };
    for written in [&global.output, &observe.record] {
        refuse_to_replace(inputs().collect::<Vec<_>>().iter(), written.as_deref())?;
    }
    let output = Output::open(global)?;
    let record = observe.record.as_deref().map(Place::new).transpose()?;
    let symbols = observe.kallsyms.as_deref().map(symbols).transpose()?;
    let Contents {
        damage,
        mut seen,
        recording,
    } = contents(path, symbols)?;
    if let Some(damage) = &damage {
        warn(&format!("{}: {damage}", path.display()));
    }
    let mut recorded = Ok(());
    if observe.redact || record.is_some() {
        let mut recording = recording.unwrap_or_else(|| record::recording(&seen));
        if observe.redact {
            recording = recording.redacted();
            seen.machine
                .kernel
                .clone_from(&recording.header.kernel_release);
            (seen.tasks, seen.cgroups) = names(&recording.names);
        }
        if let Some(place) = &record {
            recorded = record::write(&recording, place);
        }
    }
    let mut document = Document::new(&seen, None, None, false);
    document.damage = damage;
    write(&document, PEOPLE, format, output)?;
    recorded.map(|()| ExitCode::SUCCESS)
}

fn symbols(path: &Path) -> Result<Symbols, Failure> {
    let text = fs::read_to_string(path).map_err(|error| unreadable(path, &error))?;
    let symbols = Symbols::parse(&text);
    match symbols.vmstat_update {
        Some(_) => Ok(symbols),
        None => Err(Failure::usage(format!(
            "{}: it has no address of vmstat_update; copy /proc/kallsyms as root",
            path.display()
        ))),
    }
}

fn contents(path: &Path, symbols: Option<Symbols>) -> Result<Contents, Failure> {
    let open = || File::open(path).map_err(|error| unreadable(path, &error));
    let mut magic = Vec::new();
    let begin = open()?.take(MAGIC.len() as u64).read_to_end(&mut magic);
    begin.map_err(|error| unreadable(path, &error))?;
    if magic == MAGIC {
        let (mut recording, damage) = replay::read(path)?;
        recording.sort();
        return Ok(Contents {
            damage: damage.map(|it| it.to_string()),
            seen: seen(&recording),
            recording: Some(recording),
        });
    }
    let seen = foreign::read(BufReader::new(open()?), symbols).map_err(|error| {
        match error {
            ForeignError::Io(error) => unreadable(path, &error),
            ForeignError::UnknownKind => Failure::usage(format!(
                "{}: it is neither a trace.dat, a perf.data nor a recording; `trace-cmd record`, `perf record` and \
                 `bursar observe --record` make such files",
                path.display()
            )),
            error => Failure::usage(format!("{}: {error}", path.display())),
        }
    })?;
    Ok(Contents {
        damage: None,
        seen,
        recording: None,
    })
}

/// Turns a recording back into the observation, as far as it describes that.
fn seen(recording: &Recording) -> Seen {
    let header = &recording.header;
    let end = recording.end.unwrap_or_default();
    let batch = |zone: Option<u16>| {
        let zone = zone.and_then(|it| header.zones.get(usize::from(it)));
        zone.map_or(BATCH, |it| it.pcp_batch)
    };
    let large = recording
        .bursts
        .iter()
        .filter(|it| it.pages > batch(it.zone));
    let (tasks, cgroups) = names(&recording.names);
    Seen {
        recorded_by: Some(Writer::Bursar),
        machine: machine(header),
        deep: is_deep(header),
        start_ns: header.start_ns,
        end_ns: header.start_ns + recording.duration_ns(),
        upkeep: recording.upkeeps.iter().map(upkeep).collect(),
        // Recordings do not have them.
        refreshes: Vec::new(),
        bursts: recording.bursts.iter().map(burst).collect(),
        waits: recording.waits.iter().map(wait).collect(),
        flushes: recording.flushes.iter().map(flush).collect(),
        release: seen::Release {
            bursts: large.count() as u64,
            gap_at_batch_ns: end.gap_at_batch_ns,
            gap_elsewhere_ns: end.gap_elsewhere_ns,
        },
        tasks,
        cgroups,
        losses: Losses {
            events_lost: end.lost_events,
            ..Losses::default()
        },
        missing: missing(header),
    }
}

fn names(names: &Names) -> (Vec<Task>, Vec<Cgroup>) {
    let task = |(pid, name): (&u32, &String)| Task {
        pid: *pid as i32,
        name: name.clone(),
    };
    let cgroup = |(id, path): (&u64, &String)| Cgroup {
        id: *id,
        path: path.clone(),
    };
    (
        names.processes.iter().map(task).collect(),
        names.cgroups.iter().map(cgroup).collect(),
    )
}

fn is_deep(header: &Header) -> bool {
    let deep = [Event::Drains, Event::Refills, Event::LockWaits];
    deep.into_iter().any(|kind| header.events.has(kind))
}

/// Kinds of events that the recording does not have.
fn missing(header: &Header) -> Vec<Missing> {
    let light: [(Event, &Wanted); 5] = [
        (Event::UpkeepWork, &WORK_EVENTS[0]),
        (Event::TimerTargets, &TIMER_EVENTS[0]),
        (Event::TimerSlots, &TIMER_EVENTS[1]),
        (Event::FlushDecisions, &FLUSH_EVENTS[0]),
        (Event::FlushLocks, &FLUSH_EVENTS[1]),
    ];
    let deep = [
        (Event::Drains, &PAGE_EVENTS[0]),
        (Event::Refills, &PAGE_EVENTS[1]),
        (Event::LockWaits, &WAIT_EVENTS[0]),
    ];
    let deep = deep.iter().filter(|_| is_deep(header));
    let wanted = light.iter().chain(deep);
    wanted
        .filter(|(kind, _)| !header.events.has(*kind))
        .map(|(_, event)| Missing {
            what: format!("event {}:{} in the recording", event.system, event.name),
            removes: event.removes.to_owned(),
        })
        .collect()
}

fn machine(header: &Header) -> Machine {
    Machine {
        kernel: header.kernel_release.clone(),
        cpus: header.cpus_online as usize,
        hz: header.hz,
        hz_source: None,
        interval_s: u32::try_from(header.stat_interval_ms / 1_000).ok(),
        virtualized: Some(header.is_virtual),
        zones: (header.zones.iter())
            .map(|zone| seen::Zone {
                node: zone.node,
                name: zone.name.clone(),
                managed_pages: zone.managed_pages,
                min_pages: zone.min_pages,
                low_pages: zone.low_pages,
                high_pages: zone.high_pages,
                pcp_batch: u32::try_from(zone.pcp_batch).unwrap_or(u32::MAX),
                pcp_high: zone.pcp_high,
                ..seen::Zone::default()
            })
            .collect(),
    }
}

fn upkeep(it: &Upkeep) -> seen::Upkeep {
    seen::Upkeep {
        cpu: it.cpu,
        target_jiffy: it.target_jiffy,
        slot_jiffy: it.slot_jiffy,
        expire_jiffy: it.expire_jiffy,
        expire_ns: it.expire_ns,
        start_ns: it.start_ns,
        end_ns: it.end_ns,
        pages: it.pages,
    }
}

fn burst(it: &bursar_recording::Burst) -> seen::Burst {
    seen::Burst {
        cpu: it.cpu,
        pid: it.pid as i32,
        zone: it.zone,
        kind: match it.kind {
            BurstKind::Drain => seen::BurstKind::Drain,
            BurstKind::Refill => seen::BurstKind::Refill,
        },
        start_ns: it.start_ns,
        end_ns: it.end_ns,
        pages: it.pages,
        hold: match it.hold {
            Hold::Traced => seen::Hold::Traced,
            Hold::Proven => seen::Hold::Proven,
            Hold::Several => seen::Hold::Refuted,
            Hold::Unknown => seen::Hold::Unknown,
        },
    }
}

fn wait(it: &Wait) -> seen::Wait {
    seen::Wait {
        cpu: it.cpu,
        pid: 0,
        lock: match it.lock {
            LockKind::Zone => seen::LockKind::Zone,
            LockKind::Rstat | LockKind::Other => seen::LockKind::Other,
        },
        address: 0,
        start_ns: it.start_ns,
        end_ns: it.end_ns,
    }
}

/// A flush. A recording has the time of all holds together, and not the longest one.
fn flush(it: &bursar_recording::Flush) -> seen::Flush {
    let held_ns = it.held_ns.unwrap_or(0);
    seen::Flush {
        cgroup: it.cgroup,
        cpu: it.cpu,
        pid: it.pid as i32,
        start_ns: it.start_ns,
        end_ns: it.end_ns,
        wait_ns: it.wait_ns.unwrap_or(0),
        held_ns,
        held_ns_max: None,
        holds: u32::from(held_ns > 0),
        skipped: it.is_skipped,
        forced: it.is_forced,
        pending: it.pending_updates.and_then(|it| i64::try_from(it).ok()),
    }
}
