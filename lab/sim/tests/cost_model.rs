//! The constants of the cost model, and their sources in `lab/docs/cost-model.md`.

use bursar_sim::{Constant, CostModel};

const DOCUMENT: &str = include_str!("../../docs/cost-model.md");

/// Keys in brackets, such as `[vm]`.
fn keys(text: &str) -> Vec<&str> {
    text.split('[')
        .skip(1)
        .filter_map(|rest| rest.split_once(']'))
        .map(|(key, _)| key)
        .collect()
}

#[test]
fn the_defaults_are_the_table() {
    let table: Vec<_> = CostModel::constants()
        .map(|constant| (constant.name, constant.value))
        .collect();
    let defaults: Vec<_> = CostModel::default().values().collect();
    assert_eq!(defaults, table);
}

#[test]
fn each_constant_is_within_its_range_and_has_a_source() {
    // Only the list of sources; a key that stands elsewhere in the document explains nothing.
    let entries: Vec<_> = DOCUMENT
        .lines()
        .filter(|line| line.starts_with("* ["))
        .flat_map(|line| keys(line.split(':').next().unwrap_or_default()))
        .collect();
    for constant in CostModel::constants() {
        let Constant {
            name,
            value,
            lo,
            hi,
            source,
            may_be_zero,
        } = *constant;
        assert!(lo <= value && value <= hi, "{name}: {value} in {lo}..{hi}");
        assert!(lo > 0 || may_be_zero, "{name}: 0 is in its range");
        let keys = keys(source);
        assert!(
            !keys.is_empty() || source.contains("judgement"),
            "{name}: neither a source nor a judgement"
        );
        for key in keys {
            assert!(entries.contains(&key), "{name}: no entry for [{key}]");
        }
        if source.starts_with("judgement") {
            assert!(hi >= 4 * lo, "{name}: a narrow range for a judgement");
        }
    }
}

#[test]
fn farther_lines_cost_more() {
    let costs = CostModel::default();
    let ways = [
        costs.line_own_ns,
        costs.line_core_ns,
        costs.line_cluster_ns,
        costs.line_socket_ns,
        costs.line_remote_ns,
    ];
    assert!(ways.is_sorted_by(|near, far| near < far), "{ways:?}");
}

#[test]
fn the_hash_changes_when_a_value_does() {
    let default = CostModel::default().hash();
    let digits = default
        .strip_prefix("fnv1a64:")
        .expect("its kind comes first");
    assert_eq!(digits.len(), 16);
    let mut seen = vec![default.clone()];
    for constant in CostModel::constants() {
        let mut costs = CostModel::default();
        costs
            .set(constant.name, constant.value + 1)
            .expect("a known name");
        let hash = costs.hash();
        assert!(!seen.contains(&hash), "{}", constant.name);
        seen.push(hash);
        costs
            .set(constant.name, constant.value)
            .expect("a known name");
        assert_eq!(costs.hash(), default);
    }
}
