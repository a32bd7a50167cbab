//! Documents of runs: in the form that was asked for.

use std::fmt::Write;
use std::process::ExitCode;

use bursar_experiments::document::{Document, Metrics, ParameterTable};
use bursar_experiments::machine_info::{MachineInfo, MachineKind};
use bursar_experiments::measure::Metric;
use serde::Serialize;

use crate::failure::{EXPECTATION_FAILED, Failure};
use crate::markup::Markup;
use crate::options::{Format, TextFormat};
use crate::points::points;
use crate::{html, svg, table};

/// The documents in the form that was asked for; a table as `terminal` has it, and whole if `is_verbose`.
pub fn documents(
    documents: &[Document],
    format: Format,
    terminal: Markup,
    is_verbose: bool,
) -> Result<String, Failure> {
    let format = match format {
        Format::Text(format) => format,
        Format::Svg => return Ok(svg::picture(documents)),
        Format::Html => return html::page(documents),
    };
    match format {
        TextFormat::Table => Ok(table::run(documents, terminal, is_verbose)),
        TextFormat::Markdown => Ok(table::run(documents, Markup::Markdown, is_verbose)),
        TextFormat::Json => run_json(documents),
        TextFormat::Ndjson => run_ndjson(documents),
        TextFormat::Csv => run_csv(documents),
    }
}

/// Whether everything held.
pub fn exit_code(documents: &[Document]) -> ExitCode {
    if documents.iter().all(Document::holds) {
        ExitCode::SUCCESS
    } else {
        ExitCode::from(EXPECTATION_FAILED)
    }
}

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
fn run_json(documents: &[Document]) -> Result<String, Failure> {
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
    machine: &'a MachineInfo,
    parameters: &'a ParameterTable,
    seed: u64,
    seeds: u64,
    interrupted: bool,
    variant: &'a str,
    ran_seeds: &'a [u64],
    metrics: &'a Metrics,
}

/// One line a variant.
fn run_ndjson(documents: &[Document]) -> Result<String, Failure> {
    let mut lines = String::new();
    for document in documents {
        for variant in &document.variants {
            lines.push_str(&json_line(&Line {
                schema: document.schema,
                experiment: &document.experiment,
                experiment_hash: &document.experiment_hash,
                revision: &document.revision,
                machine: &document.machine,
                parameters: &document.parameters,
                seed: document.seed,
                seeds: document.seeds,
                interrupted: document.interrupted,
                variant: &variant.name,
                ran_seeds: &variant.ran_seeds,
                metrics: &variant.metrics,
            })?);
        }
    }
    Ok(lines)
}

/// One line a number. Simulated figures have a column of another name, so that they are not added to those of a host.
fn run_csv(documents: &[Document]) -> Result<String, Failure> {
    let kind = |document: &Document| document.machine.kind();
    let first = documents.first().map_or(MachineKind::Host, kind);
    if documents.iter().any(|document| kind(document) != first) {
        return Err(Failure::usage(
            "figures of the host and simulated ones cannot share a column; write two csv documents",
        ));
    }
    let column = match first {
        MachineKind::Host => "value",
        MachineKind::Sim => "simulated_value",
    };
    let mut lines = format!("experiment,machine,point,variant,metric,unit,field,{column}\n");
    for (document, point) in documents.iter().zip(points(documents)) {
        for variant in &document.variants {
            for (metric, value) in variant.metrics.iter() {
                for (field, number) in numbers(value) {
                    let [experiment, point, name] =
                        [&document.experiment, &point, &variant.name].map(|text| csv_field(text));
                    let unit = value.unit().name();
                    let _ = writeln!(
                        lines,
                        "{experiment},{first},{point},{name},{metric},{unit},{field},{number}"
                    );
                }
            }
        }
    }
    Ok(lines)
}

fn numbers(metric: &Metric) -> Vec<(&'static str, String)> {
    match metric {
        Metric::Distribution(distribution) => {
            let all = distribution.summary();
            vec![
                ("samples", all.samples.to_string()),
                ("mean", all.mean.to_string()),
                ("p50", all.p50.to_string()),
                ("p90", all.p90.to_string()),
                ("p99", all.p99.to_string()),
                ("p999", all.p999.to_string()),
                ("max", all.max.to_string()),
            ]
        }
        Metric::Ratio(share) => vec![
            ("value", share.value().to_string()),
            ("lo", share.lo().to_string()),
            ("hi", share.hi().to_string()),
        ],
        Metric::Count(value) => vec![("value", value.to_string())],
        Metric::Timeline(timeline) => vec![("points", timeline.points().len().to_string())],
        Metric::Figure(figure) => vec![
            ("value", figure.value().to_string()),
            ("lo", figure.lo().to_string()),
            ("hi", figure.hi().to_string()),
        ],
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
