//! The experiment in small, on both machines.

use crate::metrics::vmstat_spread::*;
use bursar_machine::Host;
use bursar_sim::{Settings, Simulator, Topology};
use toml::{Table, Value};

use super::*;
use crate::document::VariantResult;
use crate::experiment::{Experiment, Load};
use crate::measure::{Metric, Of, Summary};
use crate::workload::Sizing as _;

fn experiment() -> Experiment {
    crate::experiment_named("vmstat-spread").expect("the file")
}

/// Parameters of a load in its quick form, with some others.
fn parameters(load: &Load, experiment: &Experiment, others: &[(&str, Value)]) -> Parameters {
    let mut table: Table = experiment.parameters.clone();
    table.extend(experiment.host.clone());
    table.remove("load");
    table.extend(load.parameters.clone());
    table.extend(experiment.quick.clone());
    table.extend(load.quick.clone());
    table.extend(
        others
            .iter()
            .map(|(key, value)| ((*key).to_owned(), value.clone())),
    );
    let read: Parameters = table.try_into().expect("its parameters");
    read.check().expect("in their ranges");
    read
}

fn named(load: &str, others: &[(&str, Value)]) -> Parameters {
    let experiment = experiment();
    let load = experiment.loads.iter().find(|known| known.name == load);
    parameters(load.expect("a load"), &experiment, others)
}

fn on_sim(cpus: usize, hz: u32, variant: &str, parameters: &Parameters) -> VariantResult {
    let mut topology = Topology::new(cpus, 1, hz);
    topology.preemption = bursar_sim::PreemptionKind::Kernel;
    let simulator = Simulator::new(Settings::new(topology, parameters.seed));
    let result = Workload::run(parameters, &simulator.machine(), variant);
    result.expect("a run")
}

fn summary(result: &VariantResult, name: &str) -> Summary {
    match result.metrics.get(name) {
        Some(Metric::Distribution(distribution)) => distribution.summary(),
        other => panic!("{name} of {}: {other:?}", result.name),
    }
}

fn figure(result: &VariantResult, name: &str) -> f64 {
    let number = result.number(name, Of::Value);
    number
        .unwrap_or_else(|| panic!("{name} of {}", result.name))
        .0
}

/// A second between calls, and next to nothing to do in them: what timers do shows.
fn seconds() -> Parameters {
    named(
        "generic",
        &[
            ("interval_ms", Value::Integer(1_000)),
            ("warm_up_ms", Value::Integer(2_500)),
            ("duration_ms", Value::Integer(4_000)),
            ("tasks", Value::String("idle".to_owned())),
            ("idle_entry_interval_ms", Value::Integer(1)),
            ("idle_sleep_us", Value::Integer(10_000)),
        ],
    )
}

#[test]
fn every_variant_runs_every_load_on_a_simulated_machine() {
    let experiment = experiment();
    for load in &experiment.loads {
        let parameters = parameters(load, &experiment, &[]);
        for variant in &experiment.variants {
            let result = on_sim(4, 1000, variant, &parameters);
            assert_eq!(&result.name, variant);
            let calls = summary(&result, REFRESH.name).samples;
            assert!(calls > 0, "{variant}, {}", load.name);
            assert_eq!(
                calls,
                summary(&result, REFRESH_PERIODIC.name).samples
                    + summary(&result, REFRESH_IDLE.name).samples
            );
        }
    }
}

#[test]
fn every_variant_runs_every_load_on_threads() {
    let host = Host::start().expect("the host has a backend");
    let experiment = experiment();
    for load in &experiment.loads {
        let parameters = parameters(load, &experiment, &[]);
        for variant in &experiment.variants {
            let result = Workload::run(&parameters, &host, variant).expect("a run");
            assert_eq!(&result.name, variant);
        }
    }
}

#[test]
fn a_variant_that_does_not_exist_is_refused() {
    assert!(Workload::run(&named("stress", &[]), &nobodys_machine(), "none").is_err());
}

fn nobodys_machine() -> bursar_sim::Sim {
    let settings = Settings::new(Topology::new(2, 1, 1000), 1);
    // A load without a variant to run requires nothing of its machine.
    Simulator::new(settings).machine()
}

#[test]
fn the_parts_of_periodic_calls_add_up() {
    let result = on_sim(8, 1000, "upstream", &named("stress", &[]));
    let total = |name: &str| {
        let all = summary(&result, name);
        all.mean * all.samples as f64
    };
    let parts = [
        REFRESH_FOLD.name,
        REFRESH_PAGES.name,
        REFRESH_LOCK_WAIT.name,
        REFRESH_RUN_QUEUE_WAIT.name,
    ];
    let sum: f64 = parts.into_iter().map(total).sum();
    let whole = total(REFRESH_PERIODIC.name);
    assert!(whole > 0.0);
    // Three digits of each are kept.
    assert!((sum - whole).abs() < whole * 2e-3, "{sum} of {whole}");
    for part in [REFRESH_FOLD.name, REFRESH_PAGES.name] {
        assert!(total(part) > 0.0, "{part}");
    }
}

