//! The program, for tests of it.

#![allow(
    dead_code,
    missing_docs,
    unused_imports,
    reason = "each test uses some of it, and nobody else any"
)]

#[path = "../../../../crates/top/tests/common/program.rs"]
mod program;

use std::process::{Command, Output};

use serde_json::Value;

pub use program::{run as bursar, *};

pub fn command() -> Command {
    program(env!("CARGO_BIN_EXE_bursar-lab"))
}

/// Runs the program, which must end with 0, and returns its one document as JSON.
pub fn parsed(args: &[&str]) -> Value {
    serde_json::from_str(&document_of(args)).expect("one document")
}

/// A run of a fraction of a second.
pub const QUICK: [&str; 10] = [
    "run",
    "memcg-flush",
    "-mhost",
    "-sduration_ms=40",
    "-sread_interval_ms=2",
    "-sflush_period_ms=10",
    "-sreaders=3",
    "-sworkers=2",
    "-stenants=2",
    "-squeries=2",
];

/// A run of a fraction of a second on a simulated machine.
pub const SIMULATED: [&str; 12] = [
    "run",
    "memcg-flush",
    "-msim:cpus=8,nodes=2,hz=1000",
    "-sload=small",
    "-sduration_ms=60",
    "-sread_interval_ms=5",
    "-sflush_period_ms=20",
    "-sreaders=20",
    "-sworkers=4",
    "-stenants=2",
    "-squeries=2",
    "-svariants=combining,coalesced",
];

/// The file of a quick simulated run.
pub fn result(name: &str, more: &[&str]) -> Scratch {
    let scratch = Scratch::new(name);
    succeeded(&simulated(&[more, &["-o", scratch.path()]].concat()));
    scratch
}

/// A file with another file's document after a change.
pub fn changed(name: &str, from: &Scratch, change: impl FnOnce(&mut Value)) -> Scratch {
    let text = std::fs::read_to_string(&from.0).expect("a result");
    let mut document: Value = serde_json::from_str(&text).expect("a document");
    change(&mut document);
    file(name, &document.to_string())
}

/// A file with another file's document in which the value at a JSON pointer is this.
pub fn with_value(name: &str, from: &Scratch, pointer: &str, value: Value) -> Scratch {
    let (parent, key) = pointer.rsplit_once('/').expect("a pointer");
    changed(name, from, |document| {
        document.pointer_mut(parent).expect(parent)[key] = value
    })
}

/// Refuses files that differ from another in one value, with a message and both names.
pub fn assert_unlike(command: &str, one: &Scratch, other: &Scratch, cases: &[(&str, Value, &str)]) {
    for (pointer, value, message) in cases {
        let bad = with_value("unlike", other, pointer, value.clone());
        let arguments = [command, one.path(), bad.path()];
        for said in [message, one.path(), bad.path()] {
            assert_refused(&arguments, 2, said);
        }
    }
}

/// A file with a text.
pub fn file(name: &str, text: &str) -> Scratch {
    let scratch = Scratch::new(name);
    std::fs::write(&scratch.0, text).expect("a temporary file");
    scratch
}

pub fn quick(more: &[&str]) -> Output {
    command()
        .args(without(&QUICK, more))
        .args(more)
        .output()
        .expect("the program starts")
}

pub fn simulated(more: &[&str]) -> Output {
    simulated_as("json", more)
}

pub fn simulated_as(format: &str, more: &[&str]) -> Output {
    command()
        .args(without(&SIMULATED, more))
        .args(["-f", format])
        .args(more)
        .output()
        .expect("the program starts")
}

/// The arguments without those that set a key which `more` sets: no key may be set twice.
fn without<'a>(arguments: &[&'a str], more: &[&str]) -> Vec<&'a str> {
    let key = |argument: &str| argument.split_once('=').map(|(key, _)| key.to_owned());
    let set: Vec<_> = more
        .iter()
        .filter_map(|it| key(it.strip_prefix("-s").unwrap_or(it)))
        .collect();
    let is_kept = |it: &&&str| {
        let own = it.strip_prefix("-s").and_then(key);
        own.is_none_or(|own| !set.contains(&own))
    };
    arguments.iter().filter(is_kept).copied().collect()
}
