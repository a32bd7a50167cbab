//! Timers of all kinds, and deferred work that is bound to a CPU.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Mutex, MutexGuard, PoisonError};

use bursar_machine::{LockWaits, Shard};
use bursar_rig::timer::{BoundTask, Timer, TimerKind, Timers, WorkQueue, tick_ns, wheel_expiry};

use crate::engine::{Engine, NOBODY, State, TaskId, with_engine};
use crate::machine::Sim;
use crate::timed::Alarm;

impl Engine {
    fn tick_ns(&self) -> u64 {
        tick_ns(self.settings.topology.hz)
    }

    /// Expiry of a timer that is set now.
    fn expiry_ns(&self, timer: Timer) -> u64 {
        let Timer { kind, deadline_ns } = timer;
        if kind == TimerKind::Exact {
            return deadline_ns;
        }
        let tick_ns = self.tick_ns();
        let now = self.now_ns.get() / tick_ns;
        wheel_expiry(now, deadline_ns.div_ceil(tick_ns)).saturating_mul(tick_ns)
    }

    fn alarm(&self, kind: TimerKind, task: TaskId) -> Alarm {
        let number = self.with_task(task, |task| task.sleeps.get());
        Alarm {
            task,
            number,
            is_deferrable: kind == TimerKind::Deferrable,
        }
    }

    /// Sleeps until a timer expires, or another task wakes this one.
    pub(crate) fn sleep(&self, timer: Timer) {
        self.sync();
        if timer.deadline_ns > self.now_ns.get() {
            let expires_ns = self.expiry_ns(timer);
            self.arm(expires_ns, self.alarm(timer.kind, self.current.get()));
            self.block();
        }
        self.kill_if_due();
    }

    /// Ends the current task if its time has come, but not in a destructor, because a task dies once.
    fn kill_if_due(&self) {
        if !std::thread::panicking()
            && self
                .faults
                .takes_life(self.current.get(), self.now_ns.get())
        {
            std::panic::resume_unwind(Box::new(crate::fault::Killed));
        }
    }
}

impl Timers for Sim {
    type Queue = SimQueue;

    fn hz(&self) -> u32 {
        with_engine(|engine| engine.settings.topology.hz).unwrap_or(1)
    }

    fn sleep_on_timer(&self, timer: Timer) {
        with_engine(|engine| {
            assert!(engine.is_scheduled(), "only a task can sleep");
            match &engine.explored {
                Some(explored) => engine.explored_sleep(explored, timer.deadline_ns),
                None => engine.sleep(timer),
            }
        });
    }

    /// # Panics
    /// As [`bursar_rig::Tasks::run`] does; or if there is no such CPU.
    fn run_bound<'scope>(&self, tasks: Vec<BoundTask<'scope>>) {
        with_engine(|engine| {
            let cpus = engine.cpus.len() as u32;
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
            if engine.is_scheduled() && engine.explored.is_none() {
                engine.sync();
            }
            engine.with_task(engine.current.get(), |task| task.queued_ns.get())
        })
        .unwrap_or(0)
    }

    /// 0 in an exploration, which has no time.
    fn lock_waits(&self) -> LockWaits {
        with_engine(|engine| {
            let current = engine.current.get();
            let waits = (current != NOBODY)
                .then(|| engine.with_task(current, |task| task.lock_waits.get()));
            waits.unwrap_or_default()
        })
        .unwrap_or_default()
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
                engine.now_ns.get()
            });
            let now_ns = now_ns.unwrap_or(0);
            let mut queue = self.queue(cpu);
            queue.worker = with_engine(|engine| engine.current.get()).unwrap_or(NOBODY);
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
                with_engine(|engine| engine.wait_for_any(timers));
                self.queue(cpu).is_waiting = false;
            }
        }
    }
}

impl WorkQueue for SimQueue {
    fn queue_on(&self, Shard(cpu): Shard, timer: Timer, item: u64) {
        with_engine(|engine| {
            let now_ns = engine.now_ns.get();
            let due_ns = match timer.deadline_ns <= now_ns {
                true => timer.deadline_ns,
                false => engine.expiry_ns(timer),
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
            if due_ns <= now_ns || engine.explored.is_some() {
                engine.wake_worker(worker);
            } else {
                engine.arm(due_ns, engine.alarm(timer.kind, worker));
            }
        })
        .expect("a machine has a queue while its simulator runs");
    }

    fn stop(&self) {
        for cpu in 0..self.cpus.len() as u32 {
            let mut queue = self.queue(cpu);
            queue.has_stopped = true;
            if queue.is_waiting {
                let worker = queue.worker;
                drop(queue);
                with_engine(|engine| engine.wake_worker(worker));
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

impl Engine {
    /// Wakes a worker that waits, unless its timer has woken it.
    fn wake_worker(&self, worker: TaskId) {
        if self.with_task(worker, |task| task.state.get() != State::Blocked) {
            return;
        }
        if self.explored.is_some() {
            return self.explored_wake(worker);
        }
        self.spend(self.settings.costs.wake_ns);
        self.wake(worker, self.now_ns.get());
    }

    /// Blocks until one of some timers expires, which were rounded when they were set, or until another task wakes this
    /// one.
    fn wait_for_any(&self, timers: Vec<(u64, TimerKind)>) {
        if let Some(explored) = &self.explored {
            return match timers.first() {
                Some((expires_ns, _)) => self.explored_sleep(explored, *expires_ns),
                None => self.explored_block(explored),
            };
        }
        for (expires_ns, kind) in timers {
            self.arm(expires_ns, self.alarm(kind, self.current.get()));
        }
        self.block();
    }
}
