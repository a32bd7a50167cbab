//! The registry of metrics against runs, files and sources.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use bursar_experiments::machine_info::MachineKind;
use bursar_experiments::metrics::{named, of_experiment};
use bursar_experiments::verdict::by_seed;
use bursar_experiments::{Plan, Request, experiment_named, names};
use bursar_sim::{Settings, Simulator, Topology};

/// Settings of small runs that measure all that there is.
const RUNS: [(&str, &[&str]); 5] = [
    (
        "memcg-flush",
        &[
            "load=small,reclaimers,streams-100,stated-need,pair,oom-killer,reclaim-loop",
            "variants=combining,unified",
            "readers=6",
            "workers=6",
            "duration_ms=40",
            "read_interval_ms=10",
            "killer_interval_ms=10",
            "proactive_interval_ms=10",
        ],
    ),
    (
        "vmstat-spread",
        &[
            "load=generic",
            "variants=upstream",
            "warm_up_ms=1000",
            "duration_ms=1000",
        ],
    ),
    (
        "pcp-batch-free",
        &[
            "load=exit-storm,stress-10",
            "exiters=4",
            "shells=2",
            "duration_ms=20",
        ],
    ),
    (
        "memcg-stock",
        &[
            "load=drains",
            "variants=seven-slots",
            "limit_percent=105",
            "duration_ms=2",
        ],
    ),
    (
        "arbitration",
        &["load=joins", "variants=velox", "duration_ms=200"],
    ),
];

fn recorded(experiment: &str, assignments: &[&str]) -> BTreeSet<String> {
    let assignments: Vec<_> = assignments
        .iter()
        .chain(&["draws=none"])
        .map(|it| (*it).to_owned())
        .collect();
    let request = Request {
        machine: MachineKind::Sim,
        machine_keys: &[],
        assignments: &assignments,
        is_quick: true,
        seeds: 1,
    };
    let plan =
        Plan::new(experiment_named(experiment).expect("its file"), request).expect(experiment);
    let published = &plan.experiment().published;
    let mut recorded = BTreeSet::new();
    for job in plan.jobs() {
        let simulator = Simulator::new(Settings::new(Topology::new(8, 1, 1000), 1));
        let result = plan.run(&simulator.machine(), job).expect(experiment);
        for (name, metric) in result.metrics.iter() {
            let info = named(name).unwrap_or_else(|| panic!("{name} is not in the registry"));
            assert_eq!(metric.unit(), info.unit, "{name}");
            let mut figures = published.iter().flat_map(|row| &row.figures);
            let is_published = figures.any(|figure| figure.metric == name);
            assert!(
                !is_published || by_seed(metric).is_some(),
                "{name} has no number for each seed"
            );
            recorded.insert(name.to_owned());
        }
    }
    recorded
}

#[test]
fn runs_record_the_entries_of_their_experiment_and_no_others() {
    for (experiment, assignments) in RUNS {
        let entries = of_experiment(experiment).iter();
        let entries: BTreeSet<_> = entries.map(|info| info.name.to_owned()).collect();
        assert_eq!(recorded(experiment, assignments), entries, "{experiment}");
    }
}

#[test]
fn names_are_unique_explained_and_known_to_the_files() {
    let mut all = BTreeSet::new();
    for info in names().flat_map(of_experiment) {
        assert!(all.insert(info.name), "{} twice", info.name);
        assert!(!info.about.is_empty(), "{}", info.name);
    }
    for name in names() {
        let experiment = experiment_named(name).expect("its file");
        let is_variant = |other: &str| experiment.variants.iter().any(|it| it == other);
        let info = |metric: &str| of_experiment(name).iter().find(|info| info.name == metric);
        for it in &experiment.expectations {
            assert!(
                info(&it.metric).is_some() && is_variant(&it.variant),
                "{name}: {it:?}"
            );
        }
        for row in &experiment.published {
            let load = experiment.loads.iter().find(|load| load.name == row.load);
            assert!(
                load.is_some() && is_variant(&row.variant),
                "{name}: {row:?}"
            );
            for key in row.parameters.keys() {
                assert!(experiment.parameters.contains_key(key), "{name}: {key}");
            }
            for figure in &row.figures {
                assert!(info(&figure.metric).is_some(), "{name}: {}", figure.metric);
                let others = [figure.rule.baseline(), figure.rule.control()];
                assert!(
                    others.into_iter().flatten().all(is_variant),
                    "{name}: {figure:?}"
                );
            }
        }
    }
}

/// Directories whose documents have names of their own: what explorations measure.
const OTHERS: [&str; 2] = ["explore", "protocols"];

fn sources(directory: &Path, found: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(directory).expect("a directory") {
        let path = entry.expect("an entry").path();
        if path.is_dir() && !OTHERS.iter().any(|other| path.ends_with(other)) {
            sources(&path, found);
        } else if path.extension().is_some_and(|it| it == "rs") && !path.ends_with("src/metrics.rs")
        {
            found.push(path);
        }
    }
}

#[test]
fn no_source_but_the_registry_spells_a_name() {
    let lab = Path::new(env!("CARGO_MANIFEST_DIR"))
        .parent()
        .expect("the laboratory");
    let mut files = Vec::new();
    for part in ["experiments/src", "cli/src"] {
        sources(&lab.join(part), &mut files);
    }
    for file in files {
        let text = fs::read_to_string(&file).expect("a source");
        for info in names().flat_map(of_experiment) {
            assert!(
                !text.contains(&format!("\"{}\"", info.name)),
                "{}: {}",
                file.display(),
                info.name
            );
        }
    }
}
