use super::*;
use crate::experiment::PublishedRow;
use crate::machine_info::{HostInfo, SimInfo};
use crate::measure::{Figure, Metric, Share, Unit};
use crate::metrics::memcg_flush::*;
use crate::verdict::{Basis, Row, Ruling, SEEDS_NEEDED};

const EXPERIMENT: &str = "memcg-flush";

fn plan(machine: MachineKind, assignments: &[&str], seeds: u64) -> Plan {
    let assignments: Vec<_> = assignments.iter().map(|&text| text.to_owned()).collect();
    let request = Request {
        machine,
        machine_keys: &["cpus"],
        assignments: &assignments,
        is_quick: false,
        seeds,
    };
    Plan::new(experiment_named(EXPERIMENT).expect("the file"), request).expect("a plan")
}

fn host() -> MachineInfo {
    MachineInfo::Host(HostInfo {
        cpus: 384,
        nodes: 1,
        model: "a model".to_owned(),
        system: "a system".to_owned(),
        backend: "a backend".to_owned(),
    })
}

fn sim(cpus: usize) -> MachineInfo {
    MachineInfo::Sim(SimInfo {
        cpus,
        nodes: 2,
        hz: 1000,
        topology: format!(
            "cpus={cpus},nodes=2,cluster=16,threads=2,hz=1000,lock=queued,preempt=kernel"
        ),
        model: "a cost model".to_owned(),
    })
}

/// A document in which `variant` has these shares with `seeds` seeds.
fn document(mut document: Document, variant: &str, seeds: u64, shares: &[(&str, f64)]) -> Document {
    let result = document
        .variants
        .iter_mut()
        .find(|result| result.name == variant)
        .expect("a variant of the plan");
    for seed in 0..seeds {
        let mut metrics = Metrics::default();
        for (metric, share) in shares {
            let part = (share * 100_000.0) as u64;
            metrics.push(metric, Metric::Ratio(Share::of(seed, part, 100_000)));
        }
        let one = VariantResult {
            ran_seeds: vec![seed],
            metrics,
            ..result.clone()
        };
        if seed == 0 {
            *result = one;
        } else {
            result.merge(&one).expect("the same metrics");
        }
    }
    document.conclude();
    document
}

fn broken(part: f64) -> Document {
    let plan = plan(MachineKind::Host, &[], 1);
    let empty = plan.document(0, host(), "a revision");
    document(empty, "combining", 1, &[(BROKEN_READS.name, part)])
}

#[test]
fn one_broken_read_fails_the_expectation() {
    assert!(broken(0.0).holds());
    assert!(!broken(0.5).holds());
}

#[test]
fn what_did_not_run_is_not_judged() {
    let plan = plan(MachineKind::Host, &[], 1);
    let mut document = plan.document(0, host(), "a revision");
    document.conclude();
    assert!(document.holds() && document.expectations.is_empty());
}

#[test]
fn no_reads_keep_no_promise() {
    let plan = plan(MachineKind::Host, &[], 1);
    let mut document = plan.document(0, host(), "a revision");
    let combining = document.variants.iter_mut();
    for variant in combining.filter(|it| it.name == "combining") {
        let nothing = Metric::Ratio(Share::of(1, 0, 0));
        variant.metrics.push(BROKEN_READS.name, nothing);
    }
    document.conclude();
    assert!(document.expectations.is_empty());
}

#[test]
fn the_range_of_a_figure_has_all_seeds() {
    let mut figure = Figure::of(Unit::Ns, 1, 1.0);
    (2..=20).for_each(|seed| figure.merge(&Figure::of(Unit::Ns, seed, seed as f64)));
    assert_eq!((figure.lo(), figure.hi()), (2.0, 19.0));
    let mut variant = simulated(0, sim(384)).variants.remove(0);
    variant.metrics.push(PAGE_NS.name, Metric::Figure(figure));
    assert_eq!(variant.range(PAGE_NS.name), Some((1.0, 20.0)));
}

#[test]
fn the_document_has_the_keys_of_its_schema_and_can_be_read_back() {
    let written = broken(0.0);
    let json = serde_json::to_value(&written).expect("json");
    for key in [
        "schema",
        "experiment",
        "machine",
        "seeds",
        "variants",
        "verdicts",
        "experiment_hash",
        "revision",
    ] {
        assert!(json.get(key).is_some(), "{key}");
    }
    assert_eq!(
        json["variants"][0]["metrics"][BROKEN_READS.name]["unit"],
        "ratio"
    );
    assert!(json.get("interrupted").is_none());
    let text = serde_json::to_string(&written).expect("json");
    let back: Document = serde_json::from_str(&text).expect("the document");
    back.check().expect("its own document");
    assert_eq!(back, written);
}

