//! The table of a run, for people.

use std::fmt::Write;

use bursar_lab::document::{Document, VariantResult};
use bursar_lab::machine_info::MachineInfo;
use bursar_lab::measure::Unit;
use comfy_table::{CellAlignment, Table};

use crate::findings::findings;
use crate::form::Form;
use crate::more::more;
use crate::picture::picture;
use crate::points::points;
use crate::rulings::rulings;
use crate::shares::shares;
use crate::timeline::timeline;
use crate::view::{self, Column, Load, View, distribution, shown};

/// Everything a run found, for a reader who knows neither the thread nor the kernel.
pub fn run(documents: &[Document], form: Form) -> String {
    let points = points(documents);
    let mut text = rulings(documents, form);
    for (place, (document, point)) in documents.iter().zip(&points).enumerate() {
        if place > 0 {
            text.push('\n');
        }
        text.push_str(&one(document, point, form));
        let next = documents.get(place + 1);
        if next.is_none_or(|next| next.experiment != document.experiment) {
            text.push('\n');
            text.push_str(&legend(document, view::of(document), form));
        }
    }
    text
}

fn one(document: &Document, point: &str, form: Form) -> String {
    let mut title = format!("{}: {}", document.experiment, document.title);
    if !point.is_empty() {
        let _ = write!(title, ", {point}");
    }
    let view = view::of(document);
    let mut text = form.heading(&title);
    text.push_str(&machine_line(document));
    text.push_str(&(view.load)(Load(&document.parameters)));
    text.push('\n');
    if document.interrupted {
        text.push_str(
            &form.alarm("INTERRUPTED: only the runs that had finished are in these figures.\n"),
        );
    }
    if !view.columns.is_empty() {
        text.push('\n');
        text.push_str(&form.render(&figures(document, view, form)));
    }
    let shares = shares(document, view, form);
    if !shares.is_empty() {
        text.push('\n');
        text.push_str(&shares);
    }
    text.push_str(&more(document, view, form));
    text.push_str(&pictures(document, view, form));
    text.push('\n');
    text.push_str(&findings(document, view, form));
    text
}

fn pictures(document: &Document, view: &View, form: Form) -> String {
    let mut pictures = Vec::new();
    let simulated = |time| match document.machine {
        MachineInfo::Host(_) => "",
        MachineInfo::Sim(_) => time,
    };
    for bars in view.bars {
        let of = |variant| Some((name(variant), distribution(variant, bars.metric)?));
        let rows: Vec<_> = document.variants.iter().filter_map(of).collect();
        let time = match rows.first() {
            Some((_, counts)) if counts.unit() == Unit::Count => simulated(", simulated"),
            _ => simulated(", in virtual time"),
        };
        pictures.push((format!("{}{time}", bars.title), picture(&rows)));
    }
    if let Some(moments) = view.timeline {
        let (title, drawn) = timeline(document, moments);
        pictures.push((format!("{title}{}", simulated(", in virtual time")), drawn));
    }
    let mut text = String::new();
    for (title, drawn) in pictures {
        if !drawn.is_empty() {
            let _ = write!(text, "\n{title}:\n{}", form.verbatim(&drawn));
        }
    }
    text
}

fn machine_line(document: &Document) -> String {
    let seeds = match document.seeds {
        1 => format!("seed {}", document.seed),
        seeds => format!("{seeds} seeds from {}", document.seed),
    };
    match &document.machine {
        MachineInfo::Host(host) => format!(
            "host figures (this machine, real threads, real time): {} CPUs, {} node(s), {}, {}, per-CPU words by {}; {seeds}\n",
            host.cpus, host.nodes, host.model, host.system, host.backend
        ),
        MachineInfo::Sim(sim) => format!(
            "SIMULATED figures (virtual time, cost model {}): {} CPUs, {} node(s), {} ticks a second; {seeds}\n{}\n",
            sim.model, sim.cpus, sim.nodes, sim.hz, document.machine
        ),
    }
}

fn figures(document: &Document, view: &View, form: Form) -> Table {
    let mut header = vec![match document.machine {
        MachineInfo::Host(_) => "variant",
        MachineInfo::Sim(_) => "variant (simulated)",
    }];
    header.extend(view.columns.iter().map(|column| column.title));
    let mut table = form.table(&header);
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
        let mut row = vec![name_with_seeds(variant, document)];
        row.extend(view.columns.iter().map(cell));
        table.add_row(row);
    }
    for column in table.column_iter_mut().skip(1) {
        column.set_cell_alignment(CellAlignment::Right);
    }
    table
}

fn legend(document: &Document, view: &View, form: Form) -> String {
    let mut text = "What the variants do:\n".to_owned();
    for variant in &document.variants {
        text.push_str(&form.item(&format!("{}: {}", variant.name, variant.summary)));
    }
    if !view.legend.is_empty() {
        text.push_str("\nWhat the columns say:\n");
    }
    for line in view.legend {
        text.push_str(&form.item(line));
    }
    if document.seeds > 1 {
        text.push_str(&form.item(view.counted));
    }
    text
}

fn name(variant: &VariantResult) -> &str {
    &variant.name
}

/// The name, with what makes its figures less sure than those beside it.
pub fn name_with_seeds(variant: &VariantResult, document: &Document) -> String {
    let seeds = variant.ran_seeds.len() as u64;
    match seeds < document.seeds {
        true => format!(
            "{} ({seeds} seed{})",
            variant.name,
            if seeds == 1 { "" } else { "s" }
        ),
        false => variant.name.clone(),
    }
}

#[cfg(test)]
mod tests;
