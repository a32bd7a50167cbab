//! The program, for tests of it.

#![allow(
    dead_code,
    missing_docs,
    reason = "each test uses some of it, and nobody else any"
)]

use std::path::PathBuf;
use std::process::{Command, Output, Stdio};

use serde_json::Value;

pub fn command() -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_bursar-observe"));
    command.env_remove("NO_COLOR").env_remove("COLUMNS");
    command.stdin(Stdio::null());
    command
}

pub fn observe(args: &[&str]) -> Output {
    command().args(args).output().expect("the program starts")
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

/// The document of a run that ended with 0.
pub fn succeeded(output: &Output) -> String {
    assert_eq!(output.status.code(), Some(0), "{}", stderr(output));
    stdout(output)
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

pub fn stdout(output: &Output) -> String {
    String::from_utf8(output.stdout.clone()).expect("text")
}

pub fn stderr(output: &Output) -> String {
    String::from_utf8(output.stderr.clone()).expect("text")
}

/// Fails with this message, this code, and nothing on standard output.
pub fn assert_refused(args: &[&str], code: i32, message: &str) {
    let output = observe(args);
    let said = stderr(&output);
    assert_eq!(output.status.code(), Some(code), "{args:?}: {said}");
    assert!(said.contains(message), "{args:?}: {said}");
    assert!(output.stdout.is_empty(), "{args:?}: {}", stdout(&output));
}

/// A path for one test's file, gone when the test ends.
pub struct Scratch(pub PathBuf);

impl Scratch {
    pub fn new(name: &str) -> Self {
        let name = format!("bursar-observe-{}-{name}", std::process::id());
        Self(std::env::temp_dir().join(name))
    }

    pub fn path(&self) -> &str {
        self.0.to_str().expect("a temporary path is text")
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}
