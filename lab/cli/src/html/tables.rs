//! The figures of a document as tables: one unit for all that is compared, and the best in bold.
//!
//! Only variants whose reads are right compete for the best: a fast wrong answer is no answer.

use bursar_experiments::document::{Document, VariantResult};
use bursar_experiments::measure::{Metric, Unit};
use bursar_experiments::metrics::memcg_flush::*;
use bursar_experiments::metrics::{Better, Of, better};
use serde::Serialize;

use crate::svg::{Part, time_unit};
use crate::units::{percent, quantity, thousands};
use crate::view::{self, Column};

/// Metric that counts wrong answers.
const WRONG: &str = BROKEN_READS.name;

/// The figures that a reader looks for first: a row a variant.
#[derive(Serialize)]
pub struct KeyTable {
    /// Neighbouring columns of one metric.
    groups: Vec<Group>,
    columns: Vec<Head>,
    rows: Vec<Row>,
    /// Whether answers may be wrong, and only right ones compete.
    has_wrong: bool,
}

#[derive(Serialize)]
struct Group {
    title: String,
    columns: usize,
}

#[derive(Serialize)]
struct Head {
    figure: &'static str,
    unit: &'static str,
}

/// A variant's row.
#[derive(Serialize)]
struct Row {
    name: String,
    policy: String,
    cells: Vec<Cell>,
}

/// A figure of a variant.
#[derive(Serialize)]
struct Cell {
    text: String,
    /// The figure with each seed, from the least to the most; empty for one seed.
    by_seed: String,
    is_best: bool,
    /// Whether it is a share of wrong answers.
    is_wrong: bool,
}

/// All distributions: a group of rows for each metric.
#[derive(Serialize)]
pub struct Spread {
    title: String,
    unit: &'static str,
    rows: Vec<Row>,
}

/// All other figures: a row for each metric.
#[derive(Serialize)]
pub struct Single {
    title: String,
    unit: &'static str,
    cells: Vec<Cell>,
}

/// Columns of [`Spread`].
const FIGURES: [Of; 4] = [Of::P50, Of::P99, Of::Max, Of::Mean];

