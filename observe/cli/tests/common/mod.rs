//! The program, for tests of it.

#![allow(
    dead_code,
    missing_docs,
    unused_imports,
    reason = "each test uses some of it, and nobody else any"
)]

#[path = "../../../../crates/top/tests/common/program.rs"]
mod program;

use std::path::PathBuf;
use std::process::Command;

use serde_json::Value;

pub use program::{run as observe, *};

pub fn command() -> Command {
    program(env!("CARGO_BIN_EXE_bursar-observe"))
}

/// Runs the program, which must end with 0 and say nothing on standard error, and returns its document.
pub fn silent(args: &[&str]) -> String {
    let output = observe(args);
    assert_eq!(stderr(&output), "");
    succeeded(&output)
}

/// The same, as JSON.
pub fn parsed(args: &[&str]) -> Value {
    serde_json::from_str(&silent(&[args, &["-f", "json"]].concat())).expect("a document")
}

/// A file of the tests of `bursar-watch`.
pub fn fixture(name: &str) -> String {
    let tests = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../watch/tests");
    let directory = match name.ends_with(".bursar") {
        true => "recordings",
        false => "fixtures",
    };
    tests.join(directory).join(name).display().to_string()
}
