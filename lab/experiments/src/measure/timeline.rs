//! Events by place and time, of one seed: enough for a picture.

use serde::ser::SerializeStruct;
use serde::{Serialize, Serializer};

use super::unit::Unit;
use crate::one_line::OneLine;

/// Greatest number of points in a document: a picture needs fewer.
pub const POINTS_MAX: usize = 10_000;

/// Moments on CPUs, of one seed. Of several seeds the least is kept, because moments of different runs do not add up.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Timeline {
    seed: u64,
    /// CPU, and microseconds since the timeline began; in the order of time.
    points: Vec<(u32, u64)>,
}

impl Timeline {
    /// Makes the timeline of one seed. Beyond [`POINTS_MAX`] points, the last are left out.
    pub fn of(seed: u64, mut points: Vec<(u32, u64)>) -> Self {
        points.sort_unstable_by_key(|&(cpu, us)| (us, cpu));
        points.truncate(POINTS_MAX);
        Self { seed, points }
    }

    /// Makes a timeline from the fields of a document.
    ///
    /// # Errors
    /// If there are more points than this program writes.
    pub(super) fn read_back(seed: u64, points: Vec<(u32, u64)>) -> Result<Self, String> {
        if points.len() > POINTS_MAX {
            return Err(format!("{} points are too many", points.len()));
        }
        Ok(Self::of(seed, points))
    }

    /// Keeps the timeline of the lesser seed.
    pub fn merge(&mut self, other: &Self) {
        if other.seed < self.seed {
            self.clone_from(other);
        }
    }

    /// Returns the seed.
    pub fn seed(&self) -> u64 {
        self.seed
    }

    /// Returns CPUs, and microseconds since the timeline began; in the order of time.
    pub fn points(&self) -> &[(u32, u64)] {
        &self.points
    }
}

impl Serialize for Timeline {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut fields = serializer.serialize_struct("Timeline", 3)?;
        fields.serialize_field("unit", &Unit::Timeline)?;
        fields.serialize_field("seed", &self.seed)?;
        fields.serialize_field("points", &OneLine(self.points.clone()))?;
        fields.end()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_several_seeds_the_least_is_kept_whole() {
        let (one, other) = (
            Timeline::of(2, vec![(1, 5)]),
            Timeline::of(3, vec![(0, 4), (0, 6)]),
        );
        let (mut merged, mut reversed) = (one.clone(), other.clone());
        merged.merge(&other);
        reversed.merge(&one);
        assert_eq!((&merged, &reversed), (&one, &one));
    }

    #[test]
    fn points_are_in_order_of_time_and_not_too_many() {
        let timeline = Timeline::of(1, vec![(1, 9), (7, 3), (2, 3)]);
        assert_eq!(timeline.points(), [(2, 3), (7, 3), (1, 9)]);
        let many = (0..POINTS_MAX as u64 + 5).map(|us| (0, us)).collect();
        assert_eq!(Timeline::of(1, many).points().len(), POINTS_MAX);
    }
}
