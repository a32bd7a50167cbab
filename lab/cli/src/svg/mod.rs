//! Pictures of results, as SVG that needs nothing else: no script, no font, no other file.
//!
//! | part | file |
//! |---|---|
//! | titles and figures of a file, from top to bottom | this one |
//! | a picture, with the texts around it | `figure.rs` |
//! | how often something happened | `bars.rs` |
//! | shares of a metric below a bound | `cumulative.rs` |
//! | moments on CPUs | `timeline.rs` |
//! | a figure against a parameter | `sweep.rs` |
//! | lines, in one plot or in small ones, and their legend | `lines.rs` |
//! | frame, axes and labels of a plot | `panel.rs`, `axis.rs` |
//! | names and lines of variants | `cast.rs` |
//! | elements, and their escaping | `canvas.rs` |
//! | colours, types and sizes | `style.rs` |
//!
//! The same documents give the same bytes: nothing depends on a clock, a hash map or the terminal.

mod axis;
mod bars;
mod canvas;
mod cast;
mod cumulative;
mod figure;
mod lines;
mod panel;
mod style;
mod sweep;
mod timeline;

use std::fmt::Write;

use bursar_experiments::document::Document;
use bursar_experiments::machine_info::MachineKind;

pub use self::axis::time_unit;
use self::canvas::{Anchor, Canvas};
pub use self::cast::{Part, parts};
use self::figure::Drawing;
pub use self::figure::{Figure, origin};
pub use self::lines::{Entry, Sign};
use self::panel::paragraph;
use self::style::{ALONE, EDGE, LABEL, TITLE};
pub use self::style::{DARK, MOST_LINES};
pub use self::sweep::{Sweep, figures as figures_of_sweep, sweeps};
use crate::points::points;
use crate::view::{self, Load};

/// All documents, and the sweeps over them, one below another.
pub fn picture(documents: &[Document]) -> String {
    let mut canvas = Canvas::new(ALONE);
    for (document, point) in documents.iter().zip(points(documents)) {
        head(&mut canvas, document, &title(document, &point));
        let figures = figures(document);
        if figures.is_empty() {
            paragraph(&mut canvas, NOTHING);
        }
        for figure in figures {
            figure.draw(&mut canvas);
        }
    }
    for sweep in sweeps(documents) {
        canvas.top += 20.0;
        headline(&mut canvas, &sweep.title(), kind(sweep::kind(&sweep)));
        paragraph(&mut canvas, &sweep::origin_of_first(&sweep));
        for figure in figures_of_sweep(&sweep) {
            figure.draw(&mut canvas);
        }
    }
    canvas.top += canvas.sheet.margin;
    canvas.finish("Results of Bursar's experiments")
}

/// Stands for pictures that could not be drawn.
pub const NOTHING: &str = "Nothing was measured that could be drawn.";

/// All pictures of a document.
pub fn figures(document: &Document) -> Vec<Figure<'_>> {
    let parts = parts(document);
    let moments = moments(document, &parts);
    let distributions = cumulative::figures(document, &parts);
    let mut figures: Vec<_> = moments.into_iter().chain(distributions).collect();
    figures.sort_by_key(|figure| !figure.is_answer);
    figures
}

/// Moments on CPUs; `None` if the document has none.
fn moments<'a>(document: &'a Document, parts: &[Part<'a>]) -> Option<Figure<'a>> {
    Some(Figure {
        title: view::of(document).timeline?.title.to_owned(),
        is_answer: false,
        reading: "How to read: each point is one CPU's upkeep. Points above one another are on the same tick and disturb each other."
            .to_owned(),
        drawing: Drawing::Moments(timeline::moments(document, parts)?),
    })
}

/// Label of all figures of a kind of machine.
pub fn kind(kind: MachineKind) -> &'static str {
    match kind {
        MachineKind::Host => "HOST (real threads, real time)",
        MachineKind::Sim => "SIMULATED (virtual time)",
    }
}

/// Experiment, title and point of a document.
pub fn title(document: &Document, point: &str) -> String {
    let mut title = format!("{}: {}", document.experiment, document.title);
    if !point.is_empty() {
        let _ = write!(title, ", {point}");
    }
    title
}

/// Title, kind of figures, machine and parameters.
fn head(canvas: &mut Canvas, document: &Document, title: &str) {
    if canvas.top > 0.0 {
        canvas.top += 20.0;
        let (from, to) = ((0.0, canvas.top), (canvas.sheet.width, canvas.top));
        canvas.line(from, to, EDGE, 1.0);
    }
    headline(canvas, title, kind(document.machine.kind()));
    if document.interrupted {
        canvas.top += 15.0;
        let partial = "INTERRUPTED: only the runs that had finished are shown";
        let at = (canvas.sheet.margin, canvas.top);
        canvas.text(at, Anchor::Start, LABEL, partial);
    }
    paragraph(canvas, &origin(document));
    paragraph(canvas, &load(document));
}

fn headline(canvas: &mut Canvas, title: &str, kind: &str) {
    let margin = canvas.sheet.margin;
    canvas.top += 34.0;
    canvas.text((margin, canvas.top), Anchor::Start, TITLE, title);
    canvas.top += 19.0;
    canvas.text((margin, canvas.top), Anchor::Start, LABEL, kind);
}

/// All parameters.
pub fn load(document: &Document) -> String {
    Load(&document.parameters).all()
}

#[cfg(test)]
mod tests;
