//! Charging to a group, and its limits.

use bursar_machine::pages::Order;
use bursar_machine::{AtomicWord, Machine, MemoryOrder, Outcome, Slot};

use crate::charge::Charge;
use crate::engine::Engine;
use crate::futures::ChargeAsync;
use crate::group::Group;
use crate::limit::Limits;
use crate::pages::error::AllocPagesError;
use crate::pages::many::alloc_many;
use crate::pages::page::Page;
use crate::pages::request;
use crate::react::slow_charge;
use crate::react::{ChargeError, Debt, high, limits};
use crate::reserve::EmergencyReserve;
use crate::zones::Zeroed;

/// # Charging
impl<M: Machine> Group<M> {
    /// Charges `bytes` to the group and all its ancestors, and returns the [`Charge`] that holds them. Dropping the charge
    /// returns them. Never exceeds a limit.
    ///
    /// Usually this takes no lock, and costs the same at any depth. Near a limit it may wait until the stock of other CPUs is taken
    /// back, by this task or by others. It fails only if the memory is not there and reclaimers ([`Group::add_reclaimer`]) do not
    /// free it. A charge that is larger than a `max` on its way is refused at once, and calls nothing. A charge of 0 bytes always
    /// succeeds, unless the group was removed.
    ///
    /// If a `high` is exceeded, here or above, the charge asks reclaimers, succeeds, and leaves a debt for
    /// [`Group::take_debt`]. It sleeps only in a memory built with [`crate::HighPolicy::Throttle`], where it blocks the thread
    /// for up to 2 s.
    ///
    /// ```
    /// use bursar::{Limits, Memory};
    ///
    /// let memory = Memory::host()?;
    /// let query = memory.root().child("query", Limits::max(64 << 20))?;
    /// let rows = vec![0_u64; 1000];
    /// let charge = query.try_charge(size_of_val(&rows[..]) as u64)?;
    /// let refused = query.try_charge(64 << 20).unwrap_err();
    /// assert_eq!(refused.to_string(), "cannot charge 64.0 MiB to /query: /query uses 7.81 KiB of 64.0 MiB");
    /// drop(charge);
    /// assert!(query.try_charge(64 << 20).is_ok());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// Nothing is charged if it fails.
    /// * [`ChargeError::LimitReached`]: a `max` on the way to the root is in the way. It names the group and its biggest children.
    /// * [`ChargeError::Removed`]: the group was removed.
    /// * [`ChargeError::TooLarge`]: more than 2^56 bytes.
    ///
    /// # Panics
    /// If a reclaimer panics. Nothing is charged then.
    #[doc(alias = "try_charge_memcg")]
    #[doc(alias = "page_counter_try_charge")]
    #[inline(always)]
    pub fn try_charge(&self, bytes: u64) -> Result<Charge<M>, ChargeError> {
        let outcome = self.slot().charge(bytes);
        if outcome != Outcome::Done {
            slow_charge::try_charge(self.core(), self.index(), bytes, outcome)?;
        }
        Ok(Charge::new(self, bytes).sampled())
    }

    /// Charges `bytes` whatever the limits say, for memory that is in use already. Code that can do without the memory calls
    /// [`Group::try_charge`] before it allocates.
    ///
    /// This first tries to stay within the limits, if the bytes can fit there. So it may wait for stock, asks reclaimers, and does the
    /// same as [`Group::try_charge`] above a `high`. If that fails, a limit is overshot. The stock below that limit is taken back
    /// before this returns. Charges that may be refused then fail until the usage is back within the limit.
    ///
    /// A removed group is charged as well. A request beyond 2^56 bytes, or one that would bring the tree beyond 2^62, is cut to
    /// that. [`Charge::bytes`] tells how much was charged.
    ///
    /// # Panics
    /// If a reclaimer panics. Nothing is charged then.
    #[doc(alias = "page_counter_charge")]
    pub fn charge(&self, bytes: u64) -> Charge<M> {
        let outcome = self.slot().charge(bytes);
        let charged = match outcome {
            Outcome::Done => bytes,
            _ => slow_charge::charge_anyway(self.core(), self.index(), bytes, outcome),
        };
        if charged == 0 {
            self.core().counters.refer(self.index());
        }
        Charge::new(self, charged).sampled()
    }

