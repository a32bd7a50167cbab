//! The share of a metric's values that lie at or below a bound: a line a variant, from all values to the largest.
//!
//! The scale of shares shows the tail (90, 99, 99.9 %), which readers of latencies look for. A line ends at its largest
//! value, so lines of more values end higher. Values of 0 are not on it: `bars.rs` counts them. Published shares stand beside
//! the lines as diamonds.

use bursar_experiments::document::Document;
use bursar_experiments::measure::{Distribution, Unit};
use bursar_experiments::metrics::{Better, MetricInfo, named};
use bursar_experiments::verdict::Rule;

use super::axis::{TailAxis, ValueAxis};
use super::bars;
use super::bars::above_zero;
use super::cast::Part;
use super::figure::{Drawing, Figure, of_figures};
use super::lines::{Line, Lines, Published, Shape};
use crate::view::{self, distribution, distribution_of, one_value};

/// A distribution that a document has.
#[derive(Clone, Copy)]
struct Subject<'a> {
    metric: &'a str,
    title: &'a str,
    /// Name of the axis of shares.
    share_of: &'a str,
}

/// Figures of each distribution of the document's view with a value above 0, or of all distributions if there are none.
pub fn figures<'a>(document: &'a Document, parts: &[Part<'a>]) -> Vec<Figure<'a>> {
    let subject = |it: &'static MetricInfo| {
        let (title, share_of) = it.line?;
        let metric = it.name;
        Some(Subject {
            metric,
            title,
            share_of,
        })
    };
    let own = view::of(document).metrics().iter().filter_map(subject);
    let own: Vec<_> = own.flat_map(|it| of_subject(document, parts, it)).collect();
    if !own.is_empty() {
        return own;
    }
    let mut names: Vec<&str> = Vec::new();
    for (name, metric) in document.variants.iter().flat_map(|it| it.metrics.iter()) {
        if distribution_of(metric).is_some() && !names.contains(&name) {
            names.push(name);
        }
    }
    let all = names.into_iter().flat_map(|name| {
        let subject = Subject {
            metric: name,
            title: name,
            share_of: "share of values",
        };
        of_subject(document, parts, subject)
    });
    all.collect()
}

/// The shares of an event, if the metric has one, and the values.
fn of_subject<'a>(
    document: &'a Document,
    parts: &[Part<'a>],
    subject: Subject<'a>,
) -> Vec<Figure<'a>> {
    let event = named(subject.metric).and_then(|info| info.event);
    let how_often = event.and_then(|event| {
        Some(Figure {
            title: event.how_often.to_owned(),
            is_answer: event.is_answer,
            reading: "How to read: a full bar is 100 %.".to_owned(),
            drawing: Drawing::Bars(bars::bars(parts, subject.metric, event)?),
        })
    });
    let how_much = lines(document, parts, subject).map(|lines| Figure {
        title: event
            .map_or(subject.title, |event| event.how_much)
            .to_owned(),
        is_answer: false,
        reading: reading(subject),
        drawing: Drawing::Lines(lines),
    });
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

fn lines<'a>(document: &Document, parts: &[Part<'a>], subject: Subject<'a>) -> Option<Lines<'a>> {
    let all = parts.iter();
    let all = all.filter_map(|part| Some((*part, distribution(part.result, subject.metric)?)));
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
    let values = all.clone().flat_map(|(_, it)| it.values());
    let tenths = all.clone().filter_map(|(_, it)| quantile(it, 0.1));
    let values: Vec<f64> = values.map(|(value, _)| value as f64).chain(ends).collect();
    let across = ValueAxis::of(&values, tenths.fold(f64::INFINITY, f64::min))?;
    let up = TailAxis::of(all.clone().map(|(_, it)| above_zero(it)).max()?);
    let unit = all.clone().next()?.1.unit();
    let line = |(part, distribution): (Part<'a>, &Distribution)| Line {
        part,
        figures: summary(distribution, unit),
        points: points(distribution, across, up),
        published: published(document, part, ranges, across, up),
    };
    let kind = document.machine.kind();
    Some(Lines {
        across: format!(
            "{} at most{}",
            view::metric_title(subject.metric),
            of_figures(kind, unit)
        ),
        up: subject.share_of.to_owned(),
        across_marks: across.marks(unit),
        up_marks: up.marks(),
        shape: Shape::Steps,
        lines: all.filter(|(_, it)| above_zero(it) > 0).map(line).collect(),
    })
}

/// Figures of the values that the line shows.
fn summary(distribution: &Distribution, unit: Unit) -> String {
    let all = distribution.summary();
    let [p50, p99] = match above_zero(distribution) == all.samples {
        true => [all.p50 as f64, all.p99 as f64],
        false => [0.5, 0.99].map(|share| quantile(distribution, share).unwrap_or_default()),
    };
    format!("p50 {}, p99 {}", one_value(p50, unit), one_value(p99, unit))
}

/// The least value that `share` of the values above 0 do not exceed; `None` if there are none.
fn quantile(distribution: &Distribution, share: f64) -> Option<f64> {
    let rank = (share * above_zero(distribution) as f64).ceil();
    let mut below = 0;
    let mut values = distribution.values().filter(|(value, _)| *value > 0);
    let value = values.find(|(_, count)| {
        below += count;
        below as f64 >= rank
    });
    value.map(|(value, _)| value as f64)
}

/// The shares of the values above 0 that lie at or below each of them.
fn points(distribution: &Distribution, across: ValueAxis, up: TailAxis) -> Vec<(f64, f64)> {
    let samples = above_zero(distribution) as f64;
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

/// Published shares of a variant, as far as each share below the next end is known.
fn published(
    document: &Document,
    part: Part<'_>,
    ranges: &[MetricInfo],
    across: ValueAxis,
    up: TailAxis,
) -> Vec<Published> {
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
        Some(Published {
            across: across.place(end_ns(info)?),
            up: around.map(|by| up.place((share + by).clamp(0.0, 1.0))),
        })
    };
    let ranges = ranges.iter().filter(|info| info.range_ns.is_some());
    ranges.map_while(of_range).collect()
}

/// The end of a range of latencies; `None` if it is open.
fn end_ns(info: &MetricInfo) -> Option<f64> {
    let (_, end) = info.range_ns?;
    (end != u64::MAX).then_some(end as f64)
}
