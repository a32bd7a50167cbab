//! Memory that queries of one shape needed before.

use std::collections::{BTreeMap, VecDeque};

/// Runs of each shape that are kept.
const RUNS_MAX: usize = 8;

/// Peaks of the last runs of each shape of query. Bounded: the shape that was used longest ago is forgotten first.
///
/// The caller makes the keys, for example from a plan without its literals.
///
/// ```
/// use bursar_arbiter::Shapes;
///
/// let mut shapes = Shapes::new(1000);
/// assert_eq!(shapes.seen(7, 100), None);
/// shapes.record(7, 64 << 20, 4);
/// shapes.record(7, 96 << 20, 4);
/// let most = shapes.seen(7, 100).expect("two runs");
/// assert_eq!((most.peak, most.width), (96 << 20, 4));
/// ```
#[derive(Debug)]
pub struct Shapes {
    shapes_max: usize,
    by_key: BTreeMap<u64, Shape>,
    /// Keys by the time of their last use.
    by_use: BTreeMap<u64, u64>,
    /// Uses of all shapes so far.
    uses: u64,
}

#[derive(Debug, Default)]
struct Shape {
    used: u64,
    /// The last runs, oldest first.
    runs: VecDeque<Seen>,
}

/// A run of a shape.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Seen {
    /// Most bytes that the query had at one time.
    pub peak: u64,
    /// Number of partitions that it ran with.
    pub width: u32,
}

impl Shapes {
    /// Makes a table of at most `shapes_max` shapes.
    pub fn new(shapes_max: usize) -> Self {
        Self {
            shapes_max,
            by_key: BTreeMap::new(),
            by_use: BTreeMap::new(),
            uses: 0,
        }
    }

    /// Records a run that ended well.
    pub fn record(&mut self, key: u64, peak: u64, width: u32) {
        if self.shapes_max == 0 {
            return;
        }
        if !self.by_key.contains_key(&key) && self.by_key.len() >= self.shapes_max {
            // A key in one map is in the other.
            if let Some((_, oldest)) = self.by_use.pop_first() {
                self.by_key.remove(&oldest);
            }
        }
        self.by_key.entry(key).or_default();
        let runs = self.touch(key).expect("just added");
        if runs.len() == RUNS_MAX {
            runs.pop_front();
        }
        runs.push_back(Seen { peak, width });
    }

    /// Returns one of the last 8 runs of a shape: that whose peak at least `percent` of them did not exceed. With 100 it is the largest. `None`
    /// for a shape that is not known.
    pub fn seen(&mut self, key: u64, percent: u32) -> Option<Seen> {
        let mut runs: Vec<Seen> = self.touch(key)?.iter().copied().collect();
        runs.sort_by_key(|run| run.peak);
        let rank = (runs.len() * percent.min(100) as usize).div_ceil(100);
        runs.get(rank.saturating_sub(1)).copied()
    }

    /// Notes a use of a shape. Returns its runs.
    fn touch(&mut self, key: u64) -> Option<&mut VecDeque<Seen>> {
        let shape = self.by_key.get_mut(&key)?;
        self.uses += 1;
        self.by_use.remove(&shape.used);
        shape.used = self.uses;
        self.by_use.insert(self.uses, key);
        Some(&mut shape.runs)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_shape_that_was_used_longest_ago_is_forgotten() {
        let mut shapes = Shapes::new(2);
        shapes.record(1, 10, 1);
        shapes.record(2, 20, 1);
        assert!(shapes.seen(1, 50).is_some());
        shapes.record(3, 30, 1);
        assert_eq!(shapes.seen(2, 50), None);
        assert!(shapes.seen(1, 50).is_some() && shapes.seen(3, 50).is_some());
        for key in 0..1000 {
            shapes.record(key, 1, 1);
            assert!(shapes.by_key.len() <= 2 && shapes.by_use.len() == shapes.by_key.len());
        }
        let mut none = Shapes::new(0);
        none.record(1, 10, 1);
        assert_eq!(none.seen(1, 50), None);
    }

    #[test]
    fn the_last_eight_runs_count() {
        let mut shapes = Shapes::new(2);
        shapes.record(1, 1000, 1);
        for peak in (1..=8).rev() {
            shapes.record(1, peak, 1);
        }
        let at = |shapes: &mut Shapes, percent| shapes.seen(1, percent).map(|seen| seen.peak);
        let found = [0, 12, 13, 50, 51, 100, 1000].map(|percent| at(&mut shapes, percent));
        assert_eq!(found, [1, 1, 2, 4, 5, 8, 8].map(Some));
    }
}
