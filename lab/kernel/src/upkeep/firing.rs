//! Times at which a CPU's upkeep fires: policies as values, and pure functions of them.
//!
//! | policy | first | then | separation of CPUs |
//! |---|---|---|---|
//! | `RoundJiffies` | at once | a whole second, less `skew` ticks for each CPU number | by the skew |
//! | `Stretched` | at once | after an interval that grows with the rank | by intervals that differ |
//! | `Spread` | after a part of the interval that grows with the rank | after the interval | until lateness has mixed them |
//! | `PhaseGrid` | at the next point of the CPU's grid | likewise | permanent |
//!
//! The first three count from the end of the last call, so a late call makes the next one late. `Spread` and
//! `Stretched` drift by the sum of all latenesses. `RoundJiffies` does not, as long as a call is less than a quarter of
//! a second late. The grid's points do not depend on the ends of calls. The exact grid is the library's ([`Grid`]).
//!
//! The rounding is the kernel's `round_jiffies_common` (`kernel/time/timer.c`). The kernel's upkeep (`mm/vmstat.c`) is
//! deferrable work, so the first three policies are too.

use std::time::Duration;

use bursar::housekeeping::{Grid, Place, Timetable};
use bursar_rig::timer::{Jiffies, Timer, TimerKind, wheel_granularity};

use super::period::{Period, Sharing};

/// Ticks by which the kernel moves each CPU's rounded timers apart.
pub const KERNEL_SKEW: u64 = 3;

/// Policy for the times at which a CPU's upkeep fires.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Firing {
    /// Fires at whole seconds, less `skew` ticks for each CPU number, as the kernel does. Today's skew is
    /// [`KERNEL_SKEW`].
    #[doc(alias = "round_jiffies_relative")]
    RoundJiffies {
        /// Ticks between a CPU and the next.
        skew: u64,
    },
    /// Fires after an interval that grows with the CPU's rank, up to twice as long.
    Stretched {
        /// Whether the result is rounded as the kernel does, with its skew.
        rounded: bool,
    },
    /// Lets the CPUs begin at different times and then keep the interval.
    Spread,
    /// Gives each CPU moments of its own in each interval, always the same.
    PhaseGrid {
        /// Whether to use exact timers, to the nanosecond. Otherwise the wheel, at ticks.
        exact: bool,
    },
}

impl Default for Firing {
    /// The exact grid, which has neither drift nor herds.
    fn default() -> Self {
        Self::PhaseGrid { exact: true }
    }
}

impl Firing {
    /// Kind of timer that the policy uses.
    pub fn kind(self) -> TimerKind {
        match self {
            Self::RoundJiffies { .. } | Self::Stretched { .. } | Self::Spread => {
                TimerKind::Deferrable
            }
            Self::PhaseGrid { exact: false } => TimerKind::Wheel,
            Self::PhaseGrid { exact: true } => TimerKind::Exact,
        }
    }

    /// Timer of a CPU's first upkeep, after the shepherd found work at `now_ns`.
    pub fn first(self, period: Period, place: Place, now_ns: u64) -> Timer {
        let deadline_ns = match self {
            Self::RoundJiffies { .. } | Self::Stretched { .. } => now_ns,
            Self::Spread => {
                let offset = place.share_of(period.interval_ticks());
                period.at(period.jiffies(now_ns).saturating_add(offset))
            }
            Self::PhaseGrid { .. } => return self.next(period, place, now_ns),
        };
        self.timer(deadline_ns)
    }

    /// Timer of a CPU's next upkeep, after a call that ended at `now_ns` with work left.
    pub fn next(self, period: Period, place: Place, now_ns: u64) -> Timer {
        let now = period.jiffies(now_ns);
        let interval = period.interval_ticks();
        let deadline = match self {
            Self::RoundJiffies { skew } => {
                let aim = now.saturating_add(interval);
                round_jiffies(aim, now, place.cpu, period.hz, skew)
            }
            Self::Stretched { rounded } => {
                let stretched = interval.saturating_add(place.share_of(interval));
                let aim = now.saturating_add(stretched);
                if rounded {
                    round_jiffies(aim, now, place.cpu, period.hz, KERNEL_SKEW)
                } else {
                    aim
                }
            }
            Self::Spread => now.saturating_add(interval),
            Self::PhaseGrid { exact: false } => {
                return self.timer(next_tick_of_grid(period, place, now_ns));
            }
            Self::PhaseGrid { exact: true } => {
                let grid = Grid::every(Duration::from_nanos(period.interval_ns));
                return self.timer(grid.next(place, now_ns));
            }
        };
        self.timer(period.at(deadline))
    }

    /// Timer of the policy for a time.
    pub(super) fn timer(self, deadline_ns: u64) -> Timer {
        Timer {
            kind: self.kind(),
            deadline_ns,
        }
    }

