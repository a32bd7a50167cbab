//! Allocations and frees.

use std::sync::atomic::{AtomicU64, Ordering};

use bursar::pages::parts::Shortage;
use bursar_machine::pages::{Block, Frames, Order, ReserveError, ReserveOptions};
use bursar_machine::{Lock, Machine, Shard};
use bursar_rig::Tasks;

use super::holds::HoldFigures;
use super::lists::{CpuLists, List};
use super::policy::{Cause, Settings};
use super::zone::{Reclaim, Zone};
use crate::Padded;

/// Blocks in each piece of a long list that is freed, each under one hold of the lists' lock.
#[doc(alias = "PAGEVEC_SIZE")]
const FOLIO_BATCH: usize = 31;

/// One zone of pages, and lists of free ones on each CPU.
pub struct PageLists<M: Tasks> {
    pub(super) machine: M,
    pub(super) settings: Settings,
    frames: M::Frames,
    pub(super) zone: Zone<M>,
    cpus: Vec<Padded<M::Spin<CpuLists>>>,
    /// Lock that allows one drain of all CPUs at a time.
    pub(super) draining: M::Mutex<()>,
    /// Times that upkeep of each CPU's lists has waited for locks.
    pub(super) upkeep_waited_ns: Vec<Padded<AtomicU64>>,
    tally: Tally,
}

pub(super) type Guard<'a, M> = <<M as Machine>::Spin<CpuLists> as Lock<CpuLists>>::Guard<'a>;

/// Numbers of events.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Number of times that lists were filled from the zone.
    pub refills: u64,
    /// Number of frees that returned pages to the zone, each in one or more batches.
    pub returns: u64,
    /// Allocations and frees that found the lists' lock taken and went to the zone.
    pub straight: u64,
    /// Returns that stopped half-way because another task had the lists' lock.
    pub lost: u64,
    /// Returns that stopped half-way because the task had moved to another CPU.
    pub moved: u64,
    /// Times that a return released the zone's lock half-way because another task waited for it.
    pub breaks: u64,
    /// Acquisitions of the zone's lock that waited.
    pub zone_waits: u64,
    /// Acquisitions of the locks of CPU lists that waited; those of allocations and frees never do.
    pub list_waits: u64,
}

/// Not words of the machine: counting costs no time there.
#[derive(Default)]
struct Tally {
    refills: AtomicU64,
    returns: AtomicU64,
    straight: AtomicU64,
    lost: AtomicU64,
    moved: AtomicU64,
}

/// Adds one. Relaxed: a tally orders nothing.
fn count(tally: &AtomicU64) {
    tally.fetch_add(1, Ordering::Relaxed);
}

impl<M: Tasks> PageLists<M> {
    /// Reserves a zone, with all pages free.
    ///
    /// # Errors
    /// The machine's error if it cannot.
    pub fn new(machine: &M, settings: Settings) -> Result<Self, ReserveError> {
        let (frames, span) = machine.reserve(&ReserveOptions::pages(settings.pages))?;
        let lists = |_| Padded(M::Spin::new(CpuLists::new(&settings.limits)));
        Ok(Self {
            zone: Zone::new(machine, &settings, span, frames.first()),
            cpus: (0..=machine.cpus()).map(lists).collect(),
            draining: M::Mutex::new(()),
            upkeep_waited_ns: (0..=machine.cpus()).map(|_| Padded::default()).collect(),
            tally: Tally::default(),
            machine: machine.clone(),
            settings,
            frames,
        })
    }

    /// Returns the memory behind the blocks.
    pub fn frames(&self) -> &M::Frames {
        &self.frames
    }

    /// Takes a block, from the current CPU's lists if its order has one and their lock is free.
    #[doc(alias = "rmqueue")]
    pub fn alloc(&self, order: Order) -> Option<Block> {
        let listed = List::of(order).and_then(|list| self.alloc_listed(list, order));
        listed.or_else(|| self.zone.alloc(order))
    }

    /// Takes up to `count` blocks of an order, from lists all under one hold of their lock. So a load has fewer steps: the
    /// kernel takes that lock for each block.
    pub fn alloc_run(&self, order: Order, count: usize, blocks: &mut Vec<Block>) {
        let wanted = blocks.len() + count;
        if let Some(list) = List::of(order)
            && let Some(mut lists) = self.try_lock(self.machine.current_shard())
        {
            let more = std::iter::from_fn(|| self.take(&mut lists, list, order));
            blocks.extend(more.take(count));
        }
        while blocks.len() < wanted
            && let Some(block) = self.alloc(order)
        {
            blocks.push(block);
        }
    }

