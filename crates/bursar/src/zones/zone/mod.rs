//! A zone: the pages of one node, from the buddy through the depot to the per-CPU lists.
//!
//! | tier | cost of a move | file |
//! |---|---|---|
//! | per-CPU list | one section, no lock | `lists.rs`, `refill.rs` |
//! | depot | a short lock for a batch | `depot.rs` |
//! | buddy | the zone lock, in slices of [`HoldBounds`] | here |

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use bursar_machine::pages::{Block, Frames, Order, Pfn, ReserveError, ReserveOptions, Span};
use bursar_machine::{Machine, OutOfMemory, Shard};

use crate::apart::Apart;

use super::buddy::{Buddy, SpareTable};
use super::depot::Depot;
use super::hold::{Hold, KnownLock, Timed, Work};
use super::last_upkeep::LastUpkeep;
use super::lists::Lists;
use super::options::{HoldBounds, PageOptions};
use super::sizes::{self, Watermarks};
use super::tuned::List;

/// Mark down to which an allocation may use free pages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Mark {
    /// The low watermark: the zone stays in good shape.
    Low,
    /// The min watermark: the pages kept for emergencies stay.
    Min,
    /// No mark: the allocation may take the last page.
    Reserve,
}

/// Pages of one node.
pub(crate) struct Zone<M: Machine> {
    pub(super) machine: M,
    /// The node.
    pub(super) node: usize,
    pub(crate) frames: M::Frames,
    pub(super) lists: Lists<M>,
    pub(super) depot: Depot<M>,
    buddy: Apart<KnownLock<M::Mutex<Timed<Buddy>>>>,
    hints: Apart<Hints>,
    pub(super) managed: u64,
    /// Number of CPUs of the node, at least one.
    pub(super) cpus: usize,
    pub(super) marks: Watermarks,
    pub(super) hold: HoldBounds,
    pub(super) upkeep: Apart<KnownLock<M::Mutex<Timed<LastUpkeep>>>>,
    pub(super) counts: Apart<Counts>,
}

/// Facts about the buddy that are written under its lock and read without it.
struct Hints {
    free_pages: AtomicU64,
    wants_table: AtomicBool,
}

/// Counts of a zone's events beside the fast paths. Plain words: no protocol depends on them.
#[derive(Default)]
pub(super) struct Counts {
    /// Pages taken one by one without a list, or many at a time.
    pub(super) slow_allocs: AtomicU64,
    /// Lists filled.
    pub(super) refills: AtomicU64,
    /// Lists that ran over.
    pub(super) spills: AtomicU64,
    /// Blocks taken off the lists of idle CPUs.
    pub(super) drained: AtomicU64,
    /// Allocations that found all zones empty and emptied all lists.
    pub(super) stalls: AtomicU64,
    /// Pages zeroed on request, or because another group had written there.
    pub(super) zeroed: AtomicU64,
    /// Pages whose memory went back to the system.
    pub(super) returned: AtomicU64,
}

impl Counts {
    pub(super) fn add(counter: &AtomicU64, count: u64) {
        if count > 0 {
            // Relaxed: a statistic.
            counter.fetch_add(count, Ordering::Relaxed);
        }
    }
}

/// Reason why a zone could not be made.
#[derive(Debug)]
pub(super) enum ZoneError {
    Reserve(ReserveError),
    OutOfMemory,
}

impl From<OutOfMemory> for ZoneError {
    fn from(_: OutOfMemory) -> Self {
        Self::OutOfMemory
    }
}

/// Reservation for a zone that is not made yet.
pub(super) type Reserved<M> = (<M as Machine>::Frames, Span);

type BuddyHold<'a, M> = Hold<'a, M, Buddy, <M as Machine>::Mutex<Timed<Buddy>>>;

impl<M: Machine> Zone<M> {
    /// Makes a zone. If the reservation is there and the rest fails, leaves it in `reserved` for the next call.
    pub(super) fn new(
        machine: &M,
        reserve: &ReserveOptions,
        options: &PageOptions,
        reserved: &mut Option<Reserved<M>>,
    ) -> Result<Self, ZoneError> {
        if reserved.is_none() {
            *reserved = Some(machine.reserve(reserve).map_err(ZoneError::Reserve)?);
        }
        let pages = reserved.as_ref().map(|(_, span)| span.pages());
        let managed = pages.expect("reserved");
        let of_node = |&cpu: &u32| machine.node_of(Shard(cpu)) == Some(reserve.node);
        let cpus = (0..machine.cpus() as u32).filter(of_node).count().max(1);
        let marks = options
            .watermarks
            .unwrap_or_else(|| Watermarks::of(managed, managed * machine.nodes() as u64));
        let batch = options.batch.unwrap_or_else(|| sizes::batch(managed));
        let high_min = sizes::high_min(marks.low, cpus, batch);
        let high_max = sizes::high_max(managed, cpus, batch);
        let of_list = |list: &super::ListOptions| List::new(*list, batch, high_min, high_max);
        let configured: Vec<List> = options.lists.iter().map(of_list).collect();
        let lists = Lists::new(machine, &configured)?;
        let sizes = lists.lists.iter().map(|list| list.batch as usize).collect();
        let (frames, span) = reserved.take().expect("reserved");
        Ok(Self {
            depot: Depot::new(
                machine.cpus(),
                options.cpus_per_shelf,
                options.shelf_batches,
                sizes,
            ),
            lists,
            machine: machine.clone(),
            node: reserve.node,
            hints: Apart(Hints {
                free_pages: AtomicU64::new(managed),
                wants_table: AtomicBool::new(true),
            }),
            buddy: Apart(KnownLock::new(Buddy::new(span, frames.first()))),
            frames,
            managed,
            cpus,
            marks,
            hold: options.hold,
            upkeep: Apart(KnownLock::new(LastUpkeep::new(machine.cpus() + 1))),
            counts: Apart(Counts::default()),
        })
    }

