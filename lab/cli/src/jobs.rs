//! Runs of all plans: a queue, threads that serve it, and their results.
//!
//! Threads are not joined when a user interrupts: a simulated run of minutes would have to end first. The process ends
//! with them under way, so they share what they use instead of borrowing it.

use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread;

use bursar_experiments::document::{Document, VariantResult};
use bursar_experiments::{Error, Job, Plan};

use crate::machine::Machine;
use bursar_term::progress::Progress;

/// A plan, and the machine of each of its points.
#[derive(Debug)]
pub struct Batch {
    pub plan: Plan,
    pub machines: Vec<Machine>,
}

/// Result of a queue of runs.
pub struct Done {
    /// Documents with figures.
    pub documents: Vec<Document>,
    /// Runs that failed, in the order in which they did.
    pub failures: Vec<RunFailure>,
    /// Whether the user wanted no more.
    pub is_interrupted: bool,
}

/// A run without a result.
pub struct RunFailure {
    /// The experiment.
    pub name: String,
    pub cause: Cause,
}

/// Reason for which a run has no result.
pub enum Cause {
    Said(String),
    /// A bug, to be shown as one when all else is done.
    Panic(Box<dyn Any + Send>),
}

/// Message to the collecting thread.
pub enum Message {
    Begun(Task),
    Ended(Task, Box<Result<VariantResult, Error>>),
    /// A bug, to be shown as one.
    Panicked(Task, Box<dyn Any + Send>),
    Interrupted,
}

/// One run of one batch.
#[derive(Clone, Copy, Debug)]
pub struct Task {
    batch: usize,
    job: Job,
}

/// Channel for interruptions and results.
pub struct Mailbox {
    pub sender: Sender<Message>,
    receiver: Receiver<Message>,
}

impl Mailbox {
    pub fn new() -> Self {
        let (sender, receiver) = channel();
        Self { sender, receiver }
    }
}

/// Does all runs and puts their results into documents, one for each batch and point. The documents do not depend on which
/// run ended first. Those without a result are left out, and a run that fails takes none of the others with it.
pub fn run(batches: Vec<Batch>, revision: &str, mailbox: &Mailbox, progress: &Progress) -> Done {
    let tasks = tasks(&batches);
    let batches = Arc::new(batches);
    start(&batches, &tasks, &mailbox.sender);
    collect(&batches, tasks.len(), revision, &mailbox.receiver, progress)
}

/// Takes what the threads send until nothing is left to be sent.
fn collect(
    batches: &[Batch],
    mut left: usize,
    revision: &str,
    receiver: &Receiver<Message>,
    progress: &Progress,
) -> Done {
    let empty = |batch: &Batch| -> Vec<Document> {
        let machines = batch.machines.iter().enumerate();
        machines
            .map(|(point, machine)| batch.plan.document(point, machine.info(), revision))
            .collect()
    };
    let mut documents: Vec<Vec<Document>> = batches.iter().map(empty).collect();
    let mut failures = Vec::new();
    let mut is_interrupted = false;
    while left > 0 {
        let message = receiver.recv();
        let (task, result) = match message.expect("the mailbox holds a sender") {
            Message::Begun(task) => {
                progress.begin(&name(batches, task), &time(batches, task));
                continue;
            }
            Message::Interrupted => {
                is_interrupted = true;
                break;
            }
            Message::Ended(task, result) => {
                (task, result.map_err(|error| Cause::Said(error.to_string())))
            }
            // The simulator says so when tasks are in a deadlock.
            Message::Panicked(task, panic) => match panic.downcast::<bursar_sim::Failure>() {
                Ok(failure) => (task, Err(Cause::Said(failure.to_string()))),
                Err(panic) => (task, Err(Cause::Panic(panic))),
            },
        };
        let document = &mut documents[task.batch][task.job.point];
        let merged = result.and_then(|result| {
            let merged = document.variants[task.job.variant].merge(&result);
            merged.map_err(|metric| Cause::Said(format!("`{metric}` changed its unit")))
        });
        let name = name(batches, task);
        match merged {
            Ok(()) => progress.end(&name),
            Err(cause) => {
                progress.fail(&name);
                document.interrupted = true;
                failures.push(RunFailure { name, cause });
            }
        }
        left -= 1;
    }
    let mut documents = documents.concat();
    for document in &mut documents {
        document.interrupted |= is_interrupted;
        document.conclude();
    }
    documents.retain(|document| document.seeds > 0);
    Done {
        documents,
        failures,
        is_interrupted,
    }
}

