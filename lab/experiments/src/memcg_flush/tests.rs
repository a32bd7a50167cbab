//! The experiment in small, on the host: every variant runs, and what holds on any machine holds.

use crate::metrics::memcg_flush::*;
use crate::metrics::of_experiment;
use bursar_machine::Host;
use bursar_sim::{Settings, Sim, Simulator, Topology};

use super::parameters::Need;
use super::statistics::Stat;
use super::*;
use crate::document::VariantResult;
use crate::experiment::Experiment;
use crate::measure::{Metric, Of};
use crate::settings::ParameterError;
use crate::workload::Sizing as _;

fn parameters(experiment: &Experiment) -> Parameters {
    let table = experiment.parameters.clone();
    table.try_into().expect("its parameters")
}

fn quick() -> (Experiment, Parameters) {
    let mut experiment = crate::experiment_named("memcg-flush").expect("the file");
    experiment.parameters.extend(experiment.quick.clone());
    let parameters = parameters(&experiment);
    parameters.check().expect("in their ranges");
    (experiment, parameters)
}

fn ratio(result: &VariantResult, name: &str) -> f64 {
    result.number(name, Of::Value).expect(name).0
}

fn number(metrics: &Metrics, name: &str) -> u64 {
    match metrics.get(name) {
        Some(Metric::Count(value)) => *value,
        Some(Metric::Distribution(distribution)) => distribution.samples(),
        other => panic!("{name}: {other:?}"),
    }
}

#[test]
fn every_variant_runs_and_measures() {
    let host = Host::start().expect("the host has a backend");
    let (experiment, parameters) = quick();
    for name in &experiment.variants {
        let mut result = parameters.run(&host, name).expect("a run");
        let other = Parameters {
            seed: parameters.seed + 1,
            ..parameters
        };
        let other = other.run(&host, name).expect("another run");
        result.merge(&other).expect("the same metrics");
        assert_eq!(&result.name, name);
        assert!(number(&result.metrics, READ_LATENCY.name) > 0, "{name}");
        assert!(number(&result.metrics, WORKER_RUNTIME.name) > 0, "{name}");
        assert_eq!(
            number(&result.metrics, STALENESS.name),
            number(&result.metrics, READ_LATENCY.name),
            "{name}"
        );
        let ranges = of_experiment("memcg-flush")
            .iter()
            .filter(|info| info.range_ns.is_some());
        let ranges: f64 = ranges.map(|info| ratio(&result, info.name)).sum();
        assert!(
            (ranges - 1.0).abs() < 1e-9,
            "{name}: each read is in one range"
        );
        if ["combining", "combining-fence"].contains(&name.as_str()) {
            assert_eq!(
                ratio(&result, BROKEN_READS.name),
                0.0,
                "an exact read missed an update"
            );
        }
        if name == "periodic-only" {
            assert!(
                ratio(&result, BROKEN_READS.name) > 0.0,
                "a cached read has no update since the last flush"
            );
        }
    }
}

#[test]
fn parameters_that_measure_nothing_are_refused() {
    for wrong in [
        "readers=0",
        "tenants=0",
        "queries=0",
        "duration_ms=0",
        "read_interval_ms=0",
        "flush_period_ms=0",
        "working_set_pages=0",
        "readers=1000000000",
        "read_interval_ms=60000",
        "queries=100000",
        "swing_percent=100",
        "swing_ms=0",
        "warm_up_pages=1000",
        "proactive=4",
        "streams=101",
        "segment_bytes=0",
    ] {
        let (mut experiment, _) = quick();
        let (key, value) = wrong.split_once('=').expect("an assignment");
        let value: i64 = value.parse().expect("a number");
        experiment.parameters.insert(key.to_owned(), value.into());
        let parameters = parameters(&experiment);
        let error = parameters.check().expect_err(wrong);
        assert!(matches!(error, ParameterError::Range { .. }), "{wrong}");
    }
}

/// Also those that the file does not name, which `bursar-lab run -s variants=...` can.
#[test]
fn every_published_policy_is_a_variant_that_runs() {
    let host = Host::start().expect("the host has a backend");
    let (_, parameters) = quick();
    for policy in Policy::all(Tunables::of_cpus(host.cpus())) {
        let name = policy.name();
        let result = parameters.run(&host, name).expect("a run");
        assert!(number(&result.metrics, READ_LATENCY.name) > 0, "{name}");
        assert_eq!(<Parameters as Workload>::summary(name), policy.summary());
        if matches!(policy, Policy::TreeWalk | Policy::Eager) {
            assert_eq!(
                ratio(&result, BROKEN_READS.name),
                0.0,
                "{name} misses nothing"
            );
        }
    }
}

/// Runs streams on a small machine, and says what socket memory is left in the root, and what is charged to tenants.
fn left_by_streams<S: Subject<Sim>>(
    machine: &Sim,
    subject: &S,
    parameters: &Parameters,
) -> (i64, u64) {
    let outcome = measure(machine, subject, parameters)
        .expect("a run")
        .metrics();
    assert!(number(&outcome, UPDATE_NS.name) > 100);
    machine.sleep_until(machine.now_ns() + 2 * parameters.flush_period_ms * 1_000_000);
    subject.tick();
    let numbers = subject.read(Tree::ROOT, Need::Own, &[Stat::Sock]);
    let tree = parameters.tree();
    let charged = (0..tree.tenants).map(|tenant| subject.charged_pages(tree.tenant(tenant)));
    (numbers.expect("numbers").get(Stat::Sock), charged.sum())
}

#[test]
fn streams_leave_nothing_behind() {
    let (_, quick) = quick();
    let parameters = Parameters {
        readers: 0,
        workers: 0,
        ancestors: 4,
        streams: 5,
        flows: 11,
        segment_ns: 10_000,
        // A few segments fit into each tenant, so some are forced.
        ..quick
    };
    let machine = || Simulator::new(Settings::new(Topology::new(8, 1, 1000), 1));
    {
        let simulator = machine();
        let own = Own::new(
            &simulator.machine(),
            &parameters,
            FlushPolicy::Combining,
            Freshness::Exact,
        );
        let own = own.expect("a subject");
        let left = left_by_streams(&simulator.machine(), &own, &parameters);
        assert_eq!(left, (0, 0));
    }
    for policy in [Policy::Direct, Policy::PerGroup] {
        let simulator = machine();
        let theirs = Theirs::new(&simulator.machine(), &parameters, policy);
        let theirs = theirs.expect("a subject");
        let left = left_by_streams(&simulator.machine(), &theirs, &parameters);
        assert_eq!(left, (0, 0), "{policy:?}");
    }
}
