//! The load of memcg-flush on a simulated machine: the same seed gives the same result, reclaim and all; each run checks its own
//! books and fails if they are wrong.

use bursar_experiments::measure::Metric;
use bursar_experiments::memcg_flush::Parameters;
use bursar_experiments::workload::{Sizing as _, Workload};
use bursar_sim::{Settings, Simulator, Topology};
use toml::Value;

/// The quick form, with enough workers on each tenant to be short of memory.
fn parameters(more: &[(&str, i64)]) -> Parameters {
    let file = bursar_experiments::experiment_named("memcg-flush").expect("the file");
    let mut table = file.parameters;
    table.extend(file.quick);
    let ours = [
        ("workers", 24),
        ("readers", 8),
        ("tenant_limit_pages", 200),
        ("compute_ns", 500),
        ("duration_ms", 30),
    ];
    for &(key, value) in ours.iter().chain(more) {
        table.insert(key.to_owned(), Value::Integer(value));
    }
    let parameters: Parameters = table.try_into().expect("its parameters");
    parameters.check().expect("in their ranges");
    parameters
}

/// A result as a document shows it, and its metrics.
fn run(variant: &str, parameters: &Parameters) -> (String, impl Fn(&str) -> u64 + use<>) {
    let settings = Settings::new(Topology::new(16, 2, 1000), parameters.seed);
    let simulator = Simulator::new(settings);
    let result = parameters.run(&simulator.machine(), variant);
    let result = result.expect(variant);
    let shown = format!("{result:?}");
    let number = move |name: &str| match result.metrics.get(name) {
        Some(Metric::Count(value)) => *value,
        Some(Metric::Distribution(distribution)) => distribution.samples(),
        other => panic!("{name}: {other:?}"),
    };
    (shown, number)
}

const VARIANTS: [&str; 3] = ["combining", "periodic-only", "coalesced"];

#[test]
fn the_same_seed_gives_the_same_result() {
    for variant in VARIANTS {
        let parameters = parameters(&[]);
        let (first, _) = run(variant, &parameters);
        let (second, _) = run(variant, &parameters);
        assert_eq!(first, second, "{variant}");
        let other = Parameters {
            seed: parameters.seed + 1,
            ..parameters
        };
        assert_ne!(run(variant, &other).0, first, "{variant}");
    }
}

#[test]
fn pages_are_reclaimed_swapped_compressed_and_come_back() {
    for variant in VARIANTS {
        let (_, number) = run(variant, &parameters(&[]));
        for name in [
            "page_faults",
            "reclaim_rounds",
            "reclaim_round",
            "reclaimer_round",
            "refaults",
            "swap_outs",
            "zswap_outs",
            "limit_refusals",
        ] {
            assert!(number(name) > 0, "{variant}: {name}");
        }
        assert!(number("page_faults") > number("refaults"), "{variant}");
        // All that there is can be reclaimed. But the kernel's charge gives up after 16 rounds in vain, and others may take each page
        // that is freed meanwhile: that happens to one fault in some thousands, in 13 of the seeds 1 to 40.
        let ooms_max = match variant {
            "coalesced" => number("page_faults") / 1_000,
            _ => 0,
        };
        assert!(number("ooms") <= ooms_max, "{variant}");
    }
}

#[test]
fn memory_that_suffices_is_not_reclaimed() {
    for variant in VARIANTS {
        let (_, number) = run(
            variant,
            &parameters(&[("tenant_limit_pages", 4096), ("reclaimers", 0)]),
        );
        assert!(number("page_faults") > 0, "{variant}");
        for name in ["reclaim_rounds", "refaults", "ooms", "limit_refusals"] {
            assert_eq!(number(name), 0, "{variant}: {name}");
        }
    }
}

#[test]
fn a_share_of_swap_is_compressed() {
    for (percent, limit) in [(0, 0), (100, 0)] {
        let more = [("zswap_percent", percent), ("zswap_limit_pages", limit)];
        let (_, number) = run("combining", &parameters(&more));
        let outs = [number("swap_outs"), number("zswap_outs")];
        assert_eq!([outs[0] > 0, outs[1] > 0], [percent == 0, percent == 100]);
    }
    // A limit that is met sends the others to the device.
    let more = [("zswap_percent", 100), ("zswap_limit_pages", 4)];
    let (_, number) = run("combining", &parameters(&more));
    assert!(number("swap_outs") > 0 && number("zswap_outs") > 0);
}

/// A limit of one page: workers take it from each other, go out of memory, and the books are right all the same.
#[test]
fn workers_without_memory_get_by() {
    for variant in VARIANTS {
        let more = [("tenant_limit_pages", 1), ("duration_ms", 10)];
        let (_, number) = run(variant, &parameters(&more));
        assert!(number("page_faults") > 0, "{variant}");
        assert!(number("ooms") > 0, "{variant}");
    }
}
