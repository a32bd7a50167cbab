//! One group's folded numbers: what a read without a flush returns, and what its parent has yet to hear.
//!
//! A shard's words are never reset. The fold keeps what each held when it was last looked at and adds the difference, so
//! an update that comes meanwhile is simply in the next difference.
//!
//! Differences are *staged* for at most [`SHARDS_PER_HOLD`] shards under one hold of the fold's lock, and applied in one
//! step when all are there: a reader sees the numbers of one flush, never half of two, and nobody waits for more than
//! that many shards.

use bursar_machine::{AtomicWord, Machine, Order, Shard, Slot};

use super::{Layout, Node};

/// Shards looked at under one hold of a fold's lock.
pub(crate) const SHARDS_PER_HOLD: usize = 64;

#[derive(Debug)]
struct Seen {
    shard: Shard,
    /// By column, as far as columns have words.
    words: Box<[i64]>,
}

/// What had been published and reported when a flush came by, before it took the marks and read the words. Only a flush
/// that cleans the shards it finds may settle one: a shard that stays published is not counted again.
#[derive(Debug)]
pub(crate) struct Sample {
    publications: u64,
    reports: Vec<u64>,
}

impl Sample {
    pub(crate) fn of<M: Machine>(node: &Node<M>) -> Self {
        // Full: pairs with `mark_to_root` and `report`, whose counts come after what they count.
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

/// See the module.
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

    /// For another group in the same record: numbers start at zero, the words where they are.
    pub(crate) fn begin_life(&mut self) {
        debug_assert!(self.up.iter().chain(&self.staged).all(|&value| value == 0));
        self.totals.fill(0);
        self.own.fill(0);
        self.is_absorbed = false;
    }

    /// The counts that a flush answers for, once it has applied what it found.
    pub(crate) fn settle(&mut self, sample: Sample) {
        self.sampled_publications = sample.publications;
        self.sampled_reports = sample.reports;
    }

    /// Makes sure that whoever sums the group directly looks at `shard`.
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

    /// The shards ever touched.
    pub(crate) fn touched(&self) -> Vec<Shard> {
        self.seen.iter().map(|seen| seen.shard).collect()
    }

    /// Stages what was added on `shard` since it was last looked at. `home` is the node of its CPU.
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

    /// Applies what is staged and what the children brought; `absorbed` is the part of that which comes from removed
    /// children and counts as the group's own.
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

    /// Hands what the parent has not heard to `parent`; returns whether that was anything.
    pub(crate) fn hand_up(&mut self, parent: &mut [i64]) -> bool {
        let mut any = false;
        for (up, parent) in self.up.iter_mut().zip(parent) {
            any |= *up != 0;
            add(parent, std::mem::take(up));
        }
        any
    }

    /// Whether the parent has something to hear.
    pub(crate) fn has_news(&self) -> bool {
        self.up.iter().any(|&value| value != 0)
    }

    /// Moves the totals of a removed child into the own part.
    pub(crate) fn absorb(&mut self, child: &[i64]) {
        for (own, &child) in self.own.iter_mut().zip(child) {
            add(own, child);
        }
    }
}

fn add(sum: &mut i64, value: i64) {
    *sum = sum.wrapping_add(value);
}
