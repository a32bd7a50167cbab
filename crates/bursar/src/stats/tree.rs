//! Groups: birth, names, removal, rebirth.
//!
//! A group is a record in a table; its id is the index. A record is used
//! again only when nothing can refer to it: no handle, no child, no byte charged (the layer above sees to the last).
//! A removed group leaves its parent's names at once and stays in its marks, so that late updates still find their way.

use std::collections::BTreeMap;
use std::fmt;
use std::ops::Bound;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use bursar_machine::{AtomicWord, Lock, Machine, Order};

use super::combine::Combiner;
use super::fold::Fold;
use super::name::{NAME_MAX, check_name, printable};
use super::{Layout, MarkSet};
use crate::arena::Arena;

/// The deepest level below the root. Deep enough for any nesting of tenants and operators; it bounds every walk.
const DEPTH_MAX: u32 = 64;
/// Groups on the way from the deepest to the root.
pub(crate) const LEVELS: usize = DEPTH_MAX as usize + 1;
/// Children that are looked at under one hold of a group's lock.
const NAMES_PER_HOLD: usize = 64;
/// The root's id.
pub(crate) const ROOT: u32 = 0;
const NO_PARENT: u32 = u32::MAX;
/// Live groups of one memory at the most; ids stay below `NO_PARENT`.
const GROUPS_MAX: u32 = 1 << 26;

/// Who flushes, and when.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
#[non_exhaustive]
pub enum FlushPolicy {
    /// Readers that need fresher numbers flush; overlapping flushes are combined, so that none waits for more than two.
    #[default]
    Combining,
    /// Only [`crate::Memory::tick`] flushes. Reads that need fresher numbers fail, and say so.
    PeriodicOnly,
}

/// Why a group could not be made.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum CreateError {
    /// The name is empty.
    EmptyName,
    /// The name is longer than [`NAME_MAX`] bytes.
    LongName {
        /// Its length, bytes.
        bytes: usize,
    },
    /// The name is `.` or `..`, or contains a slash, which separates names in paths, or a NUL. The kernel refuses these too.
    BadName {
        /// The name.
        name: String,
    },
    /// The parent has a child of that name.
    Exists {
        /// The path that is taken.
        path: String,
    },
    /// The parent was removed, or is being closed.
    ParentRemoved {
        /// The parent's path when it lived.
        path: String,
    },
    /// The group would be more than 64 levels below the root.
    TooDeep,
    /// There is no memory for more groups.
    OutOfMemory,
}

impl fmt::Display for CreateError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::EmptyName => f.write_str("a group needs a name"),
            Self::LongName { bytes } => {
                write!(
                    f,
                    "a group's name has at most {NAME_MAX} bytes, this one {bytes}"
                )
            }
            Self::BadName { name } => {
                write!(
                    f,
                    "a group's name is not '.' or '..' and contains no '/' and no NUL: {name:?}"
                )
            }
            Self::Exists { path } => {
                write!(f, "there is a group {} already", printable(path))
            }
            Self::ParentRemoved { path } => write!(f, "{} was removed", printable(path)),
            Self::TooDeep => write!(f, "groups nest at most {DEPTH_MAX} levels deep"),
            Self::OutOfMemory => f.write_str("no memory for another group"),
        }
    }
}

impl std::error::Error for CreateError {}

/// A child by its number among its siblings, and by its name.
#[derive(Debug, Default)]
pub(crate) struct Children {
    /// Those that live.
    pub(crate) by_name: BTreeMap<Box<str>, u32>,
    /// By ordinal, also the removed ones that late updates may come from.
    pub(crate) ordinals: Vec<Option<u32>>,
    free_ordinals: Vec<u32>,
    /// No child is added any more: the group is about to be removed.
    is_closed: bool,
    /// The group was removed.
    removed: bool,
    name: Box<str>,
}

/// What refers to a group, in one word: handles, pins and children (low 38 bits), and how many of these are children that
/// were removed and whose records have yet to end (high 26 bits, as many as there may be groups).
///
/// All references keep the record. Handles, pins and living children also keep the name.
#[derive(Clone, Copy, Debug)]
pub(crate) struct References(u64);

impl References {
    const REMOVED_CHILD: u64 = 1 << 38;
    /// Far from what fits: a program that leaks more handles than this is stopped, as [`std::sync::Arc`] stops it.
    const MAX: u64 = Self::REMOVED_CHILD / 2;

