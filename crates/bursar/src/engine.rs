//! Calls of a group that programs seldom need: for builders of engines, pools and allocators.

use std::sync::Arc;

use bursar_machine::pages::Order;
use bursar_machine::{AtomicWord, Host, Machine, MemoryOrder, Outcome, Slot};

pub use crate::account::Account;
use crate::charge::Charge;
pub use crate::consumers::Protection;
use crate::consumers::{self, By, Consumer, Ranked, Victim};
use crate::group::Group;
use crate::limit::{Events, USAGE_MAX};
use crate::memory::Memory;
use crate::pages::error::AllocPagesError;
use crate::pages::many::alloc_many;
use crate::pages::page::Page;
pub use crate::react::{NowaitError, RemoveError};
use crate::react::{
    TreeReport, close, limits, nowait, pressure, reclaim, refusal, report, slow_charge,
};
use crate::registration::Registration;
use crate::tree::{NotFresh, Reading, printable};
use crate::zones::Zeroed;

/// Less common calls of a [`Group`]; see [`Group::engine`].
///
/// ```
/// use bursar::{Freshness, Limits, Memory};
///
/// let memory = Memory::host()?;
/// let pool = memory.root().child("pool", Limits::max(64 << 20))?;
/// let bytes = pool.try_charge(4096)?.forget();
/// pool.engine().uncharge(bytes);
/// assert_eq!(pool.read(Freshness::Exact)?.usage_bytes(), 0);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct Engine<'a, M: Machine = Host> {
    group: &'a Group<M>,
}

impl<M: Machine> Clone for Engine<'_, M> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<M: Machine> Copy for Engine<'_, M> {}

/// # Charging without waiting, by number, and from stock
impl<'a, M: Machine> Engine<'a, M> {
    #[inline(always)]
    pub(crate) fn new(group: &'a Group<M>) -> Self {
        Self { group }
    }

    /// Charges as [`Group::try_charge`] does, but never waits, takes no lock, calls nothing, and is async-signal-safe. It looks
    /// for no stock of other CPUs, so it may refuse where [`Group::try_charge`] succeeds.
    ///
    /// # Errors
    /// Nothing is charged if it fails.
    /// * [`NowaitError::LimitReached`]: a `max` is in the way. The stock below it counts as used.
    /// * [`NowaitError::Busy`]: another task drains this group or one above, or this is a forked child before its first operation.
    /// * [`NowaitError::Removed`], [`NowaitError::TooLarge`]: as in [`Group::try_charge`].
    #[inline]
    pub fn try_charge_nowait(self, bytes: u64) -> Result<Charge<M>, NowaitError> {
        let outcome = self.group.slot().charge(bytes);
        if outcome != Outcome::Done {
            self.try_charge_nowait_slowly(bytes, outcome)?;
        }
        Ok(Charge::of(self.group, bytes))
    }

    #[cold]
    fn try_charge_nowait_slowly(self, bytes: u64, outcome: Outcome) -> Result<(), NowaitError> {
        if bytes == 0 {
            if self.group.is_removed() {
                return Err(NowaitError::Removed);
            }
            self.group.core().counters.refer(self.group.index());
            return Ok(());
        }
        nowait::try_charge(self.group.core(), self.group.index(), bytes, outcome)
    }

    /// Charges as [`Group::charge`] does, but never waits, takes no lock, calls nothing, and is async-signal-safe. For code
    /// that must count memory wherever it is called, such as an allocator.
    ///
    /// It overshoots a limit without looking for stock and without asking reclaimers. The stock that CPUs hold below the limit
    /// then stays until the next operation that may wait takes it back: a charge that is about to be refused, a lowered limit,
    /// or [`crate::Memory::tick`]. Until then charges may succeed from that stock, which counts as used already. It is at most
    /// 256 KiB for each CPU and group ([`crate::Builder::stock_max`]), and less near a limit. Bytes above a `high` are owed
    /// ([`Group::take_debt`]).
    pub fn charge_nowait(self, bytes: u64) -> Charge<M> {
        let outcome = self.group.slot().charge(bytes);
        let charged = match outcome {
            Outcome::Done => bytes,
            _ => nowait::charge_anyway(self.group.core(), self.group.index(), bytes, outcome),
        };
        if charged == 0 {
            self.group.core().counters.refer(self.group.index());
        }
        Charge::of(self.group, charged)
    }

