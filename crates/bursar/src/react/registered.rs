//! State that users registered with a group: reclaimers, watchers of its pressure, and charges that wait for its limit. And the
//! text of its refusals.
//!
//! Most groups have none of it, so it is made when first used. Only slow operations reach it, under short locks that are
//! leaves. Users' callbacks are called after these are released.

use bursar_machine::{Lock, Machine};

use super::queue::Queue;
use super::reclaimers::Reclaimers;
use super::stall::StallClock;
use super::watch::Watch;

pub(crate) struct Registered<M: Machine> {
    pub(super) reclaimers: M::Mutex<Reclaimers>,
    pub(super) watch: M::Mutex<Watch>,
    pub(super) queue: M::Mutex<Queue>,
    pub(super) largest: M::Mutex<Lately>,
    /// Made when a task first stalls or works.
    pub(super) stall: M::Mutex<Option<StallClock>>,
}

/// Names and usage in bytes, biggest first.
pub(crate) type Largest = Vec<(String, u64)>;

/// The list that refusals of one group's limit show, until it is renewed.
#[derive(Default)]
pub(super) struct Lately {
    pub(super) list: Largest,
    /// When it was made; `None` if never.
    pub(super) made_ns: Option<u64>,
    /// Whether a task makes a new list. Others use the old one.
    pub(super) is_renewed: bool,
}

impl<M: Machine> Registered<M> {
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
        // No task makes a new list.
        self.largest.lock().is_renewed = false;
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
