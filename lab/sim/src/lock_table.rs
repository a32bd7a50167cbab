//! State of all locks of a machine.

use std::cell::RefCell;
use std::collections::VecDeque;

use crate::lines::LineId;
use crate::task::{LockId, TaskId};

/// Lock, and the tasks that wait for it.
#[derive(Default)]
pub(crate) struct LockState {
    pub(crate) owner: Option<TaskId>,
    pub(crate) owner_cpu: u32,
    /// Time at which it was released.
    pub(crate) free_ns: u64,
    pub(crate) line: LineId,
    pub(crate) spinners: VecDeque<TaskId>,
    pub(crate) sleepers: VecDeque<TaskId>,
    /// Set when the first sleeper was woken in vain once: it gets the lock next.
    pub(crate) is_promised: bool,
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
