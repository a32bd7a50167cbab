//! Means of ratios, and how sure they are.

use bursar_conditions::median;
use bursar_rig::random::Random;
use serde::Serialize;

/// Number of times that the pairs are drawn anew.
const RESAMPLES: usize = 10_000;

/// Pairs of one contender with another: the ratio of their times, one for each pair.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Ratio {
    /// Mean of the ratios.
    pub mean: f64,
    /// Interval that holds the mean with a probability of 95 %, by the percentiles of the means of resampled pairs (Efron, 1979).
    pub low: f64,
    /// The upper end.
    pub high: f64,
    /// Median of the ratios.
    pub median: f64,
    /// Number of pairs.
    pub pairs: usize,
}

impl Ratio {
    /// Returns the interval of ratios; `None` without ratios.
    pub fn of(ratios: &[f64], seed: u64) -> Option<Self> {
        if ratios.is_empty() {
            return None;
        }
        let mut random = Random::new(seed);
        let count = ratios.len();
        let mut draw = || ratios[random.below(count as u64) as usize];
        let mut means: Vec<f64> = (0..RESAMPLES)
            .map(|_| (0..count).map(|_| draw()).sum::<f64>() / count as f64)
            .collect();
        means.sort_by(f64::total_cmp);
        let at = |share: f64| means[((RESAMPLES - 1) as f64 * share).round() as usize];
        Some(Self {
            mean: ratios.iter().sum::<f64>() / count as f64,
            low: at(0.025),
            high: at(0.975),
            median: median(ratios),
            pairs: count,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_interval_holds_the_mean_and_narrows() {
        assert_eq!(Ratio::of(&[], 1), None);
        let few = Ratio::of(&[0.9, 1.0, 1.1, 1.2], 1).unwrap();
        assert!(few.low < few.mean && few.mean < few.high);
        assert!((few.mean - 1.05).abs() < 1e-12 && (few.median - 1.05).abs() < 1e-12);
        let many = Ratio::of(&[0.9, 1.0, 1.1, 1.2].repeat(16), 1).unwrap();
        // The standard error goes with the root of the number: a quarter of the width.
        let narrowed = (many.high - many.low) / (few.high - few.low);
        assert!((0.2..0.3).contains(&narrowed), "{narrowed}");
    }

    #[test]
    fn a_seed_decides_the_interval() {
        let ratios = [0.9, 1.0, 1.3];
        assert_eq!(Ratio::of(&ratios, 7), Ratio::of(&ratios, 7));
    }
}
