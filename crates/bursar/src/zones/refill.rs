//! Moves of blocks between the current CPU's list and the rest of its zone: filling it when it is empty, relieving it when it is full.

use bursar_machine::pages::{Block, BlockStacks, Order};
use bursar_machine::{Machine, Shard};

use super::hold::Work;
use super::tuned::List;
use super::tuning::Shortage;
use super::zone::{Counts, Mark, Zone};

impl<M: Machine> Zone<M> {
    /// Fills the current CPU's list from the depot or the buddy, and takes one block for the caller. Call in an
    /// operation.
    #[cold]
    pub(super) fn refill(&self, list: usize, mark: Mark) -> Option<Block> {
        let List { order, batch, .. } = self.lists.lists[list];
        let machine = &self.machine;
        if let Some(block) = self.lists.stacks.pop(list) {
            // This thread has no sections, or has moved to another CPU.
            return Some(block);
        }
        let shard = machine.current_shard();
        let begin_ns = machine.now_ns();
        let (tuned, most) = self.lists.refilled(shard, list, self.shortage());
        // Below the low mark a caller takes only the block that it needs.
        let mut wanted = if mark == Mark::Low { most } else { 1 };
        let mut ours = None;
        while wanted > 0 {
            let mut blocks = match self.depot.take(machine, shard, list) {
                Some(blocks) => blocks,
                None => {
                    let Some(mut blocks) = self.depot.spare(machine, shard, list) else {
                        break;
                    };
                    let count = batch.min(wanted) as usize;
                    self.take(order, count, mark, &mut blocks);
                    blocks
                }
            };
            let found = blocks.len();
            wanted = wanted.saturating_sub(found.max(1) as u32);
            if ours.is_none() && found > 0 {
                ours = blocks.pop();
                // There are blocks to fetch, so the list may hold more from now on.
                self.lists.set_tuned(shard, list, tuned);
            }
            self.lists.stacks.push_many(list, &mut blocks);
            let is_full = !blocks.is_empty();
            self.put_batch(shard, list, blocks);
            // Bounded: the caller's wait does not grow with `high`.
            if is_full || found == 0 || machine.now_ns() - begin_ns >= self.hold.ns {
                break;
            }
        }
        if ours.is_some() {
            Counts::add(&self.counts.refills, 1);
            // The block was on no list, whose stack would have counted it.
            Counts::add(&self.counts.slow_allocs, u64::from(order.pages()));
        }
        ours
    }

    /// Relieves the current CPU's list, which had no room for `block`. Call in an operation.
    #[cold]
    pub(super) fn spill(&self, list: usize, block: Block) {
        let block = match self.lists.stacks.push(list, block) {
            // As in `refill`.
            Ok(()) => return,
            Err(block) => block,
        };
        let batch = self.lists.lists[list].batch as usize;
        let machine = &self.machine;
        let shard = machine.current_shard();
        let begin_ns = machine.now_ns();
        let mut surplus = self.lists.spill(shard, list, self.shortage()) as usize;
        while surplus > 0 {
            let Some(mut blocks) = self.depot.spare(machine, shard, list) else {
                break;
            };
            let stacks = &self.lists.stacks;
            let popped = stacks.pop_many(list, batch.min(surplus), &mut blocks);
            self.put_batch(shard, list, blocks);
            surplus -= popped;
            if popped == 0 || machine.now_ns() - begin_ns >= self.hold.ns {
                break;
            }
        }
        Counts::add(&self.counts.spills, 1);
        if let Err(block) = self.lists.stacks.push(list, block) {
            // The list is frozen, or another task is in it.
            self.put_one(shard, list, block);
        }
    }

    /// Puts a batch, which may be empty, into the depot, or into the buddy if the depot is full.
    pub(super) fn put_batch(&self, shard: Shard, list: usize, blocks: Vec<Block>) {
        if let Err(mut blocks) = self.depot.put(&self.machine, shard, list, blocks) {
            self.give(&mut blocks, Work::Free);
            self.depot.put_spare(&self.machine, shard, blocks);
        }
    }

    /// Puts a block past the lists.
    pub(super) fn put_one(&self, shard: Shard, list: usize, block: Block) {
        if let Err(block) = self.depot.put_one(&self.machine, shard, list, block) {
            self.give_one(block, Work::Free);
        }
    }

    /// Takes one block by way of the current CPU's list, or past it where there is none. Call in an operation.
    pub(super) fn take_one(&self, order: Order, mark: Mark) -> Option<Block> {
        if self.lists.lists[order.index()].exists() {
            return self.refill(order.index(), mark);
        }
        let mut blocks = Vec::new();
        self.take(order, 1, mark, &mut blocks);
        let block = blocks.pop()?;
        Counts::add(&self.counts.slow_allocs, u64::from(order.pages()));
        Some(block)
    }

    fn shortage(&self) -> Shortage {
        if self.free_pages() < self.marks.high {
            return Shortage::BelowHigh;
        }
        Shortage::None
    }
}

#[cfg(test)]
mod tests {
    use bursar_machine::Host;

    use super::super::fixture::{
        BATCH, fill_depot, fill_list, listed, options, pages, stays_on_a_cpu, zones,
    };
    use super::super::{HoldBounds, PageOptions, Zones};
    use super::*;

    /// Zones of a caller that may take so many nanoseconds to move batches.
    fn within(ns: u64) -> Zones<Host> {
        let hold = HoldBounds {
            ns,
            ..HoldBounds::default()
        };
        let options = PageOptions { hold, ..options() };
        zones(&Host::start().unwrap(), options)
    }

    /// A list that runs empty wants twice as much each time: one batch, two, four.
    #[test]
    fn a_refill_moves_what_is_wanted_within_its_time() {
        if !stays_on_a_cpu() {
            return;
        }
        for (ns, mark, moved) in [
            (u64::MAX, Mark::Low, [1, 2, 4]),
            (0, Mark::Low, [1, 1, 1]),
            (u64::MAX, Mark::Min, [1, 1, 1]),
        ] {
            let zones = within(ns);
            let zone = zones.zone(0);
            fill_depot(zone, 8);
            for batches in moved {
                let before = zone.depot.blocks(0) as usize;
                assert!(zone.take_one(Order::ZERO, mark).is_some());
                let after = zone.depot.blocks(0) as usize;
                assert_eq!(before - after, batches * BATCH, "{ns} {mark:?}");
                assert_eq!(listed(zone), batches * BATCH - 1, "all but ours");
                zone.lists.stacks.pop_many(0, BATCH * 4, &mut Vec::new());
            }
        }
    }

    /// 160 blocks on a list for 64 are many freed in a row. It keeps a batch of the 64, and gives as many as the others.
    #[test]
    fn a_list_that_runs_over_gives_batches_within_its_time() {
        if !stays_on_a_cpu() {
            return;
        }
        for (ns, batches) in [(u64::MAX, 3), (0, 1)] {
            let zones = within(ns);
            let zone = zones.zone(0);
            fill_list(zone, 160, 64);
            zones.free_slowly(0, pages(zone, 1).pop().unwrap());
            assert_eq!(zone.depot.blocks(0) as usize, batches * BATCH);
            assert_eq!(listed(zone), 160 - batches * BATCH + 1);
        }
    }
}