    /// Minimum number of CPUs that share an instant, if there are more CPUs than instants in the interval.
    ///
    /// On the wheel, the instants that count are those of its granularity at that distance. `None` for `Stretched`,
    /// whose CPUs have no interval in common.
    pub fn sharing(self, period: Period, cpus: u32) -> Option<Sharing> {
        let ticks = period.interval_ticks();
        let grain = wheel_granularity(0, ticks);
        let instants = match self {
            Self::RoundJiffies { skew } => {
                let reach = skew.saturating_mul(u64::from(cpus.saturating_sub(1))) + 1;
                reach.min(u64::from(period.hz)).div_ceil(grain)
            }
            Self::Stretched { .. } => return None,
            Self::Spread | Self::PhaseGrid { exact: false } => (ticks / grain).max(1),
            Self::PhaseGrid { exact: true } => period.interval_ns,
        };
        Sharing::of(u64::from(cpus), instants)
    }
}

/// Policy with its clock: a timetable for the library's upkeep.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Clocked {
    /// The policy.
    pub firing: Firing,
    /// The clock.
    pub period: Period,
    /// See there.
    pub shepherd_delay: ShepherdDelay,
}

/// Delay with which the shepherd queues the upkeep of a CPU where it found work.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ShepherdDelay {
    /// The policy's own.
    #[default]
    OfPolicy,
    /// None, as in the kernel of the thread.
    Zero,
    /// A part of the interval that grows with the CPU's rank, as with [`Firing::Spread`].
    Spread,
}

impl Clocked {
    /// Policy with its own delay for the shepherd.
    pub fn new(firing: Firing, period: Period) -> Self {
        Self {
            firing,
            period,
            shepherd_delay: ShepherdDelay::OfPolicy,
        }
    }

    /// Timer with which the shepherd queues a CPU's upkeep at `now_ns`.
    pub(super) fn first_timer(self, place: Place, now_ns: u64) -> Timer {
        match self.shepherd_delay {
            ShepherdDelay::OfPolicy => self.firing.first(self.period, place, now_ns),
            ShepherdDelay::Zero => self.firing.timer(now_ns),
            ShepherdDelay::Spread => {
                let spread = Firing::Spread.first(self.period, place, now_ns);
                self.firing.timer(spread.deadline_ns)
            }
        }
    }
}

impl Timetable for Clocked {
    fn interval_ns(&self) -> u64 {
        self.period.interval_ns
    }

    fn first(&self, place: Place, now_ns: u64) -> u64 {
        self.first_timer(place, now_ns).deadline_ns
    }

    fn next(&self, place: Place, now_ns: u64) -> u64 {
        self.firing.next(self.period, place, now_ns).deadline_ns
    }

    /// Once an interval: rounded as the kernel does, or at the grid's first point.
    fn shepherd(&self, cpu: u32, now_ns: u64) -> u64 {
        let Self { firing, period, .. } = *self;
        let skew = match firing {
            Firing::RoundJiffies { skew } => skew,
            Firing::Stretched { .. } | Firing::Spread => KERNEL_SKEW,
            Firing::PhaseGrid { .. } => {
                let (rank, of) = (0, 1);
                return self.next(Place { cpu: 0, rank, of }, now_ns);
            }
        };
        let now = period.jiffies(now_ns);
        let aim = now.saturating_add(period.interval_ticks());
        period.at(round_jiffies(aim, now, cpu, period.hz, skew))
    }
}

/// Rounds a moment to a whole second, less `skew` ticks for each CPU number. Rounds down if less than a quarter of a
/// second is lost, otherwise up. A result that would not be in the future leaves the moment as it is.
#[doc(alias = "round_jiffies_common")]
pub fn round_jiffies(at: Jiffies, now: Jiffies, cpu: u32, hz: u32, skew: u64) -> Jiffies {
    let hz = u64::from(hz.max(1));
    let apart = skew.saturating_mul(u64::from(cpu));
    let skewed = at.saturating_add(apart);
    let remainder = skewed % hz;
    let rounded = if remainder < hz / 4 {
        skewed - remainder
    } else {
        skewed.saturating_add(hz - remainder)
    };
    match rounded.checked_sub(apart) {
        Some(rounded) if rounded > now => rounded,
        _ => at,
    }
}

/// First of `phase_ns`, `phase_ns + interval_ns`, … that is after `now_ns`.
fn next_point(phase_ns: u64, interval_ns: u64, now_ns: u64) -> u64 {
    match now_ns.checked_sub(phase_ns) {
        None => phase_ns,
        Some(since_ns) => {
            let into_ns = since_ns % interval_ns;
            now_ns.saturating_add(interval_ns - into_ns)
        }
    }
}

/// First point of a CPU's grid that is after `now_ns` when rounded up to a tick.
fn next_tick_of_grid(period: Period, place: Place, now_ns: u64) -> u64 {
    let phase_ns = period.at(place.share_of(period.interval_ticks()));
    let interval_ns = period.interval_ns;
    // A point in the past may still be ahead once it is rounded.
    let tick_ago_ns = now_ns.saturating_sub(period.tick_ns());
    let point_ns = next_point(phase_ns, interval_ns, tick_ago_ns);
    let rounded_ns = period.round_up_to_tick(point_ns);
    if rounded_ns > now_ns {
        return rounded_ns;
    }
    period.round_up_to_tick(point_ns.saturating_add(interval_ns))
}

#[cfg(test)]
mod tests;
