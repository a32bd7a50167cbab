//! A share of events.

use std::collections::BTreeMap;

use serde::ser::SerializeStruct;
use serde::{Serialize, Serializer};

use super::unit::Unit;
use crate::one_line::OneLine;

/// A share of events: for each seed the part and the whole.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Share(BTreeMap<u64, (u64, u64)>);

/// Returns the share; 0 of nothing.
fn ratio((part, whole): (u64, u64)) -> f64 {
    if whole == 0 {
        0.0
    } else {
        part as f64 / whole as f64
    }
}

impl Share {
    /// Makes the share of one seed.
    pub fn of(seed: u64, part: u64, whole: u64) -> Self {
        Self(BTreeMap::from([(seed, (part, whole))]))
    }

    /// Makes a share from the fields of a document: seed, part, whole.
    ///
    /// # Errors
    /// The defect in an entry.
    pub(super) fn read_back(by_seed: &[(u64, u64, u64)]) -> Result<Self, String> {
        let mut share = Self::default();
        for &(seed, part, whole) in by_seed {
            if part > whole {
                return Err(format!("the share of seed {seed} is {part} of {whole}"));
            }
            if share.0.insert(seed, (part, whole)).is_some() {
                return Err(format!("seed {seed} has a share twice"));
            }
        }
        Ok(share)
    }

    /// Adds the shares of other seeds.
    pub fn merge(&mut self, other: &Self) {
        self.0.extend(&other.0);
    }

    /// Returns the seeds that have a value.
    pub fn seeds(&self) -> impl Iterator<Item = u64> {
        self.0.keys().copied()
    }

    /// Returns seeds and shares, in the order of the seeds.
    pub fn by_seed(&self) -> impl Iterator<Item = (u64, f64)> {
        self.0.iter().map(|(seed, parts)| (*seed, ratio(*parts)))
    }

    /// Returns the same of seeds in which anything happened: a share of nothing cannot be judged.
    pub fn judged(&self) -> impl Iterator<Item = (u64, f64)> {
        let happened = self.0.iter().filter(|(_, (_, whole))| *whole > 0);
        happened.map(|(seed, parts)| (*seed, ratio(*parts)))
    }

    /// Returns the share over all seeds; 0 of nothing.
    pub fn value(&self) -> f64 {
        let add = |sum: (u64, u64), seed: &(u64, u64)| {
            (sum.0.saturating_add(seed.0), sum.1.saturating_add(seed.1))
        };
        ratio(self.0.values().fold((0, 0), add))
    }

    /// Returns the least share of a single seed in which anything happened; 0 if there is none.
    pub fn lo(&self) -> f64 {
        self.single().reduce(f64::min).unwrap_or(0.0)
    }

    /// Returns the greatest share of a single seed in which anything happened; 0 if there is none.
    pub fn hi(&self) -> f64 {
        self.single().reduce(f64::max).unwrap_or(0.0)
    }

    fn single(&self) -> impl Iterator<Item = f64> {
        self.judged().map(|(_, share)| share)
    }
}

impl Serialize for Share {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let entry = |(seed, (part, whole)): (&u64, &(u64, u64))| (*seed, *part, *whole);
        let by_seed: Vec<_> = self.0.iter().map(entry).collect();
        let mut fields = serializer.serialize_struct("Share", 5)?;
        fields.serialize_field("unit", &Unit::Ratio)?;
        fields.serialize_field("value", &self.value())?;
        fields.serialize_field("lo", &self.lo())?;
        fields.serialize_field("hi", &self.hi())?;
        fields.serialize_field("by_seed", &OneLine(by_seed))?;
        fields.end()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_keep_the_range_over_seeds() {
        let mut share = Share::of(5, 1, 10);
        share.merge(&Share::of(4, 3, 10));
        assert_eq!((share.value(), share.lo(), share.hi()), (0.2, 0.1, 0.3));
        assert_eq!(share.seeds().collect::<Vec<_>>(), [4, 5]);
    }

    #[test]
    fn the_share_of_nothing_is_nothing() {
        let mut share = Share::of(1, 0, 0);
        assert_eq!((share.value(), share.lo(), share.hi()), (0.0, 0.0, 0.0));
        share.merge(&Share::of(2, 1, 2));
        assert_eq!((share.value(), share.lo(), share.hi()), (0.5, 0.5, 0.5));
    }
}
