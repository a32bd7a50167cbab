//! Pictures of results, as SVG that needs nothing else: no script, no font, no other file.
//!
//! | part | file |
//! |---|---|
//! | what is on the page, from top to bottom | this one |
//! | how much of a metric is below what | `cumulative.rs` |
//! | what happened on which CPU and when | `timeline.rs` |
//! | a figure against a parameter | `sweep.rs` |
//! | frame, axes and legend of one plot | `panel.rs`, `axis.rs` |
//! | elements, and their escaping | `canvas.rs` |
//! | colours, types and sizes | `style.rs` |
//!
//! The same documents give the same bytes: nothing depends on a clock, a hash map or the terminal.

mod axis;
mod canvas;
mod cumulative;
mod panel;
mod style;
mod sweep;
mod timeline;

use std::fmt::Write;

use bursar_lab::document::Document;
use bursar_lab::machine_info::{MachineInfo, MachineKind};
use bursar_lab::measure::Unit;

pub use self::canvas::legal;
use self::canvas::{Anchor, Canvas};
use self::panel::paragraph;
use self::style::{EDGE, LABEL, MARGIN, TITLE, WIDTH};
use crate::points::points;
use crate::view::Load;

/// All documents, and what sweeps over them show, one below another.
pub fn picture(documents: &[Document]) -> String {
    let mut canvas = Canvas::new();
    for (document, point) in documents.iter().zip(points(documents)) {
        draw(&mut canvas, document, &point);
    }
    for sweep in sweep::sweeps(documents) {
        canvas.top += 20.0;
        sweep::draw(&mut canvas, &sweep);
    }
    canvas.top += MARGIN;
    canvas.finish("Results of Bursar's experiments")
}

/// One document of several, by itself.
pub fn of_document(document: &Document, point: &str) -> String {
    let mut canvas = Canvas::new();
    draw(&mut canvas, document, point);
    canvas.top += MARGIN;
    canvas.finish(&title(document, point))
}

/// What sweeps over the documents show: a picture each.
pub fn of_sweeps(documents: &[Document]) -> Vec<String> {
    let drawn = sweep::sweeps(documents).into_iter().map(|sweep| {
        let mut canvas = Canvas::new();
        sweep::draw(&mut canvas, &sweep);
        canvas.top += MARGIN;
        canvas.finish(&sweep.title())
    });
    drawn.collect()
}

/// What a document is of.
pub fn title(document: &Document, point: &str) -> String {
    let mut title = format!("{}: {}", document.experiment, document.title);
    if !point.is_empty() {
        let _ = write!(title, ", {point}");
    }
    title
}

fn draw(canvas: &mut Canvas, document: &Document, point: &str) {
    head(canvas, document, &title(document, point));
    let has_timeline = timeline::draw(canvas, document);
    let plots = cumulative::plots(document);
    if plots.is_empty() && !has_timeline {
        paragraph(canvas, "Nothing was measured that could be drawn.");
    }
    for plot in plots {
        cumulative::draw(canvas, document, &plot);
    }
}

/// Title, kind of figures, and with what they were found.
fn head(canvas: &mut Canvas, document: &Document, title: &str) {
    if canvas.top > 0.0 {
        canvas.top += 20.0;
        let (from, to) = ((0.0, canvas.top), (WIDTH, canvas.top));
        canvas.line(from, to, EDGE, 1.0);
    }
    canvas.top += 34.0;
    canvas.text((MARGIN, canvas.top), Anchor::Start, TITLE, title);
    canvas.top += 19.0;
    let kind = match document.machine.kind() {
        MachineKind::Host => "HOST (real threads, real time)",
        MachineKind::Sim => "SIMULATED (virtual time)",
    };
    canvas.text((MARGIN, canvas.top), Anchor::Start, LABEL, kind);
    if document.interrupted {
        canvas.top += 15.0;
        let partial = "INTERRUPTED: only the runs that had finished are shown";
        canvas.text((MARGIN, canvas.top), Anchor::Start, LABEL, partial);
    }
    paragraph(canvas, &origin(document));
    paragraph(canvas, &load(document));
}

/// Machine, seeds and revision.
pub fn origin(document: &Document) -> String {
    let seeds = match document.seeds {
        1 => format!("seed {}", document.seed),
        seeds => format!("{seeds} seeds from {}", document.seed),
    };
    let model = match &document.machine {
        MachineInfo::Host(_) => String::new(),
        MachineInfo::Sim(sim) => format!("; cost model {}", sim.model),
    };
    format!(
        "{}{model}; {seeds}; revision {}",
        document.machine, document.revision
    )
}

/// All parameters.
pub fn load(document: &Document) -> String {
    Load(&document.parameters).all()
}

/// The time that figures are of, beside a quantity.
fn of_figures(kind: MachineKind, unit: Unit) -> &'static str {
    match (kind, unit) {
        (MachineKind::Host, _) => "",
        (MachineKind::Sim, Unit::Count | Unit::Ratio) => " (simulated)",
        (MachineKind::Sim, _) => ", virtual time (simulated)",
    }
}

#[cfg(test)]
mod tests;
