use std::collections::VecDeque;

use bursar_rig::random::Random;

use super::*;

const MIB: u64 = 1 << 20;
const MAX: u64 = 4096 * MIB;
/// 65 % of it.
const SET_POINT: u64 = MAX / 100 * 65;

/// A process: its caches, the rest, and memory that it freed and that is still resident.
struct Process {
    caches: u64,
    rest: u64,
    /// Freed memory by look; the front returns to the system first.
    freed: VecDeque<u64>,
    /// The most that the caches grow between two looks.
    fill: u64,
}

impl Process {
    fn new(delay: usize, fill: u64) -> Self {
        Self {
            caches: 0,
            rest: 0,
            freed: vec![0; delay].into(),
            fill,
        }
    }

    fn real(&self) -> u64 {
        self.caches + self.rest + self.freed.iter().sum::<u64>()
    }

    /// Looks and follows; returns the distance from the set point before.
    fn look(&mut self, policy: &CachePolicy) -> i64 {
        let real = Real {
            bytes: self.real(),
            stall_percent: 0.0,
        };
        let target = policy.target(self.caches, real, MAX);
        let evicted = self.caches.saturating_sub(target);
        self.caches = (self.caches + self.fill).min(target);
        self.freed.push_back(evicted);
        self.freed.pop_front();
        SET_POINT as i64 - real.bytes as i64
    }

    /// Largest distance on the other side of the set point, after the first look at which the process was near it or beyond.
    fn overshoot(&mut self, policy: &CachePolicy, looks: usize) -> u64 {
        let mut distances = (0..looks).map(|_| self.look(policy));
        let side = distances.next().map_or(0, i64::signum);
        let beyond = distances.map(|distance| -distance * side).max();
        beyond.unwrap_or(0).max(0) as u64
    }
}

/// Steps of the rest, at random: the process comes to the set point and does not pass it.
#[test]
fn caches_follow_without_oscillation() {
    let policy = CachePolicy::default();
    for seed in 0..500 {
        let mut random = Random::new(seed);
        let fill = 1 + random.below(512 * MIB);
        let mut process = Process::new(random.below(3) as usize, fill);
        for step in 0..4 {
            process.rest = random.below(SET_POINT);
            let beyond = process.overshoot(&policy, 200);
            assert!(
                beyond <= SET_POINT / 100,
                "seed {seed}, step {step}: {beyond} bytes beyond the set point"
            );
            // All that the caches may have, unless they had no time to take it.
            let distance = process.look(&policy).unsigned_abs();
            assert!(
                distance <= SET_POINT / 50 || fill < 16 * MIB,
                "seed {seed}, step {step}: {distance} bytes from the set point at the end"
            );
        }
    }
}

/// The bound of the documentation is where oscillation begins.
#[test]
fn more_gain_than_the_bound_oscillates() {
    for (delay, quiet, loud) in [(1, 4, 2), (2, 7, 3), (10, 29, 8)] {
        let overshoot = |gain_divisor: u32| {
            let mut process = Process::new(delay, u64::MAX >> 1);
            let policy = CachePolicy {
                gain_divisor,
                ..CachePolicy::default()
            };
            process.caches = SET_POINT;
            process.rest = SET_POINT / 2;
            process.overshoot(&policy, 500)
        };
        assert!(overshoot(quiet) <= SET_POINT / 100, "delay {delay}");
        assert!(overshoot(loud) > SET_POINT / 20, "delay {delay}");
    }
}

#[test]
fn targets_keep_within_their_bounds() {
    let mut policy = CachePolicy::default();
    let real = |bytes, stall_percent| Real {
        bytes,
        stall_percent,
    };
    // An eighth of the distance of 60.
    assert_eq!(policy.target(8, real(5, 9.9), 100), 8 + 60 / 8);
    // A stall lowers the set point from 65 to 57.
    assert_eq!(policy.target(8, real(5, 10.0), 100), 8 + 52 / 8);
    assert_eq!(policy.target(8, real(200, f64::NAN), 100), 0);
    assert_eq!(policy.target(8, real(u64::MAX, 0.0), 100), 0);
    assert_eq!(policy.target(8, real(0, 0.0), u64::MAX), u64::MAX);
    policy.floor = 3;
    policy.ceiling = 10;
    assert_eq!(policy.target(8, real(200, 0.0), 100), 3);
    assert_eq!(policy.target(8, real(0, 0.0), 100), 10);
    assert_eq!(policy.target(u64::MAX, real(0, 0.0), u64::MAX), 10);
    policy.gain_divisor = 0;
    assert_eq!(policy.target(8, real(65, 0.0), 100), 8);
}