    fn count(self) -> u64 {
        self.0 % Self::REMOVED_CHILD
    }

    /// Nothing keeps the record but bytes that are charged.
    pub(crate) fn is_empty(self) -> bool {
        self.count() == 0
    }

    /// Nothing keeps the name.
    pub(crate) fn only_removed_children(self) -> bool {
        self.count() == self.0 / Self::REMOVED_CHILD
    }
}

/// Where a group is in its life.
enum Life {
    Living,
    /// It has lost its name; its end has yet to be told to the groups above.
    Ending,
    /// It has ended, and something may refer to its record.
    Ended,
    /// Ended. The record is listed, or a task that reaps has it in hand.
    Listed,
}

/// The record of one group.
pub(crate) struct Node<M: Machine> {
    pub(crate) slot: M::Slot,
    pub(crate) published: MarkSet<M>,
    pub(crate) dirty: MarkSet<M>,
    pub(crate) fold: M::Mutex<Fold>,
    pub(crate) children: M::Mutex<Children>,
    /// The subtree's value of each eager statistic; then of each the group's own part, with that of children that ended.
    pub(crate) eager: Box<[M::Word]>,
    /// Magnitude reported by batched statistics, by column.
    pub(crate) reported: Box<[M::Word]>,
    /// How often a slot of the subtree was published.
    pub(crate) publications: M::Word,
    /// When the last flush of exactly this scope began, ns.
    pub(crate) as_of_ns: M::Word,
    /// Children, also removed ones.
    pub(crate) child_count: M::Word,
    /// [`References`].
    references: M::Word,
    /// [`Life`].
    life: M::Word,
    // Written while nobody else knows the record, read by those who were given its id: no protocol of their own.
    parent: AtomicU32,
    ordinal: AtomicU32,
    depth: AtomicU32,
}

impl<M: Machine> Node<M> {
    /// The parent's id, if this is not the root.
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

    pub(crate) fn name(&self) -> String {
        self.children.lock().name.to_string()
    }

    pub(crate) fn is_removed(&self) -> bool {
        // Full: pairs with the store in `Tree::detach`.
        self.life.load(Order::Full) != Life::Living as u64
    }

    /// The group has ended, and its record may be looked at by who ends records.
    pub(crate) fn end(&self) {
        // Full: pairs with the last reference's drop. Either that finds us ended, or we find it gone.
        self.life.store(Life::Ended as u64, Order::Full);
    }

    /// Whether the group has ended: it is removed, and operations that began before are over.
    pub(crate) fn has_ended(&self) -> bool {
        // Full: as in `is_removed`.
        self.life.load(Order::Full) >= Life::Ended as u64
    }

    /// Whether the caller is to list the record: its group has ended, nothing refers to it, and it is not listed.
    pub(crate) fn take_listing(&self) -> bool {
        let (ended, listed) = (Life::Ended as u64, Life::Listed as u64);
        self.references().is_empty()
            && self
                .life
                .compare_exchange(ended, listed, Order::Full)
                .is_ok()
    }

    pub(crate) fn references(&self) -> References {
        References(self.references.load(Order::Full))
    }

    /// One more reference.
    pub(crate) fn refer(&self) {
        // Full: a new reference comes from an old one, which stays until this is done.
        let before = References(self.references.fetch_add(1, Order::Full));
        assert!(before.count() < References::MAX, "too many handles");
    }

    /// One reference less; says what is left.
    pub(crate) fn forget(&self) -> References {
        References(self.references.fetch_sub(1, Order::Full) - 1)
    }

    /// A child was removed; says what is left.
    pub(crate) fn child_removed(&self) -> References {
        let one = References::REMOVED_CHILD;
        References(self.references.fetch_add(one, Order::Full) + one)
    }

    /// A removed child's record has ended.
    pub(crate) fn forget_child(&self) {
        let one = References::REMOVED_CHILD + 1;
        self.references.fetch_sub(one, Order::Full);
    }
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
    pub(crate) combiner: Combiner<M>,
    nodes: Arena<Node<M>>,
    free: M::Mutex<Free<M>>,
}

