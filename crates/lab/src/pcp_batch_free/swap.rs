//! How much of the workers' memory can be resident, and what is in swap.

use std::sync::atomic::{AtomicU64, Ordering};

use super::parameters::Parameters;

/// Pages that are reclaimed at a time (`SWAP_CLUSTER_MAX`), and read from swap at a time (`page_cluster`).
pub(super) const RECLAIM_PAGES: usize = 32;
pub(super) const READ_PAGES: u64 = 8;

/// Pages in the hands of all workers, held against the watermarks. Not words of the machine: the kernel keeps such counts for
/// other purposes, and they cost the load no time here.
#[derive(Debug)]
pub(super) struct Swap {
    resident: AtomicU64,
    /// Above, memory is reclaimed: all but the low watermark.
    low: u64,
    /// Below, it is not any more: all but the high watermark.
    high: u64,
}

impl Swap {
    pub(super) fn new(parameters: &Parameters, managed_pages: u64) -> Self {
        let marks = parameters.watermarks(managed_pages);
        Self {
            resident: AtomicU64::new(0),
            low: managed_pages.saturating_sub(marks.low),
            high: managed_pages.saturating_sub(marks.high),
        }
    }

    /// Pages came, or went if it is negative.
    pub(super) fn add(&self, pages: i64) {
        // Relaxed, here and below: a tally.
        self.resident.fetch_add(pages as u64, Ordering::Relaxed);
    }

    /// Whether `more` pages would leave less free than the low watermark.
    pub(super) fn is_short_of(&self, more: u64) -> bool {
        self.resident.load(Ordering::Relaxed) + more > self.low
    }

    /// Whether more is free than the high watermark.
    pub(super) fn is_calm(&self) -> bool {
        self.resident.load(Ordering::Relaxed) < self.high
    }
}
