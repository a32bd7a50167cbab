//! The kernel's timer wheel: when a timer really expires.
//!
//! Timers sit in levels of 64 buckets. Level `n` has a granularity of `8^n` ticks, and holds timers that are less than
//! `63 * 8^n` ticks away. An expiry is always rounded up to the granularity of its level, so a timer that is far away is
//! late, and many that were apart expire together. (`kernel/time/timer.c`, Linux 4.8 and later.)

/// A moment, in ticks since the machine started (the kernel's `jiffies`).
pub type Jiffies = u64;

/// Levels of the wheel with `HZ` above 100; one less otherwise.
const LEVELS: u32 = 9;
/// Each level is this much coarser, as a shift.
const LEVEL_SHIFT: u32 = 3;
/// Buckets of a level, less one.
const LEVEL_REACH: u64 = 63;

/// The granularity of the level that a timer is put in at `now` that is to expire at `expires`, ticks.
pub fn wheel_granularity(now: Jiffies, expires: Jiffies) -> Jiffies {
    1 << (level(expires.saturating_sub(now)) * LEVEL_SHIFT)
}

fn level(delta: u64) -> u32 {
    (0..LEVELS - 1)
        .find(|level| delta < LEVEL_REACH << (level * LEVEL_SHIFT))
        .unwrap_or(LEVELS - 1)
}

/// When a timer expires that is put in the wheel at `now` and is to expire at `expires`: never before, and later by up to
/// one granularity of its level.
#[doc(alias = "calc_index")]
pub fn wheel_expiry(now: Jiffies, expires: Jiffies) -> Jiffies {
    let shift = level(expires.saturating_sub(now)) * LEVEL_SHIFT;
    // One more also where the expiry is on the grain: part of the current tick is over already.
    ((expires.max(now) >> shift) + 1) << shift
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn levels_begin_where_the_kernels_do() {
        for (delta, granularity) in [
            (0, 1),
            (62, 1),
            (63, 8),
            (503, 8),
            (504, 64),
            (4_031, 64),
            (4_032, 512),
        ] {
            assert_eq!(
                wheel_granularity(1_000, 1_000 + delta),
                granularity,
                "{delta}"
            );
        }
    }

    #[test]
    fn a_timer_is_late_by_at_most_one_granularity_and_never_early() {
        for now in [0, 1, 63, 64, 999, 123_456] {
            for delta in (0..6_000).chain([1 << 20, 1 << 27]) {
                let at = wheel_expiry(now, now + delta);
                let late = at - (now + delta);
                assert!(
                    late >= 1 && late <= wheel_granularity(now, now + delta),
                    "{now} {delta}"
                );
            }
        }
    }

    #[test]
    fn a_second_ahead_is_rounded_to_64_ticks_at_1000_hz_and_to_8_at_250() {
        assert_eq!(wheel_expiry(0, 1_000), 1_024);
        assert_eq!(wheel_expiry(0, 250), 256);
        assert_eq!(wheel_expiry(0, 100), 104);
    }
}
