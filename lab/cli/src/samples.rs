//! Documents made by hand, for tests.

use bursar_experiments::document::{Document, Metrics, SCHEMA, VariantResult};
use bursar_experiments::machine_info::{MachineInfo, SimInfo};
use bursar_experiments::measure::{Distribution, Figure, Metric, Share, Timeline, Unit};
use bursar_experiments::metrics::pcp_batch_free::*;
use bursar_experiments::metrics::vmstat_spread::*;
use bursar_experiments::verdict::{Basis, Row, Rule, Verdict};

/// A document of `experiment` with nothing in it.
pub fn document(experiment: &str, cpus: usize, variants: Vec<VariantResult>) -> Document {
    Document {
        schema: SCHEMA,
        experiment: experiment.to_owned(),
        title: "a title".to_owned(),
        experiment_hash: String::new(),
        revision: "a revision".to_owned(),
        machine: MachineInfo::Sim(SimInfo {
            cpus,
            nodes: 1,
            hz: 1000,
            topology: format!("cpus={cpus},nodes=1"),
            model: "a model".to_owned(),
        }),
        parameters: Default::default(),
        seed: 1,
        seeds: 1,
        draws: 0,
        interrupted: false,
        variants,
        expectations: Vec::new(),
        verdicts: Vec::new(),
    }
}

/// A variant that ran with seed 1.
pub fn variant(name: &str, metrics: &[(&str, Metric)]) -> VariantResult {
    let mut all = Metrics::default();
    for (metric, value) in metrics {
        all.push(metric, value.clone());
    }
    VariantResult {
        name: name.to_owned(),
        summary: format!("the policy {name}"),
        ran_seeds: vec![1],
        metrics: all,
    }
}

pub fn many(unit: Unit, values: &[u64]) -> Metric {
    Metric::Distribution(Distribution::of(unit, values.iter().copied()))
}

pub fn figure(unit: Unit, value: f64) -> Metric {
    Metric::Figure(Figure::of(unit, 1, value))
}

/// `vmstat-spread`: `upstream` in herds of `herd` on `cpus / herd` instants, `spread` evenly.
pub fn vmstat_spread(cpus: u32, herd: u32) -> Document {
    let of = |name: &str, together: u32, refresh_ns: &[u64]| {
        let at = |cpu: u32| u64::from(cpu / together * together) * 1_000_000 / u64::from(cpus);
        let points = (0..cpus).map(|cpu| (cpu, at(cpu)));
        let instants = f64::from(cpus.div_ceil(together));
        variant(
            name,
            &[
                (REFRESH.name, many(Unit::Ns, refresh_ns)),
                (REFRESH_LOCK_WAIT.name, many(Unit::Ns, &[0, 5])),
                (REFRESH_MEAN.name, figure(Unit::Ns, 1.0)),
                (
                    HERD.name,
                    many(Unit::Count, &vec![u64::from(together); cpus as usize]),
                ),
                (HERD_MAX.name, figure(Unit::Count, f64::from(together))),
                (INSTANTS_PER_SECOND.name, figure(Unit::PerSecond, instants)),
                (
                    CPUS_PER_INSTANT.name,
                    figure(Unit::Count, f64::from(together)),
                ),
                (DRIFT.name, figure(Unit::Ns, -3_500.0)),
                (WAKEUPS_SHARED.name, Metric::Ratio(Share::of(1, 1, 4))),
                (
                    STRESS_OPS_PER_SECOND.name,
                    figure(Unit::PerSecond, 40_000.0),
                ),
                (
                    HERD_TIMELINE.name,
                    Metric::Timeline(Timeline::of(1, points.collect())),
                ),
            ],
        )
    };
    let variants = vec![
        of("upstream", herd, &[2_000, 3_000, 400_000]),
        of("spread", 1, &[2_000, 3_000, 4_000]),
    ];
    let mut document = document("vmstat-spread", cpus as usize, variants);
    let parameters = &mut document.parameters;
    for (key, value) in [
        ("interval_ms", 1_000),
        ("duration_ms", 10_000),
        ("vm_mib", 11_256),
        ("memory_gib", 256),
    ] {
        parameters.insert(key.to_owned(), value.into());
    }
    parameters.insert("tasks".to_owned(), "busy".into());
    parameters.insert("bytes_are_shared".to_owned(), true.into());
    document
}

/// `pcp-batch-free`, with batches of `batch_pages`; 0 stands for the kernel's.
pub fn pcp_batch_free(batch_pages: u32) -> Document {
    let of = |name: &str, pages: u64, waits_ns: &[u64], stalls: u64| {
        variant(
            name,
            &[
                (PAGES_PER_HOLD.name, many(Unit::Count, &[1, 63, pages])),
                (HOLD.name, many(Unit::Ns, &[100, pages * 100])),
                (BYSTANDER_WAIT.name, many(Unit::Ns, waits_ns)),
                (OPS_PER_SECOND.name, figure(Unit::PerSecond, 1_000.0)),
                (HOLDS.name, Metric::Count(3)),
                (
                    HOLDS_OVER_1000.name,
                    Metric::Count(u64::from(pages > 1_000)),
                ),
                (STALLS.name, Metric::Count(stalls)),
            ],
        )
    };
    let variants = vec![
        of("whole", 2_016, &[0, 900, 1_200_000], 2),
        of("batched", 63, &[0, 900, 20_000], 0),
    ];
    let mut document = document("pcp-batch-free", 316, variants);
    for (key, value) in [
        ("exiters", 252),
        ("exiter_mib", 16),
        ("memory_gib", 1_024),
        ("batch_pages", i64::from(batch_pages)),
        ("watchdog_us", 1_000),
    ] {
        document.parameters.insert(key.to_owned(), value.into());
    }
    document
}

/// A published change, predicted.
pub fn verdict(variant: &str, metric: &str, load: &str) -> Verdict {
    Verdict {
        variant: variant.to_owned(),
        metric: metric.to_owned(),
        row: Row::Prediction,
        basis: Basis::OneModel,
        load: load.to_owned(),
        published: -0.2,
        rule: Rule::Change {
            baseline: "upstream".to_owned(),
        },
        measured: -0.1,
        lo: -0.3,
        hi: 0.0,
        verdict: None,
        reason: String::new(),
    }
}
