//! The table of a run, for people.

use std::fmt::Write;

use bursar_experiments::document::{Document, VariantResult};
use bursar_experiments::machine_info::MachineInfo;
use bursar_experiments::measure::Unit;

use crate::findings::findings;
use crate::further_figures::further_figures;
use crate::latency_ranges::latency_ranges;
use crate::picture::picture;
use crate::points::points;
use crate::published_figures::published_figures;
use crate::timeline::timeline;
use crate::units::counted;
use crate::view::{self, Column, Load, View, distribution, shown};
use bursar_term::grid::Grid;
use bursar_term::markup::Markup;

/// Everything a run found, for a reader who knows neither the thread nor the kernel: findings of all documents first, then what
/// was published, then the words that the tables use, and the tables. `is_verbose` adds published figures that were not judged.
pub fn run(documents: &[Document], form: Markup, is_verbose: bool) -> String {
    let points = points(documents);
    let all = || documents.iter().zip(&points);
    let summaries = all().map(|(document, point)| summary(document, point, form));
    let mut text = summaries.collect::<Vec<_>>().join("\n");
    text.push_str(&published_figures(documents, form, is_verbose));
    for (place, (document, point)) in all().enumerate() {
        let before = place.checked_sub(1).map(|before| &documents[before]);
        if before.is_none_or(|before| before.experiment != document.experiment) {
            text.push('\n');
            text.push_str(&legend(documents, document, form));
        }
        if documents.len() > 1 {
            text.push('\n');
            text.push_str(&form.subheading(&title(document, point)));
        }
        text.push_str(&tables(document, form));
    }
    text
}

/// The name of a document's runs.
fn title(document: &Document, point: &str) -> String {
    let mut title = format!("{}: {}", document.experiment, document.title);
    if !point.is_empty() {
        let _ = write!(title, ", {point}");
    }
    title
}

/// Title, machine, load and findings.
fn summary(document: &Document, point: &str, form: Markup) -> String {
    let view = view::of(document);
    let mut text = form.heading(&title(document, point));
    for line in machine_lines(document) {
        text.push_str(&form.paragraph(&line));
    }
    text.push_str(&form.paragraph(&(view.load)(Load(&document.parameters))));
    if document.interrupted {
        let said = "INTERRUPTED: only the runs that had finished are in these figures.";
        text.push_str(&form.paragraph(&form.alarm(said)));
    }
    text.push('\n');
    text.push_str(&findings(document, view, form));
    text
}

/// All figures of a document, and what they look like.
fn tables(document: &Document, form: Markup) -> String {
    let view = view::of(document);
    let mut text = String::new();
    if !view.columns().is_empty() {
        text.push('\n');
        text.push_str(&form.table(&figures(document, view, form)));
    }
    let shares = latency_ranges(document, view, form);
    if !shares.is_empty() {
        text.push('\n');
        text.push_str(&shares);
    }
    text.push_str(&further_figures(document, view, form));
    text.push_str(&pictures(document, view, form));
    text
}

fn pictures(document: &Document, view: &View, form: Markup) -> String {
    let mut pictures = Vec::new();
    let simulated = |time| match document.machine {
        MachineInfo::Host(_) => "",
        MachineInfo::Sim(_) => time,
    };
    for info in view.metrics().iter().filter(|info| !info.bars.is_empty()) {
        let of = |variant| Some((name(variant), distribution(variant, info.name)?));
        let rows: Vec<_> = document.variants.iter().filter_map(of).collect();
        let time = match rows.first() {
            Some((_, counts)) if counts.unit() == Unit::Count => simulated(", simulated"),
            _ => simulated(", in virtual time"),
        };
        pictures.push((format!("{}{time}", info.bars), picture(&rows, form.width())));
    }
    if let Some(moments) = view.timeline {
        let (title, drawn) = timeline(document, moments, form.width());
        pictures.push((format!("{title}{}", simulated(", in virtual time")), drawn));
    }
    let mut text = String::new();
    for (title, drawn) in pictures {
        if !drawn.is_empty() {
            text.push('\n');
            text.push_str(&form.paragraph(&format!("{title}:")));
            text.push_str(&form.verbatim(&drawn));
        }
    }
    text
}

fn machine_lines(document: &Document) -> Vec<String> {
    let seeds = match document.seeds {
        1 => format!("seed {}", document.seed),
        seeds => format!("{seeds} seeds from {}", document.seed),
    };
    match &document.machine {
        MachineInfo::Host(host) => vec![format!(
            "host figures (this machine, real threads, real time): {}, {}, {}, {}, per-CPU words by {}; {seeds}",
            counted(host.cpus, "CPU"),
            counted(host.nodes, "node"),
            host.model,
            host.system,
            host.backend
        )],
        MachineInfo::Sim(sim) => vec![
            format!(
                "SIMULATED figures (virtual time, cost model {}): {}, {}, {} ticks a second; {seeds}",
                sim.model,
                counted(sim.cpus, "CPU"),
                counted(sim.nodes, "node"),
                sim.hz
            ),
            document.machine.to_string(),
        ],
    }
}

fn figures(document: &Document, view: &View, form: Markup) -> Grid {
    let mut header = vec![match document.machine {
        MachineInfo::Host(_) => "variant",
        MachineInfo::Sim(_) => "variant (simulated)",
    }];
    let columns = view.columns();
    header.extend(columns.iter().map(|column| column.title));
    let mut table = Grid::new(header).right(1..columns.len() + 1);
    for variant in &document.variants {
        let failed = |metric: &str| {
            document.expectations.iter().any(|expectation| {
                !expectation.holds
                    && expectation.variant == variant.name
                    && expectation.metric == metric
            })
        };
        let cell = |column: &Column| {
            let figure = shown(variant, column.metric, column.of);
            match failed(column.metric) {
                true => form.alarm(&figure),
                false => figure,
            }
        };
        let name = crate::view::name_with_seeds(variant, document);
        table.row([name].into_iter().chain(columns.iter().map(cell)));
    }
    table
}

/// Descriptions of the variants and columns of an experiment's tables.
fn legend(documents: &[Document], first: &Document, form: Markup) -> String {
    let view = view::of(first);
    let mut text = form.subheading("Variants");
    let of_experiment = documents
        .iter()
        .filter(|document| document.experiment == first.experiment);
    let mut named: Vec<&str> = Vec::new();
    for variant in of_experiment.flat_map(|document| &document.variants) {
        if !named.contains(&name(variant)) {
            named.push(name(variant));
            text.push_str(&form.item(&format!("{}: {}", variant.name, variant.summary)));
        }
    }
    let mut lines = view
        .metrics()
        .iter()
        .map(|info| info.legend)
        .filter(|line| !line.is_empty())
        .peekable();
    if lines.peek().is_some() {
        text.push('\n');
        text.push_str(&form.subheading("Columns"));
    }
    for line in lines {
        text.push_str(&form.item(line));
    }
    if first.seeds > 1 {
        text.push_str(&form.item(view.counted));
    }
    text
}

fn name(variant: &VariantResult) -> &str {
    &variant.name
}

#[cfg(test)]
mod tests;
