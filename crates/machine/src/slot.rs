//! Per-CPU words: the *slot* of one group, and the operations that run as one section on the current CPU.
//!
//! A slot is `words` 64-bit words, once per *shard*. Shards `0..cpus` belong to CPUs. The last, the *extra* shard,
//! serves threads and CPUs that have no shard of their own. The first words have a fixed meaning:
//!
//! | word | name | written by |
//! |---|---|---|
//! | [`STATE`] | tag, `FROZEN`, epoch ([`State`]) | anyone, with atomic operations |
//! | [`CAP`] | largest stock this shard may hold, bytes; 0: none | anyone, with atomic operations |
//! | [`CHARGED`] | bytes charged here minus bytes uncharged here | sections of the shard's CPU; of a frozen shard, the freezer |
//! | [`CEILING`] | section shards: `CHARGED` may grow to this; atomic shards: what is left | likewise |
//! | `FIRST_STATISTIC..` | statistics | sections of the shard's CPU |
//!
//! The *room* of a shard is the number of bytes that may be charged there without any further check. It is `CEILING -
//! CHARGED` in a shard that is changed by sections. Both words may wrap, one before the other: only the difference counts. In a shard that is changed by plain atomic operations, which cannot
//! compare two words at once, it is the word `CEILING` itself. [`Slot::room`] hides the difference.
//!
//! # Sections and freezing
//! An operation looks at the state word and commits in one section: nothing else runs on that CPU's words in between.
//! Freezing a shard has three steps: set [`State::FROZEN`], pass [`crate::Machine::fence`], call [`Slot::settle`].
//! After that, no operation that began before commits any more, and later ones see `FROZEN` and do nothing. So the
//! freezer alone may write the shard until it clears the bit. The look at the state is an acquire (on x86-64 each load
//! is): an operation that sees the bit cleared sees the freezer's writes.
//!
//! [`Slot::add`] is exempt on machines without sections, where it may still commit. So a freezer may write `CHARGED`
//! and `CEILING` and nothing else.

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
/// Maximum number of words of a slot: half of a page of statistics beside the four fixed words.
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
    /// Tag: a task is marking the way to the root.
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

    /// Tag: `CLEAN`, `PUBLISHING` or `PUBLISHED`.
    #[inline]
    pub fn tag(self) -> u64 {
        self.0 & Self::TAG
    }

    /// Returns whether the shard is frozen.
    #[inline]
    pub fn is_frozen(self) -> bool {
        self.0 & Self::FROZEN != 0
    }

    /// Returns whether operations are under way in a shard without sections.
    #[inline]
    pub fn is_busy(self) -> bool {
        self.0 >= Self::BUSY_ONE
    }

    /// Returns the same state with another tag.
    #[inline]
    pub fn with_tag(self, tag: u64) -> Self {
        Self(self.0 & !Self::TAG | tag)
    }

    /// Epoch: number of times that the shard was cleaned, modulo 2^32.
    #[inline]
    pub fn epoch(self) -> u64 {
        self.0 & Self::EPOCH
    }

    /// Returns the clean state of the next epoch. A `PUBLISHING` begun in the old epoch can no longer end in
    /// `PUBLISHED`.
    #[inline]
    pub fn cleaned(self) -> Self {
        let epoch = (self.0 & Self::EPOCH).wrapping_add(Self::EPOCH_ONE) & Self::EPOCH;
        Self(self.0 & !(Self::TAG | Self::EPOCH) | epoch | Self::CLEAN)
    }
}

/// Result of an operation on the current CPU's shard.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// Done, in a published shard: nothing is left to do.
    Done,
    /// The shard is not published (or is frozen). If `committed`, the operation took effect, and the caller must
    /// publish the shard before it returns. If not, nothing happened, and the caller must publish and try again.
    Unpublished {
        /// The shard.
        shard: Shard,
        /// Whether the operation took effect.
        committed: bool,
    },
    /// The room does not cover a charge, or would exceed [`CAP`] afterwards. Nothing happened.
    Short,
    /// The caller is on another shard than it named. Nothing happened.
    Moved,
}

