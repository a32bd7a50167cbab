//! The parameters of the experiment.

use serde::Deserialize;

use crate::page_subject::{GIB_PAGES, MIB_PAGES};
use crate::settings::{ParameterError, check_ranges, range_error};

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

/// Contents of `[parameters]` in the experiment's file; units are in the names, meanings in the file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
#[allow(
    missing_docs,
    reason = "the experiment's file documents them for its users"
)]
pub struct Parameters {
    pub seed: u64,
    pub duration_ms: u64,
    pub warm_up_ms: u64,
    pub interval_ms: u64,
    pub work: Work,
    pub lock_hold_ns: u64,
    pub fold_ns: u64,
    pub tasks: Tasks,
    pub vm_mib: u64,
    pub bytes_are_shared: bool,
    pub scale: u64,
    pub memory_gib: u64,
    pub rewrites: u64,
    pub rewrite_page_ns: u64,
    pub swap_page_ns: u64,
    pub cold_page_ns: u64,
    pub stop_interval_us: u64,
    pub stop_us: u64,
    pub idle_entry_interval_ms: u64,
    pub idle_sleep_us: u64,
    pub idle_counters: u64,
    pub migrate_percent: u64,
    pub rounded_timers: u64,
    pub slack_us: u64,
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

    /// Returns the end of the tasks, from the start on.
    pub(super) fn end_ns(&self) -> u64 {
        (self.warm_up_ms + self.duration_ms) * 1_000_000
    }

    /// Returns the ranges of the parameters. Each entry is key, value, least, most.
    pub(super) fn ranges(&self) -> Vec<(&'static str, u64, u64, u64)> {
        vec![
            ("duration_ms", self.duration_ms, 10, 86_400_000),
            ("warm_up_ms", self.warm_up_ms, 0, 3_600_000),
            ("interval_ms", self.interval_ms, 1, 3_600_000),
            ("lock_hold_ns", self.lock_hold_ns, 0, 1_000_000_000),
            ("fold_ns", self.fold_ns, 0, 1_000_000_000),
            ("vm_mib", self.vm_mib, 0, 1 << 30),
            ("scale", self.scale, 1, 1 << 20),
            ("memory_gib", self.memory_gib, 1, 1 << 16),
            ("rewrites", self.rewrites, 1, 1_000_000),
            ("rewrite_page_ns", self.rewrite_page_ns, 1, 1_000_000_000),
            ("cold_page_ns", self.cold_page_ns, 0, 1_000_000),
            ("stop_interval_us", self.stop_interval_us, 0, 1_000_000_000),
            ("stop_us", self.stop_us, 0, 10_000_000),
            ("swap_page_ns", self.swap_page_ns, 1, 1_000_000_000),
            (
                "idle_entry_interval_ms",
                self.idle_entry_interval_ms,
                1,
                3_600_000,
            ),
            ("idle_sleep_us", self.idle_sleep_us, 1, 3_600_000_000),
            ("idle_counters", self.idle_counters, 1, 50),
            ("migrate_percent", self.migrate_percent, 0, 100),
            ("rounded_timers", self.rounded_timers, 0, 1),
            (
                "slack_us",
                self.slack_us,
                0,
                (self.interval_ms * 1_000).saturating_sub(1),
            ),
        ]
    }

    /// Refuses parameters that cannot be run or would measure nothing.
    ///
    /// # Errors
    /// The first parameter that is out of its range, and the range.
    pub fn check(&self) -> Result<(), ParameterError> {
        check_ranges(&self.ranges())?;
        if self.duration_ms < self.interval_ms {
            let problem = format!(
                "is {}, and must be at least `interval_ms`, {}: nothing would fire",
                self.duration_ms, self.interval_ms
            );
            return Err(range_error("duration_ms", problem));
        }
        if self.bytes_are_shared {
            self.check_pages(1)
        } else {
            Ok(())
        }
    }

    /// Refuses more pages than there is room for.
    ///
    /// # Errors
    /// If that many tasks have too many.
    pub(super) fn check_pages(&self, cpus: usize) -> Result<(), ParameterError> {
        let pages = self.pages_of_task(cpus) * cpus as u64;
        if pages <= PAGES_MAX {
            return Ok(());
        }
        let problem = format!(
            "is {} for {cpus} tasks, {pages} pages, and there is room for {PAGES_MAX}; a larger `scale` needs fewer",
            self.vm_mib
        );
        Err(range_error("vm_mib", problem))
    }
}
