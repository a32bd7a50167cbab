//! One number a seed: a mean, a rate, a quotient.

use std::collections::BTreeMap;

use serde::ser::SerializeStruct;
use serde::{Serialize, Serializer};

use super::interval::{central, mean};
use super::unit::Unit;
use crate::one_line::OneLine;

/// One number for each seed that has one. Seeds count alike, however many events each of them had.
#[derive(Clone, Debug, PartialEq)]
pub struct Figure {
    unit: Unit,
    by_seed: BTreeMap<u64, f64>,
}

impl Figure {
    /// Makes the figure of one seed; `None` for a mean of nothing.
    pub fn of(unit: Unit, seed: u64, value: impl Into<Option<f64>>) -> Self {
        let value = value.into().map(|value| (seed, value));
        Self {
            unit,
            by_seed: value.into_iter().collect(),
        }
    }

    /// Makes a figure from the fields of a document: seed, value.
    ///
    /// # Errors
    /// The defect in an entry.
    pub(super) fn read_back(unit: Unit, figures: &[(u64, f64)]) -> Result<Self, String> {
        let by_seed: BTreeMap<u64, f64> = figures.iter().copied().collect();
        if by_seed.len() != figures.len() {
            return Err("a seed has a figure twice".to_owned());
        }
        Ok(Self { unit, by_seed })
    }

    /// Adds the figures of other seeds.
    pub fn merge(&mut self, other: &Self) {
        self.by_seed.extend(&other.by_seed);
    }

    /// Returns the values' unit.
    pub fn unit(&self) -> Unit {
        self.unit
    }

    /// Returns the seeds that have a value.
    pub fn seeds(&self) -> impl Iterator<Item = u64> {
        self.by_seed.keys().copied()
    }

    /// Returns seeds and values, in the order of the seeds.
    pub fn by_seed(&self) -> impl Iterator<Item = (u64, f64)> {
        self.by_seed.iter().map(|(seed, value)| (*seed, *value))
    }

    /// Returns the mean over the seeds; `None` without seeds.
    pub fn value(&self) -> Option<f64> {
        let values = self.values();
        (!values.is_empty()).then(|| mean(&values))
    }

    /// Returns the lower end of the central 90 % of the seeds.
    pub fn lo(&self) -> f64 {
        central(&self.values()).0
    }

    /// Returns the upper end of the central 90 % of the seeds.
    pub fn hi(&self) -> f64 {
        central(&self.values()).1
    }

    /// Returns the least value of a seed and the greatest; `None` without seeds.
    pub fn range(&self) -> Option<(f64, f64)> {
        let values = || self.by_seed.values().copied();
        Some((values().reduce(f64::min)?, values().reduce(f64::max)?))
    }

    fn values(&self) -> Vec<f64> {
        self.by_seed.values().copied().collect()
    }
}

impl Serialize for Figure {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let figures: Vec<_> = self.by_seed().collect();
        let mut fields = serializer.serialize_struct("Figure", 5)?;
        fields.serialize_field("unit", &self.unit)?;
        fields.serialize_field("value", &self.value())?;
        fields.serialize_field("lo", &self.lo())?;
        fields.serialize_field("hi", &self.hi())?;
        fields.serialize_field("figures", &OneLine(figures))?;
        fields.end()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn seeds_count_alike() {
        let mut figure = Figure::of(Unit::Ns, 2, 10.0);
        figure.merge(&Figure::of(Unit::Ns, 1, 30.0));
        figure.merge(&Figure::of(Unit::Ns, 3, None));
        assert_eq!(
            (figure.value(), figure.lo(), figure.hi()),
            (Some(20.0), 10.0, 30.0)
        );
        assert_eq!(figure.by_seed().collect::<Vec<_>>(), [(1, 30.0), (2, 10.0)]);
    }
}
