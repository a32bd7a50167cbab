//! Per-CPU words: the *slot* of one group, and the operations that run as one section on the current CPU.
//!
//! A slot is `words` 64-bit words, once per *shard*. Shards `0..cpus` belong to CPUs; the last, the *extra* shard, serves
//! threads and CPUs that have no shard of their own. The first words have a fixed meaning:
//!
//! | word | name | written by |
//! |---|---|---|
//! | [`STATE`] | tag, `FROZEN`, epoch ([`State`]) | anyone, with atomic operations |
//! | [`CAP`] | largest stock this shard may hold, bytes; 0: none | anyone, with atomic operations |
//! | [`CHARGED`] | bytes charged here minus bytes uncharged here | sections of the shard's CPU; of a frozen shard, the freezer |
//! | [`CEILING`] | section shards: `CHARGED` may grow to this; atomic shards: what is left | likewise |
//! | `FIRST_STATISTIC..` | statistics | sections of the shard's CPU |
//!
//! The *room* of a shard (how much more may be charged without asking anyone) is `CEILING - CHARGED` in a shard that is
//! changed by sections, and the word `CEILING` itself in one changed by plain atomic operations, which cannot compare two
//! words at once. [`Slot::room`] hides the difference.
//!
//! # Sections and freezing
//! An operation looks at the state word and commits in one section: nothing else runs on that CPU's words in between.
//! Freezing a shard is three steps: set [`State::FROZEN`], pass [`crate::Machine::fence`], call [`Slot::settle`]. After
//! that, no operation that began before commits any more, and those that begin later see `FROZEN` and do nothing, so the
//! freezer alone may write the shard until it clears the bit. The look at the state is an acquire (on x86-64 each load is):
//! whoever sees the bit cleared sees what the freezer wrote. [`Slot::add`] is exempt on machines without sections: there
//! it may still commit, which is why nothing but `CHARGED` and `CEILING` may be written by a freezer.

use crate::AtomicWord;

/// Index of a shard: a CPU number, or the number of CPUs for the extra shard.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Shard(pub u32);

impl Shard {
    /// The shard as an index.
    #[inline]
    pub fn index(self) -> usize {
        self.0 as usize
    }
}

/// Index of the state word.
pub const STATE: usize = 0;
/// Index of the stock cap, bytes.
pub const CAP: usize = 1;
/// Index of the bytes charged.
pub const CHARGED: usize = 2;
/// Index of the ceiling (or the room, see the module).
pub const CEILING: usize = 3;
/// Index of the first statistic.
pub const FIRST_STATISTIC: usize = 4;
/// The most words a slot may have: half of a page of statistics beside the four fixed words.
pub const WORDS_MAX: usize = 256;

/// The state word, decoded.
///
/// Bits 0-1 hold the tag, bit 2 `FROZEN`, bits 8-39 the epoch, bits 40-63 count operations under way in shards without
/// sections. Sections compare the low byte alone with [`State::PUBLISHED`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct State(pub u64);

impl State {
    /// Tag: nothing was added since the last flush. The state of zeroed memory.
    pub const CLEAN: u64 = 0;
    /// Tag: somebody is marking the way to the root.
    pub const PUBLISHING: u64 = 1;
    /// Tag: the way to the root is marked; a flush will come here.
    pub const PUBLISHED: u64 = 2;
    /// Flag: the freezer owns the account of this shard.
    pub const FROZEN: u64 = 4;
    /// One operation under way (shards without sections).
    pub const BUSY_ONE: u64 = 1 << 40;
    /// All operations under way (shards without sections).
    pub const BUSY: u64 = !(Self::BUSY_ONE - 1);
    const TAG: u64 = 3;
    const EPOCH_ONE: u64 = 1 << 8;
    const EPOCH: u64 = 0xffff_ffff << 8;

    /// The tag: `CLEAN`, `PUBLISHING` or `PUBLISHED`.
    #[inline]
    pub fn tag(self) -> u64 {
        self.0 & Self::TAG
    }

    /// Whether the shard is frozen.
    #[inline]
    pub fn is_frozen(self) -> bool {
        self.0 & Self::FROZEN != 0
    }

    /// Whether operations are under way in a shard without sections.
    #[inline]
    pub fn is_busy(self) -> bool {
        self.0 >= Self::BUSY_ONE
    }

