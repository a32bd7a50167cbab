//! Groups: the public handle of a node of the tree.

use std::fmt;
use std::hash::{Hash, Hasher};

use bursar_machine::pages::Owner;
use bursar_machine::{Host, Lock, Machine};

use crate::limit::Limits;
use crate::react::{Core, RemoveError, close, fork, lifetime};
use crate::tree::{self, CreateError, Freshness, Keep, NotFresh, Reading, printable};

/// A group of a memory: a tenant, a query, an operator.
///
/// A value of this type is a *handle* of the group. A group lives until [`Group::remove`] or [`Group::close`], or until no handle, no
/// charge of 0 bytes and no living child refers to it. Then its name is free. A reclaim or a tick refers to a group for a moment, so its
/// name may stay taken a little after the last drop. Where a name is used again at once, end the group by [`Group::close`]. Its charges
/// stay valid, and its statistics stay readable while a handle exists. Cloning a handle costs one contended atomic operation. Charging and
/// counting usually cost none.
///
/// Sizes and limits are numbers of bytes as `u64`: pass a slice's length as `slice.len() as u64`.
///
/// # Which charge do I want?
/// Begin with [`Group::try_charge`]. The others differ in where they may be called, and in what they do about a limit:
///
/// | | may wait | may refuse | may overshoot | signal-safe | for |
/// |---|---|---|---|---|---|
/// | [`try_charge`](Group::try_charge) | for stock and reclaimers | yes | no | no | threads that can go on without the memory |
/// | [`charge_async`](Group::charge_async) | in a queue, as a future | only if it can never fit, or after removal | no | no | async tasks |
/// | [`try_charge_nowait`](crate::engine::Engine::try_charge_nowait) | no | yes, also for stock elsewhere | no | yes | code under locks, signal handlers |
/// | [`charge_from_stock`](crate::engine::Engine::charge_from_stock) | no | yes, without stock on this CPU | no | yes | a pool's own fast path |
/// | [`charge`](Group::charge) | for stock and reclaimers | no | yes | no | memory that is in use already |
/// | [`charge_nowait`](crate::engine::Engine::charge_nowait) | no | no | yes | yes | allocators |
///
/// *Stock* is a number of bytes that a CPU has charged ahead for its next charges. A *reclaimer* is a function of yours that frees
/// memory ([`Group::add_reclaimer`]). A charge that *overshoots* brings the usage above a limit. Charges that may be refused then
/// fail until the usage is back within the limit.
///
/// # Reserve or count
/// A program charges bytes in one of two ways. It *reserves* them by a charge before it allocates them. Or it *counts* what it
/// really allocates, by the global allocator `Charged` of the crate `bursar-alloc`. If the same bytes are reserved and counted
/// in one group, the group pays for them twice.
///
/// | | reserve | count | both, with `bursar_alloc::Twin` |
/// |---|---|---|---|
/// | how | [`Group::try_charge`] before allocating | `Charged`, and `scope` or `in_group` around the work | reserve in the group, allocate in its twin |
/// | a limit | refuses before the memory is used | is exceeded; [`Group::is_over_max`] tells | refuses reservations |
/// | the numbers | estimates by the code | sizes that the allocator really takes | both, and their difference |
/// | which bytes | those that the code charges | all that are allocated in the group | both |
/// | for | few large buffers: sorts, hash tables, caches | libraries, and many small values | a check of the estimates |
///
/// A group may do both for different bytes: reserve its buffers, and count the rest. Then allocate the reserved buffers within
/// `bursar_alloc::outside`.
#[must_use = "a group is removed with its last handle"]
pub struct Group<M: Machine = Host> {
    slot: M::Slot,
    index: u32,
    /// Marks pages that this group wrote.
    owner: Owner,
    core: M::Shared<Core<M>>,
}

impl<M: Machine> Clone for Group<M> {
    fn clone(&self) -> Self {
        self.core.counters.refer(self.index);
        Self::new(self.core.clone(), self.index)
    }
}

impl<M: Machine> Drop for Group<M> {
    fn drop(&mut self) {
        lifetime::forget(&self.core, self.index);
    }
}

/// Handles are equal if they refer to the same group of the same memory. A removed group and a later group of the same name are
/// different.
impl<M: Machine> PartialEq for Group<M> {
    fn eq(&self, other: &Self) -> bool {
        std::ptr::eq::<Core<M>>(&*self.core, &*other.core) && self.index == other.index
    }
}

impl<M: Machine> Eq for Group<M> {}

impl<M: Machine> Hash for Group<M> {
    fn hash<H: Hasher>(&self, state: &mut H) {
        std::ptr::hash::<Core<M>, H>(&*self.core, state);
        self.index.hash(state);
    }
}

