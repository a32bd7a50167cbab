//! Engine of the machine: its runs, and the schedule that chooses between two visible operations.
//!
//! A task runs until just before an operation that another could see: an access to a shared word, a lock and its release,
//! a completion, each wake-up, a section, sleep. There the schedule decides which task goes on. In *virtual time* that is the earliest: each CPU has
//! a clock, operations cost time, and a seeded permutation that changes with time breaks ties. In an *exploration*
//! there is no time, and a strategy chooses.
//!
//! A schedule knows the [`World`] that it works on, and not the engine.
//!
//! Run-ahead: a task whose CPU is the earliest anyway goes on without leaving its stack. The order of events is the
//! same.

use std::cell::{Cell, RefCell};
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::ptr;
use std::sync::atomic::{AtomicU32, Ordering};

use bursar_rig::timer::BoundTask;

use crate::coroutine::{self, Routine, give_up};
use crate::cost::CostModel;
use crate::explored::{Explored, Point};
use crate::failure::{Failure, message_of};
use crate::fault::Killed;
use crate::lines::{Access, LineId};
use crate::settings::{Mode, Settings};
use crate::task::{NOBODY, Step, Task, TaskId};
use crate::timed::{Room, Timed};
use crate::tournament::NEVER;
use crate::world::World;

thread_local! {
    /// Simulator of this thread.
    pub(crate) static ENGINE: Cell<*const Engine> = const { Cell::new(ptr::null()) };
}

/// Calls `work` with this thread's simulator; `None` if there is none.
#[inline]
pub(crate) fn with_engine<R>(work: impl FnOnce(&Engine) -> R) -> Option<R> {
    coroutine::with_installed(&ENGINE, work)
}

/// Choice of the task that goes on.
#[expect(clippy::large_enum_variant, reason = "a simulator has one")]
pub(crate) enum Schedule {
    Timed(Timed),
    Explored(Explored),
}

/// Engine of one simulator; see the module.
pub(crate) struct Engine {
    /// Number that no other engine of the process has. Lines and locks are given back to their own engine.
    pub(crate) number: u32,
    /// Number of blocks of the largest order that reservations have.
    pub(crate) reserved_spans: Cell<u32>,
    pub(crate) schedule: Schedule,
    pub(crate) world: World,
}

impl Engine {
    pub(crate) fn new(settings: Settings) -> Box<Self> {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        if let Err(error) = settings.topology.check() {
            panic!("no such machine: {error}");
        }
        Box::new(Self {
            // Relaxed: the number only has to be different each time.
            number: NUMBER.fetch_add(1, Ordering::Relaxed),
            reserved_spans: Cell::new(0),
            schedule: match &settings.mode {
                Mode::Timed => Schedule::Timed(Timed::new(&settings)),
                Mode::Explored(strategy) => {
                    Schedule::Explored(Explored::new(strategy.clone(), settings.seed))
                }
            },
            world: World::new(settings),
        })
    }

    /// Schedule in virtual time, unless the machine explores.
    #[inline]
    pub(crate) fn timed(&self) -> Option<&Timed> {
        match &self.schedule {
            Schedule::Timed(timed) => Some(timed),
            Schedule::Explored(_) => None,
        }
    }

    /// Schedule of an exploration, if the machine explores.
    #[inline]
    pub(crate) fn explored(&self) -> Option<&Explored> {
        match &self.schedule {
            Schedule::Timed(_) => None,
            Schedule::Explored(explored) => Some(explored),
        }
    }

    #[inline]
    pub(crate) fn costs(&self) -> &CostModel {
        &self.world.settings.costs
    }

    #[inline]
    pub(crate) fn now_ns(&self) -> u64 {
        self.world.clock.now_ns()
    }

    /// Returns whether a task is running.
    #[inline]
    pub(crate) fn is_scheduled(&self) -> bool {
        self.world.tasks.is_scheduled()
    }

    /// Returns whether a task is running, and spends time.
    #[inline]
    fn has_clock(&self) -> bool {
        self.is_scheduled() && self.timed().is_some()
    }

    /// Number of forks so far.
    pub(crate) fn forks(&self) -> u64 {
        self.explored().map_or(0, |explored| explored.forks.get())
    }

    /// Prepares a visible operation: lets the tasks go first whose turn it is.
    #[inline]
    pub(crate) fn visible(&self, step: Step, subject: u32) {
        self.sync();
        self.world.note(step, subject);
    }

    /// Lets the tasks go first whose turn it is.
    #[inline]
    pub(crate) fn sync(&self) {
        if self.world.clock.is_at_horizon() {
            self.sync_slowly();
        }
    }

    #[cold]
    fn sync_slowly(&self) {
        if !self.is_scheduled() {
            return;
        }
        match &self.schedule {
            Schedule::Timed(timed) => timed.sync_slowly(&self.world, Room::Made),
            Schedule::Explored(explored) => explored.point(&self.world, Point::Step),
        }
    }

    /// Ends a step that may have let other tasks go on. In virtual time they go on when it is their turn.
    pub(crate) fn end_step(&self) {
        if let Some(explored) = self.explored() {
            explored.point(&self.world, Point::Step);
        }
    }

    /// Blocks the current task until [`Engine::wake`].
    pub(crate) fn block(&self) {
        match &self.schedule {
            Schedule::Timed(timed) => timed.block(&self.world),
            Schedule::Explored(explored) => explored.block(&self.world),
        }
    }

