//! The free pages of one CPU. Plain data: the caller has their lock.

use std::collections::VecDeque;

use bursar::pages::parts::{COSTLY_ORDER, Limits, Shortage, Tuning};
use bursar_machine::pages::{Block, Order};

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
    /// Pages in all lists.
    pub(super) count: u32,
    /// Of each list the front is taken first, and the back given back first.
    lists: [VecDeque<Block>; LISTS],
}

impl CpuLists {
    pub(super) fn new(limits: &Limits) -> Self {
        Self {
            tuning: Tuning::new(limits),
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
        let purpose = self.tuning.freed(limits, order, self.count);
        let high = self.tuning.nr_high(limits, self.count, shortage, purpose);
        if self.count < high {
            return 0;
        }
        self.tuning.nr_free(limits, self.count, high, purpose)
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
