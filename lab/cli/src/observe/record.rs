//! `bursar observe --record`: from what a run observed to a recording.

use std::io::{self, BufWriter};

use bursar_observe::event::{LATENESS, REQUESTS, RSTAT, TARGETS, WAITS, WORK};
use bursar_observe::seen::{self, Seen};
use bursar_recording::{
    Burst, BurstKind, Cause, End, Event, Events, Flush, Header, Hold, LockKind, Names, Recording,
    Upkeep, Wait, WriteError, Zone,
};

use crate::failure::Failure;
use crate::place::Place;

/// Interval of upkeep where the kernel does not say.
const STAT_INTERVAL_MS: u64 = 1_000;

/// Writes a recording to a file.
pub fn write(recording: &Recording, place: &Place) -> Result<(), Failure> {
    let written = place.write(|file| {
        let written = recording.write(BufWriter::new(file));
        written.map_err(|error| match error {
            WriteError::Io(error) => error,
            other => io::Error::other(other),
        })
    });
    written.map_err(|error| Failure::unavailable(format!("cannot write {place}: {error}")))
}

/// Makes the recording of a run. Items of CPUs that the header does not have are left out.
pub fn recording(seen: &Seen) -> Recording {
    let mut recording = Recording::new(header(seen));
    let is_known = |cpu: u32| cpu < recording.header.cpus_possible;
    let place_max = seen.machine.zones.len() as u16;
    recording.upkeeps = (seen.upkeep.iter())
        .filter(|it| is_known(it.cpu))
        .map(upkeep)
        .collect();
    recording.bursts = (seen.bursts.iter())
        .filter(|it| is_known(it.cpu))
        .map(|it| Burst {
            zone: it.zone.filter(|zone| *zone < place_max),
            ..burst(it)
        })
        .collect();
    recording.waits = (seen.waits.iter())
        .filter(|it| is_known(it.cpu))
        .map(wait)
        .collect();
    recording.flushes = (seen.flushes.iter())
        .filter(|it| is_known(it.cpu))
        .map(flush)
        .collect();
    recording.names = Names {
        processes: (seen.tasks.iter())
            .map(|task| (task.pid.max(0) as u32, task.name.clone()))
            .collect(),
        cgroups: (seen.cgroups.iter())
            .map(|cgroup| (cgroup.id, cgroup.path.clone()))
            .collect(),
        is_redacted: false,
    };
    recording.end = Some(End {
        duration_ns: seen.duration_ns(),
        lost_events: seen.losses.events_lost,
        records: recording.records() as u64,
        gap_at_batch_ns: seen.release.gap_at_batch_ns,
        gap_elsewhere_ns: seen.release.gap_elsewhere_ns,
    });
    recording
}

fn header(seen: &Seen) -> Header {
    let machine = &seen.machine;
    let cpus = machine.cpus.max(1) as u32;
    let upkeeps = seen.upkeep.iter().map(|it| it.cpu);
    let highest = upkeeps
        .chain(seen.bursts.iter().map(|it| it.cpu))
        .max()
        .unwrap_or(0);
    Header {
        kernel_release: machine.kernel.clone(),
        hz: machine.hz,
        page_bytes: 4_096,
        stat_interval_ms: machine.interval_s.map_or(STAT_INTERVAL_MS, |seconds| {
            u64::from(seconds.max(1)) * 1_000
        }),
        cpus_online: cpus,
        cpus_possible: cpus
            .max(highest.saturating_add(1))
            .min(bursar_recording::CPUS_MAX),
        // A machine that may be a guest is one where waits may be invisible, unless some were seen.
        is_virtual: machine.virtualized.unwrap_or(seen.waits.is_empty()),
        nodes: Vec::new(),
        zones: machine.zones.iter().map(zone).collect(),
        start_ns: seen.start_ns,
        events: events(seen),
    }
}

/// Kinds of events that were there. Deep mode has pages and waits, and a kind that `seen` names as missing is not there. Waits
/// whose locks nothing names are none.
fn events(seen: &Seen) -> Events {
    let has_page = |event| seen.deep && !seen.lacks(event);
    let kinds = [
        (Event::UpkeepWork, !seen.loses(WORK)),
        (Event::TimerTargets, !seen.loses(TARGETS)),
        (Event::TimerSlots, !seen.loses(LATENESS)),
        (Event::Drains, has_page("mm_page_pcpu_drain")),
        (Event::Refills, has_page("mm_page_alloc_zone_locked")),
        (Event::LockWaits, seen.deep && !seen.loses(WAITS)),
        (Event::FlushLocks, !seen.loses(RSTAT)),
        (Event::FlushDecisions, !seen.loses(REQUESTS)),
    ];
    let there: Vec<Event> = kinds
        .into_iter()
        .filter(|(_, is_there)| *is_there)
        .map(|(kind, _)| kind)
        .collect();
    Events::of(&there)
}

fn zone(zone: &seen::Zone) -> Zone {
    Zone {
        node: zone.node,
        name: zone.name.clone(),
        managed_pages: zone.managed_pages,
        min_pages: zone.min_pages,
        low_pages: zone.low_pages,
        high_pages: zone.high_pages,
        pcp_batch: zone.pcp_batch.into(),
        pcp_high: zone.pcp_high,
        pcp_high_range: None,
    }
}

fn upkeep(it: &seen::Upkeep) -> Upkeep {
    Upkeep {
        cpu: it.cpu,
        cause: match it.target_jiffy.or(it.expire_jiffy) {
            Some(_) => Cause::Timer,
            // The shepherd queued it, or its timer was set before the run.
            None => Cause::Unknown,
        },
        target_jiffy: it.target_jiffy,
        slot_jiffy: it.slot_jiffy,
        expire_jiffy: it.expire_jiffy,
        expire_ns: it.expire_ns,
        start_ns: it.start_ns,
        end_ns: it.end_ns,
        pages: it.pages,
    }
}

fn burst(it: &seen::Burst) -> Burst {
    Burst {
        cpu: it.cpu,
        pid: it.pid.max(0) as u32,
        zone: it.zone,
        kind: match it.kind {
            seen::BurstKind::Drain => BurstKind::Drain,
            seen::BurstKind::Refill => BurstKind::Refill,
        },
        start_ns: it.start_ns,
        end_ns: it.end_ns,
        pages: it.pages,
        order: None,
        hold: match it.hold {
            seen::Hold::Traced => Hold::Traced,
            seen::Hold::Proven => Hold::Proven,
            seen::Hold::Refuted => Hold::Several,
            seen::Hold::Unknown => Hold::Unknown,
        },
    }
}

fn wait(it: &seen::Wait) -> Wait {
    Wait {
        cpu: it.cpu,
        lock: match it.lock {
            seen::LockKind::Zone => LockKind::Zone,
            seen::LockKind::Other => LockKind::Other,
        },
        start_ns: it.start_ns,
        end_ns: it.end_ns,
    }
}

fn flush(it: &seen::Flush) -> Flush {
    let length_ns = it.end_ns.saturating_sub(it.start_ns);
    Flush {
        cgroup: it.cgroup,
        cpu: it.cpu,
        pid: it.pid.max(0) as u32,
        start_ns: it.start_ns,
        end_ns: it.end_ns,
        wait_ns: Some(it.wait_ns.min(length_ns)),
        held_ns: Some(it.held_ns.min(length_ns)),
        is_skipped: it.skipped,
        is_forced: it.forced,
        pending_updates: it.pending.and_then(|pending| u64::try_from(pending).ok()),
    }
}
