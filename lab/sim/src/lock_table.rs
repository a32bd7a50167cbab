//! State of all locks of a machine.

use std::cell::RefCell;
use std::collections::VecDeque;

use crate::lines::LineId;
use crate::task::{LockId, TaskId, Tasks};

/// Lock, and the tasks that wait for it. A spin lock that no task waits for needs one cache line of the host.
#[derive(Default)]
#[repr(C, align(64))]
pub(crate) struct LockState {
    pub(crate) owner: Option<TaskId>,
    pub(crate) line: LineId,
    /// Number of sleepers, the first ones, that were woken in vain once: they get the lock next.
    pub(crate) promised: usize,
    pub(crate) spinners: VecDeque<TaskId>,
    pub(crate) sleepers: VecDeque<TaskId>,
}

impl LockState {
    /// Lets the current task own the lock if no task does.
    #[inline]
    pub(crate) fn own(&mut self, tasks: &Tasks) -> bool {
        let is_free = self.owner.is_none();
        if is_free {
            self.owner = Some(tasks.current.get());
        }
        is_free
    }
}

/// Locks of a machine.
#[derive(Default)]
pub(crate) struct LockTable {
    pub(crate) locks: RefCell<Vec<LockState>>,
    pub(crate) free: RefCell<Vec<LockId>>,
}

impl LockTable {
    #[inline]
    pub(crate) fn with<R>(&self, lock: LockId, look: impl FnOnce(&mut LockState) -> R) -> R {
        look(&mut self.locks.borrow_mut()[lock as usize])
    }
}
