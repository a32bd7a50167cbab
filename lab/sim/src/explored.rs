//! Exploration: no time, and a strategy that chooses the task that goes on after each step.
//!
//! A waiter is woken whenever its condition may have become true, and looks again. So all orders in which waiters can
//! be served are among the schedules. Any task that runs on the same CPU can interrupt a section between look and
//! commit.

use std::cell::{Cell, RefCell};

use bursar_rig::Watch;
use bursar_rig::random::Random;

use crate::coroutine::{give_up, suspend};
use crate::failure::{Failure, take_last_panic};
use crate::strategy::{Chooser, DECISIONS_MAX, Decision, Strategy};
use crate::task::{NOBODY, State, TaskId, number_of};
use crate::world::World;

/// Maximum number of steps of a schedule; one with more has a loop that does not end.
const STEPS_MAX: u64 = 200_000;

/// Point at which a choice is made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Point {
    /// The current task can go on.
    Step,
    /// The current task can go on, but has no reason to before another has.
    Relax,
    /// The current task cannot go on.
    Stop,
}

/// Schedule of an exploration; see the module.
pub(crate) struct Explored {
    chooser: RefCell<Chooser>,
    random: RefCell<Random>,
    /// Task whose step ended last, and the point.
    last: Cell<(TaskId, Point)>,
    next: Cell<TaskId>,
    decisions: RefCell<Vec<Decision>>,
    /// Tasks that can go on, ascending.
    runnable: RefCell<Vec<TaskId>>,
    /// Task that forks or is about to.
    pub(crate) forking: Cell<TaskId>,
    pub(crate) forks: Cell<u64>,
}

impl Explored {
    pub(crate) fn new(strategy: Strategy, seed: u64) -> Self {
        let mut random = Random::new(seed);
        Self {
            chooser: RefCell::new(Chooser::new(&strategy, &mut random)),
            random: RefCell::new(random),
            last: Cell::new((NOBODY, Point::Step)),
            next: Cell::new(NOBODY),
            decisions: RefCell::default(),
            runnable: RefCell::default(),
            forking: Cell::new(NOBODY),
            forks: Cell::new(0),
        }
    }

    pub(crate) fn last_step(&self) -> Watch {
        let (task, point) = self.last.get();
        Watch {
            task: number_of(task),
            waits: point != Point::Step,
        }
    }

    pub(crate) fn take_decisions(&self) -> Vec<Decision> {
        self.decisions.take()
    }

    /// Runs steps until no task is left.
    pub(crate) fn run(&self, world: &World) {
        let tasks = world.tasks.list.borrow().len();
        assert!(
            tasks <= DECISIONS_MAX && world.cpus() < DECISIONS_MAX,
            "an exploration has at most 256 tasks and 255 CPUs"
        );
        for task in world.tasks.list.borrow().iter() {
            task.state.set(State::Running);
        }
        self.runnable.replace((0..tasks as TaskId).collect());
        if tasks > 0 {
            self.choose(world, Point::Stop);
        }
        while world.goes_on() {
            let task = self.next.get();
            world.tasks.current.set(task);
            world
                .tasks
                .cpu
                .set(world.tasks.with(task, |task| task.cpu.get()));
            if world.tasks.resume_current() {
                self.leave(task);
                if !world.run.has_failed() {
                    self.last.set((task, Point::Step));
                    // Not over what a task that unwinds has half undone.
                    if !world.run.is_unwinding() {
                        world.run_check();
                    }
                    if world.goes_on() {
                        self.choose(world, Point::Stop);
                    }
                }
            }
            world.tasks.current.set(NOBODY);
        }
    }