/// About how long all runs take on this machine, seconds.
pub fn estimated_seconds(batches: &[Batch]) -> f64 {
    cpu_seconds(batches) / at_once(batches) as f64
}

/// The same, of one CPU.
pub fn cpu_seconds(batches: &[Batch]) -> f64 {
    let of = |batch: &Batch| {
        let cpus = |point: usize| match &batch.machines[point] {
            Machine::Host(_) => None,
            Machine::Sim(topology, _) => Some(topology.cpus),
        };
        batch.plan.estimated_seconds(cpus)
    };
    batches.iter().map(of).sum()
}

/// Most runs that are under way at a time.
fn at_once(batches: &[Batch]) -> usize {
    let machines = batches.iter().flat_map(|batch| &batch.machines);
    machines.map(Machine::runs_at_once).min().unwrap_or(1)
}

/// Number of runs.
pub fn count(batches: &[Batch]) -> u64 {
    tasks(batches).len() as u64
}

fn tasks(batches: &[Batch]) -> Vec<Task> {
    let of =
        |(batch, jobs): (usize, Vec<Job>)| jobs.into_iter().map(move |job| Task { batch, job });
    let jobs = batches.iter().map(|batch| batch.plan.jobs());
    jobs.enumerate().flat_map(of).collect()
}

/// Starts threads that do the tasks in order, as many at once as their machines allow.
fn start(batches: &Arc<Vec<Batch>>, tasks: &[Task], sender: &Sender<Message>) {
    let at_once = at_once(batches);
    let tasks: Arc<[Task]> = tasks.into();
    let next = Arc::new(AtomicUsize::new(0));
    for _ in 0..at_once.min(tasks.len()) {
        let (batches, tasks) = (Arc::clone(batches), Arc::clone(&tasks));
        let (next, sender) = (Arc::clone(&next), sender.clone());
        thread::spawn(move || {
            // Relaxed: the number is all that is shared; what a task needs was there before the thread.
            while let Some(task) = tasks.get(next.fetch_add(1, Ordering::Relaxed)) {
                let told = sender.send(Message::Begun(*task)).is_ok()
                    && sender.send(serve(&batches, *task)).is_ok();
                if !told {
                    return;
                }
            }
        });
    }
}

fn serve(batches: &[Batch], task: Task) -> Message {
    let Batch { plan, machines } = &batches[task.batch];
    let run = || machines[task.job.point].run(plan, task.job);
    match catch_unwind(AssertUnwindSafe(run)) {
        Ok(result) => Message::Ended(task, Box::new(result)),
        Err(panic) => Message::Panicked(task, panic),
    }
}

fn name(batches: &[Batch], task: Task) -> String {
    let Batch { plan, machines } = &batches[task.batch];
    let point = match machines.len() {
        1 => String::new(),
        points => format!(", point {} of {points}", task.job.point + 1),
    };
    format!(
        "{} {} {}, seed {}{point}",
        plan.experiment().name,
        plan.load(task.job),
        plan.variant(task.job),
        task.job.seed
    )
}

/// Time of a task on its machine, as the end of a sentence.
fn time(batches: &[Batch], task: Task) -> String {
    let Batch { plan, machines } = &batches[task.batch];
    let seconds = plan.run_ms(task.job) as f64 / 1e3;
    let time = match machines[task.job.point] {
        Machine::Host(_) => "s",
        Machine::Sim(..) => "s of virtual time",
    };
    format!(", {seconds:.1} {time}")
}

#[cfg(test)]
mod tests;