    pub(super) fn buddy(&self, work: Work) -> BuddyHold<'_, M> {
        self.buddy.lock(&self.machine, work)
    }

    pub(super) fn buddy_lock(&self) -> &KnownLock<M::Mutex<Timed<Buddy>>> {
        &self.buddy
    }

    /// Updates the hints at the end of a hold that changed the buddy.
    pub(super) fn note_free(&self, buddy: &Buddy) {
        // Relaxed: see `free_pages`.
        let pages = buddy.free_pages();
        self.hints.free_pages.store(pages, Ordering::Relaxed);
        let wants = buddy.wants_table();
        self.hints.wants_table.store(wants, Ordering::Relaxed);
    }

    /// Approximate number of free pages in the buddy.
    pub(super) fn free_pages(&self) -> u64 {
        // Relaxed: a hint; an allocation looks again under the lock.
        self.hints.free_pages.load(Ordering::Relaxed)
    }

    pub(super) fn mark_pages(&self, mark: Mark) -> u64 {
        match mark {
            Mark::Low => self.marks.low,
            Mark::Min => self.marks.min,
            Mark::Reserve => 0,
        }
    }

    /// Takes up to `count` blocks from the buddy under one hold, as long as `mark` allows, and appends them to
    /// `blocks`.
    ///
    /// Returns their number. It is less than `count` if there are no more, or if a bound of the hold is reached. A
    /// bound ends the hold after the first block at the earliest.
    pub(super) fn take(
        &self,
        order: Order,
        count: usize,
        mark: Mark,
        blocks: &mut Vec<Block>,
    ) -> usize {
        let pages = u64::from(order.pages());
        let least = self.mark_pages(mark).saturating_add(pages);
        // Below the low mark the hint is not exact enough: the pages that it missed may be all there are.
        if mark == Mark::Low && self.free_pages() < least {
            return 0;
        }
        if blocks.try_reserve(count).is_err() {
            return 0;
        }
        let mut buddy = self.buddy_with_table(Work::Alloc);
        let mut taken = 0;
        while taken < count && buddy.free_pages() >= least && !self.is_due(&buddy, taken) {
            let Some(block) = buddy.alloc(order) else {
                break;
            };
            self.machine.touch_frames(1);
            blocks.push(block);
            taken += 1;
        }
        self.note_free(&buddy);
        taken
    }

    /// Gives blocks to the buddy, in holds of bounded length.
    pub(super) fn give(&self, blocks: &mut Vec<Block>, work: Work) {
        let mut is_first = true;
        while !blocks.is_empty() {
            if !is_first && self.buddy.waiting() > 0 {
                // The lock is not fair: without this pause the waiters would wait for all our holds.
                self.machine.relax(bursar_machine::GIVE_WAY);
            }
            is_first = false;
            let mut buddy = self.buddy_with_table(work);
            let mut given = 0;
            while !self.is_due(&buddy, given)
                && let Some(block) = blocks.pop()
            {
                buddy.gave(block.order().pages());
                buddy.free(block);
                self.machine.touch_frames(1);
                given += 1;
            }
            self.note_free(&buddy);
        }
    }

    /// Gives one block to the buddy.
    pub(super) fn give_one(&self, block: Block, work: Work) {
        let mut buddy = self.buddy_with_table(work);
        buddy.gave(block.order().pages());
        buddy.free(block);
        self.machine.touch_frames(1);
        self.note_free(&buddy);
    }

    /// Locks the buddy. If the buddy wants a table, makes it before taking the lock.
    fn buddy_with_table(&self, work: Work) -> BuddyHold<'_, M> {
        // Relaxed: a hint. If it is wrong, a table is made in vain, or under the lock.
        let wants = self.hints.wants_table.load(Ordering::Relaxed);
        let table = wants.then(SpareTable::new).flatten();
        let mut buddy = self.buddy(work);
        drop(table.and_then(|table| buddy.add_table(table)));
        buddy
    }

    /// Returns whether a hold that has moved `moved` blocks is over.
    fn is_due(&self, buddy: &BuddyHold<'_, M>, moved: usize) -> bool {
        if moved == 0 {
            return false;
        }
        if !buddy.has_spare_table() {
            // The next block might need a table, and making one takes longer than a hold may.
            return true;
        }
        if moved >= self.hold.blocks as usize {
            return true;
        }
        // The clock is read for each block, because a block whose neighbours are in no cache takes as long as a hold
        // may. The estimate is that the next block takes as long as these did.
        let held_ns = buddy.held_ns();
        held_ns + held_ns / moved as u64 >= self.hold.ns
    }

    /// Returns whether a page belongs to this zone.
    pub(crate) fn contains(&self, pfn: Pfn) -> bool {
        let at = pfn.0.wrapping_sub(self.frames.first().0);
        u64::from(at) < self.managed
    }

    /// All shards of the machine.
    pub(super) fn shards(&self) -> impl Iterator<Item = Shard> + use<M> {
        (0..=self.machine.cpus() as u32).map(Shard)
    }
}

#[cfg(test)]
mod tests;
