//! Levels of pressure that follow from usage and stalls, as pure functions of plain values.

use std::fmt;

use super::stall::Stall;
use crate::limit::{Limit, Limits};

/// Level of a group's pressure.
#[doc(alias = "vmpressure_levels")]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Level {
    /// There is room.
    #[default]
    None,
    /// Caches should not grow.
    Low,
    /// Memory that is cheap to free should be freed.
    High,
    /// Charges are about to be refused, or work hardly makes progress.
    Critical,
}

impl fmt::Display for Level {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::None => "none",
            Self::Low => "low",
            Self::High => "high",
            Self::Critical => "critical",
        })
    }
}

/// Thresholds that map usage and stalls to a level of pressure.
///
/// [`crate::Builder::build`] refuses a policy that makes no sense. The percentages and the ratios must not descend. The
/// percentages must be at most 100, and the ratios from 0 to 1. The release must be below the first percentage.
///
/// ```
/// use bursar::{Memory, PressurePolicy};
///
/// let early = PressurePolicy::default().usage_percent([50, 75, 90]).release_percent(10);
/// let memory = Memory::builder().pressure_policy(early).build()?;
/// # Ok::<(), bursar::MemoryError>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq)]
#[non_exhaustive]
pub struct PressurePolicy {
    /// Usage in per cent of `max` from which on the level is low, high, critical. Above `high` the level is at least high, and
    /// from the first of these percentages of `high` on it is at least low.
    pub usage_percent: [u8; 3],
    /// Percentage points of the limit by which the usage must fall below a threshold before the level goes down.
    pub release_percent: u8,
    /// Share of the last ten seconds in which a task stalled, from which on the level is low, high, critical.
    pub stall_ratio: [f64; 3],
}

impl Default for PressurePolicy {
    /// 70, 85 and 95 per cent of `max`, released 5 lower; 5, 20 and 60 per cent of stall. These numbers are Bursar's own: the
    /// kernel has no levels for usage, and leaves thresholds of stall to its users.
    fn default() -> Self {
        Self {
            usage_percent: [70, 85, 95],
            release_percent: 5,
            stall_ratio: [0.05, 0.2, 0.6],
        }
    }
}

impl PressurePolicy {
    /// Sets the percentages of usage.
    #[must_use]
    pub fn usage_percent(self, usage_percent: [u8; 3]) -> Self {
        Self {
            usage_percent,
            ..self
        }
    }

    /// Sets the release.
    #[must_use]
    pub fn release_percent(self, release_percent: u8) -> Self {
        Self {
            release_percent,
            ..self
        }
    }

    /// Sets the shares of stall.
    #[must_use]
    pub fn stall_ratio(self, stall_ratio: [f64; 3]) -> Self {
        Self {
            stall_ratio,
            ..self
        }
    }

    /// Checks the policy. The error is the rule that it breaks.
    pub(crate) fn check(&self) -> Result<(), &'static str> {
        if !self.usage_percent.is_sorted() {
            return Err("usage_percent descends");
        }
        if self.usage_percent[2] > 100 {
            return Err("usage_percent is above 100");
        }
        if self.release_percent >= self.usage_percent[0] {
            return Err("release_percent is not below the first usage_percent");
        }
        // A NaN is in no range.
        if !self.stall_ratio.iter().all(|r| (0.0..=1.0).contains(r)) {
            return Err("stall_ratio is not from 0 to 1");
        }
        if !self.stall_ratio.is_sorted() {
            return Err("stall_ratio descends");
        }
        Ok(())
    }
}

const LEVELS: [Level; 3] = [Level::Low, Level::High, Level::Critical];

impl PressurePolicy {
    /// The level that follows from a usage, if the level was `before`.
    pub(crate) fn of_usage(&self, usage: u64, limits: &Limits, before: Level) -> Level {
        let now = self.of_usage_released(usage, limits, 0);
        if now >= before {
            return now;
        }
        // Goes down only as far as it also would with a slightly higher usage.
        now.max(before.min(self.of_usage_released(usage, limits, self.release_percent)))
    }

