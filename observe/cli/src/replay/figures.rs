//! Figures of one policy in all draws, and their change from the recorded policies.

use std::collections::BTreeMap;

use bursar_experiments::measure::Unit;
use bursar_replay::{Figures, Load, MEASURES, Measure, Part, Policies};
use bursar_term::units::{nanoseconds, percent, quantity};
use serde::Serialize;

/// Figures of all draws.
#[derive(Clone, Copy, Debug, Serialize)]
pub(super) struct Spread {
    pub(super) lo: f64,
    pub(super) median: f64,
    pub(super) hi: f64,
}

/// Figures of one policy.
#[derive(Debug, Serialize)]
pub(super) struct OfPolicy {
    pub(super) policy: &'static str,
    pub(super) summary: String,
    /// The part of the kernel that it changes; none for the recorded policies.
    pub(super) changes: Option<&'static str>,
    #[serde(skip)]
    pub(super) part: Option<Part>,
    /// Figures that the replay predicts: those that do not disagree with what was seen.
    pub(super) simulated: BTreeMap<&'static str, Change>,
}

/// A figure, and its change from the recorded policies.
#[derive(Clone, Copy, Debug, Serialize)]
pub(super) struct Change {
    #[serde(flatten)]
    pub(super) figure: Spread,
    /// Whether at least nine draws of ten change it in the same direction; absent for the recorded policies.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) is_clear: Option<bool>,
}

impl Spread {
    pub(super) fn of(mut values: Vec<f64>) -> Option<Self> {
        values.sort_by(f64::total_cmp);
        let (lo, hi) = (*values.first()?, *values.last()?);
        let middle = [(values.len() - 1) / 2, values.len() / 2];
        let [below, above] = middle.map(|at| values[at]);
        let median = f64::midpoint(below, above);
        Some(Self { lo, median, hi })
    }
}

impl OfPolicy {
    pub(super) fn new(
        load: &Load,
        policies: Policies,
        figures: &[Figures],
        of_stock: &[Figures],
        predicts: impl Fn(&Measure) -> bool,
    ) -> Self {
        let stock = load.stock().policies;
        let part = if policies.firing != stock.firing {
            Some(Part::Upkeep)
        } else if policies.release != stock.release || policies.piece_pages != stock.piece_pages {
            Some(Part::Pages)
        } else if policies.flush != stock.flush {
            Some(Part::Flushes)
        } else {
            None
        };
        let change = |measure: &Measure| {
            let figure = Spread::of(values(measure.name, figures))?;
            let pairs = figures
                .iter()
                .zip(of_stock)
                .filter_map(|(one, stock)| Some(one.get(measure.name)? - stock.get(measure.name)?));
            let is_clear = part.map(|_| is_clear(pairs));
            Some((measure.name, Change { figure, is_clear }))
        };
        Self {
            policy: policies.name,
            summary: policies.summary(stock),
            changes: part.map(|part| match part {
                Part::Upkeep => "upkeep",
                Part::Pages => "pages",
                Part::Flushes => "flushes",
            }),
            part,
            simulated: (MEASURES.iter())
                .filter(|measure| !load.sets(measure) && !load.lacks(measure))
                .filter(|measure| predicts(measure))
                .filter_map(change)
                .collect(),
        }
    }
}

pub(super) fn values(name: &str, figures: &[Figures]) -> Vec<f64> {
    figures
        .iter()
        .filter_map(|figures| figures.get(name).copied())
        .collect()
}

/// Whether at least nine of ten differences have the same sign.
fn is_clear(differences: impl Iterator<Item = f64>) -> bool {
    let (mut less, mut more, mut all) = (0, 0, 0);
    for difference in differences {
        less += usize::from(difference < 0.0);
        more += usize::from(difference > 0.0);
        all += 1;
    }
    all > 0 && less.max(more) * 10 >= all * 9
}

/// A figure in the unit of its measure.
pub(super) fn in_unit(value: f64, unit: Unit) -> String {
    match unit {
        Unit::Ns => nanoseconds(value),
        Unit::Ratio => percent(value),
        Unit::PerSecond => format!("{}/s", quantity(value)),
        _ => quantity(value),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_median_of_an_even_number_is_between_the_middle_ones() {
        let median = |values: &[f64]| Spread::of(values.to_vec()).map(|it| it.median);
        assert_eq!(median(&[]), None);
        assert_eq!(median(&[7.0]), Some(7.0));
        assert_eq!(median(&[9.0, 1.0, 2.0]), Some(2.0));
        assert_eq!(median(&[9.0, 1.0, 2.0, 4.0]), Some(3.0));
    }
}
