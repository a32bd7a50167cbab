//! `bursar-lab explore` as a program.

mod common;

use common::*;

#[test]
fn protocols_that_hold_end_with_0() {
    let text = succeeded(&bursar(&["explore", "--schedules", "200"]));
    assert!(text.contains("none broken"), "{text}");
    for name in ["publish-flush", "combining", "quiesce", "removal"] {
        let lines = text
            .lines()
            .filter(|line| line.trim_start().starts_with(name));
        assert_eq!(
            lines.count(),
            2,
            "{name}, by either kind of sections:\n{text}"
        );
    }
    // The printed text follows from the seed alone.
    assert_eq!(text, stdout(&bursar(&["explore", "--schedules", "200"])));
    let other = bursar(&["explore", "--schedules", "200", "--seed", "2"]);
    assert_ne!(text, stdout(&other));
}

#[test]
fn planted_bugs_are_found_and_replayed_by_the_printed_command() {
    let output = bursar(&["explore", "--planted", "-f", "json"]);
    succeeded(&output);
    let document: serde_json::Value = serde_json::from_str(&stdout(&output)).expect("JSON");
    let results = document["results"].as_array().expect("a list");
    assert_eq!(results.len(), 72);
    for result in results {
        let failure = &result["failure"];
        let command = failure["replay"].as_str().expect("a command");
        let mut words: Vec<&str> = command.split(' ').collect();
        assert_eq!(words.remove(0), "bursar-lab");
        words.extend(["-f", "json"]);
        let again = bursar(&words);
        assert_eq!(again.status.code(), Some(1), "{command}");
        let again: serde_json::Value = serde_json::from_str(&stdout(&again)).expect("JSON");
        let replayed = &again["results"][0]["failure"];
        for field in ["schedule", "reason", "order", "choices"] {
            assert_eq!(replayed[field], failure[field], "{command}");
        }
    }
}

#[test]
fn published_policies_of_page_lists_hold_and_read_nothing() {
    let explore = |names: &[&str], format: &str| {
        let options = ["--published", "--schedules", "300", "-f", format];
        let output = bursar(&[&["explore"], names, &options[..]].concat());
        succeeded(&output);
        stdout(&output)
    };
    let pages = ["pages-whole", "pages-zone-break", "pages-batched"];
    let text = explore(&pages, "table");
    assert!(text.contains("none broken"), "{text}");
    assert!(!text.contains("stale"), "{text}");
    let both = ["eager", "pages-whole"];
    let text = explore(&both, "table");
    assert!(text.contains("1 fresh, 0 stale, 1 unbroken"), "{text}");
    let document: serde_json::Value = serde_json::from_str(&explore(&both, "json")).expect("JSON");
    assert_eq!(document["results"][0]["stale"], 0);
    assert!(document["results"][1].get("stale").is_none());
}

/// A finding, no failure: it ends with 0, and the printed command shows it.
#[test]
fn published_policies_are_fresh_or_stale_and_the_stale_ones_are_replayed() {
    let explore = |format: &str| {
        let names = ["mutex-unbounded", "unified", "eager+threshold"];
        let options = ["--published", "--schedules", "600", "-f", format];
        let output = bursar(&[&["explore"], &names[..], &options[..]].concat());
        succeeded(&output);
        stdout(&output)
    };
    let document: serde_json::Value = serde_json::from_str(&explore("json")).expect("JSON");
    let results = document["results"].as_array().expect("a list");
    let stale: Vec<_> = results
        .iter()
        .map(|result| result["stale"].as_u64().expect("a count"))
        .collect();
    assert!(
        stale[0] == 0 && (1..200).contains(&stale[1]) && stale[2] == 0,
        "{stale:?}"
    );
    assert!(results[0]["failure"].is_null() && results[2]["failure"].is_null());
    let failure = &results[1]["failure"];
    let command = failure["replay"].as_str().expect("a command");
    let mut words: Vec<&str> = command.split(' ').skip(1).collect();
    words.extend(["-f", "json"]);
    let again = bursar(&words);
    assert_eq!(again.status.code(), Some(0), "{command}");
    let again: serde_json::Value = serde_json::from_str(&stdout(&again)).expect("JSON");
    let replayed = &again["results"][0]["failure"];
    for field in ["schedule", "reason", "order", "choices"] {
        assert_eq!(replayed[field], failure[field], "{command}");
    }
    let schedule = failure["schedule"].as_str().expect("a schedule");
    let text = explore("table");
    assert!(text.contains("2 fresh, 1 stale"), "{text}");
    assert!(text.contains("fresh in 200 schedules"), "{text}");
    assert!(text.contains(&format!("stale: {schedule}")), "{text}");
}

#[test]
fn a_planted_bug_that_is_not_found_ends_with_1() {
    // One schedule is too few for this one.
    let output = bursar(&["explore", "--planted", "stopped-early", "--schedules", "2"]);
    assert_eq!(output.status.code(), Some(1), "{}", stdout(&output));
    assert!(stdout(&output).contains("NOT FOUND"), "{}", stdout(&output));
}

