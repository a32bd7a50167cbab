//! Clock of upkeep, as a plain value.

use std::fmt;

use bursar_rig::timer::{Jiffies, tick_ns};

/// Maximum number of ticks a second.
const HZ_MAX: u32 = 10_000;

/// Clock of upkeep.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Period {
    /// Interval of upkeep, nanoseconds. (The kernel's `vm.stat_interval`: 1 s.)
    #[doc(alias = "sysctl_stat_interval")]
    pub interval_ns: u64,
    /// Ticks a second.
    pub hz: u32,
}

/// Reason why a period is invalid.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum PeriodError {
    /// The interval is 0.
    NoInterval,
    /// The interval is less than a tick.
    ShorterThanTick {
        /// The interval, nanoseconds.
        interval_ns: u64,
        /// A tick, nanoseconds.
        tick_ns: u64,
    },
    /// The ticks a second are not 1 to 10,000.
    BadHz {
        /// Ticks a second.
        hz: u32,
    },
}

impl fmt::Display for PeriodError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoInterval => f.write_str("an interval of 0"),
            Self::ShorterThanTick {
                interval_ns,
                tick_ns,
            } => write!(
                f,
                "an interval of {interval_ns} ns, which is less than a tick of {tick_ns} ns"
            ),
            Self::BadHz { hz } => write!(f, "{hz} ticks a second: 1 to {HZ_MAX} make sense"),
        }
    }
}

impl std::error::Error for PeriodError {}

impl Period {
    /// Makes a period of `interval_ns`, on a machine with `hz` ticks a second.
    ///
    /// # Errors
    /// [`PeriodError`] says which value is invalid.
    pub fn new(interval_ns: u64, hz: u32) -> Result<Self, PeriodError> {
        let period = Self { interval_ns, hz };
        period.check()?;
        Ok(period)
    }

    fn check(self) -> Result<(), PeriodError> {
        let Self { interval_ns, hz } = self;
        if !(1..=HZ_MAX).contains(&hz) {
            return Err(PeriodError::BadHz { hz });
        }
        if interval_ns == 0 {
            return Err(PeriodError::NoInterval);
        }
        let tick_ns = tick_ns(hz);
        if interval_ns < tick_ns {
            return Err(PeriodError::ShorterThanTick {
                interval_ns,
                tick_ns,
            });
        }
        Ok(())
    }

    /// Length of a tick, nanoseconds.
    pub fn tick_ns(self) -> u64 {
        tick_ns(self.hz)
    }

    /// Interval in whole ticks.
    pub fn interval_ticks(self) -> Jiffies {
        self.interval_ns / self.tick_ns()
    }

    /// Tick that contains `now_ns`.
    pub fn jiffies(self, now_ns: u64) -> Jiffies {
        now_ns / self.tick_ns()
    }

    /// Start of a tick, nanoseconds.
    pub(super) fn at(self, jiffies: Jiffies) -> u64 {
        jiffies.saturating_mul(self.tick_ns())
    }

    pub(super) fn round_up_to_tick(self, at_ns: u64) -> u64 {
        self.at(at_ns.div_ceil(self.tick_ns()))
    }
}

/// Counts of instants and CPUs, where there are more CPUs than instants.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sharing {
    /// Number of instants in an interval.
    pub instants: u64,
    /// Minimum number of CPUs on the fullest instant; reached if they are shared evenly.
    pub cpus: u64,
}

impl Sharing {
    pub(super) fn of(cpus: u64, instants: u64) -> Option<Self> {
        let sharing = Self {
            instants,
            cpus: cpus.div_ceil(instants.max(1)),
        };
        (cpus > instants).then_some(sharing)
    }
}

impl fmt::Display for Sharing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { instants, cpus } = self;
        write!(
            f,
            "at least {cpus} CPUs share an instant: there are {instants}"
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn periods_that_make_no_sense_are_refused() {
        let second_ns = 1_000_000_000;
        for hz in [1, 100, 250, 300, 1_000, 1_024, 10_000] {
            assert!(Period::new(second_ns, hz).is_ok(), "{hz}");
        }
        for hz in [0, 10_001, u32::MAX] {
            assert_eq!(
                Period::new(second_ns, hz),
                Err(PeriodError::BadHz { hz }),
                "{hz}"
            );
        }
        assert_eq!(Period::new(0, 250), Err(PeriodError::NoInterval));
        let short = Period::new(3_999_999, 250).expect_err("less than a tick");
        let text = "an interval of 3999999 ns, which is less than a tick of 4000000 ns";
        assert_eq!(short.to_string(), text);
        assert!(Period::new(4_000_000, 250).is_ok());
    }

    #[test]
    fn sharing_is_stated_when_there_are_more_cpus_than_instants() {
        assert_eq!(Sharing::of(15, 15), None);
        let sharing = Sharing::of(72, 15).expect("more CPUs");
        assert_eq!((sharing.instants, sharing.cpus), (15, 5));
        let text = "at least 5 CPUs share an instant: there are 15";
        assert_eq!(sharing.to_string(), text);
    }
}
