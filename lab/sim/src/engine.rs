//! Engine of the machine: its tasks, its CPUs, and the choice between two visible operations.
//!
//! A task runs until just before an operation that another could see: an access to a shared word, a lock, a completion,
//! a section, sleep. There the engine decides which task goes on. In *virtual time* that is the earliest: each CPU has
//! a clock, operations cost time, and a seeded permutation that changes with time breaks ties. In an *exploration*
//! there is no time, and a strategy chooses.
//!
//! Run-ahead: a task whose CPU is the earliest anyway goes on without leaving its stack. The order of events is the
//! same.

use std::any::Any;
use std::cell::{Cell, RefCell};
use std::collections::{BinaryHeap, VecDeque};
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::ptr;
use std::sync::atomic::{AtomicU32, Ordering};

use bursar_rig::random::Random;
use bursar_rig::timer::BoundTask;

use crate::coroutine::{self, Routine, suspend};
use crate::explored::Explored;
use crate::failure::{Failure, message_of};
use crate::fault::{Injector, Killed};
use crate::lines::{Access, LineId, Lines};
use crate::lock_table::LockTable;
use crate::settings::{Mode, Settings};
use crate::task::{NOBODY, State, Step, Task, TaskId};
use crate::timed::{Cpu, Timer};
use crate::tournament::{NEVER, Tournament};

/// Value that a panic carries.
type Payload = Box<dyn Any + Send>;
thread_local! {
    /// Simulator of this thread.
    pub(crate) static ENGINE: Cell<*const Engine> = const { Cell::new(ptr::null()) };
}

/// Calls `work` with this thread's simulator; `None` if there is none.
#[inline]
pub(crate) fn with_engine<R>(work: impl FnOnce(&Engine) -> R) -> Option<R> {
    coroutine::with_installed(&ENGINE, work)
}

/// Counts of the simulator.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Tally {
    pub(crate) events: u64,
    pub(crate) switches: u64,
    pub(crate) preemptions: u64,
    pub(crate) wakes: u64,
    pub(crate) fences: u64,
    pub(crate) migrations: u64,
}

/// Fences of a machine: one runs, and other tasks wait for the next.
#[derive(Debug, Default)]
pub(crate) struct Fences {
    pub(crate) is_running: bool,
    /// Tasks that wait for the same next fence, which the first of them passes for all.
    pub(crate) waiting: Vec<TaskId>,
    /// Leader of those tasks, once its turn has come.
    pub(crate) led_by: Option<TaskId>,
}

/// Engine of one simulator; see the module.
pub(crate) struct Engine {
    /// Number that no other engine of the process has. Lines and locks are given back to their own engine.
    pub(crate) number: u32,
    pub(crate) settings: Settings,
    pub(crate) lines: Lines,
    pub(crate) locks: LockTable,
    pub(crate) tasks: RefCell<Vec<Task>>,
    pub(crate) live: Cell<usize>,
    /// Task that forks or is about to.
    pub(crate) forking: Cell<TaskId>,
    pub(crate) forks: Cell<u64>,
    pub(crate) current: Cell<TaskId>,
    /// CPU of the current task.
    pub(crate) cpu: Cell<u32>,
    /// Clock of that CPU; outside of tasks, the machine's clock.
    pub(crate) now_ns: Cell<u64>,
    /// Time up to which, exclusively, the current task may go on.
    pub(crate) horizon_ns: Cell<u64>,
    /// Earliest key of all others.
    pub(crate) next_other: Cell<u64>,
    pub(crate) cpus: Vec<Cpu>,
    /// CPU of each rank.
    pub(crate) cpu_of_rank: Vec<u16>,
    /// Bits of a rank.
    pub(crate) rank_mask: u64,
    pub(crate) idle: RefCell<Vec<u64>>,
    pub(crate) queued: Cell<usize>,
    pub(crate) tree: Tournament,
    pub(crate) timers: RefCell<BinaryHeap<Timer>>,
    pub(crate) timer_number: Cell<u64>,
    /// Time of the last event that left its stack; no event is before it.
    pub(crate) event_ns: Cell<u64>,
    pub(crate) fences: RefCell<Fences>,
    /// Number of blocks of the largest order that reservations have.
    pub(crate) reserved_spans: Cell<u32>,
    pub(crate) random: RefCell<Random>,
    pub(crate) faults: Injector,
    pub(crate) explored: Option<Explored>,
    pub(crate) tally: Cell<Tally>,
    hash: Cell<u64>,
    check: RefCell<Option<Box<dyn FnMut()>>>,
    pub(crate) is_checked: Cell<bool>,
    is_running: Cell<bool>,
    /// Set when a run has failed: locks may never be released.
    is_broken: Cell<bool>,
    /// Set when the thread already unwinds, or seems to from now on, because a task was given up while it did.
    pub(crate) is_tainted: bool,
    failure: RefCell<Option<(Failure, Option<Payload>)>>,
}

