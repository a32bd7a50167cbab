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

use std::sync::Arc;

use bursar_machine::{AtomicWord, Lock, Machine, MemoryOrder, STATE, Shard, Slot, State};

use super::fold::add;
use super::read::Folded;
use super::walk::dirty_from;
use super::{FlushPolicy, LEVELS, Layout, Node, Tree};

/// Slots whose words are fetched ahead: as many transfers as a CPU has under way at once, and some.
const SLOTS_AHEAD: usize = 16;

/// Slot in use.
struct Entry<M: Machine> {
    slot: M::Slot,
    shard: Shard,
    /// Node of the shard's CPU.
    home: u16,
    /// Whether its numbers are in the part that no living child accounts for.
    is_own: bool,
}

/// Slots in use below a group, and the sum of all else.
pub(crate) struct Roster<M: Machine> {
    /// Counts of the group from before the roster was made.
    publications: u64,
    changes: u64,
    entries: Vec<Entry<M>>,
    /// The base of the totals, and of the own part.
    totals: Vec<i64>,
    own: Vec<i64>,
}

/// A group's place below the scope of a roster.
#[derive(Clone, Copy)]
struct Below {
    parent: u32,
    /// Levels between the scope and the parent.
    level: usize,
    /// Whether the parent's numbers are in the scope's own part.
    is_own: bool,
}

impl<M: Machine> Roster<M> {
    /// Whether it is not right any more, and will not be again.
    pub(super) fn is_old(&self, node: &Node<M>) -> bool {
        // Full: as in `Tree::by_roster`.
        node.publications.load(MemoryOrder::Full) != self.publications
            || node.changes.load(MemoryOrder::Full) != self.changes
    }

    /// The numbers now.
    fn sum(&self, layout: &Layout) -> Folded {
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
    fn add_base(&mut self, base: &[i64], is_own: bool) {
        for (column, &value) in base.iter().enumerate() {
            add(&mut self.totals[column], value);
            if is_own {
                add(&mut self.own[column], value);
            }
        }
    }

    /// Adds a slot in use. `seen` has its words as the group's numbers have them, by column.
    fn add_slot(&mut self, layout: &Layout, seen: &[i64], entry: Entry<M>) {
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

impl<M: Machine> Tree<M> {
    /// The numbers of a group by its roster: they include each update that returned before this call. `None` if the roster is not
    /// right any more. Adds the number of slots looked at to `looked_at`.
    pub(super) fn by_roster(
        &self,
        index: u32,
        roster: &Roster<M>,
        looked_at: &mut u64,
    ) -> Option<Folded> {
        let node = self.node(index);
        // Full: an update's publication is counted before the update returns.
        if node.publications.load(MemoryOrder::Full) != roster.publications {
            return None;
        }
        let folded = roster.sum(&self.layout);
        *looked_at += roster.entries.len() as u64;
        // Full: comes after the words. See the module.
        (node.changes.load(MemoryOrder::Full) == roster.changes).then_some(folded)
    }

    /// Makes a roster, unless numbers move meanwhile from one group to another, or a slot is marked and not published.
    pub(super) fn make_roster(&self, scope: u32) {
        let node = self.node(scope);
        let zeroes = vec![0; self.layout.width];
        let mut roster = Roster {
            // Full: loaded before we look at any mark.
            publications: node.publications.load(MemoryOrder::Full),
            changes: node.changes.load(MemoryOrder::Full),
            entries: Vec::new(),
            totals: zeroes.clone(),
            own: zeroes,
        };
        if self
            .enlist(scope, None, &mut roster, &mut Vec::new())
            .is_none()
            || roster.is_old(node)
        {
            return;
        }
        roster.entries.shrink_to_fit();
        let mut roster = Some(Arc::new(roster));
        // The one before is dropped when the lock is free again.
        std::mem::swap(&mut node.fold.lock().roster, &mut roster);
    }

    /// Counts a change in the group and above: rosters of before are not right any more.
    pub(super) fn count_change(&self, index: u32) {
        if self.policy != FlushPolicy::Combining {
            // No rosters.
            return;
        }
        for at in self.chain(index) {
            // Full: pairs with `by_roster`.
            self.node(at).changes.fetch_add(1, MemoryOrder::Full);
        }
    }

    /// Adds a group and all below it that is marked. `None` if a slot is marked and not published, or if numbers moved up meanwhile
    /// from one of these groups to another: they might be in the sum twice, or not at all.
    fn enlist(
        &self,
        index: u32,
        below: Option<Below>,
        roster: &mut Roster<M>,
        way: &mut Vec<u32>,
    ) -> Option<()> {
        let node = self.node(index);
        let first = way.len();
        roster.entries.reserve(self.shards_per_hold);
        let mut fold = node.fold.lock();
        let is_own = match below {
            None => {
                roster.totals.copy_from_slice(&fold.totals);
                roster.own.copy_from_slice(&fold.own);
                true
            }
            // The mark has outlived the group, whose numbers are in the groups above.
            Some(below) if !self.is_child(below.parent, node, &fold) => return Some(()),
            Some(below) => {
                // An absorbed child counts as the scope's own, and so does all below it.
                let is_own = match below.level {
                    0 => fold.is_absorbed,
                    _ => below.is_own,
                };
                roster.add_base(&fold.up, is_own);
                is_own
            }
        };
        let (received, folds) = (fold.received, fold.folds);
        let mut from = Some(0);
        while let Some(at) = from {
            let mut is_in_use = true;
            from = self.some_marked(node, at, |shard| {
                // Full: if it is published, all its marks are set, and it is counted.
                let state = State(node.slot.word(shard, STATE).load(MemoryOrder::Full));
                is_in_use &= state.tag() == State::PUBLISHED;
                let entry = Entry {
                    slot: node.slot.clone(),
                    shard,
                    home: self.home(shard) as u16,
                    is_own,
                };
                roster.add_slot(&self.layout, fold.seen(&self.layout, shard), entry);
            });
            if !is_in_use {
                return None;
            }
            if from.is_some() {
                drop(fold);
                roster.entries.reserve(self.shards_per_hold);
                fold = node.fold.lock();
                // Else what a later shard has in the base and what it has in its remembered words are of different moments.
                if (fold.received, fold.folds) != (received, folds) {
                    return None;
                }
            }
        }
        let mut next = dirty_from(node, 0, way);
        drop(fold);
        if way.len() == first {
            return Some(());
        }
        let level = below.map_or(0, |below| below.level + 1);
        while way.len() > first {
            self.children_at(node, way, first);
            // As in a walk, a record may be used again elsewhere while we are on our way to it.
            if level < LEVELS {
                for at in first..way.len() {
                    let below = Below {
                        parent: index,
                        level,
                        is_own,
                    };
                    self.enlist(way[at], Some(below), roster, way)?;
                }
            }
            way.truncate(first);
            if let Some(from) = next {
                let fold = node.fold.lock();
                next = dirty_from(node, from, way);
                drop(fold);
            }
        }
        (node.fold.lock().received == received).then_some(())
    }
}
