//! Per-CPU stacks of blocks.
//!
//! Each shard has some *lists*, each a stack of blocks with a header of words:
//!
//! | word | holds | written by |
//! |---|---|---|
//! | [`StackWord::Head`] | blocks in it (bits 0-15), blocks ever popped one by one (16-63) | sections of the shard's CPU; of a frozen shard, the freezer |
//! | [`StackWord::Bounds`] | [`Bounds`] | anyone, with atomic operations |
//! | [`StackWord::First`] .. [`StackWord::Last`] | what the users of the list keep there | anyone, with atomic operations |
//!
//! A push succeeds below the limit and a pop above the floor, so a list is *frozen* by bounds that allow neither: that costs
//! the fast path nothing. Freezing is three steps, as for slots: set [`Bounds::FROZEN`], pass [`crate::Machine::fence`],
//! call [`BlockStacks::settle`]; then the freezer alone may take what is there, until it sets other bounds.
//!
//! Shards without sections have a lock of their own for each list, which is only ever tried: a list whose lock is taken
//! is full to a push and empty to a pop.

use super::block::Block;
use crate::{AtomicWord, Shard};

/// The most lists of a shard.
pub const LISTS_MAX: usize = 8;
/// The most blocks that the lists of a shard hold together.
pub const LIST_BLOCKS_MAX: usize = 8_000;

/// How full a list may be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bounds {
    /// A push succeeds while fewer are in the list.
    pub limit: u32,
    /// A pop succeeds while more are in the list.
    pub floor: u32,
}

impl Bounds {
    /// Neither push nor pop.
    pub const FROZEN: Self = Self {
        limit: 0,
        floor: u32::MAX,
    };

    /// A list that may hold `limit` blocks.
    #[inline]
    pub fn up_to(limit: u32) -> Self {
        Self { limit, floor: 0 }
    }

    /// As a word.
    #[inline]
    pub fn bits(self) -> u64 {
        u64::from(self.floor) << 32 | u64::from(self.limit)
    }

    /// From a word.
    #[inline]
    pub fn of(bits: u64) -> Self {
        Self {
            limit: bits as u32,
            floor: (bits >> 32) as u32,
        }
    }
}

/// A word of a list's header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(usize)]
pub enum StackWord {
    /// See the module.
    Head = 0,
    /// See the module.
    Bounds = 1,
    /// Free for use.
    First = 2,
    /// Free for use.
    Second = 3,
    /// Free for use.
    Third = 4,
    /// Free for use.
    Last = 5,
    /// The lock of a list without sections.
    Lock = 6,
}

/// Blocks in a list, by its head.
#[inline]
pub fn depth(head: u64) -> usize {
    (head & 0xffff) as usize
}

/// Blocks popped one by one, by the head of their list; wraps after 2^48.
#[inline]
pub fn pops(head: u64) -> u64 {
    head >> 16
}

/// Per-CPU stacks of blocks. Cheap to clone; stays valid as long as its machine.
///
/// # Panics
/// All panic if there is no such list.
pub trait BlockStacks: Clone + Send + Sync + 'static {
    /// The words of headers, as seen from other CPUs.
    type Word: AtomicWord;

    /// Pushes onto the current CPU's list.
    ///
    /// # Errors
    /// The block, if the list is full (or frozen, or its lock is taken).
    fn push(&self, list: usize, block: Block) -> Result<(), Block>;

    /// Pops from the current CPU's list, unless that is empty (or frozen, or its lock is taken).
    fn pop(&self, list: usize) -> Option<Block>;

    /// Moves blocks off the end of `blocks` onto the current CPU's list in one section, as many as fit, and returns how
    /// many. The last of `blocks` is popped first.
    fn push_many(&self, list: usize, blocks: &mut Vec<Block>) -> usize;

    /// Pops up to `count` blocks of the current CPU's list in one section, appends them to `blocks`, the most recently
    /// pushed last, and returns how many. Not counted as popped.
    fn pop_many(&self, list: usize, count: usize, blocks: &mut Vec<Block>) -> usize;

    /// A word of a list's header, as seen from any CPU.
    fn word(&self, shard: Shard, list: usize, word: StackWord) -> &Self::Word;

    /// After [`Bounds::FROZEN`] was set on a list and a fence was passed: waits until no operation is under way there.
    fn settle(&self, shard: Shard, list: usize);

    /// Takes up to `count` of the oldest blocks out of a frozen, settled list, and returns how many.
    fn take_oldest(
        &self,
        shard: Shard,
        list: usize,
        count: usize,
        blocks: &mut Vec<Block>,
    ) -> usize;
}
