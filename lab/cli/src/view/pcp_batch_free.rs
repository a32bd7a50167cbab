//! View of `pcp-batch-free`: how long a lock is held to free pages in bulk, and how long others wait for it.

use bursar_experiments::document::{Document, VariantResult};
use bursar_experiments::metrics::Of;
use bursar_experiments::metrics::pcp_batch_free::*;

use super::{COUNTED, Load, View, distribution};
use crate::units::{nanoseconds, quantity, thousands};

pub const VIEW: View = View {
    experiment: "pcp-batch-free",
    load,
    counted: COUNTED,
    finding,
    published_of: "176 and 316 CPUs",
    ..View::PLAIN
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
    let pages = distribution(variant, PAGES_PER_HOLD.name)?.summary();
    let waits = distribution(variant, BYSTANDER_WAIT.name)?.summary();
    let mut text = format!(
        "{}: up to {} pages under one hold; bystanders waited up to {}, p99 {}",
        variant.name,
        thousands(pages.max),
        nanoseconds(waits.max as f64),
        nanoseconds(waits.p99 as f64),
    );
    if let Some((stalls, _)) = variant.number(STALLS.name, Of::Value)
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