    /// Wakes a blocked task now.
    pub(crate) fn wake(&self, task: TaskId) {
        match &self.schedule {
            Schedule::Timed(timed) => timed.wake(&self.world, task, self.now_ns()),
            Schedule::Explored(explored) => explored.wake(&self.world, task),
        }
    }

    /// Accesses a line; the current task spends the time.
    #[inline]
    pub(crate) fn access(&self, line: LineId, access: Access, extra_ns: u64) {
        if self.has_clock() {
            self.world.access(line, access, extra_ns);
        }
    }

    /// Begins to fetch a line; the current task goes on.
    pub(crate) fn prefetch(&self, line: LineId, access: Access) {
        if self.has_clock() {
            // The line changes hands now, so in the order of events.
            self.visible(Step::Load, line);
            let (cpu, now_ns) = (self.world.tasks.cpu.get(), self.now_ns());
            let sent_ns = self.world.lines.prefetch(line, cpu, access, now_ns);
            self.world.clock.set(sent_ns);
        }
    }

    /// Spends time of the current task. An exploration has no time.
    #[inline]
    pub(crate) fn spend(&self, duration_ns: u64) {
        if self.has_clock() {
            self.world.clock.advance(duration_ns);
        }
    }

    /// Spends time of the current task, and returns when its turn comes again. No step of an exploration.
    #[inline]
    pub(crate) fn pass(&self, duration_ns: u64) {
        if self.has_clock() {
            self.world.clock.advance(duration_ns);
            self.sync();
        }
    }

    /// Spends time in the midst of something that the task does not leave: others go first that are earlier, and it keeps its CPU.
    pub(crate) fn pass_undisturbed(&self, duration_ns: u64) {
        if let Some(timed) = self.timed()
            && self.is_scheduled()
        {
            self.world.clock.advance(duration_ns);
            timed.sync_undisturbed(&self.world);
        }
    }

    /// Runs all bodies to their end. `check` is called after each step.
    pub(crate) fn run<'scope>(
        &self,
        bodies: Vec<BoundTask<'scope>>,
        check: Option<Box<dyn FnMut() + 'scope>>,
    ) {
        let World { tasks, run, .. } = &self.world;
        assert!(!run.is_running.get(), "a run does not start another");
        assert!(!run.is_broken.get(), "a run of this machine has failed");
        run.is_running.set(true);
        let outside_cpu = tasks.cpu.get();
        let borrowed = Borrowed(&self.world);
        run.is_checked.set(check.is_some());
        // SAFETY: `borrowed` takes it away again before this returns or unwinds.
        run.check
            .replace(check.map(|check| unsafe { coroutine::forget_scope(check) }));
        tasks.live.set(bodies.len());
        let cpus = self.world.cpus();
        for (number, (bound, body)) in (0..).zip(bodies) {
            let cpu = bound.unwrap_or((number as usize % cpus) as u32);
            self.add_task(number, cpu, bound.is_some(), body);
        }
        match &self.schedule {
            Schedule::Timed(timed) => timed.run(&self.world),
            Schedule::Explored(explored) => explored.run(&self.world),
        }
        drop(borrowed);
        tasks.cpu.set(outside_cpu);
        run.is_broken.set(run.has_failed());
        if run.has_failed() && coroutine::is_inside() {
            // The scenario is given up where it stopped: locks may never be released, and the scenario must not run
            // into them.
            give_up();
        }
        let failure = run.failure.take();
        if let Some((failure, payload)) = failure {
            match payload {
                Some(payload) if self.timed().is_some() => resume_unwind(payload),
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
            let result = catch_unwind(AssertUnwindSafe(|| {
                body.run();
                // Its CPU is free when its time has come, not before.
                with_engine(|engine| engine.pass(0));
            }));
            if let Err(payload) = result
                && !payload.is::<Killed>()
            {
                with_engine(|engine| {
                    let failure = Failure::Panic(message_of(&*payload));
                    engine.world.run.fail(failure, Some(payload));
                });
            }
        };
        // SAFETY: `run` drops all routines before it returns or unwinds.
        let routine = unsafe { Routine::new(Box::new(guarded)) };
        let routine = routine.unwrap_or_else(|error| {
            panic!("no stack for simulated task {number}: {error}");
        });
        self.world.tasks.list.borrow_mut().push(Task {
            routine: RefCell::new(Some(routine)),
            cpu: Cell::new(cpu),
            spin_until_ns: Cell::new(NEVER),
            is_bound,
            ..Task::default()
        });
    }
}

/// Work of a task. If the task is gone before it began, because of a fork or a failure, nothing of the work is dropped, as for a task
/// that is given up: a drop may wait for a lock that nobody will give back.
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
        let is_given_up = with_engine(|engine| engine.forks() > 0 || engine.world.run.has_failed());
        if is_given_up == Some(true) {
            std::mem::forget(self.0.take());
        }
    }
}

/// Values that a run borrows from its caller. Its drop gives up the tasks that have not ended.
struct Borrowed<'a>(&'a World);

impl Drop for Borrowed<'_> {
    fn drop(&mut self) {
        let World {
            tasks, clock, run, ..
        } = self.0;
        tasks.current.set(NOBODY);
        clock.horizon_ns.set(0);
        run.is_checked.set(false);
        // Taken out first, because a drop may use the machine: bodies that never began hold arbitrary values.
        drop(tasks.list.take());
        drop(run.check.take());
        run.is_running.set(false);
    }
}
