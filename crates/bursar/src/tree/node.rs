//! Record of one group: its slot, marks, folded numbers, children, references and stage of life.

use std::sync::atomic::{AtomicU32, Ordering};

use bursar_machine::{AtomicWord, Lock, Machine, MemoryOrder, STATE, Shard, Slot, State};

use super::MarkSet;
use super::fold::{Fold, Sample};
use super::names::Names;
use super::roster::Roster;
use super::turns::Turns;
use crate::room;

/// Parent of the root.
pub(super) const NO_PARENT: u32 = u32::MAX;
/// Children of a group by ordinal (number among their siblings) and by name.
#[derive(Debug, Default)]
pub(crate) struct Children {
    /// Living children.
    pub(crate) by_name: Names,
    /// Children by ordinal, including removed ones that late updates may come from.
    pub(crate) ordinals: Vec<Option<u32>>,
    pub(super) free_ordinals: Vec<u32>,
    /// Set before the group is removed: it gets no more children.
    pub(super) is_closed: bool,
    /// Set when the group was removed.
    pub(super) removed: bool,
    pub(super) name: Box<str>,
}

impl Children {
    /// Makes room for one more child, and for the end of each. Returns the child's copy of its name, and its ordinal. `None` if there is no
    /// memory or no number for it.
    pub(super) fn make_room<M: Machine>(&mut self, name: &str) -> Option<(Box<str>, u32)> {
        let count = self.ordinals.len();
        let ordinal = match self.free_ordinals.last() {
            Some(&ordinal) => ordinal,
            None => {
                self.ordinals.try_reserve(1).ok()?;
                self.free_ordinals.try_reserve(count + 1).ok()?;
                ordinal_after::<M>(count)?
            }
        };
        Some((room::text(name)?, ordinal))
    }
}

/// The number of a child that comes after so many; `None` if there is none.
fn ordinal_after<M: Machine>(count: usize) -> Option<u32> {
    let next = u32::try_from(count).ok()?;
    (next < MarkSet::<M>::LIMIT).then_some(next)
}

/// References to a group, in one word. The low 38 bits count handles, pins and children. The high 26 bits count those
/// of the children that were removed and whose records have not ended; there are at most 2^26 groups.
///
/// All references keep the record. Handles, pins and living children also keep the name.
#[derive(Clone, Copy, Debug)]
pub(crate) struct References(u64);

impl References {
    const REMOVED_CHILD: u64 = 1 << 38;
    /// Most handles of a group, far below what fits. A program that leaks more is stopped, as [`std::sync::Arc`] stops it.
    const MAX: u64 = Self::REMOVED_CHILD / 2;

    fn count(self) -> u64 {
        self.0 % Self::REMOVED_CHILD
    }

    /// Returns whether nothing keeps the record except charged bytes.
    pub(crate) fn is_empty(self) -> bool {
        self.count() == 0
    }

    /// Returns whether nothing keeps the name.
    pub(crate) fn only_removed_children(self) -> bool {
        self.count() == self.0 / Self::REMOVED_CHILD
    }
}

/// Stage of a group's life.
pub(super) enum Life {
    Living,
    /// The group has lost its name. The groups above have not been told yet.
    Ending,
    /// The group has ended. References to its record may remain.
    Ended,
    /// The group has ended. Its record is listed, or a task that reaps has it.
    Listed,
}

/// Record of one group.
pub(crate) struct Node<M: Machine> {
    pub(crate) slot: M::Slot,
    pub(crate) published: MarkSet<M>,
    pub(crate) dirty: MarkSet<M>,
    pub(crate) fold: M::Spin<Fold<M>>,
    pub(super) turns: Turns<M>,
    pub(crate) children: M::Mutex<Children>,
    /// The subtree's value of each eager statistic, then the group's own part of each, which includes children that
    /// ended.
    pub(crate) eager: Box<[M::Word]>,
    /// Sum of the magnitudes that batched statistics reported, by column.
    pub(crate) reported: Box<[M::Word]>,
    /// Number of publications of slots of the subtree.
    pub(crate) publications: M::Word,
    /// Number of changes below that make a roster wrong, other than publications.
    pub(super) changes: M::Word,
    /// Number of times that slots below were retired.
    pub(super) retirements: M::Word,
    /// Start of the last walk of exactly this scope, ns.
    pub(crate) as_of_ns: M::Word,
    /// Number of children, including removed ones.
    pub(crate) child_count: M::Word,
    /// [`References`].
    pub(super) references: M::Word,
    /// [`Life`].
    pub(super) life: M::Word,
    // Written before the record's id is given out, and read by tasks that were given the id, so `Relaxed` is enough.
    pub(super) parent: AtomicU32,
    pub(super) ordinal: AtomicU32,
    pub(super) depth: AtomicU32,
}

