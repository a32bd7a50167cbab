//! The results of a run of one variant.

use super::parameters::Need;
use super::parameters::Parameters;
use super::reader::Read;
use super::subject::Work;
use super::truth::{Misses, Truth};
use super::worker::Log;
use crate::document::Metrics;
use crate::measure::{Samples, Unit};
use crate::metrics::memcg_flush::*;
use crate::metrics::of_experiment;

/// Results of a run of one variant with one seed.
#[derive(Clone, Debug)]
pub struct Outcome {
    seed: u64,
    need: Need,
    latencies_ns: Vec<u64>,
    misses: Misses,
    steps: Samples,
    work: Work,
    refusals: u64,
    /// Measurements of tasks other than readers.
    pub(super) more: Metrics,
}

impl Outcome {
    /// Compares the logs with the truth.
    pub(super) fn new(
        parameters: &Parameters,
        logs: Vec<Log>,
        reads: Vec<Read>,
        work: Work,
    ) -> Self {
        let refusals = logs.iter().map(|log| log.refusals).sum();
        let mut steps = Samples::new(Unit::Ns);
        let truth = Truth::new(parameters.tree(), logs, &mut steps);
        Self {
            seed: parameters.seed,
            need: parameters.need(),
            latencies_ns: reads
                .iter()
                .map(|read| read.ended_ns - read.began_ns)
                .collect(),
            misses: truth.judge(reads, parameters.need()),
            steps,
            work,
            refusals,
            more: Metrics::default(),
        }
    }

    /// Returns the metrics for a document.
    pub(super) fn metrics(self) -> Metrics {
        let mut metrics = Metrics::default();
        metrics.spread(READ_LATENCY, self.latencies_ns.iter().copied());
        let reads = self.latencies_ns.len() as u64;
        let mut share = |info, part| metrics.share(info, self.seed, part, reads);
        for info in of_experiment("memcg-flush") {
            if let Some((least, end)) = info.range_ns {
                let inside = |ns: &&u64| (least..end).contains(*ns);
                share(
                    *info,
                    self.latencies_ns.iter().filter(inside).count() as u64,
                );
            }
        }
        share(BROKEN_READS, self.misses.broken);
        if self.need != Need::Own {
            share(READS_BEYOND_NEED, self.misses.beyond_need);
        }
        metrics.distribution(STALENESS, self.misses.staleness.distribution());
        metrics.distribution(MISSING_UPDATES, self.misses.updates.distribution());
        metrics.distribution(WORKER_RUNTIME, self.steps.distribution());
        metrics.append(self.more);
        let work = &self.work;
        for (info, count) in [
            (FLUSHES, Some(work.root + work.subtree)),
            (FLUSHES_ROOT, Some(work.root)),
            (FLUSHES_SUBTREE, Some(work.subtree)),
            (SKIPS, Some(work.skips)),
            (WAITS, Some(work.waits)),
            (LOCK_WAITS, work.lock_waits),
            (FENCES, work.fences),
            (LIMIT_REFUSALS, Some(self.refusals)),
        ] {
            if let Some(count) = count {
                metrics.count(info, count);
            }
        }
        metrics
    }
}
