//! Draws of unknown values: uncertain constants and parameters, each set as likely as any other.
//!
//! A constant of the cost model has the range that its sources span; a parameter of the load has a range in the
//! experiment's file. [`draw`] takes a value from each range: evenly by the logarithm, or evenly where the range begins
//! at 0. Calibration runs the calibration rows with many draws, and keeps the draws that pass all of them
//! ([`accepts`]). The kept draws are in the repository beside the experiment's file. Seed `s` runs with draw `s - 1`,
//! and starts over after the last. So the spread of a prediction over seeds is the spread over models that the
//! calibration rows cannot distinguish.

use std::collections::BTreeMap;

use crate::document::VariantResult;
use crate::experiment::{Draw, Experiment, PublishedFigure, PublishedRow, Values};
use crate::random::Random;
use crate::verdict::{Row, Rule, by_seed};

/// A range to draw from, both ends included.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Range {
    /// Name of the parameter or constant.
    pub name: String,
    /// Least value.
    pub lo: u64,
    /// Greatest value.
    pub hi: u64,
}

/// Returns the ranges of an experiment's uncertain parameters.
///
/// # Errors
/// The name of the first parameter whose range is not a pair of whole numbers.
pub fn ranges(experiment: &Experiment) -> Result<Vec<Range>, String> {
    let range = |(name, ends): (&String, &toml::Value)| {
        let end = |at: usize| u64::try_from(ends.get(at)?.as_integer()?).ok();
        match (end(0), end(1)) {
            (Some(lo), Some(hi)) if lo <= hi => Ok(Range {
                name: name.clone(),
                lo,
                hi,
            }),
            _ => Err(format!("`{name}` of [uncertain] is not [LEAST, MOST]")),
        }
    };
    experiment.uncertain.iter().map(range).collect()
}

/// Returns the `number`-th draw of a seed.
pub fn draw(seed: u64, number: u64, parameters: &[Range], costs: &[Range]) -> Draw {
    let mut random = Random::fork(seed, number);
    let mut values = |ranges: &[Range]| -> Values {
        let value = |range: &Range| (range.name.clone(), within(&mut random, range.lo, range.hi));
        ranges.iter().map(value).collect()
    };
    Draw {
        number,
        measured: BTreeMap::new(),
        parameters: values(parameters),
        costs: values(costs),
    }
}

fn within(random: &mut Random, lo: u64, hi: u64) -> u64 {
    /// Steps between the ends of a range: finer than any range needs.
    const STEPS: u64 = 1 << 32;
    let part = random.below(STEPS) as f64 / (STEPS - 1) as f64;
    let (least, most) = (lo as f64, hi as f64);
    let value = if lo == 0 {
        most * part
    } else {
        least * (most / least).powf(part)
    };
    (value.round() as u64).clamp(lo, hi)
}

/// Returns the rows that a draw must pass.
pub fn calibration_rows(experiment: &Experiment) -> Vec<&PublishedRow> {
    let rows = experiment.published.iter();
    rows.filter(|row| row.row == Row::Calibration).collect()
}