impl Engine {
    pub(crate) fn new(settings: Settings) -> Box<Self> {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        if let Err(error) = settings.topology.check() {
            panic!("no such machine: {error}");
        }
        let cpus = settings.topology.cpus;
        let places = settings.topology.places();
        let mut random = Random::new(settings.seed);
        let mut ranks: Vec<u16> = (0..cpus as u16).collect();
        for at in (1..cpus).rev() {
            ranks.swap(at, random.below(at as u64 + 1) as usize);
        }
        let mut cpu_of_rank = vec![0; cpus];
        for (cpu, &rank) in (0..).zip(&ranks) {
            cpu_of_rank[usize::from(rank)] = cpu;
        }
        let explored = match &settings.mode {
            Mode::Timed => None,
            Mode::Explored(strategy) => Some(Explored::new(strategy.clone(), settings.seed)),
        };
        Box::new(Self {
            // Relaxed: the number only has to be different each time.
            number: NUMBER.fetch_add(1, Ordering::Relaxed),
            lines: Lines::new(places, &settings.costs),
            locks: LockTable::default(),
            tasks: RefCell::default(),
            live: Cell::new(0),
            forking: Cell::new(NOBODY),
            forks: Cell::new(0),
            current: Cell::new(NOBODY),
            cpu: Cell::new(0),
            now_ns: Cell::new(0),
            horizon_ns: Cell::new(0),
            next_other: Cell::new(NEVER),
            cpu_of_rank,
            rank_mask: (cpus as u64).next_power_of_two() - 1,
            cpus: ranks.into_iter().map(Cpu::new).collect(),
            idle: RefCell::new(vec![0; cpus.div_ceil(64)]),
            queued: Cell::new(0),
            // The last leaf belongs to the timers.
            tree: Tournament::new(cpus + 1),
            timers: RefCell::default(),
            timer_number: Cell::new(0),
            event_ns: Cell::new(0),
            fences: RefCell::default(),
            reserved_spans: Cell::new(0),
            faults: Injector::new(&settings.faults, settings.seed),
            random: RefCell::new(random),
            explored,
            tally: Cell::default(),
            hash: Cell::new(settings.seed),
            check: RefCell::default(),
            is_checked: Cell::new(false),
            is_running: Cell::new(false),
            is_broken: Cell::new(false),
            is_tainted: std::thread::panicking(),
            failure: RefCell::default(),
            settings,
        })
    }

    /// Returns whether a task is running.
    #[inline]
    pub(crate) fn is_scheduled(&self) -> bool {
        self.current.get() != NOBODY
    }

    /// Prepares a visible operation: lets all tasks go first that are earlier.
    #[inline]
    pub(crate) fn visible(&self, step: Step, subject: u32) {
        if self.now_ns.get() >= self.horizon_ns.get() {
            self.sync_slowly();
        }
        self.note(step, subject);
    }

    /// Lets all tasks go first that are earlier.
    #[inline]
    pub(crate) fn sync(&self) {
        if self.now_ns.get() >= self.horizon_ns.get() {
            self.sync_slowly();
        }
    }

    #[cold]
    fn sync_slowly(&self) {
        if !self.is_scheduled() {
            return;
        }
        match &self.explored {
            Some(explored) => self.explored_point(explored, crate::explored::Point::Step),
            None => {
                self.timed_sync();
                if self.is_checked.get() {
                    self.run_check();
                    if self.has_failed() {
                        self.give_up();
                    }
                }
            }
        }
    }

