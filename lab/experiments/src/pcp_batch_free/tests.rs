//! The experiment in small.

use crate::metrics::pcp_batch_free::*;
use bursar_machine::Host;
use bursar_rig::timer::Timers;
use bursar_sim::{Settings, Sim, Simulator, Topology};

use super::*;
use crate::document::VariantResult;
use crate::experiment::Experiment;
use crate::machine_info::MachineKind;
use crate::measure::Of;
use crate::settings::Settings as Choice;
use crate::verdict::{Basis, Ruling};
use crate::workload::Sizing as _;
use bursar_kernel::pages::ZONE_PAGE_NS;

const SMALL: Parameters = Parameters {
    seed: 1,
    duration_ms: 5,
    memory_gib: 4,
    memory_per_cpu_gib: 0,
    swap_gib: 0,
    sized_for_cpus: 0,
    scale: 1,
    batch_pages: 0,
    drains_in_batches: false,
    zone_page_ns: ZONE_PAGE_NS,
    watchdog_us: 100,
    touch_ns: 1_000,
    unmap_ns: 240,
    rewrite_ns: 400,
    swap_io_ns: 40_000,
    bystanders: 2,
    bystander_pages: 16,
    think_us: 50,
    exiters: 0,
    exiter_mib: 16,
    settle_periods: 0,
    freers: 0,
    list_pages: 4_096,
    drains: 0,
    decay_period_ms: 0,
    listed_pages: 0,
    workers: 0,
    worker_mib: 64,
    rewrites: 2,
    shells: 0,
    processes: 10,
    process_mib: 8,
    process_doublings: 4,
    page_compute_ns: 0,
    has_tuned_lists: true,
};

/// As the file has it.
const FILE: &str = include_str!("../../experiments/pcp-batch-free.toml");

/// Exits on a machine whose lists are those of the published one.
const STORM: Parameters = Parameters {
    memory_gib: 1024,
    sized_for_cpus: 316,
    exiters: 6,
    exiter_mib: 32,
    settle_periods: 40,
    ..SMALL
};

