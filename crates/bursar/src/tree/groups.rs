//! Groups: birth, names, removal, rebirth.
//!
//! A group is a record in a table; its id is the index. A record is used again only when nothing can refer to it: no
//! handle, no child, no charged byte (the layer above ensures the last). A removed group leaves its parent's names at
//! once. It stays in its parent's marks, so that late updates still find their way.

use std::alloc::handle_alloc_error;
use std::ops::Bound;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use bursar_machine::{AtomicWord, Lock, Machine, MemoryOrder};

use super::fold::{Fold, SHARDS_PER_HOLD};
use super::name::{CreateError, DEPTH_MAX, NAME_MAX, check_name};
use super::node::{Children, Life, NO_PARENT, Node};
use super::turns::{Retirer, Turns};
use super::{Layout, MarkSet};
use crate::arena::Arena;
use crate::gate::Gate;
use crate::room;

/// Number of groups on the way from the deepest level to the root.
pub(crate) const LEVELS: usize = DEPTH_MAX as usize + 1;
/// Number of children visited under one hold of a group's lock.
const NAMES_PER_HOLD: usize = 64;
/// The root's id.
pub(crate) const ROOT: u32 = 0;
/// Maximum number of groups of one memory; keeps ids below `NO_PARENT`.
const GROUPS_MAX: u32 = 1 << 26;

/// Policy that decides which calls flush.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
#[non_exhaustive]
pub enum FlushPolicy {
    /// Readers that need fresher numbers bring them up to date. Readers of one group share the work, so no reader waits for more
    /// than two walks. No read waits for a fence: slots that are idle are retired by [`crate::Memory::tick`], and by a reader now
    /// and then, after it has its answer.
    #[default]
    Combining,
    /// The same, but a read of a group with children retires all slots that it visits, before it has its answer. So it passes a
    /// fence, and the next update of each slot costs more. It is there to be compared with.
    CombiningFence,
    /// Only [`crate::Memory::tick`] flushes. A read that needs fresher numbers fails with [`crate::NotFresh`].
    PeriodicOnly,
}

struct Free<M: Machine> {
    slots: Vec<M::Slot>,
    records: Vec<u32>,
    next: u32,
}

/// All groups of one memory.
pub(crate) struct Tree<M: Machine> {
    pub(crate) machine: M,
    pub(crate) layout: Layout,
    pub(crate) policy: FlushPolicy,
    pub(crate) flush_period_ns: u64,
    /// Shards looked at under one hold of a fold's lock.
    pub(super) shards_per_hold: usize,
    pub(crate) retirer: Retirer<M>,
    /// Held by the one snapshot that walks.
    pub(super) walking: M::Mutex<()>,
    /// Entered by each task that ends a group or its record, and closed by the snapshot that walks.
    pub(super) ends: Gate<M>,
    nodes: Arena<Node<M>>,
    free: M::Mutex<Free<M>>,
}

impl<M: Machine> Tree<M> {
    pub(crate) fn new(
        machine: M,
        layout: Layout,
        policy: FlushPolicy,
        (flush_period, retire_period): (Duration, Duration),
        shards_per_slice: usize,
    ) -> Result<Self, CreateError> {
        let ns = |period: Duration| u64::try_from(period.as_nanos()).unwrap_or(u64::MAX);
        let tree = Self {
            layout,
            policy,
            flush_period_ns: ns(flush_period),
            shards_per_hold: shards_per_slice.min(SHARDS_PER_HOLD),
            retirer: Retirer::new(ns(retire_period), machine.now_ns()),
            walking: M::Mutex::new(()),
            ends: Gate::new(),
            nodes: Arena::new(),
            free: M::Mutex::new(Free {
                slots: Vec::new(),
                records: Vec::new(),
                next: 0,
            }),
            machine,
        };
        let root = tree.take_record(|_| true)?;
        assert_eq!(root, ROOT);
        tree.begin_life(ROOT, NO_PARENT, 0, 0, Box::default());
        Ok(tree)
    }