    /// Returns whether the current task unwinds towards a failure.
    pub(crate) fn is_unwinding(&self) -> bool {
        std::thread::panicking() && !self.is_tainted
    }

    /// Returns whether a run is under way.
    pub(crate) fn is_running(&self) -> bool {
        self.is_running.get()
    }

    #[inline]
    fn note(&self, step: Step, subject: u32) {
        if !self.is_scheduled() {
            return;
        }
        let mut tally = self.tally.get();
        tally.events += 1;
        self.tally.set(tally);
        let what = self.now_ns.get()
            ^ (u64::from(self.current.get()) << 40)
            ^ (u64::from(subject) << 20)
            ^ (step as u64) << 60;
        let mixed = (self.hash.get() ^ what).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        self.hash.set(mixed ^ mixed >> 29);
    }

    /// Accesses a line; the current task spends the time.
    #[inline]
    pub(crate) fn access(&self, line: LineId, access: Access, extra_ns: u64) {
        if !self.is_scheduled() || self.explored.is_some() {
            return;
        }
        let now_ns = self.now_ns.get();
        let served_ns = self.lines.access(line, self.cpu.get(), access, now_ns);
        self.now_ns.set(served_ns + extra_ns);
    }

    /// Begins to fetch a line; the current task goes on.
    pub(crate) fn prefetch(&self, line: LineId, access: Access) {
        if !self.is_scheduled() || self.explored.is_some() {
            return;
        }
        // The line changes hands now, so in the order of events.
        self.visible(Step::Load, line);
        let now_ns = self.now_ns.get();
        self.now_ns
            .set(self.lines.prefetch(line, self.cpu.get(), access, now_ns));
    }

    /// Spends time of the current task.
    #[inline]
    pub(crate) fn spend(&self, duration_ns: u64) {
        if self.is_scheduled() && self.explored.is_none() {
            self.now_ns.set(self.now_ns.get() + duration_ns);
        }
    }

    pub(crate) fn with_task<R>(&self, task: TaskId, look: impl FnOnce(&Task) -> R) -> R {
        look(&self.tasks.borrow()[task as usize])
    }

    pub(crate) fn count(&self, change: impl FnOnce(&mut Tally)) {
        let mut tally = self.tally.get();
        change(&mut tally);
        self.tally.set(tally);
    }

    pub(crate) fn event_hash(&self) -> u64 {
        self.hash.get()
    }

