//! The registrations of a group: reclaimers, watchers of its pressure, and charges that wait for its limit. And the text of its
//! refusals.
//!
//! Most groups have none of it, so it is made when first used. Only slow operations reach it, under short locks that are
//! leaves. Users' callbacks are called after these are released.

use bursar_machine::{Lock, Machine};

use super::Ledger;
use super::largest::Lately;
use super::pressure::Watch;
use super::reclaim::Reclaimers;
use super::stall::StallClock;
use super::waiting::Queue;

pub(crate) struct Hooks<M: Machine> {
    pub(super) reclaimers: M::Mutex<Reclaimers>,
    pub(super) watch: M::Mutex<Watch>,
    pub(super) queue: M::Mutex<Queue>,
    pub(super) largest: M::Mutex<Lately>,
    /// Made when a task first stalls or works.
    pub(super) stall: M::Mutex<Option<StallClock>>,
}

impl<M: Machine> Ledger<M> {
    /// State that users registered with a group.
    pub(super) fn hooks(&self, index: u32) -> &Hooks<M> {
        if let Some(hooks) = self.counter(index).hooks()
            && !self.is_forked()
        {
            return hooks;
        }
        // A fork must not leave them half made, and its child must wait for no task that is gone.
        let _operation = self.operation();
        self.counter(index).hooks_or_new()
    }
}

impl<M: Machine> Hooks<M> {
    pub(super) fn new() -> Self {
        Self {
            reclaimers: M::Mutex::new(Reclaimers::default()),
            watch: M::Mutex::new(Watch::default()),
            queue: M::Mutex::new(Queue::default()),
            largest: M::Mutex::new(Lately::default()),
            stall: M::Mutex::new(None),
        }
    }

    /// Puts them right in a forked child: keeps the registrations, and forgets tasks that are gone.
    pub(super) fn forget_tasks(&self, now_ns: u64) {
        self.watch.lock().forget_tasks();
        self.queue.lock().forget_tasks();
        self.largest.lock().forget_tasks();
        if let Some(stall) = &mut *self.stall.lock() {
            stall.forget_stalls(now_ns);
        }
    }

    /// Clears them for a new group in this record. The registrations have ended.
    pub(super) fn clear(&self) {
        *self.watch.lock() = Watch::default();
        *self.stall.lock() = None;
        *self.largest.lock() = Lately::default();
    }
}