#[test]
fn all_variants_run_with_one_seed_before_any_runs_with_the_next() {
    let quick = [
        "variants=combining,direct",
        "seed=7",
        "read_interval_ms=1,2",
    ];
    let plan = plan(MachineKind::Host, &quick, 2);
    let jobs = plan.jobs();
    let named: Vec<_> = jobs[..4]
        .iter()
        .map(|job| format!("{} {}", plan.variant(*job), job.seed))
        .collect();
    assert_eq!(
        named,
        ["combining 7", "direct 7", "combining 8", "direct 8"]
    );
    assert_eq!((jobs.len(), jobs[4].point), (8, 1));
}

#[test]
fn variants_that_no_figure_is_about_run_with_the_first_seeds_only() {
    let mut experiment = experiment_named(EXPERIMENT).expect("the file");
    for load in &mut experiment.loads {
        load.variants = Some(vec!["combining".to_owned(), "coalesced".to_owned()]);
        load.beside = vec!["combining".to_owned()];
    }
    let request = Request {
        machine: MachineKind::Sim,
        machine_keys: &[],
        assignments: &["load=readers-10ms".to_owned()],
        is_quick: false,
        seeds: 2,
    };
    let plan = Plan::new(experiment.clone(), request).expect("a plan");
    let ran = |plan: &Plan| -> Vec<String> {
        let jobs = plan.jobs().into_iter();
        jobs.map(|job| format!("{} {}", plan.variant(job), job.seed))
            .collect()
    };
    assert_eq!(ran(&plan), ["combining 1", "coalesced 1", "coalesced 2"]);
    let named = [
        "load=readers-10ms".to_owned(),
        "variants=combining".to_owned(),
    ];
    let request = Request {
        assignments: &named,
        ..request
    };
    let plan = Plan::new(experiment, request).expect("a plan");
    assert_eq!(ran(&plan), ["combining 1", "combining 2"]);
}

#[test]
fn a_run_has_its_own_seed() {
    let quick = ["duration_ms=10", "read_interval_ms=1", "workers=1"];
    let plan = plan(MachineKind::Host, &quick, 2);
    let host = bursar_machine::Host::start().expect("the host has a backend");
    let result = plan.run(&host, plan.jobs()[6]).expect("a run");
    assert_eq!(
        (result.name.as_str(), result.ran_seeds),
        ("combining", vec![2])
    );
}

#[test]
fn names_and_files_agree() {
    for name in names() {
        assert_eq!(experiment_named(name).expect(name).name, name);
    }
    assert_eq!(
        experiment_named("nothing").unwrap_err(),
        Error::Unknown("nothing".to_owned())
    );
}

/// The simulated machine's points, as the file has them.
fn simulated(point: usize, machine: MachineInfo) -> Document {
    let plan = plan(MachineKind::Sim, &[], 1);
    plan.document(point, machine, "a revision")
}

fn published(row: Row) -> PublishedRow {
    let experiment = experiment_named(EXPERIMENT).expect("the file");
    let mut rows = experiment.published.into_iter();
    rows.find(|published| published.row == row)
        .expect("a row of each kind")
}

fn figures(row: &PublishedRow) -> Vec<(&str, f64)> {
    let figures = row.figures.iter();
    figures
        .map(|figure| (figure.metric.as_str(), figure.published))
        .collect()
}

#[test]
fn published_figures_are_for_their_own_machine_and_load_only() {
    assert_eq!(simulated(0, sim(384)).verdicts[0].row, Row::Calibration);
    assert_eq!(simulated(1, sim(384)).verdicts[0].row, Row::Prediction);
    assert!(simulated(0, sim(72)).verdicts.is_empty());
    assert!(simulated(0, host()).verdicts.is_empty());
    let plan = plan(MachineKind::Sim, &["readers=9999", "load=readers-10ms"], 1);
    assert!(plan.document(0, sim(384), "").verdicts.is_empty());
}

#[test]
fn a_document_states_no_value_for_what_each_seed_draws() {
    let stated = |assignments: &[&str]| {
        let plan = plan(MachineKind::Sim, assignments, 1);
        plan.document(0, sim(384), "").parameters["compute_ns"].clone()
    };
    assert_eq!(stated(&[]).as_str(), Some("drawn"));
    assert_eq!(stated(&["draws=none"]).as_integer(), Some(200_000));
    assert_eq!(stated(&["compute_ns=7"]).as_integer(), Some(7));
    assert_eq!(stated(&["load=workers"]).as_str(), Some("drawn"));
}

