//! Work of upkeep, and its settings.

use std::fmt;
use std::time::Duration;

use bursar_machine::Shard;

use super::grid::Grid;

/// Work of upkeep for a CPU. One task at a time runs it for each CPU.
pub trait Upkeep: Send + Sync {
    /// Returns whether there is work. Changes nothing.
    #[doc(alias = "need_update")]
    fn needs(&self, shard: Shard) -> bool;

    /// Does the work; returns whether there will be more the next time.
    fn run(&self, shard: Shard) -> bool;
}

impl<U: Upkeep + ?Sized> Upkeep for Box<U> {
    fn needs(&self, shard: Shard) -> bool {
        (**self).needs(shard)
    }

    fn run(&self, shard: Shard) -> bool {
        (**self).run(shard)
    }
}

/// Settings of upkeep.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Options<T = Grid> {
    /// Times at which each CPU's upkeep fires.
    pub timetable: T,
    /// CPUs that are left alone.
    pub isolated: Vec<u32>,
    /// Maximum nanoseconds by which upkeep may come early when its CPU is awake anyway; 0: never early.
    pub slack_ns: u64,
}

impl Options {
    /// Makes upkeep on the grid of an interval, on all CPUs, never ahead of its time.
    pub fn every(interval: Duration) -> Self {
        Self::new(Grid::every(interval))
    }
}

impl<T> Options<T> {
    /// Makes upkeep at the times of `timetable`, on all CPUs, never ahead of its time.
    pub fn new(timetable: T) -> Self {
        Self {
            timetable,
            isolated: Vec::new(),
            slack_ns: 0,
        }
    }
}

/// Reason why there is no housekeeping.
#[derive(Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum HousekeepingError {
    /// The interval is 0.
    NoInterval,
    /// An isolated CPU does not exist.
    NoSuchCpu {
        /// The CPU.
        cpu: u32,
        /// Number of CPUs.
        cpus: usize,
    },
    /// The slack is so long that upkeep could come before the previous one.
    SlackTooLong {
        /// The slack asked for.
        slack_ns: u64,
        /// The interval, which must be longer.
        interval_ns: u64,
    },
}

impl fmt::Display for HousekeepingError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoInterval => f.write_str("an interval of 0"),
            Self::NoSuchCpu { cpu, cpus } => {
                write!(f, "CPU {cpu} cannot be isolated: there are {cpus} CPUs")
            }
            Self::SlackTooLong {
                slack_ns,
                interval_ns,
            } => write!(
                f,
                "a slack of {slack_ns} ns is not below the interval of {interval_ns} ns"
            ),
        }
    }
}

bursar_machine::debug_as_message!(
    enum HousekeepingError {
        NoInterval,
        NoSuchCpu { cpu, cpus },
        SlackTooLong { slack_ns, interval_ns },
    }
);

impl std::error::Error for HousekeepingError {}
