//! Per-CPU stacks of blocks.
//!
//! Each shard has some *lists*, each a stack of blocks with a header of words:
//!
//! | word | holds | written by |
//! |---|---|---|
//! | the head | blocks in it (bits 0-15), blocks ever popped one by one (16-63) | sections of the shard's CPU; of a frozen list, [`BlockStacks::take_oldest`] |
//! | the bounds | [`Bounds`] | [`BlockStacks::set_bounds`], `freeze`, `thaw` |
//! | [`StackWord::First`] .. [`StackWord::Last`] | what the users of the list keep there | anyone, with atomic operations |
//!
//! A push succeeds below the limit and a pop above the floor, so a list is *frozen* by bounds that allow neither: that costs
//! the fast path nothing. Freezing is three steps, as for slots: set such bounds, pass [`crate::Machine::fence`], wait for
//! those who hold the list's lock; then what is there may be taken, until the list is thawed by other bounds. That needs no
//! fence, so an operation looks at the bounds first and at the depth then: an operation that is not refused sees what the
//! freezer left, or else the freezer waits for its end.
//!
//! Tokens rest on the head and the bounds: a wrong depth would make a block of an entry that was popped long ago, and a limit
//! above the capacity would write beyond the list. So both are read from outside, and written by nobody but the stacks
//! themselves: no safe code, whatever it calls in whatever order, has two tokens for one page.
//!
//! Shards without sections have a lock of their own for each list, which is only ever tried: a list whose lock is taken
//! is full to a push and empty to a pop.

use super::block::Block;
use crate::{AtomicWord, Order, Shard};

/// The most lists of a shard: one for each order.
pub const LISTS_MAX: usize = 11;
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
    /// Neither push nor pop: the list is its freezer's.
    pub const FROZEN: Self = Self {
        limit: 0,
        floor: u32::MAX,
    };
    /// The same before the fence: an operation may still be under way.
    pub(crate) const FREEZING: Self = Self {
        limit: 0,
        floor: u32::MAX - 1,
    };
    /// The same while blocks are taken: one at a time takes, and nobody thaws.
    pub(crate) const TAKING: Self = Self {
        limit: 0,
        floor: u32::MAX - 2,
    };

    /// A list that may hold `limit` blocks.
    #[inline]
    pub fn up_to(limit: u32) -> Self {
        Self { limit, floor: 0 }
    }

    /// Whether they are those of a list that is frozen, or about to be.
    #[inline]
    pub fn is_frozen(self) -> bool {
        self.floor >= Self::TAKING.floor
    }

    /// Writes them to the word that holds a list's, unless that is frozen: for whoever implements
    /// [`BlockStacks::set_bounds`].
    ///
    /// # Panics
    /// See there.
    pub fn set<W: AtomicWord>(self, word: &W, capacity: usize) -> bool {
        self.check(capacity);
        // Relaxed: the exchange looks again.
        let mut seen = word.load(Order::Relaxed);
        loop {
            if Self::of(seen).is_frozen() {
                return false;
            }
            if seen == self.bits() {
                return true;
            }
            // Full: a freezer may come between. Its bounds stay.
            match word.compare_exchange(seen, self.bits(), Order::Full) {
                Ok(_) => return true,
                Err(now) => seen = now,
            }
        }
    }

    /// Writes them to the word that holds a list's, which is frozen: for whoever implements [`BlockStacks::thaw`].
    ///
    /// # Panics
    /// See there.
    pub fn thaw<W: AtomicWord>(self, word: &W, capacity: usize) {
        self.check(capacity);
        // Full: whoever sees these bounds sees the list as it was left.
        let frozen = word.compare_exchange(Self::FROZEN.bits(), self.bits(), Order::Full);
        assert!(frozen.is_ok(), "a list that is thawed is frozen");
    }

    fn check(self, capacity: usize) {
        assert!(
            self.limit as usize <= capacity && !self.is_frozen(),
            "bounds stay within the capacity"
        );
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

/// A word of a list's header that is free for use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(usize)]
pub enum StackWord {
    /// See the module.
    First,
    /// See the module.
    Second,
    /// See the module.
    Third,
    /// See the module.
    Last,
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

    /// [`BlockStacks::push`] in a section; also fails where there is none.
    ///
    /// # Errors
    /// The block.
    #[inline(always)]
    fn try_push(&self, list: usize, block: Block) -> Result<(), Block> {
        self.push(list, block)
    }

    /// [`BlockStacks::pop`] in a section; also finds nothing where there is none.
    #[inline(always)]
    fn try_pop(&self, list: usize) -> Option<Block> {
        self.pop(list)
    }

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

    /// How full a list is and how often it was popped, for [`depth`] and [`pops`]; an `Acquire` load.
    fn head(&self, shard: Shard, list: usize) -> u64;

    /// A list's bounds, as a look: it may be frozen or thawed the next moment.
    fn bounds(&self, shard: Shard, list: usize) -> Bounds;

    /// Sets a list's bounds, unless it is frozen. Returns whether it was not.
    ///
    /// # Panics
    /// If the limit is above the list's capacity, or the bounds are those of frozen lists.
    fn set_bounds(&self, shard: Shard, list: usize, bounds: Bounds) -> bool;

    /// Freezes lists, which share a fence, and waits until no operation is under way in any of them: neither push nor pop
    /// succeeds there until [`BlockStacks::thaw`].
    ///
    /// # Panics
    /// If one of them is frozen already: one freezes at a time.
    fn freeze(&self, lists: &[(Shard, usize)]);

    /// Ends what [`BlockStacks::freeze`] began.
    ///
    /// # Panics
    /// If the list is not frozen, and as [`BlockStacks::set_bounds`].
    fn thaw(&self, shard: Shard, list: usize, bounds: Bounds);

    /// Takes up to `count` of the oldest blocks out of a frozen list, and returns how many.
    ///
    /// # Panics
    /// If the list is not frozen, or somebody else is taking blocks out of it.
    fn take_oldest(
        &self,
        shard: Shard,
        list: usize,
        count: usize,
        blocks: &mut Vec<Block>,
    ) -> usize;
}
