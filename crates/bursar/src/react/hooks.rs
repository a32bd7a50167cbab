//! Hooks that users put into a group, as plain data: reclaimers, watchers of its pressure, and charges that wait for its limit. The
//! reports that its refusals and peaks show are here, too.
//!
//! Most groups have none of it, so it is made when first used. Only slow operations reach it, under short locks that are
//! leaves. Users' callbacks are called after these are released.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::AtomicU32;
use std::task::Waker;

use bursar_machine::{Lock, Machine};

use super::error::TreeReport;
use super::pressure_policy::{Level, Pressure};
use super::queue::Queue;
use super::stall::StallClock;

pub(crate) struct Hooks<M: Machine> {
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

/// List of children and report that refusals of one group's limit show, until both are renewed.
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
    /// Time of the last report, whether it was kept or not.
    pub(super) made_ns: Option<u64>,
    /// Whether a task makes one.
    pub(super) is_renewed: bool,
}

impl<M: Machine> Hooks<M> {
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
        // Wakers are left alone: their runtime's locks may stay taken.
        std::mem::forget(std::mem::take(&mut *self.queue.lock()));
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

/// Reason why a reclaimer is asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Reason {
    /// A charge left the usage above `high`, or `high` was set below the usage. Bytes that are not freed slow the charging task
    /// down, or become its debt.
    High,
    /// A charge does not fit below `max`, or `max` was set below the usage. Charges are refused if nothing is freed.
    Max,
    /// [`crate::Group::reclaim`].
    Asked,
}

/// Request to a reclaimer. One charge may ask several times, and several charges may ask at once.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct ReclaimRequest {
    /// Bytes wanted of this reclaimer in this call, at least 1. It may free more.
    pub target: u64,
    /// The reason.
    pub reason: Reason,
    /// The path of the group whose limit is in the way: the reclaimer's own group or one above it.
    pub scope: String,
}

/// A reclaimer.
pub(crate) type ReclaimFn = dyn Fn(&ReclaimRequest) -> u64 + Send + Sync;

pub(super) struct Reclaimer {
    pub(super) number: u64,
    pub(super) order: i32,
    pub(super) call: Arc<ReclaimFn>,
}

/// The reclaimers of one group, in the order in which they are asked.
#[derive(Default)]
pub(crate) struct Reclaimers {
    pub(super) list: Vec<Reclaimer>,
    pub(super) registered: u64,
}

/// A watcher of pressure.
pub(crate) type PressureFn = dyn Fn(Pressure) + Send + Sync;

pub(super) struct Subscriber {
    pub(super) number: u64,
    pub(super) call: Arc<PressureFn>,
    /// The level that it was last told; `None` if that is not known.
    pub(super) told: Option<Level>,
}

/// Condition that a task waits for.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Awaited {
    /// Another level than this.
    Not(Level),
    /// The end of the group, and of all that is charged to it.
    Emptied,
}

/// A task that waits.
pub(super) struct Waiting {
    pub(super) awaited: Awaited,
    pub(super) waker: Waker,
}

/// The watchers of one group.
#[derive(Default)]
pub(crate) struct Watch {
    pub(super) level: Level,
    pub(super) subscribers: Vec<Subscriber>,
    pub(super) waiting: BTreeMap<u64, Waiting>,
    pub(super) registered: u64,
    /// Whether a task calls subscribers. It looks again before it stops.
    pub(super) is_telling: bool,
}

impl Watch {
    /// Puts them right in a forked child. Wakers are left alone: their runtime's locks may stay taken.
    fn forget_tasks(&mut self) {
        if std::mem::take(&mut self.is_telling) {
            // A task that is gone may have noted a level without telling it.
            for subscriber in &mut self.subscribers {
                subscriber.told = None;
            }
        }
        std::mem::forget(std::mem::take(&mut self.waiting));
    }
}
