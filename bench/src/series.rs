//! Samples of one run and what is computed from them.

use bursar_conditions::median;
use serde::{Deserialize, Serialize};

use crate::machine::Conditions;

/// The contender that all others are compared with: an add to a per-CPU word, written by hand.
pub const BARE: &str = "bare rseq add";
/// The library.
pub const BURSAR: &str = "bursar";

/// Samples of one contender in one scenario with some number of threads, one a round.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Series {
    /// Scenario, such as `hot`.
    pub scenario: String,
    /// Groups between the root and the charged one, that one included; 0 where there is no tree.
    pub depth: usize,
    /// Name of the contender.
    pub contender: String,
    /// Threads, each on a CPU of its own.
    pub threads: usize,
    /// Unit of the samples.
    pub unit: String,
    /// One a round, in the order of the rounds.
    pub samples: Vec<f64>,
}

/// Median and range of some samples.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Summary {
    pub median: f64,
    pub min: f64,
    pub max: f64,
}

impl Summary {
    /// Returns the statistics of samples; `None` without samples.
    pub fn of(samples: &[f64]) -> Option<Self> {
        Some(Self {
            median: median(samples),
            min: samples.iter().copied().min_by(f64::total_cmp)?,
            max: samples.iter().copied().max_by(f64::total_cmp)?,
        })
    }
}

/// One run of one benchmark: what is kept as JSON.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Run {
    /// Version of this format.
    pub schema: u32,
    /// Name of the benchmark.
    pub kind: String,
    /// The contender that the others are compared with.
    pub yardstick: String,
    /// Conditions of the run.
    pub conditions: Conditions,
    /// Measurements.
    pub series: Vec<Series>,
}

impl Run {
    /// The series of a contender.
    pub fn find(
        &self,
        scenario: &str,
        depth: usize,
        contender: &str,
        threads: usize,
    ) -> Option<&Series> {
        self.series.iter().find(|series| {
            series.scenario == scenario
                && series.depth == depth
                && series.contender == contender
                && series.threads == threads
        })
    }

    /// `above` divided by `below`, round by round: what hits both in a round does not show in their ratio.
    pub fn ratio(above: &Series, below: &Series) -> Option<Summary> {
        let pairs = above.samples.iter().zip(&below.samples);
        Summary::of(&pairs.map(|(a, b)| a / b).collect::<Vec<_>>())
    }

    /// The cost of `series` in units of the yardstick of the same scenario, depth and number of threads.
    pub fn ratio_to_yardstick(&self, series: &Series) -> Option<Summary> {
        let Series {
            scenario,
            depth,
            threads,
            ..
        } = series;
        let below = self.find(scenario, *depth, &self.yardstick, *threads)?;
        Self::ratio(series, below)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn series(contender: &str, samples: &[f64]) -> Series {
        Series {
            scenario: "hot".into(),
            depth: 1,
            contender: contender.into(),
            threads: 1,
            unit: "ns/op".into(),
            samples: samples.to_vec(),
        }
    }

    #[test]
    fn a_summary_has_median_and_range() {
        assert_eq!(Summary::of(&[]), None);
        let even = Summary::of(&[4.0, 1.0, 2.0, 3.0]).unwrap();
        assert_eq!((even.median, even.min, even.max), (2.5, 1.0, 4.0));
    }

    #[test]
    fn ratios_are_taken_within_a_round() {
        // Both slow down tenfold in the second round; their ratio does not change.
        let ratio = Run::ratio(&series(BURSAR, &[3.0, 30.0]), &series(BARE, &[2.0, 20.0]));
        let ratio = ratio.unwrap();
        assert_eq!((ratio.min, ratio.median, ratio.max), (1.5, 1.5, 1.5));
    }
}
