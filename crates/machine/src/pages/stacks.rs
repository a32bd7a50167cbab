//! Per-CPU stacks of blocks.
//!
//! Each shard has some *lists*, each a stack of blocks with a header of words:
//!
//! | word | holds | written by |
//! |---|---|---|
//! | the head | blocks in it (bits 0-15), blocks ever popped one by one (16-63) | sections of the shard's CPU; of a frozen list, [`BlockStacks::take_oldest`] |
//! | the bounds | [`Bounds`] | [`BlockStacks::set_bounds`], `freeze`, `thaw` |
//! | [`StackWord::First`] .. [`StackWord::Last`] | words for the users of the list | anyone, with atomic operations |
//!
//! A push succeeds below the limit and a pop above the floor, so a list is *frozen* by bounds that allow neither. That
//! costs the fast path nothing. Freezing has three steps, as for slots: set such bounds, pass
//! [`crate::Machine::fence`], and wait until no task holds the list's lock. Then its blocks may be taken, until other
//! bounds thaw the list. A thaw needs no fence, because an operation reads the bounds first and the depth afterwards.
//! An operation that is not refused sees the list as the freezer left it, or else the freezer waits for its end.
//!
//! The soundness of tokens depends on the head and the bounds. A wrong depth would make a block of an entry that was
//! popped long ago, and a limit above the capacity would write beyond the list. So callers can read both, and only the
//! stacks themselves write them. No sequence of calls from safe code yields two tokens for one page.
//!
//! Shards without sections have a lock of their own for each list. The lock is only ever tried: a list whose lock is
//! taken is full to a push and empty to a pop.

use super::block::Block;
use crate::{AtomicWord, MemoryOrder, Shard};

/// Maximum number of lists of a shard: one for each order.
pub const LISTS_MAX: usize = 11;
/// Maximum number of blocks that the lists of a shard hold together.
pub const LIST_BLOCKS_MAX: usize = 8_000;

/// Bounds on the number of blocks in a list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bounds {
    /// A push succeeds while the list has fewer blocks.
    pub limit: u32,
    /// A pop succeeds while the list has more blocks.
    pub floor: u32,
}

impl Bounds {
    /// Neither push nor pop succeeds: the list belongs to its freezer.
    pub const FROZEN: Self = Self {
        limit: 0,
        floor: u32::MAX,
    };
    /// As [`Bounds::FROZEN`], before the fence: an operation may still be under way.
    pub(crate) const FREEZING: Self = Self {
        limit: 0,
        floor: u32::MAX - 1,
    };
    /// As [`Bounds::FROZEN`], while blocks are taken: one task at a time takes, and none thaws.
    pub(crate) const TAKING: Self = Self {
        limit: 0,
        floor: u32::MAX - 2,
    };

    /// Bounds of a list that may hold `limit` blocks.
    #[inline]
    pub fn up_to(limit: u32) -> Self {
        Self { limit, floor: 0 }
    }

    /// Returns whether these are the bounds of a list that is frozen, or about to be.
    #[inline]
    pub fn is_frozen(self) -> bool {
        self.floor >= Self::TAKING.floor
    }

    /// Writes the bounds to the word of a list, unless the list is frozen. For implementations of
    /// [`BlockStacks::set_bounds`].
    ///
    /// # Panics
    /// As [`BlockStacks::set_bounds`].
    pub fn set<W: AtomicWord>(self, word: &W, capacity: usize) -> bool {
        self.check(capacity);
        // Relaxed: the exchange looks again. A call that returns without one had its effect when the word had that value.
        let mut seen = word.load(MemoryOrder::Relaxed);
        loop {
            if Self::of(seen).is_frozen() {
                return false;
            }
            if seen == self.bits() {
                return true;
            }
            // Full: a freezer may come in between. Its bounds stay.
            match word.compare_exchange(seen, self.bits(), MemoryOrder::Full) {
                Ok(_) => return true,
                Err(now) => seen = now,
            }
        }
    }

    /// Writes the bounds to the word of a list that is frozen. For implementations of [`BlockStacks::thaw`].
    ///
    /// # Panics
    /// As [`BlockStacks::thaw`].
    pub fn thaw<W: AtomicWord>(self, word: &W, capacity: usize) {
        self.check(capacity);
        // Full: an operation that sees these bounds sees the list as the freezer left it.
        let frozen = word.compare_exchange(Self::FROZEN.bits(), self.bits(), MemoryOrder::Full);
        assert!(frozen.is_ok(), "a list that is thawed is frozen");
    }

    fn check(self, capacity: usize) {
        assert!(
            self.limit as usize <= capacity && !self.is_frozen(),
            "bounds stay within the capacity"
        );
    }

