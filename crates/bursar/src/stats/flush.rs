//! Reconciling a subtree: take the marks from the top down, pass one fence, fold from the bottom up.
//!
//! The cost follows the number of (group, CPU) pairs touched since the last flush, and the depth of the way to them. A
//! flush does not look at groups that were not touched. *The protocol* in `mod.rs` says why no update is missed.
//!
//! | lock | held for at most |
//! |---|---|
//! | a group's children | [`NAMES_PER_HOLD`] look-ups |
//! | a group's fold | `SHARDS_PER_HOLD` shards, or one addition of all columns |

use std::ops::Range;

use bursar_machine::{AtomicWord, Lock, Machine, Order, STATE, Shard, Slot, State};

use super::fold::{SHARDS_PER_HOLD, Sample};
use super::{Node, Tree};

/// Children looked up under one hold of their parent's lock.
const NAMES_PER_HOLD: usize = 64;

struct Visit {
    index: u32,
    /// The parent's position among the visits; its own for the scope.
    parent: usize,
    shards: Range<usize>,
    sample: Option<Sample>,
}

impl<M: Machine> Tree<M> {
    /// Flushes the subtree of `scope`. Calls for overlapping scopes must not overlap in time; the combiner ensures
    /// that.
    pub(super) fn flush_exclusively(&self, scope: u32) {
        let began_ns = self.machine.now_ns();
        let (mut visits, shards) = self.take_marks(scope);
        if !shards.is_empty() {
            self.combiner.count_fence();
            self.machine.fence();
        }
        let width = self.layout.width;
        let mut brought = vec![0_i64; width * visits.len()];
        let mut absorbed = vec![0_i64; width * visits.len()];
        for (position, visit) in visits.iter_mut().enumerate().rev() {
            let node = self.node(visit.index);
            self.stage(node, &shards[visit.shards.clone()]);
            let range = position * width..(position + 1) * width;
            let mut fold = node.fold.lock();
            fold.apply(&brought[range.clone()], &absorbed[range]);
            fold.settle(visit.sample.take().expect("taken with the marks"));
            if position > 0 {
                let up = visit.parent * width..(visit.parent + 1) * width;
                if fold.is_absorbed {
                    let mut late = vec![0; width];
                    fold.hand_up(&mut late);
                    for target in [&mut brought[up.clone()], &mut absorbed[up]] {
                        target
                            .iter_mut()
                            .zip(&late)
                            .for_each(|(sum, late)| *sum = sum.wrapping_add(*late));
                    }
                } else {
                    fold.hand_up(&mut brought[up]);
                }
            }
        }
        let node = self.node(scope);
        // The parent's next flush must visit this group for its news, whatever became of the marks above.
        if node.fold.lock().has_news() {
            self.mark_above(scope);
        }
        // Release: pairs with the Acquire in `age_ns`; the totals are written before they are called fresh.
        node.as_of_ns.fetch_max(began_ns, Order::Release);
    }

    /// Marks a group in its ancestors, so that their flushes visit it.
    pub(super) fn mark_above(&self, index: u32) {
        let mut at = self.node(index);
        while let Some(parent) = at.parent() {
            let above = self.node(parent);
            above.dirty.mark(at.ordinal());
            at = above;
        }
    }

    /// Takes the marks of a subtree, parents before children, and cleans the slots they lead to.
    fn take_marks(&self, scope: u32) -> (Vec<Visit>, Vec<Shard>) {
        let mut visits = vec![Visit {
            index: scope,
            parent: 0,
            shards: 0..0,
            sample: None,
        }];
        let mut shards = Vec::new();
        let mut ordinals = Vec::new();
        let mut position = 0;
        while position < visits.len() {
            let node = self.node(visits[position].index);
            let first = shards.len();
            visits[position].sample = Some(self.take_shards(node, &mut shards));
            visits[position].shards = first..shards.len();
            ordinals.clear();
            node.dirty.take(|ordinal| ordinals.push(ordinal));
            for some in ordinals.chunks(NAMES_PER_HOLD) {
                let children = node.children.lock();
                visits.extend(some.iter().filter_map(|&ordinal| {
                    Some(Visit {
                        // A mark may outlive the child that it was set for.
                        index: (*children.ordinals.get(ordinal as usize)?)?,
                        parent: position,
                        shards: 0..0,
                        sample: None,
                    })
                }));
            }
            position += 1;
        }
        (visits, shards)
    }

