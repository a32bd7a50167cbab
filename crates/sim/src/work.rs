//! Timers of all kinds, and deferred work that is bound to a CPU.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::engine::{BoundTask, Engine, NOBODY, State, TaskId, with_engine};
use crate::machine::Sim;
use crate::timed::Alarm;
use crate::wheel::{Jiffies, wheel_expiry};

/// What wakes a task that waits for a moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TimerKind {
    /// An exact timer: at that very nanosecond.
    Exact,
    /// The timer wheel: at a tick, rounded up as the kernel does.
    Wheel,
    /// The timer wheel; if the CPU is idle then, not before something else wakes it.
    Deferrable,
}

impl Engine {
    fn tick_ns(&self) -> u64 {
        1_000_000_000 / u64::from(self.settings.topology.hz)
    }

    /// When a timer of `kind` that is set now for `deadline_ns` expires.
    fn expiry_ns(&self, kind: TimerKind, deadline_ns: u64) -> u64 {
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

    /// Sleeps until a timer of `kind` for `deadline_ns` expires, or somebody wakes the task.
    pub(crate) fn sleep(&self, kind: TimerKind, deadline_ns: u64) {
        self.sync();
        if deadline_ns > self.now_ns.get() {
            let expires_ns = self.expiry_ns(kind, deadline_ns);
            self.arm(expires_ns, self.alarm(kind, self.current.get()));
            self.block();
        }
        self.kill_if_due();
    }

    /// Not in a destructor: a task dies once.
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

impl Sim {
    /// Ticks since the machine started.
    pub fn jiffies(&self) -> Jiffies {
        with_engine(|engine| engine.now_ns.get() / engine.tick_ns()).unwrap_or(0)
    }

    /// Nanoseconds of a tick.
    pub fn tick_ns(&self) -> u64 {
        with_engine(Engine::tick_ns).unwrap_or(1)
    }

    /// Lets the calling task sleep until a timer of `kind` expires that is set for `deadline_ns`. Unlike
    /// [`bursar_machine::Machine::sleep_until`], which is a thread's sleep and has its slack.
    pub fn sleep_on_timer(&self, kind: TimerKind, deadline_ns: u64) {
        with_engine(|engine| {
            assert!(engine.is_scheduled(), "only a task can sleep");
            match &engine.explored {
                Some(explored) => engine.explored_sleep(explored, deadline_ns),
                None => engine.sleep(kind, deadline_ns),
            }
        });
    }

    /// Runs tasks that may not leave their CPUs.
    ///
    /// # Panics
    /// As [`bursar_machine::Tasks::run`] does; or if there is no such CPU.
    pub fn run_bound<'scope>(&self, tasks: Vec<BoundTask<'scope>>) {
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
}

type Work<'a> = Box<dyn FnOnce() + Send + 'a>;

struct Queue<'a> {
    /// By due time and number.
    work: BTreeMap<(u64, u64), (TimerKind, Work<'a>)>,
    number: u64,
    worker: TaskId,
    is_waiting: bool,
    has_stopped: bool,
}

impl Queue<'_> {
    /// What the worker must be woken for at the latest: a deferrable timer that is first, and the first that is not.
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

/// Work that is done later, each piece on the CPU it was queued for (the kernel's per-CPU workqueue).
#[doc(alias = "workqueue_struct")]
pub struct WorkQueue<'a> {
    cpus: Vec<Mutex<Queue<'a>>>,
}

impl fmt::Debug for WorkQueue<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("WorkQueue").finish_non_exhaustive()
    }
}

impl<'a> WorkQueue<'a> {
    /// An empty queue for each CPU. [`WorkQueue::workers`] must run for anything to happen.
    pub fn new(machine: &Sim) -> Self {
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

    fn queue(&self, cpu: u32) -> MutexGuard<'_, Queue<'a>> {
        self.cpus[cpu as usize]
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }

    /// Queues `work` for `cpu`, to be done when a timer of `kind` for `deadline_ns` has expired.
    #[doc(alias = "queue_delayed_work_on")]
    pub fn queue_on(
        &self,
        cpu: u32,
        kind: TimerKind,
        deadline_ns: u64,
        work: impl FnOnce() + Send + 'a,
    ) {
        with_engine(|engine| {
            let now_ns = engine.now_ns.get();
            let due_ns = match deadline_ns <= now_ns {
                true => deadline_ns,
                false => engine.expiry_ns(kind, deadline_ns),
            };
            let mut queue = self.queue(cpu);
            queue.number += 1;
            let number = queue.number;
            queue.work.insert((due_ns, number), (kind, Box::new(work)));
            if !queue.is_waiting {
                // The worker will look at it before it waits.
                return;
            }
            let worker = queue.worker;
            drop(queue);
            if due_ns <= now_ns || engine.explored.is_some() {
                engine.wake_worker(worker);
            } else {
                engine.arm(due_ns, engine.alarm(kind, worker));
            }
        })
        .expect("a machine has a queue while its simulator runs");
    }

    /// Lets the workers end once they have done what is due.
    pub fn stop(&self) {
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

    /// The tasks that do the work, for [`Sim::run_bound`].
    pub fn workers<'scope>(&'scope self) -> Vec<BoundTask<'scope>>
    where
        'a: 'scope,
    {
        let worker = |cpu: u32| {
            let task: Box<dyn FnOnce() + Send + 'scope> = Box::new(move || self.serve(cpu));
            (Some(cpu), task)
        };
        (0..self.cpus.len() as u32).map(worker).collect()
    }

    fn serve(&self, cpu: u32) {
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
                let (_, work) = first.remove();
                drop(queue);
                work();
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

impl Engine {
    /// Wakes a worker that waits, unless its timer has.
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

    /// Blocks until one of some timers expires, which were rounded when they were set, or until somebody wakes the task.
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
