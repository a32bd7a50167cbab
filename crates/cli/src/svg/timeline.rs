//! What happened on which CPU and when: a small panel a variant, one below another, on one axis of time.

use bursar_lab::document::Document;
use bursar_lab::machine_info::MachineKind;

use super::axis::Mark;
use super::canvas::{Anchor, Canvas};
use super::style::{
    BODY, EDGE, GRID, LEGEND_LEFT, MARGIN, PLOT_LEFT, PLOT_RIGHT, SMALL, SUBTITLE, stroke,
};
use crate::timeline;
use crate::units::{nanoseconds, thousands};
use crate::view::{self, Load, shown};

const HEIGHT: f64 = 74.0;
const GAP: f64 = 12.0;
/// Marks of time, with both ends.
const MARKS: u64 = 11;

/// Draws the panels; `false` if the document has no timeline.
pub fn draw(canvas: &mut Canvas, document: &Document) -> bool {
    let Some(moments) = view::of(document).timeline else {
        return false;
    };
    let variants = document.variants.iter().enumerate();
    let rows: Vec<_> = variants
        .filter_map(|(place, variant)| {
            Some((place, variant, timeline::of(variant, moments.metric)?))
        })
        .collect();
    if rows
        .iter()
        .all(|(.., timeline)| timeline.points().is_empty())
    {
        return false;
    }
    let cpus = timeline::cpus(document, rows.iter().map(|(.., timeline)| *timeline));
    let span_us = (moments.span_us)(Load(&document.parameters)).max(1);
    canvas.top += 34.0;
    let above = canvas.top - 12.0;
    canvas.text((PLOT_LEFT, above), Anchor::Start, SUBTITLE, moments.title);
    let marks: Vec<Mark> = (0..MARKS)
        .map(|mark| Mark {
            place: mark as f64 / (MARKS - 1) as f64,
            label: nanoseconds_from_zero(span_us * 1_000 * mark / (MARKS - 1)),
        })
        .collect();
    let across = |share: f64| PLOT_LEFT + share * (PLOT_RIGHT - PLOT_LEFT);
    let begin = canvas.top;
    for (place, variant, timeline) in &rows {
        let (top, bottom) = (canvas.top, canvas.top + HEIGHT);
        for mark in &marks {
            let x = across(mark.place);
            canvas.line((x, top), (x, bottom), GRID, 1.0);
        }
        canvas.frame((PLOT_LEFT, top), (PLOT_RIGHT - PLOT_LEFT, HEIGHT), EDGE);
        for (y, cpu) in [(bottom, 0), (top + 8.0, cpus.saturating_sub(1))] {
            let at = (PLOT_LEFT - 6.0, y);
            canvas.text(at, Anchor::End, SMALL, &thousands(cpu as u64));
        }
        let points = timeline.points().iter().filter(|(_, us)| *us <= span_us);
        let points = points.map(|&(cpu, us)| {
            let up = (f64::from(cpu) + 0.5) / cpus as f64;
            (across(us as f64 / span_us as f64), bottom - up * HEIGHT)
        });
        canvas.specks(points, stroke(*place).color);
        canvas.text(
            (LEGEND_LEFT, top + 14.0),
            Anchor::Start,
            BODY,
            &variant.name,
        );
        for (line, column) in moments.beside.iter().enumerate() {
            let y = top + 30.0 + 14.0 * line as f64;
            let said = format!(
                "{} {}",
                column.title,
                shown(variant, column.metric, column.of)
            );
            canvas.text((LEGEND_LEFT, y), Anchor::Start, SMALL, &said);
        }
        canvas.top = bottom + GAP;
    }
    let end = canvas.top - GAP;
    canvas.upright((MARGIN, f64::midpoint(begin, end)), SMALL, "CPU");
    for mark in &marks {
        let at = (across(mark.place), end + 16.0);
        canvas.text(at, Anchor::Middle, SMALL, &mark.label);
    }
    let said = match document.machine.kind() {
        MachineKind::Host => "time",
        MachineKind::Sim => "virtual time (simulated)",
    };
    let middle = f64::midpoint(PLOT_LEFT, PLOT_RIGHT);
    canvas.text((middle, end + 34.0), Anchor::Middle, SMALL, said);
    canvas.top = end + 50.0;
    true
}

fn nanoseconds_from_zero(ns: u64) -> String {
    match ns {
        0 => "0".to_owned(),
        ns => nanoseconds(ns as f64),
    }
}