impl<M: Machine> Tree<M> {
    pub(crate) fn new(
        machine: M,
        layout: Layout,
        policy: FlushPolicy,
        flush_period: Duration,
    ) -> Result<Self, CreateError> {
        let tree = Self {
            layout,
            policy,
            flush_period_ns: u64::try_from(flush_period.as_nanos()).unwrap_or(u64::MAX),
            combiner: Combiner::new(),
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
        tree.begin_life(ROOT, NO_PARENT, 0, 0, "");
        Ok(tree)
    }

    #[inline]
    pub(crate) fn node(&self, index: u32) -> &Node<M> {
        self.nodes.get(index)
    }

    /// `index` and its ancestors, the root last.
    #[inline]
    pub(crate) fn chain(&self, index: u32) -> impl Iterator<Item = u32> + '_ {
        std::iter::successors(Some(index), |&at| self.node(at).parent())
    }

    /// Whether `ancestor` is `index` or above it.
    pub(crate) fn is_ancestor(&self, ancestor: u32, index: u32) -> bool {
        let depth = self.node(ancestor).depth();
        let mut at = index;
        while self.node(at).depth() > depth {
            at = self.node(at).parent().expect("only the root has depth 0");
        }
        at == ancestor
    }

    /// The records that there are, also those without a group.
    pub(crate) fn records(&self) -> u32 {
        self.free.lock().next
    }

    /// Groups that there are, also removed ones that have yet to end.
    pub(crate) fn group_count(&self) -> usize {
        let free = self.free.lock();
        free.next as usize - free.records.len()
    }

    /// All groups, parents before children, each with its parent's position (the root with its own); also removed ones
    /// that have yet to end.
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

    /// The path of names from the root, `/` for the root itself.
    pub(crate) fn path(&self, index: u32) -> String {
        let names: Vec<String> = self.chain(index).map(|at| self.node(at).name()).collect();
        match names.len() {
            1 => "/".to_owned(),
            _ => names
                .iter()
                .rev()
                .skip(1)
                .fold(String::new(), |path, name| path + "/" + name),
        }
    }

