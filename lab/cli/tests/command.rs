//! The command as a program: exit codes, messages, and what is on which stream.

mod common;

use common::*;

#[test]
fn wrong_usage_ends_with_2_and_says_what_is_wrong() {
    assert_refused(&[], 2, "Usage");
    assert_refused(&["run", "--no-such-flag"], 2, "--no-such-flag");
    assert_refused(
        &["run", "no-such-experiment"],
        2,
        "memcg-flush, vmstat-spread",
    );
    assert_refused(&["run", "-f", "yaml"], 2, "possible values: table, json");
    assert_refused(&["run", "--seeds", "0"], 2, "0 is not in 1..=1000");
    assert_refused(&["run", "-q", "-v"], 2, "cannot be used with");
    assert_refused(
        &["run", "--seeds", "many"],
        2,
        "must be a whole number from 1 to 1000",
    );
    assert_refused(&["run", "memcg-flsh"], 2, "did you mean `memcg-flush`?");
    assert_refused(&["run", "-m", "moon"], 2, "unknown machine `moon`");
}

/// No advice to write `-- -1`, which would be taken for an experiment.
#[test]
fn negative_numbers_are_refused_as_numbers() {
    for (arguments, range) in [
        (["run", "--seeds", "-1"], "-1 is not in 1..=1000"),
        (["explore", "--schedules", "-1"], "-1 is not in 1..="),
        (["explore", "--seed", "-1"], "-1 is not in 0..="),
    ] {
        assert_refused(&arguments, 2, range);
        let said = stderr(&bursar(&arguments));
        assert!(!said.contains("-- -1"), "{said}");
    }
}

#[test]
fn a_key_that_is_set_twice_is_refused() {
    for twice in [
        ["load=workers", "load=small"],
        ["readers=3", "readers=4"],
        ["cpus=8", " cpus=8"],
        ["variants=direct", "variants=direct"],
    ] {
        let arguments = ["run", "memcg-flush", "-s", twice[0], "-s", twice[1]];
        assert_refused(
            &arguments,
            2,
            "is set twice; for a sweep over several values",
        );
    }
}

#[test]
fn a_value_that_a_parameter_does_not_have_is_refused_as_the_users() {
    for (given, said) in [
        (
            "read_file=oftn",
            "parameter `read_file` cannot be that: unknown variant `oftn`",
        ),
        ("seed=9223372036854775807", "parameter `seed` is so large"),
    ] {
        assert_refused(&["run", "memcg-flush", "-s", given], 2, said);
    }
}

#[test]
fn lists_in_errors_fit_80_columns() {
    for arguments in [
        &["run", "-s", "reeders=3"][..],
        &["run", "-s", "variants=fastest"],
        &["run", "-s", "load=no"],
        &["explore", "nonsense"],
        &["explore", "--published", "nonsense"],
        &["explore", "--planted", "nonsense"],
    ] {
        let said = stderr(&bursar(arguments));
        let widest = said.lines().map(str::len).max();
        assert!(widest <= Some(80) && said.lines().count() > 2, "{said}");
    }
}

#[test]
fn parameters_are_checked_before_anything_runs() {
    assert_refused(&["run", "-s", "reeders=3"], 2, "did you mean `readers`?");
    assert_refused(
        &["run", "-s", "reeders=3"],
        2,
        "known parameters:\n    ancestors, ",
    );
    assert_refused(&["run", "-s", "readers"], 2, "is not of the form KEY=VALUE");
    assert_refused(&["run", "-s", "readers=many"], 2, "needs a whole number");
    assert_refused(&["run", "-s", "readers=0"], 2, "nothing else is measured");
    assert_refused(&["run", "-s", "readers=-3"], 2, "not negative");
    assert_refused(&["run", "-s", "duration_ms=0"], 2, "`duration_ms` is 0");
    assert_refused(
        &["run", "-s", "variants=fastest"],
        2,
        "there are:\n    combining, combining-fence, periodic-only,",
    );
}

#[test]
fn an_output_that_cannot_be_written_is_named_before_the_run() {
    assert_refused(
        &["run", "-o", "/no/such/directory/out.json"],
        2,
        "/no/such/directory/out.json",
    );
    let directory = std::env::temp_dir();
    assert_refused(
        &["run", "-o", directory.to_str().expect("text")],
        2,
        "cannot write",
    );
}

