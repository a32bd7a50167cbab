//! Rosters: the slots in use below a group, and the sum of all else.
//!
//! Most exact reads find the slots in use that the last one found. For these a group keeps a *roster*: the marked slots of its
//! subtree, and a base such that the base and the words of these slots add up to the group's numbers. A read by roster takes the lock
//! of its group's fold for a moment, and looks at one line or two for each slot. It writes to no group below, unless a slot was retired.
//!
//! Why the base stays right: words are never reset. A fold adds a difference to a group's totals and remembers the word, so totals
//! minus remembered words do not change. A hand-up moves numbers inside the sum. So neither a fold, nor a walk, nor the retirement of
//! a slot makes a roster wrong. Two things do, and each is counted in the group and in all groups above:
//!
//! * a slot is published. `publications` counts it before the update returns;
//! * a group below ends. `changes` counts it before the record can have another group.
//!
//! The own part of a group changes when it absorbs a child. That is counted in this group, before its numbers change.
//!
//! A read compares `publications` first, so it includes each update that returned before it. It compares `changes` last.
//!
//! **A later read of a group above finds what this one found**: in a marked slot, or in numbers that were folded after this read. The
//! retirement of a slot is counted in `retirements`, after the fence and before the mark is removed. A read compares that count after
//! the words. If it is that of the roster, all slots were still marked up to the root when their words had been read. If it is not,
//! the read adds up again, and looks at the state of each slot after its words. A slot that is published then is marked up to the
//! root. Of any other the read takes the folded words, and folds under the lock of the group's fold: folded numbers are marked up to the
//! root, or were handed up (`walk.rs`).
//!
//! A slot that has left the marks does not change until it is published again. The read moves it from the roster into the base, so
//! the reads that follow do not look at it. A slot that is clean and still marked stays: until the fence of its retirement, sections
//! that saw it published may commit.
//!
//! A roster is made by a task that has walked over the group and found that nothing was published since the walk before. It looks
//! at a bounded number of slots under each hold of a fold's lock. It gives up if numbers move from one group to another meanwhile,
//! or inside a group between two holds.

use bursar_machine::{AtomicWord, Machine, Shard, Slot};

use super::Layout;
use super::reading::add;

/// Slot in use.
#[derive(Clone)]
pub(super) struct Entry<M: Machine> {
    pub(super) slot: M::Slot,
    /// Group of the slot.
    pub(super) index: u32,
    pub(super) shard: Shard,
    /// Node of the shard's CPU.
    pub(super) home: u16,
    /// Whether its numbers are in the part that no living child accounts for.
    pub(super) is_own: bool,
}

/// Slots in use below a group, and the sum of all else.
pub(crate) struct Roster<M: Machine> {
    /// Counts of the group from before the roster was made.
    pub(super) publications: u64,
    pub(super) changes: u64,
    /// Count of the group from before all slots were seen published; `None` if one of them may be retired.
    pub(super) retirements: Option<u64>,
    pub(super) entries: Vec<Entry<M>>,
    /// The base of the totals, and of the own part.
    pub(super) totals: Vec<i64>,
    pub(super) own: Vec<i64>,
}

impl<M: Machine> Roster<M> {
    /// Adds a group's part of the base.
    pub(super) fn add_base(&mut self, base: &[i64], is_own: bool) {
        for (column, &value) in base.iter().enumerate() {
            add(&mut self.totals[column], value);
            if is_own {
                add(&mut self.own[column], value);
            }
        }
    }

    /// Adds a slot in use. `seen` has its words as the group's numbers have them, by column.
    pub(super) fn add_slot(&mut self, layout: &Layout, seen: &[i64], entry: Entry<M>) {
        for (column, _) in layout.words_of_columns() {
            let value = seen[column].wrapping_neg();
            entry.add_word(layout, column, value, &mut self.totals, &mut self.own);
        }
        self.entries.push(entry);
    }
}

impl<M: Machine> Entry<M> {
    /// Adds words, by column, to the numbers that they belong to.
    pub(super) fn add_to(
        &self,
        layout: &Layout,
        words: &[i64],
        totals: &mut [i64],
        own: &mut [i64],
    ) {
        for (column, _) in layout.words_of_columns() {
            self.add_word(layout, column, words[column], totals, own);
        }
    }

    /// Adds a word of a column to the numbers that it belongs to.
    #[inline]
    pub(super) fn add_word(
        &self,
        layout: &Layout,
        column: usize,
        value: i64,
        totals: &mut [i64],
        own: &mut [i64],
    ) {
        for number in layout.numbers(column, usize::from(self.home)) {
            add(&mut totals[number], value);
            if self.is_own {
                add(&mut own[number], value);
            }
        }
    }

    pub(super) fn prefetch(&self, layout: &Layout) {
        for word in layout.lines() {
            self.slot.word(self.shard, word).prefetch();
        }
    }
}
