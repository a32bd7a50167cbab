//! View of `vmstat-spread`: how long upkeep takes, how many CPUs do it on one tick, and whether they stay in their place.

use bursar_experiments::document::{Document, VariantResult};
use bursar_experiments::machine_info::MachineInfo;

use super::{Bars, COUNTED, Lines, Load, Moments, Of, View, column, distribution, shown};
use crate::units::{nanoseconds, quantity, thousands};

pub const VIEW: View = View {
    experiment: "vmstat-spread",
    load,
    columns: &[
        column("refresh p50", "refresh", Of::P50),
        column("refresh p99", "refresh", Of::P99),
        column("refresh max", "refresh", Of::Max),
        column("refresh mean", "refresh", Of::Mean),
        column("lock wait p99", "refresh_lock_wait", Of::P99),
        column("run queue p99", "refresh_run_queue_wait", Of::P99),
        column("herd mean", "herd", Of::Mean),
        column("herd max", "herd", Of::Max),
        column("instants", "instants_per_second", Of::Value),
        column("drift", "drift", Of::Value),
        column("apart", "drift_apart", Of::Value),
        column("wake-ups", "wakeups_per_cpu_second", Of::Value),
        column("shared", "wakeups_shared", Of::Value),
    ],
    legend: &[
        "refresh: each call that folds a CPU's counters and decays its page lists, periodic ones and those on the way into idleness",
        "lock wait: the part of a periodic call that waits for a zone lock; run queue: for its CPU",
        "herd: CPUs whose upkeep fires on one tick, as each of them sees it; instants: ticks in a second on which any fires",
        "drift: how much later than its interval a CPU's upkeep comes again, in the mean; apart: how much CPUs differ in it",
        "wake-ups: of a CPU in a second, by timers of upkeep and by other rounded ones; shared: firings for which one of the others had just woken their CPU",
    ],
    counted: COUNTED,
    elsewhere: &[
        "refresh_mean",
        "refresh_p50",
        "refresh_p99",
        "herd_mean",
        "herd_max",
        "herd_timeline",
        "cpus_per_instant",
    ],
    buckets: None,
    bars: &[
        Bars {
            metric: "refresh",
            title: "How long calls took (bars grow with the logarithm of the number of calls)",
        },
        Bars {
            metric: "herd",
            title: "How many CPUs' upkeep fired on one tick, as each CPU saw it",
        },
    ],
    lines: &[
        Lines {
            metric: "refresh",
            title: "How long calls of the refresh took",
            share_of: "share of calls",
        },
        Lines {
            metric: "herd",
            title: "CPUs on one tick, as each CPU sees it",
            share_of: "share of firings",
        },
        Lines {
            metric: "zone_lock_wait",
            title: "How long others waited for a zone lock (0: not at all)",
            share_of: "share of waits",
        },
    ],
    timeline: Some(Moments {
        metric: "herd_timeline",
        title: "When each CPU's upkeep fired, in one second",
        span_us,
        beside: &[
            column("herd max", "herd", Of::Max),
            column("instants", "instants_per_second", Of::Value),
        ],
    }),
    sweeps: &[
        ("refresh", Of::P99),
        ("refresh", Of::Mean),
        ("herd_max", Of::Value),
    ],
    finding,
    remarks,
    published_of: "72 CPUs",
    glossary: &[
        (
            "refresh",
            "each call that folds a CPU's counters and decays its page lists: periodic and on the way into idleness",
        ),
        ("refresh_periodic", "the periodic calls alone"),
        ("refresh_idle", "those on the way into idleness alone"),
        ("refresh_fold", "of a periodic call: folding counters"),
        ("refresh_pages", "of a periodic call: work on page lists"),
        (
            "refresh_lock_wait",
            "of a periodic call: waiting for zone locks",
        ),
        (
            "refresh_run_queue_wait",
            "of a periodic call: waiting for its CPU",
        ),
        (
            "refresh_samples_per_cpu_second",
            "calls on each CPU in a second",
        ),
        (
            "start_lateness",
            "from when a timer was due to when its call began",
        ),
        (
            "herd",
            "CPUs whose upkeep fired on one tick, as each of them sees it",
        ),
        ("herd_max", "the most of them on one tick"),
        (
            "instants_per_second",
            "ticks in a second on which any CPU's upkeep fired",
        ),
        (
            "cpus_per_instant",
            "CPUs that share an instant at the least, because the interval or the timer wheel has no more instants",
        ),
        ("period", "from one firing of a CPU to its next"),
        (
            "drift",
            "how much later than its interval a CPU's upkeep comes again, in the mean",
        ),
        (
            "wakeups_per_cpu_second",
            "of a CPU, by upkeep and by other rounded timers",
        ),
        (
            "wakeups_shared",
            "firings of upkeep whose CPU was awake for another rounded timer anyway",
        ),
        (
            "zone_lock_wait",
            "how long allocations and frees waited for a zone lock",
        ),
        (
            "stress_ops_per_second",
            "passes of all tasks over their pages",
        ),
    ],
};

