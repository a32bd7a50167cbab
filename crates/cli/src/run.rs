//! `bursar run`.

use std::io::Write;
use std::panic::resume_unwind;
use std::process::ExitCode;

use bursar_lab::{Plan, Request};

use crate::args::{Global, Run};
use crate::failure::{Failure, INTERRUPTED, UNAVAILABLE};
use crate::format;
use crate::interruption;
use crate::jobs::{self, Batch, Cause, Mailbox, Message, RunFailure};
use crate::machine;
use crate::output::Output;
use crate::progress::Progress;
use crate::units::long_time;

/// The revision of the source, noted when this was built.
const REVISION: &str = env!("BURSAR_REVISION");

/// Runs experiments and writes one document. All that can be refused is refused before anything runs.
pub fn run(run: &Run, global: &Global) -> Result<ExitCode, Failure> {
    let batches = batches(run)?;
    let format = global.format()?;
    let output = Output::open(global)?;
    let mailbox = Mailbox::new();
    let sender = mailbox.sender.clone();
    interruption::catch(move || sender.send(Message::Interrupted).is_ok())?;

    warn_of_hours(&batches, global);
    let progress = Progress::new(jobs::count(&batches), global);
    let done = jobs::run(batches, REVISION, &mailbox, &progress);
    drop(progress);
    // What an interruption or a failure leaves behind is no document if it has no figures.
    if done.documents.is_empty() {
        let _ = writeln!(
            std::io::stderr(),
            "{} before any run had finished; nothing is written",
            if done.is_interrupted {
                "interrupted"
            } else {
                "failed"
            }
        );
    } else {
        let text = format::documents(&done.documents, format, output.has_color())?;
        output.write(&text)?;
    }
    let is_whole = done.failures.is_empty();
    report(done.failures);
    Ok(match (done.is_interrupted, is_whole) {
        (true, _) => ExitCode::from(INTERRUPTED),
        (false, false) => ExitCode::from(UNAVAILABLE),
        (false, true) => format::exit_code(&done.documents),
    })
}

/// Says which runs failed. One that ended in a bug goes on as the panic that it is, now that the others are written.
fn report(failures: Vec<RunFailure>) {
    let mut panics = Vec::new();
    for failure in failures {
        let said = match failure.cause {
            Cause::Said(said) => said,
            Cause::Panic(panic) => {
                panics.push(panic);
                "a bug in this program".to_owned()
            }
        };
        let _ = writeln!(std::io::stderr(), "error: {}: {said}", failure.name);
    }
    if let Some(panic) = panics.into_iter().next() {
        resume_unwind(panic);
    }
}

/// The experiments that are asked for, each once, in the order in which they were named.
pub fn batches(run: &Run) -> Result<Vec<Batch>, Failure> {
    let mut names: Vec<&str> = Vec::new();
    for name in &run.experiments {
        if !names.contains(&name.as_str()) {
            names.push(name);
        }
    }
    if names.is_empty() {
        names = bursar_lab::names().collect();
    }
    names.into_iter().map(|name| batch(name, run)).collect()
}

fn batch(name: &str, run: &Run) -> Result<Batch, Failure> {
    let experiment = bursar_lab::experiment_named(name).map_err(Failure::usage)?;
    let asked = machine::Request::new(run.machine.as_deref(), &experiment)?;
    let keys = machine::keys();
    let keys: Vec<_> = keys.iter().map(String::as_str).collect();
    let request = Request {
        machine: asked.kind(),
        machine_keys: &keys,
        assignments: &run.set,
        is_quick: run.quick || run.experiments.is_empty(),
        seeds: run.seeds,
        shard: run.shard,
    };
    let plan = Plan::new(experiment, request).map_err(Failure::usage)?;
    if let Some(model) = plan.drawn_from() {
        machine::check_model(model, name)?;
    }
    let machines = plan.points().map(|point| asked.at(point, plan.ensemble()));
    let machines = machines.collect::<Result<_, _>>()?;
    Ok(Batch { plan, machines })
}

/// Says on standard error, before anything runs, that it will take long, if it will.
fn warn_of_hours(batches: &[Batch], global: &Global) {
    /// As long as an experiment in full may take.
    const LONG_SECONDS: f64 = 1_200.0;
    let seconds = jobs::estimated_seconds(batches);
    if global.quiet || seconds < LONG_SECONDS {
        return;
    }
    let _ = writeln!(
        std::io::stderr(),
        "{} runs, estimated to take about {} here; --shard I/N splits them over machines, and an interruption \
         (Ctrl-C or SIGTERM) keeps those that have finished",
        jobs::count(batches),
        long_time(seconds)
    );
}
