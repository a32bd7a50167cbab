//! When a CPU's upkeep fires: policies as values, and pure functions of them.
//!
//! | policy | first | then | how CPUs are kept apart |
//! |---|---|---|---|
//! | `RoundJiffies` | at once | a whole second, less `skew` ticks for each CPU number | by the skew |
//! | `Stretched` | at once | after an interval that grows with the rank | by intervals that differ |
//! | `Spread` | after a part of the interval that grows with the rank | after the interval | until lateness has mixed them |
//! | `PhaseGrid` | at the next point of the CPU's grid | likewise | for ever |
//!
//! The first three count from the end of the last call, so that what comes late stays late: `Spread` and `Stretched` drift by
//! the sum of all latenesses; `RoundJiffies` does not, as long as a call is less than a quarter of a second late. The grid's
//! points do not depend on when calls end.
//!
//! The rounding is the kernel's `round_jiffies_common` (`kernel/time/timer.c`); the kernel's upkeep (`mm/vmstat.c`) is deferrable
//! work, so the first three are too.

use bursar_machine::timer::{Jiffies, Timer, TimerKind, wheel_granularity};

use super::period::{Period, Place, Sharing};

/// Ticks by which the kernel moves each CPU's rounded timers apart.
pub const KERNEL_SKEW: u64 = 3;

/// When CPU k's upkeep fires: a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Firing {
    /// The kernel's: at whole seconds, less `skew` ticks for each CPU number. Today's skew is [`KERNEL_SKEW`].
    #[doc(alias = "round_jiffies_relative")]
    RoundJiffies {
        /// Ticks between a CPU and the next.
        skew: u64,
    },
    /// The interval grows with the CPU's rank, up to twice as long.
    Stretched {
        /// Whether what results is rounded as the kernel does, with its skew.
        rounded: bool,
    },
    /// The CPUs begin at different times and then keep the interval.
    Spread,
    /// Each CPU has moments of its own in each interval, the same for ever.
    PhaseGrid {
        /// On exact timers, to the nanosecond; else on the wheel, at ticks.
        exact: bool,
    },
}

impl Default for Firing {
    /// Free of drift and herds.
    fn default() -> Self {
        Self::PhaseGrid { exact: true }
    }
}

impl Firing {
    /// The kind of timer that it runs on.
    pub fn kind(self) -> TimerKind {
        match self {
            Self::RoundJiffies { .. } | Self::Stretched { .. } | Self::Spread => {
                TimerKind::Deferrable
            }
            Self::PhaseGrid { exact: false } => TimerKind::Wheel,
            Self::PhaseGrid { exact: true } => TimerKind::Exact,
        }
    }

    /// When the shepherd, which found work at `now_ns`, has the CPU's upkeep first.
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

    /// When it comes again after a call that ended at `now_ns` with work left.
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
                let phase_ns = place.share_of(period.interval_ns);
                return self.timer(next_point(phase_ns, period.interval_ns, now_ns));
            }
        };
        self.timer(period.at(deadline))
    }

    fn timer(self, deadline_ns: u64) -> Timer {
        Timer {
            kind: self.kind(),
            deadline_ns,
        }
    }

    /// How many CPUs share an instant at the least, if there are more CPUs than instants in the interval.
    ///
    /// On the wheel the instants that count are those of its granularity at that distance. Nothing can be said of `Stretched`,
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

/// Rounds a moment to a whole second, less `skew` ticks for each CPU number: down if less than a quarter of a second is lost,
/// else up. What would not be in the future stays as it is.
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

/// The first of `phase_ns`, `phase_ns + interval_ns`, … that is after `now_ns`.
fn next_point(phase_ns: u64, interval_ns: u64, now_ns: u64) -> u64 {
    match now_ns.checked_sub(phase_ns) {
        None => phase_ns,
        Some(since_ns) => {
            let into_ns = since_ns % interval_ns;
            now_ns.saturating_add(interval_ns - into_ns)
        }
    }
}

/// The first point of a CPU's grid that is after `now_ns` when rounded up to a tick.
fn next_tick_of_grid(period: Period, place: Place, now_ns: u64) -> u64 {
    let phase_ns = period.at(place.share_of(period.interval_ticks()));
    let interval_ns = period.interval_ns;
    // A point that is over may still be ahead once it is rounded.
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
