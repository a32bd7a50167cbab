//! Reports of the tree around a group. Making one costs as much as looking at the children of 17 groups.
//!
//! A group may be asked to keep the report of its highest peak. That report is made where watchers are told ([`super::tell`]): after
//! operations that changed usage, outside of all locks. Other groups pay nothing.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use bursar_machine::{AtomicWord, Lock, Machine, MemoryOrder};

use super::core::Core;
use super::error::{GroupState, TreeReport};
use super::hooks::Peak;
use super::{fork, lifetime, pressure};

/// Number of groups below the one that a report is about.
pub(super) const LARGEST_MAX: usize = 16;

/// Age from which a limit's refusals, and a group's peaks, look at the tree again, ns.
pub(super) const RENEW_NS: u64 = 100_000_000;

/// A living child of a group: bytes used, then name, so that among equals the first name is the bigger one.
pub(super) type Child = (u64, Reverse<String>, u32);

/// The biggest living children that use memory, biggest first. Looks at each child, a bounded number under each hold of the
/// group's lock.
pub(super) fn largest_children<M: Machine>(core: &Core<M>, index: u32, count: usize) -> Vec<Child> {
    let _operation = fork::operation(core);
    // The smallest of those kept is on top.
    let mut kept: BinaryHeap<Reverse<Child>> = BinaryHeap::new();
    core.tree().for_each_child(index, |name, child| {
        let usage = core.counters.usage(child);
        let is_smaller = kept.len() >= count
            && kept
                .peek()
                .is_none_or(|Reverse((least, Reverse(last), _))| {
                    (usage, Reverse(name)) <= (*least, Reverse(last.as_str()))
                });
        if usage == 0 || is_smaller {
            return;
        }
        kept.push(Reverse((usage, Reverse(name.to_owned()), child)));
        if kept.len() > count {
            kept.pop();
        }
    });
    let sorted = kept.into_sorted_vec();
    sorted.into_iter().map(|Reverse(child)| child).collect()
}

fn state<M: Machine>(core: &Core<M>, index: u32, path: String) -> GroupState {
    let counter = core.counters.counter(index);
    GroupState {
        path,
        limits: core.counters.limits(index),
        reserved: counter.reserved(),
        stock_max: counter.stock_max(),
        // Relaxed: a high-water mark for people.
        peak: counter.peak.load(MemoryOrder::Relaxed),
        refused: counter.events.own().refused,
        pressure: pressure::now(core, index).level,
    }
}

/// Makes a report around a group that the caller refers to. `children` are its biggest children.
pub(super) fn around<M: Machine>(core: &Core<M>, index: u32, children: Vec<Child>) -> TreeReport {
    let tree = core.tree();
    let mut way: Vec<u32> = tree.chain(index).collect();
    way.reverse();
    // A child of a group is no bigger than the group. So the biggest group that is not listed yet is a child of one that is.
    let mut next: BinaryHeap<Child> = BinaryHeap::new();
    let path = |parent: &str, name: String| match parent {
        "/" => format!("/{name}"),
        _ => format!("{parent}/{name}"),
    };
    let add = |next: &mut BinaryHeap<_>, parent: &str, children: Vec<Child>| {
        let paths = children
            .into_iter()
            .map(|(usage, Reverse(name), child)| (usage, Reverse(path(parent, name)), child));
        next.extend(paths);
    };
    add(&mut next, &tree.path(index), children);
    let mut largest = Vec::new();
    while largest.len() < LARGEST_MAX
        && let Some((_, Reverse(path), child)) = next.pop()
    {
        let found = state(core, child, path.clone());
        let left = LARGEST_MAX - largest.len() - 1;
        let below = largest_children(core, child, left);
        // Nobody here refers to it. A group that ended may have given its record to another one.
        if tree.path(child) == path && !tree.node(child).is_removed() {
            largest.push(found);
            add(&mut next, &path, below);
        }
    }
    // Parents before their children, and siblings together.
    largest.sort_by(|one, other| one.path.split('/').cmp(other.path.split('/')));
    TreeReport {
        made_ns: tree.machine.now_ns(),
        way: way
            .into_iter()
            .map(|at| state(core, at, tree.path(at)))
            .collect(),
        largest,
    }
}

/// Marks the end of making a report, also if that unwinds.
struct Renewal<'a, M: Machine>(&'a M::Mutex<Peak>);

impl<M: Machine> Drop for Renewal<'_, M> {
    fn drop(&mut self) {
        self.0.lock().is_renewed = false;
    }
}

/// Begins to keep reports. The caller calls [`look_at_peak`] afterwards.
pub(crate) fn keep_peak<M: Machine>(core: &Core<M>, index: u32) {
    // Relaxed: the caller's look sees the usage of a charge that misses this.
    lifetime::hooks(core, index)
        .peak_keepers
        .fetch_add(1, Ordering::Relaxed);
    pressure::watcher_comes(core, index);
}

/// Ends what [`keep_peak`] began. The last report stays.
pub(crate) fn stop_keeping_peak<M: Machine>(core: &Core<M>, index: u32) {
    pressure::watcher_goes(core, index);
    // Relaxed: a charge that misses this makes one report more.
    lifetime::hooks(core, index)
        .peak_keepers
        .fetch_sub(1, Ordering::Relaxed);
}

/// Makes a report if more bytes are reserved than in the last one, at most every 100 ms. The caller refers to the group.
pub(crate) fn look_at_peak<M: Machine>(core: &Core<M>, index: u32) {
    let hooks = lifetime::hooks(core, index);
    // Relaxed: see `keep_peak` and `stop_keeping_peak`.
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
    // The report is the library's own, so an allocator charges it to no group.
    let _operation = fork::operation(core);
    let renewal = Renewal::<M>(&hooks.peak);
    let children = largest_children(core, index, LARGEST_MAX);
    let made = Arc::new(around(core, index, children));
    hooks.peak.lock().put(made);
    drop(renewal);
}

/// The report at the highest peak so far, if the group was asked to keep one.
pub(crate) fn peak<M: Machine>(core: &Core<M>, index: u32) -> Option<Arc<TreeReport>> {
    lifetime::hooks(core, index).peak.lock().report.clone()
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Limits, Memory};

    #[test]
    fn a_peak_is_looked_at_ten_times_a_second_at_most() {
        let memory = Memory::host().unwrap();
        let group = memory.root().child("group", Limits::none()).unwrap();
        let _held = group.charge(1 << 20);
        let made = around(group.core(), group.index(), Vec::new());
        let reserved = reserved_in(&made);
        assert!(reserved >= 1 << 20);
        let mut peak = Peak::default();
        assert!(peak.is_due(1, 0), "there is none yet");
        assert!(!peak.is_due(0, 0));
        let began_ns = made.made_ns;
        peak.put(Arc::new(made));
        let later = began_ns + RENEW_NS;
        assert!(peak.is_due(reserved + 1, later));
        assert!(!peak.is_due(reserved + 1, later - 1));
        assert!(!peak.is_due(reserved, later));
        peak.is_renewed = true;
        assert!(!peak.is_due(reserved + 1, later));
    }
}
