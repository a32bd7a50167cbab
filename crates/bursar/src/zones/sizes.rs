//! Sizes that follow from the memory of a zone and the number of CPUs that share it.
//!
//! Formulae of `mm/page_alloc.c` (7.3): `zone_batchsize()`, `init_per_zone_wmark_min()` with
//! `__setup_per_zone_wmarks()`, and `zone_highsize()`. Not included: `mm/khugepaged.c`, which may raise
//! `min_free_kbytes`; `percpu_pagelist_high_fraction`, which turns tuning off; the second gap, which only promotion
//! between tiers of memory uses.

use bursar_machine::pages::PAGE_BYTES;

const KIB: u64 = 1024;
const PAGE_KIB: u64 = PAGE_BYTES as u64 / KIB;
/// Maximum size of a batch.
const BATCH_BYTES_MAX: u64 = 256 * KIB;
/// Pages of the zone for each page of a batch.
const MANAGED_PAGES_PER_BATCH_PAGE: u64 = 1 << 12;
/// Minimum number of batches in a per-CPU list; with fewer a list is of no use.
const BATCHES_MIN: u32 = 4;
/// Divisor of a zone's pages that gives the maximum in all CPUs' lists together.
const HIGH_MAX_SHARE: u64 = 8;
/// Minimum gap from one watermark to the next, in pages of 10,000.
#[doc(alias = "watermark_scale_factor")]
const WATERMARK_SCALE: u64 = 10;

/// Number of pages moved between a zone and a per-CPU list at once: 63 where the zone has 1 GiB or more.
///
/// The number is just below a power of two. With a power of two, the same pages of each batch fell on the same cache
/// colours.
#[doc(alias = "zone_batchsize")]
pub fn batch(managed_pages: u64) -> u32 {
    let share = managed_pages / MANAGED_PAGES_PER_BATCH_PAGE;
    let pages = share.min(BATCH_BYTES_MAX / PAGE_BYTES as u64) as u32;
    match (pages + pages / 2).checked_ilog2() {
        Some(bits) => ((1 << bits) - 1).max(1),
        None => 1,
    }
}

/// Marks of a zone's free pages, in pages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Watermarks {
    /// Mark below which only allocations that must not fail get memory.
    pub min: u64,
    /// Mark below which memory is reclaimed.
    pub low: u64,
    /// Mark up to which memory is reclaimed. Below it, per-CPU lists do not grow.
    pub high: u64,
}

impl Watermarks {
    /// Marks of a zone of `managed_pages`, where all zones together have `all_pages`.
    #[doc(alias = "min_free_kbytes")]
    #[doc(alias = "setup_per_zone_wmarks")]
    pub fn of(managed_pages: u64, all_pages: u64) -> Self {
        let all_kib = all_pages.saturating_mul(PAGE_KIB);
        let min_free_kib = all_kib.saturating_mul(16).isqrt().clamp(128, 256 * KIB);
        let min_free_pages = min_free_kib / PAGE_KIB;
        let share = u128::from(min_free_pages) * u128::from(managed_pages);
        // The zone's pages are part of all pages, so the share is at most the whole.
        let min = (share / u128::from(all_pages.max(1))) as u64;
        let gap = (min / 4).max(managed_pages.saturating_mul(WATERMARK_SCALE) / 10_000);
        Self {
            min,
            low: min.saturating_add(gap),
            high: min.saturating_add(gap.saturating_mul(2)),
        }
    }
}

/// Number of pages that a CPU's lists may always have: the low watermark, shared by the `cpus` of the zone's node.
#[doc(alias = "zone_highsize")]
pub fn high_min(low: u64, cpus: usize, batch: u32) -> u32 {
    share(low, cpus, batch)
}

/// Maximum number of pages in a CPU's lists: an eighth of the zone, shared by the `cpus` of its node.
#[doc(alias = "zone_highsize")]
pub fn high_max(managed_pages: u64, cpus: usize, batch: u32) -> u32 {
    share(managed_pages / HIGH_MAX_SHARE, cpus, batch)
}

