//! Per-CPU lists: the source and destination of nearly all pages.
//!
//! A list is a per-CPU stack of blocks of one order. It is refilled when empty and relieved when full, a batch at a
//! time. The number of blocks that it may hold adapts as the kernel's does (`tuning.rs`): each refill and each overflow
//! raises `high`, idle time lowers it.
//!
//! The kernel updates `free_count` and `alloc_factor` with every operation. Here they are worked out when a list runs
//! empty or over, from the number of pops since the last time. The stacks count pops at no cost.
//!
//! Two tasks of one CPU may both be in this code, and a task may migrate meanwhile. Then they change each other's
//! `high`, which is only a heuristic. Blocks go to the list of the CPU that the task is then on, which is just as good.

use bursar_machine::pages::{Block, BlockStacks, Bounds, LISTS_MAX, Order, StackWord, depth, pops};
use bursar_machine::{AtomicWord, Machine, MemoryOrder, OutOfMemory, Shard};

use super::options::ListOptions;
use super::tuned::{CAPACITY_MAX, Tuned};
use super::tuning::Shortage;
use super::zone::{Counts, Mark, Zone};

/// Minimum number of blocks of several pages that move at a time.
const BATCH_MIN: u32 = 16;
/// Number of orders, each of which has a list.
pub(super) const ORDERS: usize = Order::MAX.index() + 1;
const _: () = assert!(ORDERS == LISTS_MAX);

/// Sizes of the list of one order on each CPU, in blocks. All are 0 if blocks of this order are not kept on lists.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct List {
    pub(super) order: Order,
    /// Number of blocks that move at a time.
    pub(super) batch: u32,
    /// `high` of an idle list.
    pub(super) high_min: u32,
    /// Upper bound of `high`.
    pub(super) high_max: u32,
    pub(super) capacity: u16,
}

impl List {
    fn absent(order: Order) -> Self {
        Self {
            order,
            batch: 0,
            high_min: 0,
            high_max: 0,
            capacity: 0,
        }
    }

    /// Returns whether blocks of this order are kept on lists.
    pub(super) fn exists(&self) -> bool {
        self.capacity > 0
    }

    /// Sizes in blocks, from the zone's sizes in pages.
    pub(super) fn new(options: ListOptions, batch: u32, high_min: u32, high_max: u32) -> Self {
        let order = options.order.get();
        // The kernel moves as few as two blocks of several pages, because each page takes time under its lock. Here
        // each block does, and blocks that move through the depot do not even take that.
        let batch = if order == 0 {
            batch
        } else {
            (batch >> order).max(BATCH_MIN.min(batch))
        };
        let capacity = u32::from(options.capacity.clamp(1, CAPACITY_MAX));
        let batch = batch.clamp(1, capacity);
        let blocks = |pages: u32| pages >> order;
        let high_max = blocks(high_max).clamp(batch, capacity);
        Self {
            order: options.order,
            batch,
            high_min: blocks(high_min).clamp(batch, high_max),
            high_max,
            capacity: capacity as u16,
        }
    }
}

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
}

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
        let (tuned, most) = self.tuned_refill(shard, list);
        // Below the low mark a caller takes only the block that it needs.
        let mut wanted = if mark == Mark::Low { most } else { 1 };
        let mut ours = None;
        while wanted > 0 {
            let mut blocks = match self.depot.take(machine, shard, list) {
                Some(blocks) => blocks,
                None => {
                    let mut blocks = self.depot.spare(machine, shard);
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
        let mut surplus = self.tune_spill(shard, list) as usize;
        while surplus > 0 {
            let mut blocks = self.depot.spare(machine, shard);
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
            self.give(&mut blocks, super::Work::Free);
            self.depot.put_spare(&self.machine, shard, blocks);
        }
    }

    /// Puts a block past the lists.
    pub(super) fn put_one(&self, shard: Shard, list: usize, block: Block) {
        if let Err(block) = self.depot.put_one(&self.machine, shard, list, block) {
            self.give(&mut vec![block], super::Work::Free);
        }
    }

    fn shortage(&self) -> Shortage {
        if self.free_pages() < self.marks.high {
            return Shortage::BelowHigh;
        }
        Shortage::None
    }

    /// Tuning of a list that ran empty, and the number of blocks to fetch, at least one.
    fn tuned_refill(&self, shard: Shard, list: usize) -> (Tuned, u32) {
        let head = self.lists.head(shard, list);
        let tuned = self.lists.tuned(shard, list);
        let sizes = &self.lists.lists[list];
        let (tuned, count) = tuned.refill(sizes, pops(head), depth(head) as u32, self.shortage());
        (tuned, count.max(1))
    }

    /// Adapts `high` of a list that ran over; returns the number of blocks to take off it, at least one.
    fn tune_spill(&self, shard: Shard, list: usize) -> u32 {
        let head = self.lists.head(shard, list);
        let tuned = self.lists.tuned(shard, list);
        let sizes = &self.lists.lists[list];
        let (tuned, count) = tuned.spill(sizes, pops(head), depth(head) as u32, self.shortage());
        self.lists.set_tuned(shard, list, tuned);
        count.max(1)
    }
}
