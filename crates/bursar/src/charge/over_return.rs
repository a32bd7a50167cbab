//! More bytes returned than were charged: a bug of the caller, contained to the caller's group.
//!
//! Only bytes that a number stands for can be returned too often ([`crate::Charge::forget`], [`crate::Group::uncharge`]). In
//! builds with debug assertions the group counts them, and the call at fault panics before it changes anything.
//!
//! In other builds the fast path counts nothing, so the bug shows only when the group's usage would fall below 0. The usage
//! stops at 0, and the groups above are lowered by no more than that ([`super::counter::PageCounter::uncharge_own`]). The slot
//! gets back the bytes that the usage did not lose, so usage stays the sum of charged bytes and stock.
//!
//! The bug does not show while as many other bytes of the group are charged. The bytes are missing from its usage, and from
//! those above, until the others are returned. If these others are all that is left of a removed group, its record is used
//! again under them. Then their return is taken from the next group.

use std::io::Write;

use bursar_machine::{AtomicWord, Machine, Order};

use super::events::Event;
use super::{Bytes, Ledger};
use crate::stats::printable;

/// Mark in place of a group: a group is being noted, or was told already.
const TOLD: u64 = u64::MAX;

impl<M: Machine> Ledger<M> {
    /// Counts `bytes` that a group returned up to `end` and did not have. Async-signal-safe.
    #[cold]
    pub(super) fn note_over_return(&self, index: u32, bytes: u64, end: Option<u32>) {
        self.count(index, Event::OverReturned, bytes);
        // All counters above were lowered when the group lost the bytes. From `end` on they still stand for bytes elsewhere.
        if let Some(end) = end {
            self.tree.chain(end).for_each(|at| {
                self.counter(at).charge(bytes);
            });
        }
        self.charge_extra(index, bytes as i64);
        // Full, both: the group is stored after its reference is taken, and the task that takes it out drops the reference.
        let first = self.over_returned.compare_exchange(0, TOLD, Order::Full);
        if first.is_ok() {
            self.refer(index);
            self.over_returned.store(u64::from(index) + 1, Order::Full);
        }
    }

    /// Prints once for each memory which group returned too much. Waits, and takes locks.
    pub(super) fn tell_over_return(&self) {
        // Relaxed: a later call sees it.
        let seen = self.over_returned.load(Order::Relaxed);
        if seen == 0 || seen == TOLD {
            return;
        }
        let taken = self.over_returned.compare_exchange(seen, TOLD, Order::Full);
        if taken.is_err() {
            return;
        }
        let index = (seen - 1) as u32;
        let bytes = self.counter(index).events.own().over_returned_bytes;
        // A closed stderr is no reason to fail.
        let _ = writeln!(
            std::io::stderr(),
            "bursar: {} more returned than charged in {}. Its usage stops at 0. This is a bug of the code that returns bytes \
             there; a build with debug assertions panics at that call. Events::over_returned_bytes counts on.",
            Bytes(bytes),
            printable(&self.path(index)),
        );
        self.forget(index);
    }

    /// Bytes that were returned to a group and those below it although they did not have them.
    pub(crate) fn over_returned(&self, index: u32) -> u64 {
        self.counter(index).events.total().over_returned_bytes
    }

    /// From now on a number stands for `bytes` that are charged.
    #[inline(always)]
    pub(crate) fn lend(&self, index: u32, bytes: u64) {
        #[cfg(debug_assertions)]
        self.counter(index).lend(bytes);
        #[cfg(not(debug_assertions))]
        let _ = (index, bytes);
    }

    /// A number that stood for `bytes` is about to be returned.
    ///
    /// # Errors
    /// In builds with debug assertions: the bytes that there are such numbers for, if these are fewer.
    #[inline(always)]
    pub(crate) fn take_back(&self, index: u32, bytes: u64) -> Result<(), u64> {
        #[cfg(debug_assertions)]
        return self.counter(index).take_back(bytes);
        #[cfg(not(debug_assertions))]
        {
            let _ = (index, bytes);
            Ok(())
        }
    }
}
