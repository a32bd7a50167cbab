//! Bounds on the amount that a CPU may hold back: the kernel's formulae (`mm/vmstat.c`).

/// Maximum that a CPU may hold back of a counter. (The kernel's counters have eight bits.)
const THRESHOLD_MAX: u64 = 125;
/// Pages of 4 KiB in 128 MiB, as a shift.
const UNIT_SHIFT: u32 = 15;

/// Position of the highest bit, counted from 1; 0 if there is none.
#[doc(alias = "fls")]
fn bits(value: u64) -> u64 {
    u64::from(u64::BITS - value.leading_zeros())
}

/// Amount that each of `cpus` CPUs may hold back of the counters of a zone of `zone_pages` pages.
#[doc(alias = "calculate_normal_threshold")]
pub fn threshold(cpus: usize, zone_pages: u64) -> i64 {
    let threshold = 2 * bits(cpus as u64) * (1 + bits(zone_pages >> UNIT_SHIFT));
    threshold.min(THRESHOLD_MAX) as i64
}

/// Amount that each CPU may hold back while memory is short: together at most the gap between two watermarks.
#[doc(alias = "calculate_pressure_threshold")]
pub fn pressure_threshold(cpus: usize, min_pages: u64, low_pages: u64) -> i64 {
    let each = low_pages.saturating_sub(min_pages) / (cpus as u64).max(1);
    each.clamp(1, THRESHOLD_MAX) as i64
}

/// Number of free pages below which only the precise sum can be compared with watermarks. `None` if the amount that all
/// CPUs hold back is less than the gap between `min` and `low`.
#[doc(alias = "percpu_drift_mark")]
pub fn drift_mark(
    cpus: usize,
    threshold: i64,
    min_pages: u64,
    low_pages: u64,
    high_pages: u64,
) -> Option<u64> {
    let drift = (cpus as u64).saturating_mul(threshold.unsigned_abs());
    let between = low_pages.saturating_sub(min_pages);
    (drift > between).then(|| high_pages.saturating_add(drift))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn thresholds_are_the_kernels() {
        let gib = 1 << 18;
        // 2 CPUs: 2 bits; 4 GiB are 32 units: 6 bits.
        assert_eq!(threshold(2, 4 * gib), 2 * 2 * 7);
        assert_eq!(threshold(8, gib), 2 * 4 * 5);
        assert_eq!(
            threshold(1, 100),
            2,
            "a small zone still holds something back"
        );
        assert_eq!(threshold(72, 64 * gib), 125, "2 * 7 * 11");
        assert_eq!(threshold(1_024, 4_096 * gib), 125);
    }

    #[test]
    fn under_pressure_all_together_stay_between_the_watermarks() {
        assert_eq!(pressure_threshold(72, 1_000, 1_720), 10);
        assert_eq!(pressure_threshold(1_024, 1_000, 1_100), 1);
        assert_eq!(pressure_threshold(2, 1_000, 9_000), 125);
        assert_eq!(pressure_threshold(0, 9, 3), 1, "nonsense");
    }

    #[test]
    fn the_drift_mark_is_for_those_who_may_drift_past_a_watermark() {
        assert_eq!(drift_mark(8, 10, 100, 180, 260), None);
        assert_eq!(drift_mark(8, 10, 100, 179, 260), Some(340));
        assert_eq!(drift_mark(72, 125, 11_000, 14_000, 17_000), Some(26_000));
    }
}
