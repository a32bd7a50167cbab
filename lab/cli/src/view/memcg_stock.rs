//! View of `memcg-stock`: what stock costs, and what it strands, when many groups charge on each CPU.

use bursar_experiments::document::{Document, VariantResult};
use bursar_experiments::metrics::Of;
use bursar_experiments::metrics::memcg_stock::*;

use super::layout::{COUNTED, Load, View};
use super::number::distribution;
use crate::units::{nanoseconds, percent, quantity, thousands};

pub const VIEW: View = View {
    experiment: "memcg-stock",
    asked: "What does a charge cost when many groups charge on each CPU?",
    own: "bursar",
    upstream: "seven-slots",
    owners: &[
        ("one-slot", "Linux until 2025"),
        ("seven-slots", "Linux since 2025"),
        ("per-counter", "proposed"),
    ],
    load,
    counted: COUNTED,
    finding,
    ..View::PLAIN
};

fn load(load: Load<'_>) -> String {
    let mut text = "a task on each CPU charges to {groups} groups in turn (pages a charge: {charge_pages}), {cycle_charges} times, and gives all back".to_owned();
    if load.number("group_sets") > 1 {
        text.push_str(if load.is("moves") {
            "; then it goes on to the next of {group_sets} such sets"
        } else {
            "; there are {group_sets} such sets"
        });
    }
    if load.number("limit_percent") > 0 {
        text.push_str("; a limit of {limit_percent} % of what all hold at most");
    }
    if load.number("drain_interval_us") > 0 {
        text.push_str("; another task drains each {drain_interval_us} us");
    }
    load.said(&text)
}

fn finding(_: &Document, variant: &VariantResult) -> Option<String> {
    let charges = distribution(variant, CHARGE_TIME.name)?.summary();
    let (rate, _) = variant.number(CHARGES_PER_SECOND.name, Of::Value)?;
    let (stranded, _) = variant.number(STRANDED_PAGES.name, Of::P50)?;
    let (early, _) = variant.number(REFUSED_EARLY.name, Of::Value)?;
    let mut text = format!(
        "{}: {} charges a second, p99 {}; {} pages stranded",
        variant.name,
        quantity(rate),
        nanoseconds(charges.p99 as f64),
        thousands(stranded as u64),
    );
    if early > 0.0 {
        text.push_str(&format!(
            "; {} refused while there was room",
            percent(early)
        ));
    }
    Some(text)
}