    /// Ends a step of the current task and lets a task go on.
    #[inline(never)]
    pub(crate) fn point(&self, world: &World, point: Point) {
        if world.run.is_unwinding() && point == Point::Step {
            // The task unwinds towards the failure that is reported. Others go on only if it has to wait for them.
            return;
        }
        world.count(|counts| counts.steps += 1);
        world.clock.advance(1);
        self.last.set((world.tasks.current.get(), point));
        if !world.run.is_unwinding() {
            world.run_check();
        }
        if world.counts.get().steps > STEPS_MAX {
            let steps = STEPS_MAX;
            Self::fail_waiting(world, Failure::TooLong { steps });
        }
        if !world.run.has_failed() {
            self.choose(world, point);
        }
        if world.run.has_failed() {
            give_up();
        }
        if self.next.get() != world.tasks.current.get() {
            suspend();
        }
    }

    /// Blocks the current task until [`Explored::wake`].
    pub(crate) fn block(&self, world: &World) {
        let current = world.tasks.current.get();
        world.tasks.set_state(current, State::Blocked);
        self.leave(current);
        self.point(world, Point::Stop);
    }

    /// Lets time pass for the current task, which is a step like any other here.
    pub(crate) fn sleep(&self, world: &World, deadline_ns: u64) {
        // A time that no number of steps reaches.
        let deadline_ns = deadline_ns.min(u64::MAX / 2);
        world.clock.advance_to(deadline_ns);
        self.point(world, Point::Step);
    }

    /// Ends the run because no task can go on. If a task unwinds, that task's panic is the failure.
    fn fail_waiting(world: &World, failure: Failure) {
        // On a tainted thread, a panic that was kept is the best guess.
        let message = match world.run.is_unwinding() {
            true => Some(take_last_panic().unwrap_or_else(|| "while it unwinds".to_owned())),
            false if world.run.is_tainted => take_last_panic(),
            false => None,
        };
        world
            .run
            .fail(message.map_or(failure, Failure::Panic), None);
    }

    pub(crate) fn wake(&self, world: &World, number: TaskId) {
        world.tasks.with(number, |task| {
            if task.state.get() == State::Blocked {
                task.state.set(State::Running);
                let mut runnable = self.runnable.borrow_mut();
                let at = runnable.partition_point(|&other| other < number);
                runnable.insert(at, number);
            }
        });
    }

    /// Notes that a task can not go on.
    fn leave(&self, task: TaskId) {
        self.runnable.borrow_mut().retain(|&other| other != task);
    }

    /// Notes that a task is alone.
    pub(crate) fn leave_all_but(&self, task: TaskId) {
        self.runnable.borrow_mut().retain(|&other| other == task);
    }

    fn choose(&self, world: &World, point: Point) {
        let candidates = self.runnable.borrow();
        let current = world.tasks.current.get();
        let steps = world.counts.get().steps;
        let is_polite = point == Point::Relax;
        let mut chooser = self.chooser.borrow_mut();
        chooser.pass(current, steps, is_polite);
        match candidates.as_slice() {
            [] => {
                let waiting = world.tasks.waiting();
                return Self::fail_waiting(world, Failure::Deadlock { waiting });
            }
            [only] => {
                let only = *only;
                return self.switch(world, only);
            }
            _ => {}
        }
        let decision = chooser.choose(
            &candidates,
            current,
            is_polite,
            world.cpus() as u64,
            &mut self.random.borrow_mut(),
        );
        self.decisions.borrow_mut().push(decision);
        let next = TaskId::from(decision & 0xff);
        let moved_to = u32::from(decision >> 8);
        if moved_to > 0 && current != NOBODY && (moved_to as usize) <= world.cpus() {
            world.tasks.with_current(|task| {
                if !task.is_bound && task.cpu.replace(moved_to - 1) != moved_to - 1 {
                    world.count(|counts| counts.migrations += 1);
                    task.break_section();
                }
            });
        }
        self.switch(world, next);
    }

    /// Lets `next` go on. A task that has begun a section on its CPU is preempted there.
    fn switch(&self, world: &World, next: TaskId) {
        self.next.set(next);
        if next == world.tasks.current.get() {
            return;
        }
        let tasks = world.tasks.list.borrow();
        let cpu = tasks[next as usize].cpu.get();
        for (number, task) in (0..).zip(tasks.iter()) {
            if number != next && task.cpu.get() == cpu {
                task.break_section();
            }
        }
    }
}
