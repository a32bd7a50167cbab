//! Measurements of the load's tasks.

use crate::document::Metrics;
use crate::metrics::memcg_flush::*;

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

/// Adds the measurements of workers and proactive reclaimers to the metrics.
pub(in super::super) fn report(
    metrics: &mut Metrics,
    seed: u64,
    workers: &[Tally],
    reclaimers: &[Tally],
) {
    let sum = |of: fn(&Tally) -> u64| workers.iter().map(of).sum::<u64>();
    let sum_all = |of: fn(&Tally) -> u64| sum(of) + reclaimers.iter().map(of).sum::<u64>();
    let (accesses, ran_ns) = (sum(|tally| tally.accesses), sum(|tally| tally.ran_ns));
    let longest_ns = workers.iter().map(|tally| tally.ran_ns).max().unwrap_or(0);
    let quotient = |part: u64, whole: u64| part as f64 / whole.max(1) as f64;
    if !workers.is_empty() {
        let page_ns = (accesses > 0).then(|| quotient(ran_ns, accesses));
        metrics.figure(PAGE_NS, seed, page_ns);
    }
    metrics.figure(PAGES_PER_SECOND, seed, quotient(accesses, longest_ns) * 1e9);
    metrics.figure(
        FLUSH_SITE_SHARE,
        seed,
        quotient(sum(|tally| tally.flush_ns), ran_ns),
    );
    metrics.count(PAGE_FAULTS, sum(|tally| tally.faults));
    metrics.count(
        RECLAIM_ROUNDS,
        sum_all(|tally| tally.rounds_ns.len() as u64),
    );
    metrics.count(REFAULTS, sum(|tally| tally.refaults));
    metrics.count(SWAP_OUTS, sum_all(|tally| tally.swap_outs));
    metrics.count(ZSWAP_OUTS, sum_all(|tally| tally.zswap_outs));
    metrics.count(OOMS, sum(|tally| tally.ooms));
    for (info, tallies) in [(RECLAIM_ROUND, workers), (RECLAIMER_ROUND, reclaimers)] {
        // By the parameters alone: what one seed has, all have.
        if !tallies.is_empty() {
            metrics.spread(
                info,
                tallies
                    .iter()
                    .flat_map(|tally| tally.rounds_ns.iter().copied()),
            );
        }
    }
}
