//! The command as a program: exit codes, messages, the width of its lines, and the file of `-o`.
#![cfg(unix)]

mod common;

use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};

use common::*;

#[test]
fn doctor_names_the_backend_and_how_to_force_one() {
    let text = stdout(&bursar(&["doctor"]));
    assert!(text.contains("BURSAR_BACKEND"), "{text}");
    let document = parsed(&["doctor", "-f", "json"]);
    let backend = document["backend"].as_str().expect("a name");
    assert!(["rseq", "percpu-atomic", "sharded"].contains(&backend));
    assert!(text.contains(backend));
    let note = document["note"].as_str().unwrap_or_default();
    assert_eq!(
        note.contains("linked statically"),
        cfg!(target_feature = "crt-static")
    );
    assert!(
        document["checks"]
            .as_array()
            .is_some_and(|checks| !checks.is_empty())
    );
}

#[test]
fn doctor_names_the_memory_limit_and_the_resident_size() {
    let text = stdout(&bursar(&["doctor"]));
    let document = parsed(&["doctor", "-f", "json"]);
    let checks = document["checks"].as_array().expect("a list");
    for name in ["cgroup memory limit", "resident size"] {
        assert!(text.contains(name), "{text}");
        let check = checks.iter().find(|check| check["name"] == name);
        let detail = check.and_then(|check| check["detail"].as_str());
        assert!(detail.is_some_and(|detail| !detail.is_empty()), "{name}");
    }
}

#[test]
fn doctor_follows_a_forced_backend() {
    let output = command()
        .args(["doctor", "-f", "json"])
        .env("BURSAR_BACKEND", "sharded")
        .output()
        .expect("the program starts");
    let document: serde_json::Value = serde_json::from_slice(&output.stdout).expect("one document");
    assert_eq!(document["backend"], "sharded");
    assert_eq!(document["forced"], true);
}

#[test]
fn an_unknown_backend_is_refused() {
    let output = command()
        .arg("doctor")
        .env("BURSAR_BACKEND", "abacus")
        .output()
        .expect("the program starts");
    assert_eq!(output.status.code(), Some(2));
    assert!(stderr(&output).contains("abacus"), "{}", stderr(&output));
    assert!(output.stdout.is_empty());
}

#[test]
fn wrong_usage_ends_with_2_and_says_what_is_wrong() {
    assert_refused(&[], 2, "Usage");
    assert_refused(&["doctor", "-f", "yaml"], 2, "possible values: table, json");
    assert_refused(&["doctor", "-q", "-v"], 2, "cannot be used with");
    assert_refused(&["doctor", "-f", "html"], 2, "the form html");
    for arguments in [&["completions", "bash"][..], &["man"]] {
        let said = format!("`{}` has no -f", arguments[0]);
        assert_refused(&[arguments, &["-f", "json"]].concat(), 2, &said);
    }
}

#[test]
fn lines_fit_the_columns_and_columns_that_make_no_sense_are_ignored() {
    let with_columns = |columns: &str, arguments: &[&str]| {
        let mut program = command();
        program.args(arguments).env("COLUMNS", columns);
        succeeded(&program.output().expect("the program starts"))
    };
    for arguments in [
        &["doctor"][..],
        &["--help"],
        &["top", "--help"],
        &["stat", "-h"],
    ] {
        for width in [80, 40] {
            let text = with_columns(&width.to_string(), arguments);
            for line in text.lines() {
                // A line of clap stays whole, and so does a word.
                let is_whole = line.trim().split(' ').count() == 1 || line.starts_with("Usage: ");
                assert!(
                    line.chars().count() <= width || is_whole,
                    "{width}: {line}\n{text}"
                );
            }
        }
    }
    for columns in ["", "0", "-3", "many", "1"] {
        assert!(with_columns(columns, &["doctor"]).contains("check"));
    }
}

#[test]
fn a_reader_that_goes_away_is_no_error() {
    for arguments in [&["--help"][..], &["doctor"]] {
        assert_survives_a_reader_that_goes_away(arguments);
    }
}

#[test]
fn completions_and_man_pages_know_every_command() {
    for command in ["top", "stat", "doctor", "completions", "man"] {
        let script = document_of(&["completions", "bash"]);
        assert!(script.contains(command), "{command}");
        let page = document_of(&["man", command]);
        assert!(page.contains(&format!(".TH bursar-{command} 1")), "{page}");
    }
    assert_refused(
        &["man", "sun"],
        2,
        "unknown command `sun`; there are top, stat",
    );
}

/// The new file is as its owner has set the old one, under the same names.
#[test]
fn a_result_keeps_the_links_and_the_permissions_of_the_old_one() {
    let directory = std::env::temp_dir().join(format!("bursar-link-{}", std::process::id()));
    fs::create_dir_all(&directory).expect("a temporary directory");
    let (file, link) = (directory.join("it.json"), directory.join("latest.json"));
    fs::write(&file, "old").expect("room");
    fs::set_permissions(&file, fs::Permissions::from_mode(0o640)).expect("it is ours");
    symlink("it.json", &link).expect("a link");
    succeeded(&bursar(&["doctor", "-o", link.to_str().expect("text")]));
    assert!(link.is_symlink());
    let written = fs::read_to_string(&file).expect("the file");
    assert!(written.contains("\"backend\""), "{written}");
    let mode = file.metadata().expect("the file").permissions().mode();
    assert_eq!(mode & 0o777, 0o640);
    let left = fs::read_dir(&directory).expect("readable").count();
    assert_eq!(left, 2, "a file was left");
    fs::remove_dir_all(&directory).expect("a temporary directory");
}

/// A file beside which no other can be made is refused before anything runs.
#[test]
#[cfg(target_os = "linux")]
fn a_directory_that_takes_no_file_is_named_before_the_run() {
    let comm = "/proc/self/comm";
    let output = bursar(&["doctor", "-f", "json", "-o", comm]);
    assert_eq!(output.status.code(), Some(2), "{output:?}");
    let said = stderr(&output);
    assert!(said.contains(comm) && said.contains("beside it"), "{said}");
    assert!(output.stdout.is_empty(), "{output:?}");
}

#[test]
#[cfg(target_os = "linux")]
fn a_full_device_is_an_error_and_no_panic() {
    let output = bursar(&["doctor", "-o", "/dev/full"]);
    assert_eq!(output.status.code(), Some(3));
    assert!(stderr(&output).contains("/dev/full"), "{}", stderr(&output));
    assert!(stdout(&output).contains("BURSAR_BACKEND"), "{output:?}");
}

#[test]
#[cfg(target_os = "linux")]
fn a_full_standard_output_is_an_error_and_no_panic() {
    for args in [&["doctor"][..], &["doctor", "-f", "json"]] {
        let full = fs::File::options().write(true).open("/dev/full").unwrap();
        let output = command().args(args).stdout(full).output().unwrap();
        assert_eq!(output.status.code(), Some(3), "{output:?}");
        let said = stderr(&output);
        assert!(
            said.contains("standard output") && said.contains("space"),
            "{said}"
        );
    }
}