/// At 1000 ticks, a timer a second ahead has a granularity of 64 ticks, in which 21 CPUs have their 3 each.
#[test]
fn upstream_makes_herds_of_21_and_exact_phases_none() {
    let upstream = on_sim(72, 1000, "upstream", &seconds());
    assert!((15.0..=22.0).contains(&figure(&upstream, HERD_MEAN.name)));
    assert!((20.0..=23.0).contains(&figure(&upstream, HERD_MAX.name)));
    assert!((3.0..=5.0).contains(&figure(&upstream, INSTANTS_PER_SECOND.name)));
    let exact = on_sim(72, 1000, "phase-exact", &seconds());
    assert_eq!(figure(&exact, HERD_MAX.name), 1.0);
    assert!((71.0..=73.0).contains(&figure(&exact, INSTANTS_PER_SECOND.name)));
}

#[test]
fn exact_phases_keep_their_interval_and_plain_intervals_grow() {
    let exact = on_sim(8, 1000, "phase-exact", &seconds());
    let period = summary(&exact, PERIOD.name);
    assert_eq!(period.p50 / 1_000_000, 1_000);
    assert_eq!(figure(&exact, DRIFT.name), 0.0);
    // From the end of a call a second on, rounded up by the wheel.
    let spread = on_sim(8, 1000, "spread", &seconds());
    assert!(figure(&spread, DRIFT.name) > 1e6);
}

#[test]
fn equal_seeds_give_equal_results() {
    let parameters = named("stress", &[]);
    let [one, other] =
        [1, 1].map(|seed| on_sim(6, 250, "spread", &Parameters { seed, ..parameters }));
    assert_eq!(one, other);
    let third = on_sim(
        6,
        250,
        "spread",
        &Parameters {
            seed: 2,
            ..parameters
        },
    );
    assert_ne!(one.metrics, third.metrics);
}

#[test]
fn machines_of_all_kinds_run() {
    for (cpus, hz) in [(1, 100), (3, 250), (8, 100), (130, 1000)] {
        let parameters = named(
            "generic",
            &[
                ("interval_ms", Value::Integer(100)),
                ("duration_ms", Value::Integer(300)),
            ],
        );
        for variant in ["upstream", "phase-wheel", "phase-exact"] {
            let result = on_sim(cpus, hz, variant, &parameters);
            assert!(summary(&result, REFRESH.name).samples > 0, "{cpus} {hz}");
        }
    }
    // 130 CPUs share the 10 ticks of a tenth of a second at 100 Hz.
    let parameters = named("generic", &[("interval_ms", Value::Integer(100))]);
    let parameters = Parameters {
        duration_ms: 200,
        ..parameters
    };
    let shared = on_sim(130, 100, "phase-wheel", &parameters);
    assert!(figure(&shared, CPUS_PER_INSTANT.name) >= 13.0);
}

#[test]
fn rounded_timers_share_wakeups_only_with_rounded_upkeep() {
    let others = [
        ("interval_ms", Value::Integer(1_000)),
        ("duration_ms", Value::Integer(5_000)),
        ("warm_up_ms", Value::Integer(2_000)),
    ];
    let idle = named("idle", &others);
    let rate = |variant: &str, parameters: &Parameters| {
        figure(
            &on_sim(8, 1000, variant, parameters),
            WAKEUPS_PER_CPU_SECOND.name,
        )
    };
    let (deferred, exact) = (rate("upstream", &idle), rate("phase-exact", &idle));
    assert!(deferred < exact, "{deferred} {exact}");
    let slack = Parameters {
        slack_us: 999_000,
        ..idle
    };
    let result = on_sim(8, 1000, "phase-exact", &slack);
    assert!(figure(&result, WAKEUPS_SHARED.name) > 0.0);
}

#[test]
fn memory_that_is_short_is_swapped() {
    // A single task has more than there is.
    let short = named(
        "stress-own",
        &[
            ("scale", Value::Integer(64)),
            ("vm_mib", Value::Integer(3_072)),
            ("memory_gib", Value::Integer(8)),
        ],
    );
    let result = on_sim(4, 1000, "upstream", &short);
    assert!(figure(&result, PAGES_SWAPPED.name) > 0.0);
    assert_eq!(figure(&result, PAGES_REFUSED.name), 0.0);
    let result = on_sim(4, 1000, "upstream", &named("stress", &[]));
    assert_eq!(figure(&result, PAGES_SWAPPED.name), 0.0);
    assert_eq!(figure(&result, PAGES_REFUSED.name), 0.0);
}

