//! Sizes of a list, and the state of its tuning in one word, brought up to date when the list runs empty or over.
//!
//! The kernel counts each operation; here the stack counts pops only. Frees are derived from pops and the depth, and a
//! mixture of both is taken as all pops first. So `free_count` after a mixture may be higher than the kernel's, by less
//! than the list holds. A return is then larger, but never longer under a lock.
//!
//! Each order has a list of its own here, tuned as the kernel tunes all its lists together for single pages; a block
//! counts as one page. So `high_min` and `high_max` hold for each order. Blocks of several pages that are freed in a
//! row do not all go back at once (`free_high`), and there is no reclaim. Both serve policies that only the kernel's
//! lists have.

use bursar_machine::pages::Order;

use super::options::{CAPACITY_MAX, ListOptions};
use super::tuning::{Limits, Shortage, Tuning};

/// Minimum number of blocks of several pages that move at a time.
const BATCH_MIN: u32 = 16;

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
    pub(super) fn absent(order: Order) -> Self {
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

    fn limits(&self) -> Limits {
        Limits {
            batch: self.batch,
            high_min: self.high_min,
            high_max: self.high_max,
        }
    }
}

/// Tuning of a list, and its stack's counts at that time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Tuned {
    /// Number of blocks that the list may hold.
    pub(super) high: u32,
    alloc_factor: u8,
    free_count: u32,
    /// Number of blocks in the list at the last event.
    depth: u32,
    /// Pops so far, modulo 2^16.
    pops: u16,
}

impl Tuned {
    pub(super) fn new(high: u32) -> Self {
        Self {
            high,
            alloc_factor: 0,
            free_count: 0,
            depth: 0,
            pops: 0,
        }
    }

    pub(super) fn bits(self) -> u64 {
        u64::from(self.high & 0xfff)
            | u64::from(self.free_count.min(0xffff)) << 12
            | u64::from(self.alloc_factor & 0xf) << 28
            | u64::from(self.depth & 0xffff) << 32
            | u64::from(self.pops) << 48
    }

    pub(super) fn of(bits: u64) -> Self {
        Self {
            high: (bits & 0xfff) as u32,
            free_count: (bits >> 12 & 0xffff) as u32,
            alloc_factor: (bits >> 28 & 0xf) as u8,
            depth: (bits >> 32 & 0xffff) as u32,
            pops: (bits >> 48) as u16,
        }
    }

    /// The kernel's state brought up to date since the last event, and the number of frees since then.
    fn tuning(self, list: &List, pops: u64, depth: u32) -> (Tuning, u32) {
        let mut tuning = Tuning::new(&list.limits());
        let popped = (pops as u16).wrapping_sub(self.pops);
        tuning.high = self.high;
        tuning.alloc_factor = self.alloc_factor;
        tuning.free_count = self.free_count.checked_shr(u32::from(popped)).unwrap_or(0);
        let frees = (depth + u32::from(popped)).saturating_sub(self.depth);
        tuning.alloc_factor = tuning.alloc_factor.checked_shr(frees).unwrap_or(0);
        tuning.free_count = (tuning.free_count + frees).min(list.limits().scaled_batch_max());
        (tuning, frees)
    }

    fn after(tuning: Tuning, list: &List, pops: u64, depth: u32) -> Self {
        Self {
            high: tuning.high.clamp(list.high_min, list.high_max),
            alloc_factor: tuning.alloc_factor,
            free_count: tuning.free_count,
            depth,
            pops: pops as u16,
        }
    }

    /// State after the list ran empty, and the number of blocks to fetch.
    pub(super) fn refill(
        self,
        list: &List,
        pops: u64,
        depth: u32,
        shortage: Shortage,
    ) -> (Self, u32) {
        let (mut tuning, _) = self.tuning(list, pops, depth);
        tuning.allocated();
        let blocks = tuning.nr_alloc(&list.limits(), Order::ZERO, depth, shortage);
        // The depth after the fetch, because fetched blocks are not frees.
        let depth = depth.saturating_add(blocks);
        (Self::after(tuning, list, pops, depth), blocks)
    }

