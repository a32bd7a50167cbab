//! `bursar-lab report`: results from files, and pages of them.

mod common;

use common::*;
use roxmltree::{Document, Node, ParsingOptions};
use serde_json::{Value, json};

/// An experiment's documents stand beside each other, and each is as it was.
#[test]
fn results_of_several_files_are_reported_together() {
    let one = result("one", &["-scpus=4,8"]);
    let other = result("other", &["-sreaders=10"]);
    let together = parsed(&["report", "-fjson", one.path(), other.path()]);
    let mut expected = parsed(&["report", "-fjson", one.path()]);
    let documents = expected.as_array_mut().expect("two documents");
    documents.push(parsed(&["report", "-fjson", other.path()]));
    assert_eq!(together, expected);
    let stranger = with_value("stranger", &one, "/0/experiment", json!("another"));
    let files = [one.path(), stranger.path(), other.path()];
    let together = parsed(&[&["report", "-fjson"], &files[..]].concat());
    let documents = together.as_array().expect("a list").iter();
    let names: Vec<_> = documents.map(|it| it["experiment"].as_str()).collect();
    let own = Some("memcg-flush");
    assert_eq!(names, [own, own, own, own, Some("another")]);
}

#[test]
fn a_file_that_is_read_is_not_written() {
    let one = result("replaced-1", &[]);
    let other = result("replaced-2", &["-sseed=2"]);
    let before = std::fs::read_to_string(&one.0).expect("a result");
    let link = Scratch::new("replaced-link.json");
    std::os::unix::fs::symlink(&one.0, &link.0).expect("a link");
    for output in [one.path(), link.path()] {
        let both = [one.path(), other.path()];
        let whole = [&["report"], &both[..], &["-fjson", "-o", output]].concat();
        assert_refused(&whole, 2, "which is read; name another file");
        let compared = [&["compare"], &both[..], &["-fjson", "-o", output]].concat();
        assert_refused(&compared, 2, "which is read; name another file");
    }
    let after = std::fs::read_to_string(&one.0).expect("a result");
    assert!(after == before, "it was written");
}

#[test]
fn what_is_no_result_is_refused_by_name_and_place() {
    let good = result("good", &[]);
    let text = std::fs::read_to_string(&good.0).expect("a result");
    for (name, text, message) in [
        (
            "truncated",
            &text[..text.len() / 2],
            "is truncated: it ends in the middle, at line",
        ),
        ("cut in a number", "{\"schema\": -", "is truncated"),
        ("empty", "", ": is empty"),
        ("blank", " \n", ": is empty"),
        (
            "garbage",
            "experiment,machine\n",
            "is not JSON: expected value at line 1 column 1",
        ),
        ("foreign", "{\"benches\": []}", "it has no key `schema`"),
        ("number", "3", "is not a result of `bursar-lab run -f json`"),
        ("list", "[]", "holds no result"),
        (
            "later",
            "{\"schema\": 2}",
            "is of schema 2, and this program reads schema 1",
        ),
        ("headless", "{\"schema\": 1}", "missing field `experiment`"),
    ] {
        let bad = file(name, text);
        assert_refused(&["report", bad.path()], 2, message);
        // Beside a good one, and named.
        assert_refused(&["report", good.path(), bad.path()], 2, bad.path());
    }
    // The page of earlier results stays.
    let page = file("earlier.html", "earlier");
    let bad = file("bad", &text[..text.len() / 2]);
    let arguments = [
        "report",
        good.path(),
        bad.path(),
        "-fhtml",
        "-o",
        page.path(),
    ];
    assert_refused(&arguments, 2, bad.path());
    assert_eq!(
        std::fs::read_to_string(&page.0).ok().as_deref(),
        Some("earlier")
    );
    assert_refused(
        &["report", "/no/such/result.json"],
        2,
        "/no/such/result.json",
    );
    assert_refused(&["report"], 2, "RESULT");
}

#[test]
fn a_result_with_a_wrong_key_is_refused_with_the_key() {
    let good = result("wrong-key", &[]);
    let reads = "/variants/0/metrics/broken_reads/by_seed";
    for (pointer, value, message) in [
        ("/speed", json!(1), "unknown field `speed`"),
        (
            "/variants/0/metrics/read_latency/buckets",
            Value::Null,
            "missing field `buckets`",
        ),
        (reads, json!([[1, 9, 8]]), "the share of seed 1 is 9 of 8"),
        (
            reads,
            json!([[2, 0, 8]]),
            "`broken_reads` of `combining` is not of its `ran_seeds`",
        ),
        ("/machine/kind", json!("moon"), "unknown variant `moon`"),
        ("/variants", json!("none"), "invalid type"),
    ] {
        let bad = with_value("wrong", &good, pointer, value);
        assert_refused(&["report", bad.path()], 2, message);
        assert_refused(&["report", bad.path()], 2, bad.path());
    }
}

#[test]
fn a_result_with_a_name_twice_is_refused_with_the_name() {
    let good = result("name-twice", &[]);
    let document = parsed(&["report", "-fjson", good.path()]);
    let first = &document["variants"][0];
    let two = with_value("two", &good, "/variants", json!([first, first]));
    assert_refused(&["report", two.path()], 2, "two variants `combining`");
    let reads = format!("\"broken_reads\":{}", first["metrics"]["broken_reads"]);
    let text = document.to_string();
    let twice = file(
        "twice",
        &text.replacen(&reads, &format!("{reads},{reads}"), 1),
    );
    let message = "`combining` has `broken_reads` twice";
    assert_refused(&["report", twice.path()], 2, message);
}

