//! Giving pages back that nobody has freed just now: with time, or because they are wanted elsewhere.

use bursar_machine::{Lock, Shard, Tasks};

use super::lists::List;
use super::pcp::PageLists;

impl<M: Tasks> PageLists<M> {
    /// Lowers what the lists of a CPU keep, and gives back what is above. To be called at intervals; whether there will be
    /// something left to do at the next.
    #[doc(alias = "decay_pcp_high")]
    pub fn decay(&self, shard: Shard) -> bool {
        let mut lists = self.lock(shard);
        let count = lists.count;
        let Some(mut left) = lists.tuning.decay(&self.settings.limits, count) else {
            return false;
        };
        while left > 0 && lists.count > 0 {
            let pages = self.settings.piece(left);
            self.give_back(&mut lists, List::FIRST, pages);
            left -= pages;
            if left > 0 {
                drop(lists);
                lists = self.lock(shard);
            }
        }
        true
    }

    /// Gives all pages of a CPU's lists back, from any CPU.
    #[doc(alias = "drain_pages_zone")]
    pub fn drain_cpu(&self, shard: Shard) {
        loop {
            let mut lists = self.lock(shard);
            let pages = lists.count.min(self.settings.drain_pages());
            if pages == 0 {
                return;
            }
            self.give_back(&mut lists, List::FIRST, pages);
            if lists.count == 0 {
                return;
            }
        }
    }

    /// The same of all CPUs.
    #[doc(alias = "drain_all_pages")]
    pub fn drain_all(&self) {
        let _one_at_a_time = self.draining.lock();
        for shard in self.shards() {
            self.drain_cpu(shard);
        }
    }
}