/// Prints the path by [`printable`].
impl<M: Machine> fmt::Display for Group<M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&printable(&self.path()))
    }
}

impl<M: Machine> fmt::Debug for Group<M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Group").field(&self.path()).finish()
    }
}

/// # Tree
impl<M: Machine> Group<M> {
    /// Makes a child.
    ///
    /// ```
    /// use bursar::{CreateError, Limits, Memory};
    ///
    /// let memory = Memory::host()?;
    /// let tenant = memory.root().child("tenant", Limits::max(256 << 20))?;
    /// let query = tenant.child(format!("query-{}", 7), Limits::none())?;
    /// assert_eq!(query.path(), "/tenant/query-7");
    /// let again = memory.root().child("tenant", Limits::none());
    /// assert!(matches!(again, Err(CreateError::Exists { .. })));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// Nothing changes if it fails.
    /// * [`CreateError::EmptyName`], [`CreateError::LongName`] (more than [`crate::NAME_MAX`] bytes), [`CreateError::BadName`]
    ///   (`.`, `..`, or a name with a slash or NUL).
    /// * [`CreateError::Exists`]: the group has a child of that name.
    /// * [`CreateError::ParentRemoved`]: this group was removed.
    /// * [`CreateError::TooDeep`]: more than 64 levels. [`CreateError::OutOfMemory`]: no memory for more groups.
    #[doc(alias = "cgroup_mkdir")]
    pub fn child(&self, name: impl AsRef<str>, limits: Limits) -> Result<Self, CreateError> {
        let index = lifetime::create(&self.core, self.index, name.as_ref(), limits)?;
        Ok(Self::new(self.core.clone(), index))
    }

    /// Removes the group. Its name is free at once, fallible charges to it fail from now on, and its parent takes over its
    /// statistics. Charged bytes stay charged, here and to the ancestors, until they are returned. A second call changes nothing.
    ///
    /// ```
    /// use bursar::{Freshness, Limits, Memory};
    ///
    /// let memory = Memory::host()?;
    /// let tenant = memory.root().child("tenant", Limits::none())?;
    /// let charge = tenant.try_charge(1 << 20)?;
    /// tenant.remove()?;
    /// assert!(tenant.try_charge(1).is_err());
    /// assert_eq!(memory.root().read(Freshness::Exact)?.usage_bytes(), 1 << 20);
    /// drop(charge);
    /// assert_eq!(memory.root().read(Freshness::Exact)?.usage_bytes(), 0);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// [`RemoveError::HasChildren`], and [`RemoveError::Root`] for the root. Nothing changes then.
    #[doc(alias = "cgroup_rmdir")]
    pub fn remove(&self) -> Result<(), RemoveError> {
        close::remove(&self.core, self.index)
    }

    /// Whether the group was removed.
    pub fn is_removed(&self) -> bool {
        self.core.tree().node(self.index).is_removed()
    }

    /// Closes the group and everything below it: removes all these groups in one call, children first. When this returns, no
    /// fallible charge to any of them succeeds, not even from stock, and none of them has or gets a child. Charges that wait
    /// ([`Group::charge_async`]) fail with [`ChargeError::Removed`](crate::ChargeError::Removed). Children that other tasks make meanwhile are closed too.
    /// A second call changes nothing.
    ///
    /// As with [`Group::remove`], names are free at once, the parent takes over the statistics, and charged bytes stay charged
    /// until they are returned. [`Group::emptied`] waits for that. The stock of these groups is returned. Infallible charges
    /// ([`Group::charge`]) still succeed. So do allocations that `bursar_alloc` charges, because an allocator cannot refuse:
    /// end the tasks that run in the group as well.
    ///
    /// Costs one removal for each group, and waits for snapshots as each removal does. If another thread forks during this call, the
    /// subtree may be closed only in part in the child: close it again there.
    ///
    /// ```
    /// # use bursar::{ChargeError, Limits, Memory};
    /// let memory = Memory::host()?;
    /// let tenant = memory.root().child("tenant", Limits::max(8 << 20))?;
    /// let query = tenant.child("query", Limits::none())?;
    /// let charge = query.try_charge(1 << 20)?;
    /// tenant.close()?;
    /// assert!(matches!(query.try_charge(1), Err(ChargeError::Removed { .. })));
    /// // The name is free, though bytes are charged still.
    /// let next = memory.root().child("tenant", Limits::max(8 << 20))?;
    /// drop(charge);
    /// tenant.emptied().wait();
    /// assert_eq!(tenant.reserved(), 0);
    /// # drop(next);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// [`RemoveError::Root`] for the root, which cannot be closed.
    pub fn close(&self) -> Result<(), RemoveError> {
        close::close(&self.core, self.index)
    }