impl<M: Machine> Node<M> {
    /// The parent's id; `None` for the root.
    #[inline]
    pub(crate) fn parent(&self) -> Option<u32> {
        match self.parent.load(Ordering::Relaxed) {
            NO_PARENT => None,
            parent => Some(parent),
        }
    }

    pub(crate) fn ordinal(&self) -> u32 {
        self.ordinal.load(Ordering::Relaxed)
    }

    pub(crate) fn depth(&self) -> u32 {
        self.depth.load(Ordering::Relaxed)
    }

    /// Whether nothing is marked in the group and below. The caller holds the fold's lock, so nobody removes a mark.
    pub(super) fn is_unmarked(&self) -> bool {
        self.published.is_empty() && self.dirty.is_empty()
    }

    pub(crate) fn name(&self) -> String {
        self.children.lock().name.to_string()
    }

    pub(crate) fn is_removed(&self) -> bool {
        // Full: pairs with the store in `Tree::detach_if`.
        self.life.load(MemoryOrder::Full) != Life::Living as u64
    }

    /// Marks the group as ended. From now on its record may be listed.
    pub(crate) fn end(&self) {
        // Full: pairs with the drop of the last reference. Either that drop finds the group ended, or we find the
        // reference gone.
        self.life.store(Life::Ended as u64, MemoryOrder::Full);
    }

    /// Returns whether the group has ended: it was removed, and operations that began before are over.
    pub(crate) fn has_ended(&self) -> bool {
        // Full: as in `is_removed`.
        self.life.load(MemoryOrder::Full) >= Life::Ended as u64
    }

    /// Claims the listing of the record. Returns `true` to one caller, if the group has ended and nothing refers to it.
    pub(crate) fn take_listing(&self) -> bool {
        let (ended, listed) = (Life::Ended as u64, Life::Listed as u64);
        // Full: pairs with `end`, and with other callers: one finds the group ended and not listed.
        self.references().is_empty()
            && self
                .life
                .compare_exchange(ended, listed, MemoryOrder::Full)
                .is_ok()
    }

    pub(crate) fn references(&self) -> References {
        // Full: pairs with `forget`.
        References(self.references.load(MemoryOrder::Full))
    }

    /// Adds a reference.
    pub(crate) fn refer(&self) {
        // Full: a new reference is made from an old one, which stays until this returns.
        let before = References(self.references.fetch_add(1, MemoryOrder::Full));
        assert!(before.count() < References::MAX, "too many handles");
    }

    /// Drops a reference; returns those that are left.
    pub(crate) fn forget(&self) -> References {
        // Full: pairs with `end`. Either we find the group ended, or the task that ends it finds the reference gone.
        References(self.references.fetch_sub(1, MemoryOrder::Full) - 1)
    }

    /// Notes that a child was removed; returns the references that are left.
    pub(crate) fn child_removed(&self) -> References {
        // Full: pairs with `references`, as `forget` does.
        let one = References::REMOVED_CHILD;
        References(self.references.fetch_add(one, MemoryOrder::Full) + one)
    }

    /// Notes that the record of a removed child has ended.
    pub(crate) fn forget_child(&self) {
        // Full: as in `forget`.
        let one = References::REMOVED_CHILD + 1;
        self.references.fetch_sub(one, MemoryOrder::Full);
    }

    /// Sets a published shard back to clean in a new epoch. Returns the epoch in which it is clean; `None` if a task publishes it.
    pub(super) fn clean_published(&self, shard: Shard) -> Option<u64> {
        let state = self.slot.word(shard, STATE);
        // Full: pairs with `finish_publishing`. A slot that is published is marked up to the root.
        let mut seen = State(state.load(MemoryOrder::Full));
        loop {
            let clean = match seen.tag() {
                State::PUBLISHED => seen.cleaned(),
                State::CLEAN => return Some(seen.epoch()),
                _ => return None,
            };
            // Full: pairs with `publish` and, on machines without sections, with the adder that looks at the state last.
            match state.compare_exchange(seen.0, clean.0, MemoryOrder::Full) {
                Ok(_) => return Some(clean.epoch()),
                Err(now) => seen = State(now),
            }
        }
    }