#[test]
fn a_schedule_that_fails_for_nobody_ends_with_0() {
    let output = bursar(&[
        "explore",
        "quiesce",
        "--sections",
        "atomic",
        "--replay",
        "1:5",
    ]);
    succeeded(&output);
}

/// Schedules and steps of a protocol with atomic sections, from a number on.
fn ran(protocol: &str, from: &str, schedules: &str) -> (u64, u64) {
    let options = ["--from", from, "--schedules", schedules, "-f", "json"];
    let output = bursar(&[&["explore", protocol, "--sections", "atomic"], &options[..]].concat());
    let document: serde_json::Value = serde_json::from_str(&succeeded(&output)).expect("JSON");
    let count = |field: &str| document["results"][0][field].as_u64().expect("a count");
    (count("schedules"), count("steps"))
}

#[test]
fn processes_explore_the_same_schedules() {
    let (schedules, steps) = ran("pages-fork", "0", "250");
    assert_eq!(schedules, 250);
    let ((first, some), (second, others)) = (
        ran("pages-fork", "0", "200"),
        ran("pages-fork", "200", "50"),
    );
    assert_eq!((first + second, some + others), (schedules, steps));
}

#[test]
fn the_ledger_grows_by_schedules_of_new_seeds() {
    let file = Scratch::new("schedules.tsv");
    let explore = || {
        bursar(&[
            "explore",
            "quiesce",
            "upkeep",
            "--schedules",
            "80",
            "--ledger",
            file.path(),
        ])
    };
    assert_eq!(explore().status.code(), Some(2), "there is no file");
    let header = include_str!("../../docs/schedules.tsv").lines().next();
    std::fs::write(&file.0, "no ledger\n").expect("a file");
    assert_eq!(explore().status.code(), Some(2), "the file is none");
    std::fs::write(&file.0, header.expect("a header")).expect("a file");
    assert_eq!(explore().status.code(), Some(2), "its line has no end");
    std::fs::write(&file.0, format!("{}\n", header.expect("a header"))).expect("a file");
    let ledger = ["explore", "quiesce", "--ledger", file.path()];
    let over = ["-f", "json", "-o", file.path()];
    assert_refused(&[&ledger[..], &over].concat(), 2, "would replace");
    for seed in ["1", "2"] {
        let text = succeeded(&explore());
        assert!(
            text.contains(&format!("80 schedules from seed {seed}: none broken")),
            "{text}"
        );
        assert!(text.contains("schedules in "), "{text}");
    }
    let text = std::fs::read_to_string(&file.0).expect("a ledger");
    let column = |at| text.lines().skip(1).map(move |row| row.split('\t').nth(at));
    assert!(
        column(0).eq(["quiesce", "quiesce", "upkeep", "upkeep"]
            .repeat(2)
            .into_iter()
            .map(Some))
    );
    assert!(column(3).eq(["1", "1", "1", "1", "2", "2", "2", "2"].map(Some)));
    assert!(column(4).all(|schedules| schedules == Some("20")));
    let again = [&ledger[..], &["--seed", "2", "--schedules", "20"]].concat();
    assert_refused(&again, 2, "they would count twice");
    let row = text.lines().nth(1).expect("a row");
    let greatest = row.replace("\t1\t20", &format!("\t{}\t20", u64::MAX));
    std::fs::write(&file.0, format!("{text}{greatest}\n")).expect("a ledger");
    assert_refused(&ledger, 2, "the greatest seed");
}

#[test]
fn wrong_usage_is_refused() {
    assert_refused(&["explore", "combinin"], 2, "did you mean `combining`?");
    assert_refused(
        &["explore", "nonsense"],
        2,
        "there are:\n    publish-flush,",
    );
    assert_refused(
        &["explore", "--planted", "combining"],
        2,
        "there are:\n    stale-join,",
    );
    assert_refused(
        &["explore", "--published", "combining"],
        2,
        "there are:\n    unified,",
    );
    assert_refused(
        &["explore", "--published", "--planted"],
        2,
        "cannot be used with",
    );
    assert_refused(&["explore", "--schedules", "0"], 2, "0 is not in");
    assert_refused(&["explore", "--sections", "none"], 2, "possible values");
    assert_refused(&["explore", "--replay", "1"], 2, "is not a schedule");
    assert_refused(&["explore", "--replay", "1:2"], 2, "one protocol");
    assert_refused(&["explore", "removal", "--replay", "1:2"], 2, "--sections");
    assert_refused(
        &["explore", "--replay", "1:2", "--seed", "3"],
        2,
        "cannot be used with",
    );
}

#[test]
fn the_document_can_go_to_a_file() {
    let file = Scratch::new("explored.json");
    let args = [
        "explore",
        "quiesce",
        "--schedules",
        "20",
        "-f",
        "json",
        "-o",
    ];
    let output = bursar(&[&args[..], &[file.path()]].concat());
    succeeded(&output);
    assert!(output.stdout.is_empty());
    let text = std::fs::read_to_string(&file.0).expect("a document");
    assert!(text.contains("\"protocol\": \"quiesce\""), "{text}");
}
