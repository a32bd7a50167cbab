//! View of `vmstat-spread`: how long upkeep takes, how many CPUs do it on one tick, and whether they stay in their place.

use bursar_experiments::document::{Document, VariantResult};
use bursar_experiments::machine_info::MachineInfo;
use bursar_experiments::metrics::Of;
use bursar_experiments::metrics::vmstat_spread::*;

use super::layout::{COUNTED, Load, Moments, View, column};
use super::number::{distribution, shown};
use crate::units::{nanoseconds, percent, quantity, thousands};

pub const VIEW: View = View {
    experiment: "vmstat-spread",
    asked: "Do all CPUs do their upkeep at once?",
    own: "phase-exact",
    upstream: "upstream",
    owners: &[("spread", "proposed")],
    load,
    counted: COUNTED,
    timeline: Some(Moments {
        metric: HERD_TIMELINE.name,
        title: "When each CPU's upkeep fired, in one second",
        span_us,
        beside: &[
            column("max at once", HERD.name, Of::Max),
            column("ticks", INSTANTS_PER_SECOND.name, Of::Value),
        ],
    }),
    remarks,
    finding,
    published_of: "72 CPUs",
    ..View::PLAIN
};

fn load(load: Load<'_>) -> String {
    let whose = match load.is("bytes_are_shared") {
        true => "between all of them",
        false => "each",
    };
    // Each seed may have memory of its own.
    let memory = match load.number("memory_gib") {
        0 => "a drawn amount",
        _ => "{memory_gib} GiB",
    };
    let tasks = match (load.word("tasks"), load.number("vm_mib")) {
        ("idle", _) => "a task on each CPU sleeps, and wakes up to change some counters".to_owned(),
        (_, 0) => "a task on each CPU computes, and maps nothing".to_owned(),
        _ => format!(
            "a task on each CPU maps, faults, rewrites and unmaps memory, {{vm_mib}} MiB {whose}, of {memory}"
        ),
    };
    let work = match load.word("work") {
        "lock" => "upkeep is one hold of a shared lock,",
        _ => "upkeep",
    };
    let others = match load.number("rounded_timers") {
        0 => "",
        _ => "; each CPU has another timer, rounded to the second",
    };
    load.said(&format!(
        "{tasks}; {work} each {{interval_ms}} ms{others}; {{duration_ms}} ms a variant after {{warm_up_ms}} ms"
    ))
}

/// A second, or less if that is all that was measured.
fn span_us(load: Load<'_>) -> u64 {
    match load.number("duration_ms") {
        0 => 1_000_000,
        milliseconds => milliseconds.saturating_mul(1_000).min(1_000_000),
    }
}

fn finding(_: &Document, variant: &VariantResult) -> Option<String> {
    let refresh = distribution(variant, REFRESH.name)?.summary();
    let herd = distribution(variant, HERD.name)?.summary();
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
    if let Some((least, _)) = variant.number(CPUS_PER_INSTANT.name, Of::Value)
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
    match variant.number(INSTANTS_PER_SECOND.name, Of::Value) {
        Some((number, _)) => quantity(number),
        None => shown(variant, INSTANTS_PER_SECOND.name, Of::Value),
    }
}

/// Says so where a few calls rule the means, and where CPUs cannot all have a tick of their own.
fn remarks(document: &Document) -> Vec<String> {
    let mut remarks = Vec::from_iter(ruled_by_few(document));
    remarks.extend(too_many_cpus(document));
    remarks
}

/// Warns of the variant whose mean hangs most on its slowest hundredth of the calls, if that is few calls and much time.
fn ruled_by_few(document: &Document) -> Option<String> {
    const MANY_CALLS: u64 = 100;
    const MUCH_TIME: f64 = 0.2;
    let of_slowest = |variant: &VariantResult| {
        let refresh = distribution(variant, REFRESH.name)?;
        let slowest = refresh.samples().div_ceil(100);
        let (mut left, mut slow_ns) = (slowest, 0.0);
        let values: Vec<(u64, u64)> = refresh.values().collect();
        for (ns, calls) in values.into_iter().rev() {
            slow_ns += (ns * calls.min(left)) as f64;
            left -= calls.min(left);
        }
        let all_ns = refresh.summary().mean * refresh.samples() as f64;
        (all_ns > 0.0).then(|| (slow_ns / all_ns, slowest, variant.name.clone()))
    };
    let most = document.variants.iter().filter_map(of_slowest);
    let (part, calls, name) = most.max_by(|one, other| one.0.total_cmp(&other.0))?;
    (part > MUCH_TIME && calls < MANY_CALLS).then(|| {
        format!(
            "{name}: its {} slowest calls have {} of the time of all; compare means of 20 seeds, and of one seed only CPUs at once and moments",
            thousands(calls),
            percent(part)
        )
    })
}

fn too_many_cpus(document: &Document) -> Option<String> {
    let MachineInfo::Sim(sim) = &document.machine else {
        return None;
    };
    let interval_ms = Load(&document.parameters).number("interval_ms");
    let ticks = interval_ms.saturating_mul(u64::from(sim.hz)) / 1_000;
    let cpus = sim.cpus as u64;
    (ticks > 0 && cpus > ticks).then(|| {
        format!(
            "more CPUs than the interval has ticks: {} CPUs share {} ticks, at least {} on the fullest",
            thousands(cpus),
            thousands(ticks),
            thousands(cpus.div_ceil(ticks))
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::samples::{document, many, variant};
    use bursar_experiments::measure::Unit;

    #[test]
    fn means_of_a_few_slow_calls_are_remarked_on() {
        let remarks = |slowest_ns: u64| {
            let mut calls = vec![3_000; 199];
            calls.push(slowest_ns);
            let refresh = [(REFRESH.name, many(Unit::Ns, &calls))];
            remarks(&document(
                "vmstat-spread",
                72,
                vec![variant("spread", &refresh)],
            ))
        };
        assert_eq!(remarks(3_000), Vec::<String>::new());
        let said = remarks(1_000_000);
        assert!(
            said[0].starts_with("spread: its 2 slowest calls have 62."),
            "{said:?}"
        );
    }
}