/// Or `compare` would take other draws for the same.
#[test]
fn an_ensemble_is_its_model_and_all_that_is_drawn() {
    let ensemble = |change: &dyn Fn(&mut Experiment)| {
        let mut experiment = experiment_named(EXPERIMENT).expect("the file");
        change(&mut experiment);
        let request = Request {
            machine: MachineKind::Sim,
            machine_keys: &[],
            assignments: &[],
            is_quick: false,
            seeds: 1,
        };
        Plan::new(experiment, request).expect("a plan").ensemble()
    };
    let own = ensemble(&|_| ());
    assert_eq!(own, ensemble(&|_| ()));
    let raise = |value: Option<&mut u64>| *value.expect("a value") += 1;
    type Change = fn(&mut Experiment, &dyn Fn(Option<&mut u64>));
    let changes: [Change; 3] = [
        |it, _| it.draws.model.push('0'),
        |it, raise| raise(it.draws.accepted[3].costs.values_mut().next()),
        |it, raise| raise(it.draws.accepted[3].parameters.values_mut().next()),
    ];
    for (place, change) in changes.into_iter().enumerate() {
        assert_ne!(own, ensemble(&|it| change(it, &raise)), "{place}");
    }
}

/// As if the runs had been draws of what is uncertain.
fn of_ensemble(mut document: Document) -> Document {
    document.draws = SEEDS_NEEDED as u64;
    document
        .verdicts
        .iter_mut()
        .for_each(|verdict| verdict.basis = Basis::Ensemble);
    document
}

#[test]
fn what_the_file_does_not_say_is_a_what_if() {
    let one_model = plan(MachineKind::Sim, &["draws=none"], 1);
    let own = one_model.document(1, sim(384), "a revision");
    assert_eq!(own.verdicts[0].basis, Basis::OneModel);
    for changed in ["workers=1", "duration_ms=11", "compute_ns=1"] {
        let plan = plan(MachineKind::Sim, &[changed, "load=readers-10ms"], 1);
        let document = plan.document(0, sim(384), "");
        assert_eq!(document.verdicts[0].basis, Basis::WhatIf, "{changed}");
    }
    let other = MachineInfo::Sim(SimInfo {
        topology: "cpus=384,lock=unfair".to_owned(),
        ..match sim(384) {
            MachineInfo::Sim(info) => info,
            MachineInfo::Host(_) => unreachable!("asked for a simulated one"),
        }
    });
    assert_eq!(simulated(1, other).verdicts[0].basis, Basis::WhatIf);
}

#[test]
fn what_was_published_is_reproduced_by_itself_but_never_on_the_calibration_row() {
    for (point, row, expected) in [
        (0, Row::Calibration, None),
        (1, Row::Prediction, Some(Ruling::Reproduced)),
    ] {
        let row = published(row);
        let document = document(
            of_ensemble(simulated(point, sim(384))),
            &row.variant,
            SEEDS_NEEDED as u64,
            &figures(&row),
        );
        assert_eq!(document.verdicts.len(), row.figures.len());
        for verdict in &document.verdicts {
            assert_eq!(verdict.verdict, expected, "{verdict:?}");
        }
    }
}

#[test]
fn no_effect_does_not_score_reproduced() {
    let prediction = published(Row::Prediction);
    let all_fast = prediction.figures.iter().map(|figure| {
        let fast = figure.metric == READS_UNDER_100US.name;
        (figure.metric.as_str(), if fast { 1.0 } else { 0.0 })
    });
    let all_fast: Vec<_> = all_fast.collect();
    // Reading ten times as often changes nothing.
    let calibration = published(Row::Calibration);
    let mut unchanged = figures(&calibration);
    unchanged.push((READS_10MS_TO_100MS.name, 0.0));
    for null in [all_fast, unchanged] {
        for seeds in [1, SEEDS_NEEDED as u64, 200] {
            let simulated = of_ensemble(simulated(1, sim(384)));
            let document = document(simulated, "coalesced", seeds, &null);
            assert_eq!(document.verdicts.len(), prediction.figures.len());
            for verdict in &document.verdicts {
                assert_ne!(verdict.verdict, Some(Ruling::Reproduced), "{verdict:?}");
            }
        }
    }
}
