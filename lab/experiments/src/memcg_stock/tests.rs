//! Runs of the experiment on small machines.

use bursar_machine::Host;
use bursar_sim::{Settings, Simulator, Topology};

use super::*;
use crate::document::VariantResult;
use crate::experiment_named;
use crate::measure::{Metric, Of};
use crate::metrics::memcg_stock::*;
use crate::workload::Sizing;

const VARIANTS: [&str; 4] = ["bursar", "one-slot", "seven-slots", "per-counter"];

fn load(name: &str) -> Parameters {
    let experiment = experiment_named("memcg-stock").expect("its file");
    let load = experiment.loads.iter().find(|load| load.name == name);
    let mut table = experiment.parameters.clone();
    table.extend(load.expect("a load").parameters.clone());
    let all: Parameters = table.try_into().expect("its parameters");
    Parameters {
        duration_ms: 2,
        ..all
    }
}

fn on_sim(variant: &str, parameters: &Parameters) -> VariantResult {
    let simulator = Simulator::new(Settings::new(Topology::new(4, 1, 1000), 1));
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

#[test]
fn the_largest_limit_is_no_small_one() {
    let parameters = Parameters {
        charge_pages: 1 << 20,
        cycle_charges: 1 << 20,
        limit_percent: 1_000_000,
        ..load("near-limit")
    };
    assert_eq!(parameters.limit_pages(4_096), Some(u64::MAX / 100));
}

#[test]
fn slots_that_are_too_few_are_walks_and_evictions() {
    for (groups, walks) in [(1, false), (6, true), (36, true)] {
        let parameters = Parameters {
            groups,
            ..load("alternate")
        };
        let of = |variant| {
            let result = on_sim(variant, &parameters);
            (
                figure(&result, WALKS_PER_CHARGE.name),
                figure(&result, EVICTIONS_PER_CHARGE.name),
            )
        };
        let (one, seven, each) = (of("one-slot"), of("seven-slots"), of("per-counter"));
        assert_eq!(one.1 > 0.5, walks, "{groups} groups: {one:?}");
        assert_eq!(seven.1 > 0.5, groups > 7, "{groups} groups: {seven:?}");
        assert_eq!(each.1, 0.0);
        assert!(
            each.0 <= seven.0 && seven.0 <= one.0,
            "{one:?} {seven:?} {each:?}"
        );
    }
}

/// The sampler waits for a slice of a CPU.
#[test]
fn more_stock_is_more_pages_stranded() {
    let parameters = Parameters {
        groups: 36,
        duration_ms: 20,
        ..load("alternate")
    };
    let of = |variant| {
        let result = on_sim(variant, &parameters);
        let number = result.number(STRANDED_PAGES.name, Of::Max);
        number.expect("samples").0
    };
    let (one, each) = (of("one-slot"), of("per-counter"));
    assert!(one > 0.0 && one < each, "{one} {each}");
}

#[test]
fn bursar_refuses_nothing_that_fits() {
    let parameters = load("near-limit");
    for variant in VARIANTS {
        let result = on_sim(variant, &parameters);
        let [early, in_spite] =
            [REFUSED_EARLY, REFUSED_IN_SPITE].map(|info| figure(&result, info.name));
        match variant {
            "bursar" => assert_eq!((early, in_spite), (0.0, 0.0)),
            // It has too little stock to refuse anything here.
            "one-slot" => {}
            _ => assert!(
                early > 0.0 && in_spite > 0.0,
                "{variant}: {early} {in_spite}"
            ),
        }
    }
}

#[test]
fn every_load_ends_with_nothing_charged_on_both_machines() {
    let host = Host::start().expect("the host has a backend");
    for name in ["alternate", "near-limit", "come-and-go", "drains"] {
        for variant in VARIANTS {
            let parameters = load(name);
            on_sim(variant, &parameters);
            parameters.run(&host, variant).expect(variant);
        }
    }
}

#[test]
fn too_many_groups_are_refused_by_name() {
    let parameters = Parameters {
        groups: 4_096,
        group_sets: 64,
        ..load("alternate")
    };
    let error = parameters.check().expect_err("too many").to_string();
    assert!(error.contains("group_sets"), "{error}");
}
