//! Many values of one quantity.

use std::collections::BTreeMap;

use hdrhistogram::Histogram;
use serde::ser::SerializeStruct;
use serde::{Serialize, Serializer};

use super::unit::Unit;
use crate::one_line::OneLine;

/// Greatest recorded value (an hour of nanoseconds); greater ones count as this.
const LARGEST: u64 = 3_600_000_000_000;

fn empty() -> Histogram<u64> {
    Histogram::new_with_bounds(1, LARGEST, 3).expect("a range that is supported")
}

/// Collects values, with three significant digits.
#[derive(Clone, Debug)]
pub struct Samples {
    unit: Unit,
    histogram: Histogram<u64>,
}

impl Samples {
    /// Makes an empty collection.
    pub fn new(unit: Unit) -> Self {
        Self {
            unit,
            histogram: empty(),
        }
    }

    /// Adds a value.
    pub fn record(&mut self, value: u64) {
        self.histogram.saturating_record(value.min(LARGEST));
    }

    /// Adds a value several times.
    pub fn record_many(&mut self, value: u64, count: u64) {
        self.histogram
            .saturating_record_n(value.min(LARGEST), count);
    }

    /// Returns the distribution of the collected values.
    pub fn distribution(&self) -> Distribution {
        Distribution::of_histogram(self.unit, &self.histogram)
    }
}

/// Number of values of each size.
#[derive(Clone, Debug, PartialEq)]
pub struct Distribution {
    unit: Unit,
    /// Least value of each bucket, and the number of values in it.
    buckets: BTreeMap<u64, u64>,
    /// Figures of each seed alone. The buckets of all seeds together do not show how much seeds differ.
    by_seed: BTreeMap<u64, SeedFigures>,
}

/// Figures of one seed.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct SeedFigures {
    /// Median.
    pub p50: u64,
    /// 99th percentile.
    pub p99: u64,
    /// Arithmetic mean.
    pub mean: f64,
}

/// A summary of many values.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Summary {
    /// Number of values.
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
}

impl Summary {
    /// Returns a number of the distribution; `None` for [`Of::Value`], and if there are no values.
    pub fn number(&self, of: Of) -> Option<f64> {
        if self.samples == 0 {
            return None;
        }
        Some(match of {
            Of::P50 => self.p50 as f64,
            Of::P99 => self.p99 as f64,
            Of::Max => self.max as f64,
            Of::Mean => self.mean,
            Of::Value => return None,
        })
    }
}

/// Number of a metric.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Of {
    /// Median of a distribution.
    P50,
    /// 99th percentile of a distribution.
    P99,
    /// Greatest value of a distribution.
    Max,
    /// Mean of a distribution.
    Mean,
    /// The only number, of a metric without distribution.
    Value,
}

impl Of {
    /// Returns the name; empty for the only number.
    pub fn name(self) -> &'static str {
        match self {
            Self::P50 => "p50",
            Self::P99 => "p99",
            Self::Max => "max",
            Self::Mean => "mean",
            Self::Value => "",
        }
    }
}

/// One bar of a picture.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Octave {
    /// Power of two that the values are below; 1 for the value 0.
    pub below: u64,
    /// Number of values.
    pub count: u64,
}

impl Distribution {
    /// Makes the distribution of values.
    pub fn of(unit: Unit, values: impl IntoIterator<Item = u64>) -> Self {
        let mut samples = Samples::new(unit);
        values.into_iter().for_each(|value| samples.record(value));
        samples.distribution()
    }

    /// Makes the distribution of values that a histogram has.
    pub fn of_histogram(unit: Unit, histogram: &Histogram<u64>) -> Self {
        let lowest = |value| histogram.lowest_equivalent(value);
        Self {
            unit,
            buckets: histogram
                .iter_recorded()
                .map(|bucket| (lowest(bucket.value_iterated_to()), bucket.count_at_value()))
                .collect(),
            by_seed: BTreeMap::new(),
        }
    }

    /// Makes a distribution from the fields of a document.
    ///
    /// # Errors
    /// The defect in a bucket.
    pub(super) fn read_back(
        unit: Unit,
        buckets: &[(u64, u64)],
        by_seed: &[(u64, u64, u64, f64)],
    ) -> Result<Self, String> {
        let mut total = 0_u64;
        for &(value, count) in buckets {
            let sum = total.checked_add(count);
            if value > LARGEST || count == 0 || sum.is_none() {
                return Err(format!(
                    "bucket [{value}, {count}] is none of this program's"
                ));
            }
            total = sum.unwrap_or(total);
        }
        let read: BTreeMap<u64, u64> = buckets.iter().copied().collect();
        if read.len() != buckets.len() {
            return Err("a value has two buckets".to_owned());
        }
        let figures = |&(seed, p50, p99, mean)| (seed, SeedFigures { p50, p99, mean });
        let of_seeds: BTreeMap<_, _> = by_seed.iter().map(figures).collect();
        if of_seeds.len() != by_seed.len() {
            return Err("a seed has figures twice".to_owned());
        }
        Ok(Self {
            unit,
            buckets: read,
            by_seed: of_seeds,
        })
    }

    /// Records that all values are of one seed. A seed without values has no figures.
    pub fn note_seed(&mut self, seed: u64) {
        let Summary {
            samples,
            p50,
            p99,
            mean,
            ..
        } = self.summary();
        let figures = (samples > 0).then_some((seed, SeedFigures { p50, p99, mean }));
        self.by_seed = figures.into_iter().collect();
    }

    /// Returns the figures of each seed that has values, in the order of seeds; empty if no seeds were recorded.
    pub fn by_seed(&self) -> impl Iterator<Item = (u64, SeedFigures)> {
        self.by_seed.iter().map(|(seed, figures)| (*seed, *figures))
    }