#[test]
fn an_ending_that_names_no_form_is_refused_unless_a_form_is_asked_for() {
    for name in ["out.pdf", "x.foo", "out.json.gz"] {
        let scratch = Scratch::new(name);
        for arguments in [&QUICK[..], &["list"]] {
            let arguments = [arguments, &["-o", scratch.path()]].concat();
            let known = "known endings: .txt, .json, .html, .htm";
            assert_refused(&arguments, 2, known);
        }
        assert!(!scratch.0.exists());
        let output = bursar(&["list", "-fjson", "-o", scratch.path()]);
        succeeded(&output);
    }
}

#[test]
fn an_unknown_backend_is_refused() {
    let output = command()
        .args(QUICK)
        .env("BURSAR_BACKEND", "abacus")
        .output()
        .expect("the program starts");
    assert_eq!(output.status.code(), Some(2));
    assert!(stderr(&output).contains("abacus"), "{}", stderr(&output));
    assert!(output.stdout.is_empty());
}

#[test]
fn json_has_the_documents_keys_and_standard_error_is_clean() {
    let output = quick(&["-f", "json"]);
    succeeded(&output);
    assert!(output.stderr.is_empty(), "{}", stderr(&output));
    let document: serde_json::Value = serde_json::from_slice(&output.stdout).expect("one document");
    assert_eq!(document["schema"], 1);
    assert_eq!(document["experiment"], "memcg-flush");
    assert_eq!(document["machine"]["kind"], "host");
    assert!(
        document["machine"]["cpus"]
            .as_u64()
            .is_some_and(|cpus| cpus > 0)
    );
    assert_eq!(document["seeds"], 1);
    assert!(document["verdicts"].as_array().expect("a list").is_empty());
    assert_eq!(document["parameters"]["readers"], 3);
    let names: Vec<_> = document["variants"]
        .as_array()
        .expect("a list")
        .iter()
        .map(|variant| variant["name"].as_str().expect("a name"))
        .collect();
    assert_eq!(
        names,
        [
            "combining",
            "periodic-only",
            "unified",
            "direct",
            "coalesced",
            "per-group"
        ]
    );
    for variant in document["variants"].as_array().expect("a list") {
        let metrics = &variant["metrics"];
        for metric in ["read_latency", "staleness", "worker_runtime"] {
            for field in [
                "unit", "samples", "mean", "p50", "p90", "p99", "p999", "max",
            ] {
                assert!(metrics[metric].get(field).is_some(), "{metric}.{field}");
            }
        }
        for metric in ["broken_reads", "reads_under_100us"] {
            for field in ["unit", "value", "lo", "hi"] {
                assert!(metrics[metric].get(field).is_some(), "{metric}.{field}");
            }
        }
        for metric in ["flushes", "skips", "waits"] {
            assert!(metrics[metric]["value"].is_u64(), "{metric}");
        }
    }
    assert_eq!(document["expectations"][0]["holds"], true);
}

#[test]
fn the_table_explains_itself_and_has_colours_only_when_told() {
    let plain = stdout(&quick(&[]));
    for part in [
        "reading memory statistics",
        "host figures",
        "combining",
        "stale reads",
        "Findings",
        "none of",
    ] {
        assert!(plain.contains(part), "{part} is not in\n{plain}");
    }
    assert!(!plain.contains('\x1b'), "standard output is no terminal");
    assert!(stdout(&quick(&["--color", "always"])).contains('\x1b'));
}

#[test]
fn a_document_in_a_file_replaces_the_old_one_and_leaves_standard_output_empty() {
    let scratch = Scratch::new("replaced");
    std::fs::write(&scratch.0, "x".repeat(1 << 20)).expect("a temporary file");
    let output = quick(&["-f", "json", "-svariants=combining", "-o", scratch.path()]);
    succeeded(&output);
    assert!(output.stdout.is_empty());
    let written = std::fs::read_to_string(&scratch.0).expect("the document");
    serde_json::from_str::<serde_json::Value>(&written).expect("one document and nothing after it");
}

