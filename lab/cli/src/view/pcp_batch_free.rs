//! View of `pcp-batch-free`: how long a lock is held to free pages in bulk, and how long others wait for it.

use bursar_experiments::document::{Document, VariantResult};
use bursar_experiments::metrics::Of;
use bursar_experiments::metrics::pcp_batch_free::*;

use super::layout::{COUNTED, Load, View};
use super::number::distribution;
use crate::units::{nanoseconds, quantity, thousands};

pub const VIEW: View = View {
    experiment: "pcp-batch-free",
    asked: "Who waits while many pages are freed?",
    own: "bounded",
    upstream: "whole",
    owners: &[
        ("whole", "Linux 6.18.0"),
        ("batched-decay", "Linux 6.18.7"),
        ("batched", "Linux 6.19"),
    ],
    load,
    counted: COUNTED,
    finding,
    published_of: "176 and 316 CPUs",
    ..View::PLAIN
};

/// Parts of a load that are there if the first parameter is not 0.
#[rustfmt::skip]
const PARTS: [(&str, &str); 8] = [
    ("exiters", "{exiters} tasks with {exiter_mib} MiB each exit at once"),
    ("freers", "{freers} tasks free lists of {list_pages} pages"),
    ("drains", "{drains} tasks empty the lists of all CPUs"),
    ("decay_period_ms", "the lists of each CPU, {listed_pages} pages, decay each {decay_period_ms} ms"),
    ("workers", "{workers} tasks map, fault, rewrite and unmap {worker_mib} MiB each"),
    ("shells", "{shells} shells run {processes} processes"),
    ("bystanders", "{bystanders} bystanders take or free {bystander_pages} pages"),
    ("batch_pages", "at most {batch_pages} pages a batch"),
];

fn load(load: Load<'_>) -> String {
    let mut memory = match load.number("memory_per_cpu_gib") {
        0 => "{memory_gib} GiB of memory".to_owned(),
        _ => "{memory_per_cpu_gib} GiB of memory for each CPU".to_owned(),
    };
    if load.number("swap_gib") > 0 {
        memory.push_str(" and {swap_gib} of swap");
    }
    if load.number("scale") > 1 {
        memory.push_str(", sizes divided by {scale}");
    }
    let parts = PARTS.into_iter().filter(|(key, _)| load.number(key) > 0);
    let parts = parts
        .map(|(_, text)| text)
        .chain([&*memory, "a stall is a wait of over {watchdog_us} us"]);
    load.said(&parts.collect::<Vec<_>>().join("; "))
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
