//! View of `arbitration`: what is done, and what is thrown away, when queries need more memory than there is.

use bursar_experiments::document::{Document, VariantResult};
use bursar_experiments::metrics::Of;
use bursar_experiments::metrics::arbitration::*;

use super::layout::{COUNTED, Load, View};
use super::number::distribution;
use crate::units::{nanoseconds, percent};

pub const VIEW: View = View {
    experiment: "arbitration",
    asked: "Who waits, spills or is stopped when queries need more memory than there is?",
    own: "bursar",
    owners: &[
        ("greedy", "DataFusion"),
        ("fixed-parts", "Ballista"),
        ("velox", "Velox"),
        ("clickhouse", "ClickHouse"),
        ("largest-first", "Trino"),
    ],
    load,
    counted: COUNTED,
    finding,
    ..View::PLAIN
};

fn load(load: Load<'_>) -> String {
    let mut text = "clients: {clients_percent} % of the CPUs; {memory_mib_per_cpu} MiB of memory for each CPU; queries of {peak_mib_min} to {peak_mib_max} MiB, of which {spillable_percent} % can spill".to_owned();
    for (key, than, part) in [
        (
            "estimate_error",
            1,
            "estimates are off by up to {estimate_error} times",
        ),
        ("burst_ms", 0, "tenants take turns of {burst_ms} ms"),
        (
            "creepers",
            0,
            "{creepers} queries grow slowly, and never end",
        ),
        (
            "numbers_age_ms",
            0,
            "victims are chosen by numbers up to {numbers_age_ms} ms old",
        ),
    ] {
        if load.number(key) > than {
            text.push_str("; ");
            text.push_str(part);
        }
    }
    if load.number("even_peak_mib_max") < load.number("peak_mib_max") {
        text.push_str("; queries of the even tenants: at most {even_peak_mib_max} MiB");
    }
    if load.number("lowered_to_percent") < 100 {
        text.push_str("; in the middle the limit falls to {lowered_to_percent} %");
    }
    load.said(&text)
}

fn finding(_: &Document, variant: &VariantResult) -> Option<String> {
    let (work, _) = variant.number(WORK.name, Of::Value)?;
    let (thrown, _) = variant.number(THROWN_AWAY.name, Of::Value)?;
    let (failed, _) = variant.number(FAILED.name, Of::Value)?;
    let high = distribution(variant, HIGH_TIME.name)?.summary();
    Some(format!(
        "{}: {} of the CPUs' time became results, {} of what ran was thrown away, {} of the queries failed; high score p99 {}",
        variant.name,
        percent(work),
        percent(thrown),
        percent(failed),
        nanoseconds(high.p99 as f64),
    ))
}
