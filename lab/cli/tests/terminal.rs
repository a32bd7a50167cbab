//! Output for a terminal fits it: the width is that of COLUMNS, or of the terminal.

mod common;

use std::process::{Command, Stdio};

use common::*;

/// The columns that a line takes, without colours.
fn columns(line: &str) -> usize {
    let mut parts = line.split("\x1b[");
    let first = parts.next().map_or(0, |part| part.chars().count());
    let after = parts.map(|part| part.split_once('m').map_or(0, |(_, it)| it.chars().count()));
    first + after.sum::<usize>()
}

fn assert_fits(text: &str, width: usize) {
    for line in text.lines() {
        // A word that is longer than a line stays whole outside of tables, and so does a line of clap.
        let is_word = line.trim().split(' ').count() == 1 || line.starts_with("Usage: ");
        assert!(columns(line) <= width || is_word, "{width}: {line}\n{text}");
    }
}

fn with_columns(width: usize, arguments: &[&str]) -> String {
    let mut program = command();
    program.args(arguments).env("COLUMNS", width.to_string());
    let output = program.output().expect("the program starts");
    succeeded(&output);
    stdout(&output)
}

#[test]
fn documents_lists_and_help_fit_80_and_40_columns() {
    let result = Scratch::new("fits.json");
    let output = simulated(&["-scpus=8,16", "-o", result.path()]);
    succeeded(&output);
    for width in [80, 40] {
        for arguments in [
            &["report", result.path()][..],
            &["report", "-v", result.path()],
            &["report", "--color=always", result.path()],
            &["compare", result.path(), result.path()],
            &["list"],
            &["list", "memcg-flush"],
            &["explore", "combining", "--schedules", "10"],
            &["--help"],
            &["run", "--help"],
            &["report", "-h"],
            &["compare", "--help"],
            &["explore", "--help"],
            &["calibrate", "--help"],
            &["list", "--help"],
            &["man", "--help"],
        ] {
            assert_fits(&with_columns(width, arguments), width);
        }
    }
    let wide = with_columns(400, &["report", result.path()]);
    assert_eq!(wide, stdout(&common::bursar(&["report", result.path()])));
    assert!(wide.lines().any(|line| columns(line) > 80), "{wide}");
}

#[test]
fn help_without_a_terminal_has_80_columns() {
    for command in ["run", "report", "compare", "explore", "calibrate", "list"] {
        assert_fits(&stdout(&common::bursar(&[command, "--help"])), 80);
    }
}

/// Runs a command on a terminal of that width; nothing where `script` is not installed or is another one.
#[cfg(target_os = "linux")]
fn on_a_terminal(width: usize, arguments: &str) -> Option<String> {
    let program = env!("CARGO_BIN_EXE_bursar-lab");
    let line = format!("stty rows 24 cols {width}; exec {program} {arguments}");
    let output = Command::new("script")
        .args(["-qec", &line, "/dev/null"])
        .env_remove("COLUMNS")
        .env("TERM", "xterm")
        .stdin(Stdio::null())
        .output()
        .ok()?;
    output.status.success().then(|| stdout(&output))
}

#[test]
#[cfg(target_os = "linux")]
fn a_terminal_is_asked_for_its_width() {
    for width in [80, 40] {
        let Some(text) = on_a_terminal(width, "list memcg-flush") else {
            return;
        };
        assert!(text.contains("combining"), "{text}");
        assert_fits(&text.replace('\r', ""), width);
    }
}

/// Each state of the progress line, of which the terminal shows one.
#[test]
#[cfg(target_os = "linux")]
fn progress_stays_on_one_line() {
    let run = "run memcg-flush -msim:cpus=8 -sload=small -sduration_ms=300 -sreaders=20 --seeds 4 -o /dev/null -f json";
    for width in [80, 40] {
        let Some(text) = on_a_terminal(width, run) else {
            return;
        };
        assert!(text.contains("memcg-flush"), "no progress: {text:?}");
        for state in text.split(['\r', '\n']) {
            let shown: String = state.replace("\x1b[2K", "").replace("\x1b[1A", "");
            assert!(columns(&shown) <= width, "{width}: {shown:?}");
        }
    }
}