    /// Charges `bytes` if this CPU holds that much stock of the group, and returns whether it did. Tries nothing else, and is
    /// async-signal-safe.
    ///
    /// For a pool's own fast path: it compiles to a few instructions without a call or a stack frame. Return the bytes by
    /// [`Engine::uncharge`]. If it returns `false`, call [`Group::try_charge`]. It always returns `false` for 0 bytes, and
    /// without restartable sequences ([`bursar_machine::host::Backend`]).
    #[doc(alias = "consume_stock")]
    #[must_use]
    #[inline(always)]
    pub fn charge_from_stock(self, bytes: u64) -> bool {
        let is_charged = self.group.slot().charge_at_once(bytes);
        if is_charged {
            self.group.core().counters.lend(self.group.index(), bytes);
        }
        is_charged
    }

    /// Returns `bytes` that were charged to the group and forgotten ([`Charge::forget`]), as dropping a [`Charge`] of that size
    /// does.
    ///
    /// Returning more than was charged is a bug of the caller. The group's usage stops at 0, and the groups above are lowered
    /// by no more than it had. [`crate::Events::over_returned_bytes`] and [`crate::Reading::over_returned`] count the bytes.
    /// The first case in a memory is printed on stderr with the group's path. From its first case on a group holds no stock; the call
    /// waits until what there is was taken back. The bug does not show while the group, and those below it, have as many other bytes
    /// charged or held as stock: those are missing from its usage, here and above, until they are returned.
    ///
    /// # Panics
    /// In builds with debug assertions, if more is returned than was charged and forgotten. Nothing changes then.
    #[doc(alias = "page_counter_uncharge")]
    #[inline(always)]
    pub fn uncharge(self, bytes: u64) {
        if let Err(charged) = self
            .group
            .core()
            .counters
            .take_back(self.group.index(), bytes)
        {
            self.returned_too_much(bytes, charged);
        }
        if !self.group.slot().uncharge_at_once(bytes) {
            self.uncharge_slowly(bytes);
        }
    }

    /// Returns the charge of `bytes` that were charged to the group and forgotten ([`Charge::forget`]): the inverse of
    /// forgetting. For code that keeps such numbers and moves them ([`Charge::move_to`]). Nothing is charged or returned.
    ///
    /// More than was charged is the same bug of the caller as in [`Engine::uncharge`], and shows when the charge ends.
    ///
    /// # Panics
    /// In builds with debug assertions, if more is taken than was charged and forgotten. Nothing changes then.
    pub fn remember(self, bytes: u64) -> Charge<M> {
        let counters = &self.group.core().counters;
        if let Err(charged) = counters.take_back(self.group.index(), bytes) {
            self.returned_too_much(bytes, charged);
        }
        if bytes == 0 {
            counters.refer(self.group.index());
        }
        Charge::of(self.group, bytes)
    }

    #[cold]
    #[inline(never)]
    fn returned_too_much(self, bytes: u64, charged: u64) -> ! {
        panic!(
            "{bytes} bytes returned to {}, where {charged} are charged and forgotten",
            printable(&self.group.path())
        );
    }

    #[cold]
    #[inline(never)]
    fn uncharge_slowly(self, bytes: u64) {
        // No charge is larger. A larger number is a bug, and is counted as one.
        let bytes = bytes.min(USAGE_MAX);
        let outcome = self.group.slot().uncharge(bytes);
        if outcome != Outcome::Done && bytes > 0 {
            slow_charge::uncharge(self.group.core(), self.group.index(), bytes, outcome);
        }
    }
}

/// # Limits, one by one
impl<M: Machine> Engine<'_, M> {
    /// Changes the group's `high`. Charges above it leave a debt or sleep ([`crate::HighPolicy`]). If the new `high` is below the
    /// usage, reclaimers are asked for the difference.
    ///
    /// # Panics
    /// If a reclaimer panics. The limit is changed then.
    #[doc(alias = "page_counter_set_high")]
    pub fn set_high(self, bytes: u64) {
        limits::set_high(self.group.core(), self.group.index(), bytes);
    }

    /// Changes the group's `low`: the bytes that reclaim takes only if it finds no others.
    #[doc(alias = "page_counter_set_low")]
    pub fn set_low(self, bytes: u64) {
        limits::set_low(self.group.core(), self.group.index(), bytes);
    }

    /// Changes the group's `min`: the bytes that reclaim never takes.
    #[doc(alias = "page_counter_set_min")]
    pub fn set_min(self, bytes: u64) {
        limits::set_min(self.group.core(), self.group.index(), bytes);
    }

    /// Whether the usage is above `max`, after an infallible charge or a lowered limit.
    pub fn is_over_max(self) -> bool {
        self.group.reserved() > self.group.limits().max
    }
}