#[test]
fn figures_of_hosts_and_simulated_ones_say_what_they_are() {
    let simulated = result("kind-sim", &[]);
    let host = Scratch::new("kind-host");
    let arguments = ["-fjson", "-svariants=combining", "-o", host.path()];
    assert_eq!(common::quick(&arguments).status.code(), Some(0));
    let table = document_of(&["report", simulated.path(), host.path()]);
    assert!(table.contains("SIMULATED figures"));
    assert!(table.contains("host figures"));
}

#[test]
fn a_report_of_what_failed_ends_with_1() {
    let good = result("good-reads", &[]);
    let reads = "/variants/0/metrics/broken_reads/by_seed";
    let bad = with_value("broken-reads", &good, reads, json!([[1, 1, 8]]));
    let output = bursar(&["report", bad.path()]);
    assert_eq!(output.status.code(), Some(1), "{}", stderr(&output));
    assert!(stdout(&output).contains("FAILED: broken_reads of combining"));
}

#[test]
fn a_reader_that_goes_away_is_no_error() {
    let result = result("unread", &[]);
    assert_survives_a_reader_that_goes_away(&["report", "-fjson", result.path()]);
}

/// Parses the page of a result.
fn with_page(result: &Scratch, check: impl FnOnce(&Document<'_>)) {
    let output = bursar(&["report", "-fhtml", result.path()]);
    succeeded(&output);
    let options = ParsingOptions {
        allow_dtd: true,
        ..ParsingOptions::default()
    };
    let text = stdout(&output);
    check(&Document::parse_with_options(&text, options).expect("well-formed XML"));
}

fn all<'a>(page: &'a Document<'_>, name: &'a str) -> impl Iterator<Item = Node<'a, 'a>> {
    page.descendants()
        .filter(move |node| node.has_tag_name(name))
}

/// The text of a node and of all below it, with single spaces.
fn said(node: Node<'_, '_>) -> String {
    let texts = node.descendants().filter(Node::is_text);
    let text: String = texts.filter_map(|node| node.text()).collect();
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

#[test]
fn the_contents_of_a_page_lead_to_its_parts() {
    let result = result("contents", &["-scpus=4,8"]);
    with_page(&result, |page| {
        let ids = page.descendants().filter_map(|node| node.attribute("id"));
        let ids: Vec<&str> = ids.collect();
        let distinct: std::collections::BTreeSet<_> = ids.iter().collect();
        assert_eq!(distinct.len(), ids.len(), "{ids:?}");
        let contents = all(page, "nav").next().expect("contents");
        let links = contents
            .descendants()
            .filter_map(|node| node.attribute("href"));
        let links: Vec<&str> = links.map(|link| link.trim_start_matches('#')).collect();
        for link in &links {
            assert!(ids.contains(link), "{link} leads nowhere");
        }
        let parts = all(page, "section").filter_map(|node| node.attribute("id"));
        let parts: Vec<_> = parts.collect();
        // The experiment, two runs and the sweep.
        assert_eq!(parts.len(), 1 + 2 + 1, "{parts:?}");
        for part in parts {
            assert!(links.contains(&part), "nothing leads to {part}");
        }
    });
}

#[test]
fn a_page_begins_with_its_question_and_findings() {
    let result = result("findings", &["-scpus=4,8"]);
    let table = document_of(&["report", result.path()]);
    with_page(&result, |page| {
        let titles: Vec<_> = all(page, "h1").map(said).collect();
        assert_eq!(titles, ["Does a read show what has already happened?"]);
        let summary = said(all(page, "header").next().expect("a summary"));
        let of_variants = table.lines().filter_map(|line| {
            let (variant, finding) = line.strip_prefix("  ")?.split_once(": ")?;
            let is_finding =
                ["combining", "coalesced"].contains(&variant) && finding.contains(" reads missed ");
            is_finding.then_some(finding)
        });
        let findings: Vec<_> = of_variants.collect();
        assert_eq!(findings.len(), 4, "{table}");
        for finding in findings {
            assert!(summary.contains(finding), "{finding}");
        }
        assert!(summary.contains("Bursar (combining): none of"), "{summary}");
    });
}

#[test]
fn a_page_says_once_what_concerns_all_of_it() {
    let result = result("once", &["-scpus=4,8"]);
    with_page(&result, |page| {
        let body = said(all(page, "body").next().expect("a body"));
        assert_eq!(body.matches("SIMULATED").count(), 1);
        for picture in all(page, "figure").map(said) {
            assert_eq!(picture.matches("How to read: ").count(), 1, "{picture}");
        }
        // The machine is of the run, the other settings of all runs.
        for (setting, times) in [("format_ns=", 1), ("workers=", 1), ("; cost model ", 2)] {
            assert_eq!(body.matches(setting).count(), times, "{setting}");
        }
        let folded = all(page, "details").map(said);
        let folded: Vec<_> = folded.filter(|text| text.contains("format_ns=")).collect();
        assert_eq!(folded.len(), 1);
        // Identifiers are in the glossary only.
        let body = body.to_lowercase();
        for name in ["read_latency", "worker_runtime", "broken_reads"] {
            assert_eq!(body.matches(name).count(), 1, "{name}");
        }
    });
}