fn load(load: Load<'_>) -> String {
    let tasks = match (load.word("tasks"), load.number("vm_mib")) {
        ("idle", _) => "a task on each CPU sleeps, and wakes up to change some counters".to_owned(),
        (_, 0) => "a task on each CPU computes, and maps nothing".to_owned(),
        (_, mib) => {
            let whose = match load.is("bytes_are_shared") {
                true => "between all of them",
                false => "each",
            };
            // Each seed may have memory of its own.
            let memory = match load.number("memory_gib") {
                0 => "a drawn amount".to_owned(),
                gib => format!("{} GiB", thousands(gib)),
            };
            format!(
                "a task on each CPU maps, faults, rewrites and unmaps memory, {} MiB {whose}, of {memory}",
                thousands(mib),
            )
        }
    };
    let work = match load.word("work") {
        "lock" => "upkeep is one hold of a shared lock,",
        _ => "upkeep",
    };
    let others = match load.number("rounded_timers") {
        0 => "",
        _ => "; each CPU has another timer, rounded to the second",
    };
    format!(
        "{tasks}; {work} each {} ms{others}; {} ms a variant after {} ms",
        thousands(load.number("interval_ms")),
        thousands(load.number("duration_ms")),
        thousands(load.number("warm_up_ms")),
    )
}

/// A second, or less if that is all that was measured.
fn span_us(load: Load<'_>) -> u64 {
    match load.number("duration_ms") {
        0 => 1_000_000,
        milliseconds => milliseconds.saturating_mul(1_000).min(1_000_000),
    }
}

fn finding(_: &Document, variant: &VariantResult) -> Option<String> {
    let refresh = distribution(variant, "refresh")?.summary();
    let herd = distribution(variant, "herd")?.summary();
    if refresh.samples == 0 {
        return Some(format!("{}: no call was measured", variant.name));
    }
    let mut text = format!(
        "{}: {} on one tick at most, {} in the mean; {} instants a second; refresh p99 {}, mean {}, of {} calls",
        variant.name,
        cpus(herd.max as f64),
        quantity(herd.mean),
        instants(variant),
        nanoseconds(refresh.p99 as f64),
        nanoseconds(refresh.mean),
        thousands(refresh.samples),
    );
    if let Some((least, _)) = Of::Value.get(variant, "cpus_per_instant")
        && least > 1.0
    {
        text.push_str(&format!(
            "; its instants are so few that about {} share one",
            cpus(least.ceil())
        ));
    }
    Some(text)
}

fn cpus(number: f64) -> String {
    match number {
        1.0 => "1 CPU".to_owned(),
        number => format!("{} CPUs", thousands(number as u64)),
    }
}

fn instants(variant: &VariantResult) -> String {
    match Of::Value.get(variant, "instants_per_second") {
        Some((number, _)) => quantity(number),
        None => shown(variant, "instants_per_second", Of::Value),
    }
}

/// Says so where CPUs cannot all have a tick of their own.
fn remarks(document: &Document) -> Vec<String> {
    let MachineInfo::Sim(sim) = &document.machine else {
        return Vec::new();
    };
    let interval_ms = Load(&document.parameters).number("interval_ms");
    let ticks = interval_ms.saturating_mul(u64::from(sim.hz)) / 1_000;
    let cpus = sim.cpus as u64;
    if ticks == 0 || cpus <= ticks {
        return Vec::new();
    }
    vec![format!(
        "more CPUs than the interval has ticks: {} CPUs share {} ticks, at least {} on the fullest",
        thousands(cpus),
        thousands(ticks),
        thousands(cpus.div_ceil(ticks))
    )]
}
