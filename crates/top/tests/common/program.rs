//! A program of this workspace, for tests of it. Tests of the three tools include this file. Each says in `super::command` which program it is.

use std::path::PathBuf;
use std::process::{Command, Output, Stdio};

use super::command;

/// A program without settings of the terminal and without input.
pub fn program(path: &str) -> Command {
    let mut command = Command::new(path);
    command.env_remove("NO_COLOR").env_remove("COLUMNS");
    command.stdin(Stdio::null());
    command
}

pub fn run(args: &[&str]) -> Output {
    command().args(args).output().expect("the program starts")
}

/// Runs the program, which must end with 0, and returns its document.
pub fn document_of(args: &[&str]) -> String {
    succeeded(&run(args))
}

/// The document of a run that ended with 0.
pub fn succeeded(output: &Output) -> String {
    assert_eq!(output.status.code(), Some(0), "{}", stderr(output));
    stdout(output)
}

pub fn stdout(output: &Output) -> String {
    String::from_utf8(output.stdout.clone()).expect("text")
}

pub fn stderr(output: &Output) -> String {
    String::from_utf8(output.stderr.clone()).expect("text")
}

/// Fails with this message, this code, and nothing on standard output.
pub fn assert_refused(args: &[&str], code: i32, message: &str) {
    let output = run(args);
    let said = stderr(&output);
    assert_eq!(output.status.code(), Some(code), "{args:?}: {said}");
    assert!(said.contains(message), "{args:?}: {said}");
    assert!(output.stdout.is_empty(), "{args:?}: {}", stdout(&output));
}

/// A path for one test's file, gone when the test ends.
pub struct Scratch(pub PathBuf);

impl Scratch {
    pub fn new(name: &str) -> Self {
        let name = format!("{}-{}-{name}", env!("CARGO_PKG_NAME"), std::process::id());
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

/// Runs the program with a reader that goes away before it writes, or while it does: no error, and nothing to say.
pub fn assert_survives_a_reader_that_goes_away(arguments: &[&str]) {
    let mut child = command()
        .args(arguments)
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("the program starts");
    drop(child.stdout.take());
    let output = child.wait_with_output().expect("the program ends");
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(0), "{arguments:?}: {said}");
    assert!(output.stderr.is_empty(), "{arguments:?}: {said}");
}
