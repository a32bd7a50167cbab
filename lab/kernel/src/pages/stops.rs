//! CPUs that stop for a while at any point: a hypervisor gives them to another machine, or firmware or a watchdog
//! interrupts them. Interrupts are off under the zone's lock, so its holder is not preempted; but these events stop it
//! too.

use std::sync::{Mutex, PoisonError};

use bursar_rig::random::Random;

/// Frequency and length of a CPU's stops. Both are means: stops come at random, and their length is exponential.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stops {
    /// Interval from one stop of a CPU to its next, nanoseconds of its time. 0: it never stops.
    pub every_ns: u64,
    /// Length of a stop, nanoseconds.
    pub for_ns: u64,
    /// Seed of the randomness.
    pub seed: u64,
}

impl Stops {
    /// CPUs that never stop.
    pub const NEVER: Self = Self {
        every_ns: 0,
        for_ns: 0,
        seed: 0,
    };
}

pub(super) struct Stopper {
    stops: Stops,
    random: Mutex<Random>,
}

impl Stopper {
    pub(super) fn new(stops: Stops) -> Self {
        Self {
            stops,
            random: Mutex::new(Random::new(stops.seed)),
        }
    }

    /// Returns whether there are any stops.
    pub(super) fn any(&self) -> bool {
        self.stops.every_ns > 0
    }

    /// Returns how long a CPU stopped in `busy_ns` of its time; mostly 0.
    pub(super) fn in_ns(&self, busy_ns: u64) -> u64 {
        let mut random = self.random.lock().unwrap_or_else(PoisonError::into_inner);
        if !self.any() || random.below(self.stops.every_ns) >= busy_ns {
            return 0;
        }
        random.exponential(self.stops.for_ns)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stops_come_as_often_and_last_as_long_as_they_are_said_to() {
        let stops = Stops {
            every_ns: 1_000,
            for_ns: 5_000,
            seed: 1,
        };
        let stopper = Stopper::new(stops);
        let stopped: Vec<u64> = (0..100_000).map(|_| stopper.in_ns(20)).collect();
        let count = stopped.iter().filter(|stop| **stop > 0).count() as f64;
        let mean_ns = stopped.iter().sum::<u64>() as f64 / count;
        assert!((1_800.0..2_200.0).contains(&count), "{count}");
        assert!((4_500.0..5_500.0).contains(&mean_ns), "{mean_ns}");
        assert_eq!(Stopper::new(Stops::NEVER).in_ns(u64::MAX), 0);
    }
}
