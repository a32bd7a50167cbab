//! Tasks that stall, and tasks that are known to work, counted at a group and all above it.

use bursar_machine::{Lock, Machine};

use super::Ledger;
use super::stall::StallClock;

/// A task that waits for memory, until dropped. The caller's hold on the group outlives it.
pub(super) struct Stalled<'a, M: Machine> {
    ledger: &'a Ledger<M>,
    index: u32,
    forks: u64,
}

impl<M: Machine> Drop for Stalled<'_, M> {
    fn drop(&mut self) {
        // A forked child has forgotten it.
        if self.forks == self.ledger.tree.machine.forks() {
            self.ledger.clock(self.index, StallClock::stall_ends);
        }
    }
}

impl<M: Machine> Ledger<M> {
    /// Begins a stall of the calling task.
    pub(super) fn stall(&self, index: u32) -> Stalled<'_, M> {
        self.clock(index, StallClock::stall_begins);
        Stalled {
            ledger: self,
            index,
            forks: self.tree.machine.forks(),
        }
    }

    /// Begins the work of a task for the group. The caller refers to the group.
    pub(crate) fn work_begins(&self, index: u32) {
        self.clock(index, StallClock::work_begins);
    }

    pub(crate) fn work_ends(&self, index: u32) {
        self.clock(index, StallClock::work_ends);
    }

    fn clock(&self, index: u32, happens: fn(&mut StallClock, u64)) {
        for at in self.tree.chain(index) {
            let mut stall = self.hooks(at).stall.lock();
            // Under the lock, so that the clock gets its events in order.
            let now_ns = self.tree.machine.now_ns();
            happens(stall.get_or_insert_with(|| StallClock::new(now_ns)), now_ns);
        }
    }
}
