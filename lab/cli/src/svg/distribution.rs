//! The share of a metric's values that lie at or below a bound: a line a variant, from all values to the largest.
//!
//! The scale of shares shows the tail (90, 99, 99.9 %), which readers of latencies look for. A line ends at its largest
//! value, so lines of more values end higher. Values of 0 are not on it: a row of `points.rs` counts them. Published shares stand
//! beside the lines as diamonds. Where variants are many, all but Bursar's and the kernel's are grey.

use std::fmt::Write;

use bursar_experiments::document::Document;
use bursar_experiments::measure::{Distribution, Unit};
use bursar_experiments::metrics::{Better, MetricInfo, named};
use bursar_experiments::verdict::Rule;

use super::axis::{Axis, TailAxis};
use super::canvas::{Anchor, Canvas, LINE, MARGIN, Panel, RIGHT, WIDTH, label_width, px};
use super::cast::Part;
use super::style::{ONE_OF_MANY, SMALL};
use super::{Entry, Figure, Sign, of_figures, points};
use crate::view::{self, distribution, distribution_of, one_value};

const HEIGHT: f64 = 270.0;
/// Shorter steps are left out.
const STEP: f64 = 1.0;

/// A distribution that a document has.
#[derive(Clone, Copy)]
struct Subject<'a> {
    metric: &'a str,
    title: &'a str,
    /// Name of the axis of shares.
    share_of: &'a str,
}