    /// Puts a block back, onto the current CPU's lists if its order has one and their lock is free.
    #[doc(alias = "__free_frozen_pages")]
    pub fn free(&self, block: Block) {
        let Some(list) = List::of(block.order()) else {
            return self.zone.free(block);
        };
        let shard = self.machine.current_shard();
        match self.try_lock(shard) {
            Some(lists) => {
                let shortage = self.zone.shortage();
                drop(self.commit(shard, lists, list, block, shortage));
            }
            None => self.free_straight(block),
        }
    }

    /// Puts many blocks back.
    #[doc(alias = "free_unref_folios")]
    pub fn free_many(&self, blocks: impl IntoIterator<Item = Block>) {
        self.free_pieces(blocks, || None);
    }

    /// The same, with one look at the zone's shortage for each piece. So a load has fewer steps: the kernel looks for each
    /// block.
    pub fn free_run(&self, blocks: impl IntoIterator<Item = Block>) {
        self.free_pieces(blocks, || Some(self.zone.shortage()));
    }

    fn free_pieces(
        &self,
        blocks: impl IntoIterator<Item = Block>,
        shortage: impl Fn() -> Option<Shortage>,
    ) {
        let mut blocks = blocks.into_iter();
        loop {
            let piece: Vec<Block> = blocks.by_ref().take(FOLIO_BATCH).collect();
            if piece.is_empty() {
                return;
            }
            self.free_piece(piece, shortage());
        }
    }

    /// Returns the counts so far.
    pub fn counts(&self) -> Counts {
        // Relaxed: tallies order nothing.
        let read = |tally: &AtomicU64| tally.load(Ordering::Relaxed);
        Counts {
            refills: read(&self.tally.refills),
            returns: read(&self.tally.returns),
            straight: read(&self.tally.straight),
            lost: read(&self.tally.lost),
            moved: read(&self.tally.moved),
            breaks: self.zone.breaks(),
            zone_waits: self.zone.waits(),
            list_waits: self.cpus.iter().map(|lists| lists.0.waits()).sum(),
        }
    }

    /// Returns figures of the holds of the zone's lock so far.
    pub fn holds(&self) -> HoldFigures {
        self.zone.holds.figures()
    }

    /// Resets the figures of [`PageLists::holds`].
    pub fn forget_holds(&self) {
        self.zone.holds.forget();
    }

    /// Returns how long decay and drains of a CPU's lists have waited so far for their lock and the zone's,
    /// nanoseconds; 0 if holds are not timed.
    pub fn upkeep_waited_ns(&self, shard: Shard) -> u64 {
        // Relaxed: a tally orders nothing.
        self.upkeep_waited_ns[shard.index()]
            .0
            .load(Ordering::Relaxed)
    }

    /// Sets whether memory of the zone is being reclaimed from now on.
    pub fn set_reclaim(&self, reclaim: Reclaim) {
        self.zone.set_reclaim(reclaim);
    }

    /// Returns the free pages of the zone, without those in lists.
    pub fn zone_free_pages(&self) -> u64 {
        self.zone.look(|buddy| buddy.free_pages())
    }

    /// Returns the same as of a moment ago, at no cost.
    pub fn about_free_pages(&self) -> u64 {
        self.zone.free_pages()
    }

    /// Returns the free blocks of the zone, of exactly that order.
    pub fn zone_free_blocks(&self, order: Order) -> u64 {
        self.zone.look(|buddy| buddy.free_blocks(order))
    }

    /// Returns the number of all pages of the zone.
    pub fn managed_pages(&self) -> u64 {
        self.frames.pages()
    }

    /// Returns the number of pages in the lists of a CPU.
    pub fn listed_pages(&self, shard: Shard) -> u64 {
        u64::from(self.lock(shard).count)
    }

    /// Adds pages to the lists of a CPU, straight from the zone, and lets them keep as many.
    pub fn fill(&self, shard: Shard, pages: u32) {
        let mut lists = self.lock(shard);
        self.zone.alloc_many(Order::ZERO, pages, |block| {
            lists.refill(List::FIRST, block);
        });
        let limits = &self.settings.limits;
        lists.tuning.high = lists.count.clamp(limits.high_min, limits.high_max);
    }

    /// Returns the number of pages in the lists of all CPUs.
    pub fn all_listed_pages(&self) -> u64 {
        self.shards().map(|shard| self.listed_pages(shard)).sum()
    }

