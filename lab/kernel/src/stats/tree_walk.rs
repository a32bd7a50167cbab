//! Statistics without rstat: updates stay on their CPU, and a read sums them up.
//!
//! An update is one addition on its CPU. A read costs as many words as there are CPUs, times the groups below. That
//! cost made the kernel look for something else (`memcg_stat` of 4.20 and before walked the tree likewise).

use bursar_machine::{Machine, OutOfMemory, Shard};

use super::GroupIndex;
use super::states::States;

/// See the module.
pub(super) struct TreeWalk<M: Machine> {
    states: States<M>,
    shards: usize,
    children: Vec<Vec<GroupIndex>>,
}

impl<M: Machine> TreeWalk<M> {
    pub(super) fn new(
        machine: &M,
        parents: &[Option<GroupIndex>],
        statistics: usize,
    ) -> Result<Self, OutOfMemory> {
        let mut children = vec![Vec::new(); parents.len()];
        for (group, parent) in parents.iter().enumerate() {
            if let Some(parent) = parent {
                children[*parent].push(group);
            }
        }
        Ok(Self {
            states: States::new(machine, parents.len(), statistics)?,
            shards: machine.cpus() + 1,
            children,
        })
    }

    #[inline]
    pub(super) fn add(&self, group: GroupIndex, statistic: usize, delta: i64) {
        self.states.add(group, statistic, delta);
    }

    pub(super) fn total(&self, group: GroupIndex, statistic: usize) -> i64 {
        let shards = (0..self.shards).map(|shard| Shard(shard as u32));
        let own = shards.map(|shard| self.states.get(shard, group, statistic));
        let own = own.fold(0, i64::wrapping_add);
        let below = self.children[group].iter();
        below.fold(own, |sum, &child| {
            sum.wrapping_add(self.total(child, statistic))
        })
    }
}