    /// State after the list ran over, and the number of blocks to take off.
    pub(super) fn spill(
        self,
        list: &List,
        pops: u64,
        depth: u32,
        shortage: Shortage,
    ) -> (Self, u32) {
        let (mut tuning, _) = self.tuning(list, pops, depth);
        let limits = list.limits();
        let high = tuning.nr_high(&limits, depth + 1, shortage);
        let blocks = tuning.nr_free(&limits, high);
        // At least the blocks beyond `high`, which may have been lowered meanwhile.
        let blocks = blocks
            .max((depth + 1).saturating_sub(tuning.high))
            .min(depth);
        (Self::after(tuning, list, pops, depth - blocks), blocks)
    }

    /// State after a period.
    pub(super) fn decay(self, list: &List, depth: u32) -> Self {
        let mut tuning = Tuning::new(&list.limits());
        tuning.high = self.high;
        let _ = tuning.decay(&list.limits(), depth);
        Self {
            high: tuning.high,
            ..self
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn list() -> List {
        List::new(ListOptions::new(0, 2048), 63, 252, 2048)
    }

    #[test]
    fn one_word_holds_it() {
        let tuned = Tuned {
            high: u32::from(CAPACITY_MAX),
            alloc_factor: 5,
            free_count: 2016,
            depth: u32::from(CAPACITY_MAX),
            pops: u16::MAX,
        };
        assert_eq!(Tuned::of(tuned.bits()), tuned);
    }

    #[test]
    fn a_list_that_runs_empty_again_and_again_fetches_more_and_may_hold_more() {
        let mut tuned = Tuned::new(252);
        let mut pops = 0;
        let mut fetched = Vec::new();
        for _ in 0..8 {
            let (next, blocks) = tuned.refill(&list(), pops, 0, Shortage::None);
            fetched.push(blocks);
            pops += u64::from(blocks);
            tuned = next;
        }
        assert!(
            fetched.is_sorted() && fetched[0] == 63 && fetched[7] > 1000,
            "{fetched:?}"
        );
        assert_eq!(tuned.high, 2048);
    }

    #[test]
    fn one_that_only_frees_gives_back_more_at_a_time() {
        let mut tuned = Tuned::new(252);
        let mut depth = 0;
        let mut given = Vec::new();
        for _ in 0..6 {
            depth = tuned.high.max(depth);
            let (next, blocks) = tuned.spill(&list(), 0, depth, Shortage::None);
            given.push(blocks);
            depth -= blocks;
            tuned = next;
        }
        assert!(given[5] > given[0], "{given:?}");
    }

    #[test]
    fn what_is_refilled_does_not_count_as_freed() {
        let (tuned, blocks) = Tuned::new(252).refill(&list(), 0, 0, Shortage::None);
        // All blocks but our own are popped again; then the list runs empty.
        let (tuned, _) = tuned.refill(&list(), u64::from(blocks), 0, Shortage::None);
        assert_eq!(tuned.free_count, 0);
    }

    #[test]
    fn high_decays_to_its_least() {
        let mut tuned = Tuned::new(2048);
        for _ in 0..40 {
            tuned = tuned.decay(&list(), 0);
        }
        assert_eq!(tuned.high, 252);
    }

    #[test]
    fn what_a_spill_leaves_does_not_count_as_freed() {
        let (tuned, blocks) = Tuned::new(252).spill(&list(), 0, 252, Shortage::None);
        assert_eq!((blocks, tuned.free_count), (189, 252));
        // As many are freed as were taken off.
        let (tuned, _) = tuned.spill(&list(), 0, 252, Shortage::None);
        assert_eq!(tuned.free_count, 252 + 189);
    }
}
