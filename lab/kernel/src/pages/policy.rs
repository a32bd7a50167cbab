//! Policies for giving pages back to the zone, as a value, and other settings.

use bursar::pages::Watermarks;
use bursar::pages::parts::{Limits, batch, high_max, high_min};

/// Time under the zone's lock for a page of 4 KiB that the kernel takes or gives back, nanoseconds: 87 to 280.
///
/// `bursar-observe` saw bursts of 2,016 pages on kernels 6.18 in virtual machines: 87 a page on a quiet machine, and 257 to 284 where
/// each page was traced. Untraced waits for such bursts, of 331 us at most, say 140 to 165.
pub const ZONE_PAGE_NS: u64 = 150;

/// Use of the locks while the CPU lists give many pages back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Release {
    /// Keeps both to the end: up to 2,016 pages under one hold (6.18.0, and all before).
    Whole,
    /// Releases both after each batch where lists decay, and keeps both where tasks free (6.18.7, 6.12.67).
    BatchedDecay,
    /// Releases the zone's lock after each batch if another task waits for it, and keeps that of the lists (first
    /// version of the thread, August 2025).
    ZoneBreak,
    /// Releases both after each batch. A free then tries the lists' lock again. It leaves the rest for later if another
    /// task has the lock, or if its own task has moved to another CPU (merged in 6.19).
    Batched,
}

impl Release {
    /// All policies.
    pub const ALL: [Self; 4] = [
        Self::Whole,
        Self::BatchedDecay,
        Self::ZoneBreak,
        Self::Batched,
    ];

    /// Returns the name in files.
    pub fn name(self) -> &'static str {
        match self {
            Self::Whole => "whole",
            Self::BatchedDecay => "batched-decay",
            Self::ZoneBreak => "zone-break",
            Self::Batched => "batched",
        }
    }

    /// Describes the policy in one line.
    pub fn summary(self) -> &'static str {
        match self {
            Self::Whole => "all that goes back to the zone at once, under one hold of its lock",
            Self::BatchedDecay => "as whole where tasks free, and as batched where lists decay",
            Self::ZoneBreak => {
                "the zone's lock is released after each batch if somebody waits for it"
            }
            Self::Batched => "the locks of the zone and of the lists are released after each batch",
        }
    }
}

/// Pages that a drain of a CPU's whole lists frees under one hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DrainHold {
    /// 2,016 pages: in all released versions, also where frees and decay are [`Release::Batched`].
    Scaled,
    /// A batch: patch 2 of the thread, which its third version dropped.
    Batch,
}

/// Cause of a hold of the zone's lock: the path by which a CPU came to it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cause {
    /// A task wants pages: a refill of lists, or a single block.
    Take,
    /// A task has freed pages: surplus of lists, or a single block.
    Free,
    /// Decay of lists.
    Decay,
    /// A drain of lists.
    Drain,
}

impl Cause {
    /// All causes, in the order of [`super::HoldFigures::by_cause`].
    pub const ALL: [Self; 4] = [Self::Take, Self::Free, Self::Decay, Self::Drain];
}

/// Figures that are recorded of the holds of the zone's lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Measured {
    /// Pages, time and wait of each hold. The clock is read once in each hold, which costs time, also on a simulated
    /// machine.
    Holds,
    /// Only the number of holds, and the pages of the longest.
    Counts,
}

/// Settings that are the same for all policies of a comparison, and the policy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Settings {
    /// See there.
    pub release: Release,
    /// See there.
    pub drain: DrainHold,
    /// Pages of the zone; rounded up to blocks of the largest order.
    pub pages: u64,
    /// Free pages below which CPU lists do not grow.
    pub high_watermark_pages: u64,
    /// Limits of the lists.
    pub limits: Limits,
    /// Pages after which locks are released, by policies that release them. As published, `None`: a batch.
    pub piece_pages: Option<u32>,
    /// Time under the zone's lock for each block. 0 on real threads, where the work itself takes time.
    pub zone_page_ns: u64,
    /// See there.
    pub measured: Measured,
}

impl Settings {
    /// Makes the published settings, for a zone that is all of a machine's memory.
    pub fn of(pages: u64, cpus: usize, release: Release) -> Self {
        let marks = Watermarks::of(pages, pages);
        let batch = batch(pages);
        Self {
            release,
            drain: DrainHold::Scaled,
            pages,
            high_watermark_pages: marks.high,
            limits: Limits {
                batch,
                high_min: high_min(marks.low, cpus, batch),
                high_max: high_max(pages, cpus, batch),
            },
            piece_pages: None,
            zone_page_ns: ZONE_PAGE_NS,
            measured: Measured::Holds,
        }
    }

    /// Returns the number of pages after which the zone's lock is released if another task waits for it.
    pub(super) fn break_pages(&self) -> Option<u32> {
        (self.release == Release::ZoneBreak).then(|| self.piece_pages())
    }

    /// Returns how many of `pages` go back before both locks are released.
    pub(super) fn piece(&self, cause: Cause, pages: u32) -> u32 {
        let is_batched = match cause {
            Cause::Take => false,
            Cause::Free => self.release == Release::Batched,
            Cause::Decay => matches!(self.release, Release::Batched | Release::BatchedDecay),
            Cause::Drain => return pages.min(self.drain_pages()),
        };
        match is_batched {
            true => pages.min(self.piece_pages()),
            false => pages,
        }
    }

    fn piece_pages(&self) -> u32 {
        self.piece_pages.unwrap_or(self.limits.batch)
    }

    fn drain_pages(&self) -> u32 {
        match self.drain {
            DrainHold::Scaled => self.limits.scaled_batch_max(),
            DrainHold::Batch => self.piece_pages(),
        }
    }
}
