//! How large a part of a metric's values is below what: a line a variant, from all of them to the slowest.
//!
//! The scale of parts shows the tail (90, 99, 99.9 %), which is what a reader of latencies looks for. A line ends where the
//! slowest value is, so lines of more values end higher. What was published stands beside it as diamonds.

use std::fmt::Write;

use bursar_lab::document::Document;
use bursar_lab::measure::{Distribution, Unit};
use bursar_lab::verdict::Rule;

use super::axis::{LogAxis, TailAxis};
use super::canvas::{Canvas, px};
use super::of_figures;
use super::panel::{Entry, Frame, Panel, Sign};
use super::style::stroke;
use crate::view::{self, Bucket, distribution, distribution_of, one_value};

/// A picture of a metric.
pub struct Plot<'a> {
    title: &'a str,
    metric: &'a str,
    share_of: &'a str,
    /// Published shares of it.
    buckets: &'static [Bucket],
    unit: Unit,
    across: LogAxis,
    up: TailAxis,
}

/// The pictures of a document: of each distribution of its view with a value that is not 0, or of all if it has none of them.
pub fn plots(document: &Document) -> Vec<Plot<'_>> {
    let lines = view::of(document).lines.iter();
    let plots: Vec<_> = lines
        .filter_map(|it| plot(document, it.metric, it.title, it.share_of))
        .collect();
    if !plots.is_empty() {
        return plots;
    }
    let mut names: Vec<&str> = Vec::new();
    for (name, metric) in document.variants.iter().flat_map(|it| it.metrics.iter()) {
        if distribution_of(metric).is_some() && !names.contains(&name) {
            names.push(name);
        }
    }
    let all = names
        .into_iter()
        .filter_map(|name| plot(document, name, name, "share"));
    all.collect()
}

fn plot<'a>(
    document: &Document,
    metric: &'a str,
    title: &'a str,
    share_of: &'a str,
) -> Option<Plot<'a>> {
    let all = document.variants.iter();
    let all = all.filter_map(|variant| distribution(variant, metric));
    let values = all.clone().flat_map(Distribution::values);
    let buckets = view::of(document).buckets;
    let buckets = buckets
        .filter(|it| it.of == metric)
        .map_or(&[][..], |it| it.all);
    let verdicts = document.verdicts.iter();
    let ends = verdicts.filter_map(|it| {
        let mut buckets = buckets.iter();
        buckets.find(|bucket| bucket.metric == it.metric)?.below_ns
    });
    let across = LogAxis::of(values.map(|(value, _)| value as f64).chain(ends))?;
    Some(Plot {
        title,
        metric,
        share_of,
        buckets,
        unit: all.clone().next()?.unit(),
        across,
        up: TailAxis::of(all.map(Distribution::samples).max()?),
    })
}

/// Draws the lines and the marks.
pub fn draw(canvas: &mut Canvas, document: &Document, plot: &Plot<'_>) {
    let of_plot = |place: usize| {
        let variant = &document.variants[place];
        let distribution = distribution(variant, plot.metric)?;
        (distribution.samples() > 0).then_some((place, variant.name.as_str(), distribution))
    };
    let rows: Vec<_> = (0..document.variants.len()).filter_map(of_plot).collect();
    let published = published(document, plot.buckets);
    let mut legend: Vec<Entry> = rows
        .iter()
        .map(|(place, name, distribution)| {
            let all = distribution.summary();
            Entry {
                sign: Sign::Line(stroke(*place)),
                name: (*name).to_owned(),
                figures: format!(
                    "p50 {}, p99 {}",
                    one_value(all.p50 as f64, plot.unit),
                    one_value(all.p99 as f64, plot.unit)
                ),
            }
        })
        .collect();
    legend.extend(published.iter().map(|row| Entry {
        sign: Sign::Published(row.color),
        name: "PUBLISHED".to_owned(),
        figures: format!("of {}, with tolerance", row.variant),
    }));
    let kind = document.machine.kind();
    let frame = Frame {
        title: plot.title,
        across: &format!("{} at most{}", plot.metric, of_figures(kind, plot.unit)),
        up: plot.share_of,
        across_marks: plot.across.marks(plot.unit),
        up_marks: plot.up.marks(),
        legend,
    };
    let panel = Panel::draw(canvas, &frame);
    for (place, _, distribution) in rows {
        let (path, end) = line(panel, plot, distribution);
        canvas.path(&path, stroke(place));
        canvas.dot(end, stroke(place).color);
    }
    for row in published {
        for (below_ns, [lo, share, hi]) in row.shares {
            let [lo, at, hi] = [lo, share, hi]
                .map(|share| panel.at(plot.across.place(below_ns), plot.up.place(share)));
            canvas.line(lo, hi, row.color, 1.5);
            canvas.diamond(at, row.color);
        }
    }
}

/// Steps from value to value, and where they end. Steps that a screen cannot show are left out.
fn line(panel: Panel, plot: &Plot<'_>, distribution: &Distribution) -> (String, (f64, f64)) {
    const STEP: f64 = 0.4;
    let samples = distribution.samples() as f64;
    let last = 1.0 - 0.5 / samples;
    let mut below = 0.0;
    let mut at = None;
    let mut path = String::new();
    for (value, count) in distribution.values() {
        below += count as f64;
        let share = (below / samples).min(last);
        let (x, y) = panel.at(plot.across.place(value as f64), plot.up.place(share));
        let (from_x, from_y) = *at.get_or_insert_with(|| {
            let start = panel.at(plot.across.place(value as f64), 0.0);
            let _ = write!(path, "M{} {}", px(start.0), px(start.1));
            start
        });
        if (x - from_x).abs() >= STEP || (y - from_y).abs() >= STEP || below >= samples {
            let _ = write!(path, "H{}V{}", px(x), px(y));
            at = Some((x, y));
        }
    }
    (path, at.unwrap_or_default())
}

/// What was published for one variant: shares below an end, with what they may be at least and at most.
struct Published<'a> {
    variant: &'a str,
    color: &'static str,
    shares: Vec<(f64, [f64; 3])>,
}

fn published<'a>(document: &'a Document, buckets: &[Bucket]) -> Vec<Published<'a>> {
    let variants = document.variants.iter().enumerate();
    let rows = variants.map(|(place, variant)| {
        let mut share = 0.0;
        let of_bucket = |bucket: &Bucket| {
            let mut verdicts = document.verdicts.iter();
            let verdict =
                verdicts.find(|it| it.variant == variant.name && it.metric == bucket.metric)?;
            let Rule::Share { tolerance } = verdict.rule else {
                return None;
            };
            share += verdict.published;
            // Rounded shares may add up to a little more than the whole.
            let around = [-tolerance, 0.0, tolerance];
            Some((
                bucket.below_ns?,
                around.map(|by| (share + by).clamp(0.0, 1.0)),
            ))
        };
        Published {
            variant: &variant.name,
            color: stroke(place).color,
            // Without a share in between nobody knows what is below the next end.
            shares: buckets.iter().map_while(of_bucket).collect(),
        }
    });
    rows.filter(|row| !row.shares.is_empty()).collect()
}