    /// The bounds as a word.
    #[inline]
    pub fn bits(self) -> u64 {
        u64::from(self.floor) << 32 | u64::from(self.limit)
    }

    /// The bounds from a word.
    #[inline]
    pub fn of(bits: u64) -> Self {
        Self {
            limit: bits as u32,
            floor: (bits >> 32) as u32,
        }
    }
}

/// Word of a list's header that is free for use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(usize)]
pub enum StackWord {
    /// First free word.
    First,
    /// Second free word.
    Second,
    /// Third free word.
    Third,
    /// Last free word.
    Last,
}

/// Number of blocks in a list, from its head.
#[inline]
pub fn depth(head: u64) -> usize {
    (head & 0xffff) as usize
}

/// Number of blocks popped one by one, from the head of their list; wraps after 2^48.
#[inline]
pub fn pops(head: u64) -> u64 {
    head >> 16
}

/// Per-CPU stacks of blocks. Cheap to clone; stays valid as long as its machine.
///
/// # Panics
/// All functions panic if there is no such list.
pub trait BlockStacks: Clone + Send + Sync + 'static {
    /// The words of headers, as seen from other CPUs.
    type Word: AtomicWord;

    /// Pushes onto the current CPU's list.
    ///
    /// # Errors
    /// The block, if the list is full (or frozen, or its lock is taken).
    fn push(&self, list: usize, block: Block) -> Result<(), Block>;

    /// Does [`BlockStacks::push`] in a section; also fails where there is no section.
    ///
    /// # Errors
    /// The block.
    #[inline(always)]
    fn try_push(&self, list: usize, block: Block) -> Result<(), Block> {
        self.push(list, block)
    }

    /// Does [`BlockStacks::pop`] in a section; also finds nothing where there is no section.
    #[inline(always)]
    fn try_pop(&self, list: usize) -> Option<Block> {
        self.pop(list)
    }

    /// Pops from the current CPU's list, unless that is empty (or frozen, or its lock is taken).
    fn pop(&self, list: usize) -> Option<Block>;

    /// Moves blocks off the end of `blocks` onto the current CPU's list in one section, as many as fit, and returns
    /// their number. The last of `blocks` is popped first.
    fn push_many(&self, list: usize, blocks: &mut Vec<Block>) -> usize;

    /// Pops up to `count` blocks of the current CPU's list in one section and appends them to `blocks`, the most
    /// recently pushed last. Returns their number. They do not count as popped.
    fn pop_many(&self, list: usize, count: usize, blocks: &mut Vec<Block>) -> usize;

    /// A word of a list's header, as seen from any CPU.
    fn word(&self, shard: Shard, list: usize, word: StackWord) -> &Self::Word;

    /// Head of a list at this moment, for [`depth`] and [`pops`].
    fn head(&self, shard: Shard, list: usize) -> u64;

    /// Bounds of a list at this moment: the list may be frozen or thawed the next.
    fn bounds(&self, shard: Shard, list: usize) -> Bounds;

    /// Sets a list's bounds, unless it is frozen. Returns whether it did.
    ///
    /// # Panics
    /// If the limit is above the list's capacity, or the bounds are those of frozen lists.
    fn set_bounds(&self, shard: Shard, list: usize, bounds: Bounds) -> bool;

    /// Freezes lists, which share a fence, and waits until no operation is under way in any of them. Neither push nor
    /// pop succeeds there until [`BlockStacks::thaw`].
    ///
    /// # Panics
    /// If one of them is frozen already, because only one task may freeze at a time.
    fn freeze(&self, lists: &[(Shard, usize)]);

    /// Thaws a list that [`BlockStacks::freeze`] has frozen.
    ///
    /// # Panics
    /// If the list is not frozen, and as [`BlockStacks::set_bounds`].
    fn thaw(&self, shard: Shard, list: usize, bounds: Bounds);

    /// Takes up to `count` of the oldest blocks out of a frozen list, and returns their number.
    ///
    /// # Panics
    /// If the list is not frozen, or another task is taking blocks out of it.
    fn take_oldest(
        &self,
        shard: Shard,
        list: usize,
        count: usize,
        blocks: &mut Vec<Block>,
    ) -> usize;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_largest_floors_are_those_of_frozen_lists() {
        let with_floor = |floor| Bounds { limit: 0, floor };
        let frozen = [Bounds::FREEZING, Bounds::TAKING, Bounds::FROZEN];
        assert!(frozen.into_iter().all(Bounds::is_frozen));
        let [freezing, taking, alone] = frozen.map(Bounds::bits);
        assert!(freezing != taking && freezing != alone && taking != alone);
        for floor in [0, 1, u32::MAX / 2, u32::MAX - 3] {
            assert!(!with_floor(floor).is_frozen(), "{floor}");
        }
    }
}
