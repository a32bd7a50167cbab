//! Folded numbers of one group: the result of a read that looks no further, and the part that its parent has not received.
//!
//! A shard's words are never reset. The fold keeps each word's value at the last look and adds the difference. An
//! update that comes meanwhile is in the next difference.
//!
//! A fold adds each difference to the totals and to the part for the parent at once. A task that hands that part up holds both folds'
//! locks. So each number is in one place at any time, and tasks that walk over the same groups need no turns.

use std::alloc::handle_alloc_error;
use std::sync::Arc;

use bursar_machine::{AtomicWord, Machine, MemoryOrder, Shard, Slot};

use super::Layout;
use super::reading::add;
use super::roster::Roster;
use crate::room;

/// Shards looked at under one hold of a fold's lock, at most.
pub(crate) const SHARDS_PER_HOLD: usize = 64;

#[derive(Debug)]
struct Seen {
    shard: Shard,
    /// Values of the words, by column, for columns that have words.
    words: Box<[i64]>,
    /// Whether a difference was found since the last pass over idle slots.
    has_changed: bool,
}

impl Seen {
    /// `None` if there is no memory for it.
    fn new(layout: &Layout, shard: Shard) -> Option<Self> {
        Some(Self {
            shard,
            words: room::boxed(layout.columns.len(), || 0)?,
            has_changed: true,
        })
    }
}

/// Counts of publications and reports that a walk samples before it looks at the marks and reads the words.
#[derive(Debug)]
pub(crate) struct Sample {
    pub(super) publications: u64,
    pub(super) reports: Vec<u64>,
}

/// Folded numbers of one group; see the module.
pub(crate) struct Fold<M: Machine> {
    /// Slots in use, for exact reads that find no others.
    pub(super) roster: Option<Arc<Roster<M>>>,
    /// The subtree's numbers, as far as they were folded and handed up.
    pub(crate) totals: Vec<i64>,
    /// The part that no living child accounts for.
    pub(crate) own: Vec<i64>,
    /// Folded here, not yet handed to the parent.
    pub(super) up: Vec<i64>,
    /// Shards ever touched, ascending, also by former lives of the record.
    seen: Vec<Seen>,
    /// The subtree's publications and reports before the last walk that was noted.
    pub(crate) sampled_publications: u64,
    pub(crate) sampled_reports: Vec<u64>,
    /// Number of times that a group below handed something up to this one.
    pub(crate) received: u64,
    /// Number of times that a difference was folded here.
    pub(super) folds: u64,
    /// Marked slots of the subtree that this walk found. They may take updates without another publication.
    pub(crate) left: u64,
    /// This group was removed and its totals moved into the parent's own.
    pub(crate) is_absorbed: bool,
    /// The record has no group. Its parent and ordinal may be another's.
    pub(crate) has_ended: bool,
}

impl<M: Machine> Fold<M> {
    /// Numbers of a new record, which include those of the shard `extra`. `None` if there is no memory for them.
    pub(crate) fn new(layout: &Layout, extra: Shard) -> Option<Self> {
        let zeroes = || Some(room::boxed(layout.width, || 0)?.into_vec());
        let mut seen = Vec::new();
        seen.try_reserve_exact(1).ok()?;
        seen.push(Seen::new(layout, extra)?);
        Some(Self {
            roster: None,
            totals: zeroes()?,
            own: zeroes()?,
            up: zeroes()?,
            seen,
            sampled_publications: 0,
            sampled_reports: Vec::new(),
            received: 0,
            folds: 0,
            left: 0,
            is_absorbed: false,
            has_ended: false,
        })
    }

    /// Starts another group in the same record: numbers start at zero, words keep their values.
    pub(crate) fn begin_life(&mut self) {
        debug_assert!(
            !self.has_news(),
            "the last group's numbers were handed over"
        );
        self.totals.fill(0);
        self.own.fill(0);
        self.is_absorbed = false;
        self.has_ended = false;
    }

    /// Notes what a walk covers, after it has folded what it found: the counts before it, and the marked slots that it left.
    /// Returns whether nothing was published since the walk that was noted before.
    pub(crate) fn settle(&mut self, sample: Sample, left: u64) -> bool {
        let before = std::mem::replace(&mut self.sampled_publications, sample.publications);
        self.sampled_reports = sample.reports;
        self.left = left;
        before == self.sampled_publications
    }

    /// The place of a shard among those touched.
    fn place(&mut self, layout: &Layout, shard: Shard) -> usize {
        match self.seen.binary_search_by_key(&shard, |seen| seen.shard) {
            Ok(at) => at,
            Err(at) => {
                // No caller could say that there is no memory. A look before the end of a record makes sure that its end needs none.
                let new = Seen::new(layout, shard);
                let new =
                    new.unwrap_or_else(|| handle_alloc_error(std::alloc::Layout::new::<Seen>()));
                self.seen.insert(at, new);
                at
            }
        }
    }

    /// Makes sure that [`Fold::touched`] includes `shard`; `false` if there is no memory for that.
    pub(super) fn try_touch(&mut self, layout: &Layout, shard: Shard) -> bool {
        match self.seen.binary_search_by_key(&shard, |seen| seen.shard) {
            Ok(_) => true,
            Err(at) => {
                let new = Seen::new(layout, shard);
                let new = new.filter(|_| self.seen.try_reserve(1).is_ok());
                new.map(|new| self.seen.insert(at, new)).is_some()
            }
        }
    }