    /// Charges `bytes`, and waits if necessary until memory is returned or a limit is raised.
    ///
    /// Of the waiting charges that fit, the one that was polled first is served first. One that does not fit is passed by others that
    /// fit, but no more than 32 times, and not when it has waited for 10 s ([`Builder::passing`](crate::Builder::passing)). Then room is kept for it: no
    /// waiting charge behind it gets memory below the same limit before it is served or dropped. [`Group::try_charge`] does not wait, and
    /// may always pass. Dropping the future cancels the charge: nothing is charged, and the next one has its turn.
    /// [`ChargeAsync::give_up`] also returns the reason.
    ///
    /// A poll may block for a short time while stock is taken back, like [`Group::try_charge`]. It also runs reclaimers. If the poll
    /// must not block, no reclaimer may block. Above a `high` no poll sleeps; the debt is left for [`Group::take_debt`].
    ///
    /// The future is `Send + 'static` and needs no runtime. There are two hazards. Tasks that hold charges while they wait for
    /// more may deadlock: put a timeout around the future, and spill when it ends. And a future that was polled must be
    /// dropped, or polled again when it is woken; otherwise it blocks the charges behind it.
    ///
    /// # Errors
    /// [`ChargeError`] if waiting cannot help: the charge is larger than a limit on its way, or the group was removed or closed.
    #[must_use = "a future does nothing unless it is polled"]
    pub fn charge_async(&self, bytes: u64) -> ChargeAsync<M> {
        ChargeAsync::new(self.clone(), bytes)
    }

    /// Charges `bytes` ahead, for use when no other memory is left. They count as used until the reserve and all that was taken
    /// from it are dropped. May wait as [`Group::try_charge`] does.
    ///
    /// # Errors
    /// [`ChargeError`], in the cases of [`Group::try_charge`].
    pub fn emergency_reserve(&self, bytes: u64) -> Result<EmergencyReserve<M>, ChargeError> {
        self.try_charge(bytes).map(EmergencyReserve::new)
    }

    /// Allocates 2^order pages and charges them to the group, like [`Group::try_charge`].
    ///
    /// Usually this takes no lock: one section charges, and one section takes the pages off a list of the current CPU.
    /// Bytes that another group has written are never visible, because such pages are zeroed first.
    ///
    /// ```
    /// use bursar::pages::{Order, Zeroed};
    /// use bursar::{Limits, Memory};
    ///
    /// let memory = Memory::host()?;
    /// let query = memory.root().child("query-7", Limits::max(1 << 20))?;
    /// let mut page = query.alloc_pages(Order::new(0), Zeroed::Yes)?;
    /// page.bytes_mut()[0] = 1;
    /// drop(page);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// [`AllocPagesError`]. Nothing is charged then.
    #[doc(alias = "__alloc_pages")]
    #[inline(always)]
    pub fn alloc_pages(&self, order: Order, zeroed: Zeroed) -> Result<Page<M>, AllocPagesError> {
        request::alloc(self, order, zeroed)
    }

    /// Allocates `count` blocks of 2^order pages with one charge: all of them or none.
    ///
    /// # Errors
    /// [`AllocPagesError`]. Nothing is charged then.
    #[doc(alias = "alloc_pages_bulk")]
    pub fn alloc_many(
        &self,
        order: Order,
        count: usize,
        zeroed: Zeroed,
    ) -> Result<Vec<Page<M>>, AllocPagesError> {
        alloc_many(self, order, count, zeroed)
    }

    /// Sets whether pages of this group are zeroed when they are freed, rather than when another group gets them.
    ///
    /// This is for secrets that must not remain in memory. Set it before the group writes them: pages on lists stay as
    /// they are.
    #[doc(alias = "init_on_free")]
    pub fn set_zero_on_free(&self, zeroed: Zeroed) {
        let zeroes = zeroed == Zeroed::Yes;
        self.core()
            .counters
            .counter(self.index())
            .set_zeroes_on_free(zeroes);
        if zeroes {
            self.core().pages.scrub_from_now_on();
        }
    }

