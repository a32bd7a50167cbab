//! The results of a run of one variant.

use bursar_kernel::pages::LONG_PAGES;

use super::parameters::Parameters;
use super::scene::Log;
use crate::document::Metrics;
use crate::measure::Summary;
use crate::metrics::MetricInfo;
use crate::metrics::pcp_batch_free::*;
use crate::page_allocators::{Holds, OfCause, Waits};

/// Pages above which a hold is very long: nearly the most that one hold can free.
const VERY_LONG_PAGES: u64 = 2_000;

/// Metrics of each cause, in the order of [`bursar_kernel::pages::Cause::ALL`].
const BY_CAUSE: [[MetricInfo; 6]; 4] = [
    [
        TAKEN_PAGES,
        TAKES_OVER_1000,
        TAKES_OVER_2000,
        TAKES_THAT_WAITED,
        TAKES_WAITED,
        TAKE_WAITED_MAX,
    ],
    [
        FREED_PAGES,
        FREES_OVER_1000,
        FREES_OVER_2000,
        FREES_THAT_WAITED,
        FREES_WAITED,
        FREE_WAITED_MAX,
    ],
    [
        DECAYED_PAGES,
        DECAYS_OVER_1000,
        DECAYS_OVER_2000,
        DECAYS_THAT_WAITED,
        DECAYS_WAITED,
        DECAY_WAITED_MAX,
    ],
    [
        DRAINED_PAGES,
        DRAINS_OVER_1000,
        DRAINS_OVER_2000,
        DRAINS_THAT_WAITED,
        DRAINS_WAITED,
        DRAIN_WAITED_MAX,
    ],
];

/// Results of a run of one variant with one seed.
#[derive(Debug)]
pub(super) struct Outcome {
    logs: Vec<Log>,
    holds: Holds,
    /// From the start to the end of the last task.
    ran_ns: u64,
}

impl Outcome {
    pub(super) fn new(logs: Vec<Log>, holds: Holds, ran_ns: u64) -> Self {
        Self {
            logs,
            holds,
            ran_ns,
        }
    }

    /// Returns the metrics for a document.
    pub(super) fn metrics(&self, parameters: &Parameters) -> Metrics {
        let seed = parameters.seed;
        let logs = &self.logs;
        let both = |log: &Log| [&log.alloc_waits[..], &log.free_waits[..]].concat();
        let waits = || logs.iter().flat_map(both);
        let long = self.holds.given_pages.above(LONG_PAGES);
        let stalls = self.holds.waited_ns.above(parameters.watchdog_us * 1_000);
        let seconds = self.ran_ns.max(1) as f64 / 1e9;
        let operations = logs.iter().map(|log| log.operations_ns.len() as u64).sum();
        let waited = waits().filter(|waits| waits.all_ns() > 0).count() as u64;
        let done: f64 = logs.iter().map(|log| log.done).sum();
        let done = match done > 0.0 {
            true => done,
            false => operations as f64,
        };
        let cpu_ns: u64 = logs.iter().map(|log| log.cpu_ns).sum();
        let ns = |of: fn(&Log) -> &Vec<u64>| logs.iter().flat_map(of).copied();
        let waited_ns =
            |of: fn(&Log) -> &Vec<Waits>| logs.iter().flat_map(of).copied().map(Waits::all_ns);
        let holds = &self.holds;

        let mut metrics = Metrics::default();
        metrics.spread(BYSTANDER_WAIT, waits().map(Waits::all_ns));
        metrics.spread(BYSTANDER_ZONE_WAIT, waits().map(|waits| waits.zone_ns));
        metrics.spread(BYSTANDER_LIST_WAIT, waits().map(|waits| waits.list_ns));
        metrics.spread(BYSTANDER_ALLOC_WAIT, waited_ns(|log| &log.alloc_waits));
        metrics.spread(BYSTANDER_FREE_WAIT, waited_ns(|log| &log.free_waits));
        metrics.share(BYSTANDER_WAITS_SHARE, seed, waited, operations);
        metrics.spread(BYSTANDER_OPERATION, ns(|log| &log.operations_ns));
        metrics.distribution(PAGES_PER_HOLD, holds.given_pages.clone());
        metrics.distribution(HOLD, holds.held_ns.clone());
        metrics.distribution(LOCK_WAIT, holds.waited_ns.clone());
        metrics.spread(LONGEST_FREE, ns(|log| &log.frees_ns));
        metrics.spread(DECAY_CALL, ns(|log| &log.decays_ns));
        metrics.spread(RUN_QUEUE_WAIT, logs.iter().map(|log| log.run_queue_ns));
        metrics.figure(OPERATIONS, seed, done);
        metrics.figure(OPS_PER_SECOND, seed, done / seconds);
        if parameters.bystanders > 0 && parameters.exiters + parameters.freers > 0 {
            let beside: u64 = logs.iter().map(|log| log.bystander_pages).sum();
            let beside = beside as f64 / seconds;
            metrics.figure(BYSTANDER_PAGES_PER_SECOND, seed, beside);
            metrics.figure(ALL_PAGES_PER_SECOND, seed, done / seconds + beside);
        }
        if cpu_ns > 0 {
            metrics.figure(OPS_PER_CPU_SECOND, seed, done / (cpu_ns as f64 / 1e9));
        }
        if parameters.shells > 0 {
            let user_ns: u64 = logs.iter().map(|log| log.user_ns).sum();
            let system_ns = cpu_ns.saturating_sub(user_ns) as f64;
            metrics.figure(SYSTEM_TIME_PER_PAGE, seed, system_ns / done.max(1.0));
        }
        metrics.figure(STALL_RATE, seed, stalls as f64 / seconds);
        metrics.share(LONG_HOLD_SHARE, seed, long, holds.given_pages.samples());
        for (infos, of_cause) in BY_CAUSE.iter().zip(&holds.by_cause) {
            let OfCause { pages, waited_ns } = of_cause;
            let (moved, waited) = (pages.summary(), waited_ns.summary());
            let waits = waited_ns.above(0);
            let sum = |it: &Summary| (it.mean * it.samples as f64).round();
            for (info, value) in infos.iter().zip([
                sum(&moved),
                (pages.above(LONG_PAGES) - pages.above(VERY_LONG_PAGES)) as f64,
                pages.above(VERY_LONG_PAGES) as f64,
                waits as f64,
                sum(&waited),
                waited.max as f64,
            ]) {
                metrics.figure(*info, seed, value);
            }
        }
        metrics.count(HOLDS, holds.holds);
        metrics.count(HOLDS_OVER_1000, long);
        metrics.count(STALLS, stalls);
        metrics.count(
            PAGES_SWAPPED_OUT,
            logs.iter().map(|log| log.swapped_out).sum(),
        );
        metrics
    }
}