/// # The end of a group
impl<M: Machine> Engine<'_, M> {
    /// Removes the group. Its name is free at once, fallible charges to it fail from now on, and its parent takes over its
    /// statistics. Charged bytes stay charged, here and to the ancestors, until they are returned. A second call changes nothing.
    ///
    /// ```
    /// use bursar::{Freshness, Limits, Memory};
    ///
    /// let memory = Memory::host()?;
    /// let tenant = memory.root().child("tenant", Limits::none())?;
    /// let charge = tenant.try_charge(1 << 20)?;
    /// tenant.engine().remove()?;
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
    pub fn remove(self) -> Result<(), RemoveError> {
        close::remove(self.group.core(), self.group.index())
    }

    /// Whether the group was removed.
    pub fn is_removed(self) -> bool {
        self.group.is_removed()
    }
}

/// # Readings
impl<M: Machine> Engine<'_, M> {
    /// Reads as [`Freshness::Exact`](crate::Freshness::Exact) does, and brings the numbers of the group and all groups below it up to date: a
    /// [`Freshness::Cached`](crate::Freshness::Cached) read of any of these then misses no update that returned before this call. So one call serves a decision
    /// over many groups.
    ///
    /// # Errors
    /// As [`Group::read`].
    #[doc(alias = "css_rstat_flush")]
    pub fn flush(self) -> Result<Reading, NotFresh> {
        self.group.flush()
    }

    /// The highest number of bytes that were ever reserved, by charges that succeeded.
    #[doc(alias = "memory.peak")]
    pub fn peak(self) -> u64 {
        self.group
            .core()
            .counters
            .counter(self.group.index())
            .peak
            .load(MemoryOrder::Relaxed)
    }

    /// Keeps a report of the tree at the group's highest peak, until the value that this returns is dropped; see
    /// [`Engine::peak_report`].
    ///
    /// An operation that finds more bytes reserved than in the last report makes a new one, without locks and at most every 100 ms.
    /// So a peak that is over sooner may be missed; [`crate::diagnosis::GroupState::peak`] in the report tells how high it was by then. A
    /// charge from stock is no such operation, because its bytes were reserved before. [`crate::Memory::tick`] is one.
    pub fn keep_peak(self) -> Registration {
        report::keep_peak(self.group.core(), self.group.index());
        let registration = Registration::new("peak", self.group, report::stop_keeping_peak);
        report::look_at_peak(self.group.core(), self.group.index());
        registration
    }

    /// The tree at the highest peak that [`Engine::keep_peak`] has seen. `None` if it has seen no byte.
    ///
    /// ```
    /// use bursar::{Limits, Memory};
    ///
    /// let memory = Memory::builder().build()?;
    /// let _kept = memory.root().engine().keep_peak();
    /// let query = memory.root().child("query", Limits::none())?;
    /// drop(query.try_charge(64 << 20)?);
    /// let report = memory.root().engine().peak_report().expect("the charge");
    /// assert_eq!(report.largest[0].path, "/query");
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn peak_report(self) -> Option<Arc<TreeReport>> {
        report::peak(self.group.core(), self.group.index())
    }

    /// Counts of events at this group's own limits, by its own charges and by those from below.
    #[doc(alias = "memory.events.local")]
    pub fn own_events(self) -> Events {
        self.group
            .core()
            .counters
            .counter(self.group.index())
            .events
            .own()
    }

    /// The biggest children by bytes reserved, biggest first.
    pub fn largest_children(self, count: usize) -> Vec<(String, u64)> {
        refusal::largest_children(self.group.core(), self.group.index(), count)
    }

    /// The group's effective `min` and `low`: bytes that are protected when reclaim is for the root. They are shares of its
    /// ancestors' protection by the kernel's formula, and at most its usage.
    #[doc(alias = "page_counter_calculate_protection")]
    pub fn protection(self) -> Protection {
        consumers::protection(self.group)
    }
}

