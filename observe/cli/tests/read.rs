//! `bursar-observe read`: files of `trace-cmd` and `perf`, and recordings. None of it needs a privilege.
#![cfg(target_endian = "little")]

mod common;

use std::fs;
use std::process::{Command, Stdio};

use common::*;
use serde_json::Value;

const TRACE: &str = "6.18-light.trace.dat";
const PERF: &str = "6.18-light.perf.data";

fn read(file: &str, more: &[&str]) -> String {
    silent(&[&["read", file], more].concat())
}

fn document(file: &str, more: &[&str]) -> Value {
    parsed(&[&["read", file], more].concat())
}

#[test]
fn files_of_other_programs_have_the_document_of_a_run() {
    for (name, by, calls) in [(TRACE, "trace-cmd", 25), (PERF, "perf", 24)] {
        let document = document(&fixture(name), &[]);
        assert_eq!(document["recorded_by"], by);
        assert_eq!(document["mode"], "light");
        // Both CPUs share their ticks, and two are no herd.
        assert_eq!(document["verdicts"][0]["answer"], "absent");
        let change = &document["verdicts"][0]["changes"][0];
        assert_eq!(
            (&change["has_it"], &change["by"]),
            (&"no".into(), &"behaviour".into())
        );
        assert_eq!(
            document["figures"]["upkeep"]["duration_ns"]["samples"],
            calls
        );
        let page = read(&fixture(name), &["-f", "html"]);
        assert!(page.contains("<code>") && !page.contains('`'), "{page}");
        let text = read(&fixture(name), &[]);
        assert!(
            text.contains(&format!("light mode, recorded by {by}")),
            "{text}"
        );
        assert!(text.contains("No vm.stat_interval."), "{text}");
    }
}

#[test]
fn addresses_of_functions_may_be_in_a_file_of_their_own() {
    let deep = fixture("6.18-deep.perf.data");
    let zone_waits = |more: &[&str]| {
        let document = document(&deep, more);
        let waits = document["figures"]["waits"]
            .as_array()
            .expect("a list")
            .clone();
        waits.iter().filter(|wait| wait["lock"] == "zone").count()
    };
    assert_eq!(zone_waits(&[]), 0);
    assert_eq!(zone_waits(&["--kallsyms", &fixture("6.18.kallsyms")]), 1);
}

#[test]
fn a_file_becomes_a_recording_with_the_same_figures_which_can_be_replayed() {
    let made = Scratch::new("read-made.bursar");
    let original = document(&fixture(TRACE), &["--record", made.path()]);
    let again = document(made.path(), &[]);
    assert_eq!(again["recorded_by"], "bursar");
    for part in ["machine", "figures", "losses", "release", "missing"] {
        assert_eq!(again[part], original[part], "{part}");
    }
    let replayed = observe(&["replay", made.path(), "-f", "json"]);
    succeeded(&replayed);
}

/// A file whose waiters nothing names shows no absence of waits for a zone's lock, and neither does a recording made of it.
#[test]
fn a_recording_claims_no_more_than_its_file() {
    let made = Scratch::new("read-unnamed.bursar");
    for file in [fixture("6.18-deep.perf.data"), made.path().to_owned()] {
        let document = document(
            &file,
            &["--record", made.path()][..2 * usize::from(file != made.path())],
        );
        assert_eq!(
            document["verdicts"][1]["answer"], "cannot-tell",
            "{document}"
        );
    }
}

#[test]
fn recordings_have_the_document_of_their_run() {
    let light = document(&fixture("real-2-cpus-light.bursar"), &[]);
    assert_eq!(light["mode"], "light");
    assert_eq!(light["missing"].as_array().map(Vec::len), Some(0));
    assert!(light["figures"]["herd"]["calls"].as_u64() > Some(0));
    let deep = document(&fixture("real-2-cpus-deep.bursar"), &[]);
    assert_eq!(deep["mode"], "deep");
    assert!(
        !deep["figures"]["bursts"]
            .as_array()
            .expect("a list")
            .is_empty()
    );
}

