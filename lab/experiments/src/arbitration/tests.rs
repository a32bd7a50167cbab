//! Runs of the experiment on small machines.

use bursar_machine::Host;
use bursar_sim::{Settings, Simulator, Topology};

use super::*;
use crate::document::VariantResult;
use crate::experiment_named;
use crate::measure::{Metric, Of};
use crate::metrics::arbitration::*;
use crate::workload::Sizing;

const LOADS: [&str; 7] = [
    "overload",
    "wrong-estimates",
    "joins",
    "bursts",
    "turns",
    "creepers",
    "lowered",
];

fn load(name: &str) -> Parameters {
    let experiment = experiment_named("arbitration").expect("its file");
    let load = experiment.loads.iter().find(|load| load.name == name);
    let mut table = experiment.parameters.clone();
    table.extend(load.expect("a load").parameters.clone());
    let all: Parameters = table.try_into().expect("its parameters");
    // So small a machine is crowded only if any number of queries may run.
    Parameters {
        duration_ms: 3_000,
        memory_mib_per_cpu: 64,
        burst_ms: all.burst_ms / 4,
        fixed_parts_percent: 50,
        greedy_at_once_percent: 0,
        velox_at_once_percent: 0,
        clickhouse_overcommit_percent: 400,
        largest_at_once_percent: 0,
        youngest_at_once_percent: 0,
        ..all
    }
}

fn on_sim(variant: &str, parameters: &Parameters) -> VariantResult {
    let simulator = Simulator::new(Settings::new(Topology::new(8, 1, 1000), 1));
    parameters
        .run(&simulator.machine(), variant)
        .expect(variant)
}

fn figure(result: &VariantResult, name: &str) -> f64 {
    let metric = result.metrics.get(name);
    metric
        .and_then(Metric::value)
        .unwrap_or_else(|| panic!("{name}"))
}

fn variants() -> Vec<&'static str> {
    let variants = Parameters::variants().into_iter();
    variants.map(|(name, ..)| name).collect()
}

#[test]
fn every_load_ends_with_nothing_charged_and_some_queries_done() {
    for name in LOADS {
        for variant in variants() {
            let result = on_sim(variant, &load(name));
            let work = figure(&result, WORK.name);
            assert!(work > 0.0 && work <= 1.0, "{name} {variant}: {work}");
        }
    }
}

#[test]
fn real_threads_run_it_too() {
    let host = Host::start().expect("the host has a backend");
    let parameters = Parameters {
        duration_ms: 200,
        ..load("overload")
    };
    for variant in variants() {
        parameters.run(&host, variant).expect(variant);
    }
}

#[test]
fn with_memory_for_all_nobody_is_stopped_and_nothing_is_thrown_away() {
    let parameters = Parameters {
        memory_mib_per_cpu: 1 << 20,
        fixed_parts_percent: 800,
        ..load("overload")
    };
    for variant in variants() {
        let result = on_sim(variant, &parameters);
        assert_eq!(result.number(STOPPED.name, Of::Value).expect("it").0, 0.0);
        for info in [THROWN_AWAY, FAILED, SPILLED] {
            assert_eq!(figure(&result, info.name), 0.0, "{variant}: {}", info.name);
        }
    }
}

#[test]
fn who_may_not_wait_fails_and_where_nobody_can_spill_somebody_is_stopped() {
    let joins = load("joins");
    let greedy = on_sim("greedy", &joins);
    assert!(figure(&greedy, THROWN_AWAY.name) > 0.0);
    let stopped = on_sim("velox", &joins).number(STOPPED.name, Of::Value);
    assert!(
        stopped.expect("it").0 > 0.0,
        "nobody can spill, so somebody is stopped"
    );
}

/// Of 512 MiB 256 are left for 1.5 s. A rule that takes nothing back would be up to 384 MiB s above.
#[test]
fn all_come_below_a_limit_that_was_lowered() {
    let over = variants().into_iter().map(|variant| {
        let result = on_sim(variant, &load("lowered"));
        figure(&result, OVER_LIMIT.name)
    });
    let over: Vec<f64> = over.collect();
    assert!(over.iter().any(|&over| over > 0.0), "{over:?}");
    assert!(over.iter().all(|&over| over < 128.0), "{over:?}");
}

#[test]
fn numbers_that_are_old_choose_others() {
    for (variant, name) in [("largest-first", "joins"), ("bursar", "overload")] {
        let exact = load(name);
        let old = Parameters {
            numbers_age_ms: 500,
            ..exact
        };
        let done = |parameters| {
            let result = on_sim(variant, parameters);
            (
                figure(&result, WORK.name),
                figure(&result, THROWN_AWAY.name),
            )
        };
        assert_ne!(done(&exact), done(&old), "{variant}");
    }
}

#[test]
fn bursts_that_are_longer_than_the_run_are_refused_by_name() {
    let parameters = Parameters {
        burst_ms: 2_000,
        ..load("overload")
    };
    let error = parameters.check().expect_err("too long").to_string();
    assert!(error.contains("burst_ms"), "{error}");
}
