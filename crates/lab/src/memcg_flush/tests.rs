//! The experiment in small, on the host: every variant runs, and what holds on any machine holds.

use bursar_machine::Host;

use super::outcome::BUCKETS;
use super::*;
use crate::document::VariantResult;
use crate::experiment::Experiment;
use crate::measure::Metric;

fn quick() -> (Experiment, Parameters) {
    let experiment = Experiment::parse(FILE)
        .expect("the experiment's file")
        .quick();
    let parameters: Parameters = experiment.parameters().expect("its parameters");
    parameters.check().expect("in their ranges");
    (experiment, parameters)
}

fn ratio(result: &VariantResult, name: &str) -> f64 {
    match result.metrics.get(name) {
        Some(Metric::Ratio { value, .. }) => *value,
        other => panic!("{name} of {}: {other:?}", result.name),
    }
}

fn number(result: &VariantResult, name: &str) -> u64 {
    match result.metrics.get(name) {
        Some(Metric::Count { value, .. }) => *value,
        Some(Metric::Distribution(distribution)) => distribution.samples,
        other => panic!("{name} of {}: {other:?}", result.name),
    }
}

#[test]
fn every_variant_runs_and_measures() {
    let host = Host::start().expect("the host has a backend");
    let (experiment, parameters) = quick();
    for name in &experiment.variants {
        let mut outcome = run(&host, name, &parameters).expect("a run");
        outcome.merge(&run(&host, name, &parameters).expect("another run"));
        let result = outcome.result();
        assert_eq!(&result.name, name);
        assert!(number(&result, "read_latency") > 0, "{name}");
        assert!(number(&result, "worker_runtime") > 0, "{name}");
        assert_eq!(
            number(&result, "staleness"),
            number(&result, "read_latency"),
            "{name}"
        );
        let buckets: f64 = BUCKETS
            .iter()
            .map(|bucket| ratio(&result, bucket.name))
            .sum();
        assert!(
            (buckets - 1.0).abs() < 1e-9,
            "{name}: each read is in one bucket"
        );
        if name == "combining" {
            assert_eq!(
                ratio(&result, "broken_reads"),
                0.0,
                "an exact read missed an update"
            );
        }
        if name == "periodic-only" {
            assert!(
                ratio(&result, "broken_reads") > 0.0,
                "a cached read has no update since the last flush"
            );
        }
    }
}

#[test]
fn the_file_names_variants_and_metrics_that_exist() {
    let (experiment, parameters) = quick();
    for name in &experiment.variants {
        assert!(
            Variant::named(name, parameters.max_waiters).is_some(),
            "{name}"
        );
    }
    let names: Vec<_> = BUCKETS
        .iter()
        .map(|bucket| bucket.name)
        .chain(["broken_reads"])
        .collect();
    let of_expectations = experiment
        .expectations
        .iter()
        .map(|e| (&e.variant, &e.metric));
    let of_figures = experiment
        .published
        .iter()
        .map(|figure| (&figure.variant, &figure.metric));
    for (variant, metric) in of_expectations.chain(of_figures) {
        assert!(experiment.variants.contains(variant), "{variant}");
        assert!(names.contains(&metric.as_str()), "{metric}");
    }
    Experiment::parse(FILE)
        .expect("the experiment's file")
        .parameters::<Parameters>()
        .expect("its parameters")
        .check()
        .expect("in their ranges");
}

#[test]
fn parameters_that_measure_nothing_are_refused() {
    for wrong in [
        "readers=0",
        "workers=0",
        "tenants=0",
        "queries=0",
        "duration_ms=0",
        "read_interval_ms=0",
        "flush_period_ms=0",
        "working_set_pages=0",
        "readers=1000000000",
        "read_interval_ms=60000",
        "queries=100000",
    ] {
        let (mut experiment, _) = quick();
        experiment
            .set(wrong)
            .expect("the key exists and the value is a number");
        let parameters: Parameters = experiment.parameters().expect("the types are right");
        let error = parameters.check().expect_err(wrong);
        assert!(
            matches!(error, crate::experiment::ParameterError::Range { .. }),
            "{wrong}"
        );
    }
}
