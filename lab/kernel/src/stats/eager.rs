//! Statistics that are always exact: an update changes its group and all its ancestors, a read is a load.
//!
//! Updates of the same tree write the same lines, at least the root's. That is their cost.

use bursar_machine::{AtomicWord, Machine, MemoryOrder};

use super::GroupIndex;

/// See the module.
pub(super) struct Eager<M: Machine> {
    parents: Vec<Option<GroupIndex>>,
    /// Per group, its statistics.
    totals: Vec<Vec<M::Word>>,
}

impl<M: Machine> Eager<M> {
    pub(super) fn new(parents: &[Option<GroupIndex>], statistics: usize) -> Self {
        let group = || (0..statistics).map(|_| M::Word::new(0)).collect();
        Self {
            parents: parents.to_vec(),
            totals: parents.iter().map(|_| group()).collect(),
        }
    }

    #[inline]
    pub(super) fn add(&self, group: GroupIndex, statistic: usize, delta: i64) {
        let mut next = Some(group);
        while let Some(group) = next {
            // Relaxed: a total is one word, and says nothing about other words.
            self.totals[group][statistic].fetch_add_signed(delta, MemoryOrder::Relaxed);
            next = self.parents[group];
        }
    }

    #[inline]
    pub(super) fn total(&self, group: GroupIndex, statistic: usize) -> i64 {
        // Relaxed: as above.
        self.totals[group][statistic].load_signed(MemoryOrder::Relaxed)
    }
}
