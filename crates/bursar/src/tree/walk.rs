//! Walking over a subtree: fold what its marks lead to, and hand it up.
//!
//! A walk looks at the marks and changes neither them nor the slots, so it needs no fence: an update that happened before the
//! walk is in a word that the walk reads. It folds a group, then each child that is marked, and then hands what the child has
//! to the group. By then the group has all that was below the child when the walk came, also what other walks folded. So walks
//! may overlap, and each leaves the numbers of its scope and of all groups below up to date.
//!
//! The cost follows the marked slots and the depth of the way to them. A walk does not look at groups without marks.
//!
//! | lock | held for at most |
//! |---|---|
//! | a group's fold | twice `shards_per_hold` shards and [`CHILDREN_PER_HOLD`] marks, or one addition of all columns |
//! | a group's children | [`CHILDREN_PER_HOLD`] look-ups |

use bursar_machine::{AtomicWord, Lock, Machine, MemoryOrder, STATE, Shard, Slot, State};

use super::fold::{Fold, SHARDS_PER_HOLD, Sample};
use super::node::Node;
use super::{LEVELS, Tree};

/// Children looked up under one hold of a lock.
pub(super) const CHILDREN_PER_HOLD: usize = 64;

/// Slots whose words are fetched ahead, at most: they stay in the second-level cache until they are folded.
const SLOTS_AHEAD: usize = 512;

/// Counts that a walk notes of a group in the end.
struct Looked {
    sample: Sample,
    /// Marked slots found.
    left: u64,
}

/// Result of a walk.
#[derive(Clone, Copy)]
pub(super) struct Walked {
    /// Marked slots.
    pub(super) slots: u64,
    /// Whether nothing was published between the walk before and this one.
    pub(super) is_calm: bool,
}

impl<M: Machine> Tree<M> {
    /// Brings the totals of `scope` up to date. They include each update that returned before this call.
    pub(super) fn walk(&self, scope: u32) -> Walked {
        let began_ns = self.machine.now_ns();
        self.prefetch(&[scope]);
        let looked = self.visit(scope, &mut Vec::new(), 0);
        let slots = looked.left;
        let is_calm = self.node(scope).fold.lock().settle(looked.sample, slots);
        self.end_walk(scope, began_ns);
        Walked { slots, is_calm }
    }

    /// Notes that the totals of `scope` are as fresh as this.
    pub(super) fn end_walk(&self, scope: u32, began_ns: u64) {
        let node = self.node(scope);
        // Release: pairs with the Acquire in `age_ns`; the totals are written before they are called fresh.
        node.as_of_ns.fetch_max(began_ns, MemoryOrder::Release);
    }

    /// Folds a group and all below that is marked. `way` is room for the ids of children, and is left as it was.
    fn visit(&self, index: u32, way: &mut Vec<u32>, level: usize) -> Looked {
        let node = self.node(index);
        let sample = node.sample();
        let first = way.len();
        let mut left = 0;
        let mut next = self.fold_marked(index, &mut left, way);
        while way.len() > first {
            self.children_at(node, way, first);
            self.prefetch(&way[first..]);
            left += self.visit_children(index, way, first, level);
            way.truncate(first);
            if let Some(from) = next {
                let fold = node.fold.lock();
                next = dirty_from(node, from, way);
                drop(fold);
            }
        }
        Looked { sample, left }
    }

    /// Visits the children whose ids are in `way` from `first` on. Returns the number of marked slots.
    fn visit_children(&self, parent: u32, way: &mut Vec<u32>, first: usize, level: usize) -> u64 {
        let mut left = 0;
        // Kept for one child after the other, for as many shards as any hold.
        let mut held = None;
        let mut room = self.shards_per_hold;
        for at in first..way.len() {
            let child = way[at];
            let mut above = held.take().unwrap_or_else(|| self.node(parent).fold.lock());
            if let Some(count) = self.visit_leaf(parent, &mut above, child) {
                left += count as u64;
                room = room.saturating_sub(count.max(1));
                if room > 0 {
                    held = Some(above);
                } else {
                    room = self.shards_per_hold;
                }
                continue;
            }
            drop(above);
            room = self.shards_per_hold;
            // A child's record may be used again elsewhere while we are on our way to it. No more than the levels of a tree are
            // below a group that is still where we found it.
            if level < LEVELS {
                let looked = self.visit(child, way, level + 1);
                left += looked.left;
                self.hand_up(parent, child, looked);
            }
        }
        left
    }

