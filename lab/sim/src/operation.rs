//! Operations that a fork waits for, and forks. Explorations only: in virtual time no task forks, and operations are
//! free.
//!
//! An exploration goes on as the child. The tasks that are gone stay where they are and never run again.

use std::marker::PhantomData;

use crate::engine::{Engine, with_engine};
use crate::explored::{Explored, Point};
use crate::task::{NOBODY, State, TaskId};
use crate::world::World;

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
    match engine.explored() {
        Some(explored) if engine.is_scheduled() => explored_operation(&engine.world, explored),
        _ => NOBODY,
    }
}

/// Counts the task in, without a step of its own unless a fork is under way.
fn explored_operation(world: &World, explored: &Explored) -> TaskId {
    let tasks = &world.tasks;
    let current = tasks.current.get();
    let depth = || tasks.with(current, |task| task.operations.get());
    while depth() == 0 && ![NOBODY, current].contains(&explored.forking.get()) {
        // Nothing wakes this task: it is gone when the fork has happened.
        explored.block(world);
    }
    tasks.with(current, |task| {
        task.operations.set(task.operations.get() + 1)
    });
    current
}

fn end_operation(engine: &Engine, task: TaskId) {
    let left = engine.world.tasks.with(task, |task| {
        task.operations.set(task.operations.get() - 1);
        task.operations.get()
    });
    let forking = engine
        .explored()
        .map_or(NOBODY, |explored| explored.forking.get());
    if left > 0 || [NOBODY, task].contains(&forking) {
        return;
    }
    engine.wake(forking);
    // The task may be cut off here, before work that is no step.
    engine.end_step();
}

/// Makes all tasks but the current one disappear, wherever they are outside of operations.
pub(crate) fn fork(engine: &Engine) {
    let explored = engine.explored();
    let explored = explored.expect("only a machine that explores forks");
    assert!(engine.is_scheduled(), "a task forks");
    let world = &engine.world;
    let current = world.tasks.current.get();
    while explored.forking.get() != NOBODY {
        // This task is gone with all others when that fork has happened.
        explored.block(world);
    }
    explored.forking.set(current);
    explored.point(world, Point::Step);
    while others_are_inside(world, current) {
        explored.block(world);
    }
    for (number, task) in (0..).zip(world.tasks.list.borrow().iter()) {
        if number != current && task.state.replace(State::Done) != State::Done {
            world.tasks.live.set(world.tasks.live.get() - 1);
        }
    }
    explored.leave_all_but(current);
    explored.forks.set(explored.forks.get() + 1);
    explored.forking.set(NOBODY);
}

fn others_are_inside(world: &World, current: TaskId) -> bool {
    (0..)
        .zip(world.tasks.list.borrow().iter())
        .any(|(number, task)| {
            let lives = task.state.get() != State::Done;
            number != current && lives && task.operations.get() > 0
        })
}