    /// The same state with another tag.
    #[inline]
    pub fn with_tag(self, tag: u64) -> Self {
        Self(self.0 & !Self::TAG | tag)
    }

    /// The epoch: how often the shard was cleaned, modulo 2^32.
    #[inline]
    pub fn epoch(self) -> u64 {
        self.0 & Self::EPOCH
    }

    /// Clean, in the next epoch: a `PUBLISHING` begun in the old epoch can no longer end in `PUBLISHED`.
    #[inline]
    pub fn cleaned(self) -> Self {
        let epoch = (self.0 & Self::EPOCH).wrapping_add(Self::EPOCH_ONE) & Self::EPOCH;
        Self(self.0 & !(Self::TAG | Self::EPOCH) | epoch | Self::CLEAN)
    }
}

/// How an operation on the current CPU's shard ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// Done, in a published shard: nothing else to do.
    Done,
    /// The shard is not published (or is frozen). If `committed`, the operation took effect and the caller must
    /// publish the shard before it returns; if not, nothing happened and the caller must publish and try again.
    Unpublished {
        /// Where.
        shard: Shard,
        /// Whether the operation took effect.
        committed: bool,
    },
    /// The room does not cover a charge, or would exceed [`CAP`] afterwards. Nothing happened.
    Short,
    /// The caller is on another shard than it named. Nothing happened.
    Moved,
}

/// A handle of one group's per-CPU words. Cheap to clone; stays valid as long as its machine.
pub trait Slot: Clone + Send + Sync + 'static {
    /// The words, as seen from other CPUs.
    type Word: AtomicWord;

    /// Adds `delta` to statistic `word` of the current CPU's shard.
    ///
    /// Async-signal-safe. Never `Short` or `Moved`.
    ///
    /// # Panics
    /// If `word` is not below [`WORDS_MAX`]. A word beyond the slot's own is somebody else's: a bug that is not looked for.
    fn add(&self, word: usize, delta: i64) -> Outcome;

    /// Like [`Slot::add`], and on [`Outcome::Done`] or a committed [`Outcome::Unpublished`] also tells where and what
    /// the word holds now.
    fn add_fetch(&self, word: usize, delta: i64) -> (Outcome, Shard, i64);

    /// Charges `bytes` if the room of the current CPU's shard covers them. `Short` for 0 bytes.
    ///
    /// Async-signal-safe.
    fn charge(&self, bytes: u64) -> Outcome;

    /// [`Slot::charge`] where that is a few instructions and no call, for those whose own fast path shall need no stack. Says
    /// whether it was [`Outcome::Done`]; if not, nothing happened, and the caller asks [`Slot::charge`]. A machine that has
    /// nothing shorter says no.
    #[inline(always)]
    fn charge_at_once(&self, _bytes: u64) -> bool {
        false
    }

    /// Uncharges `bytes` into the room of the current CPU's shard, unless that would exceed [`CAP`].
    ///
    /// Async-signal-safe.
    fn uncharge(&self, bytes: u64) -> Outcome;

    /// [`Slot::uncharge`], as [`Slot::charge_at_once`] is to [`Slot::charge`].
    #[inline(always)]
    fn uncharge_at_once(&self, _bytes: u64) -> bool {
        false
    }

    /// Adds `charged` to the bytes charged and `ceiling` to the ceiling of `shard` in one step, if the caller runs there,
    /// and the room becomes neither negative nor larger than [`CAP`] (`Short`).
    ///
    /// On the extra shard, which holds no stock, `charged` and `ceiling` must be equal. Async-signal-safe.
    fn adjust(&self, shard: Shard, charged: i64, ceiling: i64) -> Outcome;

    /// Adds to a word of the extra shard, from anywhere; the caller must then see to it that the extra shard is
    /// published. Async-signal-safe.
    fn add_extra(&self, word: usize, delta: i64);

    /// A word of a shard, as seen from any CPU.
    fn word(&self, shard: Shard, word: usize) -> &Self::Word;

    /// What may be charged on `shard` without asking anyone, bytes.
    fn room(&self, shard: Shard) -> i64;

    /// After [`State::FROZEN`] was set on `shard` and a fence was passed: waits until no operation is under way there.
    fn settle(&self, shard: Shard);

    /// Takes the whole room of a frozen, settled shard (or of a shard that nobody can use any more), bytes.
    fn take_room(&self, shard: Shard) -> u64;
}
