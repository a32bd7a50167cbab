//! `bursar-lab run` on simulated machines: the same seed gives the same bytes, and every figure says that it is simulated.

mod common;

use common::*;
use serde_json::Value;

fn document(more: &[&str]) -> Value {
    let output = simulated(more);
    succeeded(&output);
    assert!(output.stderr.is_empty(), "{}", stderr(&output));
    serde_json::from_slice(&output.stdout).expect("one document")
}

#[test]
fn the_same_seed_gives_the_same_bytes() {
    let more = ["--seeds", "4", "-s", "read_interval_ms=5,7"];
    let first = simulated(&more);
    succeeded(&first);
    for _ in 0..3 {
        assert!(simulated(&more).stdout == first.stdout, "another document");
    }
    let other = simulated(&[&more[..], &["-s", "seed=2"]].concat());
    assert!(other.stdout != first.stdout, "the seed makes no difference");
}

#[test]
fn a_document_says_which_machine_was_simulated_and_nothing_of_the_host() {
    let document = document(&[]);
    let machine = document["machine"].as_object().expect("an object");
    assert_eq!(machine["kind"], "sim");
    assert_eq!(machine["cpus"], 8);
    assert_eq!(machine["nodes"], 2);
    assert_eq!(machine["hz"], 1000);
    let draws = machine["model"]
        .as_str()
        .and_then(|model| model.strip_prefix("ensemble of "))
        .and_then(|model| model.split_once(" draws fnv1a64:"));
    assert!(draws.is_some_and(|(draws, _)| draws.parse::<u32>().is_ok_and(|draws| draws > 0)));
    for key in ["system", "backend"] {
        assert!(!machine.contains_key(key), "{key}");
    }
    assert_eq!(document["variants"][0]["ran_seeds"][0], 1);
    assert_eq!(document["expectations"][0]["holds"], true);
    assert!(document.get("interrupted").is_none());
}

#[test]
fn simulated_figures_say_so() {
    let table = stdout(&simulated_as("table", &[]));
    for part in ["SIMULATED figures", "variant (simulated)", "virtual time"] {
        assert!(table.contains(part), "{part} is not in\n{table}");
    }
    assert!(!table.contains("host"), "{table}");
}

#[test]
fn without_a_machine_the_experiments_own_is_simulated() {
    for more in [&[][..], &["-m", "sim"]] {
        let mut arguments: Vec<_> = SIMULATED.to_vec();
        arguments.retain(|argument| !argument.starts_with("-m"));
        let output = command()
            .args(arguments)
            .args(["-fjson"])
            .args(more)
            .output()
            .expect("the program starts");
        let document: Value = serde_json::from_slice(&output.stdout).expect("one document");
        assert_eq!(document["machine"]["kind"], "sim");
        assert_eq!(document["machine"]["cpus"], 384);
    }
}

#[test]
fn machines_that_make_no_sense_are_refused() {
    for (machine, message) in [
        ("sim:cpus=0", "cpus=0: must be 1 to"),
        ("sim:cpus=2,nodes=3", "nodes=3: must be 1 to 2"),
        ("sim:cpu=8", "unknown key `cpu`: did you mean `cpus`?"),
        ("sim:cpus=8,cpus=9", "`cpus` is given twice"),
        ("sim:cpus=many", "cpus=many: must be a number"),
        ("sim:8", "`8` is not KEY=VALUE"),
        ("sim:lock=fair", "must be queued or ticket or unfair"),
        ("sim:", "-m sim is the machine of the experiment"),
        (
            "sim:hz=250",
            "or change the machine of the experiment by -m sim -s hz=250",
        ),
        ("sim-384", "unknown machine `sim-384`"),
        ("", "unknown machine ``"),
    ] {
        assert_refused(&["run", "-m", machine], 2, message);
    }
    let sim = ["run", "-m", "sim:cpus=8,nodes=2"];
    for (key, message) in [
        ("cpus=1", "nodes=2: must be 1 to 1"),
        ("cpus=8,0", "cpus=0: must be 1 to"),
        ("cpus=8,8", "parameter `cpus` is set to 8 twice"),
        ("cpus=8,08", "parameter `cpus` is set to 8 twice"),
        ("cpsu=8", "did you mean `cpus`?"),
    ] {
        assert_refused(&[&sim[..], &["-s", key]].concat(), 2, message);
    }
    assert_refused(
        &["run", "-m", "host", "-s", "cpus=8"],
        2,
        "`cpus` is a key of simulated machines",
    );
}

#[test]
fn a_sweep_gives_one_document_a_point_in_order() {
    let sweep = ["-scpus=32,64", "-sreaders=10,20"];
    let documents = document(&sweep);
    let points: Vec<_> = documents
        .as_array()
        .expect("a list")
        .iter()
        .map(|document| {
            (
                document["machine"]["cpus"].as_u64().expect("a number"),
                document["parameters"]["readers"]
                    .as_u64()
                    .expect("a number"),
            )
        })
        .collect();
    assert_eq!(points, [(32, 10), (32, 20), (64, 10), (64, 20)]);

    for (place, (cpus, readers)) in points.iter().enumerate() {
        let alone = [format!("-scpus={cpus}"), format!("-sreaders={readers}")];
        let alone: Vec<_> = alone.iter().map(String::as_str).collect();
        assert!(
            documents[place] == document(&alone),
            "{alone:?} alone is another document"
        );
    }

    let table = stdout(&simulated_as("table", &sweep));
    for (cpus, readers) in points {
        let point = format!("cpus={cpus} readers={readers}");
        assert!(table.contains(&format!(", {point}\n")), "{table}");
    }
}

#[test]
fn a_sweep_that_is_a_mistake_is_refused() {
    assert_refused(&["run", "-s", "seed=1,2"], 2, "--seeds N");
    assert_refused(&["run", "-s", "readers=1,0"], 2, "nothing else is measured");
    assert_refused(&["run", "-s", "readers=1,2,1"], 2, "1 twice");
    assert_refused(&["run", "-s", "readers=100000"], 2, "room for 15000");
}

#[test]
fn published_figures_stand_beside_those_of_their_machine_and_load() {
    let arguments = [
        "run",
        "memcg-flush",
        "-sduration_ms=11",
        "-sload=readers-10ms",
        "-svariants=coalesced",
    ];
    let output = bursar(&[&arguments[..], &["-fjson"]].concat());
    succeeded(&output);
    let document: Value = serde_json::from_slice(&output.stdout).expect("one document");
    assert_eq!(document["parameters"]["readers"], 10_000);
    let verdicts = document["verdicts"].as_array().expect("a list");
    assert_eq!(verdicts.len(), 4);
    assert_eq!(verdicts[0]["published"], 0.823);
    for verdict in verdicts {
        assert_eq!(verdict["row"], "prediction");
        assert_eq!(verdict["verdict"], "inconclusive");
        assert_eq!(
            verdict["reason"],
            "other parameters than the experiment's own"
        );
        for key in ["measured", "lo", "hi"] {
            assert!(verdict[key].is_number(), "{key}");
        }
    }
    let table = stdout(&bursar(&arguments));
    assert!(!table.contains("inconclusive"), "{table}");
    let said = "Nothing is judged here. `bursar-lab run memcg-flush --seeds 20` judges by 4 published figures.";
    assert!(table.contains(said), "{table}");
    let table = stdout(&bursar(&[&arguments[..], &["-v"]].concat()));
    assert!(table.contains("Published figures"), "{table}");
    assert!(table.contains("82.3 %"), "{table}");
}
