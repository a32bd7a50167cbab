//! One number of a metric, for people.

use bursar_experiments::document::{Document, VariantResult};
use bursar_experiments::measure::{Distribution, Metric, Unit};
use bursar_experiments::metrics::Of;

use crate::units::{counted, in_unit, thousands};

/// The number for people; `-` if it was not measured.
pub fn shown(variant: &VariantResult, metric: &str, of: Of) -> String {
    let known = variant.number(metric, of);
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

/// The name, with what makes its figures less sure than those beside it.
pub fn name_with_seeds(variant: &VariantResult, document: &Document) -> String {
    let seeds = variant.ran_seeds.len() as u64;
    match seeds < document.seeds {
        true => format!("{} ({})", variant.name, counted(seeds, "seed")),
        false => variant.name.clone(),
    }
}
