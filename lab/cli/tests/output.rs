//! The file of `-o`: whole, or as it was before.
#![cfg(unix)]

mod common;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use common::*;

/// A directory for one test's files.
struct Directory(PathBuf);

impl Directory {
    fn new(name: &str) -> Self {
        let name = format!("bursar-output-{}-{name}", std::process::id());
        let path = std::env::temp_dir().join(name);
        fs::create_dir_all(&path).expect("a temporary directory");
        Self(path)
    }

    fn file(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }

    fn names(&self) -> Vec<String> {
        let entries = fs::read_dir(&self.0).expect("a directory");
        let names = entries.map(|entry| entry.expect("an entry").file_name());
        let mut names: Vec<String> = names
            .map(|name| name.to_string_lossy().into_owned())
            .collect();
        names.sort();
        names
    }
}

impl Drop for Directory {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// Runs the program where no file can grow, as on a full disk.
fn on_a_full_disk(arguments: &[&str]) -> Output {
    Command::new("sh")
        .args(["-c", "trap '' XFSZ; ulimit -f 0; exec \"$@\"", "sh"])
        .arg(env!("CARGO_BIN_EXE_bursar-lab"))
        .args(arguments)
        .env_remove("COLUMNS")
        .stdin(Stdio::null())
        .output()
        .expect("a shell")
}

fn text(path: &Path) -> &str {
    path.to_str().expect("a temporary path is text")
}

#[test]
fn a_file_that_cannot_be_written_stays_and_the_table_is_shown() {
    let directory = Directory::new("full");
    let result = result("full.json", &["-svariants=combining,direct"]);
    let result = result.path();
    for (arguments, table) in [
        (&["report", result][..], "Findings"),
        (&["compare", result, result], "Findings"),
        (&["list"], "vmstat-spread"),
        (&["explore", "combining", "--schedules", "10"], "combining"),
        (&SIMULATED, "Findings"),
    ] {
        for (ending, is_there) in [("json", true), ("txt", true), ("json", false)] {
            let file = directory.file(&format!("kept.{ending}"));
            if is_there {
                fs::write(&file, "an older result").expect("room");
            }
            let before = directory.names();
            let output = on_a_full_disk(&[arguments, &["-o", text(&file)]].concat());
            assert_eq!(output.status.code(), Some(3), "{arguments:?}: {output:?}");
            let said = stderr(&output);
            assert!(
                said.contains("cannot write") && said.contains(text(&file)),
                "{said}"
            );
            assert!(stdout(&output).contains(table), "{arguments:?}: {output:?}");
            assert_eq!(directory.names(), before, "{arguments:?}");
            if is_there {
                let kept = fs::read_to_string(&file).expect("the file");
                assert_eq!(kept, "an older result", "{arguments:?}");
            }
        }
    }
}

#[test]
fn a_full_disk_hides_no_run_that_failed() {
    let directory = Directory::new("failed");
    let file = directory.file("out.json");
    let arguments = "run vmstat-spread --quick -s load=stress -s variants=spread -s cpus=4 -s duration_ms=1000 -s scale=1024 \
                     -s bytes_are_shared=false -s vm_mib=100,999999999 -o";
    let mut arguments: Vec<_> = arguments.split_whitespace().collect();
    arguments.push(text(&file));
    let output = on_a_full_disk(&arguments);
    assert_eq!(output.status.code(), Some(3), "{output:?}");
    for said in ["cannot write", "there is room for"] {
        assert!(stderr(&output).contains(said), "{}", stderr(&output));
    }
}

#[test]
fn a_page_or_a_script_that_cannot_be_written_stays() {
    let directory = Directory::new("page");
    let result = result("page.json", &["-svariants=combining"]);
    for (arguments, name) in [
        (&["report", result.path()][..], "page.html"),
        (&["completions", "bash"], "bursar.sh"),
        (&["man"], "bursar.1"),
    ] {
        let file = directory.file(name);
        fs::write(&file, "an older one").expect("room");
        let output = on_a_full_disk(&[arguments, &["-o", text(&file)]].concat());
        assert_eq!(output.status.code(), Some(3), "{arguments:?}: {output:?}");
        let kept = fs::read_to_string(&file).expect("the file");
        assert_eq!(kept, "an older one", "{arguments:?}");
    }
    let names = ["bursar.1", "bursar.sh", "page.html"];
    assert_eq!(directory.names(), names);
}

#[test]
fn a_row_of_the_ledger_that_cannot_be_written_loses_nothing_that_was_found() {
    let header = include_str!("../../docs/schedules.tsv").lines().next();
    let ledger = file("full.tsv", &format!("{}\n", header.expect("a header")));
    let explore = [
        "explore",
        "quiesce",
        "--schedules",
        "40",
        "--ledger",
        ledger.path(),
    ];
    let output = on_a_full_disk(&explore);
    assert_eq!(output.status.code(), Some(3), "{output:?}");
    assert!(stdout(&output).contains("none broken"), "{output:?}");
    assert!(stderr(&output).contains(ledger.path()), "{output:?}");
}
