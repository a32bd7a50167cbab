//! One number of a metric, for people.

use bursar_experiments::document::VariantResult;
use bursar_experiments::measure::{Distribution, Metric, Unit};
use bursar_experiments::metrics::Of;

use crate::units::{in_unit, thousands};

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
