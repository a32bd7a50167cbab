//! Tasks of a run: their numbers, their states, and the kinds of their events.

use std::cell::{Cell, RefCell};

use bursar_machine::LockWaits;

use crate::coroutine::Routine;

/// Number of a task of the current run.
pub(crate) type TaskId = u32;
/// No task.
pub(crate) const NOBODY: TaskId = u32::MAX;

/// Number of a lock.
pub(crate) type LockId = u32;

/// Value of [`bursar_machine::Machine::task`] for a task.
pub(crate) fn number_of(task: TaskId) -> u64 {
    u64::from(task) + 1
}

/// State of a task.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum State {
    /// On its CPU, or about to be.
    Running,
    /// Waiting for its CPU.
    Queued,
    /// On its CPU, spinning for a lock.
    Spinning,
    /// Waiting for its CPU, to go on spinning for a lock.
    SpinQueued,
    /// Waiting for a wake-up.
    Blocked,
    Done,
}

/// Task of a run.
pub(crate) struct Task {
    pub(crate) routine: RefCell<Option<Routine>>,
    pub(crate) state: Cell<State>,
    pub(crate) cpu: Cell<u32>,
    /// Set when a lock that it spun for is its own.
    pub(crate) is_granted: Cell<bool>,
    pub(crate) spin_began_ns: Cell<u64>,
    /// Time at which it stops spinning and sleeps.
    pub(crate) spin_until_ns: Cell<u64>,
    /// Number of spin locks held or waited for, counted where they prevent its preemption.
    pub(crate) spins: Cell<u32>,
    /// Number that grows whenever a section that is under way must begin anew.
    pub(crate) breaks: Cell<u32>,
    /// Number of times that it was blocked and woken.
    pub(crate) sleeps: Cell<u64>,
    /// Time since when it could run, while it is in a queue.
    pub(crate) ready_ns: Cell<u64>,
    /// Total time in queues.
    pub(crate) queued_ns: Cell<u64>,
    /// Total time of waits for locks.
    pub(crate) lock_waits: Cell<LockWaits>,
    /// Sleeping locks that it holds.
    pub(crate) mutexes: RefCell<Vec<LockId>>,
    /// Number of nested operations that it is inside of.
    pub(crate) operations: Cell<u32>,
    /// Whether it may only run on its CPU.
    pub(crate) is_bound: bool,
}

/// Kind of an event, in the event hash.
#[derive(Clone, Copy, Debug)]
#[repr(u64)]
pub(crate) enum Step {
    Load = 1,
    Store,
    Update,
    Section,
    Lock,
    Unlock,
    Wait,
    Set,
    Fence,
    Relax,
}
