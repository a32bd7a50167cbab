//! The figures of a document as tables: one unit for all that is compared, and the best in bold.
//!
//! Only variants whose reads are right compete for the best: a fast wrong answer is no answer.

use bursar_experiments::document::{Document, VariantResult};
use bursar_experiments::measure::{Metric, Unit};
use bursar_experiments::metrics::memcg_flush::*;
use bursar_experiments::metrics::{Better, Of, better};
use minijinja::{Value, context};

use crate::svg::{Part, time_unit};
use crate::units::{percent, quantity, thousands};
use crate::view::{self, Column};

/// Metric that counts wrong answers.
const WRONG: &str = BROKEN_READS.name;

/// Columns of a distribution.
const FIGURES: [Of; 4] = [Of::P50, Of::P99, Of::Max, Of::Mean];

/// The figures that a reader looks for first, in the columns of the document's view: a row a variant; `None` if it has none.
pub fn key(document: &Document, parts: &[Part<'_>]) -> Option<Value> {
    let is_measured = |column: &Column| {
        let mut parts = parts.iter();
        parts.any(|part| part.result.number(column.metric, column.of).is_some())
    };
    let columns = view::of(document).columns().into_iter();
    let columns: Vec<Column> = columns.filter(is_measured).collect();
    if columns.is_empty() {
        return None;
    }
    // Neighbouring columns of one metric.
    let groups = columns.chunk_by(|one, next| one.metric == next.metric);
    let groups = groups.map(|columns| {
        context! { title => title(columns[0].metric), columns => columns.len() }
    });
    let compared = columns.iter().map(|it| compared(parts, it.metric, it.of));
    let compared: Vec<_> = compared.collect();
    let heads = columns.iter().zip(&compared).map(|(column, compared)| {
        context! { figure => column.of.name(), unit => compared.scale.name }
    });
    let cells = compared.iter().map(Compared::cells).collect();
    Some(context! {
        groups => groups.collect::<Vec<_>>(),
        columns => heads.collect::<Vec<_>>(),
        rows => rows(parts, cells),
        // Whether answers may be wrong, and only right ones compete.
        has_wrong => columns.iter().any(|column| column.metric == WRONG),
    })
}

/// All distributions, in the order in which the variants have them: a group of rows for each metric.
pub fn spreads(document: &Document, parts: &[Part<'_>]) -> Vec<Value> {
    let is_one = |metric: &Metric| matches!(metric, Metric::Distribution(_));
    let spread = |metric: String| {
        let of = FIGURES.map(|of| compared(parts, &metric, of));
        let values = of.iter().flat_map(|column| column.values.iter().flatten());
        let scale = Scale::of(of[0].scale.unit, values);
        let cells = of.map(|column| Compared { scale, ..column }.cells());
        let samples = parts.iter().map(|part| {
            let all = view::distribution(part.result, &metric);
            context! { text => all.map_or_else(|| "-".to_owned(), |all| thousands(all.samples())) }
        });
        let cells = cells.into_iter().chain([samples.collect()]).collect();
        context! { title => title(&metric), unit => scale.name, rows => rows(parts, cells) }
    };
    names(document, is_one).into_iter().map(spread).collect()
}

/// All that is no distribution, in the order in which the variants have it: a row for each metric.
pub fn singles(document: &Document, parts: &[Part<'_>]) -> Vec<Value> {
    let is_one = |metric: &Metric| !matches!(metric, Metric::Distribution(_) | Metric::Timeline(_));
    let single = |metric: String| {
        let compared = compared(parts, &metric, Of::Value);
        context! { title => title(&metric), unit => compared.scale.name, cells => compared.cells() }
    };
    names(document, is_one).into_iter().map(single).collect()
}

/// A row a variant, of columns of cells.
fn rows(parts: &[Part<'_>], columns: Vec<Vec<Value>>) -> Vec<Value> {
    let row = |(place, part): (usize, &Part<'_>)| {
        let (name, policy) = part.name();
        let cells = columns.iter().map(|cells| cells[place].clone());
        context! { name, policy, cells => cells.collect::<Vec<_>>() }
    };
    parts.iter().enumerate().map(row).collect()
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
    fn cells(&self) -> Vec<Value> {
        let cell = |(part, value): (&Part<'_>, &Option<f64>)| {
            context! {
                text => value.map_or_else(|| "-".to_owned(), |value| self.scale.show(value)),
                by_seed => self.by_seed(part.result),
                is_best => value.is_some() && *value == self.best && is_right(part.result),
                // A share of wrong answers.
                is_wrong => self.metric == WRONG && value.is_some_and(|value| value > 0.0),
            }
        };
        self.parts.iter().zip(&self.values).map(cell).collect()
    }

    /// The figure with each seed, from the least to the most; empty for one seed.
    fn by_seed(&self, variant: &VariantResult) -> String {
        match variant.range(self.metric) {
            Some((lo, hi)) if variant.ran_seeds.len() > 1 => {
                format!("{} to {}", self.scale.show(lo), self.scale.show(hi))
            }
            _ => String::new(),
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

    fn is_best(cell: &Value) -> bool {
        cell.get_attr("is_best").expect("a cell").is_true()
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
            cells.iter().map(is_best).collect()
        };
        assert_eq!(best(READ_LATENCY.name, Of::P50), [true, false, false]);
        assert_eq!(best(WRONG, Of::Value), [true, false, true]);
        assert_eq!(best("nothing", Of::Value), [false; 3]);
        let alone = document("memcg-flush", 8, alone);
        let parts = svg::parts(&alone);
        let cells = compared(&parts, READ_LATENCY.name, Of::P50).cells();
        assert!(!cells.iter().any(is_best));
    }
}
