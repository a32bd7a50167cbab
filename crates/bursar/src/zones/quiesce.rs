//! Taking blocks off other CPUs' lists.
//!
//! A list is frozen and a fence is passed. From then on no thread pushes or pops there: the list appears full and empty
//! at once, so its CPU uses the depot. Another thread can take the blocks, and the CPU waits for nothing. Lists are
//! frozen in slices that share a fence, so that none stays frozen for longer than it takes to copy a slice.

use bursar_machine::pages::{Block, BlockStacks, Bounds};
use bursar_machine::{Machine, Shard};

use super::hold::Work;
use super::zone::{Counts, Zone};

/// Number of lists that are frozen at a time.
const SLICE: usize = 64;

/// A list to take blocks off.
#[derive(Clone, Copy, Debug)]
pub(super) struct Target {
    pub(super) shard: Shard,
    pub(super) list: usize,
    /// Maximum number of blocks.
    pub(super) blocks: usize,
}

impl<M: Machine> Zone<M> {
    /// Takes blocks off lists of any CPU and gives them to the buddy; returns their number. Call in an operation, with
    /// the zone's upkeep locked, because only one task may freeze at a time.
    pub(super) fn quiesce(&self, targets: &[Target]) -> u64 {
        let mut drained = 0;
        let mut blocks: Vec<Block> = Vec::new();
        for slice in targets.chunks(SLICE) {
            let stacks = &self.lists.stacks;
            let lists: Vec<_> = slice.iter().map(|at| (at.shard, at.list)).collect();
            stacks.freeze(&lists);
            for target in slice {
                let Target { shard, list, .. } = *target;
                stacks.take_oldest(shard, list, target.blocks, &mut blocks);
                let high = self.lists.tuned(shard, list).high;
                stacks.thaw(shard, list, Bounds::up_to(high));
            }
            drained += blocks.len() as u64;
            self.give(&mut blocks, Work::Drain);
        }
        Counts::add(&self.counts.drained, drained);
        drained
    }

    /// All lists that hold anything, as targets that empty them.
    pub(super) fn all_lists(&self) -> Vec<Target> {
        let each = self.shards().flat_map(|shard| {
            let lists = self.lists.existing();
            lists.map(move |(list, _)| (shard, list))
        });
        let each = each.map(|(shard, list)| Target {
            shard,
            list,
            blocks: usize::from(self.lists.lists[list].capacity),
        });
        each.filter(|target| self.lists.depth(target.shard, target.list) > 0)
            .collect()
    }

    /// Empties all lists and the depot into the buddy: the last resort of an allocation that finds no page.
    #[doc(alias = "drain_all_pages")]
    pub(crate) fn drain_all(&self) -> u64 {
        // A caller that waits here finds the blocks that the one before has drained.
        let _upkeep = self.upkeep.lock(&self.machine, Work::Drain);
        let drained = self.quiesce(&self.all_lists());
        let lists = self.lists.existing();
        drained
            + lists
                .map(|(list, _)| self.empty_depot(list, u64::MAX))
                .sum::<u64>()
    }

    /// Gives up to `batches` batches of a list from the depot to the buddy; returns the number of blocks.
    pub(super) fn empty_depot(&self, list: usize, batches: u64) -> u64 {
        let mut given = 0;
        for _ in 0..batches {
            let Some(mut blocks) = self.depot.take_any(&self.machine, list) else {
                break;
            };
            given += blocks.len() as u64;
            self.give(&mut blocks, Work::Drain);
            self.depot.put_spare(&self.machine, Shard(0), blocks);
        }
        given
    }
}

#[cfg(test)]
mod tests {
    use bursar_machine::Host;

    use super::super::fixture::{BATCH, fill_depot, fill_list, options, stays_on_a_cpu, zones};

    #[test]
    fn a_drain_tells_how_many_blocks_it_found() {
        if !stays_on_a_cpu() {
            return;
        }
        let zones = zones(&Host::start().unwrap(), options());
        let zone = zones.zone(0);
        for (listed, batches) in [(10, 0), (0, 2), (10, 2), (0, 0)] {
            fill_list(zone, listed, 64);
            fill_depot(zone, batches);
            assert_eq!(zone.drain_all(), (listed + batches * BATCH) as u64);
            assert_eq!(zone.free_pages(), zone.managed);
        }
    }
}
