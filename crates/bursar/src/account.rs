//! A group's account, for allocators.

use std::fmt;
use std::mem::ManuallyDrop;

use bursar_machine::host::HostSlot;
use bursar_machine::{Host, Outcome, Slot};

use crate::group::Group;
use crate::limit::USAGE_MAX;
use crate::react::{Core, lifetime, nowait};

/// Handle that charges a group from anywhere: an allocator, a signal handler, a thread that is about to end. Two words and a
/// number; copying it counts no reference.
///
/// Its methods are async-signal-safe. They do not wait, take no lock, allocate nothing, and call nothing.
///
/// Bytes go in and out by number, and an account keeps no record of the group. The caller must see to it that a handle of the
/// group exists, or that bytes are charged through the account and not yet returned. If neither is so, another group may have
/// taken the place, and is charged.
#[derive(Clone, Copy)]
pub struct Account {
    core: &'static Core<Host>,
    slot: HostSlot,
    index: u32,
}

impl fmt::Debug for Account {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Account")
            .field("group", &lifetime::path(self.core, self.index))
            .finish()
    }
}

/// Equal if both charge the same place of the same memory.
impl PartialEq for Account {
    fn eq(&self, other: &Self) -> bool {
        self.key() == other.key()
    }
}

impl Eq for Account {}

impl Account {
    pub(crate) fn new(group: &Group) -> Self {
        Self {
            core: group.core(),
            slot: *group.slot(),
            index: group.index(),
        }
    }

    /// Charges `bytes` as [`Engine::charge_nowait`](crate::engine::Engine::charge_nowait) does: at least 1, and no more than an address space has.
    #[inline(always)]
    pub fn charge_nowait(&self, bytes: u64) {
        self.core.counters.lend(self.index, bytes);
        if !self.slot.charge_at_once(bytes) {
            self.charge_slowly(bytes);
        }
    }

    /// Returns `bytes`, at least 1, as [`crate::Charge::release_nowait`] does. Returning more than was charged is counted as in
    /// [`Engine::uncharge`](crate::engine::Engine::uncharge), and never panics.
    #[inline(always)]
    pub fn uncharge_nowait(&self, bytes: u64) {
        // An allocator must not unwind, so nothing panics here.
        let _ = self.core.counters.take_back(self.index, bytes);
        if !self.slot.uncharge_at_once(bytes) {
            self.uncharge_slowly(bytes);
        }
    }

    /// Charges `bytes` if this CPU holds that much stock, as [`Engine::charge_from_stock`](crate::engine::Engine::charge_from_stock) does.
    #[must_use]
    #[inline(always)]
    pub fn charge_from_stock(&self, bytes: u64) -> bool {
        let is_charged = self.slot.charge_at_once(bytes);
        if is_charged {
            self.core.counters.lend(self.index, bytes);
        }
        is_charged
    }

    /// Returns `bytes`, at least 1, to this CPU's stock, and tells whether that could be done at once. If it returns `false`, nothing was
    /// returned: call [`Engine::uncharge`](crate::engine::Engine::uncharge). It always returns `false` in builds with debug assertions, whose
    /// checks are there.
    #[must_use]
    #[inline(always)]
    pub fn return_to_stock(&self, bytes: u64) -> bool {
        !cfg!(debug_assertions) && self.slot.uncharge_at_once(bytes)
    }

    /// Runs `run` with a handle of the account's group, for which no reference is counted. Clone the handle to keep it. The
    /// handle or the bytes that keep the group's record must do so until `run` returns.
    #[inline]
    pub fn with_group<R>(&self, run: impl FnOnce(&Group) -> R) -> R {
        // Its drop would return a reference that was not taken.
        run(&ManuallyDrop::new(Group::new(self.core, self.index)))
    }

    /// Key of the account, unlike that of any other group that lives in the process: the memory, and the group's number there.
    pub fn key(&self) -> (usize, u32) {
        (std::ptr::from_ref(self.core).addr(), self.index)
    }

    #[cold]
    #[inline(never)]
    fn charge_slowly(&self, bytes: u64) {
        let outcome = self.slot.charge(bytes);
        if outcome != Outcome::Done {
            nowait::count(self.core, self.index, bytes, outcome);
        }
    }

    #[cold]
    #[inline(never)]
    fn uncharge_slowly(&self, bytes: u64) {
        // As in `Engine::uncharge`.
        let bytes = bytes.min(USAGE_MAX);
        let outcome = self.slot.uncharge(bytes);
        if outcome != Outcome::Done {
            nowait::uncharge(self.core, self.index, bytes, outcome);
        }
    }
}
