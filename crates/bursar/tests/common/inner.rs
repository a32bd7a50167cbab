//! Tests in a process of their own.

use std::process::{Command, Output};

/// Runs one of a module's tests, which do nothing unless told so, in a process with these variables.
pub fn in_another_process(module: &str, test: &str, variables: &[(&str, &str)]) -> Output {
    let (_, module) = module.split_once("::").unwrap();
    let test = &format!("{module}::{test}");
    Command::new(std::env::current_exe().unwrap())
        .args(["--exact", test, "--nocapture", "--test-threads=1"])
        .env("BURSAR_TEST_INNER", "1")
        .envs(variables.iter().copied())
        .output()
        .unwrap()
}

/// Whether this is the process that a test has for itself. In any other process, runs the test in such a one.
pub fn in_own_process(module: &str, test: &str, variables: &[(&str, &str)]) -> bool {
    if !is_inner() {
        assert_passed(&in_another_process(module, test, variables));
    }
    is_inner()
}

pub fn is_inner() -> bool {
    std::env::var_os("BURSAR_TEST_INNER").is_some()
}

/// Asserts that the one test of that name ran, and passed.
pub fn assert_passed(output: &Output) {
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(
        output.status.success() && text.contains("1 passed"),
        "{text}{}",
        String::from_utf8_lossy(&output.stderr)
    );
}
