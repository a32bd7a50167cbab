//! One number of a metric: which one, and for people.

use bursar_experiments::document::VariantResult;
use bursar_experiments::measure::{Distribution, Metric, Unit};

use crate::units::{in_unit, thousands};

/// Which number of a metric.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Of {
    P50,
    P99,
    Max,
    Mean,
    /// The only one, of what is no distribution.
    Value,
}

impl Of {
    /// Its name; empty for the only one.
    pub fn name(self) -> &'static str {
        match self {
            Self::P50 => "p50",
            Self::P99 => "p99",
            Self::Max => "max",
            Self::Mean => "mean",
            Self::Value => "",
        }
    }

    /// The number of a metric of a variant, and its unit; nothing if it was not measured.
    pub fn get(self, variant: &VariantResult, metric: &str) -> Option<(f64, Unit)> {
        let metric = variant.metrics.get(metric)?;
        let value = match (metric, self) {
            (Metric::Distribution(distribution), of) => {
                let all = distribution.summary();
                match of {
                    Self::P50 => all.p50 as f64,
                    Self::P99 => all.p99 as f64,
                    Self::Max => all.max as f64,
                    Self::Mean => all.mean,
                    Self::Value => return None,
                }
            }
            (Metric::Ratio(share), Self::Value) => share.value(),
            (Metric::Count(count), Self::Value) => a_seed(variant, *count),
            (Metric::Figure(figure), Self::Value) => figure.value(),
            _ => return None,
        };
        Some((value, metric.unit()))
    }
}

/// The number for people; `-` if it was not measured.
pub fn shown(variant: &VariantResult, metric: &str, of: Of) -> String {
    let known = of.get(variant, metric);
    known.map_or_else(
        || "-".to_owned(),
        |(value, unit)| match of {
            Of::P50 | Of::P99 | Of::Max => one_value(value, unit),
            Of::Mean | Of::Value => in_unit(value, unit),
        },
    )
}

/// One of the values of a distribution, for people: of things there are whole ones only.
pub fn one_value(value: f64, unit: Unit) -> String {
    match unit {
        Unit::Count => thousands(value as u64),
        unit => in_unit(value, unit),
    }
}

/// How many there were with each seed, in the mean.
pub fn a_seed(variant: &VariantResult, count: u64) -> f64 {
    count as f64 / variant.ran_seeds.len().max(1) as f64
}

/// A distribution of a variant, if it has run.
pub fn distribution<'a>(variant: &'a VariantResult, metric: &str) -> Option<&'a Distribution> {
    distribution_of(variant.metrics.get(metric)?)
}

/// A metric as the distribution that it may be.
pub fn distribution_of(metric: &Metric) -> Option<&Distribution> {
    match metric {
        Metric::Distribution(distribution) => Some(distribution),
        _ => None,
    }
}
