//! Start and end of the workers' reclaim: free pages of the zone compared with its watermarks.

use super::parameters::Parameters;

/// Pages that are reclaimed at a time: twice `SWAP_CLUSTER_MAX`, so that there is some room for others.
pub(super) const RECLAIM_PAGES: usize = 64;
/// Pages that are read from swap at a time (`page_cluster`).
pub(super) const READ_PAGES: u64 = 8;

/// Free pages at which reclaim begins and ends.
#[derive(Clone, Copy, Debug)]
pub(super) struct Marks {
    low: u64,
    high: u64,
}

impl Marks {
    pub(super) fn new(parameters: &Parameters, managed_pages: u64) -> Self {
        let marks = parameters.watermarks(managed_pages);
        Self {
            low: marks.low,
            high: marks.high,
        }
    }

    /// Returns whether taking `more` pages would leave fewer free than the low watermark.
    pub(super) fn is_short_of(self, more: u64, free_pages: u64) -> bool {
        free_pages < self.low + more
    }

    /// Returns whether more pages are free than the high watermark.
    pub(super) fn is_calm(self, free_pages: u64) -> bool {
        free_pages > self.high
    }
}
