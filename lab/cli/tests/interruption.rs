//! Interruptions, by SIGINT and SIGTERM alike: the exit code is 130, what has finished is in the document, and a file that
//! would have nothing in it is not made.
#![cfg(unix)]

mod common;

use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};

use common::*;
use serde_json::Value;

const SIGNALS: [&str; 2] = ["-INT", "-TERM"];
/// Every draw fits, and takes no time, so that many are drawn.
const MANY_DRAWS: [&str; 6] = [
    "calibrate",
    "pcp-batch-free",
    "-v",
    "--keep=10000",
    "--draws=1000000",
    "-o",
];

fn send(signal: &str, child: &Child) {
    let sent = Command::new("kill")
        .args([signal, &child.id().to_string()])
        .status();
    assert!(sent.expect("kill exists").success());
}

/// Sends a signal once standard error has a line that begins with `line`. Returns the exit code.
fn interrupt(mut program: Command, line: &str, signal: &str) -> Option<i32> {
    let mut child = program
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .expect("the program starts");
    let mut lines = BufReader::new(child.stderr.take().expect("a pipe")).lines();
    let found = lines.find(|said| said.as_ref().expect("text").starts_with(line));
    assert!(found.is_some(), "`{line}` was not said");
    send(signal, &child);
    // Reads the rest of its output, so that the program does not wait for a reader.
    lines.for_each(drop);
    child.wait().expect("the program ends").code()
}

#[test]
fn an_interruption_before_anything_has_finished_makes_no_file() {
    let run = ["run", "-v", "-sduration_ms=600000", "-mhost"];
    // Its draws take minutes.
    let calibrate = ["calibrate", "memcg-flush", "-v"];
    for (arguments, said) in [(&run[..], "memcg-flush "), (&calibrate, "draws of seed")] {
        for signal in SIGNALS {
            let scratch = Scratch::new("interrupted");
            let mut program = command();
            program.args(arguments).args(["-o", scratch.path()]);
            assert_eq!(interrupt(program, said, signal), Some(130), "{said}");
            assert!(!scratch.0.exists(), "{said}{signal}");
        }
    }
}

#[test]
fn no_file_is_made_before_there_is_a_document_and_an_old_one_stays() {
    for old in [None, Some("old")] {
        let scratch = Scratch::new("killed");
        if let Some(old) = old {
            std::fs::write(&scratch.0, old).expect("a temporary file");
        }
        let mut program = command();
        program
            .args(["run", "-v", "-sduration_ms=600000", "-mhost", "-o"])
            .arg(&scratch.0);
        // Nobody can catch this.
        assert_eq!(interrupt(program, "memcg-flush ", "-KILL"), None);
        assert_eq!(std::fs::read_to_string(&scratch.0).ok().as_deref(), old);
        let directory = scratch.0.parent().expect("a directory");
        let name = scratch.0.file_name().expect("a name").to_string_lossy();
        let beside = std::fs::read_dir(directory).expect("readable");
        let beside = beside.filter_map(|entry| entry.ok()?.file_name().into_string().ok());
        let left: Vec<_> = beside
            .filter(|other| other.starts_with(&*name) && *other != *name)
            .collect();
        assert!(left.is_empty(), "{left:?}");
    }
}

#[test]
fn an_interrupted_run_keeps_what_has_finished() {
    let quick = ["-sreaders=3", "-sworkers=2", "-sduration_ms=200"];
    for (machine, signal) in [
        ("-mhost", "-INT"),
        ("-msim:cpus=8", "-INT"),
        ("-msim:cpus=8", "-TERM"),
    ] {
        let scratch = Scratch::new("kept");
        let mut program = command();
        program
            .args(["run", "memcg-flush", "--quick", "-v", "-fjson"])
            .args([machine, "-sload=small", "--seeds=1000"])
            .args(["-sread_interval_ms=2", "-o", scratch.path()])
            .args(quick);
        assert_eq!(interrupt(program, "finished ", signal), Some(130));
        let text = std::fs::read_to_string(&scratch.0).expect("the document");
        let document: Value = serde_json::from_str(&text).expect("one document");
        assert_eq!(document["interrupted"], true, "{machine}");
        let seeds = document["seeds"].as_u64().expect("a number");
        assert!((1..1000).contains(&seeds), "{machine}: {seeds}");
        // Whichever ended first, where several are under way.
        let variants = document["variants"].as_array().expect("a list");
        assert_eq!(variants[0]["name"], "combining");
        for variant in variants {
            let has_run = variant["ran_seeds"] != serde_json::json!([]);
            let reads = &variant["metrics"]["read_latency"]["samples"];
            assert_eq!(reads.is_u64(), has_run, "{machine}: {variant}");
        }
    }
}

#[test]
fn an_interrupted_exploration_says_what_was_explored() {
    for signal in SIGNALS {
        let scratch = Scratch::new("explored.json");
        let mut program = command();
        program
            .args(["explore", "--schedules", "1000000000", "-v", "-o"])
            .arg(&scratch.0);
        assert_eq!(interrupt(program, "seed 1", signal), Some(130));
        let text = std::fs::read_to_string(&scratch.0).expect("the document");
        let document: Value = serde_json::from_str(&text).expect("JSON");
        assert_eq!(document["interrupted"], true);
    }
}

/// They are those of a shorter search, so that chance has no part in which are kept.
#[test]
fn an_interrupted_calibration_keeps_the_draws_that_fit_so_far() {
    for signal in SIGNALS {
        let scratch = Scratch::new("draws.toml");
        let mut program = command();
        program.args(MANY_DRAWS).arg(&scratch.0);
        // It waits for a reader of what it says, so it is not done.
        assert_eq!(interrupt(program, "finished 9 ", signal), Some(130));
        let text = std::fs::read_to_string(&scratch.0).expect("the document");
        assert_eq!(text.matches("interrupted = true\n").count(), 1, "{text}");
        let tried = text.lines().find_map(|line| line.strip_prefix("tried = "));
        let tried = tried.expect("how many were tried");

        let whole = Scratch::new("whole.toml");
        let output = common::bursar(&[
            "calibrate",
            "pcp-batch-free",
            "--draws",
            tried,
            "--keep",
            "10000",
            "-o",
            whole.path(),
        ]);
        assert_eq!(output.status.code(), Some(0));
        let whole = std::fs::read_to_string(&whole.0).expect("the document");
        assert!(text.replace("interrupted = true\n", "") == whole);
    }
}

/// A shell without job control starts what is in the background with SIGINT ignored.
#[test]
fn an_ignored_signal_that_was_inherited_interrupts_all_the_same() {
    for signal in SIGNALS {
        let scratch = Scratch::new("background.toml");
        let mut program = Command::new("sh");
        program
            .args(["-c", "trap '' INT TERM; exec \"$0\" \"$@\""])
            .arg(env!("CARGO_BIN_EXE_bursar-lab"))
            .args(MANY_DRAWS)
            .arg(&scratch.0);
        assert_eq!(interrupt(program, "finished 9 ", signal), Some(130));
    }
}
