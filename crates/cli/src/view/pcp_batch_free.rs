//! What is shown of `pcp-batch-free`: how long a lock is held to free pages in bulk, and how long others wait for it.

use bursar_lab::document::{Document, VariantResult};

use super::{Bars, COUNTED, Lines, Of, View, column, distribution};
use crate::units::{nanoseconds, quantity, thousands};

pub const VIEW: View = View {
    experiment: "pcp-batch-free",
    load: |load| load.all(),
    columns: &[
        column("pages a hold p50", "pages_per_hold", Of::P50),
        column("p99", "pages_per_hold", Of::P99),
        column("max", "pages_per_hold", Of::Max),
        column("hold p99", "hold", Of::P99),
        column("max", "hold", Of::Max),
        column("bystander p50", "bystander_wait", Of::P50),
        column("p99", "bystander_wait", Of::P99),
        column("max", "bystander_wait", Of::Max),
        column("holds > 1,000", "holds_over_1000", Of::Value),
        column("stalls", "stalls", Of::Value),
        column("ops/s", "ops_per_second", Of::Value),
    ],
    legend: &[
        "pages a hold: freed under one hold of the zone lock; hold: how long one lasted",
        "bystander: how long a task that frees nothing in bulk waited for the zone lock and its CPU's list, together",
        "holds > 1,000: those in which more than 1,000 pages were freed",
        "stalls: waits longer than a watchdog's threshold",
        "ops/s: mappings that the tasks made, filled, rewrote and gave back, all together",
    ],
    counted: COUNTED,
    elsewhere: &[],
    buckets: None,
    bars: &[
        Bars {
            metric: "pages_per_hold",
            title: "Pages freed under one hold (bars grow with the logarithm of the number of holds)",
        },
        Bars {
            metric: "bystander_wait",
            title: "How long bystanders waited (0 ns: not at all)",
        },
    ],
    lines: &[
        Lines {
            metric: "pages_per_hold",
            title: "Pages freed under one hold of the zone lock",
            share_of: "share of holds",
        },
        Lines {
            metric: "bystander_wait",
            title: "How long bystanders waited (0: not at all)",
            share_of: "share of waits",
        },
    ],
    timeline: None,
    sweeps: &[
        ("bystander_wait", Of::P99),
        ("ops_per_second", Of::Value),
        ("hold", Of::Max),
    ],
    finding,
    remarks: |_| Vec::new(),
    published_of: "176 and 316 CPUs",
    glossary: &[
        (
            "pages_per_hold",
            "pages that were freed under one hold of the zone lock",
        ),
        ("hold", "how long such a hold lasted"),
        ("holds", "how many there were, in the mean over the seeds"),
        (
            "holds_over_1000",
            "holds in which more than 1,000 pages were freed",
        ),
        (
            "bystander_wait",
            "how long a task that frees nothing in bulk waited for the zone lock and its CPU's list, together",
        ),
        ("bystander_zone_wait", "for the zone lock alone"),
        ("bystander_list_wait", "for its CPU's list alone"),
        ("longest_free", "from the begin of a bulk free to its end"),
        ("run_queue_wait", "how long tasks waited for their CPU"),
        ("stalls", "waits longer than a watchdog's threshold"),
        ("stall_rate", "stalls in a second"),
        (
            "ops_per_second",
            "mappings that the tasks made, filled, rewrote and gave back, all together",
        ),
        (
            "ops_per_cpu_second",
            "those for each second of a CPU's work",
        ),
    ],
};

fn finding(_: &Document, variant: &VariantResult) -> Option<String> {
    let pages = distribution(variant, "pages_per_hold")?.summary();
    let waits = distribution(variant, "bystander_wait")?.summary();
    let mut text = format!(
        "{}: up to {} pages under one hold; bystanders waited up to {}, p99 {}",
        variant.name,
        thousands(pages.max),
        nanoseconds(waits.max as f64),
        nanoseconds(waits.p99 as f64),
    );
    if let Some((stalls, _)) = Of::Value.get(variant, "stalls")
        && stalls > 0.0
    {
        text.push_str(&format!("; {} stalls", quantity(stalls)));
    }
    Some(text)
}