/// The columns of the document's view; `None` if it has none.
pub fn key(document: &Document, parts: &[Part<'_>]) -> Option<KeyTable> {
    let view = view::of(document);
    let is_measured = |column: &Column| {
        let mut parts = parts.iter();
        parts.any(|part| part.result.number(column.metric, column.of).is_some())
    };
    let columns: Vec<Column> = view.columns().into_iter().filter(is_measured).collect();
    if columns.is_empty() {
        return None;
    }
    let groups = columns.chunk_by(|one, next| one.metric == next.metric);
    let mut rows: Vec<Row> = parts.iter().map(empty_row).collect();
    let mut heads = Vec::new();
    for column in &columns {
        let compared = compared(parts, column.metric, column.of);
        heads.push(Head {
            figure: column.of.name(),
            unit: compared.scale.name,
        });
        for (row, cell) in rows.iter_mut().zip(compared.cells()) {
            row.cells.push(cell);
        }
    }
    Some(KeyTable {
        groups: groups
            .map(|columns| Group {
                title: title(columns[0].metric),
                columns: columns.len(),
            })
            .collect(),
        has_wrong: columns.iter().any(|column| column.metric == WRONG),
        columns: heads,
        rows,
    })
}

/// All distributions, in the order in which the variants have them.
pub fn spreads(document: &Document, parts: &[Part<'_>]) -> Vec<Spread> {
    let is_one = |metric: &Metric| matches!(metric, Metric::Distribution(_));
    let spread = |metric: String| {
        let of = FIGURES.map(|of| compared(parts, &metric, of));
        let scale = Scale::of(
            of[0].scale.unit,
            of.iter().flat_map(|column| column.values.iter().flatten()),
        );
        let mut rows: Vec<Row> = parts.iter().map(empty_row).collect();
        for column in of {
            let cells = Compared { scale, ..column }.cells();
            for (row, cell) in rows.iter_mut().zip(cells) {
                row.cells.push(cell);
            }
        }
        for (row, part) in rows.iter_mut().zip(parts) {
            let all = view::distribution(part.result, &metric);
            row.cells.push(Cell {
                text: all.map_or_else(|| "-".to_owned(), |all| thousands(all.samples())),
                by_seed: String::new(),
                is_best: false,
                is_wrong: false,
            });
        }
        Spread {
            title: title(&metric),
            unit: scale.name,
            rows,
        }
    };
    names(document, is_one).into_iter().map(spread).collect()
}

/// All that is no distribution, in the order in which the variants have it.
pub fn singles(document: &Document, parts: &[Part<'_>]) -> Vec<Single> {
    let is_one = |metric: &Metric| !matches!(metric, Metric::Distribution(_) | Metric::Timeline(_));
    let single = |metric: String| {
        let compared = compared(parts, &metric, Of::Value);
        Single {
            title: title(&metric),
            unit: compared.scale.name,
            cells: compared.cells(),
        }
    };
    names(document, is_one).into_iter().map(single).collect()
}

/// A metric's name for people.
pub fn title(metric: &str) -> String {
    capitalised(&view::metric_title(metric))
}

/// With a capital at the beginning.
pub fn capitalised(text: &str) -> String {
    let mut rest = text.chars();
    match rest.next() {
        Some(first) => first.to_uppercase().chain(rest).collect(),
        None => String::new(),
    }
}

fn names(document: &Document, is_one: impl Fn(&Metric) -> bool) -> Vec<String> {
    let mut names: Vec<String> = Vec::new();
    for (name, metric) in document.variants.iter().flat_map(|it| it.metrics.iter()) {
        if is_one(metric) && !names.iter().any(|known| known == name) {
            names.push(name.to_owned());
        }
    }
    names
}

fn empty_row(part: &Part<'_>) -> Row {
    let (name, policy) = part.name();
    Row {
        name: name.to_owned(),
        policy: policy.to_owned(),
        cells: Vec::new(),
    }
}

/// One figure of all variants.
struct Compared<'a> {
    scale: Scale,
    values: Vec<Option<f64>>,
    best: Option<f64>,
    parts: &'a [Part<'a>],
    metric: &'a str,
}

fn compared<'a>(parts: &'a [Part<'a>], metric: &'a str, of: Of) -> Compared<'a> {
    let known: Vec<_> = parts
        .iter()
        .map(|part| part.result.number(metric, of))
        .collect();
    let unit = known.iter().flatten().next().map_or(Unit::Count, |it| it.1);
    let values: Vec<Option<f64>> = known.iter().map(|it| Some(it.as_ref()?.0)).collect();
    Compared {
        scale: Scale::of(unit, values.iter().flatten()),
        best: best(parts, metric, unit, &values),
        values,
        parts,
        metric,
    }
}

impl Compared<'_> {
    fn cells(&self) -> Vec<Cell> {
        let cell = |(part, value): (&Part<'_>, &Option<f64>)| Cell {
            text: value.map_or_else(|| "-".to_owned(), |value| self.scale.show(value)),
            by_seed: self.by_seed(part.result),
            is_best: value.is_some() && *value == self.best && is_right(part.result),
            is_wrong: self.metric == WRONG && value.is_some_and(|value| value > 0.0),
        };
        self.parts.iter().zip(&self.values).map(cell).collect()
    }

    fn by_seed(&self, variant: &VariantResult) -> String {
        let (seeds, lo, hi) = match variant.metrics.get(self.metric) {
            Some(Metric::Ratio(share)) => (share.seeds().count(), share.lo(), share.hi()),
            Some(Metric::Figure(figure)) => (figure.seeds().count(), figure.lo(), figure.hi()),
            _ => return String::new(),
        };
        match seeds {
            0 | 1 => String::new(),
            _ => format!("{} to {}", self.scale.show(lo), self.scale.show(hi)),
        }
    }
}

