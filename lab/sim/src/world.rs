//! State of a machine that any schedule works on: shared memory, tasks, clock, events, and the run that is under way.

use std::any::Any;
use std::cell::{Cell, RefCell};
use std::panic::{AssertUnwindSafe, catch_unwind};

use crate::failure::{Failure, message_of};
use crate::lines::{Access, LineId, Lines};
use crate::lock_table::LockTable;
use crate::settings::Settings;
use crate::task::{NOBODY, Step, Tasks};

/// Clock of the current task's CPU; outside of tasks, the machine's.
#[derive(Default)]
pub(crate) struct Clock {
    now_ns: Cell<u64>,
    /// Time up to which, exclusively, the current task may go on.
    pub(crate) horizon_ns: Cell<u64>,
}

impl Clock {
    #[inline]
    pub(crate) fn now_ns(&self) -> u64 {
        self.now_ns.get()
    }

    #[inline]
    pub(crate) fn set(&self, now_ns: u64) {
        self.now_ns.set(now_ns);
    }

    #[inline]
    pub(crate) fn advance(&self, duration_ns: u64) {
        self.now_ns.set(self.now_ns.get() + duration_ns);
    }

    /// Passes the time until `deadline_ns`, if it has not passed.
    pub(crate) fn advance_to(&self, deadline_ns: u64) {
        self.now_ns.set(self.now_ns.get().max(deadline_ns));
    }

    /// Returns whether the schedule must say that the current task goes on.
    #[inline]
    pub(crate) fn is_at_horizon(&self) -> bool {
        self.now_ns.get() >= self.horizon_ns.get()
    }
}

/// Counts of a simulated machine so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Counts {
    /// Visible operations.
    pub events: u64,
    /// Locks taken.
    pub acquisitions: u64,
    /// Cache lines that moved from one CPU to another.
    pub transfers: u64,
    /// Tasks that were put on a CPU after another.
    pub switches: u64,
    /// Tasks that lost their CPU though they could run.
    pub preemptions: u64,
    /// Tasks that were woken.
    pub wakes: u64,
    /// Tasks that moved to another CPU to run.
    pub migrations: u64,
    /// Fences asked for.
    pub fences: u64,
    /// Faults that struck.
    pub faults: u64,
    /// Steps of an exploration.
    pub steps: u64,
}

/// Value that a panic carries.
type Payload = Box<dyn Any + Send>;

/// Run that is under way: its check between two steps, and its failure.
#[derive(Default)]
pub(crate) struct Run {
    pub(crate) is_running: Cell<bool>,
    /// Set when a run has failed: locks may never be released.
    pub(crate) is_broken: Cell<bool>,
    /// Set when the thread already unwinds, or seems to from now on, because a task was given up while it did.
    pub(crate) is_tainted: bool,
    pub(crate) is_checked: Cell<bool>,
    pub(crate) check: RefCell<Option<Box<dyn FnMut()>>>,
    /// Reason why it ended early; the first is the one reported.
    pub(crate) failure: RefCell<Option<(Failure, Option<Payload>)>>,
}

impl Run {
    /// Returns whether the current task unwinds towards a failure.
    pub(crate) fn is_unwinding(&self) -> bool {
        std::thread::panicking() && !self.is_tainted
    }

    /// Ends the run.
    pub(crate) fn fail(&self, failure: Failure, payload: Option<Payload>) {
        self.failure.borrow_mut().get_or_insert((failure, payload));
    }

    pub(crate) fn has_failed(&self) -> bool {
        self.failure.borrow().is_some()
    }
}

/// State of a machine; see the module.
pub(crate) struct World {
    pub(crate) settings: Settings,
    pub(crate) lines: Lines,
    pub(crate) locks: LockTable,
    pub(crate) tasks: Tasks,
    pub(crate) clock: Clock,
    pub(crate) counts: Cell<Counts>,
    /// Number of changes of words so far.
    pub(crate) changes: Cell<u64>,
    /// Hash of all events so far and their order.
    pub(crate) hash: Cell<u64>,
    pub(crate) run: Run,
}

impl World {
    pub(crate) fn new(settings: Settings) -> Self {
        Self {
            lines: Lines::new(settings.topology.places(), &settings.costs),
            locks: LockTable::default(),
            tasks: Tasks {
                current: Cell::new(NOBODY),
                ..Tasks::default()
            },
            clock: Clock::default(),
            counts: Cell::default(),
            changes: Cell::default(),
            hash: Cell::new(settings.seed),
            run: Run {
                is_tainted: std::thread::panicking(),
                ..Run::default()
            },
            settings,
        }
    }

    pub(crate) fn cpus(&self) -> usize {
        self.settings.topology.cpus
    }

    #[inline]
    pub(crate) fn count(&self, change: impl FnOnce(&mut Counts)) {
        let mut counts = self.counts.get();
        change(&mut counts);
        self.counts.set(counts);
    }

    /// Accesses a line; the current task spends the time.
    #[inline]
    pub(crate) fn access(&self, line: LineId, access: Access, extra_ns: u64) {
        let (cpu, now_ns) = (self.tasks.cpu.get(), self.clock.now_ns());
        let served_ns = self.lines.access(line, cpu, access, now_ns);
        self.clock.set(served_ns + extra_ns);
    }

    /// Notes an event of the current task.
    #[inline]
    pub(crate) fn note(&self, step: Step, subject: u32) {
        if !self.tasks.is_scheduled() {
            return;
        }
        self.count(|counts| counts.events += 1);
        let what = self.clock.now_ns()
            ^ (u64::from(self.tasks.current.get()) << 40)
            ^ (u64::from(subject) << 20)
            ^ (step as u64) << 60;
        let mixed = (self.hash.get() ^ what).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        self.hash.set(mixed ^ mixed >> 29);
    }

    /// Returns whether the run goes on: tasks are left, and none has failed.
    pub(crate) fn goes_on(&self) -> bool {
        self.tasks.live.get() > 0 && !self.run.has_failed()
    }

    /// Runs the check after a step, outside of all tasks.
    pub(crate) fn run_check(&self) {
        let Some(mut check) = self.run.check.take() else {
            return;
        };
        let current = self.tasks.current.replace(NOBODY);
        let result = catch_unwind(AssertUnwindSafe(&mut *check));
        self.tasks.current.set(current);
        self.run.check.replace(Some(check));
        if let Err(payload) = result {
            let failure = Failure::Check(message_of(&*payload));
            self.run.fail(failure, Some(payload));
        }
    }
}
