//! The zone: a buddy allocator under one lock.

use std::sync::atomic::{AtomicU64, Ordering};

use bursar::pages::parts::{Buddy, Shortage};
use bursar_machine::pages::{Block, Order, Pfn, Span};
use bursar_machine::{AtomicWord, Lock, MemoryOrder};
use bursar_rig::Tasks;

use super::holds::{Held, Holds};
use super::policy::{Cause, Settings};
use crate::Padded;

const ABOVE_HIGH: u64 = 0;
const BELOW_HIGH: u64 = 1;

/// Whether memory of the zone is being reclaimed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[doc(alias = "ZONE_RECLAIM_ACTIVE")]
pub enum Reclaim {
    /// No.
    Idle = 0,
    /// Yes: CPU lists keep little.
    Active = 1,
}

pub(super) struct Zone<M: Tasks> {
    machine: M,
    high_watermark_pages: u64,
    page_ns: u64,
    buddy: Padded<M::Spin<Buddy>>,
    /// Number of tasks that found `buddy` locked and wait for it. Not a word of the machine: the kernel reads it off the
    /// lock.
    waiting: AtomicU64,
    /// Whether free pages are below the watermark. Written under `buddy` when it changes.
    mark: Padded<M::Word>,
    reclaim: Padded<M::Word>,
    /// Free pages when the last hold ended. Not a word of the machine either: the kernel counts them for other
    /// purposes.
    free_pages: AtomicU64,
    /// Times that a bulk free released the lock half-way. Not a word of the machine: counting costs no time.
    breaks: AtomicU64,
    pub(super) holds: Holds,
}

type Guard<'a, M> = <<M as bursar_machine::Machine>::Spin<Buddy> as Lock<Buddy>>::Guard<'a>;

/// The zone's lock, and the work done under it.
struct Hold<'a, M: Tasks> {
    zone: &'a Zone<M>,
    cause: Cause,
    buddy: Guard<'a, M>,
    waited_ns: u64,
    began_ns: u64,
    pages: u64,
    /// Blocks whose time has not passed yet.
    unpaid_blocks: u64,
}

impl<M: Tasks> Zone<M> {
    pub(super) fn new(machine: &M, settings: &Settings, span: Span, first: Pfn) -> Self {
        let buddy = Buddy::new(span, first);
        let mark = match buddy.free_pages() < settings.high_watermark_pages {
            true => BELOW_HIGH,
            false => ABOVE_HIGH,
        };
        let buddy_pages = buddy.free_pages();
        Self {
            high_watermark_pages: settings.high_watermark_pages,
            page_ns: settings.zone_page_ns,
            buddy: Padded(M::Spin::new(buddy)),
            waiting: AtomicU64::new(0),
            mark: Padded(M::Word::new(mark)),
            reclaim: Padded(M::Word::new(Reclaim::Idle as u64)),
            free_pages: AtomicU64::new(buddy_pages),
            breaks: AtomicU64::new(0),
            holds: Holds::new(settings.measured, machine.cpus() + 1),
            machine: machine.clone(),
        }
    }

    /// Takes one block.
    #[doc(alias = "rmqueue_buddy")]
    pub(super) fn alloc(&self, order: Order) -> Option<Block> {
        let mut hold = self.lock(Cause::Take);
        let block = hold.alloc(order);
        hold.end();
        block
    }

    /// Takes up to `blocks` under one hold.
    #[doc(alias = "rmqueue_bulk")]
    pub(super) fn alloc_many(&self, order: Order, blocks: u32, mut got: impl FnMut(Block)) {
        let mut hold = self.lock(Cause::Take);
        for _ in 0..blocks {
            let Some(block) = hold.alloc(order) else {
                break;
            };
            got(block);
        }
        hold.end();
    }

    /// Puts one block in.
    #[doc(alias = "free_one_page")]
    pub(super) fn free(&self, block: Block) {
        let mut hold = self.lock(Cause::Free);
        hold.free(block);
        hold.end();
    }

    /// Puts in the blocks that `next` returns. If `break_pages` is set, releases the lock after so many pages if
    /// another task waits. Returns how long it waited for the lock, nanoseconds; 0 if holds are not timed.
    #[doc(alias = "free_pcppages_bulk")]
    pub(super) fn free_many(
        &self,
        cause: Cause,
        break_pages: Option<u32>,
        mut next: impl FnMut() -> Option<Block>,
    ) -> u64 {
        let mut hold = self.lock(cause);
        let mut waited_ns = hold.waited_ns;
        let mut since_break = 0;
        while let Some(block) = next() {
            if break_pages.is_some_and(|pages| since_break >= pages) {
                since_break = 0;
                hold.pay();
                if self.is_wanted() {
                    hold.end();
                    // Relaxed: a tally orders nothing.
                    self.breaks.fetch_add(1, Ordering::Relaxed);
                    hold = self.lock(cause);
                    waited_ns += hold.waited_ns;
                }
            }
            since_break += block.order().pages();
            hold.free(block);
        }
        hold.end();
        waited_ns
    }

