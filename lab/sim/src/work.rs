//! Timers of all kinds, and deferred work that is bound to a CPU.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Mutex, MutexGuard, PoisonError};

use bursar_machine::{LockWaits, Shard};
use bursar_rig::timer::{BoundTask, Timer, TimerKind, Timers, WorkQueue};

use crate::current::{expiry_ns, sleep};
use crate::engine::{Engine, Schedule, with_engine};
use crate::machine::Sim;
use crate::task::{NOBODY, State, TaskId};

impl Timers for Sim {
    type Queue = SimQueue;

    fn hz(&self) -> u32 {
        with_engine(|engine| engine.world.settings.topology.hz).unwrap_or(1)
    }

    fn sleep_on_timer(&self, timer: Timer) {
        with_engine(|engine| {
            assert!(engine.is_scheduled(), "only a task can sleep");
            sleep(engine, timer);
        });
    }

    /// # Panics
    /// As [`bursar_rig::Tasks::run`] does; or if there is no such CPU.
    fn run_bound<'scope>(&self, tasks: Vec<BoundTask<'scope>>) {
        with_engine(|engine| {
            let cpus = engine.world.cpus() as u32;
            assert!(
                tasks
                    .iter()
                    .all(|(cpu, _)| cpu.is_none_or(|cpu| cpu < cpus))
            );
            engine.run(tasks, None);
        })
        .expect("a machine runs while its simulator does");
    }

    fn defers(&self) -> bool {
        true
    }

    fn work_queue(&self) -> SimQueue {
        SimQueue::new(self)
    }

    /// Includes the switch to the task.
    fn run_queue_ns(&self) -> u64 {
        with_engine(|engine| {
            // A task that is due to lose its CPU has waited by the time it goes on.
            engine.pass(0);
            engine.world.tasks.with_current(|task| task.queued_ns.get())
        })
        .unwrap_or(0)
    }

    /// 0 in an exploration, which has no time.
    fn lock_waits(&self) -> LockWaits {
        with_engine(|engine| {
            let tasks = &engine.world.tasks;
            tasks
                .is_scheduled()
                .then(|| tasks.with_current(|task| task.lock_waits.get()))
        })
        .flatten()
        .unwrap_or_default()
    }

    fn line_transfers(&self) -> Option<u64> {
        with_engine(|engine| engine.world.lines.transfers())
    }
}

struct Queue {
    /// Items by due time and number.
    work: BTreeMap<(u64, u64), (TimerKind, u64)>,
    number: u64,
    worker: TaskId,
    is_waiting: bool,
    has_stopped: bool,
}

impl Queue {
    /// Latest times at which the worker must wake: a deferrable timer that is first, and the first timer that is not
    /// deferrable.
    fn timers(&self) -> Vec<(u64, TimerKind)> {
        let all = self
            .work
            .iter()
            .map(|(&(due_ns, _), &(kind, _))| (due_ns, kind));
        let first = all.clone().next();
        let sure = all.clone().find(|(_, kind)| *kind != TimerKind::Deferrable);
        let sure = sure.filter(|sure| Some(*sure) != first);
        first.into_iter().chain(sure).collect()
    }
}

/// Queue of a simulated machine.
pub struct SimQueue {
    cpus: Vec<Mutex<Queue>>,
}

impl fmt::Debug for SimQueue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SimQueue").finish_non_exhaustive()
    }
}

impl SimQueue {
    fn new(machine: &Sim) -> Self {
        let queue = || {
            Mutex::new(Queue {
                work: BTreeMap::new(),
                number: 0,
                worker: NOBODY,
                is_waiting: false,
                has_stopped: false,
            })
        };
        let cpus = bursar_machine::Machine::cpus(machine);
        Self {
            cpus: (0..cpus).map(|_| queue()).collect(),
        }
    }

    fn queue(&self, cpu: u32) -> MutexGuard<'_, Queue> {
        self.cpus[cpu as usize]
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }

    fn serve(&self, cpu: u32, work: &(dyn Fn(Shard, u64) + Sync)) {
        loop {
            let now_ns = with_engine(|engine| {
                engine.sync();
                engine.now_ns()
            });
            let now_ns = now_ns.unwrap_or(0);
            let mut queue = self.queue(cpu);
            queue.worker = with_engine(|engine| engine.world.tasks.current.get()).unwrap_or(NOBODY);
            let first = queue.work.first_entry();
            if let Some(first) = first
                && first.key().0 <= now_ns
            {
                let (_, item) = first.remove();
                drop(queue);
                work(Shard(cpu), item);
            } else if queue.has_stopped {
                return;
            } else {
                let timers = queue.timers();
                queue.is_waiting = true;
                drop(queue);
                with_engine(|engine| wait_for_any(engine, timers));
                self.queue(cpu).is_waiting = false;
            }
        }
    }
}

impl WorkQueue for SimQueue {
    fn queue_on(&self, Shard(cpu): Shard, timer: Timer, item: u64) {
        with_engine(|engine| {
            engine.pass(0);
            let now_ns = engine.now_ns();
            let due_ns = match timer.deadline_ns <= now_ns {
                true => timer.deadline_ns,
                false => expiry_ns(&engine.world, timer),
            };
            let mut queue = self.queue(cpu);
            queue.number += 1;
            let number = queue.number;
            queue.work.insert((due_ns, number), (timer.kind, item));
            if !queue.is_waiting {
                // The worker will look at the item before it waits.
                return;
            }
            let worker = queue.worker;
            drop(queue);
            match &engine.schedule {
                Schedule::Timed(timed) if due_ns > now_ns => {
                    timed.arm(&engine.world, due_ns, timer.kind, worker);
                }
                _ => wake_worker(engine, worker),
            }
        })
        .expect("a machine has a queue while its simulator runs");
    }

    fn stop(&self) {
        for cpu in 0..self.cpus.len() as u32 {
            with_engine(|engine| engine.pass(0));
            let mut queue = self.queue(cpu);
            queue.has_stopped = true;
            if queue.is_waiting {
                let worker = queue.worker;
                drop(queue);
                with_engine(|engine| wake_worker(engine, worker));
            }
        }
    }

    fn workers<'scope>(
        &'scope self,
        work: &'scope (dyn Fn(Shard, u64) + Sync),
    ) -> Vec<BoundTask<'scope>> {
        let worker = |cpu: u32| -> BoundTask<'scope> {
            (Some(cpu), Box::new(move || self.serve(cpu, work)))
        };
        (0..self.cpus.len() as u32).map(worker).collect()
    }
}

/// Wakes a worker that waits, unless its timer wakes it first.
fn wake_worker(engine: &Engine, worker: TaskId) {
    let sleep = || {
        engine.world.tasks.with(worker, |task| {
            (task.state.get() == State::Blocked).then(|| task.sleeps.get())
        })
    };
    let before = sleep();
    if before.is_some() {
        engine.pass_undisturbed(engine.costs().wake_ns);
        if sleep() == before {
            engine.wake(worker);
        }
    }
}

/// Blocks until one of some timers expires, which were rounded when they were set, or until another task wakes this
/// one.
fn wait_for_any(engine: &Engine, timers: Vec<(u64, TimerKind)>) {
    let world = &engine.world;
    match &engine.schedule {
        Schedule::Timed(timed) => {
            let current = world.tasks.current.get();
            for (expires_ns, kind) in timers {
                timed.arm(world, expires_ns, kind, current);
            }
            timed.block(world);
        }
        Schedule::Explored(explored) => match timers.first() {
            Some((expires_ns, _)) => explored.sleep(world, *expires_ns),
            None => explored.block(world),
        },
    }
}