#[test]
fn a_recording_that_is_cut_off_is_refused() {
    let bytes = fs::read(fixture("real-2-cpus-light.bursar")).expect("the fixture");
    let cut = Scratch::new("read-cut.bursar");
    fs::write(&cut.0, &bytes[..bytes.len() - 20]).expect("a temporary file");
    for command in ["read", "replay"] {
        assert_refused(&[command, cut.path()], 2, "no whole recording");
    }
}

#[test]
fn redaction_leaves_names_out_of_the_document_and_the_recording() {
    let named = read(&fixture(TRACE), &[]);
    assert!(
        named.contains("\ncat ") && named.contains("6.18.44-fc"),
        "{named}"
    );
    let made = Scratch::new("read-redacted.bursar");
    for format in ["table", "json", "html"] {
        let more = ["--redact", "--record", made.path(), "-f", format];
        let text = read(&fixture(TRACE), &more);
        assert!(!text.contains("kworker") && !text.contains("-fc"), "{text}");
        assert!(text.contains("6.18.44"), "{text}");
    }
    let text = read(&fixture(TRACE), &["--redact"]);
    assert!(
        text.contains("\nprocess-") && !text.contains("\ncat "),
        "{text}"
    );
    let bytes = fs::read(&made.0).expect("the recording");
    let has = |bytes: &[u8], name: &[u8]| bytes.windows(name.len()).any(|it| it == name);
    assert!(!has(&bytes, b"kworker") && !has(&bytes, b"-fc"));
    assert!(has(&bytes, b"process-1"));
    // A recording with names, redacted later.
    read(&fixture(TRACE), &["--record", made.path()]);
    assert!(has(&fs::read(&made.0).expect("the recording"), b"kworker"));
    assert!(!read(made.path(), &["--redact"]).contains("kworker"));
}

#[test]
fn what_cannot_be_read_is_refused_by_its_name() {
    let file = fixture(TRACE);
    assert_refused(&["read", "/does/not/exist"], 2, "/does/not/exist");
    assert_refused(&["read", "Cargo.toml"], 2, "neither a trace.dat");
    assert_refused(&["read", "/"], 2, "cannot read /");
    let refused = |option: &str, value: &str, says: &str| {
        assert_refused(&["read", &file, option, value], 2, says);
    };
    refused("-f", "csv", "table, json, html");
    refused("--kallsyms", "Cargo.toml", "no address of vmstat_update");
    refused("--record", &file, "would replace");
    let replacing = ["read", &file, "-f", "json", "-o", &file];
    assert_refused(&replacing, 2, "would replace");
    let one = Scratch::new("read-one");
    let both = ["read", &file, "--record", one.path(), "-o", one.path()];
    assert_refused(&both, 2, "are one file");
    let cut = Scratch::new("read-cut.dat");
    let bytes = fs::read(&file).expect("the fixture");
    fs::write(&cut.0, &bytes[..30_000]).expect("a temporary file");
    assert_refused(&["read", cut.path()], 2, "cut off at byte 30000");
}

/// Runs the program where no file can grow, as on a full disk.
#[test]
fn a_recording_that_cannot_be_written_stays_and_the_document_is_shown() {
    let (old, new) = (Scratch::new("read-old"), Scratch::new("read-new"));
    fs::write(&old.0, "an older recording").expect("room");
    for file in [&old, &new] {
        let output = Command::new("sh")
            .args(["-c", "trap '' XFSZ; ulimit -f 0; exec \"$@\"", "sh"])
            .arg(command().get_program())
            .args(["read", &fixture(TRACE), "--record", file.path()])
            .stdin(Stdio::null())
            .output()
            .expect("a shell");
        assert_eq!(output.status.code(), Some(3), "{output:?}");
        assert!(stderr(&output).contains(file.path()), "{output:?}");
        assert!(stdout(&output).contains("trace-cmd"), "{output:?}");
    }
    assert!(!new.0.exists());
    let kept = fs::read_to_string(&old.0).expect("the file");
    assert_eq!(kept, "an older recording");
}