    /// Returns the shortage of the zone.
    pub(super) fn shortage(&self) -> Shortage {
        // Relaxed, both: advice on how much to keep, which may be a little old.
        if self.reclaim.0.load(MemoryOrder::Relaxed) == Reclaim::Active as u64 {
            Shortage::Reclaim
        } else if self.mark.0.load(MemoryOrder::Relaxed) == BELOW_HIGH {
            Shortage::BelowHigh
        } else {
            Shortage::None
        }
    }

    pub(super) fn set_reclaim(&self, reclaim: Reclaim) {
        // Relaxed: see `shortage`.
        self.reclaim.0.store(reclaim as u64, MemoryOrder::Relaxed);
    }

    /// Looks at the free blocks, under the lock.
    pub(super) fn look<R>(&self, look: impl FnOnce(&Buddy) -> R) -> R {
        look(&self.buddy.0.lock())
    }

    /// Returns the approximate number of free pages.
    #[doc(alias = "NR_FREE_PAGES")]
    pub(super) fn free_pages(&self) -> u64 {
        self.free_pages.load(Ordering::Relaxed)
    }

    /// Returns how many acquisitions of the lock waited.
    pub(super) fn waits(&self) -> u64 {
        self.buddy.0.waits()
    }

    /// Returns how often the lock was released half-way.
    pub(super) fn breaks(&self) -> u64 {
        self.breaks.load(Ordering::Relaxed)
    }

    #[doc(alias = "spin_is_contended")]
    fn is_wanted(&self) -> bool {
        // Relaxed: only a hint that releasing the lock would help a waiter.
        self.waiting.load(Ordering::Relaxed) > 0
    }

    fn lock(&self, cause: Cause) -> Hold<'_, M> {
        let mut waited_since_ns = None;
        let buddy = self.buddy.0.try_lock().unwrap_or_else(|| {
            waited_since_ns = Some(self.clock());
            // Relaxed: see `is_wanted`.
            self.waiting.fetch_add(1, Ordering::Relaxed);
            let buddy = self.buddy.0.lock();
            self.waiting.fetch_sub(1, Ordering::Relaxed);
            buddy
        });
        let began_ns = self.clock();
        Hold {
            zone: self,
            cause,
            buddy,
            waited_ns: waited_since_ns.map_or(0, |since_ns| began_ns.saturating_sub(since_ns)),
            began_ns,
            pages: 0,
            unpaid_blocks: 0,
        }
    }

    pub(super) fn clock(&self) -> u64 {
        match self.holds.are_timed() {
            true => self.machine.now_ns(),
            false => 0,
        }
    }

    fn set_mark(&self, free_pages: u64) {
        let mark = match free_pages < self.high_watermark_pages {
            true => BELOW_HIGH,
            false => ABOVE_HIGH,
        };
        // Relaxed, both: written under the lock; the look spares the line to its readers.
        if self.mark.0.load(MemoryOrder::Relaxed) != mark {
            self.mark.0.store(mark, MemoryOrder::Relaxed);
        }
    }
}

impl<M: Tasks> Hold<'_, M> {
    fn alloc(&mut self, order: Order) -> Option<Block> {
        let block = self.buddy.alloc(order)?;
        self.did(&block);
        Some(block)
    }

    fn free(&mut self, block: Block) {
        self.did(&block);
        self.buddy.free(block);
    }

    fn did(&mut self, block: &Block) {
        self.pages += u64::from(block.order().pages());
        self.unpaid_blocks += 1;
    }

    /// Lets the time of the work done so far pass.
    fn pay(&mut self) {
        // A block of several pages costs as much as a page, since none of them is touched.
        let blocks = std::mem::take(&mut self.unpaid_blocks);
        let zone = self.zone;
        zone.machine.compute(blocks * zone.page_ns);
    }

    fn end(mut self) {
        self.pay();
        let free_pages = self.buddy.free_pages();
        self.zone.set_mark(free_pages);
        // Relaxed: a tally.
        self.zone.free_pages.store(free_pages, Ordering::Relaxed);
        let zone = self.zone;
        drop(self.buddy);
        let held = Held {
            cause: self.cause,
            pages: self.pages,
            waited_ns: self.waited_ns,
            held_ns: zone.clock().saturating_sub(self.began_ns),
        };
        zone.holds.note(zone.machine.current_shard().index(), held);
    }
}
