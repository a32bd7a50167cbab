//! The experiments' side of the machine interface: tasks, timers, work queues and random numbers.
//!
//! [`bursar_machine::Machine`] is all that the library needs of a machine. Experiments and tests also start work and load
//! CPUs, so they ask for the traits of this crate. [`Host`] has them here, on real threads; `bursar-sim` has them on a
//! simulated machine.
//!
//! | subject | file |
//! |---|---|
//! | tasks, and checks between their steps | [`Tasks`], [`Watched`], [`Forks`]; on the host `tasks.rs` |
//! | ticks, timers, work that is bound to a CPU | [`timer`]; on the host `timers.rs` |
//! | page memory without bytes | [`frames`] |
//! | a place where a task sleeps until a waker wakes it | [`bed`] |
//! | numbers from a seed | [`random`] |
//! | events of `tracing`, with that feature | `told.rs` |
//!
//! [`Host`]: bursar_machine::Host

#![forbid(unsafe_code)]

pub mod bed;
pub mod frames;
pub mod random;
mod tasks;
pub mod timer;
mod timers;
#[cfg(feature = "tracing")]
pub mod told;

pub use tasks::PageMemory;
pub use timers::HostQueue;

use bursar_machine::Machine;

/// Machine that can start tasks and load its CPUs.
pub trait Tasks: Machine {
    /// Memory of one page of 4 KiB that is in use; dropping it frees the page.
    type PageMemory: Send;

    /// Runs all tasks at once, and returns when all have ended.
    fn run<'scope>(&self, tasks: Vec<Box<dyn FnOnce() + Send + 'scope>>);
    /// Takes a page and writes `mark` to each of its cache lines.
    fn touch_page(&self, mark: u64) -> Self::PageMemory;
    /// Takes some pages one after the other, with marks from `mark` on. A simulated machine does so in one step.
    fn touch_pages(&self, mark: u64, pages: u64) -> Vec<Self::PageMemory> {
        let marks = mark..mark + pages;
        marks.map(|mark| self.touch_page(mark)).collect()
    }
    /// Computes for `duration_ns` of the CPU's time, without touching memory that others use.
    fn compute(&self, duration_ns: u64);
}

/// Machine that runs one step of one task at a time, and can check the state in between.
pub trait Watched: Tasks {
    /// Runs tasks as [`Tasks::run`] does, and calls `check` after each step of any task. The reads of `check` cost
    /// nothing and let no other task run.
    fn run_watched<'scope>(
        &self,
        check: Box<dyn FnMut() + 'scope>,
        tasks: Vec<Box<dyn FnOnce() + Send + 'scope>>,
    );

    /// The step that has just ended, for a check.
    fn last_step(&self) -> Watch;

    /// Number of changes of words so far. A check of words alone can have no new result while this stays the same.
    fn changes(&self) -> u64;
}

/// Machine whose tasks can fork.
pub trait Forks: Watched {
    /// Waits until no other task is inside a [`Machine::operation`], and goes on as the child, alone. All other tasks
    /// of the run are gone, each wherever it is, and [`Machine::forks`] is one more.
    fn fork(&self);
}

/// Step of a task.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Watch {
    /// The task's [`Machine::task`].
    pub task: u64,
    /// Whether the task now waits for another: it sleeps, or has paused in a loop.
    pub waits: bool,
}