    /// Returns the number of pages that the lists of a CPU keep before they give any back.
    pub fn high(&self, shard: Shard) -> u64 {
        u64::from(self.lock(shard).tuning.high)
    }

    pub(super) fn lock(&self, shard: Shard) -> Guard<'_, M> {
        self.cpus[shard.index()].0.lock()
    }

    pub(super) fn try_lock(&self, shard: Shard) -> Option<Guard<'_, M>> {
        self.cpus[shard.index()].0.try_lock()
    }

    /// Returns the shards of all CPUs, and the extra one.
    pub(super) fn shards(&self) -> impl Iterator<Item = Shard> {
        (0..self.cpus.len() as u32).map(Shard)
    }

    #[doc(alias = "rmqueue_pcplist")]
    fn alloc_listed(&self, list: List, order: Order) -> Option<Block> {
        let Some(mut lists) = self.try_lock(self.machine.current_shard()) else {
            count(&self.tally.straight);
            return None;
        };
        self.take(&mut lists, list, order)
    }

    /// Takes a block from the lists of the current CPU, filled from the zone if need be.
    fn take(&self, lists: &mut CpuLists, list: List, order: Order) -> Option<Block> {
        lists.tuning.allocated();
        if lists.is_empty(list) {
            let shortage = self.zone.shortage();
            let limits = &self.settings.limits;
            let blocks = lists.tuning.nr_alloc(limits, order, lists.count, shortage);
            count(&self.tally.refills);
            self.zone
                .alloc_many(order, blocks, |block| lists.refill(list, block));
        }
        lists.pop(list)
    }

    fn free_straight(&self, block: Block) {
        count(&self.tally.straight);
        self.zone.free(block);
    }

    fn free_piece(&self, blocks: Vec<Block>, shortage: Option<Shortage>) {
        let mut listed = Vec::with_capacity(blocks.len());
        for block in blocks {
            match List::of(block.order()) {
                Some(list) => listed.push((list, block)),
                None => self.zone.free(block),
            }
        }
        let mut held = None;
        for (list, block) in listed {
            let (shard, lists) = match held.take() {
                Some((shard, lists)) => (shard, Some(lists)),
                // The first; or the lock was lost, and may be free again.
                None => {
                    let shard = self.machine.current_shard();
                    (shard, self.try_lock(shard))
                }
            };
            match lists {
                Some(lists) => {
                    let shortage = shortage.unwrap_or_else(|| self.zone.shortage());
                    let lists = self.commit(shard, lists, list, block, shortage);
                    held = lists.map(|lists| (shard, lists));
                }
                None => self.free_straight(block),
            }
        }
    }

    /// Puts a block into the lists of a CPU, and gives back the surplus. Returns the lock, unless it was lost on the
    /// way; then the rest stays in the lists.
    #[doc(alias = "free_frozen_page_commit")]
    fn commit<'a>(
        &'a self,
        shard: Shard,
        mut lists: Guard<'a, M>,
        list: List,
        block: Block,
        shortage: Shortage,
    ) -> Option<Guard<'a, M>> {
        let mut left = lists.push(list, block, &self.settings.limits, shortage);
        if left == 0 {
            return Some(lists);
        }
        count(&self.tally.returns);
        loop {
            let pages = self.settings.piece(Cause::Free, left);
            self.give_back(Cause::Free, &mut lists, list, pages);
            left -= pages;
            if left == 0 || lists.count == 0 {
                return Some(lists);
            }
            drop(lists);
            if self.machine.current_shard() != shard {
                count(&self.tally.moved);
                return None;
            }
            let Some(again) = self.try_lock(shard) else {
                count(&self.tally.lost);
                return None;
            };
            lists = again;
        }
    }

    /// Gives up to `pages` back to the zone, beginning with a list. Blocks are whole, so the last may exceed that.
    /// Returns how long it waited for the zone's lock, nanoseconds; 0 if holds are not timed.
    pub(super) fn give_back(
        &self,
        cause: Cause,
        lists: &mut CpuLists,
        first: List,
        pages: u32,
    ) -> u64 {
        let mut left = pages;
        let break_pages = self.settings.break_pages();
        self.zone.free_many(cause, break_pages, || {
            if left == 0 {
                return None;
            }
            let block = lists.pop_oldest(first)?;
            left = left.saturating_sub(block.order().pages());
            Some(block)
        })
    }
}
