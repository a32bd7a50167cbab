//! The further loads of the experiment `memcg-flush`, in small, on a simulated machine: what each variant must and must not
//! get right.

use bursar_experiments::document::VariantResult;
use bursar_experiments::measure::{Metric, Of, Summary};
use bursar_experiments::memcg_flush::{KillerReads, Parameters, Scope, Site};
use bursar_experiments::workload::{Sizing as _, Workload};
use bursar_sim::{Settings, Simulator, Topology};

const CPUS: usize = 24;
/// Each of the four ticks in a period folds what has changed, so numbers get 50 ms old.
const RARE_FLUSH_MS: u64 = 200;

/// A short run of the experiment with nobody in it yet.
fn nobody() -> Parameters {
    let experiment = bursar_experiments::experiment_named("memcg-flush").expect("the file");
    let mut table = experiment.parameters;
    table.extend(experiment.quick);
    let quick: Parameters = table.try_into().expect("its parameters");
    Parameters {
        readers: 0,
        workers: 0,
        tenants: 8,
        duration_ms: 200,
        flush_period_ms: 50,
        tenant_limit_pages: 10_000,
        ..quick
    }
}

fn run(variant: &str, parameters: &Parameters) -> VariantResult {
    parameters.check().expect("in their ranges");
    let settings = Settings::new(Topology::new(CPUS, 2, 1000), parameters.seed);
    let simulator = Simulator::new(settings);
    let result = parameters.run(&simulator.machine(), variant);
    result.expect("a run")
}

fn ratio(result: &VariantResult, name: &str) -> f64 {
    result.number(name, Of::Value).expect(name).0
}

fn summary(result: &VariantResult, name: &str) -> Summary {
    match result.metrics.get(name) {
        Some(Metric::Distribution(distribution)) => distribution.summary(),
        other => panic!("{name} of {}: {other:?}", result.name),
    }
}

const ALL: [&str; 7] = [
    "combining",
    "combining-fence",
    "periodic-only",
    "unified",
    "direct",
    "coalesced",
    "per-group",
];

/// Tenants that wax and wane twice in a run, and killers.
fn swinging() -> Parameters {
    Parameters {
        workers: 16,
        working_set_pages: 200,
        compute_ns: 10_000,
        swing_percent: 90,
        swing_ms: 100,
        killers: 2,
        ..nobody()
    }
}

#[test]
fn who_reads_exactly_chooses_the_right_victim() {
    let quiet = Parameters {
        workers: 0,
        warm_up_pages: 20,
        ..swinging()
    };
    let result = run("combining", &quiet);
    assert!(summary(&result, "decision_latency").samples > 100);
    assert_eq!(ratio(&result, "wrong_victims"), 0.0);
    for variant in ["combining", "combining-fence"] {
        // Tenants that change places while they are read can still deceive.
        let result = run(variant, &swinging());
        assert!(ratio(&result, "wrong_victims") <= 0.02, "{variant}");
        let shortfall = summary(&result, "victim_shortfall_pages");
        assert!(shortfall.p99 < 50, "{variant}: {shortfall:?}");
    }
}

#[test]
fn who_reads_old_numbers_chooses_wrong_victims_while_tenants_swing() {
    let rarely = Parameters {
        flush_period_ms: RARE_FLUSH_MS,
        ..swinging()
    };
    let result = run("periodic-only", &rarely);
    assert!(ratio(&result, "wrong_victims") > 0.2);
    assert!(summary(&result, "victim_shortfall_pages").max > 50);
}

#[test]
fn a_killer_that_reads_usage_needs_no_flush() {
    let wrong = |killer_reads| {
        let parameters = Parameters {
            flush_period_ms: RARE_FLUSH_MS,
            killer_reads,
            ..swinging()
        };
        ratio(&run("periodic-only", &parameters), "wrong_victims")
    };
    let [stat, current, scanned] = [
        KillerReads::MemoryStat,
        KillerReads::MemoryCurrent,
        KillerReads::Pgscan,
    ]
    .map(wrong);
    assert!(stat > 0.2 && current < stat, "{stat} {current}");
    assert!(scanned > 0.2, "nothing is scanned: {scanned}");
}

#[test]
fn a_limit_of_compressed_memory_flushes_as_its_site_says() {
    let flushes = |zswap_site| {
        let parameters = Parameters {
            workers: 16,
            working_set_pages: 200,
            tenant_limit_pages: 200,
            zswap_percent: 100,
            zswap_limit_pages: 1_000,
            readers: 1,
            zswap_site,
            ..nobody()
        };
        match run("kernel-6.17", &parameters).metrics.get("flushes") {
            Some(Metric::Count(flushes)) => *flushes,
            other => panic!("{other:?}"),
        }
    };
    let [forced, unlimited, limited] =
        [Site::Forced, Site::Unlimited, Site::RateLimited].map(flushes);
    assert!(
        forced > 10 * unlimited && unlimited >= limited,
        "{forced} {unlimited} {limited}"
    );
}

