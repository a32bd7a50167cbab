//! Tasks that stall, and tasks that are known to work, counted at a group and all above it.

use bursar_machine::{Lock, Machine};

use super::core::Core;
use super::listen;
use super::stall::StallClock;

/// A task that waits for memory, until dropped. The caller's hold on the group outlives it.
pub(super) struct Stalled<'a, M: Machine> {
    core: &'a Core<M>,
    index: u32,
    forks: u64,
}

impl<M: Machine> Drop for Stalled<'_, M> {
    fn drop(&mut self) {
        // A forked child has forgotten it.
        if self.forks == self.core.tree().machine.forks() {
            clock(self.core, self.index, StallClock::stall_ends);
        }
    }
}

/// Begins a stall of the calling task.
pub(super) fn stall<M: Machine>(core: &Core<M>, index: u32) -> Stalled<'_, M> {
    clock(core, index, StallClock::stall_begins);
    Stalled {
        core,
        index,
        forks: core.tree().machine.forks(),
    }
}

/// Begins the work of a task for the group. The caller refers to the group.
pub(crate) fn work_begins<M: Machine>(core: &Core<M>, index: u32) {
    clock(core, index, StallClock::work_begins);
}

pub(crate) fn work_ends<M: Machine>(core: &Core<M>, index: u32) {
    clock(core, index, StallClock::work_ends);
}

fn clock<M: Machine>(core: &Core<M>, index: u32, happens: fn(&mut StallClock, u64)) {
    for at in core.tree().chain(index) {
        let mut stall = listen::registered(core, at).stall.lock();
        // Under the lock, so that the clock gets its events in order.
        let now_ns = core.tree().machine.now_ns();
        happens(stall.get_or_insert_with(|| StallClock::new(now_ns)), now_ns);
    }
}
