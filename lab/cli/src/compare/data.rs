//! The comparison for programs: a line a figure.

use bursar_experiments::compare::Change;
use bursar_experiments::document::ParameterTable;
use bursar_experiments::machine_info::{MachineInfo, MachineKind};
use serde::Serialize;

use super::compared::Compared;
use crate::failure::Failure;
use crate::format::{csv_line, json_line};

/// A figure with what is needed to understand it without the others.
#[derive(Serialize)]
struct Line<'a> {
    schema: u32,
    files: &'a [String; 2],
    experiment: &'a str,
    machine: &'a MachineInfo,
    parameters: &'a ParameterTable,
    seeds: [u64; 2],
    revisions: &'a [String; 2],
    #[serde(flatten)]
    change: &'a Change,
}

/// One line a figure.
pub fn ndjson(compared: &Compared) -> Result<String, Failure> {
    let mut lines = String::new();
    for comparison in &compared.comparisons {
        for change in &comparison.changes {
            lines.push_str(&json_line(&Line {
                schema: compared.schema,
                files: &compared.files,
                experiment: &comparison.experiment,
                machine: &comparison.machine,
                parameters: &comparison.parameters,
                seeds: comparison.seeds,
                revisions: &comparison.revisions,
                change,
            })?);
        }
    }
    Ok(lines)
}

/// One line a figure. Simulated ones have columns of other names, so that they are not added to those of a host.
pub fn csv(compared: &Compared) -> Result<String, Failure> {
    let mut kinds = compared.comparisons.iter().map(|it| it.machine.kind());
    let first = kinds.next().unwrap_or(MachineKind::Host);
    if kinds.any(|kind| kind != first) {
        return Err(Failure::usage(
            "figures of the host and simulated ones cannot share a column; compare them in two csv documents",
        ));
    }
    let [a, b] = match first {
        MachineKind::Host => ["a", "b"],
        MachineKind::Sim => ["simulated_a", "simulated_b"],
    };
    let mut lines = format!(
        "experiment,machine,point,variant,metric,figure,unit,{a},{b},change,judgement,reason\n"
    );
    for (comparison, point) in compared.comparisons.iter().zip(&compared.points) {
        for change in &comparison.changes {
            let relative = change.change.map_or(String::new(), |part| part.to_string());
            csv_line(
                &mut lines,
                &[
                    &comparison.experiment,
                    &first,
                    point,
                    &change.variant,
                    &change.metric,
                    &change.figure,
                    &change.unit.name(),
                    &change.a,
                    &change.b,
                    &relative,
                    &change.judgement,
                    &change.reason,
                ],
            );
        }
    }
    Ok(lines)
}
