use super::*;
use crate::document::{ExpectationResult, SCHEMA, VariantResult};
use crate::machine_info::{MachineInfo, SimInfo};
use crate::measure::{Metric, Samples, Share, Unit};

/// A document of `seeds`, on `cpus` CPUs.
fn document(cpus: usize, seeds: &[u64]) -> Document {
    let machine = MachineInfo::Sim(SimInfo {
        cpus,
        nodes: 1,
        hz: 250,
        topology: format!("cpus={cpus}"),
        model: "a cost model".to_owned(),
    });
    let mut document = Document {
        schema: SCHEMA,
        experiment: "x".to_owned(),
        title: "x".to_owned(),
        experiment_hash: "a hash".to_owned(),
        revision: "a revision".to_owned(),
        machine,
        parameters: Table::from_iter([
            (SEED.to_owned(), 1.into()),
            ("readers".to_owned(), 10.into()),
        ]),
        seed: 0,
        seeds: 0,
        draws: 0,
        interrupted: false,
        variants: vec![variant("one", seeds), variant("two", seeds)],
        expectations: vec![ExpectationResult {
            variant: "one".to_owned(),
            metric: "share".to_owned(),
            at_most: 0.1,
            measured: 0.0,
            holds: true,
            reason: String::new(),
        }],
        verdicts: Vec::new(),
    };
    document.conclude();
    document
}

fn variant(name: &str, seeds: &[u64]) -> VariantResult {
    let mut sum = VariantResult {
        name: name.to_owned(),
        summary: String::new(),
        ran_seeds: Vec::new(),
        metrics: Metrics::default(),
    };
    for &seed in seeds {
        let mut samples = Samples::new(Unit::Ns);
        (0..100).for_each(|nth| samples.record(seed * nth * nth));
        let mut metrics = Metrics::default();
        metrics.push("time", Metric::Distribution(samples.distribution()));
        metrics.push("share", Metric::Ratio(Share::of(seed, seed, 100)));
        metrics.push("count", Metric::Count(seed));
        let one = VariantResult {
            ran_seeds: vec![seed],
            metrics,
            ..sum.clone()
        };
        sum.merge(&one).expect("the same metrics");
    }
    sum
}

fn source(name: &str, documents: Vec<Document>) -> Source {
    Source {
        name: name.to_owned(),
        documents,
    }
}

fn refused(sources: &[Source]) -> String {
    merge(sources).expect_err("a difference").to_string()
}

#[test]
fn parts_make_the_whole_in_any_order() {
    let parts = [
        source("a", vec![document(8, &[2, 5]), document(4, &[2, 5])]),
        source("b", vec![document(8, &[3]), document(4, &[3])]),
        source("c", vec![document(8, &[1, 4]), document(4, &[1, 4])]),
    ];
    let whole = [8, 4].map(|cpus| document(cpus, &[1, 2, 3, 4, 5]));
    assert_eq!(merge(&parts).expect("a whole"), whole);
    let [a, b, c] = parts;
    assert_eq!(merge(&[c, b, a]).expect("a whole"), whole);
}

#[test]
fn a_merged_expectation_is_judged_anew() {
    let parts = [
        source("a", vec![document(8, &[1])]),
        source("b", vec![document(8, &[90])]),
    ];
    let whole = merge(&parts).expect("a whole");
    assert!(parts[0].documents[0].holds() && !whole[0].holds());
}

#[test]
fn an_interrupted_part_may_lack_points_and_runs() {
    let mut interrupted = document(8, &[2]);
    interrupted.interrupted = true;
    interrupted.variants[1] = variant("two", &[]);
    let parts = [
        source("a", vec![interrupted]),
        source("b", vec![document(8, &[1]), document(4, &[1])]),
    ];
    let whole = merge(&parts).expect("a whole");
    assert_eq!(whole.len(), 2);
    assert!(whole[0].interrupted && !whole[1].interrupted);
    assert_eq!(whole[0].variants[0].ran_seeds, [1, 2]);
    assert_eq!(whole[0].variants[1].ran_seeds, [1]);
}

#[test]
fn later_seeds_can_be_added() {
    let mut later = document(8, &[21]);
    later.parameters.insert(SEED.to_owned(), 21.into());
    let whole = merge(&[
        source("a", vec![later]),
        source("b", vec![document(8, &[1])]),
    ]);
    assert_eq!(whole.expect("a whole"), [document(8, &[1, 21])]);
}

#[test]
fn a_seed_in_two_files_is_named_with_both() {
    let error = refused(&[
        source("a", vec![document(8, &[1, 2])]),
        source("b", vec![document(8, &[2, 3])]),
    ]);
    assert_eq!(error, "`one` has seed 2 in a and in b");
    let error = refused(&[source("a", vec![document(8, &[1]), document(8, &[1])])]);
    assert_eq!(error, "`one` has seed 1 twice in a");
}

#[test]
fn parts_of_different_runs_are_refused_with_what_differs() {
    type Change = fn(&mut Document);
    let changes: [(Change, &[&str]); 7] = [
        (
            |other| other.experiment_hash = "another hash".to_owned(),
            &["experiment's file", "a hash in a", "another hash in b"],
        ),
        (
            |other| other.revision = "another revision".to_owned(),
            &["the revision", "a revision in a", "another revision in b"],
        ),
        (
            |other| {
                if let MachineInfo::Sim(sim) = &mut other.machine {
                    sim.model = "another cost model".to_owned();
                }
            },
            &["cost model", "a cost model in a", "another cost model in b"],
        ),
        (
            |other| *other = document(4, &[2]),
            &["the machine", "sim:cpus=8 in a", "sim:cpus=4 in b"],
        ),
        (
            |other| {
                other.parameters.insert("readers".to_owned(), 11.into());
            },
            &["parameter `readers`", "10 in a", "11 in b"],
        ),
        (
            |other| {
                other.variants.pop();
            },
            &["list of variants", "one, two in a", "one in b"],
        ),
        (
            |other| {
                let mut metrics = Metrics::default();
                metrics.push("time", Metric::Count(3));
                other.variants[0].metrics = metrics;
            },
            &["b: `time` of `one`"],
        ),
    ];
    for (change, parts) in changes {
        let mut other = document(8, &[2]);
        change(&mut other);
        let error = refused(&[
            source("a", vec![document(8, &[1])]),
            source("b", vec![other]),
        ]);
        for part in parts {
            assert!(error.contains(part), "{part} is not in {error}");
        }
    }
}