fn share(pages: u64, cpus: usize, batch: u32) -> u32 {
    // All CPUs serve a node without CPUs, and the caller passes their number. 0 counts as 1.
    let share = pages / cpus.max(1) as u64;
    let share = u32::try_from(share).unwrap_or(u32::MAX);
    share.max(BATCHES_MIN.saturating_mul(batch))
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn gib(gib: u64) -> u64 {
        gib << 18
    }

    /// `high_min` and `high_max` of a machine of one zone.
    fn highs(pages: u64, cpus: usize) -> (u32, u32) {
        let batch = batch(pages);
        let low = Watermarks::of(pages, pages).low;
        (high_min(low, cpus, batch), high_max(pages, cpus, batch))
    }

    #[test]
    fn a_batch_is_63_pages_from_1_gib_on() {
        for pages in [gib(1), gib(62), gib(1024), 1 << 32] {
            assert_eq!(batch(pages), 63);
        }
        // 256 MiB: 16 pages and half as many again, so 15.
        assert_eq!(batch(1 << 16), 15);
        assert_eq!(
            batch(gib(1) - 1),
            63,
            "63 and a half as many again: 94, so 64"
        );
    }

    #[test]
    fn a_batch_is_at_least_one_page() {
        for pages in [0, 1, 4_095, 4_096, 8_191, 8_192] {
            assert_eq!(batch(pages), 1, "{pages} pages");
        }
        assert_eq!(batch(3 * 4_096), 3);
    }

    #[test]
    fn batches_grow_with_zones() {
        let sizes = (0..600).map(|step| batch(step << 10));
        assert!(sizes.is_sorted());
    }

    /// The worked cases of 4 KiB pages, exactly: the published machines, taken as one zone of all their memory.
    #[test]
    fn highs_of_the_machines_of_the_threads() {
        assert_eq!(highs(gib(1024), 316), (953, 106_184));
        assert_eq!(highs(gib(754), 316), (714, 78_186));
        assert_eq!(highs(gib(251), 176), (466, 46_731));
        assert_eq!(highs(gib(62), 36), (675, 56_433));
    }

    #[test]
    fn watermarks_of_a_tebibyte() {
        // The root of 2^34 is 128 MiB in KiB; the gap is a thousandth of the pages.
        let marks = Watermarks::of(gib(1024), gib(1024));
        let gap = gib(1024) / 1_000;
        assert_eq!((marks.min, marks.low), (32_768, 32_768 + gap));
        assert_eq!(marks.high - marks.low, gap);
    }

    #[test]
    fn zones_share_the_pages_to_keep_free() {
        let (small, large) = (gib(16), gib(48));
        let both = small + large;
        let all = Watermarks::of(both, both).min;
        assert_eq!(Watermarks::of(small, both).min, all / 4);
        assert_eq!(Watermarks::of(large, both).min, all * 3 / 4);
    }

    #[test]
    fn what_is_kept_free_has_bounds() {
        // 128 KiB, and a quarter of it between marks.
        let tiny = Watermarks::of(64, 64);
        assert_eq!((tiny.min, tiny.low, tiny.high), (32, 40, 48));
        let huge = Watermarks::of(1 << 32, 1 << 32);
        assert_eq!(huge.min, 256 * KIB / PAGE_KIB);
    }

    #[test]
    fn a_list_has_room_for_four_batches() {
        assert_eq!(highs(gib(1), 4_096), (252, 252));
        assert_eq!(high_min(0, 0, 63), 252);
    }

    #[test]
    fn a_batch_has_the_power_of_two_below_its_share_and_half_of_it() {
        for (share, pages) in [
            (5, 3),
            (6, 7),
            (10, 7),
            (11, 15),
            (12, 15),
            (21, 15),
            (22, 31),
        ] {
            assert_eq!(batch(share * 4_096), pages, "{share}");
        }
    }
}
