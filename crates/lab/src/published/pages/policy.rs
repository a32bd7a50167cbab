//! How pages go back to the zone, as a value, and what else can be set.

use bursar::pages::sizes::{Watermarks, batch, high_max, high_min};
use bursar::pages::tuning::{CacheSlice, Limits};

use super::stops::Stops;

/// What the CPU lists do with the locks while they give many pages back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Release {
    /// Keep both to the end: up to 2,016 pages under one hold (before 6.19).
    Whole,
    /// Release the zone's lock after each batch if somebody waits for it, and keep that of the lists (first version of the
    /// thread, August 2025).
    ZoneBreak,
    /// Release both after each batch. A free then tries the lists' lock again, and leaves the rest for later if another
    /// has it, or the task has come to another CPU (merged in 6.19).
    Batched,
}

impl Release {
    /// All there are.
    pub const ALL: [Self; 3] = [Self::Whole, Self::ZoneBreak, Self::Batched];

    /// What it is called in files.
    pub fn name(self) -> &'static str {
        match self {
            Self::Whole => "whole",
            Self::ZoneBreak => "zone-break",
            Self::Batched => "batched",
        }
    }

    /// What it does, in one line.
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

/// How much a drain of a CPU's whole lists frees under one hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DrainHold {
    /// 2,016 pages: in all versions, also where frees and decay are [`Release::Batched`].
    Scaled,
    /// A batch.
    Batch,
}

/// What is noted of the holds of the zone's lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Measured {
    /// Pages, time and waiting of each. The clock is read once in each hold: its reading costs time, also on a simulated
    /// machine.
    Holds,
    /// Only how many there were, and how many pages the longest had.
    Counts,
}

/// What is the same for all policies of a comparison, and the policy.
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
    /// What the lists may hold.
    pub limits: Limits,
    /// Pages after which locks are released, by policies that do. As published, `None`: a batch.
    pub piece_pages: Option<u32>,
    /// What a page costs besides that goes back from the lists, nanoseconds: it is the one that was there longest, and its record
    /// and its buddy's are in no cache. 0 if that is in the machine's costs already.
    pub cold_page_ns: u64,
    /// How often CPUs stop that hold the zone's lock. As published, never; where holds are not timed, neither.
    pub stops: Stops,
    /// See there.
    pub measured: Measured,
}

impl Settings {
    /// As published, for a zone that is all of a machine's memory.
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
                // More than three batches, 756 KiB, for each CPU: as on servers of these years.
                slice: CacheSlice::Large,
            },
            piece_pages: None,
            cold_page_ns: 0,
            stops: Stops::NEVER,
            measured: Measured::Holds,
        }
    }

    /// After how many pages the zone's lock is released if somebody waits for it.
    pub(super) fn break_pages(&self) -> Option<u32> {
        (self.release == Release::ZoneBreak).then(|| self.piece_pages())
    }

    /// How many of `pages` go back before both locks are released.
    pub(super) fn piece(&self, pages: u32) -> u32 {
        match self.release {
            Release::Whole | Release::ZoneBreak => pages,
            Release::Batched => pages.min(self.piece_pages()),
        }
    }

    fn piece_pages(&self) -> u32 {
        self.piece_pages.unwrap_or(self.limits.batch)
    }

    /// The same of a drain.
    pub(super) fn drain_pages(&self) -> u32 {
        match self.drain {
            DrainHold::Scaled => self.limits.scaled_batch_max(),
            DrainHold::Batch => self.limits.batch,
        }
    }
}
