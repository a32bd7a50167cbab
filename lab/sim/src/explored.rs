//! Exploration: no time, and a strategy that chooses the task that goes on after each step.
//!
//! A waiter is woken whenever its condition may have become true, and looks again. So all orders in which waiters can
//! be served are among the schedules. Any task that runs on the same CPU can interrupt a section between look and
//! commit.

use std::cell::{Cell, RefCell};

use bursar_rig::Watch;
use bursar_rig::random::Random;

use crate::coroutine::suspend;
use crate::engine::Engine;
use crate::failure::{Failure, take_last_panic};
use crate::strategy::{Chooser, DECISIONS_MAX, Decision, Strategy};
use crate::task::{NOBODY, State, TaskId, number_of};

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

/// State of an exploration; see the module.
pub(crate) struct Explored {
    chooser: RefCell<Chooser>,
    random: RefCell<Random>,
    steps: Cell<u64>,
    /// Task whose step ended last, and the point.
    last: Cell<(TaskId, Point)>,
    next: Cell<TaskId>,
    decisions: RefCell<Vec<Decision>>,
    candidates: RefCell<Vec<TaskId>>,
}

impl Explored {
    pub(crate) fn new(strategy: Strategy, seed: u64) -> Self {
        let mut random = Random::new(seed);
        Self {
            chooser: RefCell::new(Chooser::new(&strategy, &mut random)),
            random: RefCell::new(random),
            steps: Cell::new(0),
            last: Cell::new((NOBODY, Point::Step)),
            next: Cell::new(NOBODY),
            decisions: RefCell::default(),
            candidates: RefCell::default(),
        }
    }

    pub(crate) fn steps(&self) -> u64 {
        self.steps.get()
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
}

impl Engine {
    pub(crate) fn explored_loop(&self, explored: &Explored) {
        let tasks = self.tasks.borrow().len();
        assert!(
            tasks <= DECISIONS_MAX && self.cpus.len() < DECISIONS_MAX,
            "an exploration has at most 256 tasks and 255 CPUs"
        );
        for task in self.tasks.borrow().iter() {
            task.state.set(State::Running);
        }
        if tasks > 0 {
            self.explored_choose(explored, Point::Stop);
        }
        while self.has_live_tasks() && !self.has_failed() {
            let task = explored.next.get();
            self.current.set(task);
            self.cpu.set(self.with_task(task, |task| task.cpu.get()));
            if self.resume_current() && !self.has_failed() {
                explored.last.set((task, Point::Step));
                self.run_check();
                if self.has_live_tasks() && !self.has_failed() {
                    self.explored_choose(explored, Point::Stop);
                }
            }
            self.current.set(NOBODY);
        }
    }

    /// Ends a step of the current task and lets a task go on.
    pub(crate) fn explored_point(&self, explored: &Explored, point: Point) {
        if self.is_unwinding() && point == Point::Step {
            // The task unwinds towards the failure that is reported. Others go on only if it has to wait for them.
            return;
        }
        explored.steps.set(explored.steps.get() + 1);
        self.now_ns.set(self.now_ns.get() + 1);
        explored.last.set((self.current.get(), point));
        if !self.is_unwinding() {
            self.run_check();
        }
        if explored.steps.get() > STEPS_MAX {
            let steps = STEPS_MAX;
            self.fail_waiting(Failure::TooLong { steps });
        }
        if !self.has_failed() {
            self.explored_choose(explored, point);
        }
        if self.has_failed() {
            self.give_up();
        }
        if explored.next.get() != self.current.get() {
            suspend();
        }
    }

    /// Blocks the current task until [`Engine::explored_wake`].
    pub(crate) fn explored_block(&self, explored: &Explored) {
        let current = self.current.get();
        self.with_task(current, |task| task.state.set(State::Blocked));
        self.explored_point(explored, Point::Stop);
    }

    /// Lets time pass for the current task, which is a step like any other here.
    pub(crate) fn explored_sleep(&self, explored: &Explored, deadline_ns: u64) {
        // A time that no number of steps reaches.
        let deadline_ns = deadline_ns.min(u64::MAX / 2);
        self.now_ns.set(self.now_ns.get().max(deadline_ns));
        self.explored_point(explored, Point::Step);
    }

    /// Ends the run because no task can go on. If a task unwinds, that task's panic is the failure.
    fn fail_waiting(&self, failure: Failure) {
        // On a tainted thread, a panic that was kept is the best guess.
        let message = match self.is_unwinding() {
            true => Some(take_last_panic().unwrap_or_else(|| "while it unwinds".to_owned())),
            false if self.is_tainted => take_last_panic(),
            false => None,
        };
        self.fail(message.map_or(failure, Failure::Panic), None);
    }

    pub(crate) fn explored_wake(&self, task: TaskId) {
        self.with_task(task, |task| {
            if task.state.get() == State::Blocked {
                task.state.set(State::Running);
            }
        });
    }

    fn explored_choose(&self, explored: &Explored, point: Point) {
        let mut candidates = explored.candidates.borrow_mut();
        candidates.clear();
        let tasks = self.tasks.borrow();
        let numbers = (0..).zip(tasks.iter());
        candidates.extend(
            numbers
                .filter(|(_, task)| task.state.get() == State::Running)
                .map(|(number, _)| number),
        );
        drop(tasks);
        let current = self.current.get();
        explored
            .chooser
            .borrow_mut()
            .pass(current, explored.steps.get(), point == Point::Relax);
        match candidates.as_slice() {
            [] => {
                let waiting = self.waiting();
                return self.fail_waiting(Failure::Deadlock { waiting });
            }
            [only] => {
                let only = *only;
                return self.explored_switch(explored, only);
            }
            _ => {}
        }
        let decision = explored.chooser.borrow_mut().choose(
            &candidates,
            current,
            point == Point::Relax,
            self.cpus.len() as u64,
            &mut explored.random.borrow_mut(),
        );
        explored.decisions.borrow_mut().push(decision);
        let next = TaskId::from(decision & 0xff);
        let moved_to = u32::from(decision >> 8);
        if moved_to > 0 && current != NOBODY && (moved_to as usize) <= self.cpus.len() {
            self.with_task(current, |task| {
                if !task.is_bound && task.cpu.replace(moved_to - 1) != moved_to - 1 {
                    self.count(|tally| tally.migrations += 1);
                    task.breaks.set(task.breaks.get() + 1);
                }
            });
        }
        self.explored_switch(explored, next);
    }

    /// Lets `next` go on. A task that has begun a section on its CPU is preempted there.
    fn explored_switch(&self, explored: &Explored, next: TaskId) {
        explored.next.set(next);
        if next == self.current.get() {
            return;
        }
        let tasks = self.tasks.borrow();
        let cpu = tasks[next as usize].cpu.get();
        for (number, task) in (0..).zip(tasks.iter()) {
            if number != next && task.cpu.get() == cpu {
                task.breaks.set(task.breaks.get() + 1);
            }
        }
    }
}
