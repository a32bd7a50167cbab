//! Documents of runs: in the form that was asked for.

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
pub use bursar_term::format::{csv_field, csv_line, json, json_line};

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
                let unit = value.unit().name();
                for (field, number) in numbers(value) {
                    csv_line(
                        &mut lines,
                        &[
                            &document.experiment,
                            &first,
                            &point,
                            &variant.name,
                            &metric,
                            &unit,
                            &field,
                            &number,
                        ],
                    );
                }
            }
        }
    }
    Ok(lines)
}

fn numbers(metric: &Metric) -> Vec<(&'static str, f64)> {
    match metric {
        Metric::Distribution(distribution) => {
            let all = distribution.summary();
            let whole = [
                ("p50", all.p50),
                ("p90", all.p90),
                ("p99", all.p99),
                ("p999", all.p999),
                ("max", all.max),
            ];
            let whole = whole.map(|(field, number)| (field, number as f64));
            let first = [("samples", all.samples as f64), ("mean", all.mean)];
            first.into_iter().chain(whole).collect()
        }
        Metric::Ratio(share) => vec![
            ("value", share.value()),
            ("lo", share.lo()),
            ("hi", share.hi()),
        ],
        Metric::Count(value) => vec![("value", *value as f64)],
        Metric::Timeline(timeline) => vec![("points", timeline.points().len() as f64)],
        Metric::Figure(figure) => vec![
            ("value", figure.value()),
            ("lo", figure.lo()),
            ("hi", figure.hi()),
        ],
    }
}