    /// Visits a child without marked children, and hands up what it has. Returns the number of its marked slots; `None` if it has
    /// marked children, or more slots than one hold has room for.
    fn visit_leaf(&self, parent: u32, above: &mut Fold<M>, child: u32) -> Option<usize> {
        let node = self.node(child);
        if node.parent() != Some(parent) {
            return Some(0);
        }
        let sample = node.sample();
        // Lock order: a parent's fold before its child's.
        let mut fold = node.fold.lock();
        // Under the lock: the task that removes a mark may set it again before it releases the lock.
        if !node.dirty.is_empty() {
            return None;
        }
        let mut count = 0;
        let next = self.fold_some(&mut fold, child, 0, |_, _| count += 1);
        if self.is_child(parent, node, &fold) {
            fold.hand_up(above);
        }
        if next.is_some() {
            return None;
        }
        fold.settle(sample, count as u64);
        Some(count)
    }

    /// Begins to bring here what a visit of these groups will look at, so that it waits for many lines at once and not for one
    /// after the other.
    fn prefetch(&self, groups: &[u32]) {
        for &index in groups {
            let node = self.node(index);
            node.published.prefetch();
            node.dirty.prefetch();
            node.publications.prefetch();
            node.fold.prefetch();
        }
        let mut room = SLOTS_AHEAD;
        for &index in groups {
            let node = self.node(index);
            node.published.peek_from(0, |shard| {
                for word in self.layout.lines() {
                    node.slot.word(Shard(shard), word).prefetch();
                }
                room -= 1;
                room > 0
            });
            if room == 0 {
                return;
            }
        }
    }

    /// Folds the marked shards of a group, and adds the first ordinals of its marked children to `way`. Returns the ordinal at
    /// which the next ones begin, if there are more.
    fn fold_marked(&self, index: u32, left: &mut u64, way: &mut Vec<u32>) -> Option<u32> {
        let node = self.node(index);
        let mut from = 0;
        loop {
            // A mark is only removed under this lock. Its remover has folded the marked slot, and has looked again whether
            // the mark must be set.
            let mut fold = node.fold.lock();
            let next = self.fold_some(&mut fold, index, from, |_, _| *left += 1);
            if let Some(next) = next {
                from = next;
                continue;
            }
            return dirty_from(node, 0, way);
        }
    }

    /// Folds at most `shards_per_hold` marked shards of a group, from `from` on, and calls `each` for each. Returns the first that is left.
    pub(super) fn fold_some(
        &self,
        fold: &mut Fold<M>,
        index: u32,
        from: u32,
        mut each: impl FnMut(&mut Fold<M>, Shard),
    ) -> Option<u32> {
        self.some_marked(self.node(index), from, |shard| {
            self.fold_shard(fold, index, shard);
            each(fold, shard);
        })
    }

    /// Calls `each` for at most `shards_per_hold` marked shards of a group, from `from` on. Returns the first that is left. The
    /// caller holds the fold's lock.
    pub(super) fn some_marked(
        &self,
        node: &Node<M>,
        from: u32,
        mut each: impl FnMut(Shard),
    ) -> Option<u32> {
        let mut room = self.shards_per_hold;
        let mut next = None;
        node.published.peek_from(from, |shard| {
            if room == 0 {
                next = Some(shard);
                return false;
            }
            room -= 1;
            each(Shard(shard));
            true
        });
        next
    }

    /// The node of a shard's CPU, or the number of nodes.
    pub(super) fn home(&self, shard: Shard) -> usize {
        self.machine.node_of(shard).unwrap_or(self.machine.nodes())
    }

    /// Folds a shard of a group whose fold is locked.
    ///
    /// **Folded numbers are marked up to the root** before anyone can read them. So a group with anything to hand up is marked in all
    /// its ancestors, and a reader that has seen an update below finds it above. Where an update adds first and publishes afterwards, we
    /// may be the first to find it, and publish for it.
    pub(super) fn fold_shard(&self, fold: &mut Fold<M>, index: u32, shard: Shard) {
        let slot = &self.node(index).slot;
        let home = self.home(shard);
        let is_published = || {
            // Full: comes after the words. If it says so, all marks were set when we read what was added before.
            State(slot.word(shard, STATE).load(MemoryOrder::Full)).tag() == State::PUBLISHED
        };
        if fold.fold(&self.layout, slot, shard, home) && !is_published() {
            self.publish(index, shard);
        }
    }

