//! `bursar-lab run` alone: one screen, and a page beside it. Its runs take some seconds, so they are few.

mod common;

use std::fs;

use common::*;

/// A directory of one test.
fn directory(name: &str) -> Scratch {
    let scratch = Scratch::new(name);
    fs::create_dir_all(&scratch.0).expect("a temporary directory");
    scratch
}

#[test]
fn one_screen_answers_three_questions_and_the_page_is_beside_it() {
    let directory = directory("screen");
    let page = directory.0.join("bursar-run.html");
    let run = |arguments: &[&str]| {
        let mut program = command();
        program.arg("run").args(arguments).current_dir(&directory.0);
        let output = program.output().expect("the program starts");
        succeeded(&output);
        stdout(&output)
    };
    let screen = run(&[]);
    let lines: Vec<_> = screen.lines().collect();
    assert!(lines.len() <= 40, "{} lines:\n{screen}", lines.len());
    let widest = lines.iter().map(|line| line.chars().count()).max();
    assert!(widest <= Some(80), "{widest:?} columns:\n{screen}");
    assert!(lines[0].contains("SIMULATED, seed 1, "), "{screen}");
    assert_eq!(screen.matches("\n   Bursar (").count(), 3, "{screen}");
    for part in [
        "?  ",
        "With Linux 6.17's policy ",
        "Upstream, up to ",
        "With Linux 6.19's policy ",
    ] {
        assert!(screen.contains(part), "{part} is not in\n{screen}");
    }
    for verdict in ["inconclusive", "reproduced", " - "] {
        assert!(!screen.contains(verdict), "{verdict} is in\n{screen}");
    }
    assert!(screen.contains(": bursar-run.html\n"), "{screen}");
    let written = fs::read_to_string(&page).expect("the page");
    assert!(written.starts_with("<!DOCTYPE html>"), "{written}");

    // Programs get the figures of the same runs, and no page.
    fs::remove_file(&page).expect("the page");
    let documents: serde_json::Value =
        serde_json::from_str(&run(&["-f", "json"])).expect("a list of documents");
    let documents = documents.as_array().expect("a list");
    let names: Vec<_> = documents.iter().map(|it| &it["experiment"]).collect();
    assert_eq!(names, ["memcg-flush", "vmstat-spread", "pcp-batch-free"]);
    let moments = &documents[1]["variants"][0]["metrics"]["instants_per_second"]["value"];
    let moments = format!("{:.2}/s", moments.as_f64().expect("a number"));
    assert!(screen.contains(&moments), "{moments} is not in\n{screen}");
    assert!(!page.exists());
    fs::remove_dir_all(&directory.0).expect("a temporary directory");
}

#[test]
fn whatever_is_set_asks_for_documents_in_full() {
    let directory = directory("set");
    let mut program = command();
    program
        .args(["run", "-m", "sim:cpus=4", "-s", "load=no-such-load"])
        .current_dir(&directory.0);
    let output = program.output().expect("the program starts");
    assert_eq!(output.status.code(), Some(2), "{}", stderr(&output));
    let left = fs::read_dir(&directory.0).expect("readable").count();
    assert_eq!(left, 0, "a refused run wrote a page");
    fs::remove_dir_all(&directory.0).expect("a temporary directory");
}
