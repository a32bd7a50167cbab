//! Rosters: the slots in use below a group, and the sum of all else.
//!
//! Most exact reads find the slots in use that the last one found. For these a group keeps a *roster*: the marked slots of its
//! subtree, and a base such that the base and the words of these slots add up to the group's numbers. A read by roster takes the lock
//! of its group's fold for a moment, writes to no group below, and looks at one line or two for each slot.
//!
//! Why the base stays right: words are never reset. A fold adds a difference to a group's totals and remembers the word, so totals
//! minus remembered words do not change. A hand-up moves numbers inside the sum. So neither a fold nor a walk makes a roster wrong.
//! Three things do, and each is counted in the group and in all groups above:
//!
//! * a slot that is not on the roster is published. `publications` counts it before the update returns;
//! * a slot on it is retired. `changes` counts it after the fence and before the mark is removed;
//! * a group below ends. `changes` counts it before the record can have another group.
//!
//! The own part of a group changes when it absorbs a child. That is counted in this group, before its numbers change.
//!
//! A read compares `publications` first, so it includes each update that returned before it. It compares `changes` after the
//! words, so all slots that it read were still marked up to the root when it had read them. So **a later read of a group above
//! finds what this one found**: in a marked slot, or in numbers that were folded after this read.
//!
//! A roster is made by a task that has walked over the group and found that nothing was published since the walk before. It looks
//! at a bounded number of slots under each hold of a fold's lock. It gives up if numbers move from one group to another meanwhile,
//! or inside a group between two holds.

use bursar_machine::{AtomicWord, Machine, MemoryOrder, Shard, Slot};

use super::Layout;
use super::reading::{Folded, add};

/// Slots whose words are fetched ahead: as many transfers as a CPU has under way at once, and some.
const SLOTS_AHEAD: usize = 16;

/// Slot in use.
pub(super) struct Entry<M: Machine> {
    pub(super) slot: M::Slot,
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
    pub(super) entries: Vec<Entry<M>>,
    /// The base of the totals, and of the own part.
    pub(super) totals: Vec<i64>,
    pub(super) own: Vec<i64>,
}

impl<M: Machine> Roster<M> {
    /// The numbers now.
    pub(super) fn sum(&self, layout: &Layout) -> Folded {
        let (mut totals, mut own) = (self.totals.clone(), self.own.clone());
        self.entries
            .iter()
            .take(SLOTS_AHEAD)
            .for_each(|entry| entry.prefetch(layout));
        for (at, entry) in self.entries.iter().enumerate() {
            if let Some(ahead) = self.entries.get(at + SLOTS_AHEAD) {
                ahead.prefetch(layout);
            }
            for (column, word) in layout.words_of_columns() {
                // Full: comes before the look at `changes`.
                let value = entry
                    .slot
                    .word(entry.shard, word)
                    .load_signed(MemoryOrder::Full);
                for column in layout.numbers(column, usize::from(entry.home)) {
                    add(&mut totals[column], value);
                    if entry.is_own {
                        add(&mut own[column], value);
                    }
                }
            }
        }
        Folded {
            totals,
            own,
            errors: vec![Some(0); layout.columns.len()],
            is_absorbed: false,
        }
    }

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
            for share in layout.numbers(column, usize::from(entry.home)) {
                add(&mut self.totals[share], seen[column].wrapping_neg());
                if entry.is_own {
                    add(&mut self.own[share], seen[column].wrapping_neg());
                }
            }
        }
        self.entries.push(entry);
    }
}

impl<M: Machine> Entry<M> {
    fn prefetch(&self, layout: &Layout) {
        for word in layout.lines() {
            self.slot.word(self.shard, word).prefetch();
        }
    }
}
