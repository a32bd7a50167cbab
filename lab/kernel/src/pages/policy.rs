//! Policies for giving pages back to the zone, as a value, and other settings.

use bursar::pages::Watermarks;
use bursar::pages::parts::{Limits, batch, high_max, high_min};

/// Use of the locks while the CPU lists give many pages back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Release {
    /// Keeps both to the end: up to 2,016 pages under one hold (before 6.19).
    Whole,
    /// Releases the zone's lock after each batch if another task waits for it, and keeps that of the lists (first
    /// version of the thread, August 2025).
    ZoneBreak,
    /// Releases both after each batch. A free then tries the lists' lock again. It leaves the rest for later if another
    /// task has the lock, or if its own task has moved to another CPU (merged in 6.19).
    Batched,
}

impl Release {
    /// All policies.
    pub const ALL: [Self; 3] = [Self::Whole, Self::ZoneBreak, Self::Batched];

    /// Returns the name in files.
    pub fn name(self) -> &'static str {
        match self {
            Self::Whole => "whole",
            Self::ZoneBreak => "zone-break",
            Self::Batched => "batched",
        }
    }

    /// Describes the policy in one line.
    pub fn summary(self) -> &'static str {
        match self {
            Self::Whole => "all that goes back to the zone at once, under one hold of its lock",
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
    /// 2,016 pages: in all versions, also where frees and decay are [`Release::Batched`].
    Scaled,
    /// A batch.
    Batch,
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
    /// Extra cost of a page that goes back from the lists, nanoseconds. It is the oldest one, and its record and its
    /// buddy's are in no cache. 0 if the machine's costs include it.
    pub cold_page_ns: u64,
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
            cold_page_ns: 0,
            measured: Measured::Holds,
        }
    }

    /// Returns the number of pages after which the zone's lock is released if another task waits for it.
    pub(super) fn break_pages(&self) -> Option<u32> {
        (self.release == Release::ZoneBreak).then(|| self.piece_pages())
    }

    /// Returns how many of `pages` go back before both locks are released.
    pub(super) fn piece(&self, pages: u32) -> u32 {
        match self.release {
            Release::Whole | Release::ZoneBreak => pages,
            Release::Batched => pages.min(self.piece_pages()),
        }
    }

    fn piece_pages(&self) -> u32 {
        self.piece_pages.unwrap_or(self.limits.batch)
    }

    /// Returns the same for a drain.
    pub(super) fn drain_pages(&self) -> u32 {
        match self.drain {
            DrainHold::Scaled => self.limits.scaled_batch_max(),
            DrainHold::Batch => self.limits.batch,
        }
    }
}
