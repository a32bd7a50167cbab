//! The experiment of the memcg thread of 2023: who flushes, who waits and who reads old numbers, when many read the
//! statistics of a tree of groups that workers keep changing.
//!
//! | part | file |
//! |---|---|
//! | the tree of tenants and queries | `tree.rs` |
//! | the parameters and their ranges | `parameters.rs` |
//! | what is compared | `subject.rs` |
//! | the load | `worker.rs` |
//! | the readers | `reader.rs` |
//! | what each read should have seen | `truth.rs` |
//!
//! Every variant runs the same load from the same seed for the same time, one after the other. Nothing is judged while it
//! runs: workers and readers only log.

mod parameters;
mod reader;
mod subject;
mod tree;
mod truth;
mod worker;

use std::fmt;

use bursar::{FlushPolicy, Freshness};
use bursar_machine::{Machine, Tasks};

pub use parameters::Parameters;
pub use tree::Tree;

use self::reader::Read;
use self::subject::{Own, Subject, Theirs, Work};
use self::truth::{Misses, Truth};
use self::worker::Log;
use crate::document::{Metrics, VariantResult};
use crate::measure::{Samples, Share, count};
use crate::published::Policy;

/// The experiment's file.
pub const FILE: &str = include_str!("../../../../experiments/memcg-flush.toml");

/// What can be compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Variant {
    /// Bursar; readers ask for exact numbers and share flushes.
    Combining,
    /// Bursar; readers take what the last periodic flush left.
    PeriodicOnly,
    /// A policy of the thread.
    Published(Policy),
}

impl Variant {
    fn named(name: &str, max_waiters: u64) -> Option<Self> {
        let policies = [
            Policy::Unified,
            Policy::Direct,
            Policy::Coalesced { max_waiters },
            Policy::PerGroup,
        ];
        let published = policies.into_iter().map(Variant::Published);
        [Variant::Combining, Variant::PeriodicOnly]
            .into_iter()
            .chain(published)
            .find(|variant| variant.name() == name)
    }

    fn name(self) -> &'static str {
        match self {
            Variant::Combining => "combining",
            Variant::PeriodicOnly => "periodic-only",
            Variant::Published(policy) => policy.name(),
        }
    }

    fn summary(self) -> &'static str {
        match self {
            Variant::Combining => {
                "Bursar, exact: readers share flushes of what they read, each begun after its readers came"
            }
            Variant::PeriodicOnly => {
                "Bursar, cached: readers take what the last periodic flush left"
            }
            Variant::Published(policy) => policy.summary(),
        }
    }
}

/// Why a run ended without a result.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RunError {
    /// The variant that failed.
    pub variant: String,
    /// Why.
    pub reason: String,
}

impl fmt::Display for RunError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "variant `{}`: {}", self.variant, self.reason)
    }
}

impl std::error::Error for RunError {}

/// Runs one variant with `seeds` seeds, the first of which is in `parameters`.
///
/// # Errors
/// If there is no such variant, or what it measures reports an error.
pub fn run<M: Tasks>(
    machine: &M,
    name: &str,
    parameters: &Parameters,
    seeds: u64,
) -> Result<VariantResult, RunError> {
    let fail = |reason: String| RunError {
        variant: name.to_owned(),
        reason,
    };
    let max_waiters = match parameters.max_waiters {
        0 => machine.cpus() as u64,
        bound => bound,
    };
    let variant =
        Variant::named(name, max_waiters).ok_or_else(|| fail("no such variant".to_owned()))?;
    let mut total: Option<Outcome> = None;
    for seed in 0..seeds.max(1) {
        let mut parameters = *parameters;
        parameters.seed = parameters.seed.wrapping_add(seed);
        let outcome = run_once(machine, variant, &parameters).map_err(fail)?;
        match &mut total {
            None => total = Some(outcome),
            Some(total) => total.merge(&outcome),
        }
    }
    let metrics = total.map(|total| total.metrics()).unwrap_or_default();
    Ok(VariantResult {
        name: name.to_owned(),
        summary: variant.summary().to_owned(),
        metrics,
    })
}