    /// Charges without waiting, by number and from stock, for engines, pools and allocators.
    #[inline(always)]
    pub fn engine(&self) -> Engine<'_, M> {
        Engine::new(self)
    }
}

/// # Limits
impl<M: Machine> Group<M> {
    /// All limits.
    pub fn limits(&self) -> Limits {
        self.core().counters.limits(self.index())
    }

    /// Changes the group's `max`. When this returns, no charge succeeds above the new limit, not even from stock.
    ///
    /// The limit may be below the usage. Then reclaimers are asked for the difference, and charges fail until enough is
    /// returned. On a root that follows a cgroup ([`crate::Builder::max_from_cgroup`]) the limit lasts until the cgroup is read
    /// again: use [`crate::Memory::set_max`] there.
    ///
    /// ```
    /// use bursar::{Limits, Memory};
    ///
    /// let memory = Memory::host()?;
    /// let tenant = memory.root().child("tenant", Limits::max(8 << 20))?;
    /// let held = tenant.try_charge(6 << 20)?;
    /// tenant.set_max(4 << 20);
    /// assert!(tenant.is_over_max() && tenant.try_charge(1).is_err());
    /// drop(held);
    /// assert!(tenant.try_charge(4 << 20).is_ok());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Panics
    /// If a reclaimer panics. The limit is changed then.
    #[doc(alias = "page_counter_set_max")]
    pub fn set_max(&self, bytes: u64) {
        limits::set_max(self.core(), self.index(), bytes);
    }

    /// Changes all limits, one after the other. `min` and `low` come first, so that reclaim goes by the new protection. A `max`
    /// that is lowered changes before `high`, and one that is raised after it. So at each moment a charge
    /// succeeds, and escapes `high`, only if the old or the new limits allow this. If another task changes limits at the same time, the
    /// result may be a mixture.
    ///
    /// # Panics
    /// As [`Group::set_max`] and [`Group::set_high`]. The limits that would follow are not changed then.
    pub fn set_limits(&self, limits: Limits) {
        let settings = &self.core().counters.counter(self.index()).settings;
        // Full: a task that learns that a limit was set finds it set.
        settings.min.store(limits.min, MemoryOrder::Full);
        settings.low.store(limits.low, MemoryOrder::Full);
        let lowers_max = limits.max < self.limits().max;
        if lowers_max {
            self.set_max(limits.max);
        }
        limits::set_high(self.core(), self.index(), limits.high);
        if !lowers_max {
            self.set_max(limits.max);
        }
    }

    /// Changes the group's `high`. Charges above it leave a debt or sleep ([`crate::HighPolicy`]). If the new `high` is below the
    /// usage, reclaimers are asked for the difference.
    ///
    /// # Panics
    /// If a reclaimer panics. The limit is changed then.
    #[doc(alias = "page_counter_set_high")]
    pub fn set_high(&self, bytes: u64) {
        limits::set_high(self.core(), self.index(), bytes);
    }

    /// Changes the group's `low`: the bytes that reclaim takes only if it finds no others.
    #[doc(alias = "page_counter_set_low")]
    pub fn set_low(&self, bytes: u64) {
        limits::set_low(self.core(), self.index(), bytes);
    }

    /// Changes the group's `min`: the bytes that reclaim never takes.
    #[doc(alias = "page_counter_set_min")]
    pub fn set_min(&self, bytes: u64) {
        limits::set_min(self.core(), self.index(), bytes);
    }

    /// Whether the usage is above `max`, after an infallible charge or a lowered limit.
    pub fn is_over_max(&self) -> bool {
        // Without claims under way, which may not fit.
        let usage = self.core().counters.usage_now(self.index());
        usage > self.limits().max
    }

    /// Takes the debt that charges left while a `high` was exceeded, here or above. This does not sleep: the caller should then wait
    /// for [`Debt::delay`], for example with a timer of its runtime. It may take back stock of other CPUs, and calls listeners.
    ///
    /// The debt is that of charges to this group. Charges to groups below leave their debt there. All tasks that charge the group
    /// share one debt. The delay is computed by this call. It is zero if the usage is back below `high`, and at most 2 s for any
    /// debt. So take the debt after every charge.
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
        high::take_debt(self.core(), self.index())
    }
}
