//! Operations that a fork waits for, and forks. Explorations only: in virtual time no task forks, and operations are
//! free.
//!
//! An exploration goes on as the child. The tasks that are gone stay where they are and never run again.

use std::marker::PhantomData;

use crate::engine::{Engine, with_engine};
use crate::explored::{Explored, Point};
use crate::task::{NOBODY, State, TaskId};

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
            with_engine(|engine| end_operation(engine, self.task));
        }
    }
}

#[inline]
pub(crate) fn operation() -> SimOperation {
    SimOperation {
        task: with_engine(begin_operation).unwrap_or(NOBODY),
        _thread: PhantomData,
    }
}

/// Counts the current task in; returns the task to count out again.
#[inline]
fn begin_operation(engine: &Engine) -> TaskId {
    match &engine.explored {
        Some(explored) if engine.is_scheduled() => explored_operation(engine, explored),
        _ => NOBODY,
    }
}

/// Counts the task in, without a step of its own unless a fork is under way.
fn explored_operation(engine: &Engine, explored: &Explored) -> TaskId {
    let current = engine.current.get();
    let depth = || engine.with_task(current, |task| task.operations.get());
    while depth() == 0 && ![NOBODY, current].contains(&engine.forking.get()) {
        // Nothing wakes this task: it is gone when the fork has happened.
        engine.explored_block(explored);
    }
    engine.with_task(current, |task| {
        task.operations.set(task.operations.get() + 1)
    });
    current
}

fn end_operation(engine: &Engine, task: TaskId) {
    let left = engine.with_task(task, |task| {
        task.operations.set(task.operations.get() - 1);
        task.operations.get()
    });
    let forking = engine.forking.get();
    if left > 0 || [NOBODY, task].contains(&forking) {
        return;
    }
    engine.explored_wake(forking);
    if let Some(explored) = &engine.explored {
        // The task may be cut off here, before work that is no step.
        engine.explored_point(explored, Point::Step);
    }
}

/// Makes all tasks but the current one disappear, wherever they are outside of operations.
pub(crate) fn fork(engine: &Engine) {
    let explored = engine.explored.as_ref();
    let explored = explored.expect("only a machine that explores forks");
    assert!(engine.is_scheduled(), "a task forks");
    let current = engine.current.get();
    while engine.forking.get() != NOBODY {
        // This task is gone with all others when that fork has happened.
        engine.explored_block(explored);
    }
    engine.forking.set(current);
    engine.explored_point(explored, Point::Step);
    while others_are_inside(engine, current) {
        engine.explored_block(explored);
    }
    for (number, task) in (0..).zip(engine.tasks.borrow().iter()) {
        if number != current && task.state.replace(State::Done) != State::Done {
            engine.live.set(engine.live.get() - 1);
        }
    }
    engine.forks.set(engine.forks.get() + 1);
    engine.forking.set(NOBODY);
}

fn others_are_inside(engine: &Engine, current: TaskId) -> bool {
    (0..)
        .zip(engine.tasks.borrow().iter())
        .any(|(number, task)| {
            let lives = task.state.get() != State::Done;
            number != current && lives && task.operations.get() > 0
        })
}
