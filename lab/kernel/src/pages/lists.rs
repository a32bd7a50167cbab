//! The free pages of one CPU. Plain data: the caller has their lock.

use std::collections::VecDeque;

use bursar::pages::parts::{Limits, Shortage, Tuning};
use bursar_machine::pages::{Block, Order};

/// Largest order of the blocks that count as often needed.
#[doc(alias = "PAGE_ALLOC_COSTLY_ORDER")]
const COSTLY_ORDER: u8 = 3;
/// Order of a huge page, which has a list as well.
const HUGE_ORDER: u8 = 9;
const LISTS: usize = COSTLY_ORDER as usize + 2;

/// Index of a list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct List(usize);

impl List {
    /// List at which returns begin that no free has caused.
    pub(super) const FIRST: Self = Self(0);

    /// Returns the list of blocks of that order, if there is one.
    #[doc(alias = "pcp_allowed_order")]
    pub(super) fn of(order: Order) -> Option<Self> {
        match order.get() {
            0..=COSTLY_ORDER => Some(Self(order.index())),
            HUGE_ORDER => Some(Self(LISTS - 1)),
            _ => None,
        }
    }
}

/// The lists of one CPU.
#[doc(alias = "per_cpu_pages")]
pub(super) struct CpuLists {
    pub(super) tuning: Tuning,
    /// Whether the last block freed had several pages, up to [`COSTLY_ORDER`].
    #[doc(alias = "PCPF_PREV_FREE_HIGH_ORDER")]
    last_had_several: bool,
    /// Pages in all lists.
    pub(super) count: u32,
    /// Of each list the front is taken first, and the back given back first.
    lists: [VecDeque<Block>; LISTS],
}

impl CpuLists {
    pub(super) fn new(limits: &Limits) -> Self {
        Self {
            tuning: Tuning::new(limits),
            last_had_several: false,
            count: 0,
            lists: Default::default(),
        }
    }

    pub(super) fn is_empty(&self, List(list): List) -> bool {
        self.lists[list].is_empty()
    }

    /// Takes the block that came last.
    pub(super) fn pop(&mut self, List(list): List) -> Option<Block> {
        let block = self.lists[list].pop_front()?;
        self.count -= block.order().pages();
        Some(block)
    }

    /// Adds a block from the zone, to be taken after the present ones.
    pub(super) fn refill(&mut self, List(list): List, block: Block) {
        self.count += block.order().pages();
        self.lists[list].push_back(block);
    }

    /// Adds a block that was freed. Returns how many pages must go back to the zone now.
    pub(super) fn push(
        &mut self,
        List(list): List,
        block: Block,
        limits: &Limits,
        shortage: Shortage,
    ) -> u32 {
        let order = block.order();
        self.count += order.pages();
        self.lists[list].push_front(block);
        if self.freed(limits, order) {
            return self.return_all(limits);
        }
        let high = self.tuning.nr_high(limits, self.count, shortage);
        if self.count < high {
            return 0;
        }
        self.tuning.nr_free(limits, high)
    }

    /// Notes that a block is freed, with which the lists have `count` pages. Returns whether all pages go back, as far as
    /// one return may go: this CPU frees blocks of several pages one after the other, and other CPUs allocate them.
    ///
    /// Up to a batch of such pages stays, because a CPU's share of the cache is taken to be more than three batches
    /// (`PCPF_FREE_HIGH_BATCH`), as on servers of these years.
    #[doc(alias = "free_high")]
    fn freed(&mut self, limits: &Limits, order: Order) -> bool {
        let has_several = (1..=COSTLY_ORDER).contains(&order.get());
        let last_had_several = std::mem::replace(&mut self.last_had_several, has_several);
        let tuning = &mut self.tuning;
        tuning.alloc_factor >>= 1;
        let is_in_a_row = last_had_several
            && has_several
            && tuning.free_count >= limits.batch + limits.high_min / 2;
        let freed = tuning.free_count.saturating_add(order.pages());
        tuning.free_count = freed.min(limits.scaled_batch_max());
        is_in_a_row && self.count >= limits.batch
    }

    /// Lowers what is kept. Returns the pages of a return of all, as far as one may go.
    fn return_all(&mut self, limits: &Limits) -> u32 {
        let most = limits.scaled_batch_max();
        let high = self.tuning.high.min(limits.high_max);
        self.tuning.high = high.saturating_sub(most).max(limits.high_min);
        self.count.min(most)
    }

    /// Takes the oldest block of a list or, if that is empty, of the next that is not.
    pub(super) fn pop_oldest(&mut self, List(first): List) -> Option<Block> {
        let block = (first..first + LISTS).find_map(|list| self.lists[list % LISTS].pop_back())?;
        self.count -= block.order().pages();
        Some(block)
    }
}

#[cfg(test)]
impl CpuLists {
    /// Counts the pages one by one.
    pub(super) fn counted_pages(&self) -> u32 {
        let blocks = self.lists.iter().flatten();
        blocks.map(|block| block.order().pages()).sum()
    }
}

/// Worked cases of 754 GiB and 316 CPUs.
#[cfg(test)]
mod tests {
    use super::*;

    const LIMITS: Limits = Limits {
        batch: 63,
        high_min: 714,
        high_max: 78_186,
    };
    const THREE: Order = Order::new(3);

    /// Lists that have `count` pages by their own account, and freed 2,016 in a row.
    fn lists(count: u32) -> CpuLists {
        let mut lists = CpuLists::new(&LIMITS);
        (lists.count, lists.tuning.free_count) = (count, 2_016);
        lists
    }

    #[test]
    fn each_free_halves_the_next_refill_and_counts_for_the_next_return() {
        let mut lists = CpuLists::new(&LIMITS);
        lists.tuning.alloc_factor = 5;
        lists.freed(&LIMITS, Order::ZERO);
        assert_eq!((lists.tuning.alloc_factor, lists.tuning.free_count), (2, 1));
        lists.freed(&LIMITS, THREE);
        assert_eq!((lists.tuning.alloc_factor, lists.tuning.free_count), (1, 9));
        lists.tuning.allocated();
        assert_eq!(lists.tuning.free_count, 4);
    }

    #[test]
    fn blocks_of_several_pages_freed_in_a_row_go_back_at_once() {
        let frees_until_all = |count| {
            let mut lists = lists(count);
            lists.tuning.free_count = 0;
            (1..1_000).find(|_| lists.freed(&LIMITS, THREE))
        };
        // 53 blocks of 8 pages are more than a batch and half of `high_min`, 420.
        assert_eq!(frees_until_all(63), Some(54));
        assert_eq!(frees_until_all(62), None);
    }

    #[test]
    fn a_page_or_a_huge_block_in_between_ends_the_row() {
        for other in [0, 4, 9].map(Order::new) {
            let mut lists = lists(63);
            assert!(!lists.freed(&LIMITS, THREE), "the first");
            assert!(!lists.freed(&LIMITS, other));
            assert!(!lists.freed(&LIMITS, THREE), "{other:?}");
            assert!(lists.freed(&LIMITS, THREE));
        }
    }

    #[test]
    fn a_return_of_all_lowers_what_is_kept() {
        for (count, pages) in [(9, 9), (9_000, 2_016)] {
            let mut lists = lists(count);
            lists.tuning.high = 5_000;
            assert_eq!(lists.return_all(&LIMITS), pages);
            assert_eq!(lists.tuning.high, 2_984);
        }
    }
}
