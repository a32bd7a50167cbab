use bursar_experiments::workload::RunError;
use clap::Parser;

use super::*;
use crate::args::{Args, Command};
use crate::run::batches;

fn parsed(arguments: &[&str]) -> (Vec<Batch>, Progress) {
    let all = [&["bursar-lab", "run", "memcg-flush", "-q"], arguments].concat();
    let args = Args::try_parse_from(all).expect("a command line");
    let Command::Run(run) = &args.command else {
        unreachable!("it is `run`")
    };
    let batches = batches(run).expect("a plan");
    let progress = Progress::new(count(&batches), &args.global);
    (batches, progress)
}

const SMALL: [&str; 8] = [
    "-msim:cpus=2,nodes=1,hz=1000",
    "-sload=small",
    "-sduration_ms=20",
    "-sread_interval_ms=5",
    "-sflush_period_ms=10",
    "-sreaders=2",
    "-svariants=combining,coalesced",
    "--seeds=2",
];

/// The rest when the task of this place fails.
fn with_failure(place: usize, failure: impl Fn(Task) -> Message) -> (Done, Vec<Task>) {
    let (batches, progress) = parsed(&SMALL);
    let tasks = tasks(&batches);
    let mailbox = Mailbox::new();
    for (at, task) in tasks.iter().enumerate() {
        let message = match at == place {
            true => failure(*task),
            false => serve(&batches, *task),
        };
        mailbox.sender.send(message).expect("a receiver");
    }
    let done = collect(&batches, tasks.len(), "r", &mailbox.receiver, &progress);
    (done, tasks)
}

#[test]
fn a_run_that_fails_takes_no_other_with_it() {
    let said = |task| {
        let error = Error::Run(RunError {
            variant: "coalesced".to_owned(),
            reason: "is out of luck".to_owned(),
        });
        Message::Ended(task, Box::new(Err(error)))
    };
    let stuck = |task| {
        let failure = bursar_sim::Failure::TooLong { steps: 7 };
        Message::Panicked(task, Box::new(failure))
    };
    let bug = |task| Message::Panicked(task, Box::new("a bug"));
    type Failing = fn(Task) -> Message;
    let failures: [(Failing, &str); 3] = [(said, "out of luck"), (stuck, "7"), (bug, "")];
    for (failure, expected) in failures {
        let (done, tasks) = with_failure(3, failure);
        let document = &done.documents[0];
        assert!(document.interrupted && !done.is_interrupted);
        let ran = document.variants.iter().map(|it| it.ran_seeds.len());
        assert_eq!(ran.sum::<usize>(), tasks.len() - 1);
        let [failure] = &done.failures[..] else {
            panic!("{} failures", done.failures.len())
        };
        let failed = tasks[3];
        let seed = format!("seed {}", failed.job.seed);
        assert!(failure.name.contains(&seed), "{}", failure.name);
        match &failure.cause {
            Cause::Said(said) => assert!(said.contains(expected), "{said}"),
            Cause::Panic(_) => assert_eq!(expected, ""),
        }
    }
}

#[test]
fn what_failed_alone_leaves_no_document() {
    let (batches, progress) = parsed(&[&SMALL[..6], &["-svariants=combining"]].concat()[..]);
    let tasks = tasks(&batches);
    let mailbox = Mailbox::new();
    for task in &tasks {
        let failure = bursar_sim::Failure::TooLong { steps: 7 };
        let message = Message::Panicked(*task, Box::new(failure));
        mailbox.sender.send(message).expect("a receiver");
    }
    let done = collect(&batches, tasks.len(), "r", &mailbox.receiver, &progress);
    assert!(done.documents.is_empty());
    assert_eq!(done.failures.len(), tasks.len());
}
