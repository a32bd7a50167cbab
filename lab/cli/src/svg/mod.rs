//! Pictures of results, as SVG for the page: no script, no font, no other file.
//!
//! There are three kinds:
//!
//! | picture | file |
//! |---|---|
//! | points with their range: how often something happened, and a figure against a parameter | `points.rs`, `sweep.rs` |
//! | a distribution: shares of a metric's values at or below a bound | `distribution.rs` |
//! | a time line: moments on CPUs | `timeline.rs` |
//!
//! | part | file |
//! |---|---|
//! | the pictures of a document, and the texts that the page shows around them | this one |
//! | names and lines of variants | `cast.rs` |
//! | axes; elements, frames and labels; colours, types and sizes | `axis.rs`, `canvas.rs`, `style.rs` |
//!
//! The same documents give the same bytes: nothing depends on a clock, a hash map or the terminal.

mod axis;
mod canvas;
mod cast;
mod distribution;
mod points;
mod style;
mod sweep;
mod timeline;

use bursar_experiments::document::Document;
use bursar_experiments::machine_info::{MachineInfo, MachineKind};
use bursar_experiments::measure::Unit;

pub use self::axis::time_unit;
pub use self::cast::{Part, parts};
pub use self::style::{DARK, MOST_LINES, Stroke};
pub use self::sweep::{figures as figures_of_sweep, sweeps};

/// One picture of a document, and the texts that the page shows around it.
pub struct Figure {
    pub title: String,
    /// Instructions for reading it.
    pub reading: String,
    /// Whether it answers the experiment's question.
    is_answer: bool,
    pub drawing: String,
    pub legend: Vec<Entry>,
}

/// An entry of a legend.
pub struct Entry {
    pub sign: Sign,
    pub name: String,
    /// Figures or words below the name.
    pub figures: String,
}

/// Sign of a thing in a plot.
#[derive(Clone, Copy, Debug)]
pub enum Sign {
    Line(Stroke),
    /// A diamond.
    Published(&'static str),
}

/// All pictures of a document.
pub fn figures(document: &Document) -> Vec<Figure> {
    let parts = parts(document);
    let moments = timeline::figure(document, &parts);
    let distributions = distribution::figures(document, &parts);
    let mut figures: Vec<_> = moments.into_iter().chain(distributions).collect();
    figures.sort_by_key(|figure| !figure.is_answer);
    figures
}

/// Label of all figures of a kind of machine.
pub fn kind(kind: MachineKind) -> &'static str {
    match kind {
        MachineKind::Host => "HOST (real threads, real time)",
        MachineKind::Sim => "SIMULATED (virtual time)",
    }
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

/// The time that figures are of, beside a quantity.
fn of_figures(document: &Document, unit: Unit) -> &'static str {
    match (document.machine.kind(), unit) {
        (MachineKind::Host, _) => "",
        (MachineKind::Sim, Unit::Count | Unit::Ratio) => " (simulated)",
        (MachineKind::Sim, _) => " (virtual time)",
    }
}

#[cfg(test)]
mod tests;