    /// Returns the values' unit.
    pub fn unit(&self) -> Unit {
        self.unit
    }

    /// Returns the number of values.
    pub fn samples(&self) -> u64 {
        self.buckets
            .values()
            .fold(0, |sum, count| sum.saturating_add(*count))
    }

    /// Returns the values in ascending order, and the number of each.
    pub fn values(&self) -> impl Iterator<Item = (u64, u64)> {
        self.buckets.iter().map(|(value, count)| (*value, *count))
    }

    /// Returns the number of values greater than a bound.
    pub fn above(&self, bound: u64) -> u64 {
        let above = self.values().filter(|(value, _)| *value > bound);
        above.map(|(_, count)| count).sum()
    }

    /// Adds the values of another distribution.
    pub fn merge(&mut self, other: &Self) {
        for (value, count) in &other.buckets {
            let sum = self.buckets.entry(*value).or_default();
            *sum = sum.saturating_add(*count);
        }
        self.by_seed.extend(&other.by_seed);
    }

    /// Returns the summary.
    pub fn summary(&self) -> Summary {
        let mut histogram = empty();
        for (value, count) in &self.buckets {
            histogram.saturating_record_n(*value, *count);
        }
        let quantile = |quantile| histogram.value_at_quantile(quantile).min(histogram.max());
        Summary {
            samples: histogram.len(),
            mean: histogram.mean(),
            p50: quantile(0.5),
            p90: quantile(0.9),
            p99: quantile(0.99),
            p999: quantile(0.999),
            max: histogram.max(),
        }
    }

    /// Returns the number of values below each power of two and not below the one before. Powers without values are
    /// left out.
    pub fn octaves(&self) -> Vec<Octave> {
        let mut octaves: Vec<Octave> = Vec::new();
        for (value, count) in &self.buckets {
            let bits = 64 - value.leading_zeros();
            let below = 1_u64.checked_shl(bits).unwrap_or(u64::MAX);
            match octaves.last_mut() {
                Some(octave) if octave.below == below => octave.count += count,
                _ => octaves.push(Octave {
                    below,
                    count: *count,
                }),
            }
        }
        octaves
    }
}

impl Serialize for Distribution {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let summary = self.summary();
        let buckets: Vec<_> = self.buckets.iter().collect();
        let mut fields = serializer.serialize_struct("Distribution", 10)?;
        fields.serialize_field("unit", &self.unit)?;
        fields.serialize_field("samples", &summary.samples)?;
        fields.serialize_field("mean", &summary.mean)?;
        fields.serialize_field("p50", &summary.p50)?;
        fields.serialize_field("p90", &summary.p90)?;
        fields.serialize_field("p99", &summary.p99)?;
        fields.serialize_field("p999", &summary.p999)?;
        fields.serialize_field("max", &summary.max)?;
        fields.serialize_field("histogram", &self.octaves())?;
        fields.serialize_field("buckets", &OneLine(buckets))?;
        let entry = |(seed, it): (u64, SeedFigures)| (seed, it.p50, it.p99, it.mean);
        let by_seed: Vec<_> = self.by_seed().map(entry).collect();
        if by_seed.is_empty() {
            fields.skip_field("figures_by_seed")?;
        } else {
            fields.serialize_field("figures_by_seed", &OneLine(by_seed))?;
        }
        fields.end()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn distribution(values: &[u64]) -> Distribution {
        Distribution::of(Unit::Ns, values.iter().copied())
    }

    #[test]
    fn a_distribution_of_nothing_is_all_zero() {
        let nothing = distribution(&[]).summary();
        assert_eq!((nothing.samples, nothing.max, nothing.p999), (0, 0, 0));
        assert_eq!(nothing.mean, 0.0);
    }

    #[test]
    fn nothing_has_no_numbers() {
        let mut nothing = distribution(&[]);
        assert_eq!(nothing.summary().number(Of::P50), None);
        nothing.note_seed(1);
        assert_eq!(nothing.by_seed().count(), 0);
        let mut one = distribution(&[5]);
        one.note_seed(2);
        nothing.merge(&one);
        assert_eq!(nothing.summary().number(Of::P50), Some(5.0));
        assert_eq!(nothing.by_seed().map(|it| it.0).collect::<Vec<_>>(), [2]);
    }

    #[test]
    fn octaves_hold_every_value_once() {
        let bars: Vec<_> = distribution(&[0, 1, 2, 3, 1_000, u64::MAX])
            .octaves()
            .into_iter()
            .map(|bar| (bar.below, bar.count))
            .collect();
        let largest = LARGEST.next_power_of_two();
        assert_eq!(bars, [(1, 1), (2, 1), (4, 2), (1_024, 1), (largest, 1)]);
    }

    #[test]
    fn percentiles_are_within_three_digits_over_the_whole_range() {
        let mut values = vec![20; 100];
        values.extend([123_456_789, u64::MAX]);
        let summary = distribution(&values).summary();
        assert_eq!(summary.p50, 20);
        assert!(summary.p99.abs_diff(123_456_789) < 123_456);
        assert!(summary.max.abs_diff(LARGEST) < LARGEST / 1_000);
    }

    #[test]
    fn merged_parts_are_the_whole() {
        let values: Vec<u64> = (0..5_000).map(|nth| nth * nth * 37).collect();
        let (one, other) = values.split_at(1_234);
        let mut merged = distribution(other);
        merged.merge(&distribution(one));
        assert_eq!(merged, distribution(&values));
        assert_eq!(merged.summary(), distribution(&values).summary());
    }
}