#[test]
fn isolated_cpus_have_no_periodic_call() {
    let parameters = named("stress", &[("isolated_cpus", Value::Integer(2))]);
    let result = on_sim(6, 1000, "upstream", &parameters);
    let Some(Metric::Timeline(timeline)) = result.metrics.get(HERD_TIMELINE.name) else {
        panic!("no timeline");
    };
    let cpus: std::collections::BTreeSet<u32> =
        timeline.points().iter().map(|point| point.0).collect();
    assert!(
        cpus.contains(&3) && cpus.iter().all(|&cpu| cpu < 4),
        "{cpus:?}"
    );
    let parameters = Parameters {
        isolated_cpus: 6,
        ..parameters
    };
    let simulator = Simulator::new(Settings::new(Topology::new(6, 1, 1000), 1));
    let error =
        Workload::run(&parameters, &simulator.machine(), "upstream").expect_err("none left");
    assert!(error.reason.contains("isolated_cpus"), "{error}");
}

#[test]
fn huge_pages_make_another_run_that_counts_as_well() {
    let of = |percent| {
        let others = [
            ("huge_percent", Value::Integer(percent)),
            ("vm_mib", Value::Integer(64)),
        ];
        on_sim(4, 1000, "upstream", &named("stress", &others))
    };
    let (small, huge) = (of(0), of(100));
    assert_eq!(figure(&huge, PAGES_REFUSED.name), 0.0);
    assert_ne!(small.metrics, huge.metrics);
}

#[test]
fn ticks_are_counted_at_their_moments() {
    assert_eq!(ticks_between(0, 999_999, 1000), 0);
    assert_eq!(ticks_between(999_999, 1_000_000, 1000), 1);
    assert_eq!(ticks_between(1_000_000, 5_000_000, 250), 1);
    // A host's clocks of waiting and of time differ a little.
    assert_eq!(ticks_between(1_000_001, 999_999, 1000), 0);
}

#[test]
#[rustfmt::skip]
fn bad_parameters_are_refused_by_name() {
    let good = named("stress", &[]);
    let interval_us = good.interval_ms * 1_000;
    for (bad, key) in [
        (Parameters { interval_ms: 0, ..good }, "interval_ms"),
        (Parameters { duration_ms: 10, ..good }, "duration_ms"),
        (Parameters { slack_us: interval_us, ..good }, "slack_us"),
        (Parameters { scale: 0, ..good }, "scale"),
        (Parameters { vm_mib: 1 << 20, ..good }, "vm_mib"),
    ] {
        let error = bad.check().expect_err(key).to_string();
        assert!(error.contains(key), "{error}");
    }
    // Less than a tick, which only the machine knows.
    let simulator = Simulator::new(Settings::new(Topology::new(2, 1, 10), 1));
    let error = Workload::run(&good, &simulator.machine(), "upstream").expect_err("a tick");
    assert!(error.reason.contains("interval_ms"), "{error}");
}

/// Two names for one rule: no figure may come out as reproduced.
#[test]
fn no_effect_is_not_reproduced() {
    use crate::verdict::{Basis, Ruling, SEEDS_NEEDED};
    let experiment = experiment();
    let parameters = named("stress", &[]);
    let mut all: Option<VariantResult> = None;
    for seed in 1..=SEEDS_NEEDED as u64 {
        let one = on_sim(3, 1000, "upstream", &Parameters { seed, ..parameters });
        match &mut all {
            None => all = Some(one),
            Some(all) => all.merge(&one).expect("the same metrics"),
        }
    }
    let all = all.expect("seeds");
    let rows = experiment.published.iter();
    for row in rows.filter(|row| row.variant == "spread") {
        for published in &row.figures {
            let mut verdict = row.unjudged(published, Basis::Ensemble);
            assert!(verdict.judge(|_, metric| all.metrics.get(metric), SEEDS_NEEDED));
            assert_ne!(verdict.verdict, Some(Ruling::Reproduced), "{verdict:?}");
        }
    }
}

/// After its first period a CPU's timer is a whole interval ahead, where the wheel has 15.6 moments a second. A run that measured
/// the first period too would count its near, finer timers. Less memory than the thread's, which takes less time to simulate.
#[test]
fn the_quick_form_measures_from_the_second_period_on() {
    use crate::machine_info::MachineKind;
    use crate::plan::{Plan, Request};
    let assignments = [
        "load=stress",
        "vm_mib=2000",
        "draws=none",
        "variants=spread",
    ]
    .map(str::to_owned);
    let request = Request {
        machine: MachineKind::Sim,
        machine_keys: &[],
        assignments: &assignments,
        is_quick: true,
        seeds: 1,
    };
    let plan = Plan::new(experiment(), request).expect("a plan");
    let mut topology = Topology::new(72, 1, 1000);
    topology.preemption = bursar_sim::PreemptionKind::Kernel;
    let simulator = Simulator::new(Settings::new(topology, 1));
    let spread = plan.run(&simulator.machine(), plan.jobs()[0]);
    let spread = spread.expect("a run");
    let moments = figure(&spread, INSTANTS_PER_SECOND.name);
    // A moment more may fall within the measured 1.1 seconds.
    assert!(moments <= 1000.0 / 64.0 + 1.0 / 1.1, "{moments} a second");
}
