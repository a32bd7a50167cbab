//! Times at which each CPU's upkeep fires.

use std::fmt;
use std::time::Duration;

/// Place of a CPU among those that take part in upkeep.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Place {
    /// The CPU's number.
    pub cpu: u32,
    /// Number of participants before it. Gaps between the numbers of CPUs make no gaps between ranks.
    pub rank: u32,
    /// Number of participants.
    pub of: u32,
}

impl Place {
    /// Part of `whole` that lies before the CPU when all participants share it evenly.
    pub fn share_of(self, whole: u64) -> u64 {
        let of = u128::from(self.of.max(1));
        (u128::from(self.rank) * u128::from(whole) / of) as u64
    }
}

/// Rule for the times at which each CPU's upkeep fires: a pure function of a place and the time. [`Grid`] is one.
///
/// Times are nanoseconds of [`bursar_machine::Machine::now_ns`].
pub trait Timetable: fmt::Debug + Send + Sync {
    /// Interval of upkeep, nanoseconds.
    fn interval_ns(&self) -> u64;

    /// Time of a CPU's first upkeep, after the shepherd found work at `now_ns`.
    fn first(&self, place: Place, now_ns: u64) -> u64 {
        self.next(place, now_ns)
    }

    /// Time of a CPU's next upkeep, after a call that ended at `now_ns` with work left.
    fn next(&self, place: Place, now_ns: u64) -> u64;

    /// Time of the shepherd's next round, after a round at `now_ns` on `cpu`.
    fn shepherd(&self, _cpu: u32, now_ns: u64) -> u64 {
        let (rank, of) = (0, 1);
        self.next(Place { cpu: 0, rank, of }, now_ns)
    }
}

/// Grid of times: CPU `k` of `n` fires at `k/n` of each interval. The points do not depend on the ends of calls, so nothing
/// drifts, and no two CPUs fire at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Grid {
    interval_ns: u64,
}

impl Grid {
    /// Makes the grid of an interval, which must not be 0. (The kernel's `vm.stat_interval`: 1 s.)
    #[doc(alias = "sysctl_stat_interval")]
    pub fn every(interval: Duration) -> Self {
        // 584 years of nanoseconds fit.
        let interval_ns = u64::try_from(interval.as_nanos()).unwrap_or(u64::MAX);
        Self { interval_ns }
    }
}

impl Timetable for Grid {
    fn interval_ns(&self) -> u64 {
        self.interval_ns
    }

    /// Returns the first point of a CPU's grid that is after `now_ns`.
    fn next(&self, place: Place, now_ns: u64) -> u64 {
        let phase_ns = place.share_of(self.interval_ns);
        match now_ns.checked_sub(phase_ns) {
            None => phase_ns,
            Some(since_ns) => {
                let into_ns = since_ns % self.interval_ns;
                now_ns.saturating_add(self.interval_ns - into_ns)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use bursar_rig::random::Random;

    use super::*;

    const SECOND_NS: u64 = 1_000_000_000;

    fn place(cpu: u32, of: u32) -> Place {
        Place { cpu, rank: cpu, of }
    }

    #[test]
    fn gaps_between_cpu_numbers_make_none_between_phases() {
        let grid = Grid::every(Duration::from_secs(1));
        for (rank, cpu) in (0..).zip([0, 3, 64, 1_023]) {
            let at_ns = grid.next(Place { cpu, rank, of: 4 }, 5 * SECOND_NS);
            assert_eq!(at_ns % SECOND_NS, u64::from(rank) * SECOND_NS / 4);
        }
    }

    #[test]
    fn a_grid_does_not_drift_in_a_day_of_late_calls() {
        let grid = Grid::every(Duration::from_secs(1));
        for (rank, of) in [(0, 1), (0, 5), (3, 5), (1_023, 1_024)] {
            let place = place(rank, of);
            let mut random = Random::new(u64::from(rank));
            let mut now_ns = 987_654_321;
            let first_ns = grid.first(place, now_ns);
            for day_s in 0..86_400 {
                let at_ns = grid.next(place, now_ns);
                assert_eq!(at_ns, first_ns + day_s * SECOND_NS, "{place:?}");
                now_ns = at_ns + random.below(90_000_000);
            }
        }
    }

    #[test]
    fn random_moments_agree_with_a_naive_statement() {
        let mut random = Random::new(71);
        for round in 0..20_000 {
            let grid = Grid {
                interval_ns: 1 + random.below(3 * SECOND_NS),
            };
            let of = 1 + random.below(1_024) as u32;
            let place = place(random.below(u64::from(of)) as u32, of);
            let phase_ns = u64::from(place.rank) * grid.interval_ns / u64::from(of);
            let mut points = (0..).map(|k| phase_ns + k * grid.interval_ns);
            // At a point, or beside one.
            let near_ns = phase_ns + random.below(60) * grid.interval_ns + random.below(3);
            let now_ns = near_ns.saturating_sub(1);
            let expected_ns = points.find(|&at_ns| at_ns > now_ns).unwrap();
            assert_eq!(
                grid.next(place, now_ns),
                expected_ns,
                "round {round}: {grid:?} {place:?} at {now_ns}"
            );
        }
    }

    #[test]
    fn the_end_of_time_is_reached_without_harm() {
        let grid = Grid::every(Duration::MAX);
        for now_ns in [0, SECOND_NS, u64::MAX - 1, u64::MAX] {
            grid.next(place(u32::MAX, u32::MAX), now_ns);
            grid.shepherd(0, now_ns);
        }
    }
}