    fn of_usage_released(&self, usage: u64, limits: &Limits, release_percent: u8) -> Level {
        let reaches = |percent: u8, limit: Limit| {
            let percent = percent.saturating_sub(release_percent);
            limit != Limit::MAX
                && u128::from(usage) * 100 >= u128::from(limit) * u128::from(percent)
        };
        let by_max = LEVELS.into_iter().zip(self.usage_percent);
        let by_max = by_max.filter(|&(_, percent)| reaches(percent, limits.max));
        let by_high = match limits.high {
            high if reaches(100, high) && (usage > high || release_percent > 0) => Level::High,
            high if reaches(self.usage_percent[0], high) => Level::Low,
            _ => Level::None,
        };
        by_max.map(|(level, _)| level).fold(by_high, Level::max)
    }

    pub(crate) fn of_stall(&self, stall: &Stall) -> Level {
        let reached = LEVELS.into_iter().zip(self.stall_ratio);
        reached
            .filter(|&(_, ratio)| stall.some.avg10 >= ratio)
            .map(|(level, _)| level)
            .fold(Level::None, Level::max)
    }
}

/// A group's pressure and its causes; see [`crate::Group::pressure`].
#[derive(Clone, Copy, Debug, PartialEq)]
#[non_exhaustive]
pub struct Pressure {
    /// The higher of the two below.
    pub level: Level,
    /// The level by the usage against the group's own `high` and `max`.
    pub by_usage: Level,
    /// The level by stalls.
    pub by_stall: Level,
    /// Time that tasks of the group and below stalled in reclaim and throttling.
    pub stall: Stall,
}

#[cfg(test)]
mod tests {
    use super::*;

    const POLICY: PressurePolicy = PressurePolicy {
        usage_percent: [70, 85, 95],
        release_percent: 5,
        stall_ratio: [0.05, 0.2, 0.6],
    };

    #[test]
    fn levels_of_usage() {
        let max = Limits::max(1000);
        let both = Limits::max(1000).high(500);
        let cases = [
            (0, max, Level::None, Level::None),
            (699, max, Level::None, Level::None),
            (700, max, Level::None, Level::Low),
            (850, max, Level::None, Level::High),
            (949, max, Level::Low, Level::High),
            (950, max, Level::None, Level::Critical),
            (2000, max, Level::None, Level::Critical),
            // Down only 5 per cent lower.
            (949, max, Level::Critical, Level::Critical),
            (899, max, Level::Critical, Level::High),
            (799, max, Level::Critical, Level::Low),
            (660, max, Level::High, Level::Low),
            (649, max, Level::Critical, Level::None),
            // `high`: above it high, near it low.
            (349, both, Level::None, Level::None),
            (350, both, Level::None, Level::Low),
            (500, both, Level::None, Level::Low),
            (501, both, Level::None, Level::High),
            (480, both, Level::High, Level::High),
            (470, both, Level::High, Level::Low),
            (u64::MAX, Limits::none(), Level::Critical, Level::None),
            // No room at all.
            (0, Limits::max(0), Level::None, Level::Critical),
        ];
        for (usage, limits, before, expected) in cases {
            let level = POLICY.of_usage(usage, &limits, before);
            assert_eq!(level, expected, "{usage} of {limits:?} after {before:?}");
        }
    }

    #[test]
    fn levels_of_stall() {
        for (ratio, expected) in [
            (0.0, Level::None),
            (0.05, Level::Low),
            (0.3, Level::High),
            (1.0, Level::Critical),
        ] {
            let mut stall = Stall::default();
            stall.some.avg10 = ratio;
            assert_eq!(POLICY.of_stall(&stall), expected, "{ratio}");
        }
    }
}