fn run_once<M: Tasks>(
    machine: &M,
    variant: Variant,
    parameters: &Parameters,
) -> Result<Outcome, String> {
    match variant {
        Variant::Combining => {
            let own = Own::new(
                machine,
                parameters,
                FlushPolicy::Combining,
                Freshness::Exact,
            )?;
            measure(machine, &own, parameters)
        }
        Variant::PeriodicOnly => {
            let own = Own::new(
                machine,
                parameters,
                FlushPolicy::PeriodicOnly,
                Freshness::Cached,
            )?;
            measure(machine, &own, parameters)
        }
        Variant::Published(policy) => {
            let theirs = Theirs::new(machine, parameters, policy)?;
            measure(machine, &theirs, parameters)
        }
    }
}

/// Lets workers, readers and the periodic flusher run, then holds what was read against the truth.
fn measure<M: Tasks, S: Subject<M>>(
    machine: &M,
    subject: &S,
    parameters: &Parameters,
) -> Result<Outcome, String> {
    let start_ns = machine.now_ns();
    let span = (start_ns, start_ns + parameters.duration_ms * 1_000_000);
    let mut logs: Vec<Log> = Vec::new();
    logs.resize_with(parameters.workers as usize, Log::default);
    let mut reads: Vec<Result<Vec<Read>, String>> = Vec::new();
    reads.resize_with(parameters.readers as usize, || Ok(Vec::new()));

    let mut tasks: Vec<Box<dyn FnOnce() + Send + '_>> = Vec::new();
    for (index, log) in (0..).zip(&mut logs) {
        tasks.push(Box::new(move || {
            *log = worker::work(machine, subject, parameters, index, span);
        }));
    }
    for (index, read) in (parameters.workers..).zip(&mut reads) {
        tasks.push(Box::new(move || {
            *read = reader::read(machine, subject, parameters, index, span);
        }));
    }
    tasks.push(Box::new(move || {
        flush_periodically(machine, subject, parameters, span)
    }));
    machine.run(tasks);

    let work = subject.work();
    let reads: Vec<Read> = reads.into_iter().collect::<Result<Vec<_>, _>>()?.concat();
    let refusals = logs.iter().map(|log| log.refusals).sum();
    let mut steps = Samples::new("ns");
    let truth = Truth::new(parameters.tree(), logs, &mut steps);
    let mut latency = Samples::new("ns");
    for read in &reads {
        latency.record(read.ended_ns - read.began_ns);
    }
    Ok(Outcome {
        buckets: BUCKETS.map(|bucket| bucket.share(&reads)),
        latency,
        misses: truth.judge(reads),
        steps,
        work,
        refusals,
    })
}

fn flush_periodically<M: Machine + Tasks, S: Subject<M>>(
    machine: &M,
    subject: &S,
    parameters: &Parameters,
    (start_ns, end_ns): (u64, u64),
) {
    let period_ns = parameters.flush_period_ms * 1_000_000 / S::TICKS_A_PERIOD;
    let mut next_ns = start_ns + period_ns;
    while next_ns < end_ns {
        machine.sleep_until(next_ns);
        subject.tick();
        next_ns = (next_ns + period_ns).max(machine.now_ns());
    }
}

/// A range of read latencies whose share the thread published.
struct Bucket {
    name: &'static str,
    from_ns: u64,
    below_ns: u64,
}

const BUCKETS: [Bucket; 5] = [
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
struct Outcome {
    latency: Samples,
    buckets: [Share; BUCKETS.len()],
    misses: Misses,
    steps: Samples,
    work: Work,
    refusals: u64,
}

impl Outcome {
    fn merge(&mut self, other: &Self) {
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

#[cfg(test)]
mod tests;