    fn take_shards(&self, node: &Node<M>, shards: &mut Vec<Shard>) -> Sample {
        let mut fold = node.fold.lock();
        let sample = Sample::of(node);
        // Under the fold's lock: a task that sums the group directly finds each shard here or in the marks.
        node.published.take(|shard| {
            let shard = Shard(shard);
            fold.touch(&self.layout, shard);
            clean::<M>(&node.slot, shard);
            shards.push(shard);
        });
        sample
    }

    /// Stages the differences of `shards`, a bounded number under each hold.
    fn stage(&self, node: &Node<M>, shards: &[Shard]) {
        for some in shards.chunks(SHARDS_PER_HOLD) {
            let mut fold = node.fold.lock();
            for &shard in some {
                let home = self.machine.node_of(shard).unwrap_or(self.machine.nodes());
                fold.stage::<M>(&self.layout, &node.slot, shard, home);
            }
        }
    }

    /// Brings the numbers of a group without children up to date: the sum of its own words needs no flush.
    ///
    /// Every update that returned before this call is in a word of a shard that is marked or was touched before.
    pub(crate) fn fold_in_place(&self, index: u32) {
        let node = self.node(index);
        let touched = {
            let mut fold = node.fold.lock();
            node.published
                .peek(|shard| fold.touch(&self.layout, Shard(shard)));
            // Additions from frozen shards go to the extra shard before they are published.
            fold.touch(&self.layout, self.extra());
            fold.touched()
        };
        self.stage(node, &touched);
        node.fold.lock().apply(&[], &[]);
    }

    /// Folds a removed group in place and hands all its news to its parent. The caller holds the parent's turn.
    ///
    /// `is_absorbed` says whether its totals are in the parent's own part already.
    fn hand_over(&self, index: u32, is_absorbed: bool) {
        self.fold_in_place(index);
        let parent = self
            .node(index)
            .parent()
            .expect("the root is never removed");
        {
            // Lock order: a parent's fold before its child's.
            let mut above = self.node(parent).fold.lock();
            let mut fold = self.node(index).fold.lock();
            let mut news = vec![0; self.layout.width];
            fold.hand_up(&mut news);
            if !is_absorbed {
                above.absorb(&fold.totals);
                fold.is_absorbed = true;
            }
            above.apply(&news, if is_absorbed { &news } else { &[] });
        }
        self.mark_above(parent);
    }
}

impl<M: Machine> Tree<M> {
    /// Adds the numbers of a removed group to its parent's own part. Later updates of the group follow there.
    pub(crate) fn absorb(&self, index: u32) {
        let parent = self
            .node(index)
            .parent()
            .expect("the root is never removed");
        self.exclusively(parent, || self.hand_over(index, false));
    }

    /// Ends the life of a removed group that nothing refers to, and returns the parent. `end` either calls the function
    /// that it is given, which ends the life, and returns `true`, or returns `false`; then the result is `None`.
    pub(crate) fn bury(&self, index: u32, end: impl FnOnce(&dyn Fn()) -> bool) -> Option<u32> {
        let parent = self
            .node(index)
            .parent()
            .expect("the root is never removed");
        let mut has_ended = false;
        self.exclusively(parent, || {
            self.hand_over(index, true);
            has_ended = end(&|| self.end_life(index));
        });
        has_ended.then_some(parent)
    }

    /// Shards of a group that were ever touched.
    pub(crate) fn touched(&self, index: u32) -> Vec<Shard> {
        let node = self.node(index);
        let mut fold = node.fold.lock();
        node.published
            .peek(|shard| fold.touch(&self.layout, Shard(shard)));
        fold.touch(&self.layout, self.extra());
        fold.touched()
    }
}

/// Sets a published shard back to clean in a new epoch, so that publications under way start again.
pub(super) fn clean<M: Machine>(slot: &M::Slot, shard: Shard) {
    let state = slot.word(shard, STATE);
    let mut seen = State(state.load(Order::Relaxed));
    // Full: pairs with `publish` and, on machines without sections, with the adder that looks at the mark last.
    while let Err(now) = state.compare_exchange(seen.0, seen.cleaned().0, Order::Full) {
        seen = State(now);
    }
}
