//! Work of upkeep, and its settings.

use std::fmt;

use bursar_machine::Shard;

use super::firing::Firing;
use super::period::{Period, PeriodError};

/// Work of upkeep for a CPU. Its parts are called in the order `fold`, `pages`, by one task at a time for each CPU.
/// Only [`super::Housekeeping::quiet`] may fold at the same time.
pub trait Upkeep: Send + Sync {
    /// Returns whether a fold would change anything. Changes nothing, and does not look at page lists. Those are
    /// handled when there is other work, as in the kernel.
    #[doc(alias = "need_update")]
    fn needs(&self, shard: Shard) -> bool;

    /// Folds small counters; returns whether anything changed.
    fn fold(&self, shard: Shard) -> bool;

    /// Decays page lists and drains remote ones; returns whether there will be work the next time.
    fn pages(&self, shard: Shard) -> bool;
}

impl<U: Upkeep + ?Sized> Upkeep for Box<U> {
    fn needs(&self, shard: Shard) -> bool {
        (**self).needs(shard)
    }

    fn fold(&self, shard: Shard) -> bool {
        (**self).fold(shard)
    }

    fn pages(&self, shard: Shard) -> bool {
        (**self).pages(shard)
    }
}

/// Settings of upkeep.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Options {
    /// Policy for the times at which each CPU's upkeep fires.
    pub firing: Firing,
    /// Clock of upkeep.
    pub period: Period,
    /// CPUs that are left alone.
    pub isolated: Vec<u32>,
    /// Maximum nanoseconds by which upkeep may come early when its CPU is awake anyway; 0: never early.
    pub slack_ns: u64,
}

impl Options {
    /// Makes upkeep on the default grid, on all CPUs, never ahead of its time.
    pub fn new(period: Period) -> Self {
        Self {
            firing: Firing::default(),
            period,
            isolated: Vec::new(),
            slack_ns: 0,
        }
    }
}

/// Reason why there is no housekeeping.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum HousekeepingError {
    /// The period is invalid.
    BadPeriod(PeriodError),
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
            Self::BadPeriod(error) => error.fmt(f),
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

impl std::error::Error for HousekeepingError {}

impl From<PeriodError> for HousekeepingError {
    fn from(error: PeriodError) -> Self {
        Self::BadPeriod(error)
    }
}