#[test]
fn a_refused_run_leaves_an_old_document_alone_and_makes_no_new_one() {
    let scratch = Scratch::new("kept");
    assert_refused(
        &["run", "-s", "readers=0", "-o", scratch.path()],
        2,
        "readers",
    );
    assert!(!scratch.0.exists());
    std::fs::write(&scratch.0, "old").expect("a temporary file");
    assert_refused(
        &["run", "-s", "readers=0", "-o", scratch.path()],
        2,
        "readers",
    );
    assert_eq!(
        std::fs::read_to_string(&scratch.0).expect("the file"),
        "old"
    );
}

#[test]
fn a_reader_that_goes_away_is_no_error() {
    for arguments in [
        &["--help"][..],
        &["list"],
        &[&QUICK[..], &["-f", "json"]].concat(),
    ] {
        assert_survives_a_reader_that_goes_away(arguments);
    }
}

#[test]
fn a_command_whose_output_has_one_form_refuses_others() {
    for arguments in [
        &["calibrate", "memcg-flush"][..],
        &["completions", "bash"],
        &["man"],
    ] {
        let said = format!("`{}` has no -f", arguments[0]);
        assert_refused(&[arguments, &["-f", "json"]].concat(), 2, &said);
        let said = format!("`{}` does not write json", arguments[0]);
        assert_refused(&[arguments, &["-o", "x.json"]].concat(), 2, &said);
    }
}

#[test]
fn run_and_report_begin_their_help_with_examples_of_their_own() {
    for name in ["run", "report", "list"] {
        for flag in ["-h", "--help"] {
            let text = stdout(&bursar(&[name, flag]));
            let [examples, usage] = ["Examples:", "Usage:"].map(|part| text.find(part));
            assert!(examples.is_some() && examples < usage, "{text}");
            let of_others = text.lines().filter(|line| {
                let command = line.strip_prefix("  bursar-lab ");
                command.is_some_and(|command| !command.starts_with(name))
            });
            assert_eq!(of_others.count(), 0, "{text}");
            let shared = text.split("Options of every command:").nth(1);
            let shared = shared.and_then(|rest| rest.split("\n\n").next());
            let lines = shared.expect("such options").trim().lines().count();
            assert!(lines <= 14, "{lines} lines: {text}");
        }
    }
}

#[test]
fn list_describes_experiments_from_the_program_itself() {
    let text = stdout(&bursar(&["list"]));
    for name in ["memcg-flush", "vmstat-spread", "pcp-batch-free"] {
        assert!(text.contains(name), "{text}");
        let details = succeeded(&bursar(&["list", name]));
        assert!(
            details.lines().all(|line| line.chars().count() <= 80),
            "{details}"
        );
    }
    let details = stdout(&bursar(&["list", "memcg-flush"]));
    for part in [
        "readers-10ms\n      10,000 readers, a read each 10 ms (about ",
        "readers = 32 (0 to 100000)\n      threads that read\n",
        "combining\n      ",
        "sim:cpus=384,",
    ] {
        assert!(details.contains(part), "{part} is not in {details}");
    }
    let document = parsed(&["list", "memcg-flush", "-f", "json"]);
    assert_eq!(document["parameters"][1]["name"], "readers");
    assert_eq!(document["parameters"][1]["most"], 100_000);
    assert_eq!(document["variants"].as_array().map(Vec::len), Some(22));
    let loads = document["loads"].as_array().expect("a list");
    let of = |name: &str| loads.iter().find(|load| load["name"] == name);
    let seconds = |name: &str, key: &str| of(name).and_then(|load| load[key].as_f64());
    assert!(seconds("readers-10ms", "cpu_seconds") > seconds("readers-100ms", "cpu_seconds"));
    assert!(seconds("workers", "cpu_seconds") > seconds("workers", "quick_cpu_seconds"));
    assert_eq!(of("workers").map(|load| &load["usual"]), Some(&true.into()));
    assert_eq!(of("small").map(|load| &load["usual"]), Some(&false.into()));
    assert_refused(&["list", "memcg-flsh"], 2, "did you mean `memcg-flush`?");
}

#[test]
fn help_has_examples_and_exit_codes() {
    let text = stdout(&bursar(&["--help"]));
    assert!(
        text.contains("Examples:") && text.contains("Exit codes:"),
        "{text}"
    );
}
