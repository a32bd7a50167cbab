//! Moments on CPUs: a small panel a variant, one below another, on one axis of time.

use bursar_experiments::document::Document;
use bursar_experiments::machine_info::MachineKind;

use super::Figure;
use super::axis::Mark;
use super::canvas::{Anchor, Canvas, LINE, MARGIN, Panel, RIGHT, WIDTH, label_width, text_width};
use super::cast::Part;
use super::style::{NAME, SMALL};
use crate::timeline;
use crate::units::{nanoseconds, thousands};
use crate::view::{self, Load, shown};

const HEIGHT: f64 = 74.0;
/// Marks of time, with both ends.
const MARKS: u64 = 11;

/// The timeline of a document; `None` if it has none.
pub fn figure(document: &Document, parts: &[Part<'_>]) -> Option<Figure> {
    let moments = view::of(document).timeline?;
    let rows = parts.iter();
    let rows = rows.filter_map(|part| Some((part, timeline::of(part.result, moments.metric)?)));
    let rows: Vec<_> = rows.collect();
    if rows.iter().all(|(_, it)| it.points().is_empty()) {
        return None;
    }
    let cpus = timeline::cpus(document, rows.iter().map(|(_, it)| *it));
    let span_us = (moments.span_us)(Load(&document.parameters)).max(1);
    let across: Vec<Mark> = (0..MARKS)
        .map(|mark| Mark {
            place: mark as f64 / (MARKS - 1) as f64,
            label: match span_us * 1_000 * mark / (MARKS - 1) {
                0 => "0".to_owned(),
                ns => nanoseconds(ns as f64),
            },
        })
        .collect();
    let cpu = |place: f64, number: usize| Mark {
        place,
        label: format!("CPU {}", thousands(number as u64)),
    };
    let last = 1.0 - SMALL.size / HEIGHT;
    let up = [cpu(0.05, 0), cpu(last, cpus.saturating_sub(1))];
    let left = MARGIN + label_width(up.iter().map(|mark| &*mark.label), SMALL);
    let mut canvas = Canvas::new();
    let mut panel = Panel {
        left,
        top: 0.0,
        width: WIDTH - RIGHT - left,
        height: HEIGHT,
    };
    for (part, timeline) in rows {
        let beside = moments.beside.iter();
        let beside =
            beside.map(|it| format!("{} {}", it.title, shown(part.result, it.metric, it.of)));
        let beside = beside.collect::<Vec<_>>().join(", ");
        panel.top = canvas.top + LINE + 4.0;
        let name = part.label();
        let base = panel.top - 5.0;
        canvas.text((left, base), Anchor::Start, NAME, &name);
        let at = (left + text_width(&name, NAME) + 8.0, base);
        canvas.text(at, Anchor::Start, SMALL, &beside);
        panel.grid(&mut canvas, &across, &[]);
        panel.label_up(&mut canvas, &up);
        let points = timeline.points().iter();
        let points = points.filter(|(_, us)| *us <= span_us).map(|&(cpu, us)| {
            let up = (f64::from(cpu) + 0.5) / cpus as f64;
            panel.at(us as f64 / span_us as f64, up)
        });
        canvas.points(points, part.stroke.color, 2.4);
        canvas.top = panel.top + HEIGHT + 4.0;
    }
    let name = match document.machine.kind() {
        MachineKind::Host => "time",
        MachineKind::Sim => "virtual time (simulated)",
    };
    panel.label_across(&mut canvas, &across, name);
    Some(Figure {
        title: moments.title.to_owned(),
        reading: "How to read: each point is one CPU's upkeep. Points above one another are on the same tick and disturb each other."
            .to_owned(),
        is_answer: false,
        drawing: canvas.finish(moments.title),
        legend: Vec::new(),
    })
}
