//! State that users registered with a group: reclaimers, watchers of its pressure, and charges that wait for its limit. And the
//! report that its refusals show.
//!
//! Most groups have none of it, so it is made when first used. Only slow operations reach it, under short locks that are
//! leaves. Users' callbacks are called after these are released.

use std::sync::Arc;
use std::sync::atomic::AtomicU32;

use bursar_machine::{Lock, Machine};

use super::queue::Queue;
use super::reclaimers::Reclaimers;
use super::stall::StallClock;
use super::tree_report::TreeReport;
use super::watch::Watch;

pub(crate) struct Registered<M: Machine> {
    pub(super) reclaimers: M::Mutex<Reclaimers>,
    pub(super) watch: M::Mutex<Watch>,
    pub(super) queue: M::Mutex<Queue>,
    pub(super) lately: M::Mutex<Lately>,
    // As in `Core`: no protocol between CPUs.
    /// Registrations that ask for reports at peaks.
    pub(super) peak_keepers: AtomicU32,
    pub(super) peak: M::Mutex<Peak>,
    /// Made when a task first stalls or works.
    pub(super) stall: M::Mutex<Option<StallClock>>,
}

/// Names and usage in bytes, biggest first.
pub(crate) type Largest = Vec<(String, u64)>;

/// The list and the report that refusals of one group's limit show, until they are renewed.
#[derive(Default)]
pub(super) struct Lately {
    /// `None` if no refusal has made them yet.
    pub(super) made: Option<(Largest, Arc<TreeReport>)>,
    /// Whether a task makes new ones. Others use the old ones.
    pub(super) is_renewed: bool,
}

/// The report of the highest peak so far.
#[derive(Default)]
pub(super) struct Peak {
    pub(super) report: Option<Arc<TreeReport>>,
    /// When a report was last made, whether it was kept or not.
    pub(super) made_ns: Option<u64>,
    /// Whether a task makes one.
    pub(super) is_renewed: bool,
}

impl<M: Machine> Registered<M> {
    pub(super) fn new() -> Self {
        Self {
            reclaimers: M::Mutex::new(Reclaimers::default()),
            watch: M::Mutex::new(Watch::default()),
            queue: M::Mutex::new(Queue::default()),
            lately: M::Mutex::new(Lately::default()),
            peak_keepers: AtomicU32::new(0),
            peak: M::Mutex::new(Peak::default()),
            stall: M::Mutex::new(None),
        }
    }

    /// Puts them right in a forked child: keeps the registrations, and forgets tasks that are gone.
    pub(super) fn forget_tasks(&self, now_ns: u64) {
        self.watch.lock().forget_tasks();
        self.queue.lock().forget_tasks();
        // No task makes a new report.
        self.lately.lock().is_renewed = false;
        self.peak.lock().is_renewed = false;
        if let Some(stall) = &mut *self.stall.lock() {
            stall.forget_stalls(now_ns);
        }
    }

    /// Clears them for a new group in this record. The registrations have ended.
    pub(super) fn clear(&self) {
        *self.watch.lock() = Watch::default();
        *self.stall.lock() = None;
        *self.lately.lock() = Lately::default();
        *self.peak.lock() = Peak::default();
    }
}
