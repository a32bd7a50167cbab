//! Per-CPU lists: the source and destination of nearly all pages.
//!
//! A list is a per-CPU stack of blocks of one order. It is refilled when empty and relieved when full, a batch at a
//! time. The number of blocks that it may hold adapts as the kernel's does (`tuning/`): each refill and each overflow
//! raises `high`, idle time lowers it.
//!
//! The kernel updates `free_count` and `alloc_factor` with every operation. Here they are worked out when a list runs
//! empty or over, from the number of pops since the last time. The stacks count pops at no cost.
//!
//! Two tasks of one CPU may both be in this code, and a task may migrate meanwhile. Then they change each other's
//! `high`, which is only a heuristic. Blocks go to the list of the CPU that the task is then on, which is just as good.

use bursar_machine::pages::{BlockStacks, Bounds, LISTS_MAX, Order, StackWord, depth, pops};
use bursar_machine::{AtomicWord, Machine, MemoryOrder, OutOfMemory, Shard};

use super::tuned::{List, Tuned};
use super::tuning::Shortage;

/// Number of orders, each of which has a list.
pub(super) const ORDERS: usize = Order::MAX.index() + 1;
const _: () = assert!(ORDERS == LISTS_MAX);

/// Lists of all CPUs, in one zone.
pub(super) struct Lists<M: Machine> {
    pub(super) stacks: M::Stacks,
    /// Sizes by order.
    pub(super) lists: [List; ORDERS],
}

impl<M: Machine> Lists<M> {
    pub(super) fn new(machine: &M, configured: &[List]) -> Result<Self, OutOfMemory> {
        let mut lists = std::array::from_fn(|order| List::absent(Order::new(order as u8)));
        for list in configured {
            lists[list.order.index()] = *list;
        }
        let stacks = machine.stacks(&lists.each_ref().map(|list| list.capacity))?;
        for list in configured {
            for shard in 0..=machine.cpus() as u32 {
                let (shard, number) = (Shard(shard), list.order.index());
                stacks.set_bounds(shard, number, Bounds::up_to(list.high_min));
                let word = stacks.word(shard, number, StackWord::First);
                word.store(Tuned::new(list.high_min).bits(), MemoryOrder::Relaxed);
            }
        }
        Ok(Self { stacks, lists })
    }

    /// The lists that exist, by order.
    pub(super) fn existing(&self) -> impl Iterator<Item = (usize, &List)> {
        self.lists
            .iter()
            .enumerate()
            .filter(|(_, list)| list.exists())
    }

    /// Number of blocks in a CPU's list.
    pub(super) fn depth(&self, shard: Shard, list: usize) -> usize {
        depth(self.head(shard, list))
    }

    pub(super) fn head(&self, shard: Shard, list: usize) -> u64 {
        self.stacks.head(shard, list)
    }

    /// Tuning of a CPU's list.
    pub(super) fn tuned(&self, shard: Shard, list: usize) -> Tuned {
        // Relaxed, here and below: a heuristic, see the module.
        let word = self.stacks.word(shard, list, StackWord::First);
        Tuned::of(word.load(MemoryOrder::Relaxed))
    }

    /// Changes `high` on a CPU. If its list is frozen, the new bounds may take effect only after a later change.
    pub(super) fn set_tuned(&self, shard: Shard, list: usize, tuned: Tuned) {
        let word = self.stacks.word(shard, list, StackWord::First);
        word.store(tuned.bits(), MemoryOrder::Relaxed);
        // If the list is frozen, its thaw sets the bounds from our `high` or from the one before, which is just as
        // good.
        self.stacks
            .set_bounds(shard, list, Bounds::up_to(tuned.high));
    }

    /// Tuning of a list that ran empty, and the number of blocks to fetch, at least one.
    pub(super) fn refilled(&self, shard: Shard, list: usize, shortage: Shortage) -> (Tuned, u32) {
        let (head, sizes) = (self.head(shard, list), &self.lists[list]);
        let tuned = self.tuned(shard, list);
        let (tuned, count) = tuned.refill(sizes, pops(head), depth(head) as u32, shortage);
        (tuned, count.max(1))
    }

    /// Adapts `high` of a list that ran over; returns the number of blocks to take off it, at least one.
    pub(super) fn spill(&self, shard: Shard, list: usize, shortage: Shortage) -> u32 {
        let (head, sizes) = (self.head(shard, list), &self.lists[list]);
        let tuned = self.tuned(shard, list);
        let (tuned, count) = tuned.spill(sizes, pops(head), depth(head) as u32, shortage);
        self.set_tuned(shard, list, tuned);
        count.max(1)
    }
}