/// Returns whether a run of a row's load and variant gave the published figures, and the measured figures by metric.
///
/// # Errors
/// The figure of the row that is neither a share nor a figure, or was not measured.
pub fn accepts(
    row: &PublishedRow,
    result: &VariantResult,
) -> Result<(bool, BTreeMap<String, f64>), String> {
    let mut measured = BTreeMap::new();
    let mut passes = true;
    for PublishedFigure {
        metric,
        published,
        rule,
    } in &row.figures
    {
        let tolerance = match rule {
            Rule::Share { tolerance } => *tolerance,
            Rule::Figure { tolerance, .. } => tolerance * published,
            _ => {
                return Err(format!(
                    "`{metric}`: only shares and figures can be calibrated on"
                ));
            }
        };
        let values = result.metrics.get(metric).and_then(by_seed);
        let value = match values.as_deref() {
            Some(&[(_, value)]) => value,
            // A share of nothing fits nothing.
            Some([]) => f64::INFINITY,
            _ => return Err(format!("`{metric}` of `{}` was not measured", row.variant)),
        };
        passes &= (value - published).abs() <= tolerance;
        measured.insert(format!("{}.{metric}", row.load), value);
    }
    Ok((passes, measured))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::document::Metrics;
    use crate::experiment::Draws;
    use crate::measure::{Figure, Metric, Unit};

    fn range(name: &str, lo: u64, hi: u64) -> Range {
        Range {
            name: name.to_owned(),
            lo,
            hi,
        }
    }

    #[test]
    fn draws_stay_in_their_ranges_and_fill_them() {
        let costs = [range("a", 10, 1_000), range("b", 0, 100), range("c", 7, 7)];
        let draws: Vec<Draw> = (0..2_000)
            .map(|number| draw(1, number, &[], &costs))
            .collect();
        let values =
            |name: &str| -> Vec<u64> { draws.iter().map(|draw| draw.costs[name]).collect() };
        let below = |values: &[u64], bound: u64| {
            values.iter().filter(|value| **value < bound).count() as f64 / 2_000.0
        };
        let a = values("a");
        assert!(a.iter().all(|value| (10..=1_000).contains(value)));
        assert!(
            (below(&a, 100) - 0.5).abs() < 0.05,
            "evenly by the logarithm"
        );
        assert!(
            (below(&values("b"), 50) - 0.5).abs() < 0.05,
            "evenly from 0"
        );
        assert!(values("c").iter().all(|value| *value == 7));
    }

    #[test]
    fn a_draw_depends_on_its_seed_and_number_alone() {
        let ranges = [range("a", 1, 1 << 40)];
        assert_eq!(draw(1, 5, &ranges, &ranges), draw(1, 5, &ranges, &ranges));
        assert_ne!(
            draw(1, 5, &ranges, &[]).parameters,
            draw(1, 6, &ranges, &[]).parameters
        );
        assert_ne!(
            draw(1, 5, &ranges, &[]).parameters,
            draw(2, 5, &ranges, &[]).parameters
        );
    }

    #[test]
    fn seeds_go_round_the_draws() {
        let accepted = (0..3).map(|number| draw(1, number, &[], &[])).collect();
        let draws = Draws {
            accepted,
            ..Draws::default()
        };
        let number = |seed| draws.of_seed(seed).map(|draw| draw.number);
        assert_eq!(
            [1, 2, 3, 4].map(number),
            [Some(0), Some(1), Some(2), Some(0)]
        );
        assert_eq!([0, 1, 2].map(number), [Some(2), Some(0), Some(1)]);
        assert_eq!(Draws::default().of_seed(1), None);
    }

    #[test]
    fn a_draw_passes_within_every_tolerance() {
        let experiments: Vec<_> = crate::names()
            .map(|name| crate::experiment_named(name).expect("the file"))
            .collect();
        for row in experiments.iter().flat_map(calibration_rows) {
            let result = |away: f64| {
                let mut metrics = Metrics::default();
                for figure in &row.figures {
                    let tolerance = match figure.rule {
                        Rule::Share { tolerance } => tolerance,
                        Rule::Figure { tolerance, .. } => tolerance * figure.published,
                        _ => panic!("only shares and figures can be calibrated on"),
                    };
                    let value = figure.published + away * tolerance;
                    metrics.push(
                        &figure.metric,
                        Metric::Figure(Figure::of(Unit::Ratio, 1, value)),
                    );
                }
                VariantResult {
                    name: row.variant.clone(),
                    summary: String::new(),
                    ran_seeds: vec![1],
                    metrics,
                }
            };
            assert!(accepts(row, &result(0.9)).expect("measured").0);
            assert!(!accepts(row, &result(-1.1)).expect("measured").0);
        }
    }
}
