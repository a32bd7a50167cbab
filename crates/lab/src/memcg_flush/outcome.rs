//! What the runs of one variant gave.

use super::Variant;
use super::reader::Read;
use super::subject::Work;
use super::tree::Tree;
use super::truth::{Misses, Truth};
use super::worker::Log;
use crate::document::{Metrics, VariantResult};
use crate::measure::{Samples, Share, count};

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
    fn share(&self, reads: &[Read]) -> Share {
        let inside =
            |read: &&Read| (self.from_ns..self.below_ns).contains(&(read.ended_ns - read.began_ns));
        Share::of(
            reads.iter().filter(inside).count() as u64,
            reads.len() as u64,
        )
    }
}

/// What the runs of one variant gave, over one or more seeds.
#[derive(Clone, Debug)]
pub struct Outcome {
    variant: Variant,
    latency: Samples,
    buckets: [Share; BUCKETS.len()],
    misses: Misses,
    steps: Samples,
    work: Work,
    refusals: u64,
}

impl Outcome {
    /// Holds what was logged against the truth.
    pub(super) fn new(
        variant: Variant,
        tree: Tree,
        logs: Vec<Log>,
        reads: Vec<Read>,
        work: Work,
    ) -> Self {
        let refusals = logs.iter().map(|log| log.refusals).sum();
        let mut steps = Samples::new("ns");
        let truth = Truth::new(tree, logs, &mut steps);
        let mut latency = Samples::new("ns");
        for read in &reads {
            latency.record(read.ended_ns - read.began_ns);
        }
        Self {
            variant,
            buckets: BUCKETS.map(|bucket| bucket.share(&reads)),
            latency,
            misses: truth.judge(reads),
            steps,
            work,
            refusals,
        }
    }

    /// Adds the outcome of the same variant with another seed.
    pub fn merge(&mut self, other: &Self) {
        self.latency.merge(&other.latency);
        for (share, other) in self.buckets.iter_mut().zip(&other.buckets) {
            share.merge(other);
        }
        self.misses.broken.merge(&other.misses.broken);
        self.misses.staleness.merge(&other.misses.staleness);
        self.misses.updates.merge(&other.misses.updates);
        self.steps.merge(&other.steps);
        self.work.merge(other.work);
        self.refusals += other.refusals;
    }

    /// What a document says about it.
    pub fn result(&self) -> VariantResult {
        VariantResult {
            name: self.variant.name().to_owned(),
            summary: self.variant.summary().to_owned(),
            metrics: self.metrics(),
        }
    }

    fn metrics(&self) -> Metrics {
        let mut metrics = Metrics::default();
        metrics.push("read_latency", self.latency.metric());
        for (bucket, share) in BUCKETS.iter().zip(&self.buckets) {
            metrics.push(bucket.name, share.metric());
        }
        metrics.push("broken_reads", self.misses.broken.metric());
        metrics.push("staleness", self.misses.staleness.metric());
        metrics.push("missing_updates", self.misses.updates.metric());
        metrics.push("worker_runtime", self.steps.metric());
        metrics.push("flushes", count(self.work.root + self.work.subtree));
        metrics.push("flushes_root", count(self.work.root));
        metrics.push("flushes_subtree", count(self.work.subtree));
        metrics.push("skips", count(self.work.skips));
        metrics.push("waits", count(self.work.waits));
        if let Some(lock_waits) = self.work.lock_waits {
            metrics.push("lock_waits", count(lock_waits));
        }
        if let Some(fences) = self.work.fences {
            metrics.push("fences", count(fences));
        }
        metrics.push("limit_refusals", count(self.refusals));
        metrics
    }
}

impl Work {
    fn merge(&mut self, other: Self) {
        let sum = |one: Option<u64>, other: Option<u64>| Some(one? + other?);
        self.root += other.root;
        self.subtree += other.subtree;
        self.skips += other.skips;
        self.waits += other.waits;
        self.lock_waits = sum(self.lock_waits, other.lock_waits);
        self.fences = sum(self.fences, other.fences);
    }
}
