//! Groups, as users see them.

use std::fmt;
use std::hash::{Hash, Hasher};

use bursar_machine::pages::Owner;
use bursar_machine::{AtomicWord, Host, Lock, Machine, Order, Outcome, Slot};

use crate::books::Books;
use crate::charge::{ChargeError, Debt, Events, Limits, NowaitError, RemoveError, USAGE_MAX};
use crate::held::Charge;
use crate::stats::{CreateError, Freshness, Handle, NotFresh, Reading, printable, sealed};

/// A group of a memory: a tenant, a query, an operator.
///
/// A group lives until [`Group::remove`], or until no handle, no charge of 0 bytes and no living child refers to it. Its
/// name is free from then on. Charges stay valid beyond that. Its statistics are readable as long as a handle lives. Cloning costs one contended atomic operation;
/// the operations below do not.
#[must_use = "a group is removed with its last handle"]
pub struct Group<M: Machine = Host> {
    slot: M::Slot,
    index: u32,
    /// What tells our pages from others'.
    owner: Owner,
    books: M::Shared<Books<M>>,
}

impl<M: Machine> Clone for Group<M> {
    fn clone(&self) -> Self {
        self.books.refer(self.index);
        Self::new(self.books.clone(), self.index)
    }
}

impl<M: Machine> Drop for Group<M> {
    fn drop(&mut self) {
        self.books.forget(self.index);
    }
}

/// The same group of the same memory. As a handle keeps the group's record, this stays so while it lives, also when the
/// group is removed and another has its name.
impl<M: Machine> PartialEq for Group<M> {
    fn eq(&self, other: &Self) -> bool {
        std::ptr::eq::<Books<M>>(&*self.books, &*other.books) && self.index == other.index
    }
}

impl<M: Machine> Eq for Group<M> {}

impl<M: Machine> Hash for Group<M> {
    fn hash<H: Hasher>(&self, state: &mut H) {
        std::ptr::hash::<Books<M>, H>(&*self.books, state);
        self.index.hash(state);
    }
}

/// The path, by [`printable`].
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

impl<M: Machine> Group<M> {
    /// A handle; the caller has taken the reference (the root needs none).
    pub(crate) fn new(books: M::Shared<Books<M>>, index: u32) -> Self {
        let slot = books.tree.node(index).slot.clone();
        Self {
            slot,
            index,
            owner: books.counter(index).owner(),
            books,
        }
    }

    /// Makes a child.
    ///
    /// # Errors
    /// [`CreateError`], see there. Nothing changes then.
    #[doc(alias = "cgroup_mkdir")]
    pub fn child(&self, name: impl AsRef<str>, limits: Limits) -> Result<Self, CreateError> {
        let index = self.books.create(self.index, name.as_ref(), limits)?;
        Ok(Self::new(self.books.clone(), index))
    }

    /// Removes the group: its name is free at once, charging it fails from now on, and its statistics count as its
    /// parent's own. What is charged stays charged, here and to the ancestors, until it is returned. Removing twice is
    /// fine.
    ///
    /// # Errors
    /// [`RemoveError`] if it has children or is the root.
    #[doc(alias = "cgroup_rmdir")]
    pub fn remove(&self) -> Result<(), RemoveError> {
        self.books.remove(self.index)
    }