    /// Sets a shard back to clean in a new epoch, so that publications under way start again.
    pub(super) fn clean(&self, shard: Shard) {
        let state = self.slot.word(shard, STATE);
        let mut seen = State(state.load(MemoryOrder::Relaxed));
        // Full: pairs with `publish`.
        while let Err(now) = state.compare_exchange(seen.0, seen.cleaned().0, MemoryOrder::Full) {
            seen = State(now);
        }
    }

    /// Samples the group's counts, before a walk looks at its marks.
    pub(super) fn sample(&self) -> Sample {
        // Full: pairs with `mark_to_root` and `report`. Both count only after the mark or the addition that they count.
        Sample {
            publications: self.publications.load(MemoryOrder::Full),
            reports: self
                .reported
                .iter()
                .map(|word| word.load(MemoryOrder::Full))
                .collect(),
        }
    }

    /// Whether a roster of the group is not right any more, and will not be again.
    pub(super) fn has_outgrown(&self, roster: &Roster<M>) -> bool {
        // Full: as in `by_roster.rs`.
        self.publications.load(MemoryOrder::Full) != roster.publications
            || self.changes.load(MemoryOrder::Full) != roster.changes
    }
}

#[cfg(test)]
mod tests {
    use bursar_machine::Host;

    use super::super::fixture::{add_rows, child, roster, rows, tree, tree_with_rows};
    use super::super::fold::SHARDS_PER_HOLD;
    use super::super::{ROOT, flush_counts, retire};
    use super::*;

    #[test]
    fn the_end_of_a_child_needs_no_room() {
        let mut children = Children::default();
        for at in 0..100 {
            let (_, ordinal) = children
                .make_room::<Host>("child")
                .expect("there is memory");
            assert_eq!(ordinal, at);
            children.ordinals.push(None);
            assert!(children.free_ordinals.capacity() >= children.ordinals.len());
        }
    }

    #[test]
    fn a_group_has_as_many_children_as_marks() {
        let limit = MarkSet::<Host>::LIMIT;
        let after = |count: u32| ordinal_after::<Host>(count as usize);
        assert_eq!([0, limit - 1].map(after), [Some(0), Some(limit - 1)]);
        assert_eq!([limit, u32::MAX].map(after), [None; 2]);
    }

    #[test]
    #[should_panic(expected = "too many handles")]
    fn handles_that_leak_never_look_like_removed_children() {
        let node = tree();
        let node = node.node(ROOT);
        node.references.store((1 << 38) - 1, MemoryOrder::Full);
        node.refer();
    }

    /// The slots of a record stay marked when it gets another group.
    #[test]
    fn slots_of_a_former_group_are_retired() {
        let (tree, group) = tree_with_rows(SHARDS_PER_HOLD);
        assert_eq!(rows(&tree, ROOT), 7);
        assert_eq!(tree.detach(group), Ok(true));
        assert_eq!(
            tree.bury(group, |end| {
                end();
                true
            }),
            Some(ROOT)
        );
        assert_eq!(child(&tree, ROOT, "another"), group);
        (0..2).for_each(|_| retire(&tree));
        assert!(tree.node(group).published.is_empty());
        assert_eq!(flush_counts(&tree).retired, 2);
        assert_eq!([rows(&tree, ROOT), rows(&tree, group)], [7, 0]);
    }

    #[test]
    fn a_pass_drops_rosters_that_are_outgrown() {
        let (tree, group) = tree_with_rows(SHARDS_PER_HOLD);
        let make = || {
            assert_eq!([(); 2].map(|()| rows(&tree, ROOT)), [7; 2]);
            roster(&tree, ROOT).expect("a calm walk leaves one")
        };
        make();
        retire(&tree);
        assert!(roster(&tree, ROOT).is_some());
        add_rows(&tree, ROOT, 0);
        retire(&tree);
        assert!(roster(&tree, ROOT).is_none());
        let made = make();
        assert!(!tree.node(ROOT).has_outgrown(&made));
        tree.count(group, |node| &node.changes);
        assert!(tree.node(ROOT).has_outgrown(&made));
    }
}
