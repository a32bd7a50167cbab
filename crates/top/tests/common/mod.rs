//! The program, for tests of it.

#![allow(
    dead_code,
    missing_docs,
    unused_imports,
    reason = "each test uses some of it, and nobody else any"
)]

mod program;

use std::process::Command;

use serde_json::Value;

pub use program::{run as bursar, *};

pub fn command() -> Command {
    program(env!("CARGO_BIN_EXE_bursar"))
}

/// Runs the program, which must end with 0, and returns its one document as JSON.
pub fn parsed(args: &[&str]) -> Value {
    serde_json::from_str(&document_of(args)).expect("one document")
}