    /// Replaces the ordinals from `first` on by the ids of the children. A mark may outlive the child that it was set for.
    pub(super) fn children_at(&self, node: &Node<M>, way: &mut Vec<u32>, first: usize) {
        let children = node.children.lock();
        let mut kept = first;
        for at in first..way.len() {
            if let Some(&Some(child)) = children.ordinals.get(way[at] as usize) {
                way[kept] = child;
                kept += 1;
            }
        }
        way.truncate(kept);
    }

    /// Hands what a child has to its parent, and notes the walk. Always, because another walk may have handed something up to the
    /// child before we came to the group that had it.
    fn hand_up(&self, parent: u32, child: u32, looked: Looked) {
        self.with_both(parent, child, |above, fold| {
            fold.settle(looked.sample, looked.left);
            fold.hand_up(above);
        });
    }

    /// Whether the record, whose fold is locked, still has a group below `parent`.
    pub(super) fn is_child(&self, parent: u32, node: &Node<M>, fold: &Fold<M>) -> bool {
        !fold.has_ended && node.parent() == Some(parent)
    }

    /// Calls `work` with the folds of a group and its child, unless the child's record has ended or is used elsewhere by now.
    ///
    /// Lock order: a parent's fold before its child's. A record's parent changes under its own fold's lock only. So with the
    /// parent's in hand the first look at the child's parent keeps us from locking a record that became a group further up. The
    /// second look is the one that counts.
    pub(super) fn with_both(
        &self,
        parent: u32,
        child: u32,
        work: impl FnOnce(&mut Fold<M>, &mut Fold<M>),
    ) {
        let node = self.node(child);
        let mut above = self.node(parent).fold.lock();
        if node.parent() == Some(parent) {
            let mut fold = node.fold.lock();
            if self.is_child(parent, node, &fold) {
                work(&mut above, &mut fold);
            }
        }
    }

    /// Adds the numbers of a removed group to its parent's own part. Later updates of the group follow there.
    pub(crate) fn absorb(&self, index: u32) {
        self.end_beside_walks(|| {
            self.hand_over(index, |parent, above, fold| {
                // Full: pairs with `by_roster`. Before the own part changes: rosters hold what it was.
                self.node(parent).changes.fetch_add(1, MemoryOrder::Full);
                above.absorb(fold);
            });
        });
    }

    /// Ends the life of a removed group that nothing refers to, and returns the parent. `end` either calls the function
    /// that it is given, which ends the life, and returns `true`, or returns `false`; then the result is `None`.
    pub(crate) fn bury(&self, index: u32, end: impl FnOnce(&dyn Fn()) -> bool) -> Option<u32> {
        let mut has_ended = false;
        let parent = self.end_beside_walks(|| {
            let parent = self.hand_over(index, |_, above, fold| fold.hand_up(above));
            has_ended = end(&|| self.end_life(index));
            parent
        });
        has_ended.then_some(parent)
    }

    /// Folds a removed group and calls `give` with its parent, the parent's fold and its own. Returns the parent.
    ///
    /// All its words are folded, marked or not: its record ends when its words say that nothing is charged, and what a task has
    /// added to them and not published yet is no number of the record's next group.
    fn hand_over(&self, index: u32, give: impl FnOnce(u32, &mut Fold<M>, &mut Fold<M>)) -> u32 {
        let node = self.node(index);
        let parent = node.parent().expect("the root is never removed");
        self.for_touched(index, |shards| {
            for some in shards.chunks(self.shards_per_hold) {
                let mut fold = node.fold.lock();
                for &shard in some {
                    self.fold_shard(&mut fold, index, shard);
                }
            }
        });
        // Lock order: a parent's fold before its child's.
        let mut above = self.node(parent).fold.lock();
        give(parent, &mut above, &mut node.fold.lock());
        parent
    }

    /// Calls `work`, which moves numbers from a group to its parent or ends a record, while no snapshot walks. A snapshot that
    /// wants to walk next lets those go first that wait here.
    fn end_beside_walks<R>(&self, work: impl FnOnce() -> R) -> R {
        let mut arriving = None;
        loop {
            self.ends.enter();
            if !self.ends.is_closed() {
                let done = work();
                self.ends.exit();
                return done;
            }
            self.ends.exit();
            arriving.get_or_insert_with(|| self.ends.arrive());
            self.ends.wait_until_open();
        }
    }

