//! `bursar-observe watch` against the running kernel. Where this user may not trace it, the tests check that the tool says so.
#![cfg(target_os = "linux")]

mod common;

use std::fs;
use std::io::{self, BufRead, BufReader};
use std::os::unix::fs::MetadataExt;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::thread;

use bursar_watch::system;
use common::*;
use serde_json::Value;

/// Directory of instances, or `None` where this user has no access to a mounted tracefs.
fn instances() -> Option<PathBuf> {
    let mounts = fs::read_to_string("/proc/self/mounts").ok()?;
    let words = |line: &str| line.split(' ').map(str::to_owned).collect::<Vec<_>>();
    let mut mounts = mounts.lines().map(words);
    // A run of another test mounts it for itself, and unmounts it soon.
    let is_own = |words: &[String]| words[1].contains("/bursar-tracefs-");
    let mount = mounts.find(|words| words[2] == "tracefs" && !is_own(words))?;
    let path = PathBuf::from(&mount[1]).join("instances");
    if fs::read_dir(&path).is_ok() {
        return Some(path);
    }
    None
}

/// The directory of instances. Says so if there is none, which leaves a test out.
fn live(test: &str) -> Option<PathBuf> {
    let found = instances();
    if found.is_none() {
        eprintln!("{test}: left out, tracefs is not mounted or this user may not use it");
    }
    found
}

fn instance_of(pid: u32, instances: &PathBuf) -> bool {
    let own = format!("bursar-{pid}-");
    let entries = fs::read_dir(instances).expect("instances");
    let mut names = entries.flatten().map(|entry| entry.file_name());
    names.any(|name| name.to_string_lossy().starts_with(&own))
}

/// Starts a run of minutes, and returns when it observes.
fn started(arguments: &[&str], stdout: Stdio) -> Child {
    started_by(command(), arguments, stdout)
}

fn started_by(mut program: Command, arguments: &[&str], stdout: Stdio) -> Child {
    program
        .args(["watch", "-v", "--seconds", "600"])
        .args(arguments);
    let mut child = program
        .stdout(stdout)
        .stderr(Stdio::piped())
        .spawn()
        .expect("the program starts");
    let mut lines = BufReader::new(child.stderr.take().expect("a pipe")).lines();
    let line = lines.next().expect("a line").expect("text");
    assert!(line.starts_with("observing Linux"), "{line}");
    // Its standard error stays open.
    thread::spawn(move || lines.for_each(drop));
    child
}

#[test]
fn wrong_usage_ends_with_2() {
    for other in ["--light", "--locks"] {
        assert_refused(&["watch", other, "--deep"], 2, "cannot be used with");
    }
    assert_refused(&["watch", "--seconds", "0"], 2, "0 is not in 1..=86400");
    assert_refused(&["watch", "-f", "svg"], 2, "table, json, html");
    assert_refused(
        &["watch", "--probe-stat", "/nowhere"],
        2,
        "cannot probe /nowhere",
    );
}

#[test]
fn a_command_that_does_not_exist_is_wrong_usage() {
    let Some(_) = live("a_command_that_does_not_exist_is_wrong_usage") else {
        return;
    };
    assert_refused(
        &["watch", "--", "no-such-program"],
        2,
        "cannot run `no-such-program`",
    );
}

#[test]
fn without_permission_it_ends_with_3_and_says_what_is_missing() {
    if instances().is_none() {
        let ended = observe(&["watch", "--seconds", "1"]);
        // The tool mounts tracefs for itself, where this user may do that.
        let code = ended.status.code();
        assert!(matches!(code, Some(0 | 3)), "{code:?}: {}", stderr(&ended));
        return;
    }
    // A copy, because other users may not enter this directory.
    let program = std::env::temp_dir().join(format!("bursar-observe-test-{}", std::process::id()));
    fs::copy(command().get_program(), &program).expect("a copy");
    let ended = Command::new(&program)
        .args(["watch", "--seconds", "1"])
        .current_dir("/")
        .uid(65_534)
        .gid(65_534)
        .output();
    fs::remove_file(&program).expect("the copy");
    let ended = ended.expect("the program starts");
    let said = stderr(&ended);
    assert_eq!(ended.status.code(), Some(3), "{said}");
    assert!(
        said.contains("permission denied: /") && said.contains("sudo bursar-observe watch"),
        "{said}"
    );
    assert!(ended.stdout.is_empty());
}

#[test]
fn a_run_has_a_verdict_on_each_problem_and_tells_the_end_of_its_command() {
    let Some(instances) =
        live("a_run_has_a_verdict_on_each_problem_and_tells_the_end_of_its_command")
    else {
        return;
    };
    for mode in ["--light", "--locks", "--deep"] {
        let ended = observe(&[
            "watch",
            mode,
            "-f",
            "json",
            "--",
            "sh",
            "-c",
            "echo said; exit 7",
        ]);
        succeeded(&ended);
        // The command's words are not in the document.
        assert!(stderr(&ended).contains("said"));
        let document: Value = serde_json::from_str(&stdout(&ended)).expect("JSON");
        assert_eq!(document["mode"], mode[2..]);
        let problems: Vec<_> = document["verdicts"]
            .as_array()
            .expect("a list")
            .iter()
            .map(|it| &it["problem"])
            .collect();
        assert_eq!(problems, ["upkeep-herd", "zone-lock", "memcg-flush"]);
        assert_eq!(document["command"]["code"], 7);
        assert_eq!(document["interrupted"], false);
        assert_eq!(document["losses"]["bytes_undecoded"], 0);
        assert!(document["machine"]["cpus"].as_u64().expect("a number") > 0);
    }
    for format in ["table", "html"] {
        let ended = observe(&["watch", "-f", format, "--", "true"]);
        succeeded(&ended);
        assert!(!ended.stdout.is_empty(), "{format}");
    }
    assert!(!instance_of(std::process::id(), &instances));
}