/// Handle of one group's per-CPU words. Cheap to clone; stays valid as long as its machine.
pub trait Slot: Clone + Send + Sync + 'static {
    /// The words, as seen from other CPUs.
    type Word: AtomicWord;

    /// Adds `delta` to statistic `word` of the current CPU's shard.
    ///
    /// Async-signal-safe. Never `Short` or `Moved`.
    ///
    /// # Panics
    /// If `word` is not below [`WORDS_MAX`]. A word beyond the slot's own belongs to another slot: a bug that is not
    /// detected.
    fn add(&self, word: usize, delta: i64) -> Outcome;

    /// Adds as [`Slot::add`] does. On [`Outcome::Done`] or a committed [`Outcome::Unpublished`] also returns the shard
    /// and the word's new value.
    fn add_fetch(&self, word: usize, delta: i64) -> (Outcome, Shard, i64);

    /// Charges `bytes` if the room of the current CPU's shard covers them. `Short` for 0 bytes.
    ///
    /// Async-signal-safe.
    fn charge(&self, bytes: u64) -> Outcome;

    /// Charges as [`Slot::charge`] does, in a few instructions without a call, for callers whose own fast path needs no
    /// stack.
    ///
    /// Returns whether the outcome is [`Outcome::Done`]. If not, nothing happened, and the caller calls
    /// [`Slot::charge`]. A machine without such a short way returns `false`.
    #[inline(always)]
    fn charge_at_once(&self, _bytes: u64) -> bool {
        false
    }

    /// Uncharges `bytes` into the room of the current CPU's shard, unless that would exceed [`CAP`].
    ///
    /// Async-signal-safe.
    fn uncharge(&self, bytes: u64) -> Outcome;

    /// Short form of [`Slot::uncharge`], as [`Slot::charge_at_once`] is of [`Slot::charge`].
    #[inline(always)]
    fn uncharge_at_once(&self, _bytes: u64) -> bool {
        false
    }

    /// Adds `charged` to the bytes charged and `ceiling` to the ceiling of `shard` in one step, if the caller runs
    /// there. `Short` if the room would become negative or larger than [`CAP`], so never if the two are equal.
    ///
    /// On the extra shard, which holds no stock, `charged` and `ceiling` must be equal. Async-signal-safe.
    fn adjust(&self, shard: Shard, charged: i64, ceiling: i64) -> Outcome;

    /// Adds to a word of the extra shard, from anywhere. The caller must then make sure that the extra shard is
    /// published. Async-signal-safe.
    fn add_extra(&self, word: usize, delta: i64);

    /// A word of a shard, as seen from any CPU.
    fn word(&self, shard: Shard, word: usize) -> &Self::Word;

    /// Bytes that may be charged on `shard` without any further check.
    fn room(&self, shard: Shard) -> i64;

    /// Waits until no operation is under way on `shard`. Call it after [`State::FROZEN`] was set and a fence was
    /// passed.
    fn settle(&self, shard: Shard);

    /// Takes the whole room of a frozen, settled shard (or of a shard that no task can use any more), bytes.
    fn take_room(&self, shard: Shard) -> u64;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn another_tag_changes_the_tag_alone() {
        let all = State(u64::MAX);
        for tag in [State::CLEAN, State::PUBLISHING, State::PUBLISHED] {
            assert_eq!(
                State(tag).with_tag(State::PUBLISHED),
                State(State::PUBLISHED)
            );
            let state = all.with_tag(tag);
            assert_eq!((state.tag(), state.0 | State::TAG), (tag, all.0));
            assert_eq!(state.with_tag(State::TAG), all);
        }
    }

    #[test]
    fn a_cleaned_state_is_of_the_next_epoch_and_keeps_all_else() {
        let epoch = |number: u64| number * State::EPOCH_ONE;
        for others in [
            0,
            State::FROZEN,
            3 * State::BUSY_ONE,
            State::FROZEN | State::BUSY,
        ] {
            for tag in [State::CLEAN, State::PUBLISHING, State::PUBLISHED] {
                for (before, after) in [(0, 1), (7, 8), (0xffff_ffff, 0)] {
                    let cleaned = State(others | tag | epoch(before)).cleaned();
                    assert_eq!(cleaned, State(others | epoch(after)));
                    assert_eq!(
                        (cleaned.tag(), cleaned.epoch()),
                        (State::CLEAN, epoch(after))
                    );
                }
            }
        }
    }
}
