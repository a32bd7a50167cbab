//! Changes of statistics that are collected under a lock and added outside of it.
//!
//! The kernel adds the sum of a batch of pages of one group at once; so does this, for all groups that a batch touches.

use bursar_kernel::stats::GroupIndex;
use bursar_machine::Machine;

use crate::memcg_flush::statistics::Stat;
use crate::memcg_flush::subject::Subject;

#[derive(Debug, Default)]
pub(super) struct Deltas(Vec<(GroupIndex, Stat, i64)>);

impl Deltas {
    pub(super) fn add(&mut self, group: GroupIndex, stat: Stat, delta: i64) {
        self.0.push((group, stat, delta));
    }

    /// Adds them all, each statistic of each group once, in their order; sums of 0 are not added.
    pub(super) fn apply<M: Machine, S: Subject<M>>(mut self, subject: &S) {
        self.0
            .sort_unstable_by_key(|&(group, stat, _)| (group, stat as usize));
        let same = |one: &(GroupIndex, Stat, i64), other: &(GroupIndex, Stat, i64)| {
            (one.0, one.1) == (other.0, other.1)
        };
        for deltas in self.0.chunk_by(same) {
            let (group, stat, _) = deltas[0];
            let sum = deltas.iter().map(|&(_, _, delta)| delta).sum();
            if sum != 0 {
                subject.add(group, stat, sum);
            }
        }
    }
}
