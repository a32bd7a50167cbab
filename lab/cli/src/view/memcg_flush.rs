//! View of `memcg-flush`: reads of statistics, the updates that they missed, and the cost for workers.

use bursar_experiments::document::{Document, VariantResult};
use bursar_experiments::metrics::memcg_flush::*;

use super::layout::{Load, View};
use super::number::distribution;
use crate::units::{nanoseconds, percent, thousands};

pub const VIEW: View = View {
    experiment: "memcg-flush",
    asked: "Does a read show what has already happened?",
    own: "combining",
    upstream: "unified",
    owners: &[
        ("unified", "Linux 6.5"),
        ("coalesced", "proposed"),
        ("per-group", "last mail"),
        ("kernel-6.17", "Linux 6.17"),
    ],
    load,
    counted: "numbers of flushes, skips and waits, and all that is counted, are means over the seeds",
    ranges: Some((READ_LATENCY, "reads")),
    finding,
    published_of: "384 CPUs",
    ..View::PLAIN
};

fn load(load: Load<'_>) -> String {
    load.said(
        "{readers} readers, a read each {read_interval_ms} ms; {workers} workers access and reclaim pages in {tenants} tenants x \
         {queries} queries; periodic flush each {flush_period_ms} ms; {duration_ms} ms a variant",
    )
}

fn finding(_: &Document, variant: &VariantResult) -> Option<String> {
    let broken = variant.metrics.get(BROKEN_READS.name)?.value()?;
    let reads = distribution(variant, READ_LATENCY.name)?.summary();
    let stale = distribution(variant, STALENESS.name)?.summary();
    let samples = thousands(reads.samples);
    Some(if broken == 0.0 {
        format!(
            "{}: none of {samples} reads missed a completed update",
            variant.name
        )
    } else {
        format!(
            "{}: {} of {samples} reads missed completed updates, up to {} old",
            variant.name,
            percent(broken),
            nanoseconds(stale.max as f64)
        )
    })
}