    /// Calls `each` with the shards of a group that were ever touched, ascending, some at a time. The extra shard is the last. Allocates
    /// nothing.
    pub(crate) fn for_touched(&self, index: u32, mut each: impl FnMut(&[Shard])) {
        let node = self.node(index);
        let mut shards = [Shard(0); SHARDS_PER_HOLD];
        let mut from = Shard(0);
        loop {
            let mut count = 0;
            {
                let fold = node.fold.lock();
                for (at, shard) in shards.iter_mut().zip(fold.touched(from)) {
                    *at = shard;
                    count += 1;
                }
                node.published.peek_from(from.0, |shard| {
                    if let Err(at) = shards[..count].binary_search(&Shard(shard)) {
                        if at == SHARDS_PER_HOLD {
                            return false;
                        }
                        // If there is no room, the last has its turn in the next round.
                        count = SHARDS_PER_HOLD.min(count + 1);
                        shards[at..count].rotate_right(1);
                        shards[at] = Shard(shard);
                    }
                    true
                });
            }
            each(&shards[..count]);
            if count < SHARDS_PER_HOLD {
                return;
            }
            from = Shard(shards[count - 1].0 + 1);
        }
    }

    /// Makes room for the numbers of all shards that a group has touched; `false` if there is no memory for it.
    pub(crate) fn make_room_to_end(&self, index: u32) -> bool {
        let node = self.node(index);
        let mut fold = node.fold.lock();
        let mut has_room = true;
        node.published.peek_from(0, |shard| {
            has_room = fold.try_touch(&self.layout, Shard(shard));
            has_room
        });
        has_room
    }
}