    /// Closes the group and everything below it: removes all these groups in one call, children first. When this returns, no
    /// fallible charge to any of them succeeds, not even from stock, and none of them has or gets a child. Charges that wait
    /// ([`Group::charge_async`]) fail with [`ChargeError::Removed`]. Children that other tasks make meanwhile are closed too.
    /// Closing twice is fine.
    ///
    /// As with [`Group::remove`], names are free at once, statistics count as the parent's own, and what is charged stays
    /// charged until it is returned; [`Group::emptied`] waits for that. The stock of these groups is returned. Infallible charges
    /// ([`Group::charge`]) still succeed. So do allocations that `bursar_alloc` charges, because an allocator cannot refuse:
    /// end the tasks that run in the group as well.
    ///
    /// Costs one removal for each group, and waits for flushes as these do. In a child of a fork that came in the middle, the
    /// subtree is closed in part: close it again there.
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
        self.books.close(self.index)
    }

    /// Whether the group was removed.
    pub fn is_removed(&self) -> bool {
        self.books.tree.node(self.index).is_removed()
    }

    /// The name as it was given, unescaped ([`printable`]); empty for the root.
    pub fn name(&self) -> String {
        let _operation = self.books.operation();
        self.books.tree.node(self.index).name()
    }

    /// The names from the root on, each after a `/`, unescaped. The group's `Display` is safe to print in a log.
    pub fn path(&self) -> String {
        self.books.path(self.index)
    }

    /// The parent; `None` for the root.
    pub fn parent(&self) -> Option<Self> {
        let parent = self.books.tree.node(self.index).parent()?;
        // Our own reference keeps the parent's record.
        self.books.refer(parent);
        Some(Self::new(self.books.clone(), parent))
    }

    /// The children by name.
    pub fn children(&self) -> Vec<Self> {
        let _operation = self.books.operation();
        let mut children = Vec::new();
        let tree = &self.books.tree;
        tree.for_each_child(self.index, |_, child| children.push(self.refer_to(child)));
        children
    }

    /// The child of that name.
    pub fn find(&self, name: &str) -> Option<Self> {
        let _operation = self.books.operation();
        let children = self.books.tree.node(self.index).children.lock();
        children
            .by_name
            .get(name)
            .map(|&index| self.refer_to(index))
    }

    /// Under the lock of our children: a name that is there has a record that is there.
    fn refer_to(&self, index: u32) -> Self {
        self.books.refer(index);
        Self::new(self.books.clone(), index)
    }

    /// Charges `bytes` to the group and all its ancestors, and returns what holds them.
    ///
    /// Usually this takes no lock and costs the same at any depth. It may wait: when a limit is near, for the stock of
    /// other CPUs to be taken back, and for others who do that. It never succeeds above a limit that is in force, and
    /// fails only if the memory is not there and reclaimers ([`Group::add_reclaimer`]) do not free it.
    ///
    /// Above a `high`, here or above, it asks reclaimers, succeeds, and leaves a debt for [`Group::take_debt`]. It sleeps only in
    /// a memory built with [`crate::HighPolicy::Throttle`]: then it blocks the thread of the operating system for up to 2 s.
    ///
    /// # Errors
    /// [`ChargeError`], see there. Nothing is charged then.
    #[doc(alias = "try_charge_memcg")]
    #[doc(alias = "page_counter_try_charge")]
    #[inline(always)]
    pub fn try_charge(&self, bytes: u64) -> Result<Charge<M>, ChargeError> {
        let outcome = self.slot.charge(bytes);
        if outcome != Outcome::Done {
            self.try_charge_slowly(bytes, outcome)?;
        }
        Ok(self.hold(bytes))
    }

    /// Returns no charge, so that the one that the fast path makes stays in registers.
    #[cold]
    pub(crate) fn try_charge_slowly(
        &self,
        bytes: u64,
        outcome: Outcome,
    ) -> Result<(), ChargeError> {
        if bytes == 0 {
            return self.pin();
        }
        if self.books.is_committed(self.index, outcome) {
            return Ok(());
        }
        self.books.try_charge_slowly(self.index, bytes)
    }

    /// [`Group::try_charge`] that never waits and takes no lock, and is async-signal-safe. It may refuse what the other
    /// would find by looking for stock.
    ///
    /// # Errors
    /// [`NowaitError`], see there. Nothing is charged then.
    #[inline]
    pub fn try_charge_nowait(&self, bytes: u64) -> Result<Charge<M>, NowaitError> {
        let outcome = self.slot.charge(bytes);
        if outcome != Outcome::Done {
            self.try_charge_nowait_slowly(bytes, outcome)?;
        }
        Ok(self.hold(bytes))
    }

    #[cold]
    fn try_charge_nowait_slowly(&self, bytes: u64, outcome: Outcome) -> Result<(), NowaitError> {
        if bytes == 0 {
            if self.is_removed() {
                return Err(NowaitError::Removed);
            }
            self.books.refer(self.index);
            return Ok(());
        }
        if self.books.is_committed(self.index, outcome) {
            return Ok(());
        }
        self.books.try_charge_nowait(self.index, bytes)
    }

    /// Charges `bytes` whatever the limits say, for memory that is in use already. Not the one to begin with: what can
    /// still be refused belongs to [`Group::try_charge`].
    ///
    /// It tries to stay within the limits as that does, so it may wait for stock, asks reclaimers, and above a `high`
    /// does the same. A limit that this oversteps is over from then on: the stock below it is gone when this returns, and
    /// fallible charges fail until the usage is back within the limit. A removed group is charged as well. Requests
    /// beyond 2^56 bytes, or that would bring the tree beyond 2^62, are cut to that ([`Charge::bytes`] tells).
    #[doc(alias = "page_counter_charge")]
    pub fn charge(&self, bytes: u64) -> Charge<M> {
        let outcome = self.slot.charge(bytes);
        if outcome == Outcome::Done || self.books.is_committed(self.index, outcome) {
            return self.hold(bytes);
        }
        let bytes = self.books.chargeable(bytes);
        if bytes > 0 {
            self.books.charge_slowly(self.index, bytes);
            return self.hold(bytes);
        }
        self.books.refer(self.index);
        self.hold(0)
    }

    /// [`Group::charge`] that never waits and takes no lock, calls nobody, and is async-signal-safe: for those who must count
    /// what is in use wherever they are called, as an allocator must.
    ///
    /// It looks for no stock and asks no reclaimer before it oversteps a limit. The limit is over from then on, but the stock
    /// that CPUs hold below it stays until the next operation that may wait takes it back: a charge that is about to be
    /// refused, a limit lowered, [`crate::Memory::tick`]. Until then fallible charges may succeed from that stock, which counts
    /// as used already: at most 256 KiB for each CPU and group ([`crate::Builder::stock_max`]), and less near a limit. What is above a `high` is
    /// owed ([`Group::take_debt`]).
    pub fn charge_nowait(&self, bytes: u64) -> Charge<M> {
        let outcome = self.slot.charge(bytes);
        if outcome == Outcome::Done || self.books.is_committed(self.index, outcome) {
            return self.hold(bytes);
        }
        let bytes = self.books.chargeable(bytes);
        if bytes > 0 {
            self.books.charge_anyway_nowait(self.index, bytes);
            return self.hold(bytes);
        }
        self.books.refer(self.index);
        self.hold(0)
    }

    /// Charges `bytes` if this CPU holds that much stock of the group, and says whether it did; nothing else is tried. For a pool's
    /// own fast path, which it leaves without a stack frame: a few instructions and no call. What was charged goes back by
    /// [`Group::uncharge`]; what was not is for [`Group::try_charge`], which does the same first. Without restartable sequences
    /// ([`bursar_machine::host::Backend`]), and of 0 bytes, it always says no. Async-signal-safe.
    #[doc(alias = "consume_stock")]
    #[must_use]
    #[inline(always)]
    pub fn charge_from_stock(&self, bytes: u64) -> bool {
        let is_charged = self.slot.charge_at_once(bytes);
        if is_charged {
            self.books.lend(self.index, bytes);
        }
        is_charged
    }

    /// Returns `bytes` that were charged to the group and forgotten ([`Charge::forget`]), as dropping a [`Charge`] of that many
    /// does.
    ///
    /// Returning more than was charged is a bug of the caller. The group's usage stops at 0, and the groups above are lowered by
    /// no more than it had. [`Events::over_returned_bytes`] and [`Reading::over_returned`] tell the bytes, and the first case in a
    /// memory is told on stderr with the group's path. While as many other bytes of the group are charged, the bug does not
    /// show: they are missing from its usage, here and above, until those bytes are returned.
    ///
    /// # Panics
    /// In builds with debug assertions, if more is returned than was charged and forgotten. Nothing changes then.
    #[doc(alias = "page_counter_uncharge")]
    #[inline(always)]
    pub fn uncharge(&self, bytes: u64) {
        if let Err(charged) = self.books.take_back(self.index, bytes) {
            self.returned_too_much(bytes, charged);
        }
        if !self.slot.uncharge_at_once(bytes) {
            self.uncharge_slowly(bytes);
        }
    }

    #[cold]
    #[inline(never)]
    fn returned_too_much(&self, bytes: u64, charged: u64) -> ! {
        panic!(
            "{bytes} bytes returned to {}, where {charged} are charged and forgotten",
            printable(&self.path())
        );
    }

    #[cold]
    #[inline(never)]
    fn uncharge_slowly(&self, bytes: u64) {
        // Nothing is larger: a number beyond is a bug, and counted as one.
        let bytes = bytes.min(USAGE_MAX);
        let outcome = self.slot.uncharge(bytes);
        if outcome != Outcome::Done && bytes > 0 && !self.books.is_committed(self.index, outcome) {
            self.books.uncharge_slowly(self.index, bytes);
        }
    }

    /// Adds to a statistic of the group. Lock-free, async-signal-safe, and the same cost at any depth (but see
    /// [`crate::Statistic::eager`]).
    ///
    /// One call adds at most [`i64::MAX`] to a counter. More is a bug of the caller, usually a difference below 0: it is counted
    /// modulo 2^64, so the counter goes down ([`crate::Statistic::counter`]).
    ///
    /// # Panics
    /// If the handle belongs to another declaration of statistics than the memory's. In builds with debug assertions, if a
    /// counter is to grow by more than [`i64::MAX`]; nothing changes then.
    #[doc(alias = "mod_memcg_state")]
    #[doc(alias = "count_memcg_events")]
    #[inline(always)]
    pub fn add<H: Handle>(&self, statistic: H, delta: H::Delta) {
        let place = sealed::Sealed::resolve(&statistic).0;
        let delta = H::signed(delta);
        self.books.tree.add(self.index, &self.slot, place, delta);
    }

    /// Reads the usage and all statistics of the group and everything below it, as one snapshot.
    ///
    /// # Errors
    /// [`NotFresh`] if the memory's policy forbids the flush that this needs; it carries what there is.
    #[doc(alias = "memory.stat")]
    pub fn read(&self, freshness: Freshness) -> Result<Reading, NotFresh> {
        let _operation = self.books.operation();
        let tree = &self.books.tree;
        let told =
            |reading: Reading| reading.with_over_returned(self.books.over_returned(self.index));
        let cached = || tree.cached(self.index, self.books.usage_range(self.index));
        let is_fresh = match freshness {
            Freshness::Cached => true,
            Freshness::AtMost(age) => u128::from(tree.age_ns(self.index)) <= age.as_nanos(),
            Freshness::Within(error) => {
                let reading = cached();
                if tree.is_within(&reading, error) {
                    return Ok(told(reading));
                }
                false
            }
            Freshness::Exact => false,
        };
        if is_fresh {
            return Ok(told(cached()));
        }
        if tree.freshen(self.index) {
            return Ok(told(tree.exact(self.index)));
        }
        Err(NotFresh {
            cached: told(cached()),
        })
    }

    /// Bytes reserved for the group and everything below it, now: what limits are compared with. Stock is included. A
    /// charge that an ancestor refuses may count here for a moment, but never above the limit.
    #[doc(alias = "memory.current")]
    pub fn reserved(&self) -> u64 {
        self.books.counter(self.index).usage.load(Order::Full)
    }

    /// The most bytes that were ever reserved. What an ancestor refuses may have counted here for a moment.
    #[doc(alias = "memory.peak")]
    pub fn peak(&self) -> u64 {
        self.books.counter(self.index).peak.load(Order::Relaxed)
    }

    /// The limit, bytes; `u64::MAX` for none.
    #[doc(alias = "memory.max")]
    pub fn max(&self) -> u64 {
        self.limits().max
    }

    /// All limits.
    pub fn limits(&self) -> Limits {
        self.books.limits(self.index)
    }

    /// Changes the limit. May be below the usage: then reclaimers are asked for the difference, and charges fail until
    /// enough is returned. When this returns, no charge succeeds above the new limit, not even from stock.
    ///
    /// On a root that follows a cgroup ([`crate::Builder::max_from_cgroup`]) this lasts until the cgroup is read again;
    /// use [`crate::Memory::set_max`].
    ///
    /// # Panics
    /// If a reclaimer does. The limit is changed then.
    #[doc(alias = "page_counter_set_max")]
    pub fn set_max(&self, bytes: u64) {
        self.books.set_max(self.index, bytes);
    }

    /// Changes from where on charges leave a debt or sleep (see [`crate::HighPolicy`]). If it is below the usage, reclaimers are
    /// asked for the difference.
    ///
    /// # Panics
    /// If a reclaimer does. The limit is changed then.
    #[doc(alias = "page_counter_set_high")]
    pub fn set_high(&self, bytes: u64) {
        self.books.set_high(self.index, bytes);
    }

    /// Changes how much of the group reclaim takes only if there is nothing else.
    #[doc(alias = "page_counter_set_low")]
    pub fn set_low(&self, bytes: u64) {
        self.books.set_low(self.index, bytes);
    }

    /// Changes how much of the group reclaim never takes.
    #[doc(alias = "page_counter_set_min")]
    pub fn set_min(&self, bytes: u64) {
        self.books.set_min(self.index, bytes);
    }

    /// Changes all limits, one after the other: first the protection, so that reclaim goes by the new one; then `max`
    /// before `high` if it is lowered, after it if it is raised. So at no moment does a charge get in, or pass
    /// unthrottled, that neither the old nor the new limits would have let in so. Whoever else changes them meanwhile
    /// may leave a mixture.
    ///
    /// # Panics
    /// As [`Group::set_max`] and [`Group::set_high`]; limits that were to follow are not changed then.
    pub fn set_limits(&self, limits: Limits) {
        self.set_min(limits.min);
        self.set_low(limits.low);
        let lowers_max = limits.max < self.max();
        if lowers_max {
            self.set_max(limits.max);
        }
        self.set_high(limits.high);
        if !lowers_max {
            self.set_max(limits.max);
        }
    }

    /// Whether the usage is above the limit, after an infallible charge or a lowered limit.
    pub fn is_over_max(&self) -> bool {
        self.reserved() > self.max()
    }

    /// What happened at the limits of this group and all that are or were below it; [`Events`] says what is counted
    /// where.
    #[doc(alias = "memory.events")]
    pub fn events(&self) -> Events {
        self.books.counter(self.index).events.total()
    }

    /// What happened at this group's own limits, to charges of its own and from below.
    #[doc(alias = "memory.events.local")]
    pub fn own_events(&self) -> Events {
        self.books.counter(self.index).events.own()
    }

    /// Takes the debt that charges left while a `high` was exceeded, here or above, without waiting for it. Who takes it
    /// is to wait for [`Debt::delay`], in whatever way suits.
    ///
    /// It is the debt of charges to this very group: those to groups below leave theirs there. All tasks that charge
    /// the group share it. The delay is as of now, zero once the usage is back below `high`, and at most 2 s however
    /// much is owed. So take it after every charge.
    ///
    /// ```
    /// # use bursar::{Limits, Memory};
    /// let memory = Memory::host()?;
    /// let tenant = memory.root().child("tenant", Limits::none().high(1 << 20))?;
    /// let charge = tenant.try_charge(3 << 20)?;
    /// let debt = tenant.take_debt();
    /// assert!(debt.bytes >= 3 << 20 && debt.delay.as_millis() == 2000);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn take_debt(&self) -> Debt {
        self.books.take_debt(self.index)
    }

    /// The biggest children by bytes reserved, biggest first. A charge that an ancestor refuses may count for a moment.
    pub fn largest_children(&self, count: usize) -> Vec<(String, u64)> {
        self.books.largest_children(self.index, count)
    }

    /// A charge of `bytes` that are charged, or of nothing for which a reference was taken.
    #[inline(always)]
    pub(crate) fn hold(&self, bytes: u64) -> Charge<M> {
        Charge::new(self.books.clone(), self.slot.clone(), self.index, bytes)
    }

    /// Takes the reference that a charge of nothing holds.
    pub(crate) fn pin(&self) -> Result<(), ChargeError> {
        if self.is_removed() {
            return Err(ChargeError::Removed {
                group: self.path().into(),
            });
        }
        self.books.refer(self.index);
        Ok(())
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
    pub(crate) fn books(&self) -> &M::Shared<Books<M>> {
        &self.books
    }
}