    /// Runs all bodies to their end. `check` is called after each step.
    pub(crate) fn run<'scope>(
        &self,
        bodies: Vec<BoundTask<'scope>>,
        check: Option<Box<dyn FnMut() + 'scope>>,
    ) {
        assert!(!self.is_running(), "a run does not start another");
        assert!(!self.is_broken.get(), "a run of this machine has failed");
        self.is_running.set(true);
        let outside_cpu = self.cpu.get();
        let borrowed = Borrowed(self);
        self.is_checked.set(check.is_some());
        // SAFETY: `borrowed` takes it away again before this returns or unwinds.
        *self.check.borrow_mut() = check.map(|check| unsafe { coroutine::forget_scope(check) });
        self.live.set(bodies.len());
        for (number, (bound, body)) in (0..).zip(bodies) {
            let cpu = bound.unwrap_or((number as usize % self.cpus.len()) as u32);
            self.add_task(number, cpu, bound.is_some(), body);
        }
        match &self.explored {
            Some(explored) => self.explored_loop(explored),
            None => self.timed_loop(),
        }
        drop(borrowed);
        self.cpu.set(outside_cpu);
        self.is_broken.set(self.has_failed());
        if self.has_failed() && coroutine::is_inside() {
            // The scenario is given up where it stopped: locks may never be released, and the scenario must not run
            // into them.
            self.give_up();
        }
        let failure = self.failure.borrow_mut().take();
        if let Some((failure, payload)) = failure {
            match payload {
                Some(payload) if self.explored.is_none() => resume_unwind(payload),
                _ => resume_unwind(Box::new(failure)),
            }
        }
    }

    fn add_task<'scope>(
        &self,
        number: TaskId,
        cpu: u32,
        is_bound: bool,
        body: Box<dyn FnOnce() + Send + 'scope>,
    ) {
        let body = Body(Some(body));
        let guarded = move || {
            let result = catch_unwind(AssertUnwindSafe(|| body.run()));
            if let Err(payload) = result
                && !payload.is::<Killed>()
            {
                with_engine(|engine| {
                    engine.fail(Failure::Panic(message_of(&*payload)), Some(payload));
                });
            }
        };
        // SAFETY: `run` drops all routines before it returns or unwinds.
        let routine = unsafe { Routine::new(Box::new(guarded)) };
        let routine = routine.unwrap_or_else(|error| {
            panic!("no stack for simulated task {number}: {error}");
        });
        self.tasks.borrow_mut().push(Task {
            routine: RefCell::new(Some(routine)),
            state: Cell::new(State::Blocked),
            cpu: Cell::new(cpu),
            is_granted: Cell::new(false),
            spin_began_ns: Cell::new(0),
            spin_until_ns: Cell::new(NEVER),
            spins: Cell::new(0),
            breaks: Cell::new(0),
            sleeps: Cell::new(0),
            ready_ns: Cell::new(0),
            queued_ns: Cell::new(0),
            lock_waits: Cell::default(),
            mutexes: RefCell::default(),
            operations: Cell::new(0),
            is_bound,
        });
    }

    /// Lets the current task run until it suspends itself; returns `true` if it ended.
    pub(crate) fn resume_current(&self) -> bool {
        let current = self.current.get();
        // Borrowed while it runs: tasks are added before the first runs, and removed after the last has.
        let has_ended = self.with_task(current, |task| {
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

    pub(crate) fn has_live_tasks(&self) -> bool {
        self.live.get() > 0
    }

    /// Ends the run. The first failure is the one reported.
    pub(crate) fn fail(&self, failure: Failure, payload: Option<Payload>) {
        self.failure.borrow_mut().get_or_insert((failure, payload));
    }

    /// Reason why the run ended, when the scenario that started it was given up as well.
    pub(crate) fn take_failure(&self) -> Failure {
        let failure = self.failure.borrow_mut().take();
        failure.expect("a run that is given up has failed").0
    }

    pub(crate) fn has_failed(&self) -> bool {
        self.failure.borrow().is_some()
    }

    /// Stops the current task for good, because the run has failed.
    pub(crate) fn give_up(&self) -> ! {
        loop {
            suspend();
        }
    }

    /// Runs the check after a step, outside of all tasks.
    pub(crate) fn run_check(&self) {
        let Some(mut check) = self.check.borrow_mut().take() else {
            return;
        };
        let current = self.current.replace(NOBODY);
        let result = catch_unwind(AssertUnwindSafe(&mut *check));
        self.current.set(current);
        *self.check.borrow_mut() = Some(check);
        if let Err(payload) = result {
            self.fail(Failure::Check(message_of(&*payload)), Some(payload));
        }
    }

    /// All tasks that wait, for a report.
    pub(crate) fn waiting(&self) -> VecDeque<TaskId> {
        let tasks = self.tasks.borrow();
        (0..)
            .zip(tasks.iter())
            .filter(|(_, task)| task.state.get() != State::Done)
            .map(|(number, _)| number)
            .collect()
    }
}

/// Work of a task. If the task is gone before it began, nothing of the work is dropped, as for a task that is given up.
struct Body<'a>(Option<Box<dyn FnOnce() + Send + 'a>>);

impl Body<'_> {
    fn run(mut self) {
        if let Some(body) = self.0.take() {
            body();
        }
    }
}

impl Drop for Body<'_> {
    fn drop(&mut self) {
        if with_engine(|engine| engine.forks.get() > 0) == Some(true) {
            std::mem::forget(self.0.take());
        }
    }
}

/// Values that a run borrows from its caller. Its drop gives up the tasks that have not ended.
struct Borrowed<'a>(&'a Engine);

impl Drop for Borrowed<'_> {
    fn drop(&mut self) {
        let Self(engine) = self;
        engine.current.set(NOBODY);
        engine.horizon_ns.set(0);
        engine.is_checked.set(false);
        // Taken out first, because a drop may use the machine: bodies that never began hold arbitrary values.
        drop(engine.tasks.take());
        drop(engine.check.take());
        engine.is_running.set(false);
    }
}
