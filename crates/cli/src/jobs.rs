//! Runs of all plans: a queue, threads that serve it, and what they gave.
//!
//! Threads are not joined when a user interrupts: a simulated run of minutes would have to end first. The process ends
//! with them under way, so they share what they use instead of borrowing it.

use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread;

use bursar_lab::document::{Document, VariantResult};
use bursar_lab::{Error, Job, Plan};

use crate::failure::Failure;
use crate::machine::Machine;
use crate::progress::Progress;

/// A plan, and the machine of each of its points.
#[derive(Debug)]
pub struct Batch {
    pub plan: Plan,
    pub machines: Vec<Machine>,
}

/// How a queue of runs ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// All runs are done.
    Complete,
    /// The user wanted no more.
    Interrupted,
}

/// What the collecting thread is told.
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

/// Where interruptions are sent and everything is received.
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
/// run ended first. Those without a result are left out.
pub fn run(
    batches: Vec<Batch>,
    revision: &str,
    mailbox: &Mailbox,
    progress: &Progress,
) -> Result<(Vec<Document>, End), Failure> {
    let empty = |batch: &Batch| -> Vec<Document> {
        let machines = batch.machines.iter().enumerate();
        machines
            .map(|(point, machine)| batch.plan.document(point, machine.info(), revision))
            .collect()
    };
    let mut documents: Vec<Vec<Document>> = batches.iter().map(empty).collect();
    let tasks = tasks(&batches);
    let batches = Arc::new(batches);
    start(&batches, &tasks, &mailbox.sender);
    let mut left = tasks.len();
    let mut end = End::Complete;
    while left > 0 {
        let message = mailbox.receiver.recv();
        match message.expect("this function holds a sender") {
            Message::Begun(task) => progress.begin(&announce(&batches, task)),
            Message::Ended(task, result) => {
                let result = result.map_err(Failure::unavailable)?;
                let document = &mut documents[task.batch][task.job.point];
                let merged = document.variants[task.job.variant].merge(&result);
                merged.map_err(|metric| {
                    Failure::unavailable(format!("`{metric}` changed its unit"))
                })?;
                progress.end(&name(&batches, task));
                left -= 1;
            }
            Message::Panicked(task, panic) => return Err(failed(&name(&batches, task), panic)),
            Message::Interrupted => {
                end = End::Interrupted;
                break;
            }
        }
    }
    let mut documents = documents.concat();
    for document in &mut documents {
        document.interrupted = end == End::Interrupted;
        document.conclude();
    }
    documents.retain(|document| document.seeds > 0);
    Ok((documents, end))
}

/// About how long all runs take on this machine, seconds.
pub fn estimated_seconds(batches: &[Batch]) -> f64 {
    let of = |batch: &Batch| {
        let cpus = |point: usize| match &batch.machines[point] {
            Machine::Host(_) => None,
            Machine::Sim(topology, _) => Some(topology.cpus),
        };
        batch.plan.estimated_seconds(cpus)
    };
    batches.iter().map(of).sum::<f64>() / at_once(batches) as f64
}

/// How many runs may be under way at a time.
fn at_once(batches: &[Batch]) -> usize {
    let machines = batches.iter().flat_map(|batch| &batch.machines);
    machines.map(Machine::runs_at_once).min().unwrap_or(1)
}

/// How many runs there are.
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

/// The simulator says so when tasks wait for each other for ever. Anything else goes on as the panic that it is.
fn failed(name: &str, panic: Box<dyn Any + Send>) -> Failure {
    match panic.downcast::<bursar_sim::Failure>() {
        Ok(failure) => Failure::unavailable(format!("{name}: {failure}")),
        Err(panic) => resume_unwind(panic),
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

fn announce(batches: &[Batch], task: Task) -> String {
    let Batch { plan, machines } = &batches[task.batch];
    let seconds = plan.run_ms(task.job) as f64 / 1e3;
    let time = match machines[task.job.point] {
        Machine::Host(_) => "s",
        Machine::Sim(..) => "s of virtual time",
    };
    format!("{}, {seconds:.1} {time}", name(batches, task))
}