    /// Makes a child. `prepare_record` makes room for a new record elsewhere, or says that there is none; `prepare` is
    /// called with the child's id and ordinal while nobody else knows them.
    pub(crate) fn create(
        &self,
        parent: u32,
        name: &str,
        prepare_record: impl FnOnce(u32) -> bool,
        prepare: impl FnOnce(u32, u32),
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
            return Err(CreateError::ParentRemoved {
                path: self.path(parent),
            });
        }
        if children.by_name.contains_key(name) {
            drop(children);
            let path = self.path(parent);
            return Err(CreateError::Exists {
                path: format!("{}/{name}", path.trim_end_matches('/')),
            });
        }
        if children.free_ordinals.is_empty()
            && children.ordinals.len() >= MarkSet::<M>::LIMIT as usize
        {
            return Err(CreateError::OutOfMemory);
        }
        let index = self.take_record(prepare_record)?;
        let ordinal = match children.free_ordinals.pop() {
            Some(ordinal) => ordinal,
            None => {
                children.ordinals.push(None);
                children.ordinals.len() as u32 - 1
            }
        };
        above.dirty.ensure(ordinal);
        children.ordinals[ordinal as usize] = Some(index);
        self.begin_life(index, parent, ordinal, depth, name);
        prepare(index, ordinal);
        // Relaxed: counted under the parent's lock; read as hints or under it.
        above.child_count.fetch_add(1, Order::Relaxed);
        if parent != ROOT {
            above.refer();
        }
        children.by_name.insert(name.into(), index);
        Ok(index)
    }

    fn begin_life(&self, index: u32, parent: u32, ordinal: u32, depth: u32, name: &str) {
        let node = self.node(index);
        node.parent.store(parent, Ordering::Relaxed);
        node.ordinal.store(ordinal, Ordering::Relaxed);
        node.depth.store(depth, Ordering::Relaxed);
        node.references.store(1, Order::Full);
        node.life.store(Life::Living as u64, Order::Full);
        node.as_of_ns.store(self.machine.now_ns(), Order::Full);
        // The record's last group may have left shards published, on a way that is not this group's. In a new epoch: a
        // straggler that is still publishing for it starts again and finds the new way.
        for shard in self.touched(index) {
            super::flush::clean::<M>(&node.slot, shard);
        }
        node.fold.lock().begin_life();
        *node.children.lock() = Children {
            name: name.into(),
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
        if !prepare(index) {
            return Err(CreateError::OutOfMemory);
        }
        let slot = free.slots.pop().expect("a machine makes at least one");
        let words = |count| (0..count).map(|_| M::Word::new(0)).collect();
        let has_batches = self.layout.columns.iter().any(|column| column.batch > 0);
        self.nodes.put(
            index,
            Node {
                slot,
                published: MarkSet::new(self.machine.cpus() as u32 + 1),
                dirty: MarkSet::new(0),
                fold: M::Mutex::new(Fold::new(&self.layout)),
                children: M::Mutex::new(Children::default()),
                eager: words(2 * self.layout.eager),
                reported: words(if has_batches {
                    self.layout.columns.len()
                } else {
                    0
                }),
                publications: M::Word::new(0),
                as_of_ns: M::Word::new(0),
                child_count: M::Word::new(0),
                references: M::Word::new(0),
                life: M::Word::new(Life::Living as u64),
                parent: AtomicU32::new(NO_PARENT),
                ordinal: AtomicU32::new(0),
                depth: AtomicU32::new(0),
            },
        );
        free.next += 1;
        Ok(index)
    }

    /// Calls `each` with the name and id of every living child, by name. It runs under the lock of the children, which is let
    /// go after each [`NAMES_PER_HOLD`]; children that come or go meanwhile may be left out.
    pub(crate) fn for_each_child(&self, index: u32, mut each: impl FnMut(&str, u32)) {
        let mut last: Option<Box<str>> = None;
        loop {
            let children = self.node(index).children.lock();
            let from = last.as_deref().map_or(Bound::Unbounded, Bound::Excluded);
            let mut names = children.by_name.range::<str, _>((from, Bound::Unbounded));
            let mut seen = None;
            for (name, &child) in names.by_ref().take(NAMES_PER_HOLD) {
                each(name, child);
                seen = Some(name);
            }
            if names.next().is_none() {
                return;
            }
            last = seen.cloned();
        }
    }

    /// Lets a group have no more children from now on. It keeps those that it has.
    pub(crate) fn refuse_children(&self, index: u32) {
        self.node(index).children.lock().is_closed = true;
    }

    /// Takes a group's name away and lets it have no more children; it stays in its parent's marks.
    ///
    /// # Errors
    /// The number of children that live.
    pub(crate) fn detach(&self, index: u32) -> Result<bool, usize> {
        self.detach_if(index, |_| true)
    }

    /// [`Tree::detach`] for a group that only removed children refer to; nothing happens if something else does by now.
    pub(crate) fn detach_unreferenced(&self, index: u32) -> bool {
        // Under the parent's lock, under which names are looked up: no new reference comes from a name after this. Living
        // children would refer to it.
        self.detach_if(index, |node| node.references().only_removed_children()) == Ok(true)
    }

    fn detach_if(&self, index: u32, condition: impl Fn(&Node<M>) -> bool) -> Result<bool, usize> {
        let node = self.node(index);
        let parent = node.parent().expect("the root is never removed");
        // Lock order: parent before child.
        let mut siblings = self.node(parent).children.lock();
        let mut children = node.children.lock();
        // Looked at again: somebody may have ended the group, and begun another in its record, before we had the locks.
        let is_its_parent = node.parent() == Some(parent);
        if !is_its_parent || children.removed || !condition(node) {
            return Ok(false);
        }
        if !children.by_name.is_empty() {
            return Err(children.by_name.len());
        }
        children.removed = true;
        siblings.by_name.remove(&children.name);
        // Full: pairs with `is_removed`.
        node.life.store(Life::Ending as u64, Order::Full);
        Ok(true)
    }

    /// Ends the life of a removed group that nobody refers to any more, and whose words are folded. The caller drops the
    /// reference to its parent.
    pub(super) fn end_life(&self, index: u32) {
        let node = self.node(index);
        let parent = node.parent().expect("the root is never removed");
        let above = self.node(parent);
        let mut siblings = above.children.lock();
        let ordinal = node.ordinal();
        siblings.ordinals[ordinal as usize] = None;
        siblings.free_ordinals.push(ordinal);
        for (word, own) in above.eager[self.layout.eager..].iter().enumerate() {
            own.fetch_add_signed(node.eager[word].load_signed(Order::Full), Order::Full);
        }
        node.eager
            .iter()
            .for_each(|word| word.store(0, Order::Full));
        above.child_count.fetch_sub(1, Order::Relaxed);
        self.free.lock().records.push(index);
    }
}
