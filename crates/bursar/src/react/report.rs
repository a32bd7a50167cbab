//! Making a report of the tree around a group. It costs as much as looking at the children of 17 groups.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use bursar_machine::{AtomicWord, Machine, MemoryOrder};

use super::core::Core;
use super::error::{GroupState, TreeReport};
use super::{fork, pressure};

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
