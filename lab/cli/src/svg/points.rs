//! Points with their range: a row for each variant, or for each variant and value of a parameter.
//!
//! The point is the figure of all seeds, and the line through it goes from the least seed to the most.

use bursar_experiments::document::{Document, VariantResult};
use bursar_experiments::measure::{Metric, Unit};
use bursar_experiments::metrics::Event;

use super::axis::Axis;
use super::canvas::{
    Anchor, Canvas, LINE, MARGIN, Panel, RIGHT, WIDTH, label_width, shortened, text_width,
};
use super::cast::Part;
use super::style::{BODY, NAME, TRACK};
use super::{Figure, of_figures};
use crate::units::{in_unit, percent};
use crate::view::distribution;

/// A row.
pub struct Row<'a> {
    pub part: Part<'a>,
    /// The value of the parameter, if there is one.
    pub at: String,
    pub value: f64,
    /// The figures of the least seed and of the most.
    pub range: (f64, f64),
}

/// Number of times that an event happened; `None` if it was not measured.
pub fn of_event(
    document: &Document,
    parts: &[Part<'_>],
    metric: &str,
    event: Event,
) -> Option<Figure> {
    let rows = parts.iter().filter_map(|part| {
        let (value, range) = share_of(part.result, metric, event)?;
        Some(Row {
            part: *part,
            at: String::new(),
            value,
            range,
        })
    });
    let rows: Vec<_> = rows.collect();
    (!rows.is_empty()).then(|| Figure {
        title: event.how_often.to_owned(),
        reading:
            "How to read: the right end is 100 %. A line goes from the least seed to the most."
                .to_owned(),
        is_answer: event.is_answer,
        drawing: draw(
            event.how_often,
            &rows,
            (Axis::Share, Unit::Ratio),
            &format!("share{}", of_figures(document, Unit::Ratio)),
        ),
        legend: Vec::new(),
    })
}

fn share_of(variant: &VariantResult, metric: &str, event: Event) -> Option<(f64, (f64, f64))> {
    if let Some(share @ Metric::Ratio(_)) = variant.metrics.get(event.share) {
        return share.value().zip(variant.range(event.share));
    }
    let all = distribution(variant, metric)?;
    let share = all.above(0) as f64 / all.samples() as f64;
    (all.samples() > 0).then_some((share, (share, share)))
}

const ROW: f64 = 20.0;
/// Width of a plot, at least.
const LEAST_PLOT: f64 = 120.0;

/// The rows on an axis of values of this unit. Rows with values of a parameter stand below the names of their variants.
pub fn draw(title: &str, rows: &[Row<'_>], (axis, unit): (Axis, Unit), name: &str) -> String {
    let mut canvas = Canvas::new();
    let shown = |value: f64| match unit {
        Unit::Ratio => percent(value),
        unit => in_unit(value, unit),
    };
    let has_values = rows.iter().any(|row| !row.at.is_empty());
    let look = |part: &Part<'_>| if part.is_reference() { NAME } else { BODY };
    let beside = match has_values {
        true => label_width(rows.iter().map(|row| &*row.at), BODY),
        false => rows
            .iter()
            .map(|row| label_width([&*row.part.label()].into_iter(), look(&row.part)))
            .fold(0.0, f64::max),
    };
    let figures: Vec<_> = rows.iter().map(|row| shown(row.value)).collect();
    let number = label_width(figures.iter().map(|it| &**it), BODY);
    let left = MARGIN + beside.min(WIDTH - MARGIN - number - LEAST_PLOT);
    let mut panel = Panel {
        left,
        top: 0.0,
        width: WIDTH - number.max(RIGHT) - 6.0 - left,
        height: ROW,
    };
    let mut variant = None;
    for (row, figure) in rows.iter().zip(figures) {
        let (label, look) = (row.part.label(), look(&row.part));
        if has_values && variant.replace(&row.part.result.name) != Some(&row.part.result.name) {
            let at = (MARGIN, canvas.top + LINE);
            let label = shortened(&label, look, WIDTH - 2.0 * MARGIN);
            canvas.text(at, Anchor::Start, look, &label);
            canvas.top += ROW;
        }
        panel.top = canvas.top;
        let (label, look) = match has_values {
            true => (&row.at, BODY),
            false => (&label, look),
        };
        let label = shortened(label, look, left - MARGIN - 6.0);
        let base = canvas.top + LINE;
        canvas.text((left - 6.0, base), Anchor::End, look, &label);
        let at = |value: f64| panel.at(axis.place(value), 0.5);
        canvas.line(panel.at(0.0, 0.5), panel.at(1.0, 0.5), TRACK, 6.0);
        let color = row.part.stroke.color;
        canvas.line(at(row.range.0), at(row.range.1), color, 2.0);
        canvas.points([at(row.value)].into_iter(), color, 8.0);
        let end = WIDTH - text_width(&figure, BODY);
        canvas.text((end, base), Anchor::Start, BODY, &figure);
        canvas.top += ROW;
    }
    panel.label_across(&mut canvas, &axis.marks(unit), name);
    canvas.finish(title)
}
