//! Adaptation of a per-CPU list to its CPU: blocks to take from the zone, pages to keep, pages to give back.
//!
//! The kernel's rules (`mm/page_alloc.c`, 7.3) as functions of plain values; the fields are those of its
//! `per_cpu_pages`. A list that runs empty again and again takes twice as much each time and may keep more. A list that
//! only gets pages gives back more at a time. The number of pages kept shrinks when the zone is short of memory, and
//! slowly in idle times.
//!
//! All pages of a CPU count together, whatever the order of their blocks.
//!
//! | here | kernel | called |
//! |---|---|---|
//! | [`Tuning::allocated`], [`Tuning::nr_alloc`] | `rmqueue_pcplist()`, `nr_pcp_alloc()` | by each allocation; when the list is empty |
//! | [`Tuning::nr_high`], [`Tuning::nr_free`] | `nr_pcp_high()`, `nr_pcp_free()` | if the list is full |
//! | [`Tuning::decay`] | `decay_pcp_high()` | at intervals |
//!
//! # Where this differs
//! The kernel has two independent flags for "below its high watermark" and "being reclaimed". [`Shortage`] has three
//! values, and a zone that is being reclaimed is below its watermark here. Frees are counted by the caller, and `free_high` is left out.

use bursar_machine::pages::Order;

/// Maximum number of doublings of a batch.
#[doc(alias = "CONFIG_PCP_BATCH_SCALE_MAX")]
pub const BATCH_SCALE_MAX: u8 = 5;
/// Limits of a CPU's lists, all in pages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Pages moved at once; see [`super::sizes::batch`].
    pub batch: u32,
    /// Number that is always allowed; see [`super::sizes::high_min`].
    pub high_min: u32,
    /// Number that is never exceeded; see [`super::sizes::high_max`]. The same value as `high_min` turns tuning off.
    pub high_max: u32,
}

/// Shortage of free pages in a zone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shortage {
    /// None: the zone is at or above its high watermark.
    None,
    /// An allocation found the zone below its high watermark.
    #[doc(alias = "ZONE_BELOW_HIGH")]
    BelowHigh,
    /// The zone's memory is being reclaimed.
    #[doc(alias = "ZONE_RECLAIM_ACTIVE")]
    Reclaim,
}

/// State of one CPU's lists, apart from the blocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tuning {
    /// Pages kept before any are given back.
    pub high: u32,
    /// Number of doublings of the batch at the next refill.
    pub alloc_factor: u8,
    /// Pages freed in a row, halved with each allocation.
    pub free_count: u32,
}

impl Limits {
    /// Maximum number of pages moved under one hold of the zone's lock before 6.19: 2,016 for a batch of 63.
    pub const fn scaled_batch_max(&self) -> u32 {
        self.batch << BATCH_SCALE_MAX
    }

    fn clamp_high(&self, high: u32) -> u32 {
        high.min(self.high_max).max(self.high_min)
    }

    fn is_tuned(&self) -> bool {
        self.high_min != self.high_max
    }
}

impl Tuning {
    /// State of lists that were never used.
    pub const fn new(limits: &Limits) -> Self {
        Self {
            high: limits.high_min,
            alloc_factor: 0,
            free_count: 0,
        }
    }

    /// Notes an allocation.
    pub fn allocated(&mut self) {
        self.free_count >>= 1;
    }

    /// Number of blocks of `order` to take from the zone, when the lists have none left and `count` pages of other
    /// orders.
    #[doc(alias = "nr_pcp_alloc")]
    pub fn nr_alloc(
        &mut self,
        limits: &Limits,
        order: Order,
        count: u32,
        shortage: Shortage,
    ) -> u32 {
        let batch = limits.batch;
        self.high = limits.clamp_high(self.high);
        if self.high < batch {
            // A list this small is as good as none.
            return 1;
        }
        // Blocks of several pages are not needed in such numbers.
        let scale = if order == Order::ZERO {
            self.alloc_factor
        } else {
            0
        };
        let scaled = batch << scale;
        if shortage == Shortage::None {
            // A larger list would not have run empty. Without tuning it is as large as it gets.
            self.high = self.high.saturating_add(scaled).min(limits.high_max);
        }
        if order > Order::ZERO {
            return match scaled {
                ..=1 => scaled,
                _ => (scaled >> order.get()).max(2),
            };
        }
        // Leaves room in the list for a batch of pages that will be freed.
        let room = self
            .high
            .saturating_sub(count.saturating_add(batch))
            .max(batch);
        if scaled <= room && self.alloc_factor < BATCH_SCALE_MAX {
            self.alloc_factor += 1;
        }
        scaled.min(room)
    }

    /// Number of pages from which on lists that have `count` pages give some back to the zone.
    #[doc(alias = "nr_pcp_high")]
    pub fn nr_high(&mut self, limits: &Limits, count: u32, shortage: Shortage) -> u32 {
        let high = limits.clamp_high(self.high);
        let lowered = |pages| high.saturating_sub(pages).max(limits.high_min);
        let in_a_row = self.free_count.max(limits.batch);
        match shortage {
            Shortage::Reclaim => {
                self.high = lowered(in_a_row);
                self.high.min(limits.batch << 2)
            }
            _ if !limits.is_tuned() => high,
            Shortage::BelowHigh => {
                self.high = lowered(in_a_row);
                count.max(limits.high_min)
            }
            Shortage::None => {
                let needed = self.free_count + limits.batch;
                if count >= high && self.high < needed {
                    // Room for pages freed in a row, from the next time on.
                    self.high = limits.clamp_high(needed);
                }
                high
            }
        }
    }

    /// Number of pages to give back by lists that have at least `high`, the result of [`Tuning::nr_high`].
    #[doc(alias = "nr_pcp_free")]
    pub fn nr_free(&self, limits: &Limits, high: u32) -> u32 {
        if high < limits.batch {
            // A list this small is as good as none.
            return 1;
        }
        // A batch stays in the list for later allocations.
        let pages = self.free_count.max(limits.batch);
        pages.min(high - limits.batch).max(1)
    }

    /// Lowers `high` as time passes; returns the pages to give back by lists that have `count`. `None` if nothing is
    /// left to do.
    #[doc(alias = "decay_pcp_high")]
    pub fn decay(&mut self, limits: &Limits, count: u32) -> Option<u32> {
        let before = self.high;
        if before > limits.high_min {
            let eighth_less = before - before / 8;
            let within_reach = count.saturating_sub(limits.scaled_batch_max());
            self.high = within_reach.max(eighth_less).max(limits.high_min);
        }
        let surplus = count.saturating_sub(self.high);
        (self.high > limits.high_min || surplus > 0).then_some(surplus)
    }
}

#[cfg(test)]
mod tests;
