//! View of `pcp-batch-free`: how long a lock is held to free pages in bulk, and how long others wait for it.

use bursar_experiments::document::{Document, VariantResult};

use super::{Bars, COUNTED, Lines, Load, Of, View, column, distribution};
use crate::units::{nanoseconds, quantity, thousands};

pub const VIEW: View = View {
    experiment: "pcp-batch-free",
    load,
    columns: &[
        column("pages a hold p50", "pages_per_hold", Of::P50),
        column("pages p99", "pages_per_hold", Of::P99),
        column("pages max", "pages_per_hold", Of::Max),
        column("hold p99", "hold", Of::P99),
        column("hold max", "hold", Of::Max),
        column("bystander p50", "bystander_wait", Of::P50),
        column("bystander p99", "bystander_wait", Of::P99),
        column("bystander max", "bystander_wait", Of::Max),
        column("holds > 1,000", "holds_over_1000", Of::Value),
        column("stalls", "stalls", Of::Value),
        column("ops/s", "ops_per_second", Of::Value),
    ],
    legend: &[
        "pages a hold: freed under one hold of the zone's lock; hold: how long one lasted",
        "bystander: wait for locks of a task that takes or frees a few pages, the zone's and the list's together",
        "holds > 1,000: holds that freed more than 1,000 pages; stalls: waits for the zone's lock that took too long",
        "ops/s: what the load does, all tasks together: pages given back, operations of a stress test, or else those of bystanders",
    ],
    counted: COUNTED,
    elsewhere: &["long_holds"],
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
            title: "Pages freed under one hold of the zone's lock",
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
            "bystander_wait",
            "wait for locks of a task that takes or frees a few pages, the zone's and the list's together",
        ),
        (
            "bystander_alloc_wait",
            "the same, of bystanders that want pages",
        ),
        (
            "bystander_free_wait",
            "the same, of bystanders that free pages",
        ),
        ("bystander_zone_wait", "for the zone's lock alone"),
        ("bystander_list_wait", "for the list's lock alone"),
        (
            "bystander_waits_share",
            "operations of bystanders that had to wait for a lock",
        ),
        (
            "bystander_operation",
            "how long such an operation took in all",
        ),
        (
            "pages_per_hold",
            "pages that were freed under one hold of the zone's lock",
        ),
        ("hold", "how long such a hold lasted"),
        (
            "lock_wait",
            "wait for the zone's lock of tasks that free in bulk",
        ),
        (
            "longest_free",
            "how long a bulk free took, from its begin to its end",
        ),
        (
            "decay_call",
            "how long one call took that gives old pages back",
        ),
        ("run_queue_wait", "how long tasks waited for their CPU"),
        (
            "ops_per_second",
            "work of all tasks in a second: pages freed, operations of a stress test, or else operations of bystanders",
        ),
        (
            "ops_per_cpu_second",
            "the same, for each second of a CPU's work",
        ),
        ("holds", "holds of the zone's lock to free pages"),
        ("holds_over_1000", "holds that freed more than 1,000 pages"),
        (
            "stalls",
            "waits for the zone's lock that took longer than `watchdog_us`",
        ),
        ("stall_rate", "stalls in a second"),
    ],
};

fn load(load: Load<'_>) -> String {
    let number = |key| thousands(load.number(key));
    let parts = [
        (
            "exiters",
            format!(
                "{} tasks with {} MiB each exit at once",
                number("exiters"),
                number("exiter_mib")
            ),
        ),
        (
            "freers",
            format!(
                "{} tasks free lists of {} pages",
                number("freers"),
                number("list_pages")
            ),
        ),
        (
            "drains",
            format!("{} tasks empty the lists of all CPUs", number("drains")),
        ),
        (
            "decay_period_ms",
            format!(
                "the lists of each CPU, {} pages, decay each {} ms",
                number("listed_pages"),
                number("decay_period_ms")
            ),
        ),
        (
            "workers",
            format!(
                "{} tasks map, fault, rewrite and unmap {} MiB each",
                number("workers"),
                number("worker_mib")
            ),
        ),
        (
            "shells",
            format!(
                "{} shells run {} processes",
                number("shells"),
                number("processes")
            ),
        ),
        (
            "bystanders",
            format!(
                "{} bystanders take or free {} pages",
                number("bystanders"),
                number("bystander_pages")
            ),
        ),
        (
            "batch_pages",
            format!("at most {} pages a batch", number("batch_pages")),
        ),
    ];
    let mut said: Vec<String> = parts
        .into_iter()
        .filter(|(key, _)| load.number(key) > 0)
        .map(|(_, said)| said)
        .collect();
    said.push(memory(load));
    said.push(format!(
        "a stall is a wait of over {} us",
        number("watchdog_us")
    ));
    said.join("; ")
}

fn memory(load: Load<'_>) -> String {
    let number = |key| thousands(load.number(key));
    let mut text = match load.number("memory_per_cpu_gib") {
        0 => format!("{} GiB of memory", number("memory_gib")),
        each => format!("{} GiB of memory for each CPU", thousands(each)),
    };
    if load.number("swap_gib") > 0 {
        text.push_str(&format!(" and {} of swap", number("swap_gib")));
    }
    if load.number("scale") > 1 {
        text.push_str(&format!(", sizes divided by {}", number("scale")));
    }
    text
}

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
        let each = match variant.ran_seeds.len() {
            1 => format!("{} stalls", thousands(stalls as u64)),
            _ => format!("{} stalls a seed", quantity(stalls)),
        };
        text.push_str(&format!("; {each}"));
    }
    Some(text)
}