    #[inline]
    pub(crate) fn node(&self, index: u32) -> &Node<M> {
        self.nodes.get(index)
    }

    /// Iterates over `index` and its ancestors, the root last.
    #[inline]
    pub(crate) fn chain(&self, index: u32) -> impl Iterator<Item = u32> + '_ {
        std::iter::successors(Some(index), |&at| self.node(at).parent())
    }

    /// Returns whether `ancestor` is `index` or above it.
    pub(crate) fn is_ancestor(&self, ancestor: u32, index: u32) -> bool {
        let depth = self.node(ancestor).depth();
        let mut at = index;
        while self.node(at).depth() > depth {
            at = self.node(at).parent().expect("only the root has depth 0");
        }
        at == ancestor
    }

    /// Number of records, including those without a group.
    pub(crate) fn records(&self) -> u32 {
        self.free.lock().next
    }

    /// Number of groups, including removed ones that have not ended.
    pub(crate) fn group_count(&self) -> usize {
        let free = self.free.lock();
        free.next as usize - free.records.len()
    }

    /// All groups, parents before children, each with its parent's position in this list (the root with its own).
    /// Includes removed groups that have not ended.
    pub(crate) fn groups(&self) -> Vec<(u32, usize)> {
        let mut groups = vec![(ROOT, 0)];
        let mut position = 0;
        while position < groups.len() {
            let children = self.node(groups[position].0).children.lock();
            let indexes = children.ordinals.iter().flatten();
            groups.extend(indexes.map(|&index| (index, position)));
            position += 1;
        }
        groups
    }

    /// Path of names from the root; `/` for the root itself.
    pub(crate) fn path(&self, index: u32) -> String {
        let path = self.try_path(index);
        path.unwrap_or_else(|| handle_alloc_error(std::alloc::Layout::new::<[u8; NAME_MAX]>()))
    }

    /// The same; `None` if there is no memory for it.
    fn try_path(&self, index: u32) -> Option<String> {
        let mut way = [ROOT; LEVELS];
        let below_root = self.chain(index).filter(|&at| at != ROOT);
        let depth = way
            .iter_mut()
            .zip(below_root)
            .map(|(at, group)| *at = group);
        let depth = depth.count();
        let mut path = String::new();
        if depth == 0 {
            path.try_reserve_exact(1).ok()?;
            path.push('/');
        }
        for &at in way[..depth].iter().rev() {
            let children = self.node(at).children.lock();
            path.try_reserve(1 + children.name.len()).ok()?;
            path.push('/');
            path.push_str(&children.name);
        }
        Some(path)
    }

    /// The path of a child, for an error.
    fn path_below(&self, parent: u32, name: &str) -> Result<String, CreateError> {
        let path = self.try_path(parent).ok_or(CreateError::OutOfMemory);
        let mut path = path?;
        let has_room = path.try_reserve(1 + name.len());
        has_room.map_err(|_| CreateError::OutOfMemory)?;
        if parent != ROOT {
            path.push('/');
        }
        path.push_str(name);
        Ok(path)
    }

    /// Creates a child. `make_room` makes room for its ordinal elsewhere, and `prepare_record` for a new record; they return whether they
    /// could. `prepare` gets the child's id before any other task knows it.
    ///
    /// All that may find no memory comes first. So an error leaves nothing but room.
    pub(crate) fn create(
        &self,
        parent: u32,
        name: &str,
        make_room: impl FnOnce(u32) -> bool,
        prepare_record: impl FnOnce(u32) -> bool,
        prepare: impl FnOnce(u32),
    ) -> Result<u32, CreateError> {
        check_name(name)?;
        let above = self.node(parent);
        let depth = above.depth() + 1;
        if depth > DEPTH_MAX {
            return Err(CreateError::TooDeep);
        }
        let mut children = above.children.lock();
        if children.removed || children.is_closed {
            drop(children);
            return Err(match self.try_path(parent) {
                Some(path) => CreateError::ParentRemoved { path },
                None => CreateError::OutOfMemory,
            });
        }
        if children.by_name.get(name).is_some() {
            drop(children);
            let path = self.path_below(parent, name)?;
            return Err(CreateError::Exists { path });
        }
        let (own_name, ordinal) = children
            .make_room::<M>(name)
            .ok_or(CreateError::OutOfMemory)?;
        if !above.dirty.ensure(ordinal) || !make_room(ordinal) {
            return Err(CreateError::OutOfMemory);
        }
        let new = children.by_name.make_room(name);
        let new = new.ok_or(CreateError::OutOfMemory)?;
        let index = self.take_record(prepare_record)?;
        if children.free_ordinals.pop().is_none() {
            children.ordinals.push(None);
        }
        children.ordinals[ordinal as usize] = Some(index);
        self.begin_life(index, parent, ordinal, depth, own_name);
        prepare(index);
        // Relaxed: changed under the parent's lock. A task that knows the child has synchronised with its creation.
        above.child_count.fetch_add(1, MemoryOrder::Relaxed);
        if parent != ROOT {
            above.refer();
        }
        children.by_name.put(new, index);
        Ok(index)
    }

    fn begin_life(&self, index: u32, parent: u32, ordinal: u32, depth: u32, name: Box<str>) {
        let node = self.node(index);
        {
            // Under the lock under which walks that still have the record's last group in hand look where it belongs.
            let mut fold = node.fold.lock();
            node.parent.store(parent, Ordering::Relaxed);
            node.ordinal.store(ordinal, Ordering::Relaxed);
            fold.begin_life();
        }
        node.depth.store(depth, Ordering::Relaxed);
        // Full, all: pair with the loads in `Node::references`, `Node::is_removed` and `age_ns`, by tasks that still have the record's
        // last group in hand. Others get the id under the lock of the parent's children.
        node.references.store(1, MemoryOrder::Full);
        node.life.store(Life::Living as u64, MemoryOrder::Full);
        node.as_of_ns
            .store(self.machine.now_ns(), MemoryOrder::Full);
        // The record's last group may have left shards published on another way to the root. The new epoch makes a
        // straggler that still publishes for it start again, and find the new way.
        self.for_touched(index, |shards| {
            shards.iter().for_each(|&shard| node.clean(shard))
        });
        *node.children.lock() = Children {
            name,
            ..Children::default()
        };
    }

    fn take_record(&self, prepare: impl FnOnce(u32) -> bool) -> Result<u32, CreateError> {
        let mut free = self.free.lock();
        if let Some(index) = free.records.pop() {
            return Ok(index);
        }
        let index = free.next;
        if index == GROUPS_MAX || !self.nodes.reserve(index) {
            return Err(CreateError::OutOfMemory);
        }
        if free.slots.is_empty() {
            let mut slots = self
                .machine
                .slots(self.layout.words)
                .map_err(|_| CreateError::OutOfMemory)?;
            slots.reverse();
            free.slots = slots;
        }
        // All records but the root's may be free at once, and the end of a group must find room for its own.
        let has_room = free.records.try_reserve(index as usize).is_ok();
        if !has_room || !prepare(index) {
            return Err(CreateError::OutOfMemory);
        }
        let slot = free.slots.last().expect("a machine makes at least one");
        let node = self.new_node(slot.clone());
        self.nodes.put(index, node.ok_or(CreateError::OutOfMemory)?);
        free.slots.pop();
        free.next += 1;
        Ok(index)
    }

    /// `None` if there is no memory for it.
    fn new_node(&self, slot: M::Slot) -> Option<Node<M>> {
        let words = |count| room::boxed(count, || M::Word::new(0));
        let has_batches = self.layout.columns.iter().any(|column| column.batch > 0);
        Some(Node {
            slot,
            published: MarkSet::new(self.machine.cpus() as u32 + 1)?,
            dirty: MarkSet::new(0)?,
            fold: M::Spin::new(Fold::new(&self.layout, self.extra())?),
            turns: Turns::new(),
            children: M::Mutex::new(Children::default()),
            eager: words(2 * self.layout.eager)?,
            reported: words(if has_batches {
                self.layout.columns.len()
            } else {
                0
            })?,
            publications: M::Word::new(0),
            changes: M::Word::new(0),
            retirements: M::Word::new(0),
            as_of_ns: M::Word::new(0),
            child_count: M::Word::new(0),
            references: M::Word::new(0),
            life: M::Word::new(Life::Living as u64),
            parent: AtomicU32::new(NO_PARENT),
            ordinal: AtomicU32::new(0),
            depth: AtomicU32::new(0),
        })
    }

    /// Calls `each` with the name and id of every living child, in the order of names. The lock of the children is held
    /// meanwhile, and released after every [`NAMES_PER_HOLD`]. Children that come or go during the walk may be left
    /// out.
    pub(crate) fn for_each_child(&self, index: u32, mut each: impl FnMut(&str, u32)) {
        let mut last: Option<Box<str>> = None;
        loop {
            let children = self.node(index).children.lock();
            let from = last.as_deref().map_or(Bound::Unbounded, Bound::Excluded);
            let mut names = children.by_name.after(from);
            let mut seen = None;
            for (name, child) in names.by_ref().take(NAMES_PER_HOLD) {
                each(name, *child);
                seen = Some(name);
            }
            if names.next().is_none() {
                return;
            }
            last = seen.cloned();
        }
    }

    /// Refuses a group new children. It keeps those that it has.
    pub(crate) fn refuse_children(&self, index: u32) {
        self.node(index).children.lock().is_closed = true;
    }

    /// Takes a group's name away and refuses it new children. The group stays in its parent's marks.
    ///
    /// # Errors
    /// The number of living children, if there are any.
    pub(crate) fn detach(&self, index: u32) -> Result<bool, usize> {
        self.detach_if(index, |_| true)
    }

    /// Detaches a group that only removed children refer to. Does nothing if anything else refers to it by now.
    pub(crate) fn detach_unreferenced(&self, index: u32) -> bool {
        // Under the parent's lock, under which names are looked up: no new reference comes from a name after this. A
        // living child would be a reference.
        self.detach_if(index, |node| node.references().only_removed_children()) == Ok(true)
    }

    fn detach_if(&self, index: u32, condition: impl Fn(&Node<M>) -> bool) -> Result<bool, usize> {
        let node = self.node(index);
        let parent = node.parent().expect("the root is never removed");
        let mut siblings = self.node(parent).children.lock();
        // Another task may have ended the group and begun a new one in its record. Both records may be groups again, the other way round. So the
        // second lock may be taken only below the first: lock order is parent before child. The ordinals change under the first lock alone.
        let ordinal = siblings.ordinals.get(node.ordinal() as usize);
        if ordinal != Some(&Some(index)) {
            return Ok(false);
        }
        let mut children = node.children.lock();
        if children.removed || !condition(node) {
            return Ok(false);
        }
        if !children.by_name.is_empty() {
            return Err(children.by_name.len());
        }
        children.removed = true;
        siblings.by_name.remove(&children.name);
        // Full: pairs with the load in `is_removed`.
        node.life.store(Life::Ending as u64, MemoryOrder::Full);
        Ok(true)
    }

    /// Ends the life of a removed group that nothing refers to and whose words are folded. The caller drops the
    /// reference to the parent.
    pub(super) fn end_life(&self, index: u32) {
        let node = self.node(index);
        let parent = node.parent().expect("the root is never removed");
        let above = self.node(parent);
        // Before the ordinal may be another's.
        let roster = {
            let mut fold = node.fold.lock();
            fold.has_ended = true;
            fold.roster.take()
        };
        drop(roster);
        // Before the record may be another's. A roster that is made from here on is without it.
        self.count(index, |node| &node.changes);
        let mut siblings = above.children.lock();
        let ordinal = node.ordinal();
        siblings.ordinals[ordinal as usize] = None;
        siblings.free_ordinals.push(ordinal);
        // Full, both: pair with `add_eager`, which adds to the same words, and with `read_eager`, under the same lock.
        for (word, own) in above.eager[self.layout.eager..].iter().enumerate() {
            own.fetch_add_signed(
                node.eager[word].load_signed(MemoryOrder::Full),
                MemoryOrder::Full,
            );
        }
        // Full: pairs with `add_eager` of the record's next group, which takes the record under the lock of `free`.
        node.eager
            .iter()
            .for_each(|word| word.store(0, MemoryOrder::Full));
        above.child_count.fetch_sub(1, MemoryOrder::Relaxed);
        self.free.lock().records.push(index);
    }

    /// Counts something that rosters must know in the group and above.
    pub(super) fn count(&self, index: u32, of: impl Fn(&Node<M>) -> &M::Word) {
        if self.policy != FlushPolicy::Combining {
            // No rosters.
            return;
        }
        for at in self.chain(index) {
            // Full: pairs with `by_roster`.
            of(self.node(at)).fetch_add(1, MemoryOrder::Full);
        }
    }
}

