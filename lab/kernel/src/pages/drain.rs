//! Giving back pages that were not just freed: with time, or because they are wanted elsewhere.

use std::sync::atomic::Ordering;

use bursar_machine::pages::{Block, Order};
use bursar_machine::{Lock, Shard};
use bursar_rig::Tasks;

use super::lists::{CpuLists, List};
use super::pcp::{Guard, PageLists};
use super::policy::Cause;

impl<M: Tasks> PageLists<M> {
    /// Lowers the pages that the lists of a CPU keep, and gives back the surplus. Must be called at intervals. Returns
    /// whether there will be work at the next call.
    #[doc(alias = "decay_pcp_high")]
    pub fn decay(&self, shard: Shard) -> bool {
        let mut lists = self.lock_for_upkeep(shard);
        let count = lists.count;
        let Some(mut left) = lists.tuning.decay(&self.settings.limits, count) else {
            return false;
        };
        while left > 0 && lists.count > 0 {
            let pages = self.settings.piece(Cause::Decay, left);
            self.give_back_for_upkeep(Cause::Decay, shard, &mut lists, pages);
            left -= pages;
            if left > 0 {
                drop(lists);
                lists = self.lock_for_upkeep(shard);
            }
        }
        true
    }

    /// Gives all pages of a CPU's lists back, from any CPU.
    #[doc(alias = "drain_pages_zone")]
    pub fn drain_cpu(&self, shard: Shard) {
        loop {
            let mut lists = self.lock_for_upkeep(shard);
            let pages = self.settings.piece(Cause::Drain, lists.count);
            if pages == 0 {
                return;
            }
            self.give_back_for_upkeep(Cause::Drain, shard, &mut lists, pages);
            if lists.count == 0 {
                return;
            }
        }
    }

    /// Gives all pages of all CPUs' lists back.
    #[doc(alias = "drain_all_pages")]
    pub fn drain_all(&self) {
        let _one_at_a_time = self.draining.lock();
        for shard in self.shards() {
            self.drain_cpu(shard);
        }
    }

    /// Gives blocks back that are in no list, with the locks that a return from a CPU's lists takes: for a replay of
    /// returns that were seen. Ends early if `next` has none.
    pub fn give_back_seen(
        &self,
        cause: Cause,
        shard: Shard,
        blocks: u32,
        order: Order,
        mut next: impl FnMut() -> Option<Block>,
    ) {
        let mut left = blocks;
        while left > 0 {
            let lists = self.lock_for_upkeep(shard);
            let pages = left.saturating_mul(order.pages());
            let mut piece = (self.settings.piece(cause, pages) / order.pages()).clamp(1, left);
            left -= piece;
            let break_pages = self.settings.break_pages();
            self.zone.free_many(cause, break_pages, || {
                piece = piece.checked_sub(1)?;
                next()
            });
            drop(lists);
        }
    }

    /// Takes blocks out of the zone under one hold, as a refill of a CPU's lists does: for a replay of refills that were
    /// seen.
    pub fn take_seen(&self, order: Order, blocks: u32, got: impl FnMut(Block)) {
        self.zone.alloc_many(order, blocks, got);
    }

    fn lock_for_upkeep(&self, shard: Shard) -> Guard<'_, M> {
        self.try_lock(shard).unwrap_or_else(|| {
            let since_ns = self.zone.clock();
            let lists = self.lock(shard);
            self.note_wait(shard, self.zone.clock().saturating_sub(since_ns));
            lists
        })
    }

    fn give_back_for_upkeep(&self, cause: Cause, shard: Shard, lists: &mut CpuLists, pages: u32) {
        let waited_ns = self.give_back(cause, lists, List::FIRST, pages);
        self.note_wait(shard, waited_ns);
    }

    fn note_wait(&self, shard: Shard, waited_ns: u64) {
        // Relaxed: a tally orders nothing.
        let waited = &self.upkeep_waited_ns[shard.index()].0;
        waited.fetch_add(waited_ns, Ordering::Relaxed);
    }
}
