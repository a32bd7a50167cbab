//! Charging bytes to a group, and returning them by number.

use bursar_machine::{Machine, Outcome, Slot};

use super::Group;
use crate::held::Charge;
use crate::limit::USAGE_MAX;
use crate::react::{ChargeError, NowaitError, charge, uncharge};
use crate::tree::printable;

/// # Charging
///
/// See also [`Group::charge_async`], [`Group::emergency_reserve`] and [`Group::alloc_pages`].
impl<M: Machine> Group<M> {
    /// Charges `bytes` to the group and all its ancestors, and returns the [`Charge`] that holds them. Dropping the charge
    /// returns them. Never exceeds a limit.
    ///
    /// Usually this takes no lock, and costs the same at any depth. Near a limit it may wait until the stock of other CPUs is taken
    /// back, by this task or by others. It fails only if the memory is not there and reclaimers ([`Group::add_reclaimer`]) do not
    /// free it. A charge of 0 bytes always succeeds, unless the group was removed.
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
        let outcome = self.slot.charge(bytes);
        if outcome != Outcome::Done {
            self.try_charge_slowly(bytes, outcome)?;
        }
        Ok(self.hold(bytes))
    }

    /// Returns no charge, so that the charge that the fast path makes stays in registers.
    #[cold]
    pub(crate) fn try_charge_slowly(
        &self,
        bytes: u64,
        outcome: Outcome,
    ) -> Result<(), ChargeError> {
        if bytes == 0 {
            return self.pin();
        }
        charge::try_charge(&self.core, self.index, bytes, outcome)
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
            self.core.counters.refer(self.index);
            return Ok(());
        }
        charge::try_charge_nowait(&self.core, self.index, bytes, outcome)
    }

    /// Charges `bytes` whatever the limits say, for memory that is in use already. Code that can do without the memory calls
    /// [`Group::try_charge`] before it allocates.
    ///
    /// This first tries to stay within the limits. So it may wait for stock, asks reclaimers, and does the same as
    /// [`Group::try_charge`] above a `high`. If that fails, a limit is overshot. The stock below that limit is taken back
    /// before this returns. Charges that may be refused then fail until the usage is back within the limit.
    ///
    /// A removed group is charged as well. A request beyond 2^56 bytes, or one that would bring the tree beyond 2^62, is cut to
    /// that. [`Charge::bytes`] tells how much was charged.
    ///
    /// # Panics
    /// If a reclaimer panics. Nothing is charged then.
    #[doc(alias = "page_counter_charge")]
    pub fn charge(&self, bytes: u64) -> Charge<M> {
        let outcome = self.slot.charge(bytes);
        let charged = match outcome {
            Outcome::Done => bytes,
            _ => charge::charge_anyway(&self.core, self.index, bytes, outcome),
        };
        if charged == 0 {
            self.core.counters.refer(self.index);
        }
        self.hold(charged)
    }

    /// Charges as [`Group::charge`] does, but never waits, takes no lock, calls nothing, and is async-signal-safe. For code
    /// that must count memory wherever it is called, such as an allocator.
    ///
    /// It overshoots a limit without looking for stock and without asking reclaimers. The stock that CPUs hold below the limit
    /// then stays until the next operation that may wait takes it back: a charge that is about to be refused, a lowered limit,
    /// or [`crate::Memory::tick`]. Until then charges may succeed from that stock, which counts as used already. It is at most
    /// 256 KiB for each CPU and group ([`crate::Builder::stock_max`]), and less near a limit. Bytes above a `high` are owed
    /// ([`Group::take_debt`]).
    pub fn charge_nowait(&self, bytes: u64) -> Charge<M> {
        let outcome = self.slot.charge(bytes);
        let charged = match outcome {
            Outcome::Done => bytes,
            _ => charge::charge_anyway_nowait(&self.core, self.index, bytes, outcome),
        };
        if charged == 0 {
            self.core.counters.refer(self.index);
        }
        self.hold(charged)
    }

    /// Charges `bytes` if this CPU holds that much stock of the group, and returns whether it did. Tries nothing else, and is
    /// async-signal-safe.
    ///
    /// For a pool's own fast path: it compiles to a few instructions without a call or a stack frame. Return the bytes by
    /// [`Group::uncharge`]. If it returns `false`, call [`Group::try_charge`]. It always returns `false` for 0 bytes, and
    /// without restartable sequences ([`bursar_machine::host::Backend`]).
    #[doc(alias = "consume_stock")]
    #[must_use]
    #[inline(always)]
    pub fn charge_from_stock(&self, bytes: u64) -> bool {
        let is_charged = self.slot.charge_at_once(bytes);
        if is_charged {
            self.core.counters.lend(self.index, bytes);
        }
        is_charged
    }

    /// Returns `bytes` that were charged to the group and forgotten ([`Charge::forget`]), as dropping a [`Charge`] of that size
    /// does.
    ///
    /// Returning more than was charged is a bug of the caller. The group's usage stops at 0, and the groups above are lowered
    /// by no more than it had. [`crate::Events::over_returned_bytes`] and [`crate::Reading::over_returned`] count the bytes.
    /// The first case in a memory is printed on stderr with the group's path. The bug does not show while the group has as many
    /// other bytes charged: those are missing from its usage, here and above, until they are returned.
    ///
    /// # Panics
    /// In builds with debug assertions, if more is returned than was charged and forgotten. Nothing changes then.
    #[doc(alias = "page_counter_uncharge")]
    #[inline(always)]
    pub fn uncharge(&self, bytes: u64) {
        if let Err(charged) = self.core.counters.take_back(self.index, bytes) {
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
        // No charge is larger. A larger number is a bug, and is counted as one.
        let bytes = bytes.min(USAGE_MAX);
        let outcome = self.slot.uncharge(bytes);
        if outcome != Outcome::Done && bytes > 0 {
            uncharge::uncharge(&self.core, self.index, bytes, outcome);
        }
    }
}
