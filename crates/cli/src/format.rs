//! Documents for programs.

use std::fmt::Write;

use bursar_lab::document::{Document, Metrics};
use bursar_lab::measure::Metric;
use serde::Serialize;

use crate::failure::Failure;

/// An indented JSON document.
pub fn json(document: &impl Serialize) -> Result<String, Failure> {
    let written = serde_json::to_string_pretty(document).map_err(Failure::unavailable)?;
    Ok(written + "\n")
}

/// A JSON document on one line.
pub fn json_line(document: &impl Serialize) -> Result<String, Failure> {
    let written = serde_json::to_string(document).map_err(Failure::unavailable)?;
    Ok(written + "\n")
}

/// One document, or a list if there are several.
pub fn run_json(documents: &[Document]) -> Result<String, Failure> {
    match documents {
        [document] => json(document),
        several => json(&several),
    }
}

/// A variant with what is needed to understand it without the others.
#[derive(Serialize)]
struct Line<'a> {
    schema: u32,
    experiment: &'a str,
    experiment_hash: &'a str,
    revision: &'a str,
    machine: &'a bursar_lab::document::MachineInfo,
    seed: u64,
    seeds: u64,
    variant: &'a str,
    metrics: &'a Metrics,
}

/// One line a variant.
pub fn run_ndjson(documents: &[Document]) -> Result<String, Failure> {
    let mut lines = String::new();
    for document in documents {
        for variant in &document.variants {
            lines.push_str(&json_line(&Line {
                schema: document.schema,
                experiment: &document.experiment,
                experiment_hash: &document.experiment_hash,
                revision: &document.revision,
                machine: &document.machine,
                seed: document.seed,
                seeds: document.seeds,
                variant: &variant.name,
                metrics: &variant.metrics,
            })?);
        }
    }
    Ok(lines)
}

/// One line a number.
pub fn run_csv(documents: &[Document]) -> String {
    let mut lines = "experiment,machine,variant,metric,unit,field,value\n".to_owned();
    for document in documents {
        for variant in &document.variants {
            for (metric, value) in variant.metrics.iter() {
                for (unit, field, number) in numbers(value) {
                    let [experiment, kind, name] =
                        [&document.experiment, document.machine.kind, &variant.name].map(csv_field);
                    let _ = writeln!(
                        lines,
                        "{experiment},{kind},{name},{metric},{unit},{field},{number}"
                    );
                }
            }
        }
    }
    lines
}

fn numbers(metric: &Metric) -> Vec<(&'static str, &'static str, String)> {
    match metric {
        Metric::Distribution(all) => vec![
            (all.unit, "samples", all.samples.to_string()),
            (all.unit, "mean", all.mean.to_string()),
            (all.unit, "p50", all.p50.to_string()),
            (all.unit, "p90", all.p90.to_string()),
            (all.unit, "p99", all.p99.to_string()),
            (all.unit, "p999", all.p999.to_string()),
            (all.unit, "max", all.max.to_string()),
        ],
        Metric::Ratio {
            unit,
            value,
            lo,
            hi,
        } => vec![
            (unit, "value", value.to_string()),
            (unit, "lo", lo.to_string()),
            (unit, "hi", hi.to_string()),
        ],
        Metric::Count { unit, value } => vec![(unit, "value", value.to_string())],
    }
}

/// A field as RFC 4180 wants it.
pub fn csv_field(text: &str) -> String {
    if text.contains(['"', ',', '\n', '\r']) {
        return format!("\"{}\"", text.replace('"', "\"\""));
    }
    text.to_owned()
}

#[cfg(test)]
mod tests {
    use super::csv_field;

    #[test]
    fn fields_with_separators_are_quoted() {
        assert_eq!(csv_field("plain"), "plain");
        assert_eq!(csv_field("a \"b\", c"), "\"a \"\"b\"\", c\"");
    }
}