    /// Values of a shard's words at the last look, by column.
    pub(crate) fn seen(&mut self, layout: &Layout, shard: Shard) -> &[i64] {
        let at = self.place(layout, shard);
        &self.seen[at].words
    }

    /// Shards ever touched, ascending, from `from` on.
    pub(super) fn touched(&self, from: Shard) -> impl Iterator<Item = Shard> + '_ {
        let before = self.seen.partition_point(|seen| seen.shard < from);
        self.seen[before..].iter().map(|seen| seen.shard)
    }

    /// Whether the last two looks at `shard` that asked this found no difference; asked once a pass.
    pub(crate) fn is_idle(&mut self, layout: &Layout, shard: Shard) -> bool {
        let at = self.place(layout, shard);
        !std::mem::take(&mut self.seen[at].has_changed)
    }

    /// Adds what was added on `shard` since the last look; returns whether there was anything. `home` is the node of its CPU.
    pub(crate) fn fold(
        &mut self,
        layout: &Layout,
        slot: &M::Slot,
        shard: Shard,
        home: usize,
    ) -> bool {
        let at = self.place(layout, shard);
        let (totals, own, up) = (&mut self.totals, &mut self.own, &mut self.up);
        let seen = &mut self.seen[at];
        let mut any = false;
        for (column, word) in layout.words_of_columns() {
            // Full: on machines without sections, pairs with the addition that precedes the look at the mark.
            let now = slot.word(shard, word).load_signed(MemoryOrder::Full);
            let difference = now.wrapping_sub(seen.words[column]);
            if difference == 0 {
                continue;
            }
            seen.words[column] = now;
            any = true;
            for number in layout.numbers(column, home) {
                add(&mut totals[number], difference);
                add(&mut own[number], difference);
                add(&mut up[number], difference);
            }
        }
        seen.has_changed |= any;
        self.folds += u64::from(any);
        any
    }

    /// Moves everything that the parent has not received to the parent. A removed group's numbers count as the parent's own.
    pub(crate) fn hand_up(&mut self, above: &mut Self) {
        if !self.has_news() {
            return;
        }
        above.received += 1;
        for (index, up) in self.up.iter_mut().enumerate() {
            let news = std::mem::take(up);
            add(&mut above.totals[index], news);
            add(&mut above.up[index], news);
            if self.is_absorbed {
                add(&mut above.own[index], news);
            }
        }
    }

    /// Returns whether there is anything that the parent has not received.
    pub(crate) fn has_news(&self) -> bool {
        self.up.iter().any(|&value| value != 0)
    }

    /// Counts a removed child's numbers as own from now on.
    pub(crate) fn absorb(&mut self, child: &mut Self) {
        child.hand_up(self);
        for (own, &child) in self.own.iter_mut().zip(&child.totals) {
            add(own, child);
        }
        child.is_absorbed = true;
    }
}

#[cfg(test)]
mod tests {
    use bursar_machine::{Host, Lock};

    use super::super::fixture::{ROWS, add, child, marked, place, tree};
    use super::super::{ROOT, Tree};
    use super::*;

    fn shards(tree: &Tree<Host>, from: u32) -> Vec<u32> {
        let fold = tree.node(ROOT).fold.lock();
        fold.touched(Shard(from)).map(|shard| shard.0).collect()
    }

    #[test]
    fn touched_shards_come_in_order_from_one_on() {
        let tree = tree();
        let extra = tree.extra().0;
        for shard in [9, 5, 7] {
            let mut fold = tree.node(ROOT).fold.lock();
            assert!(fold.try_touch(&tree.layout, Shard(extra + shard)));
        }
        let (first, second, last) = (extra + 5, extra + 7, extra + 9);
        assert_eq!(shards(&tree, 0), [extra, first, second, last]);
        assert_eq!(shards(&tree, second), [second, last]);
        assert_eq!(shards(&tree, second + 1), [last]);
        assert!(shards(&tree, last + 1).is_empty());
    }

    #[test]
    fn a_shard_is_idle_once_a_whole_pass_finds_no_difference() {
        let tree = tree();
        let (layout, extra) = (&tree.layout, tree.extra());
        let slot = &tree.node(ROOT).slot;
        let mut fold = tree.node(ROOT).fold.lock();
        let word = usize::from(place(ROWS).word);
        assert!(!fold.is_idle(layout, extra), "new");
        assert!(fold.is_idle(layout, extra));
        slot.add_extra(word, 5);
        assert!(fold.fold(layout, slot, extra, 0));
        assert!(!fold.fold(layout, slot, extra, 0), "folded already");
        assert_eq!(fold.folds, 1);
        assert!(!fold.is_idle(layout, extra), "it has changed");
        assert!(fold.is_idle(layout, extra));
        slot.add_extra(word, 5);
        assert!(fold.fold(layout, slot, extra, 0));
        assert_eq!((fold.folds, fold.totals[1]), (2, 10));
    }

    #[test]
    fn a_parent_counts_how_often_it_received_something() {
        let tree = tree();
        let group = child(&tree, ROOT, "group");
        for round in 1..4 {
            add(&tree, group, ROWS, 1);
            tree.walk(ROOT);
            tree.walk(ROOT);
            assert_eq!(tree.node(ROOT).fold.lock().received, round);
        }
        assert_eq!(marked(&tree, group).len(), 1);
    }
}
