//! What is measured: distributions, ratios and counts, merged over seeds.

use hdrhistogram::Histogram;
use serde::Serialize;

/// One measure, as it stands in a document.
#[derive(Clone, Debug, Serialize)]
#[serde(untagged)]
pub enum Metric {
    /// Many values.
    Distribution(Distribution),
    /// A share.
    Ratio {
        /// `ratio`.
        unit: &'static str,
        /// The share over all seeds.
        value: f64,
        /// The least over single seeds.
        lo: f64,
        /// The greatest over single seeds.
        hi: f64,
    },
    /// A number of events, added up over all seeds.
    Count {
        /// `count`.
        unit: &'static str,
        /// The number.
        value: u64,
    },
}

/// A summary of many values.
#[derive(Clone, Debug, Serialize)]
pub struct Distribution {
    /// The values' unit.
    pub unit: &'static str,
    /// How many.
    pub samples: u64,
    /// Arithmetic mean.
    pub mean: f64,
    /// Median.
    pub p50: u64,
    /// 90th percentile.
    pub p90: u64,
    /// 99th percentile.
    pub p99: u64,
    /// 99.9th percentile.
    pub p999: u64,
    /// The largest value.
    pub max: u64,
    /// How many values are below a power of two and not below the one before; powers without values are left out.
    pub histogram: Vec<Octave>,
}

/// One bar of a picture.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Octave {
    /// The power of two that the values are below; 1 for the value 0.
    pub below: u64,
    /// How many values.
    pub count: u64,
}

/// Values above this (an hour of nanoseconds) count as this.
const LARGEST: u64 = 3_600_000_000_000;

/// Collects values; three significant digits are kept.
#[derive(Clone, Debug)]
pub struct Samples {
    unit: &'static str,
    histogram: Histogram<u64>,
    octaves: [u64; 65],
}

impl Samples {
    /// No values yet.
    pub fn new(unit: &'static str) -> Self {
        Self {
            unit,
            histogram: Histogram::new_with_bounds(1, LARGEST, 3)
                .expect("a range that is supported"),
            octaves: [0; 65],
        }
    }

    /// Adds a value.
    pub fn record(&mut self, value: u64) {
        self.histogram.saturating_record(value);
        self.octaves[64 - value.leading_zeros() as usize] += 1;
    }

    /// Adds the values of another collection.
    pub fn merge(&mut self, other: &Self) {
        self.histogram
            .add(&other.histogram)
            .expect("histograms of one range");
        for (sum, count) in self.octaves.iter_mut().zip(other.octaves) {
            *sum += count;
        }
    }

    /// The summary.
    pub fn metric(&self) -> Metric {
        let quantile = |quantile| {
            self.histogram
                .value_at_quantile(quantile)
                .min(self.histogram.max())
        };
        let bar = |(bits, count): (usize, &u64)| Octave {
            below: 1_u64.checked_shl(bits as u32).unwrap_or(u64::MAX),
            count: *count,
        };
        Metric::Distribution(Distribution {
            unit: self.unit,
            samples: self.histogram.len(),
            mean: if self.histogram.is_empty() {
                0.0
            } else {
                self.histogram.mean()
            },
            p50: quantile(0.5),
            p90: quantile(0.9),
            p99: quantile(0.99),
            p999: quantile(0.999),
            max: self.histogram.max(),
            histogram: self
                .octaves
                .iter()
                .enumerate()
                .map(bar)
                .filter(|octave| octave.count > 0)
                .collect(),
        })
    }
}

/// A share of events, one entry a seed.
#[derive(Clone, Debug, Default)]
pub struct Share(Vec<(u64, u64)>);

impl Share {
    /// The share of one seed.
    pub fn of(part: u64, whole: u64) -> Self {
        Self(vec![(part, whole)])
    }

    /// Adds the shares of other seeds.
    pub fn merge(&mut self, other: &Self) {
        self.0.extend(&other.0);
    }

    /// The summary. The share of nothing is 0.
    pub fn metric(&self) -> Metric {
        let ratio = |(part, whole): (u64, u64)| {
            if whole == 0 {
                0.0
            } else {
                part as f64 / whole as f64
            }
        };
        let sum = self
            .0
            .iter()
            .fold((0, 0), |sum, seed| (sum.0 + seed.0, sum.1 + seed.1));
        let single = || self.0.iter().copied().map(ratio);
        Metric::Ratio {
            unit: "ratio",
            value: ratio(sum),
            lo: single().reduce(f64::min).unwrap_or(0.0),
            hi: single().reduce(f64::max).unwrap_or(0.0),
        }
    }
}

/// A number of events.
pub fn count(value: u64) -> Metric {
    Metric::Count {
        unit: "count",
        value,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_distribution_of_nothing_is_all_zero() {
        let Metric::Distribution(nothing) = Samples::new("ns").metric() else {
            panic!("samples give a distribution");
        };
        assert_eq!((nothing.samples, nothing.max, nothing.p999), (0, 0, 0));
        assert_eq!(nothing.mean, 0.0);
    }

    #[test]
    fn octaves_hold_every_value_once() {
        let mut samples = Samples::new("ns");
        for value in [0, 1, 2, 3, 1_000, u64::MAX] {
            samples.record(value);
        }
        let Metric::Distribution(metric) = samples.metric() else {
            panic!("samples give a distribution");
        };
        let bars: Vec<_> = metric
            .histogram
            .iter()
            .map(|bar| (bar.below, bar.count))
            .collect();
        assert_eq!(bars, [(1, 1), (2, 1), (4, 2), (1_024, 1), (u64::MAX, 1)]);
    }

    #[test]
    fn percentiles_are_within_three_digits_over_the_whole_range() {
        let mut samples = Samples::new("ns");
        (0..100).for_each(|_| samples.record(20));
        samples.record(123_456_789);
        samples.record(u64::MAX);
        let Metric::Distribution(metric) = samples.metric() else {
            panic!("samples give a distribution");
        };
        assert_eq!(metric.p50, 20);
        assert!(metric.p99.abs_diff(123_456_789) < 123_456);
        assert!(metric.max.abs_diff(LARGEST) < LARGEST / 1_000);
    }

    #[test]
    fn shares_keep_the_range_over_seeds() {
        let mut share = Share::of(1, 10);
        share.merge(&Share::of(3, 10));
        let Metric::Ratio { value, lo, hi, .. } = share.metric() else {
            panic!("a share gives a ratio");
        };
        assert_eq!((value, lo, hi), (0.2, 0.1, 0.3));
    }
}