#[test]
fn an_interrupted_run_prints_what_it_saw_and_stops_its_command() {
    let Some(instances) = live("an_interrupted_run_prints_what_it_saw_and_stops_its_command")
    else {
        return;
    };
    for signal in ["-INT", "-TERM"] {
        let child = started(&["-f", "json", "--", "sleep", "600"], Stdio::piped());
        let pid = child.id();
        assert!(instance_of(pid, &instances));
        let sent = Command::new("kill")
            .args([signal, &pid.to_string()])
            .status();
        assert!(sent.expect("kill exists").success());
        let ended = child.wait_with_output().expect("an end");
        assert_eq!(ended.status.code(), Some(130));
        let document: Value = serde_json::from_str(&stdout(&ended)).expect("JSON");
        assert_eq!(document["interrupted"], true);
        assert_eq!(document["command"]["was_stopped"], true);
        assert!(!instance_of(pid, &instances));
    }
}

#[test]
fn a_killed_run_leaves_nothing_behind() {
    let Some(instances) = live("a_killed_run_leaves_nothing_behind") else {
        return;
    };
    let mut child = started_by(inherited(), &[], Stdio::piped());
    let pid = child.id();
    assert!(instance_of(pid, &instances));
    child.kill().expect("SIGKILL");
    child.wait().expect("an end");
    // The process that removes the instance is nobody's child now. It has the pipe too, whose end is the end of both.
    let mut ends = child.stdout.take().expect("a pipe");
    io::copy(&mut ends, &mut io::sink()).expect("the end");
    assert!(!instance_of(pid, &instances), "it is still there");
}

/// The program, with a copy of its standard output that all processes inherit that it starts.
fn inherited() -> Command {
    let mut shell = program("sh");
    let own = command();
    shell
        .args(["-c", "exec 3>&1; exec \"$0\" \"$@\""])
        .arg(own.get_program());
    shell
}

/// A memory cgroup of a test's own.
struct OwnCgroup(PathBuf);

impl OwnCgroup {
    /// `None` where this user or machine cannot have one.
    fn new() -> Option<Self> {
        let path = system::memory_mount()?.join(format!("bursar-test-{}", std::process::id()));
        fs::create_dir(&path).ok()?;
        let own = Self(path);
        own.0.join("memory.stat").exists().then_some(own)
    }
}

impl Drop for OwnCgroup {
    fn drop(&mut self) {
        // A process of it may not be reaped yet.
        while fs::remove_dir(&self.0).is_err_and(|error| error.raw_os_error() == Some(16)) {
            thread::yield_now();
        }
    }
}

/// Flushes of a cgroup's readers before and after its tasks stop writing: the same reads, of which the kernel then skips most.
#[test]
fn flushes_are_seen_before_and_after_a_change() {
    const NAME: &str = "flushes_are_seen_before_and_after_a_change";
    let Some(instances) = live(NAME) else {
        return;
    };
    let request = instances
        .with_file_name("events")
        .join("memcg/memcg_flush_stats");
    let Some(own) = OwnCgroup::new().filter(|_| request.exists()) else {
        eprintln!("{NAME}: left out, without memory cgroups or the event of requests");
        return;
    };
    let directory = own.0.display();
    let id = fs::metadata(&own.0).expect("the cgroup").ino();
    let reads = 20;
    // Requests for the cgroup, and those of them that flushed.
    let run = |enter: &str, write: &str| {
        let script = format!(
            "{enter} for n in $(seq {reads}); do {write} cat {directory}/memory.stat; done"
        );
        let ended = observe(&["watch", "-f", "json", "--", "sh", "-c", &script]);
        succeeded(&ended);
        let document: Value = serde_json::from_str(&stdout(&ended)).expect("JSON");
        assert_eq!(document["command"]["code"], 0);
        assert_eq!(document["losses"]["events_lost"], 0);
        let flushes = &document["figures"]["flushes"];
        assert!(flushes["seen"].as_u64() >= Some(reads), "{flushes}");
        let readers = document["figures"]["readers"]
            .as_array()
            .expect("a list")
            .iter();
        let own = readers.filter(|it| it["cgroup"] == id);
        own.fold((0, 0), |(requests, flushed), reader| {
            let [all, skipped] =
                ["requests", "skipped"].map(|it| reader[it].as_u64().expect("a count"));
            (requests + all, flushed + all - skipped)
        })
    };
    let enter = format!("echo $$ > {directory}/cgroup.procs;");
    let write = "head -c 40000000 /dev/zero | tail -c 40000000 > /dev/null;";
    let (before, after) = (run(&enter, write), run("", ""));
    assert!(
        before.0 >= reads && after.0 >= reads,
        "{before:?} {after:?}"
    );
    assert!(before.1 > after.1, "{before:?} {after:?}");
}
