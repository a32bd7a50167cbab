//! A group's account, for allocators.

use std::fmt;
use std::mem::ManuallyDrop;

use bursar_machine::host::HostSlot;
use bursar_machine::{Host, Outcome, Slot};

use crate::books::Books;
use crate::charge::USAGE_MAX;
use crate::group::Group;

/// What it takes to charge a group from anywhere: an allocator, a signal handler, a thread that is about to end. Two words
/// and a number, without a count to share. Nothing here waits, takes a lock, allocates, or calls anybody; all is
/// async-signal-safe.
///
/// Bytes go in and out by number. An account keeps no record: whoever uses one sees to it that there is a handle of the group,
/// or that bytes are charged through the account and not yet returned. If neither is so, whoever has been given the group's
/// place by then is charged.
#[derive(Clone, Copy)]
pub struct Account {
    books: &'static Books<Host>,
    slot: HostSlot,
    index: u32,
}

impl fmt::Debug for Account {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Account")
            .field("group", &self.books.path(self.index))
            .finish()
    }
}

/// The same place of the same memory.
impl PartialEq for Account {
    fn eq(&self, other: &Self) -> bool {
        self.key() == other.key()
    }
}

impl Eq for Account {}

impl Account {
    /// Charges `bytes`, at least 1 and no more than there are in an address space, as [`Group::charge_nowait`] does.
    #[inline(always)]
    pub fn charge_nowait(&self, bytes: usize) {
        self.books.lend(self.index, bytes as u64);
        if !self.slot.charge_at_once(bytes as u64) {
            self.charge_slowly(bytes as u64);
        }
    }

    /// Returns `bytes`, at least 1, that were charged, as [`crate::Charge::release_nowait`] does. More than were charged are
    /// counted as in [`Group::uncharge`], and never panic.
    #[inline(always)]
    pub fn uncharge_nowait(&self, bytes: usize) {
        // An allocator must not unwind, so nothing panics here.
        let _ = self.books.take_back(self.index, bytes as u64);
        if !self.slot.uncharge_at_once(bytes as u64) {
            self.uncharge_slowly(bytes as u64);
        }
    }

    /// Runs `run` with a handle of the account's group, for which no reference is counted. Clone it to keep one. What keeps the
    /// group's record for the account must keep it until `run` returns.
    #[inline]
    pub fn with_group<R>(&self, run: impl FnOnce(&Group) -> R) -> R {
        // Its drop would return a reference that was not taken.
        run(&ManuallyDrop::new(Group::new(self.books, self.index)))
    }

    /// Tells this account's place from all others in the process: the memory and the group's number there.
    pub fn key(&self) -> (usize, u32) {
        (std::ptr::from_ref(self.books).addr(), self.index)
    }

    #[cold]
    #[inline(never)]
    fn charge_slowly(&self, bytes: u64) {
        let outcome = self.slot.charge(bytes);
        if outcome != Outcome::Done && !self.books.is_committed(self.index, outcome) {
            self.books.charge_anyway_nowait(self.index, bytes);
        }
    }

    #[cold]
    #[inline(never)]
    fn uncharge_slowly(&self, bytes: u64) {
        // As in `Group::uncharge`.
        let bytes = bytes.min(USAGE_MAX);
        let outcome = self.slot.uncharge(bytes);
        if outcome != Outcome::Done && !self.books.is_committed(self.index, outcome) {
            self.books.uncharge_nowait(self.index, bytes);
        }
    }
}

impl Group<Host> {
    /// What it takes to charge this group from anywhere; see [`Account`] for what to mind.
    #[doc(hidden)]
    pub fn account(&self) -> Account {
        Account {
            books: self.books(),
            slot: *self.slot(),
            index: self.index(),
        }
    }
}
