//! A picture, and the texts that the page shows around it.

use bursar_experiments::document::Document;
use bursar_experiments::machine_info::{MachineInfo, MachineKind};
use bursar_experiments::measure::Unit;

use super::bars::Bars;
use super::canvas::Canvas;
use super::lines::{Entry, Lines};
use super::style::{EMBEDDED, EMBEDDED_BARS};
use super::timeline::Moments;

/// One picture of a document, and the texts around it.
pub struct Figure<'a> {
    pub title: String,
    /// Instructions for reading it.
    pub reading: String,
    /// Whether it answers the experiment's question.
    pub(super) is_answer: bool,
    pub(super) drawing: Drawing<'a>,
}

/// Kind of a picture.
pub(super) enum Drawing<'a> {
    Bars(Bars<'a>),
    Lines(Lines<'a>),
    Moments(Moments<'a>),
}

impl Figure<'_> {
    /// The picture for a page that shows title, reading and legend itself.
    pub fn embedded(&self) -> String {
        let mut canvas = Canvas::new(match self.is_narrow() {
            true => EMBEDDED_BARS,
            false => EMBEDDED,
        });
        self.drawing.draw(&mut canvas);
        canvas.finish(&self.title)
    }

    /// Whether it fits a telephone.
    pub fn is_narrow(&self) -> bool {
        matches!(self.drawing, Drawing::Bars(_))
    }

    /// The legend, which the page shows.
    pub fn legend(&self) -> Vec<Entry> {
        match &self.drawing {
            Drawing::Lines(lines) => lines.legend(),
            Drawing::Bars(_) | Drawing::Moments(_) => Vec::new(),
        }
    }
}

impl Drawing<'_> {
    fn draw(&self, canvas: &mut Canvas) {
        match self {
            Self::Bars(bars) => bars.draw(canvas),
            Self::Lines(lines) => lines.draw(canvas),
            Self::Moments(moments) => moments.draw(canvas),
        }
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
pub(super) fn of_figures(kind: MachineKind, unit: Unit) -> &'static str {
    match (kind, unit) {
        (MachineKind::Host, _) => "",
        (MachineKind::Sim, Unit::Count | Unit::Ratio) => " (simulated)",
        (MachineKind::Sim, _) => " (virtual time)",
    }
}
