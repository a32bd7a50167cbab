//! `bursar-observe replay`: recordings on simulated machines.

mod common;

use common::*;
use serde_json::Value;

fn replay(name: &str, more: &[&str]) -> String {
    silent(&[&["replay", &fixture(name)], more].concat())
}

fn document(name: &str, more: &[&str]) -> Value {
    parsed(&[&["replay", &fixture(name)], more].concat())
}

const SMALL: &str = "synthetic-2-cpus.bursar";

#[test]
fn tables_have_seen_replayed_and_what_if_columns() {
    let text = replay(SMALL, &[]);
    for part in [
        "seen (host)",
        "simulated",
        "What would changes of the kernel do?",
        "phase-exact",
        "This recording cannot tell",
        "light mode",
        "agrees",
        "measures agree.",
    ] {
        assert!(text.contains(part), "{part} is not in\n{text}");
    }
    // Pages were not recorded.
    assert!(!text.contains("batched"), "{text}");
}

#[test]
fn seen_and_simulated_figures_have_keys_of_their_own() {
    let document = document(SMALL, &[]);
    assert_eq!(document["recording"]["cpus"], 2);
    let measures = document["measures"].as_array().expect("a list");
    let herd = measures
        .iter()
        .find(|it| it["measure"] == "herd_mean")
        .expect("herds");
    assert!(herd["seen"].is_number() && herd["simulated"]["median"].is_number());
    assert_eq!(herd["agreement"], "agrees");
    let policies = document["what_if"]["policies"].as_array().expect("a list");
    assert_eq!(policies[0]["policy"], "stock");
    for policy in policies {
        assert!(policy["seen"].is_null());
        // Set by the recording: no policy changes it.
        assert!(policy["simulated"]["upkeep_p99_ns"].is_null());
    }
}

#[test]
fn changes_of_the_kernel_are_predicted_from_the_runs_of_other_policies() {
    let document = document("synthetic-72-cpus.bursar", &[]);
    let predictions = document["predictions"].as_array().expect("a list");
    let policies = document["what_if"]["policies"].as_array().expect("a list");
    assert_eq!(predictions.len(), 3, "upkeep, pages and flushes");
    for prediction in predictions {
        let policy = policies
            .iter()
            .find(|it| it["policy"] == prediction["policy"]);
        let policy = policy.expect("a policy of the replay");
        for measure in prediction["measures"].as_array().expect("a list") {
            let of = |policy: &Value| {
                let name = measure["measure"].as_str().expect("a name");
                policy["simulated"][name]["median"].clone()
            };
            assert_eq!(measure["changed"]["median"], of(policy));
            assert_eq!(measure["recorded"]["median"], of(&policies[0]));
        }
    }
    let page = replay(SMALL, &["-f", "html"]);
    assert!(page.contains("<td>") && page.contains("</html>"), "{page}");
}

/// Nothing is predicted of a figure that the replay does not match, and the total says how many it does.
#[test]
fn what_does_not_match_is_not_predicted() {
    let name = "real-2-cpus-pages.bursar";
    let document = document(name, &[]);
    let list = |of: &Value| of.as_array().expect("a list").clone();
    let rows = list(&document["measures"]);
    let with = |ruling: &str| -> Vec<Value> {
        let rows = rows.iter();
        let of = rows.filter(|row| {
            row["agreement"]
                .as_str()
                .is_some_and(|it| it.starts_with(ruling))
        });
        of.map(|row| row["measure"].clone()).collect()
    };
    let (agree, refuted) = (with("agrees"), with("no: "));
    assert!(!agree.is_empty() && !refuted.is_empty(), "{name}");
    let judged = agree.len() + refuted.len();
    assert_eq!(document["total"]["agree"], agree.len());
    assert_eq!(document["total"]["judged"], judged);
    for measure in &refuted {
        let measure = measure.as_str().expect("a name");
        for policy in list(&document["what_if"]["policies"]) {
            assert!(policy["simulated"][measure].is_null(), "{name}: {measure}");
        }
        for prediction in list(&document["predictions"]) {
            let predicted = list(&prediction["measures"]);
            assert!(
                predicted.iter().all(|it| it["measure"] != measure),
                "{name}: {measure}"
            );
        }
    }
    let release = list(&document["predictions"])
        .into_iter()
        .find(|it| it["policy"] == "batched");
    let refused = list(&release.expect("pages moved")["not_predicted"]);
    assert!(refused.contains(&"free_hold_max_ns".into()), "{refused:?}");
}

#[test]
fn a_larger_machine_is_what_if_and_the_match_is_of_the_recorded_one() {
    let document = document(SMALL, &["-m", "sim:cpus=16"]);
    assert!(
        document["machine"]
            .as_str()
            .expect("a text")
            .starts_with("sim:cpus=2,")
    );
    let what_if = &document["what_if"];
    assert!(
        what_if["machine"]
            .as_str()
            .expect("a text")
            .contains("cpus=16,")
    );
    assert!(
        what_if["machine"]
            .as_str()
            .expect("a text")
            .contains("hz=250,")
    );
    assert_eq!(what_if["is_scaled"], true);
    let stock = &what_if["policies"][0]["simulated"]["herd_max"]["median"];
    assert!(stock.as_f64().expect("a number") > 2.0, "{stock}");
}

#[test]
fn equal_replays_give_equal_documents() {
    assert_eq!(
        replay(SMALL, &["-f", "json"]),
        replay(SMALL, &["-f", "json"])
    );
}

#[test]
fn what_cannot_be_replayed_is_refused_by_its_name() {
    let refused = |args: &[&str], says: &str| {
        assert_refused(args, 2, says);
    };
    let file = fixture(SMALL);
    refused(&["replay", "/does/not/exist"], "/does/not/exist");
    refused(&["replay", "Cargo.toml"], "it is no whole recording");
    refused(&["replay", &file, "-m", "host"], "simulated machine");
    refused(&["replay", &file, "-m", "sim:cpus=4,hz=1000"], "hz=1000");
    refused(&["replay", &file, "-m", "sim:cpus=0"], "cpus");
    refused(
        &["replay", &file, "-f", "json", "-o", &file],
        "would replace",
    );
}
