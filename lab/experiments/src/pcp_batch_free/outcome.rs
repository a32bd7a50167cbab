//! The results of a run of one variant.

use bursar_kernel::pages::LONG_PAGES;

use super::parameters::Parameters;
use super::scene::Log;
use crate::document::Metrics;
use crate::measure::{Distribution, Figure, Metric, Samples, Share, Unit};
use crate::page_subject::{Holds, Waits};

/// Results of a run of one variant with one seed.
#[derive(Debug)]
pub(super) struct Outcome {
    logs: Vec<Log>,
    holds: Holds,
    /// From the start to the end of the last task.
    ran_ns: u64,
}

fn distribution(unit: Unit, values: impl Iterator<Item = u64>) -> Distribution {
    let mut samples = Samples::new(unit);
    values.for_each(|value| samples.record(value));
    samples.distribution()
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
        let ns = |of: fn(&Log) -> &Vec<u64>| {
            distribution(Unit::Ns, self.logs.iter().flat_map(of).copied())
        };
        let logs = &self.logs;
        let both = |log: &Log| [&log.alloc_waits[..], &log.free_waits[..]].concat();
        let waits = || logs.iter().flat_map(both);
        let long = self.holds.given_pages.above(LONG_PAGES);
        let stalls = self.holds.waited_ns.above(parameters.watchdog_us * 1_000);
        let seconds = self.ran_ns.max(1) as f64 / 1e9;
        let operations = ns(|log| &log.operations_ns);
        let waited = waits().filter(|waits| waits.all_ns() > 0).count() as u64;
        let done: f64 = self.logs.iter().map(|log| log.done).sum();
        let done = match done > 0.0 {
            true => done,
            false => operations.samples() as f64,
        };
        let cpu_ns: u64 = self.logs.iter().map(|log| log.cpu_ns).sum();
        let per_second = |value| Metric::Figure(Figure::of(Unit::PerSecond, seed, value));
        let count = |value| Metric::Figure(Figure::of(Unit::Count, seed, value));

        let mut metrics = Metrics::default();
        let mut push = |name: &str, metric| metrics.push(name, metric);
        let mut push_waits = |name, waits: &mut dyn Iterator<Item = u64>| {
            push(name, Metric::Distribution(distribution(Unit::Ns, waits)));
        };
        push_waits("bystander_wait", &mut waits().map(Waits::all_ns));
        push_waits(
            "bystander_zone_wait",
            &mut waits().map(|waits| waits.zone_ns),
        );
        push_waits(
            "bystander_list_wait",
            &mut waits().map(|waits| waits.list_ns),
        );
        let alloc = logs.iter().flat_map(|log| &log.alloc_waits);
        push_waits(
            "bystander_alloc_wait",
            &mut alloc.map(|waits| waits.all_ns()),
        );
        let free = logs.iter().flat_map(|log| &log.free_waits);
        push_waits("bystander_free_wait", &mut free.map(|waits| waits.all_ns()));
        push(
            "bystander_waits_share",
            Metric::Ratio(Share::of(seed, waited, operations.samples())),
        );
        push("bystander_operation", Metric::Distribution(operations));
        push(
            "pages_per_hold",
            Metric::Distribution(self.holds.given_pages.clone()),
        );
        push("hold", Metric::Distribution(self.holds.held_ns.clone()));
        push(
            "lock_wait",
            Metric::Distribution(self.holds.waited_ns.clone()),
        );
        push(
            "longest_free",
            Metric::Distribution(ns(|log| &log.frees_ns)),
        );
        push("decay_call", Metric::Distribution(ns(|log| &log.decays_ns)));
        let queued = self.logs.iter().map(|log| log.run_queue_ns);
        push(
            "run_queue_wait",
            Metric::Distribution(distribution(Unit::Ns, queued)),
        );
        push("operations", count(done));
        push("ops_per_second", per_second(done / seconds));
        if cpu_ns > 0 {
            push(
                "ops_per_cpu_second",
                per_second(done / (cpu_ns as f64 / 1e9)),
            );
        }
        push("stall_rate", per_second(stalls as f64 / seconds));
        push("long_holds", count(long as f64));
        push(
            "long_hold_share",
            Metric::Ratio(Share::of(seed, long, self.holds.given_pages.samples())),
        );
        push("holds", Metric::Count(self.holds.holds));
        push("holds_over_1000", Metric::Count(long));
        push("stalls", Metric::Count(stalls));
        let swapped = self.logs.iter().map(|log| log.swapped_out).sum();
        push("pages_swapped_out", Metric::Count(swapped));
        metrics
    }
}
