//! The parameters of the experiment.

use serde::Deserialize;

use super::zones::lower_pages;
use crate::page_allocators::{GIB_PAGES, MIB_PAGES};
use crate::workload::{Misfit, Sizing, parameters};

/// Kind of upkeep.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Work {
    /// The work of `vmstat`: folding small counters, decaying page lists.
    Vmstat,
    /// One short hold of a lock that all CPUs share.
    Lock,
}

/// Kind of tasks that keep the CPUs busy.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Tasks {
    /// Map, fault, rewrite and unmap, and hardly ever sleep.
    Busy,
    /// Sleep, and wake up now and then to change a few counters.
    Idle,
}

/// Treatment of upkeep that runs when the shepherd comes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Shepherd {
    /// Queues it once more, as before the repair of 9 April 2026.
    BeforeRepair,
    /// Leaves it alone.
    Repaired,
}

/// Delay with which the shepherd queues upkeep.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ShepherdDelay {
    /// The delay of the variant.
    OfVariant,
    /// None, with every variant.
    Zero,
    /// That of `spread`, with every variant.
    Spread,
}

parameters! {
    it;
    duration_ms: u64 [10 to 86_400_000];
    warm_up_ms: u64 [0 to 3_600_000];
    interval_ms: u64 [1 to 3_600_000];
    work: Work;
    lock_hold_ns: u64 [0 to 1_000_000_000];
    fold_ns: u64 [0 to 1_000_000_000];
    tasks: Tasks;
    vm_mib: u64 [0 to 1 << 30];
    bytes_are_shared: bool;
    scale: u64 [1 to 1 << 20];
    memory_gib: u64 [1 to 1 << 16];
    rewrites: u64 [1 to 1_000_000];
    rewrite_page_ns: u64 [1 to 1_000_000_000];
    preempt_us: u64 [1 to 1_000];
    swap_page_ns: u64 [1 to 1_000_000_000];
    zone_page_ns: u64 [0 to 1_000_000];
    huge_percent: u64 [0 to 100];
    tick_ns: u64 [0 to 1_000_000];
    idle_entry_interval_ms: u64 [1 to 3_600_000];
    idle_sleep_us: u64 [1 to 3_600_000_000];
    idle_counters: u64 [1 to 50];
    migrate_percent: u64 [0 to 100];
    rounded_timers: u64 [0 to 1];
    slack_us: u64 [0 to (it.interval_ms * 1_000).saturating_sub(1)];
    shepherd: Shepherd;
    shepherd_delay: ShepherdDelay;
    isolated_cpus: u64 [0 to 4_095];
}

/// Greatest number of pages of all tasks together: each is a token of eight bytes, and its zone keeps a little more for
/// it.
const PAGES_MAX: u64 = 1 << 25;

/// Number of pages that stand for those of a task that has none and only computes.
const NO_PAGES: u64 = 512;

impl Parameters {
    /// Returns the pages that the task of each CPU maps.
    pub(super) fn pages_of_task(&self, cpus: usize) -> u64 {
        let share = match self.bytes_are_shared {
            true => cpus as u64,
            false => 1,
        };
        self.vm_mib * MIB_PAGES / share.max(1) / self.scale
    }

    /// Returns the pages that a task rewrites in one pass: a task without pages computes for as long as this takes.
    pub(super) fn pages_of_pass(&self, cpus: usize) -> u64 {
        self.pages_of_task(cpus).max(NO_PAGES)
    }

    /// Returns the pages of the machine's memory, before it is scaled down.
    pub(super) fn memory_pages(&self) -> u64 {
        self.memory_gib * GIB_PAGES
    }

    /// Returns the pages of `Normal`, before it is scaled down.
    pub(super) fn normal_pages(&self) -> u64 {
        let memory = self.memory_pages();
        memory.saturating_sub(lower_pages(1)).max(memory / 4)
    }

    /// Returns the end of the tasks, from the start on.
    pub(super) fn end_ns(&self) -> u64 {
        (self.warm_up_ms + self.duration_ms) * 1_000_000
    }

    /// Returns the defect of more pages than there is room for.
    pub(super) fn too_many_pages(&self, cpus: usize) -> Misfit {
        let pages = self.pages_of_task(cpus) * cpus as u64;
        let problem = format!(
            "is {} for {cpus} tasks, {pages} pages, and there is room for {PAGES_MAX}; a larger `scale` needs fewer",
            self.vm_mib
        );
        (pages > PAGES_MAX, "vm_mib", problem)
    }
}

impl Sizing for Parameters {
    fn misfits(&self) -> Vec<Misfit> {
        let Self {
            duration_ms,
            interval_ms,
            ..
        } = *self;
        let problem = format!(
            "is {duration_ms}, and must be at least `interval_ms`, {interval_ms}: nothing would fire"
        );
        let (is_large, key, too_large) = self.too_many_pages(1);
        vec![
            (duration_ms < interval_ms, "duration_ms", problem),
            (self.bytes_are_shared && is_large, key, too_large),
        ]
    }

    fn run_ms(&self) -> u64 {
        self.warm_up_ms + self.duration_ms
    }

    fn simulated_seconds(&self, cpus: usize) -> f64 {
        /// Time to simulate a page that is faulted in and unmapped: measured on one core of a server.
        const PAGE_SECONDS: f64 = 500e-9;
        /// Time to simulate one CPU for a second without pages.
        const CPU_SECONDS: f64 = 5e-3;
        /// Time of a task for a page besides rewriting it, seconds of the machine's time.
        const PAGE_OVERHEAD_SECONDS: f64 = 1.5e-6;
        let duration = self.end_ns() as f64 / 1e9;
        let idle = cpus as f64 * duration * CPU_SECONDS;
        if self.tasks == Tasks::Idle || self.pages_of_task(cpus) == 0 {
            return idle;
        }
        let rewriting = self.rewrites as f64 * self.rewrite_page_ns as f64 / 1e9;
        let pages = cpus as f64 * duration / (rewriting + PAGE_OVERHEAD_SECONDS);
        idle + pages * PAGE_SECONDS
    }
}
