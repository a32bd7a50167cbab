//! Tasks of a run: their numbers, their states, and the kinds of their events.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;

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
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
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
    #[default]
    Blocked,
    Done,
}

/// Task of a run. A switch to it needs the first two cache lines of the host.
#[derive(Default)]
#[repr(C, align(64))]
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

impl Task {
    /// Makes a section that is under way begin anew.
    pub(crate) fn break_section(&self) {
        self.breaks.set(self.breaks.get() + 1);
    }
}

/// Tasks of the current run.
#[derive(Default)]
pub(crate) struct Tasks {
    pub(crate) list: RefCell<Vec<Task>>,
    /// Number of tasks that have not ended.
    pub(crate) live: Cell<usize>,
    /// Task that goes on.
    pub(crate) current: Cell<TaskId>,
    /// CPU of the current task.
    pub(crate) cpu: Cell<u32>,
}

impl Tasks {
    /// Returns whether a task is running.
    #[inline]
    pub(crate) fn is_scheduled(&self) -> bool {
        self.current.get() != NOBODY
    }

    #[inline]
    pub(crate) fn with<R>(&self, task: TaskId, look: impl FnOnce(&Task) -> R) -> R {
        look(&self.list.borrow()[task as usize])
    }

    #[inline]
    pub(crate) fn with_current<R>(&self, look: impl FnOnce(&Task) -> R) -> R {
        self.with(self.current.get(), look)
    }

    pub(crate) fn state_of(&self, task: TaskId) -> State {
        self.with(task, |task| task.state.get())
    }

    pub(crate) fn set_state(&self, task: TaskId, state: State) {
        self.with(task, |task| task.state.set(state));
    }

    /// Lets the current task run until it suspends itself; returns `true` if it ended.
    #[inline]
    pub(crate) fn resume_current(&self) -> bool {
        // Borrowed while it runs: tasks are added before the first runs, and removed after the last has.
        let has_ended = self.with_current(|task| {
            let mut routine = task.routine.borrow_mut();
            let running = routine.as_mut().expect("a live task has a routine");
            let has_ended = running.resume();
            if has_ended {
                *routine = None;
                task.state.set(State::Done);
            }
            has_ended
        });
        if has_ended {
            self.live.set(self.live.get() - 1);
        }
        has_ended
    }

    /// All tasks that wait, for a report.
    pub(crate) fn waiting(&self) -> VecDeque<TaskId> {
        let tasks = self.list.borrow();
        (0..)
            .zip(tasks.iter())
            .filter(|(_, task)| task.state.get() != State::Done)
            .map(|(number, _)| number)
            .collect()
    }
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