#[test]
fn numbers_fit_together_where_nothing_changes() {
    let parameters = Parameters {
        pairs: 2,
        warm_up_pages: 20,
        ..nobody()
    };
    for variant in ALL {
        let result = run(variant, &parameters);
        assert!(summary(&result, "pair_latency").samples > 100, "{variant}");
        assert_eq!(summary(&result, "overhead_error_pages").max, 0, "{variant}");
        let pair_error = summary(&result, "pair_error_pages");
        match variant {
            "combining" | "combining-fence" | "periodic-only" => {
                assert_eq!(pair_error.max, 0, "{variant}")
            }
            // Usage as the kernel's `memory.current`: with the stock of charged pages.
            _ => assert!(pair_error.max > 0, "{variant}"),
        }
        // Stock is all that the sum of usage has wrong.
        assert!(summary(&result, "overhead_current_pages").max > 0);
    }
}

#[test]
fn reads_of_a_clean_tree_miss_nothing() {
    let parameters = Parameters {
        readers: 4,
        warm_up_pages: 20,
        ..nobody()
    };
    for variant in ALL {
        for read_scope in [Scope::Mixed, Scope::OwnTenant, Scope::Root, Scope::Leaf] {
            let result = run(
                variant,
                &Parameters {
                    read_scope,
                    ..parameters
                },
            );
            assert!(summary(&result, "read_latency").samples > 100, "{variant}");
            assert_eq!(ratio(&result, "broken_reads"), 0.0, "{variant}");
        }
    }
}

#[test]
fn a_stated_need_is_met_by_who_can_be_told() {
    let parameters = Parameters {
        readers: 4,
        workers: 8,
        compute_ns: 10_000,
        need_ms: 5,
        ..nobody()
    };
    let result = run("combining", &parameters);
    assert_eq!(ratio(&result, "reads_beyond_need"), 0.0);
    assert!(ratio(&result, "broken_reads") > 0.0, "less was needed");
    let rarely = Parameters {
        flush_period_ms: RARE_FLUSH_MS,
        ..parameters
    };
    let result = run("periodic-only", &rarely);
    assert!(ratio(&result, "reads_beyond_need") > 0.5);
}

#[test]
fn proactive_reclaim_goes_on_as_long_as_it_sees_what_it_does() {
    let parameters = Parameters {
        warm_up_pages: 200,
        proactive: 8,
        proactive_step_pages: 16,
        ..nobody()
    };
    // 4 queries of 200 pages are 50 steps of 16, and the three after them have no effect.
    let result = run("combining", &parameters);
    assert_eq!(ratio(&result, "stopped_early"), 0.0);
    let until_stop = summary(&result, "steps_until_stop");
    assert_eq!(
        (until_stop.samples, until_stop.p50, until_stop.max),
        (8, 53, 53)
    );
    // Sees nothing until the next tick, which is 6 steps away.
    let result = run("periodic-only", &parameters);
    assert_eq!(ratio(&result, "stopped_early"), 1.0);
}

#[test]
fn streams_pass_what_they_have_time_for() {
    let parameters = Parameters {
        tenants: 1,
        queries: 1,
        ancestors: 4,
        streams: 4,
        flows: 8,
        segment_ns: 20_000,
        ..nobody()
    };
    for variant in ALL {
        let result = run(variant, &parameters);
        // 4 pairs, 20 us a segment: below 104,858 Mbit/s, and not by much.
        for end in ["throughput_mbps_server", "throughput_mbps_client"] {
            let rate = ratio(&result, end);
            assert!(
                (50_000.0..104_858.0).contains(&rate),
                "{variant}: {end} {rate}"
            );
        }
        let share = ratio(&result, "charge_share");
        assert!(share > 0.0 && share < 0.5, "{variant}: {share}");
        let update = summary(&result, "update_ns");
        assert!(update.samples > 1000, "{variant}");
        let statistic = summary(&result, "statistic_update_ns");
        assert!(statistic.p50 > 0 && statistic.p50 < update.p50, "{variant}");
        assert!(ratio(&result, "disturbed_segments") < 0.1, "{variant}");
    }
}

#[test]
fn readers_of_streams_have_a_truth() {
    let parameters = Parameters {
        streams: 4,
        readers: 4,
        segment_ns: 20_000,
        ..nobody()
    };
    let result = run("combining", &parameters);
    assert!(summary(&result, "read_latency").samples > 100);
    assert_eq!(ratio(&result, "broken_reads"), 0.0);
    assert!(ratio(&run("periodic-only", &parameters), "broken_reads") > 0.5);
}

#[test]
fn a_seed_gives_the_same_bytes() {
    let parameters = Parameters {
        readers: 3,
        workers: 6,
        compute_ns: 10_000,
        need_ms: 1,
        warm_up_pages: 20,
        swing_percent: 50,
        killers: 2,
        pairs: 2,
        proactive: 3,
        streams: 4,
        flows: 9,
        ..nobody()
    };
    for variant in ["combining", "coalesced"] {
        let text = || serde_json::to_string(&run(variant, &parameters)).expect("json");
        assert_eq!(text(), text());
    }
}
