//! Moments on CPUs: a small panel a variant, one below another, on one axis of time.

use bursar_experiments::document::Document;
use bursar_experiments::machine_info::MachineKind;
use bursar_experiments::measure::Timeline;

use super::axis::Mark;
use super::canvas::{Anchor, Canvas, text_width};

use super::cast::Part;
use super::panel::{LINE, Panel, label_width};
use super::style::{NAME, SMALL};
use crate::timeline;
use crate::units::{nanoseconds, thousands};
use crate::view::{self, Load, shown};

const HEIGHT: f64 = 74.0;
/// Marks of time, with both ends.
const MARKS: u64 = 11;

/// Moments on CPUs.
pub struct Moments<'a> {
    rows: Vec<Row<'a>>,
    cpus: usize,
    span_us: u64,
    kind: MachineKind,
}

struct Row<'a> {
    part: Part<'a>,
    timeline: &'a Timeline,
    /// Figures above the panel.
    figures: String,
}

/// The timeline of a document; `None` if it has none.
pub fn moments<'a>(document: &'a Document, parts: &[Part<'a>]) -> Option<Moments<'a>> {
    let moments = view::of(document).timeline?;
    let row = |part: &Part<'a>| {
        let beside = moments.beside.iter();
        let beside =
            beside.map(|it| format!("{} {}", it.title, shown(part.result, it.metric, it.of)));
        Some(Row {
            part: *part,
            timeline: timeline::of(part.result, moments.metric)?,
            figures: beside.collect::<Vec<_>>().join(", "),
        })
    };
    let rows: Vec<_> = parts.iter().filter_map(row).collect();
    if rows.iter().all(|row| row.timeline.points().is_empty()) {
        return None;
    }
    Some(Moments {
        cpus: timeline::cpus(document, rows.iter().map(|row| row.timeline)),
        rows,
        span_us: (moments.span_us)(Load(&document.parameters)).max(1),
        kind: document.machine.kind(),
    })
}

impl Moments<'_> {
    /// Draws the panels, below what is there.
    pub fn draw(&self, canvas: &mut Canvas) {
        let across: Vec<Mark> = (0..MARKS)
            .map(|mark| Mark {
                place: mark as f64 / (MARKS - 1) as f64,
                label: nanoseconds_from_zero(self.span_us * 1_000 * mark / (MARKS - 1)),
            })
            .collect();
        let cpu = |number: usize| format!("CPU {}", thousands(number as u64));
        let last = Mark {
            place: 1.0 - SMALL.size / HEIGHT,
            label: cpu(self.cpus.saturating_sub(1)),
        };
        let first = Mark {
            place: 0.05,
            label: cpu(0),
        };
        let up = [first, last];
        let left = canvas.sheet.margin + label_width(&up);
        let half_a_label = text_width("500 ms", SMALL) / 2.0;
        let right = canvas.sheet.width - canvas.sheet.margin - half_a_label;
        let mut panel = Panel {
            left,
            top: canvas.top,
            width: right - left,
            height: HEIGHT,
        };
        for row in &self.rows {
            panel.top = canvas.top + LINE + 4.0;
            let name = row.part.label();
            let base = panel.top - 5.0;
            canvas.text((left, base), Anchor::Start, NAME, &name);
            let at = (left + text_width(&name, NAME) + 8.0, base);
            canvas.text(at, Anchor::Start, SMALL, &row.figures);
            panel.grid(canvas, &across, &[]);
            panel.label_up(canvas, &up);
            canvas.specks(self.points(row, panel), row.part.stroke.color);
            canvas.top = panel.top + HEIGHT + 4.0;
        }
        panel.label_across(canvas, &across, half_a_label);
        let said = match self.kind {
            MachineKind::Host => "time",
            MachineKind::Sim => "virtual time (simulated)",
        };
        let at = (panel.left + panel.width / 2.0, canvas.top + 2.0 * LINE);
        canvas.text(at, Anchor::Middle, SMALL, said);
        canvas.top += 2.0 * LINE + 8.0;
    }

    fn points<'b>(
        &'b self,
        row: &'b Row<'_>,
        panel: Panel,
    ) -> impl Iterator<Item = (f64, f64)> + 'b {
        let points = row.timeline.points().iter();
        let points = points.filter(|(_, us)| *us <= self.span_us);
        points.map(move |&(cpu, us)| {
            let up = (f64::from(cpu) + 0.5) / self.cpus as f64;
            panel.at(us as f64 / self.span_us as f64, up)
        })
    }
}

fn nanoseconds_from_zero(ns: u64) -> String {
    match ns {
        0 => "0".to_owned(),
        ns => nanoseconds(ns as f64),
    }
}
