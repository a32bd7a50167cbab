//! Operations that a fork waits for, and forks. Explorations only: in virtual time no task forks, and operations are
//! free.
//!
//! An exploration goes on as the child. The tasks that are gone stay where they are and never run again.

use std::marker::PhantomData;

use crate::engine::{Engine, NOBODY, State, TaskId, with_engine};
use crate::explored::{Explored, Point};

/// Guard of an operation that a fork must not cut in two.
#[derive(Debug)]
pub struct SimOperation {
    task: TaskId,
    /// Ties the value to its task, which is counted.
    _thread: PhantomData<*const ()>,
}

impl Drop for SimOperation {
    #[inline]
    fn drop(&mut self) {
        if self.task != NOBODY {
            with_engine(|engine| engine.end_operation(self.task));
        }
    }
}

#[inline]
pub(crate) fn operation() -> SimOperation {
    SimOperation {
        task: with_engine(Engine::begin_operation).unwrap_or(NOBODY),
        _thread: PhantomData,
    }
}

impl Engine {
    /// Counts the current task in; returns the task to count out again.
    #[inline]
    fn begin_operation(&self) -> TaskId {
        match &self.explored {
            Some(explored) if self.is_scheduled() => self.explored_operation(explored),
            _ => NOBODY,
        }
    }

    /// Counts the task in, without a step of its own unless a fork is under way.
    fn explored_operation(&self, explored: &Explored) -> TaskId {
        let current = self.current.get();
        let depth = || self.with_task(current, |task| task.operations.get());
        while depth() == 0 && ![NOBODY, current].contains(&self.forking.get()) {
            // Nothing wakes this task: it is gone when the fork has happened.
            self.explored_block(explored);
        }
        self.with_task(current, |task| {
            task.operations.set(task.operations.get() + 1)
        });
        current
    }

    fn end_operation(&self, task: TaskId) {
        let left = self.with_task(task, |task| {
            task.operations.set(task.operations.get() - 1);
            task.operations.get()
        });
        let forking = self.forking.get();
        if left > 0 || [NOBODY, task].contains(&forking) {
            return;
        }
        self.explored_wake(forking);
        if let Some(explored) = &self.explored {
            // The task may be cut off here, before work that is no step.
            self.explored_point(explored, Point::Step);
        }
    }

    /// Makes all tasks but the current one disappear, wherever they are outside of operations.
    pub(crate) fn fork(&self) {
        let explored = self.explored.as_ref();
        let explored = explored.expect("only a machine that explores forks");
        assert!(self.is_scheduled(), "a task forks");
        let current = self.current.get();
        while self.forking.get() != NOBODY {
            // This task is gone with all others when that fork has happened.
            self.explored_block(explored);
        }
        self.forking.set(current);
        self.explored_point(explored, Point::Step);
        while self.others_are_inside(current) {
            self.explored_block(explored);
        }
        for (number, task) in (0..).zip(self.tasks.borrow().iter()) {
            if number != current && task.state.replace(State::Done) != State::Done {
                self.live.set(self.live.get() - 1);
            }
        }
        self.forks.set(self.forks.get() + 1);
        self.forking.set(NOBODY);
    }

    fn others_are_inside(&self, current: TaskId) -> bool {
        (0..).zip(self.tasks.borrow().iter()).any(|(number, task)| {
            let lives = task.state.get() != State::Done;
            number != current && lives && task.operations.get() > 0
        })
    }
}
