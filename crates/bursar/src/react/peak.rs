//! The report of the tree at a group's highest peak, for groups that were asked to keep one. It is made where watchers are told
//! ([`super::tell`]): after operations that changed usage, outside of all locks. Other groups pay nothing.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use bursar_machine::{Lock, Machine};

use super::core::Core;
use super::error::TreeReport;
use super::hooks::Peak;
use super::report::{self, LARGEST_MAX, RENEW_NS};
use super::{fork, listen, pressure};

/// Marks the end of making a report, also if that unwinds.
struct Renewal<'a, M: Machine>(&'a M::Mutex<Peak>);

impl<M: Machine> Drop for Renewal<'_, M> {
    fn drop(&mut self) {
        self.0.lock().is_renewed = false;
    }
}

/// Begins to keep reports. The caller calls [`look`] afterwards.
pub(crate) fn keep<M: Machine>(core: &Core<M>, index: u32) {
    // Relaxed: the caller's look sees the usage of a charge that misses this.
    listen::hooks(core, index)
        .peak_keepers
        .fetch_add(1, Ordering::Relaxed);
    pressure::watcher_comes(core, index);
}

/// Ends what [`keep`] began. The last report stays.
pub(crate) fn stop<M: Machine>(core: &Core<M>, index: u32) {
    pressure::watcher_goes(core, index);
    // Relaxed: a charge that misses this makes one report more.
    listen::hooks(core, index)
        .peak_keepers
        .fetch_sub(1, Ordering::Relaxed);
}

/// Makes a report if more bytes are reserved than in the last one, at most every 100 ms. The caller refers to the group.
pub(crate) fn look<M: Machine>(core: &Core<M>, index: u32) {
    let hooks = listen::hooks(core, index);
    // Relaxed: see `keep` and `stop`.
    if hooks.peak_keepers.load(Ordering::Relaxed) == 0 {
        return;
    }
    let reserved = core.counters.counter(index).reserved();
    let now_ns = core.tree().machine.now_ns();
    {
        let mut peak = hooks.peak.lock();
        if !peak.is_due(reserved, now_ns) {
            return;
        }
        peak.is_renewed = true;
    }
    // What is kept is the library's own, and so no group's that an allocator charges.
    let _operation = fork::operation(core);
    let renewal = Renewal::<M>(&hooks.peak);
    let children = report::largest_children(core, index, LARGEST_MAX);
    let made = Arc::new(report::around(core, index, children));
    hooks.peak.lock().put(made);
    drop(renewal);
}

/// The report at the highest peak so far, if the group was asked to keep one.
pub(crate) fn kept<M: Machine>(core: &Core<M>, index: u32) -> Option<Arc<TreeReport>> {
    listen::hooks(core, index).peak.lock().report.clone()
}

impl Peak {
    fn is_due(&self, reserved: u64, now_ns: u64) -> bool {
        let is_old = |made_ns: u64| now_ns.saturating_sub(made_ns) >= RENEW_NS;
        !self.is_renewed
            && reserved > self.report.as_deref().map_or(0, reserved_in)
            && self.made_ns.is_none_or(is_old)
    }

    /// Keeps the report, unless the peak was over before it was made.
    fn put(&mut self, made: Arc<TreeReport>) {
        self.made_ns = Some(made.made_ns);
        if reserved_in(&made) > self.report.as_deref().map_or(0, reserved_in) {
            self.report = Some(made);
        }
    }
}

fn reserved_in(report: &TreeReport) -> u64 {
    report.way.last().map_or(0, |group| group.reserved)
}
