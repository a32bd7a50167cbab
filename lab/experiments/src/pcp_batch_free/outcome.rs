//! The results of a run of one variant.

use bursar_kernel::pages::LONG_PAGES;

use super::parameters::Parameters;
use super::scene::Log;
use crate::document::Metrics;
use crate::metrics::pcp_batch_free::*;
use crate::page_allocators::{Holds, Waits};

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
        if cpu_ns > 0 {
            metrics.figure(OPS_PER_CPU_SECOND, seed, done / (cpu_ns as f64 / 1e9));
        }
        metrics.figure(STALL_RATE, seed, stalls as f64 / seconds);
        metrics.figure(LONG_HOLDS, seed, long as f64);
        metrics.share(LONG_HOLD_SHARE, seed, long, holds.given_pages.samples());
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