/// The best value of the variants whose answers are right; `None` where no value is better than another, or all are the same.
/// One that competes with none but wrong ones is the best only at being right.
fn best(parts: &[Part<'_>], metric: &str, unit: Unit, values: &[Option<f64>]) -> Option<f64> {
    let is_less = match better(metric, unit) {
        Better::Lower => true,
        Better::Higher => false,
        Better::Neither => return None,
    };
    let competes = |part: &Part<'_>| metric == WRONG || is_right(part.result);
    let rivals = parts.iter().zip(values).filter(|(part, _)| competes(part));
    let rivals: Vec<f64> = rivals.filter_map(|(_, value)| *value).collect();
    let is_one = rivals.iter().all(|value| Some(value) == rivals.first());
    let pick = if is_less { f64::min } else { f64::max };
    rivals.into_iter().reduce(pick).filter(|_| !is_one)
}

/// Whether no answer of a variant was found wrong.
fn is_right(variant: &VariantResult) -> bool {
    !matches!(variant.metrics.get(WRONG), Some(Metric::Ratio(wrong)) if wrong.value() > 0.0)
}

/// The unit in which figures are compared.
#[derive(Clone, Copy)]
struct Scale {
    unit: Unit,
    name: &'static str,
    divisor: f64,
}

impl Scale {
    /// The largest unit of which the least value is still one.
    fn of<'a>(unit: Unit, values: impl Iterator<Item = &'a f64>) -> Self {
        let values = values.map(|value| value.abs()).filter(|value| *value > 0.0);
        let least = values.reduce(f64::min).unwrap_or(0.0);
        let (name, divisor) = match unit {
            Unit::Ns => time_unit(least),
            Unit::Ratio => ("%", 1.0),
            Unit::PerSecond => ("/s", 1.0),
            Unit::MbitPerSecond => ("Mbit/s", 1.0),
            Unit::Count | Unit::Timeline => ("", 1.0),
        };
        Self {
            unit,
            name,
            divisor,
        }
    }

    fn show(&self, value: f64) -> String {
        let size = value.abs() / self.divisor;
        let shown = match self.unit {
            Unit::Ratio => percent(size).replace(" %", ""),
            Unit::Count if size.fract() == 0.0 => thousands(size as u64),
            _ if size == 0.0 => "0".to_owned(),
            _ if size < 0.01 => "< 0.01".to_owned(),
            _ => quantity(size),
        };
        match value < 0.0 {
            true => format!("-{shown}"),
            false => shown,
        }
    }
}

#[cfg(test)]
mod tests {
    use bursar_experiments::measure::Share;

    use super::*;
    use crate::samples::{document, many, variant};
    use crate::svg;

    #[test]
    fn figures_that_are_compared_have_one_unit() {
        let scale = Scale::of(Unit::Ns, [0.0, 2_700.0, 1.24e8].iter());
        assert_eq!(scale.name, "us");
        assert_eq!(
            [2_700.0, 1.24e8, 0.0].map(|ns| scale.show(ns)),
            ["2.70", "124,000", "0"]
        );
        assert_eq!(scale.show(-3_500.0), "-3.50");
        let scale = Scale::of(Unit::Count, [63.0].iter());
        assert_eq!(
            [63.0, 2_016.0, 0.5].map(|count| scale.show(count)),
            ["63", "2,016", "0.50"]
        );
        let scale = Scale::of(Unit::Ratio, [0.961].iter());
        assert_eq!((scale.name, scale.show(0.961)), ("%", "96.1".to_owned()));
    }

    #[test]
    fn a_fast_wrong_answer_is_not_the_best() {
        let with = |name: &str, ns: &[u64], wrong: u64| {
            let share = Metric::Ratio(Share::of(1, wrong, 10));
            variant(
                name,
                &[(READ_LATENCY.name, many(Unit::Ns, ns)), (WRONG, share)],
            )
        };
        let variants = vec![
            with("combining", &[5_000], 0),
            with("unified", &[1_000], 9),
            with("direct", &[9_000], 0),
        ];
        let alone = variants[..2].to_vec();
        let all = document("memcg-flush", 8, variants);
        let parts = svg::parts(&all);
        let best = |metric, of| -> Vec<bool> {
            let cells = compared(&parts, metric, of).cells();
            cells.iter().map(|cell| cell.is_best).collect()
        };
        assert_eq!(best(READ_LATENCY.name, Of::P50), [true, false, false]);
        assert_eq!(best(WRONG, Of::Value), [true, false, true]);
        assert_eq!(best("nothing", Of::Value), [false; 3]);
        let alone = document("memcg-flush", 8, alone);
        let parts = svg::parts(&alone);
        let cells = compared(&parts, READ_LATENCY.name, Of::P50).cells();
        assert!(cells.iter().all(|cell| !cell.is_best));
    }
}
