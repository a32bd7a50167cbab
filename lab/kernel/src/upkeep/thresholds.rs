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
}
