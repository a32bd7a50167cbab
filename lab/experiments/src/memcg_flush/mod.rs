//! The experiment of the memcg thread of 2023: which tasks flush, which wait and which read old numbers, when many read
//! the statistics of a tree of groups that workers keep changing.
//!
//! | part | file |
//! |---|---|
//! | the tree of tenants and queries | `tree.rs` |
//! | the parameters and their ranges | `parameters.rs` |
//! | the statistics | `statistics.rs` |
//! | the subjects of the comparison | `subject.rs` |
//! | the load | `worker.rs`; `swing.rs`: tenants that grow and shrink; `warm_up.rs`: pages that exist before |
//! | network streams | `stream.rs` |
//! | the tenants' memory: lists, faults, reclaim, swap | `tenant_memory/` |
//! | the readers | `reader.rs` |
//! | decisions that use the numbers | `consumers/` |
//! | the truth during the run | `oracle.rs` |
//! | the right answer of each read | `truth.rs` |
//! | the results of a run | `outcome.rs` |
//!
//! Every variant runs the same load from the same seed for the same time. Reads are judged afterwards: workers and
//! readers only log. Decisions are compared with the oracle at once, which takes no time of a simulated machine. A run
//! whose books are wrong in the end gives no result.

mod consumers;
mod oracle;
mod outcome;
mod parameters;
mod reader;
mod statistics;
mod stream;
mod subject;
mod swing;
mod tenant_memory;
mod tree;
mod truth;
mod warm_up;
mod worker;

use bursar::{FlushPolicy, Freshness};
use bursar_machine::Machine;
use bursar_rig::Tasks;
use bursar_rig::timer::Timers;

use outcome::Outcome;
pub use parameters::{KillerReads, Parameters, Scope, Site};
pub use tree::Tree;

use bursar_kernel::stats::{Policy, Tunables};

use self::consumers::{Consumers, Scene};
use self::oracle::{Observed, Oracle};
use self::reader::Read;
use self::stream::Streams;
use self::subject::{Own, Subject, Theirs};
use self::tenant_memory::{Space, Tally};
use self::warm_up::ColdPages;
use self::worker::{Log, Task};
use crate::document::Metrics;
use crate::workload::Workload;

/// A variant of the comparison.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Variant {
    /// Bursar, whose readers ask for numbers as fresh as this.
    Own(FlushPolicy, Freshness),
    /// A policy of the thread.
    Published(Policy),
}

impl Workload for Parameters {
    type Variant = Variant;

    fn variants() -> Vec<(&'static str, &'static str, Variant)> {
        let own = [
            (
                "combining",
                "Bursar, exact: readers of one group share walks, each begun after its readers came",
                Variant::Own(FlushPolicy::Combining, Freshness::Exact),
            ),
            (
                "combining-fence",
                "Bursar, exact: a reader passes a fence and takes the marks of all that it visits",
                Variant::Own(FlushPolicy::CombiningFence, Freshness::Exact),
            ),
            (
                "periodic-only",
                "Bursar, cached: readers take what the last periodic walk left",
                Variant::Own(FlushPolicy::PeriodicOnly, Freshness::Cached),
            ),
        ];
        let published =
            policies(1).map(|policy| (policy.name(), policy.summary(), Variant::Published(policy)));
        own.into_iter().chain(published).collect()
    }

    fn measure<M: Timers>(&self, machine: &M, variant: Variant) -> Result<Metrics, String> {
        let outcome = match variant {
            Variant::Own(policy, freshness) => {
                measure(machine, &Own::new(machine, self, policy, freshness)?, self)
            }
            Variant::Published(policy) => {
                let max_waiters = match self.max_waiters {
                    0 => machine.cpus() as u64,
                    bound => bound,
                };
                let bounded = policies(max_waiters).find(|it| it.name() == policy.name());
                measure(
                    machine,
                    &Theirs::new(machine, self, bounded.unwrap_or(policy))?,
                    self,
                )
            }
        };
        outcome.map(Outcome::metrics)
    }
}