/// Figures of each distribution of the document's view with a value above 0, or of all distributions if there are none.
pub fn figures(document: &Document, parts: &[Part<'_>]) -> Vec<Figure> {
    let own = view::of(document).metrics().iter().filter_map(|info| {
        let (title, share_of) = info.line?;
        Some((info.name, title, share_of))
    });
    let mut all: Vec<_> = document
        .variants
        .iter()
        .flat_map(|it| it.metrics.iter())
        .filter(|(_, metric)| distribution_of(metric).is_some())
        .map(|(name, _)| (name, name, "share of values"))
        .collect();
    all.sort();
    all.dedup();
    let of = |(metric, title, share_of)| {
        let subject = Subject {
            metric,
            title,
            share_of,
        };
        of_subject(document, parts, subject)
    };
    let own: Vec<_> = own.flat_map(of).collect();
    match own.is_empty() {
        true => all.into_iter().flat_map(of).collect(),
        false => own,
    }
}

/// The shares of an event, if the metric has one, and the values.
fn of_subject(document: &Document, parts: &[Part<'_>], subject: Subject<'_>) -> Vec<Figure> {
    let event = named(subject.metric).and_then(|info| info.event);
    let how_often =
        event.and_then(|event| points::of_event(document, parts, subject.metric, event));
    let title = event.map_or(subject.title, |event| event.how_much);
    let how_much = lines(document, parts, subject, title);
    how_often.into_iter().chain(how_much).collect()
}

/// Instructions for a reader who has never seen such a picture.
fn reading(subject: Subject<'_>) -> String {
    let things = subject.share_of;
    let things = things.strip_prefix("share of ").unwrap_or(things);
    let side = match named(subject.metric).map(|info| info.better) {
        Some(Better::Lower) => " Further left is better.",
        Some(Better::Higher) => " Further right is better.",
        _ => "",
    };
    format!(
        "How to read: where a line crosses 99 %, 99 of 100 {things} are at or left of it. Its dot is the largest value.{side}"
    )
}

fn lines(
    document: &Document,
    parts: &[Part<'_>],
    subject: Subject<'_>,
    title: &str,
) -> Option<Figure> {
    let all = parts.iter();
    let all = all.filter_map(|part| Some((part, distribution(part.result, subject.metric)?)));
    let view = view::of(document);
    let ranges = match view.ranges {
        Some((of, _)) if of.name == subject.metric => view.metrics(),
        _ => &[],
    };
    let verdicts = document.verdicts.iter();
    let ends = verdicts.filter_map(|it| {
        let mut ranges = ranges.iter();
        end_ns(ranges.find(|info| info.name == it.metric)?)
    });
    // The axis begins where a tenth of the values are below it, or the picture would be half empty.
    let tenths = all.clone().filter_map(|(_, it)| quantile(it, 0.1));
    let tenth = tenths.fold(f64::INFINITY, f64::min);
    let values = all.clone().flat_map(|(_, it)| it.values());
    let values = values.map(|(value, _)| value as f64).chain(ends);
    let across = Axis::log(values.filter(|value| *value >= tenth))?;
    let up = TailAxis::of(all.clone().map(|(_, it)| it.above(0)).max()?);
    let unit = all.clone().next()?.1.unit();

    let mut canvas = Canvas::new();
    let (across_marks, up_marks) = (across.marks(unit), up.marks());
    let left = MARGIN + label_width(up_marks.iter().map(|mark| &*mark.label), SMALL);
    let panel = Panel {
        left,
        top: LINE + 6.0,
        width: WIDTH - RIGHT - left,
        height: HEIGHT,
    };
    let at = (MARGIN, SMALL.size);
    canvas.text(at, Anchor::Start, SMALL, &format!("↑ {}", subject.share_of));
    panel.grid(&mut canvas, &across_marks, &up_marks);
    panel.label_up(&mut canvas, &up_marks);
    let mut legend = Vec::new();
    // Grey lines are below the others.
    let mut drawn: Vec<_> = all.filter(|(_, it)| it.above(0) > 0).collect();
    drawn.sort_by_key(|(part, _)| !part.is_one_of_many());
    for (part, distribution) in &drawn {
        let (path, end) = steps(panel, points_of(distribution, across, up))?;
        canvas.path(&path, part.stroke);
        canvas.points([end].into_iter(), part.stroke.color, 6.0);
    }
    for part in parts {
        let Some((_, distribution)) = drawn
            .iter()
            .find(|(it, _)| it.result.name == part.result.name)
        else {
            continue;
        };
        if !part.is_one_of_many() {
            legend.push(Entry {
                sign: Sign::Line(part.stroke),
                name: part.label(),
                figures: summary(distribution, unit),
            });
        }
    }
    if drawn.iter().any(|(part, _)| part.is_one_of_many()) {
        legend.push(Entry {
            sign: Sign::Line(ONE_OF_MANY),
            name: "each of the others".to_owned(),
            figures: String::new(),
        });
    }
    for part in parts {
        let color = part.stroke.color;
        let published = published(document, part, ranges, up);
        for (at, shares) in &published {
            let [lo, at, hi] = shares.map(|share| panel.at(across.place(*at), share));
            canvas.line(lo, hi, color, 1.5);
            canvas.diamond(at, color);
        }
        if !published.is_empty() {
            legend.push(Entry {
                sign: Sign::Published(color),
                name: "PUBLISHED".to_owned(),
                figures: format!("of {}, with tolerance", part.result.name),
            });
        }
    }
    let name = format!(
        "{} at most{}",
        view::metric_title(subject.metric),
        of_figures(document, unit)
    );
    panel.label_across(&mut canvas, &across_marks, &name);
    Some(Figure {
        title: title.to_owned(),
        reading: reading(subject),
        is_answer: false,
        drawing: canvas.finish(title),
        legend,
    })
}

/// Figures of the values that the line shows.
fn summary(distribution: &Distribution, unit: Unit) -> String {
    let all = distribution.summary();
    let [p50, p99] = match distribution.above(0) == all.samples {
        true => [all.p50 as f64, all.p99 as f64],
        false => [0.5, 0.99].map(|share| quantile(distribution, share).unwrap_or_default()),
    };
    format!("p50 {}, p99 {}", one_value(p50, unit), one_value(p99, unit))
}

/// The least value that `share` of the values above 0 do not exceed; `None` if there are none.
fn quantile(distribution: &Distribution, share: f64) -> Option<f64> {
    let rank = (share * distribution.above(0) as f64).ceil();
    let mut below = 0;
    let mut values = distribution.values().filter(|(value, _)| *value > 0);
    let value = values.find(|(_, count)| {
        below += count;
        below as f64 >= rank
    });
    value.map(|(value, _)| value as f64)
}

/// The shares of the values above 0 that lie at or below each of them.
fn points_of(distribution: &Distribution, across: Axis, up: TailAxis) -> Vec<(f64, f64)> {
    let samples = distribution.above(0) as f64;
    // The largest value is below the whole, or it would be out of sight.
    let last = 1.0 - 0.5 / samples;
    let mut below = 0.0;
    let values = distribution.values().filter(|(value, _)| *value > 0);
    let points = values.map(|(value, count)| {
        below += count as f64;
        let share = (below / samples).min(last);
        (across.place(value as f64), up.place(share))
    });
    points.collect()
}

/// The commands of a line of steps, and where it ends. Steps below a pixel are left out.
fn steps(panel: Panel, points: Vec<(f64, f64)>) -> Option<(String, (f64, f64))> {
    let last = points.len().checked_sub(1)?;
    let (first, bottom) = panel.at(points[0].0, 0.0);
    let mut path = format!("M{} {}", px(first), px(bottom));
    let mut at = (first, bottom);
    for (place, (across, up)) in points.into_iter().enumerate() {
        let (x, y) = panel.at(across, up);
        if (x - at.0).abs() >= STEP || (y - at.1).abs() >= STEP || place == last {
            let _ = write!(path, "H{}V{}", px(x), px(y));
            at = (x, y);
        }
    }
    Some((path, at))
}

/// Published shares of a variant as far as each share below the next end is known: the end, and the places of the share and of its
/// bounds, bottom to top.
fn published(
    document: &Document,
    part: &Part<'_>,
    ranges: &[MetricInfo],
    up: TailAxis,
) -> Vec<(f64, [f64; 3])> {
    let mut share = 0.0;
    let of_range = |info: &MetricInfo| {
        let mut verdicts = document.verdicts.iter();
        let verdict =
            verdicts.find(|it| it.variant == part.result.name && it.metric == info.name)?;
        let Rule::Share { tolerance } = verdict.rule else {
            return None;
        };
        share += verdict.published;
        // Rounded shares may add up to a little more than the whole.
        let around = [-tolerance, 0.0, tolerance];
        let places = around.map(|by| up.place((share + by).clamp(0.0, 1.0)));
        Some((end_ns(info)?, places))
    };
    let ranges = ranges.iter().filter(|info| info.range_ns.is_some());
    ranges.map_while(of_range).collect()
}

/// The end of a range of latencies; `None` if it is open.
fn end_ns(info: &MetricInfo) -> Option<f64> {
    let (_, end) = info.range_ns?;
    (end != u64::MAX).then_some(end as f64)
}
