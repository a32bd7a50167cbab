//! The document of a replay, for programs. Seen figures and simulated ones are under different keys everywhere.

use std::path::Path;

use bursar_replay::{Agreement, CRITERION, Figures, Load, Policies};
use bursar_sim::{CostModel, Topology};
use bursar_watch::seen::Seen;
use serde::Serialize;

use super::compared::{Compared, compare, predicts};
use super::figures::OfPolicy;
use super::prediction::{Prediction, predictions};

/// All runs of a replay.
pub(super) struct Runs {
    /// The recorded machine, simulated.
    pub(super) own: Topology,
    /// The machine of the other policies.
    pub(super) other: Topology,
    /// Machine, policies, and the figures of each draw. The first is the recorded policy on the recorded machine.
    pub(super) figures: Vec<(Topology, Policies, Vec<Figures>)>,
    /// Reasons why policies are left out.
    pub(super) failed: Vec<String>,
    pub(super) draws: u64,
}

/// All of it.
#[derive(Debug, Serialize)]
pub(super) struct Document {
    schema: u32,
    kind: &'static str,
    pub(super) recording: OfRecording,
    /// Rule for agreement.
    pub(super) criterion: &'static str,
    pub(super) draws: u64,
    cost_model: String,
    /// Recorded policies, as they were found.
    pub(super) recorded_policies: Vec<String>,
    /// The recorded machine, as it is simulated.
    pub(super) machine: String,
    pub(super) measures: Vec<Compared>,
    pub(super) total: Total,
    /// Effects of changes of the kernel, from the same runs.
    pub(super) predictions: Vec<Prediction>,
    pub(super) what_if: WhatIf,
    pub(super) cannot_tell: Vec<String>,
}

#[derive(Debug, Serialize)]
pub(super) struct OfRecording {
    pub(super) file: String,
    pub(super) kernel: String,
    pub(super) hz: u32,
    pub(super) cpus: usize,
    pub(super) replayed_seconds: f64,
    records: usize,
    lost_events: u64,
    is_virtual: bool,
    is_redacted: bool,
}

/// Number of measures that agree, of those that the rule judges.
#[derive(Clone, Copy, Debug, Serialize)]
pub(super) struct Total {
    pub(super) agree: usize,
    pub(super) judged: usize,
}

#[derive(Debug, Serialize)]
pub(super) struct WhatIf {
    /// The simulated machine.
    pub(super) machine: String,
    /// Whether it has the recorded machine's CPUs.
    pub(super) is_scaled: bool,
    pub(super) policies: Vec<OfPolicy>,
}

impl Document {
    pub(super) fn new(
        path: &Path,
        recording: &Seen,
        load: &Load,
        seen: &Figures,
        runs: &Runs,
    ) -> Self {
        let (.., own) = &runs.figures[0];
        let is_other =
            |(topology, ..): &&(Topology, Policies, Vec<Figures>)| *topology == runs.other;
        let others: Vec<_> = runs.figures.iter().filter(is_other).collect();
        let other_stock = others
            .first()
            .map(|(.., figures)| figures.as_slice())
            .unwrap_or(own);
        let left_out = runs.failed.iter();
        let left_out = left_out.map(|why| format!("A policy is left out: {why}."));
        let measures = compare(load, seen, own);
        let policies: Vec<_> = (others.iter())
            .map(|(_, policies, figures)| {
                OfPolicy::new(load, *policies, figures, other_stock, |measure| {
                    predicts(measure, &measures)
                })
            })
            .collect();
        Self {
            schema: 1,
            kind: "replay",
            recording: OfRecording {
                file: path.display().to_string(),
                kernel: recording.machine.kernel.clone(),
                hz: load.hz(),
                cpus: load.cpus(),
                replayed_seconds: load.seconds(),
                records: recording.records(),
                lost_events: recording.losses.events_lost,
                is_virtual: recording.may_be_guest(),
                is_redacted: recording.is_redacted,
            },
            criterion: CRITERION,
            draws: runs.draws,
            cost_model: CostModel::default().hash(),
            recorded_policies: (load.stock().reasons.iter())
                .filter(|(part, _)| load.has(*part))
                .map(|(_, reason)| reason.clone())
                .collect(),
            machine: format!("sim:{}", runs.own),
            total: Total {
                agree: (measures.iter())
                    .filter(|row| row.ruling == Agreement::Agrees)
                    .count(),
                judged: measures.iter().filter(|row| row.is_judged()).count(),
            },
            predictions: predictions(&policies, &measures),
            measures,
            what_if: WhatIf {
                machine: format!("sim:{}", runs.other),
                is_scaled: runs.other.cpus != runs.own.cpus,
                policies,
            },
            cannot_tell: load.unknown().iter().cloned().chain(left_out).collect(),
        }
    }
}
