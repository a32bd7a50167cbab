//! Measurements of the load's tasks.

use super::super::outcome::Outcome;
use crate::measure::{Figure, Metric, Samples, Unit};

/// Measurements of one task.
#[derive(Clone, Debug, Default)]
pub(in super::super) struct Tally {
    /// Pages accessed, in memory or not.
    pub(in super::super) accesses: u64,
    /// Time that a worker ran.
    pub(in super::super) ran_ns: u64,
    pub(super) faults: u64,
    pub(super) refaults: u64,
    pub(super) swap_outs: u64,
    pub(super) zswap_outs: u64,
    pub(super) ooms: u64,
    /// Time in flush sites.
    pub(super) flush_ns: u64,
    /// Length of each round of reclaim.
    pub(super) rounds_ns: Vec<u64>,
}

impl Tally {
    fn samples<'a>(tallies: impl Iterator<Item = &'a Self>) -> Samples {
        let mut samples = Samples::new(Unit::Ns);
        for tally in tallies {
            tally.rounds_ns.iter().for_each(|&ns| samples.record(ns));
        }
        samples
    }
}

/// Adds the measurements of workers and proactive reclaimers to the outcome.
pub(in super::super) fn report(
    outcome: &mut Outcome,
    seed: u64,
    workers: &[Tally],
    reclaimers: &[Tally],
) {
    let sum = |of: fn(&Tally) -> u64| workers.iter().map(of).sum::<u64>();
    let sum_all = |of: fn(&Tally) -> u64| sum(of) + reclaimers.iter().map(of).sum::<u64>();
    let (accesses, ran_ns) = (sum(|tally| tally.accesses), sum(|tally| tally.ran_ns));
    let longest_ns = workers.iter().map(|tally| tally.ran_ns).max().unwrap_or(0);
    let quotient = |part: u64, whole: u64| part as f64 / whole.max(1) as f64;
    for (name, unit, value) in [
        ("page_ns", Unit::Ns, quotient(ran_ns, accesses)),
        (
            "pages_per_second",
            Unit::PerSecond,
            quotient(accesses, longest_ns) * 1e9,
        ),
        (
            "flush_site_share",
            Unit::Ratio,
            quotient(sum(|tally| tally.flush_ns), ran_ns),
        ),
    ] {
        outcome.push(name, Metric::Figure(Figure::of(unit, seed, value)));
    }
    for (name, count) in [
        ("page_faults", sum(|tally| tally.faults)),
        (
            "reclaim_rounds",
            sum_all(|tally| tally.rounds_ns.len() as u64),
        ),
        ("refaults", sum(|tally| tally.refaults)),
        ("swap_outs", sum_all(|tally| tally.swap_outs)),
        ("zswap_outs", sum_all(|tally| tally.zswap_outs)),
        ("ooms", sum(|tally| tally.ooms)),
    ] {
        outcome.push(name, Metric::Count(count));
    }
    for (name, tallies) in [("reclaim_round", workers), ("reclaimer_round", reclaimers)] {
        // By the parameters alone: what one seed has, all have.
        if !tallies.is_empty() {
            let samples = Tally::samples(tallies.iter());
            outcome.push(name, Metric::Distribution(samples.distribution()));
        }
    }
}
