//! How a per-CPU list adapts to its CPU: how many blocks it takes from the zone, how many pages it keeps, how many it gives
//! back.
//!
//! The kernel's rules (`mm/page_alloc.c`, 7.3) as functions of plain values; the fields are those of its `per_cpu_pages`.
//! A list that runs empty again and again takes twice as much each time and may keep more; one that only ever gets pages gives
//! back more at a time; what is kept shrinks when the zone is short of memory, and slowly when nothing happens.
//!
//! All pages of a CPU count together, whatever the order of their blocks.
//!
//! | here | kernel | called |
//! |---|---|---|
//! | [`Tuning::allocated`], [`Tuning::nr_alloc`] | `rmqueue_pcplist()`, `nr_pcp_alloc()` | by each allocation; when the list is empty |
//! | [`Tuning::freed`], [`Tuning::nr_high`], [`Tuning::nr_free`] | `free_frozen_page_commit()`, `nr_pcp_high()`, `nr_pcp_free()` | by each free; if the list is full |
//! | [`Tuning::decay`] | `decay_pcp_high()` | at intervals |
//!
//! # Where this differs
//! The kernel has two independent flags for "below its high watermark" and "being reclaimed"; [`Shortage`] has three values, and
//! a zone that is being reclaimed is below its watermark here.

use bursar_machine::pages::Order;

/// A batch grows by at most so many doublings.
#[doc(alias = "CONFIG_PCP_BATCH_SCALE_MAX")]
pub const BATCH_SCALE_MAX: u8 = 5;
/// Blocks up to this order count as often needed.
#[doc(alias = "PAGE_ALLOC_COSTLY_ORDER")]
pub const COSTLY_ORDER: u8 = 3;

/// What a CPU's lists may hold. Pages, all of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Moved at once; see [`super::sizes::batch`].
    pub batch: u32,
    /// Always allowed; see [`super::sizes::high_min`].
    pub high_min: u32,
    /// Never exceeded; see [`super::sizes::high_max`]. The same as `high_min` turns tuning off.
    pub high_max: u32,
    /// How much of the CPU's cache there is for what is freed and allocated again.
    pub slice: CacheSlice,
}

/// A CPU's share of its data cache.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CacheSlice {
    /// Little: blocks that others will allocate had better go to the zone at once.
    Small,
    /// More than three batches: they wait until there is a batch of pages.
    #[doc(alias = "PCPF_FREE_HIGH_BATCH")]
    Large,
}

/// How short a zone is of free pages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shortage {
    /// Not: at or above its high watermark.
    None,
    /// Somebody has allocated and found it below its high watermark.
    #[doc(alias = "ZONE_BELOW_HIGH")]
    BelowHigh,
    /// Its memory is being reclaimed.
    #[doc(alias = "ZONE_RECLAIM_ACTIVE")]
    Reclaim,
}

/// What the next return to the zone is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Return {
    /// What is above the limit.
    Surplus,
    /// Everything, as far as one return may go: blocks of several pages are freed here one after the other, and allocated
    /// elsewhere.
    #[doc(alias = "free_high")]
    All,
}

/// Of what size a block was.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Size {
    Other,
    /// Several pages, up to [`COSTLY_ORDER`].
    Several,
}

/// The state of one CPU's lists, apart from the blocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tuning {
    /// Pages kept before any are given back.
    pub high: u32,
    /// The next refill is a batch doubled so many times.
    pub alloc_factor: u8,
    /// Pages freed in a row, halved with each allocation.
    pub free_count: u32,
    #[doc(alias = "PCPF_PREV_FREE_HIGH_ORDER")]
    previous_free: Size,
}

impl Limits {
    /// The most that is moved under one hold of the zone's lock before 6.19: 2,016 pages.
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
    /// Of lists that were never used.
    pub const fn new(limits: &Limits) -> Self {
        Self {
            high: limits.high_min,
            alloc_factor: 0,
            free_count: 0,
            previous_free: Size::Other,
        }
    }

    /// Something is being allocated.
    pub fn allocated(&mut self) {
        self.free_count >>= 1;
    }

    /// Blocks of that order to take from the zone, since there are none left and `count` pages of other orders.
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
            // As good as no list.
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
            // With a larger list it would not have come to this. Without tuning it is as large as it gets.
            self.high = self.high.saturating_add(scaled).min(limits.high_max);
        }
        if order > Order::ZERO {
            return match scaled {
                ..=1 => scaled,
                _ => (scaled >> order.get()).max(2),
            };
        }
        // A batch of room is left for what will be freed.
        let room = self
            .high
            .saturating_sub(count.saturating_add(batch))
            .max(batch);
        if scaled <= room && self.alloc_factor < BATCH_SCALE_MAX {
            self.alloc_factor += 1;
        }
        scaled.min(room)
    }

    /// A block of that order is being freed, and with it the lists have `count` pages. What the return is for, if there is one.
    pub fn freed(&mut self, limits: &Limits, order: Order, count: u32) -> Return {
        self.alloc_factor >>= 1;
        let size = match order.get() {
            1..=COSTLY_ORDER => Size::Several,
            _ => Size::Other,
        };
        let previous = core::mem::replace(&mut self.previous_free, size);
        let is_in_a_row = (previous, size) == (Size::Several, Size::Several)
            && self.free_count >= limits.batch + limits.high_min / 2;
        let is_cached = limits.slice == CacheSlice::Large && count < limits.batch;
        let freed = self.free_count.saturating_add(order.pages());
        self.free_count = freed.min(limits.scaled_batch_max());
        match is_in_a_row && !is_cached {
            true => Return::All,
            false => Return::Surplus,
        }
    }

    /// Pages with which the lists, which have `count`, are so full that some go back to the zone.
    #[doc(alias = "nr_pcp_high")]
    pub fn nr_high(
        &mut self,
        limits: &Limits,
        count: u32,
        shortage: Shortage,
        purpose: Return,
    ) -> u32 {
        let high = limits.clamp_high(self.high);
        let lowered = |pages| high.saturating_sub(pages).max(limits.high_min);
        if purpose == Return::All {
            self.high = lowered(limits.scaled_batch_max());
            return 0;
        }
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
                    // Room for what is freed in a row, from the next time on.
                    self.high = limits.clamp_high(needed);
                }
                high
            }
        }
    }

    /// Pages to give back by lists that have `count`, which is at least `high`, the result of [`Tuning::nr_high`].
    #[doc(alias = "nr_pcp_free")]
    pub fn nr_free(&self, limits: &Limits, count: u32, high: u32, purpose: Return) -> u32 {
        if purpose == Return::All {
            return count.min(limits.scaled_batch_max());
        }
        if high < limits.batch {
            // As good as no list.
            return 1;
        }
        // A batch stays for what will be allocated.
        let pages = self.free_count.max(limits.batch);
        pages.min(high - limits.batch).max(1)
    }

    /// Lowers what is kept, as time passes; pages to give back by lists that have `count`. `None` if neither is left to do.
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