#[cfg(test)]
mod tests {
    use bursar_machine::Host;

    use super::super::fixture::{add_rows, child, place, rows, tree, tree_of};
    use super::super::{Counter, Keep, Statistic, exact};
    use super::*;

    const EAGER: &[Statistic] = &[
        Statistic::counter("opened").eager(),
        Statistic::counter("closed").eager(),
        Statistic::counter("failed").eager(),
    ];

    const BATCHED: &[Statistic] = &[Statistic::counter("rows").batch(10)];

    /// The groups on the way from the root to the deepest level.
    fn way_down(tree: &Tree<Host>) -> Vec<u32> {
        let mut way = vec![ROOT];
        for level in 1..=DEPTH_MAX {
            way.push(child(tree, way[way.len() - 1], &level.to_string()));
        }
        let deepest = way[way.len() - 1];
        assert!(tree.chain(deepest).eq(way.iter().rev().copied()));
        way
    }

    #[test]
    fn numbers_and_names_come_from_the_deepest_level() {
        let tree = tree();
        let deepest = way_down(&tree)[DEPTH_MAX as usize];
        let names = (1..=DEPTH_MAX).map(|level| format!("/{level}"));
        assert_eq!(tree.path(deepest), names.collect::<String>());
        add_rows(&tree, deepest, 1);
        for added in 1..5 {
            assert_eq!(rows(&tree, ROOT), added);
            add_rows(&tree, deepest, 1);
        }
    }

    #[test]
    fn eager_statistics_of_the_deepest_level_are_in_all_above() {
        let tree = tree_of(EAGER, Duration::MAX, SHARDS_PER_HOLD);
        let way = way_down(&tree);
        let deepest = way[DEPTH_MAX as usize];
        for (statistic, number) in EAGER.iter().zip([3, 5, 7]) {
            let counter = Counter::from_name(EAGER, statistic.name());
            tree.add(deepest, &tree.node(deepest).slot, place(counter), number);
        }
        for (level, &at) in way.iter().enumerate() {
            let reading = exact(&tree, at, Keep::Folded).expect("reads may walk");
            let values = [1, 2, 3].map(|column| reading.values[column].value);
            let own = [3, 5, 7].map(|number| if at == deepest { number } else { 0 });
            assert_eq!(
                (values, &reading.own[1..]),
                ([3, 5, 7], &own[..]),
                "{level}"
            );
        }
    }

    #[test]
    fn only_batched_statistics_take_room_for_reports() {
        let reported = |statistics| {
            tree_of(statistics, Duration::MAX, SHARDS_PER_HOLD)
                .node(ROOT)
                .reported
                .len()
        };
        assert_eq!([EAGER, BATCHED].map(reported), [0, 2]);
    }
}
