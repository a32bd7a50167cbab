//! Folded numbers of one group: the result of a read without a flush, and the part that its parent has not received.
//!
//! A shard's words are never reset. The fold keeps each word's value at the last look and adds the difference. An
//! update that comes meanwhile is in the next difference.
//!
//! Differences are *staged* for at most [`SHARDS_PER_HOLD`] shards under one hold of the fold's lock, and applied in
//! one step when all are there. So a reader sees the numbers of one flush, never half of two, and no task waits for
//! more than that many shards.

use bursar_machine::{AtomicWord, Machine, Order, Shard, Slot};

use super::{Layout, Node};

/// Shards looked at under one hold of a fold's lock.
pub(crate) const SHARDS_PER_HOLD: usize = 64;

#[derive(Debug)]
struct Seen {
    shard: Shard,
    /// Values of the words, by column, for columns that have words.
    words: Box<[i64]>,
}

/// Counts of publications and reports that a flush samples before it takes the marks and reads the words.
///
/// Only a flush that cleans the shards that it finds may settle a sample, because a shard that stays published is not
/// counted again.
#[derive(Debug)]
pub(crate) struct Sample {
    publications: u64,
    reports: Vec<u64>,
}

impl Sample {
    pub(crate) fn of<M: Machine>(node: &Node<M>) -> Self {
        // Full: pairs with `mark_to_root` and `report`. Both count only after the mark or the addition that they count.
        Self {
            publications: node.publications.load(Order::Full),
            reports: node
                .reported
                .iter()
                .map(|word| word.load(Order::Full))
                .collect(),
        }
    }
}

/// Folded numbers of one group; see the module.
#[derive(Debug)]
pub(crate) struct Fold {
    /// The subtree's numbers as of the last flush.
    pub(crate) totals: Vec<i64>,
    /// The part that no living child accounts for.
    pub(crate) own: Vec<i64>,
    /// Folded here, not yet handed to the parent.
    up: Vec<i64>,
    staged: Vec<i64>,
    /// Shards ever touched, ascending, also by former lives of the record.
    seen: Vec<Seen>,
    /// The subtree's publications and reports when the last flush began.
    pub(crate) sampled_publications: u64,
    pub(crate) sampled_reports: Vec<u64>,
    /// This group was removed and its totals moved into the parent's own.
    pub(crate) is_absorbed: bool,
}

impl Fold {
    pub(crate) fn new(layout: &Layout) -> Self {
        let zeroes = || vec![0; layout.width];
        Self {
            totals: zeroes(),
            own: zeroes(),
            up: zeroes(),
            staged: zeroes(),
            seen: Vec::new(),
            sampled_publications: 0,
            sampled_reports: Vec::new(),
            is_absorbed: false,
        }
    }

    /// Starts another group in the same record: numbers start at zero, words keep their values.
    pub(crate) fn begin_life(&mut self) {
        debug_assert!(self.up.iter().chain(&self.staged).all(|&value| value == 0));
        self.totals.fill(0);
        self.own.fill(0);
        self.is_absorbed = false;
    }

    /// Records the counts that a flush covers, after it has applied what it found.
    pub(crate) fn settle(&mut self, sample: Sample) {
        self.sampled_publications = sample.publications;
        self.sampled_reports = sample.reports;
    }

    /// Makes sure that a direct sum of the group includes `shard`.
    pub(crate) fn touch(&mut self, layout: &Layout, shard: Shard) {
        if let Err(place) = self.seen.binary_search_by_key(&shard, |seen| seen.shard) {
            self.seen.insert(
                place,
                Seen {
                    shard,
                    words: vec![0; layout.columns.len()].into(),
                },
            );
        }
    }

    /// Shards ever touched.
    pub(crate) fn touched(&self) -> Vec<Shard> {
        self.seen.iter().map(|seen| seen.shard).collect()
    }

    /// Stages the additions on `shard` since the last look. `home` is the node of its CPU.
    pub(crate) fn stage<M: Machine>(
        &mut self,
        layout: &Layout,
        slot: &M::Slot,
        shard: Shard,
        home: usize,
    ) {
        let at = self
            .seen
            .binary_search_by_key(&shard, |seen| seen.shard)
            .expect("touched when its mark was taken");
        let words = &mut self.seen[at].words;
        for (index, column) in layout.columns.iter().enumerate() {
            let Some(word) = column.word else { continue };
            // Full: on machines without sections, pairs with the addition that precedes the look at the mark.
            let now = slot.word(shard, word).load_signed(Order::Full);
            let difference = now.wrapping_sub(words[index]);
            words[index] = now;
            add(&mut self.staged[index], difference);
            if let Some(first) = column.per_node {
                add(&mut self.staged[first + home], difference);
            }
        }
    }

    /// Applies the staged differences and those of the children. `absorbed` is the part of `children` that comes from
    /// removed children and counts as the group's own.
    pub(crate) fn apply(&mut self, children: &[i64], absorbed: &[i64]) {
        for index in 0..self.totals.len() {
            let staged = std::mem::take(&mut self.staged[index]);
            let difference = staged.wrapping_add(children.get(index).copied().unwrap_or(0));
            add(&mut self.totals[index], difference);
            add(&mut self.up[index], difference);
            add(
                &mut self.own[index],
                staged.wrapping_add(absorbed.get(index).copied().unwrap_or(0)),
            );
        }
    }

    /// Moves everything that the parent has not received into `parent`; returns whether there was anything.
    pub(crate) fn hand_up(&mut self, parent: &mut [i64]) -> bool {
        let mut any = false;
        for (up, parent) in self.up.iter_mut().zip(parent) {
            any |= *up != 0;
            add(parent, std::mem::take(up));
        }
        any
    }

    /// Returns whether there is anything that the parent has not received.
    pub(crate) fn has_news(&self) -> bool {
        self.up.iter().any(|&value| value != 0)
    }

    /// Adds the totals of a removed child to the own part.
    pub(crate) fn absorb(&mut self, child: &[i64]) {
        for (own, &child) in self.own.iter_mut().zip(child) {
            add(own, child);
        }
    }
}

fn add(sum: &mut i64, value: i64) {
    *sum = sum.wrapping_add(value);
}
