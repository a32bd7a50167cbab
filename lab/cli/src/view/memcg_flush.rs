//! View of `memcg-flush`: reads of statistics, the updates that they missed, and the cost for workers.

use bursar_experiments::document::{Document, VariantResult};
use bursar_experiments::measure::Metric;

use super::{Bars, Bucket, Buckets, Lines, Load, Of, View, column, distribution};
use crate::units::{nanoseconds, percent, thousands};

pub const VIEW: View = View {
    experiment: "memcg-flush",
    load,
    columns: &[
        column("read p50", "read_latency", Of::P50),
        column("read p99", "read_latency", Of::P99),
        column("read max", "read_latency", Of::Max),
        column("broken reads", "broken_reads", Of::Value),
        column("staleness p99", "staleness", Of::P99),
        column("page p50", "worker_runtime", Of::P50),
        column("page mean", "worker_runtime", Of::Mean),
        column("flushes", "flushes", Of::Value),
        column("skips", "skips", Of::Value),
        column("waits", "waits", Of::Value),
        column("lock waits", "lock_waits", Of::Value),
    ],
    legend: &[
        "read: from asking for a group's statistics to having them, including any flush on the way",
        "broken reads: missed an update that had completed before the read began",
        "staleness: age of the oldest update that a read missed, at least; 0 if it missed none",
        "page: from one page that a worker faulted in to its next: compute, charge, reclaim, read, touch, account",
        "flushes bring per-CPU numbers together; skips went without one that was due; waits are reads that waited for a \
         flush of another; lock waits found the one flush lock taken (-: there is none)",
    ],
    counted: "numbers of flushes, skips and waits, and all that is counted, are means over the seeds",
    elsewhere: &["missing_updates", "flushes_root", "flushes_subtree"],
    buckets: Some(Buckets {
        of: "read_latency",
        things: "reads",
        all: &[
            bucket("reads_under_100us", "under 100 us", Some(1e5)),
            bucket("reads_100us_to_1ms", "100 us to 1 ms", Some(1e6)),
            bucket("reads_1ms_to_10ms", "1 ms to 10 ms", Some(1e7)),
            bucket("reads_10ms_to_100ms", "10 ms to 100 ms", Some(1e8)),
            bucket("reads_over_100ms", "over 100 ms", None),
        ],
    }),
    bars: &[
        Bars {
            metric: "read_latency",
            title: "How long reads took (bars grow with the logarithm of the number of reads)",
        },
        Bars {
            metric: "staleness",
            title: "How old what they missed was (0 ns: nothing was missed)",
        },
        Bars {
            metric: "worker_runtime",
            title: "How long workers took for a page",
        },
    ],
    lines: &[
        Lines {
            metric: "read_latency",
            title: "How long reads took",
            share_of: "share of reads",
        },
        Lines {
            metric: "staleness",
            title: "How old what reads missed was (0: nothing was missed)",
            share_of: "share of reads",
        },
    ],
    timeline: None,
    sweeps: &[("read_latency", Of::P99), ("worker_runtime", Of::Mean)],
    finding,
    remarks: |_| Vec::new(),
    published_of: "384 CPUs",
    glossary: &[
        (
            "read_latency",
            "from asking for a group's statistics to having them, including any flush on the way",
        ),
        (
            "broken_reads",
            "reads that missed an update that had completed before the read began",
        ),
        (
            "staleness",
            "age of the oldest update that a read missed, at least; 0 if it missed none",
        ),
        ("missing_updates", "how many updates a read missed"),
        (
            "worker_runtime",
            "from one page of a worker to its next: charge, account, touch, free the oldest",
        ),
        (
            "flushes",
            "how often per-CPU numbers were brought together, in the mean over the seeds",
        ),
        ("flushes_root", "those of the whole tree"),
        ("flushes_subtree", "those of a part of it"),
        ("skips", "reads that went without a flush that was due"),
        ("waits", "reads that waited for a flush of another"),
        (
            "lock_waits",
            "how often the one flush lock was taken already",
        ),
        (
            "limit_refusals",
            "charges that met their group's limit, and made their worker free its oldest pages",
        ),
    ],
};

const fn bucket(metric: &'static str, title: &'static str, below_ns: Option<f64>) -> Bucket {
    Bucket {
        metric,
        title,
        below_ns,
    }
}

fn load(load: Load<'_>) -> String {
    format!(
        "{} readers, a read each {} ms; {} workers access and reclaim pages in {} tenants x {} queries; periodic flush \
         each {} ms; {} ms a variant",
        load.number("readers"),
        load.number("read_interval_ms"),
        load.number("workers"),
        load.number("tenants"),
        load.number("queries"),
        load.number("flush_period_ms"),
        load.number("duration_ms"),
    )
}

fn finding(_: &Document, variant: &VariantResult) -> Option<String> {
    let Some(Metric::Ratio(broken)) = variant.metrics.get("broken_reads") else {
        return None;
    };
    let reads = distribution(variant, "read_latency")?.summary();
    let stale = distribution(variant, "staleness")?.summary();
    let samples = thousands(reads.samples);
    Some(if broken.value() == 0.0 {
        format!(
            "{}: none of {samples} reads missed a completed update",
            variant.name
        )
    } else {
        format!(
            "{}: {} of {samples} reads missed completed updates, up to {} old",
            variant.name,
            percent(broken.value()),
            nanoseconds(stale.max as f64)
        )
    })
}