    /// The name as it was given, not escaped by [`printable`]. Empty for the root.
    pub fn name(&self) -> String {
        let _operation = fork::operation(&self.core);
        self.core.tree().node(self.index).name()
    }

    /// The names from the root on, each after a `/`, not escaped. The group's `Display` escapes them and is safe to print in a
    /// log.
    pub fn path(&self) -> String {
        lifetime::path(&self.core, self.index)
    }

    /// The parent; `None` for the root.
    pub fn parent(&self) -> Option<Self> {
        let parent = self.core.tree().node(self.index).parent()?;
        // Our own reference keeps the parent's record.
        self.core.counters.refer(parent);
        Some(Self::new(self.core.clone(), parent))
    }

    /// The children, sorted by name.
    pub fn children(&self) -> Vec<Self> {
        let _operation = fork::operation(&self.core);
        let mut children = Vec::new();
        let tree = &self.core.tree();
        tree.for_each_child(self.index, |_, child| children.push(self.refer_to(child)));
        children
    }

    /// The child whose name is exactly `name`. For a path, which may skip slashes, see [`crate::Memory::find`].
    pub fn find(&self, name: &str) -> Option<Self> {
        let _operation = fork::operation(&self.core);
        let children = self.core.tree().node(self.index).children.lock();
        let found = children.by_name.get(name);
        found.map(|index| self.refer_to(index))
    }
}

/// # Readings
impl<M: Machine> Group<M> {
    /// Reads the usage and all statistics of the group and everything below it, as one snapshot.
    ///
    /// ```
    /// use bursar::{Freshness, Limits, Memory};
    ///
    /// let memory = Memory::host()?;
    /// let tenant = memory.root().child("tenant", Limits::none())?;
    /// let charge = tenant.try_charge(48 << 20)?;
    /// assert_eq!(tenant.read(Freshness::Exact)?.usage_bytes(), 48 << 20);
    /// // Cheaper: what the last flush left, and the range in which the truth lies.
    /// let usage = tenant.read(Freshness::Cached)?.usage();
    /// assert!((usage.lo..=usage.hi).contains(&(48 << 20)));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// [`NotFresh`] if the memory's policy forbids the flush that this needs. It carries the cached reading.
    #[doc(alias = "memory.stat")]
    pub fn read(&self, freshness: Freshness) -> Result<Reading, NotFresh> {
        let _operation = fork::operation(&self.core);
        let usage_range = || self.core.counters.usage_range(self.index);
        let reading = tree::read(self.core.tree(), self.index, freshness, usage_range);
        self.with_over_returned(reading)
    }

    /// Reads as [`Freshness::Exact`](crate::Freshness::Exact) does, and brings the numbers of the group and all groups below it up to date: a
    /// [`Freshness::Cached`](crate::Freshness::Cached) read of any of these then misses no update that returned before this call. So one call serves a decision
    /// over many groups.
    ///
    /// # Errors
    /// As [`Group::read`].
    #[doc(alias = "css_rstat_flush")]
    pub fn flush(&self) -> Result<Reading, NotFresh> {
        let _operation = fork::operation(&self.core);
        self.with_over_returned(tree::exact(self.core.tree(), self.index, Keep::Folded))
    }

    /// Adds bytes that were returned too often to a reading; without one, to the error.
    fn with_over_returned(&self, reading: Option<Reading>) -> Result<Reading, NotFresh> {
        let counters = &self.core.counters;
        let events = || counters.counter(self.index).events.total();
        let finished = |reading: Reading| reading.with_over_returned(events().over_returned_bytes);
        reading.map(finished).ok_or_else(|| {
            let range = counters.usage_range(self.index);
            NotFresh {
                cached: finished(tree::cached(self.core.tree(), self.index, range)),
            }
        })
    }
}

impl<M: Machine> Group<M> {
    /// A handle. The caller has taken the reference; the root needs none.
    pub(crate) fn new(core: M::Shared<Core<M>>, index: u32) -> Self {
        let slot = core.tree().node(index).slot.clone();
        Self {
            slot,
            index,
            owner: core.counters.counter(index).owner(),
            core,
        }
    }

    /// A handle of a child. The caller holds the lock of our children, which keeps the record of each listed name.
    fn refer_to(&self, index: u32) -> Self {
        self.core.counters.refer(index);
        Self::new(self.core.clone(), index)
    }

    #[inline(always)]
    pub(crate) fn index(&self) -> u32 {
        self.index
    }

    #[inline(always)]
    pub(crate) fn owner(&self) -> Owner {
        self.owner
    }

    #[inline(always)]
    pub(crate) fn slot(&self) -> &M::Slot {
        &self.slot
    }

    #[inline(always)]
    pub(crate) fn core(&self) -> &M::Shared<Core<M>> {
        &self.core
    }
}