/// Returns the policies of the thread, with a bound on the waiters of those that have one.
fn policies(max_waiters: u64) -> impl Iterator<Item = Policy> {
    let tunables = Tunables {
        max_waiters,
        ..Tunables::of_cpus(1)
    };
    Policy::all(tunables).into_iter()
}

/// Measures, with an oracle if a part of the load needs it.
fn measure<M: Tasks, S: Subject<M>>(
    machine: &M,
    subject: &S,
    parameters: &Parameters,
) -> Result<Outcome, String> {
    let oracle = &Oracle::new(parameters.tree());
    if parameters.needs_oracle() {
        let observed = Observed { subject, oracle };
        measure_with(machine, &observed, parameters, oracle)
    } else {
        measure_with(machine, subject, parameters, oracle)
    }
}

/// Runs all tasks of the load and the periodic flusher, then compares the reads with the truth.
fn measure_with<M: Tasks, S: Subject<M>>(
    machine: &M,
    subject: &S,
    parameters: &Parameters,
    oracle: &Oracle,
) -> Result<Outcome, String> {
    let cold = ColdPages::warm_up(machine, subject, parameters)?;
    let start_ns = machine.now_ns();
    let span = (start_ns, start_ns + parameters.duration_ms * 1_000_000);
    let spaces: Vec<Space<M, S::Charge>> = tenant_memory::spaces(parameters);
    let mut logs: Vec<(Log, Tally)> = Vec::new();
    logs.resize_with(parameters.workers as usize, Default::default);
    let mut reclaimers = vec![Tally::default(); parameters.reclaimers as usize];
    let mut reads: Vec<Result<Vec<Read>, String>> = Vec::new();
    reads.resize_with(parameters.readers as usize, || Ok(Vec::new()));

    let mut consumers = Consumers::new(parameters);
    let mut streams = Streams::new(parameters);
    let scene = Scene {
        machine,
        subject,
        parameters,
        oracle,
        reclaim: &cold,
        span,
    };

    let mut tasks: Vec<Task<'_>> = Vec::new();
    let memory = &spaces;
    for (index, log) in (0..).zip(&mut logs) {
        tasks.push(Box::new(move || {
            *log = worker::work(machine, subject, parameters, memory, index, span);
        }));
    }
    for (index, read) in (parameters.workers..).zip(&mut reads) {
        tasks.push(Box::new(move || {
            *read = reader::read(machine, subject, parameters, index, span);
        }));
    }
    for (index, tally) in (RECLAIMERS..).zip(&mut reclaimers) {
        tasks.push(Box::new(move || {
            *tally = tenant_memory::reclaim_repeatedly(
                machine, subject, parameters, memory, index, span,
            );
        }));
    }
    tasks.push(Box::new(move || {
        flush_periodically(machine, subject, parameters, span)
    }));
    let first = parameters.workers + parameters.readers;
    tasks.extend(consumers.tasks(&scene, first));
    tasks.extend(streams.tasks(machine, subject, parameters, span));
    machine.run(tasks);

    let reads = reads.into_iter().collect::<Result<Vec<_>, _>>()?.concat();
    let (logs, workers): (Vec<Log>, Vec<Tally>) = logs.into_iter().unzip();
    let logs = logs.into_iter().chain(streams.take_logs()).collect();
    let mut outcome = Outcome::new(parameters, logs, reads, subject.work());
    consumers.report(parameters.seed, &mut outcome.more)?;
    streams.report(parameters, &mut outcome.more);
    tenant_memory::report(&mut outcome.more, parameters.seed, &workers, &reclaimers);
    cold.free_all();
    tenant_memory::audit(subject, parameters, spaces)?;
    Ok(outcome)
}

/// First number of reclaimers, beyond those of workers and readers.
const RECLAIMERS: u64 = 1 << 32;

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

#[cfg(test)]
mod tests;