/// Adds at most [`CHILDREN_PER_HOLD`] ordinals of marked children to `way`, from `from` on; returns the first that is left. The
/// caller holds the fold's lock.
pub(super) fn dirty_from<M: Machine>(node: &Node<M>, from: u32, way: &mut Vec<u32>) -> Option<u32> {
    let most = way.len() + CHILDREN_PER_HOLD;
    let mut next = None;
    node.dirty.peek_from(from, |ordinal| {
        if way.len() == most {
            next = Some(ordinal);
            return false;
        }
        way.push(ordinal);
        true
    });
    next
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use bursar_machine::Host;

    use super::super::fixture::{
        ROWS, STATISTICS, add, child, marked, place, state, tree, tree_of,
    };
    use super::super::{Freshness, Keep, ROOT, exact, read};
    use super::*;

    /// Marks shards that this machine does not have.
    fn mark_beyond(tree: &Tree<Host>, index: u32, shards: impl Iterator<Item = u32>) {
        for shard in shards {
            let published = &tree.node(index).published;
            assert!(published.ensure(shard));
            published.mark(shard);
        }
    }

    #[test]
    fn one_hold_looks_at_no_more_marks_than_a_slice() {
        let tree = tree_of(STATISTICS, Duration::MAX, 3);
        mark_beyond(&tree, ROOT, 10..17);
        let some = |from| {
            let mut seen = Vec::new();
            let next = tree.some_marked(tree.node(ROOT), from, |shard| seen.push(shard.0));
            (seen, next)
        };
        assert_eq!(some(0), (vec![10, 11, 12], Some(13)));
        assert_eq!(some(13), (vec![13, 14, 15], Some(16)));
        assert_eq!(some(16), (vec![16], None));
        assert_eq!(some(14), (vec![14, 15, 16], None));
    }

    #[test]
    fn the_extra_shard_is_beyond_all_nodes() {
        let tree = tree();
        let group = child(&tree, ROOT, "group");
        add(&tree, group, ROWS, 5);
        tree.node(group)
            .slot
            .add_extra(usize::from(place(ROWS).word), 7);
        tree.publish(group, tree.extra());
        let nodes = tree.machine.nodes();
        assert_eq!(tree.home(tree.extra()), nodes);
        let reading = exact(&tree, ROOT, Keep::Roster).expect("reads may walk");
        let shares = reading.per_node(ROWS).expect("declared per node");
        assert_eq!(shares.len(), nodes + 1);
        assert_eq!(shares.iter().sum::<i64>(), 12);
        let own = Shard(marked(&tree, group)[0]);
        if own != tree.extra() {
            let node = tree.machine.node_of(own).unwrap_or(nodes);
            assert_eq!(shares[node], if node < nodes { 5 } else { 12 });
        }
    }

    #[test]
    fn a_walk_brings_numbers_up_from_any_depth() {
        let tree = tree();
        let mut groups = vec![ROOT];
        for name in ["a", "b", "c", "d"] {
            groups.push(child(&tree, groups[groups.len() - 1], name));
        }
        for (below, &index) in groups.iter().enumerate() {
            add(&tree, index, ROWS, 1);
            tree.walk(ROOT);
            let fold = tree.node(ROOT).fold.lock();
            assert_eq!((fold.totals[1], fold.own[1]), (1 + below as i64, 1));
        }
    }

    /// A fold publishes the updates that it finds unpublished. A fold that finds nothing publishes nothing.
    #[test]
    fn folded_numbers_are_marked_up_to_the_root() {
        let tree = tree();
        let group = child(&tree, ROOT, "group");
        let (node, extra) = (tree.node(group), tree.extra());
        let fold = || tree.fold_shard(&mut node.fold.lock(), group, extra);
        fold();
        assert_eq!(state(&tree, group, extra).tag(), State::CLEAN);
        assert!(marked(&tree, group).is_empty());
        node.slot.add_extra(usize::from(place(ROWS).word), 7);
        fold();
        assert_eq!(state(&tree, group, extra).tag(), State::PUBLISHED);
        assert_eq!(marked(&tree, group), [extra.0]);
        assert!(tree.node(ROOT).dirty.has(node.ordinal()));
        assert_eq!(node.publications.load(MemoryOrder::Full), 1);
        fold();
        node.slot.add_extra(usize::from(place(ROWS).word), 7);
        fold();
        assert_eq!(node.publications.load(MemoryOrder::Full), 1);
    }

    /// A slot that a walk leaves marked takes updates without another publication. So each walk notes how many it left, and
    /// the range of cached numbers is right.
    #[test]
    fn slots_that_a_walk_leaves_marked_keep_the_range_wide() {
        let tree = tree();
        let tenant = child(&tree, ROOT, "tenant");
        let query = child(&tree, tenant, "query");
        let leaf = child(&tree, query, "leaf");
        for changed in [tenant, query, leaf] {
            add(&tree, changed, ROWS, 1);
            tree.walk(ROOT);
            add(&tree, changed, ROWS, 1);
            for at in tree.chain(changed) {
                let cached = read(&tree, at, Freshness::Cached, || (0, 0)).expect("no walk");
                let rows = cached.get(ROWS);
                assert_eq!(rows.error(), u64::MAX, "{at} after {changed}: {rows}");
            }
            // The slot leaves the marks, and nothing else is marked when the next one changes.
            for _ in 0..3 {
                super::super::retire(&tree);
            }
            assert!(marked(&tree, changed).is_empty());
        }
        let cached = read(&tree, ROOT, Freshness::Cached, || (0, 0)).expect("no walk");
        assert_eq!((cached.get(ROWS).value, cached.get(ROWS).error()), (6, 0));
    }

    #[test]
    fn a_walk_makes_its_scope_and_all_below_it_fresh() {
        let tree = tree();
        let tenant = child(&tree, ROOT, "tenant");
        let as_of = |index| tree.node(index).as_of_ns.load(MemoryOrder::Full);
        let (born, root) = (as_of(tenant), as_of(ROOT));
        while tree.machine.now_ns() == born {}
        let before = tree.machine.now_ns();
        tree.walk(tenant);
        assert!(as_of(tenant) >= before);
        assert_eq!(as_of(ROOT), root);
        tree.end_walk(tenant, born);
        assert!(as_of(tenant) >= before, "an older walk ends later");
    }

    /// Marked or seen before, in more pieces than one.
    #[test]
    fn all_shards_that_were_ever_touched_are_visited_in_order() {
        let tree = tree();
        let node = tree.node(ROOT);
        let extra = tree.extra().0;
        let beyond = || (0..200).map(|at| extra + 1 + at);
        mark_beyond(&tree, ROOT, beyond().filter(|shard| shard % 3 != 0));
        for shard in beyond().filter(|shard| shard % 5 != 1) {
            let mut fold = node.fold.lock();
            assert!(fold.try_touch(&tree.layout, Shard(shard)));
        }
        let there = beyond().filter(|shard| shard % 3 != 0 || shard % 5 != 1);
        let all: Vec<u32> = std::iter::once(extra).chain(there).collect();
        let mut visited = Vec::new();
        tree.for_touched(ROOT, |some| {
            assert!(some.len() <= SHARDS_PER_HOLD);
            visited.extend(some.iter().map(|shard| shard.0));
        });
        assert_eq!(visited, all);
        assert!(tree.make_room_to_end(ROOT));
        let fold = node.fold.lock();
        assert!(fold.touched(Shard(0)).map(|shard| shard.0).eq(all));
    }
}