fn loads() -> [(&'static str, Parameters); 6] {
    [
        (
            "exit",
            Parameters {
                exiters: 4,
                ..SMALL
            },
        ),
        ("long", Parameters { freers: 2, ..SMALL }),
        (
            "decay",
            Parameters {
                decay_period_ms: 20,
                duration_ms: 50,
                listed_pages: 8_192,
                ..SMALL
            },
        ),
        (
            "drain",
            Parameters {
                drains: 1,
                listed_pages: 8_192,
                ..SMALL
            },
        ),
        (
            "stress",
            Parameters {
                workers: 3,
                worker_mib: 512 * 64,
                memory_gib: 64,
                swap_gib: 64,
                scale: 64,
                bystanders: 0,
                duration_ms: 40,
                ..SMALL
            },
        ),
        ("boot", Parameters { shells: 2, ..SMALL }),
    ]
}

fn on_sim<R>(cpus: usize, seed: u64, test: impl FnOnce(&Sim) -> R) -> R {
    let simulator = Simulator::new(Settings::new(Topology::new(cpus, 1, 1000), seed));
    test(&simulator.machine())
}

#[test]
fn every_variant_runs_every_load() {
    for (name, ..) in Parameters::variants() {
        for (load, parameters) in loads() {
            parameters.check().expect(load);
            let on_sim = on_sim(8, 1, |machine| parameters.run(machine, name));
            on_sim.unwrap_or_else(|error| panic!("{load} simulated: {error}"));
            let host = Host::start().expect("the host has a backend");
            let on_host = parameters.run(&host, name);
            on_host.unwrap_or_else(|error| panic!("{load} on the host: {error}"));
        }
    }
}

fn file() -> Experiment {
    Experiment::parse(FILE, "").expect("the experiment's file")
}

fn run<M: Timers>(machine: &M, parameters: &Parameters, name: &str) -> VariantResult {
    let result = parameters.run(machine, name);
    result.unwrap_or_else(|error| panic!("{error}"))
}

fn number(result: &VariantResult, name: &str) -> f64 {
    let number = result
        .number(name, Of::Value)
        .or_else(|| result.number(name, Of::Max));
    number.unwrap_or_else(|| panic!("no number {name}")).0
}

#[test]
fn whole_frees_2016_pages_under_one_hold_and_the_others_a_batch() {
    for (variant, most_pages, is_long) in [
        ("whole", 2_016.0, true),
        ("batched", 63.0, false),
        ("bounded", 63.0, false),
    ] {
        let result = on_sim(8, 1, |machine| run(machine, &STORM, variant));
        let pages = number(&result, PAGES_PER_HOLD.name);
        assert!(
            pages <= most_pages && pages > most_pages / 2.0,
            "{variant}: {pages}"
        );
        assert_eq!(
            number(&result, HOLDS_OVER_1000.name) > 0.0,
            is_long,
            "{variant}"
        );
        assert_eq!(
            number(&result, LONG_HOLD_SHARE.name) > 0.0,
            is_long,
            "{variant}"
        );
        assert_eq!(
            number(&result, OPERATIONS.name),
            (6 * 32 * 256) as f64,
            "{variant}"
        );
    }
    // A task that waits for six others that free 63 pages each waits for less than one that waits for a single task
    // that frees 2,016.
    let [whole, batched] = ["whole", "batched"].map(|variant| {
        on_sim(8, 1, |machine| {
            number(&run(machine, &STORM, variant), LOCK_WAIT.name)
        })
    });
    assert!(whole > 3.0 * batched, "{whole} and {batched} ns");
}

#[test]
fn what_is_freed_under_one_hold_can_be_set() {
    for (variant, batch_pages, most_pages) in [
        ("batched", 1, 1.0),
        ("batched", 4_096, 2_016.0),
        ("whole", 1, 2_016.0),
        ("bounded", 8, 8.0),
    ] {
        let parameters = Parameters {
            batch_pages,
            ..STORM
        };
        let result = on_sim(8, 1, |machine| run(machine, &parameters, variant));
        let pages = number(&result, PAGES_PER_HOLD.name);
        // The library's histogram says it to a quarter.
        let is_it = (most_pages..=most_pages * 1.25).contains(&pages);
        assert!(is_it, "{variant} by {batch_pages}: {pages}");
    }
}

#[test]
fn drains_go_by_batches_where_they_are_told_to() {
    for (drains_in_batches, is_long) in [(false, true), (true, false)] {
        let parameters = Parameters {
            drains_in_batches,
            ..loads()[3].1
        };
        let result = on_sim(8, 1, |machine| run(machine, &parameters, "batched"));
        let long = number(&result, DRAINS_OVER_2000.name);
        assert_eq!(long > 0.0, is_long, "{long}");
        // Bystanders have some of them.
        assert!(number(&result, DRAINED_PAGES.name) > 7.0 * 8_192.0);
    }
}

#[test]
fn pages_of_exits_and_of_bystanders_add_up() {
    let result = on_sim(8, 1, |machine| run(machine, &STORM, "batched"));
    let of = |metric: crate::metrics::MetricInfo| number(&result, metric.name);
    let (exits, beside) = (of(OPS_PER_SECOND), of(BYSTANDER_PAGES_PER_SECOND));
    assert!(exits > 0.0 && beside > 0.0);
    assert_eq!(of(ALL_PAGES_PER_SECOND), exits + beside);
}

#[test]
fn a_page_takes_as_long_under_the_lock_in_every_experiment() {
    let others = crate::experiment_named("vmstat-spread").expect("its file");
    for of in [file(), others] {
        let value = of.parameters.get("zone_page_ns");
        assert_eq!(
            value.and_then(|it| it.as_integer()),
            Some(ZONE_PAGE_NS as i64)
        );
        assert_eq!(
            of.uncertain["zone_page_ns"],
            toml::Value::from(vec![87, 280])
        );
    }
}

#[test]
fn the_same_seed_gives_the_same_run_and_another_another() {
    let of_seed = |seed| {
        let parameters = Parameters { seed, ..STORM };
        on_sim(8, seed, |machine| {
            run(machine, &parameters, "batched").metrics
        })
    };
    assert_eq!(of_seed(1), of_seed(1));
    assert_ne!(of_seed(1), of_seed(2));
}

#[test]
fn memory_that_does_not_suffice_is_swapped() {
    let (_, stress) = loads()[4];
    for (memory_gib, swaps) in [(64, true), (256, false)] {
        let parameters = Parameters {
            memory_gib,
            worker_mib: 30 << 10,
            duration_ms: 200,
            ..stress
        };
        for variant in ["batched", "bounded"] {
            let result = on_sim(8, 1, |machine| run(machine, &parameters, variant));
            let swapped = number(&result, PAGES_SWAPPED_OUT.name);
            assert_eq!(swapped > 0.0, swaps, "{variant}: {swapped}");
            assert!(number(&result, OPS_PER_SECOND.name) > 0.0);
            let seconds = number(&result, OPERATIONS.name) / number(&result, OPS_PER_SECOND.name);
            let cpu_seconds =
                number(&result, OPERATIONS.name) / number(&result, OPS_PER_CPU_SECOND.name);
            // Three workers, which sleep when they read from swap.
            assert!(
                cpu_seconds < 3.01 * seconds,
                "{cpu_seconds} of 3 times {seconds}"
            );
        }
    }
}

/// Each load of the file on each machine, in both forms.
fn of_file(kind: MachineKind, is_quick: bool) -> Vec<(String, Parameters, Vec<String>)> {
    let experiment = file();
    let mut choice = Choice::new(&experiment, kind, &[], is_quick).expect("the file");
    let names: Vec<&str> = experiment.loads.iter().map(|load| &*load.name).collect();
    choice
        .set(&format!("load={}", names.join(",")))
        .expect("its loads");
    let points = choice.points().expect("one each");
    let read = |point: crate::settings::Point| {
        let parameters: Parameters = point.parameters.try_into().expect("all are known");
        (point.load, parameters, point.variants)
    };
    points.into_iter().map(read).collect()
}

#[test]
fn the_loads_of_the_file_can_be_run_on_both_machines() {
    for kind in [MachineKind::Host, MachineKind::Sim] {
        for is_quick in [false, true] {
            for (load, parameters, variants) in of_file(kind, is_quick) {
                parameters
                    .check()
                    .unwrap_or_else(|error| panic!("{load}: {error}"));
                parameters.check_simulated().expect("few tasks");
                assert!(
                    variants
                        .iter()
                        .all(|name| !Parameters::summary(name).is_empty())
                );
                let seconds = parameters.estimated_seconds(Some(316));
                assert!(seconds > 0.0 && seconds < 60.0, "{load}: {seconds}");
            }
        }
    }
}

/// A policy held against itself has no effect, and no rule of the file may find one.
#[test]
fn a_policy_is_never_reproduced_as_better_than_itself() {
    let mut whole: Option<VariantResult> = None;
    for seed in 1..=20 {
        let small = Parameters {
            exiter_mib: 8,
            watchdog_us: 10,
            seed,
            ..STORM
        };
        let result = on_sim(8, seed, |machine| run(machine, &small, "whole"));
        match &mut whole {
            None => whole = Some(result),
            Some(whole) => whole.merge(&result).expect("the same metrics"),
        }
    }
    let whole = whole.expect("20 runs");
    assert!(number(&whole, STALL_RATE.name) > 0.0);
    for row in file().published {
        for figure in &row.figures {
            let mut verdict = row.unjudged(figure, Basis::Ensemble);
            let is_judged = verdict.judge(|_, metric| whole.metrics.get(metric), 20);
            assert_eq!(is_judged, verdict.metric != OPS_PER_CPU_SECOND.name);
            assert_ne!(verdict.verdict, Some(Ruling::Reproduced), "{verdict:?}");
        }
    }
}

#[test]
fn parameters_that_make_no_sense_are_refused() {
    let wrong = |change: fn(&mut Parameters)| {
        let mut parameters = STORM;
        change(&mut parameters);
        let error = parameters.check().expect_err("it makes none");
        error.to_string()
    };
    for (error, key) in [
        (wrong(|it| it.bystander_pages = 0), "bystander_pages"),
        (wrong(|it| it.batch_pages = 4_097), "batch_pages"),
        (wrong(|it| it.memory_gib = 1 << 13), "memory_gib"),
        (wrong(|it| it.exiters = 0), "nobody else frees"),
        (wrong(|it| it.bystanders = 3), "must be even"),
        (wrong(|it| it.freers = 1), "must be even"),
        (
            wrong(|it| {
                it.memory_gib = 1;
                it.exiter_mib = 200
            }),
            "all divided by `scale`",
        ),
        (wrong(|it| it.exiter_mib = 1 << 19), "can be simulated"),
        (wrong(|it| it.scale = 0), "scale"),
        (wrong(|it| it.duration_ms = 0), "duration_ms"),
    ] {
        assert!(error.contains(key), "{key}: {error}");
    }
    let many = Parameters {
        exiters: 10_000,
        bystanders: 6_000,
        ..STORM
    };
    let error = many.check_simulated().expect_err("too many tasks");
    assert!(error.to_string().contains("15000"), "{error}");
}

#[test]
fn what_only_a_machine_shows_to_make_no_sense_is_an_error_of_the_run() {
    let each = Parameters {
        memory_per_cpu_gib: 1_024,
        sized_for_cpus: 0,
        ..STORM
    };
    let listed = Parameters {
        listed_pages: 1 << 19,
        memory_gib: 8,
        drains: 1,
        exiters: 0,
        ..STORM
    };
    for (parameters, reason) in [(each, "numbered up to"), (listed, "may be half")] {
        for (name, ..) in Parameters::variants() {
            let error = on_sim(8, 1, |machine| parameters.run(machine, name));
            let error = error.expect_err("it makes no sense").to_string();
            assert!(error.contains(reason), "{error}");
        }
    }
}

#[test]
fn each_variant_says_what_it_does() {
    for release in Release::ALL {
        assert_eq!(Parameters::summary(release.name()), release.summary());
    }
    assert!(Parameters::summary("bounded").contains("63 blocks"));
    assert_eq!(Parameters::summary("nobody"), "");
}
