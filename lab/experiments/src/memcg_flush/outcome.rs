//! The results of a run of one variant.

use super::Variant;
use super::parameters::Parameters;
use super::reader::Read;
use super::subject::{Need, Work};
use super::truth::{Misses, Truth};
use super::worker::Log;
use crate::document::{Metrics, VariantResult};
use crate::measure::{Metric, Samples, Share, Unit};

/// A range of read latencies whose share the thread published.
pub(super) struct Bucket {
    pub(super) name: &'static str,
    from_ns: u64,
    below_ns: u64,
}

pub(super) const BUCKETS: [Bucket; 5] = [
    Bucket {
        name: "reads_under_100us",
        from_ns: 0,
        below_ns: 100_000,
    },
    Bucket {
        name: "reads_100us_to_1ms",
        from_ns: 100_000,
        below_ns: 1_000_000,
    },
    Bucket {
        name: "reads_1ms_to_10ms",
        from_ns: 1_000_000,
        below_ns: 10_000_000,
    },
    Bucket {
        name: "reads_10ms_to_100ms",
        from_ns: 10_000_000,
        below_ns: 100_000_000,
    },
    Bucket {
        name: "reads_over_100ms",
        from_ns: 100_000_000,
        below_ns: u64::MAX,
    },
];

impl Bucket {
    fn count(&self, reads: &[Read]) -> u64 {
        let inside =
            |read: &&Read| (self.from_ns..self.below_ns).contains(&(read.ended_ns - read.began_ns));
        reads.iter().filter(inside).count() as u64
    }
}

/// Results of a run of one variant with one seed.
#[derive(Clone, Debug)]
pub struct Outcome {
    variant: Variant,
    seed: u64,
    need: Need,
    reads: u64,
    latency: Samples,
    buckets: [u64; BUCKETS.len()],
    misses: Misses,
    steps: Samples,
    work: Work,
    refusals: u64,
    /// Measurements of tasks other than readers.
    more: Vec<(&'static str, Metric)>,
}

impl Outcome {
    /// Compares the logs with the truth.
    pub(super) fn new(
        variant: Variant,
        parameters: &Parameters,
        logs: Vec<Log>,
        reads: Vec<Read>,
        work: Work,
    ) -> Self {
        let refusals = logs.iter().map(|log| log.refusals).sum();
        let mut steps = Samples::new(Unit::Ns);
        let truth = Truth::new(parameters.tree(), logs, &mut steps);
        let mut latency = Samples::new(Unit::Ns);
        for read in &reads {
            latency.record(read.ended_ns - read.began_ns);
        }
        Self {
            variant,
            seed: parameters.seed,
            need: parameters.need(),
            reads: reads.len() as u64,
            buckets: BUCKETS.map(|bucket| bucket.count(&reads)),
            latency,
            misses: truth.judge(reads, parameters.need()),
            steps,
            work,
            refusals,
            more: Vec::new(),
        }
    }

    /// Adds a metric that only some loads have.
    pub(super) fn push(&mut self, name: &'static str, metric: Metric) {
        self.more.push((name, metric));
    }

    /// Returns the result for a document.
    pub fn result(&self) -> VariantResult {
        VariantResult {
            name: self.variant.name().to_owned(),
            summary: self.variant.summary().to_owned(),
            ran_seeds: vec![self.seed],
            metrics: self.metrics(),
        }
    }

    fn metrics(&self) -> Metrics {
        let distribution = |samples: &Samples| Metric::Distribution(samples.distribution());
        let share = |part| Metric::Ratio(Share::of(self.seed, part, self.reads));
        let mut metrics = Metrics::default();
        metrics.push("read_latency", distribution(&self.latency));
        for (bucket, part) in BUCKETS.iter().zip(self.buckets) {
            metrics.push(bucket.name, share(part));
        }
        metrics.push("broken_reads", share(self.misses.broken));
        if self.need != Need::Own {
            metrics.push("reads_beyond_need", share(self.misses.beyond_need));
        }
        metrics.push("staleness", distribution(&self.misses.staleness));
        metrics.push("missing_updates", distribution(&self.misses.updates));
        metrics.push("worker_runtime", distribution(&self.steps));
        for (name, metric) in &self.more {
            metrics.push(name, metric.clone());
        }
        let work = &self.work;
        for (name, count) in [
            ("flushes", Some(work.root + work.subtree)),
            ("flushes_root", Some(work.root)),
            ("flushes_subtree", Some(work.subtree)),
            ("skips", Some(work.skips)),
            ("waits", Some(work.waits)),
            ("lock_waits", work.lock_waits),
            ("fences", work.fences),
            ("limit_refusals", Some(self.refusals)),
        ] {
            if let Some(count) = count {
                metrics.push(name, Metric::Count(count));
            }
        }
        metrics
    }
}
