//! `bursar-lab compare`: what is clear, what is not, and what cannot be compared.

mod common;

use common::*;
use serde_json::{Value, json};

/// A tenth of the reads of each seed that were not slow become slow.
fn slower(document: &mut Value) {
    let share = &mut document["variants"][0]["metrics"]["reads_under_100us"]["by_seed"];
    for seed in share.as_array_mut().expect("a list") {
        let fast = seed[1].as_u64().expect("a number");
        seed[1] = (fast - fast / 10 - 1).into();
    }
}

#[test]
fn a_result_is_neither_better_nor_worse_than_itself() {
    let one = result("itself", &["--seeds=8", "-scpus=4,8"]);
    for format in ["table", "json"] {
        let output = bursar(&["compare", one.path(), one.path(), "-f", format]);
        succeeded(&output);
        assert!(stdout(&output).contains("read_latency"), "{format}");
        let again = bursar(&["compare", one.path(), one.path(), "-f", format]);
        assert_eq!(stdout(&output), stdout(&again), "{format}");
    }
    let table = stdout(&bursar(&["compare", one.path(), one.path()]));
    assert!(
        table.contains("SIMULATED figures (virtual time)"),
        "{table}"
    );
    assert!(table.contains("memcg-flush, cpus=8"), "{table}");
    assert!(table.contains("  0 figures clearly worse, 0 clearly better"));
}

#[test]
fn what_is_clearly_worse_ends_with_1() {
    let before = result("before", &["--seeds=8"]);
    let after = changed("after", &before, slower);
    let output = bursar(&["compare", before.path(), after.path()]);
    assert_eq!(output.status.code(), Some(1), "{}", stderr(&output));
    let said = "CLEARLY WORSE: reads_under_100us of combining";
    assert!(stdout(&output).contains(said), "{}", stdout(&output));
    assert!(stdout(&output).contains("less in 8 of 8 seeds"));

    let back = bursar(&["compare", after.path(), before.path(), "-fjson"]);
    succeeded(&back);
    let document: Value = serde_json::from_str(&stdout(&back)).expect("a document");
    assert_eq!(
        (&document["better"], &document["worse"]),
        (&1.into(), &0.into())
    );
    let changes = document["comparisons"][0]["changes"].as_array();
    let better = changes
        .expect("a list")
        .iter()
        .find(|change| change["judgement"] == "better")
        .expect("what is better");
    assert_eq!(better["metric"], "reads_under_100us");
}

#[test]
fn few_seeds_say_nothing() {
    let before = result("few-before", &["--seeds=2"]);
    let after = changed("few-after", &before, slower);
    let output = bursar(&["compare", before.path(), after.path()]);
    let said = succeeded(&output);
    let line = " figures: not enough runs to say. At least 8 seeds";
    assert_eq!(said.matches(line).count(), 1, "{said}");
    assert!(said.lines().count() < 12, "{said}");
    let all = succeeded(&bursar(&["compare", "-v", before.path(), after.path()]));
    assert!(all.contains("read_latency p99"), "{all}");
}

#[test]
fn what_one_file_alone_has_is_said() {
    let both = result("both", &["-scpus=4,8"]);
    let one = result("one-point", &["-svariants=combining"]);
    let text = succeeded(&bursar(&["compare", both.path(), one.path()]));
    assert!(text.contains("only A has coalesced"), "{text}");
    assert!(text.contains(&format!(
        "only in {}: memcg-flush on sim:cpus=4",
        both.path()
    )));
}

#[test]
fn what_has_nothing_in_common_is_refused() {
    let one = result("one", &[]);
    let host = json!({"kind": "host", "cpus": 8, "nodes": 1, "model": "m", "system": "s", "backend": "rseq"});
    let mut variants = parsed(&["report", "-fjson", one.path()])["variants"].clone();
    (variants[0]["name"], variants[1]["name"]) = (json!("x"), json!("y"));
    let cases = [
        (
            "/experiment",
            json!("another"),
            "the experiment is\n  memcg-flush in",
        ),
        ("/machine/model", json!("fnv1a64:0"), "the cost model is"),
        ("/machine/topology", json!("cpus=9"), "the machine is"),
        (
            "/parameters/workers",
            json!(5),
            "parameter `workers` is\n  4 in",
        ),
        (
            "/machine",
            host,
            "figures of a host and simulated ones are never compared",
        ),
        (
            "/variants",
            variants,
            "the variants are\n  coalesced, combining in",
        ),
    ];
    assert_unlike("compare", &one, &one, &cases);
    // The seed and the revision are no differences.
    let other = changed("seed", &one, |document| {
        document["parameters"]["seed"] = 9.into();
        document["revision"] = "another".into();
    });
    let output = bursar(&["compare", one.path(), other.path()]);
    succeeded(&output);
}

#[test]
fn what_is_no_result_is_refused() {
    let one = result("good", &[]);
    let bad = changed("bad", &one, |document| {
        *document = serde_json::json!({"a": 1})
    });
    assert_refused(&["compare", one.path(), bad.path()], 2, bad.path());
    assert_refused(
        &["compare", bad.path(), one.path()],
        2,
        "has no key `schema`",
    );
    assert_refused(&["compare", one.path()], 2, "<B>");
    assert_refused(
        &["compare", one.path(), "/no/such.json"],
        2,
        "/no/such.json",
    );
    let twice = changed("twice", &one, |document| {
        *document = Value::Array(vec![document.clone(); 2]);
    });
    assert_refused(
        &["compare", one.path(), twice.path()],
        2,
        "parameters twice",
    );
}

#[test]
fn a_reader_that_goes_away_is_no_error() {
    let one = result("unread", &[]);
    assert_survives_a_reader_that_goes_away(&["compare", one.path(), one.path()]);
}
