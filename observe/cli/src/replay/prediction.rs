//! Effects of changes of the kernel on the recorded load, from runs that were done anyway.

use bursar_replay::MEASURES;
use serde::Serialize;

use super::compared::{Compared, predicts};
use super::figures::{Change, OfPolicy, Spread, in_unit};

/// A change of the kernel and what the replay says of it.
#[derive(Debug, Serialize)]
pub(super) struct Prediction {
    /// The change.
    change: &'static str,
    /// Version of Linux that has it first; absent if it is not merged.
    merged: Option<&'static str>,
    /// Whether the replay adds it to the recorded kernel. Else it takes it away.
    is_added: bool,
    /// Policy of the replay that has or lacks it.
    policy: &'static str,
    measures: Vec<Predicted>,
    /// Measures that are not predicted, because the replay does not match what was seen.
    not_predicted: Vec<&'static str>,
}

/// One figure under the recorded policies and with the change added or taken away. Simulated.
#[derive(Debug, Serialize)]
struct Predicted {
    measure: &'static str,
    recorded: Spread,
    changed: Spread,
    is_clear: bool,
}

/// A change, and the replay's policy on its one side.
struct Side {
    change: &'static str,
    merged: Option<&'static str>,
    policy: &'static str,
    is_added: bool,
    measures: &'static [&'static str],
}

const UPKEEP: &[&str] = &["herd_max", "upkeep_p99_ns"];
const PAGES: &[&str] = &["free_hold_max_ns", "zone_wait_p99_ns"];
const FLUSHES: &[&str] = &["flush_p99_ns", "flush_skipped"];
const RELEASE: &str = "release of the zone lock after each batch";
const THRESHOLD: &str = "thresholds and flushes of each cgroup of its own";

/// The policy that the recorded kernel has is not among those of the replay. So of two sides of a change one is found.
#[rustfmt::skip]
const SIDES: [Side; 5] = [
    Side { change: "first delays of upkeep that grow with the CPU's number", merged: None, policy: "spread", is_added: true, measures: UPKEEP },
    Side { change: RELEASE, merged: Some("6.19"), policy: "batched", is_added: true, measures: PAGES },
    Side { change: RELEASE, merged: Some("6.19"), policy: "whole", is_added: false, measures: PAGES },
    Side { change: THRESHOLD, merged: Some("6.8"), policy: "per-group-lockless", is_added: true, measures: FLUSHES },
    Side { change: THRESHOLD, merged: Some("6.8"), policy: "unified", is_added: false, measures: FLUSHES },
];

/// The predictions that these policies give, which are the recorded ones and others. `rows` say which measures were refuted.
pub(super) fn predictions(policies: &[OfPolicy], rows: &[Compared]) -> Vec<Prediction> {
    let Some(recorded) = policies.iter().find(|of| of.part.is_none()) else {
        return Vec::new();
    };
    let of = |side: &Side| {
        let changed = policies.iter().find(|of| of.policy == side.policy)?;
        let measure = |&measure: &&'static str| {
            let change: &Change = changed.simulated.get(measure)?;
            Some(Predicted {
                measure,
                recorded: recorded.simulated.get(measure)?.figure,
                changed: change.figure,
                is_clear: change.is_clear == Some(true),
            })
        };
        let measures: Vec<_> = side.measures.iter().filter_map(measure).collect();
        let is_refuted = |name: &&&str| {
            let row = rows.iter().find(|row| row.measure == **name);
            row.is_some_and(|row| row.simulated.is_some() && !predicts(row.of, rows))
        };
        let not_predicted: Vec<_> = side.measures.iter().filter(is_refuted).copied().collect();
        (!measures.is_empty() || !not_predicted.is_empty()).then_some(Prediction {
            change: side.change,
            merged: side.merged,
            is_added: side.is_added,
            policy: side.policy,
            measures,
            not_predicted,
        })
    };
    SIDES.iter().filter_map(of).collect()
}

impl Prediction {
    /// A sentence with all figures.
    pub(super) fn sentences(&self) -> String {
        let merged = match self.merged {
            Some(version) => format!("Linux {version}"),
            None => "not merged up to 7.3".to_owned(),
        };
        let added = if self.is_added { "With" } else { "Without" };
        let figures = self.measures.iter().filter_map(|predicted| {
            let measure = MEASURES.iter().find(|it| it.name == predicted.measure)?;
            let shown = |of: Spread| {
                let [median, lo, hi] =
                    [of.median, of.lo, of.hi].map(|it| in_unit(it, measure.unit));
                format!("{median} ({lo} to {hi})")
            };
            let unclear =
                match predicted.is_clear || predicted.recorded.median == predicted.changed.median {
                    true => "",
                    false => ", but some draws say the contrary",
                };
            Some(format!(
                "{}: {} instead of {}{unclear}",
                measure.label,
                shown(predicted.changed),
                shown(predicted.recorded)
            ))
        });
        let not_predicted = self.not_predicted.iter().filter_map(|name| {
            let measure = MEASURES.iter().find(|it| it.name == *name)?;
            let why = "no prediction, because the replay does not match what was seen";
            Some(format!("{}: {why}", measure.label))
        });
        let figures: Vec<String> = figures.chain(not_predicted).collect();
        let figures = figures.join("; ");
        format!("{added} {} ({merged}): {figures}.", self.change)
    }
}
