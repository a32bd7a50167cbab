//! Pictures of results, as SVG for the page: no script, no font, no other file.
//!
//! | part | file |
//! |---|---|
//! | the pictures of a document | this one |
//! | a picture, and the texts that the page shows around it | `figure.rs` |
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

use bursar_experiments::document::Document;
use bursar_experiments::machine_info::MachineKind;

pub use self::axis::time_unit;
pub use self::cast::{Part, parts};
use self::figure::Drawing;
pub use self::figure::{Figure, origin};
pub use self::lines::{Entry, Sign};
pub use self::style::{DARK, MOST_LINES};
pub use self::sweep::{Sweep, figures as figures_of_sweep, sweeps};
use crate::view;

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

#[cfg(test)]
mod tests;
