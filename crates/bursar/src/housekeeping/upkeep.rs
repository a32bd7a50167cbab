//! What upkeep does, and its settings.

use std::fmt;

use bursar_machine::Shard;

use super::firing::Firing;
use super::period::{Period, PeriodError};

/// What upkeep does for a CPU; the parts are called in the order `fold`, `pages`, by one task at a time for each CPU. Only
/// [`super::Housekeeping::quiet`] may fold beside.
pub trait Upkeep: Send + Sync {
    /// Whether folding would change anything. Looks only, and not at page lists: those are looked after when there is
    /// something else to do, as in the kernel.
    #[doc(alias = "need_update")]
    fn needs(&self, shard: Shard) -> bool;

    /// Folds small counters; whether anything changed.
    fn fold(&self, shard: Shard) -> bool;

    /// Decays page lists and drains remote ones; whether there will be work the next time.
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

/// How upkeep is to be done.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Options {
    /// When each CPU's upkeep fires.
    pub firing: Firing,
    /// The clock that it follows.
    pub period: Period,
    /// CPUs that are left alone.
    pub isolated: Vec<u32>,
    /// How far ahead of its time upkeep may be done when its CPU is awake anyway, nanoseconds; 0: never.
    pub slack_ns: u64,
}

impl Options {
    /// On the default grid, on all CPUs, never ahead of its time.
    pub fn new(period: Period) -> Self {
        Self {
            firing: Firing::default(),
            period,
            isolated: Vec::new(),
            slack_ns: 0,
        }
    }
}

/// Why there is no housekeeping.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum HousekeepingError {
    /// The period makes no sense.
    BadPeriod(PeriodError),
    /// A CPU is to be left alone that the machine does not have.
    NoSuchCpu {
        /// The CPU.
        cpu: u32,
        /// How many there are.
        cpus: usize,
    },
    /// Upkeep may be done so far ahead of its time that it would come before the last.
    SlackTooLong {
        /// As asked for.
        slack_ns: u64,
        /// The interval, which it must be below.
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