/// # Consumers and victims
impl<M: Machine> Engine<'_, M> {
    /// Chooses as [`Group::choose_victim`] does, among the groups for which `may_end` returns `true`. Return `false` for
    /// groups that are ending already. `may_end` is called once for each candidate, without a lock.
    ///
    /// # Errors
    /// [`NotFresh`] if the memory's policy forbids readers to flush.
    pub fn choose_victim_where(
        self,
        may_end: impl Fn(&Group<M>) -> bool,
    ) -> Result<Option<(Group<M>, Victim)>, NotFresh> {
        Ok(consumers::choose_victims(self.group, 1, may_end)?.pop())
    }

    /// Chooses `count` groups, or all candidates if these are fewer, in the order in which [`Group::choose_victim`] would choose
    /// them one after the other. First come the groups whose usage exceeds their effective `low`, by the number of bytes; then
    /// those that exceed only their effective `min`. Groups that exceed neither are left out. One [`Engine::flush`] brings all
    /// candidates up to date, so 50 victims cost as much as one.
    ///
    /// # Errors
    /// [`NotFresh`] if the memory's policy forbids readers to flush.
    pub fn choose_victims(self, count: usize) -> Result<Vec<(Group<M>, Victim)>, NotFresh> {
        consumers::choose_victims(self.group, count, |_| true)
    }

    /// Ranks as [`Group::top`] does, but only groups without children: with three levels, the queries and not their tenants.
    pub fn top_leaves(self, count: usize, by: By) -> Vec<Consumer> {
        consumers::top(self.group, count, by, Ranked::Leaves)
    }
}

/// # Pages
impl<M: Machine> Engine<'_, M> {
    /// Allocates `count` blocks of 2^order pages with one charge: all of them or none.
    ///
    /// # Errors
    /// [`AllocPagesError`]. Nothing is charged then.
    #[doc(alias = "alloc_pages_bulk")]
    pub fn alloc_many(
        self,
        order: Order,
        count: usize,
        zeroed: Zeroed,
    ) -> Result<Vec<Page<M>>, AllocPagesError> {
        alloc_many(self.group, order, count, zeroed)
    }
}

/// # Reclaim, and the rest
impl<M: Machine> Engine<'_, M> {
    /// Calls the reclaimers of the group and of groups below for `bytes`, as long as they free some, in at most 16 rounds.
    /// Returns the bytes that they claim to have freed.
    #[doc(alias = "memory.reclaim")]
    pub fn reclaim(self, bytes: u64) -> u64 {
        reclaim::asked(self.group.core(), self.group.index(), bytes)
    }

    /// Declares that one more task works for the group, until the registration is dropped. With such declarations
    /// [`crate::Stall::full`] reports the time in which no task could work. Declare all tasks of a group or none.
    pub fn work(self) -> Registration {
        pressure::work_begins(self.group.core(), self.group.index());
        Registration::new("work", self.group, pressure::work_ends)
    }

    /// Excludes the group from [`Group::choose_victim`] for good. For a group whose memory no caller can free, such as the
    /// group that pays for allocations of no tenant. Groups below it are not excluded.
    #[doc(alias = "oom_score_adj")]
    pub fn exclude_from_victims(self) {
        self.group
            .core()
            .counters
            .counter(self.group.index())
            .exclude_from_victims();
    }

    /// Sets whether pages of this group are zeroed when they are freed, rather than when another group gets them.
    ///
    /// This is for secrets that must not remain in memory. Set it before the group writes them: pages on lists stay as
    /// they are.
    #[doc(alias = "init_on_free")]
    pub fn set_zero_on_free(self, zeroed: Zeroed) {
        let zeroes = zeroed == Zeroed::Yes;
        self.group
            .core()
            .counters
            .counter(self.group.index())
            .set_zeroes_on_free(zeroes);
        if zeroes {
            self.group.core().pages.scrub_from_now_on();
        }
    }

    /// Returns the memory that the group belongs to. Unlike the handle that was built, this one keeps no ticker running
    /// ([`Builder::ticker`](crate::Builder::ticker)), and does not follow a cgroup ([`Builder::max_from_cgroup`](crate::Builder::max_from_cgroup)).
    pub fn memory(self) -> Memory<M> {
        Memory::of_group(self.group)
    }
}

/// # For allocators
impl Engine<'_, Host> {
    /// Returns the group's account, which charges from anywhere; see [`Account`] for its conditions.
    pub fn account(self) -> Account {
        Account::of(self.group)
    }
}
