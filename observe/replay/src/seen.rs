//! Figures as seen: of the recorded machine, in the time that is replayed.

use bursar_rig::timer::tick_ns;
use bursar_watch::seen::BurstKind;

use crate::clock::{fired_at, slot_of};
use crate::load::Load;
use crate::measure::{Call, Figures, put_bursts, put_flushes, put_holds, put_upkeep, put_waits};

/// Computes the figures as seen. A measure that the recording cannot tell is absent.
pub fn seen(load: &Load) -> Figures {
    let mut figures = Figures::new();
    let seen = &load.seen;
    let calls: Vec<Call> = (seen.upkeeps.iter())
        .map(|upkeep| Call {
            cpu: upkeep.cpu,
            tick: fired_at(upkeep, seen.clock, tick_ns(load.hz)),
            slot: slot_of(upkeep, seen.clock, tick_ns(load.hz)),
            length_ns: upkeep.end_ns - upkeep.start_ns,
        })
        .collect();
    put_upkeep(&mut figures, &calls, load.cpus(), load.seconds());
    let events_seconds = load.events_ns as f64 / 1e9;
    put_bursts(&mut figures, &seen.bursts_ns, events_seconds);
    let longest = [BurstKind::Drain, BurstKind::Refill].map(|kind| {
        let holds = || seen.holds.iter().filter(move |hold| hold.0 == kind);
        let most = [
            holds().map(|hold| hold.1).max(),
            holds().map(|hold| hold.2).max(),
        ];
        (kind, most.map(|most| Some(most? as f64)))
    });
    put_holds(&mut figures, longest);
    if seen.has_zone_waits && seen.has_bursts {
        let waits = seen.zone_waits.iter().map(|it| it.end_ns - it.start_ns);
        put_waits(&mut figures, waits, events_seconds);
    }
    let times = seen.flushes.iter();
    let times = times.map(|flush| flush.end_ns - flush.start_ns).collect();
    let outcomes = || seen.flushes.iter().filter_map(|flush| flush.skipped);
    let known = outcomes().count();
    let skipped = outcomes().filter(|is_skipped| *is_skipped).count();
    let share = (known > 0).then(|| skipped as f64 / known as f64);
    put_flushes(&mut figures, times, share, events_seconds);
    figures
}
