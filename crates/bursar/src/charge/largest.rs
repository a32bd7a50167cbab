//! The biggest children of a group, in refusals and on request. Refusals may come by the hundred thousand a second.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::time::Duration;

use bursar_machine::{Lock, Machine};

use super::Ledger;

/// Number of children named in a refusal.
const IN_REFUSALS: usize = 5;
/// Age from which refusals look at all children again, ns.
const RENEW_NS: u64 = 100_000_000;

/// Names and usage in bytes, biggest first.
pub(crate) type Largest = Vec<(String, u64)>;

/// The list that refusals of one group's limit show, until it is renewed.
#[derive(Default)]
pub(super) struct Lately {
    list: Largest,
    /// When it was made; `None` if never.
    made_ns: Option<u64>,
    /// Whether a task makes a new list. Others use the old one.
    is_renewed: bool,
}

impl Lately {
    /// Puts it right in a forked child: no task makes a new list.
    pub(super) fn forget_tasks(&mut self) {
        self.is_renewed = false;
    }
}

impl<M: Machine> Ledger<M> {
    /// The usage of the biggest living children. Looks at each child, a bounded number under each hold of the group's lock.
    pub(crate) fn largest_children(&self, index: u32, count: usize) -> Largest {
        let _operation = self.operation();
        // The smallest of those kept is on top. Among equals the first name is the bigger one.
        let mut kept: BinaryHeap<Reverse<(u64, Reverse<String>)>> = BinaryHeap::new();
        self.tree.for_each_child(index, |name, child| {
            let usage = self.usage(child);
            let is_smaller = kept.len() >= count
                && kept.peek().is_none_or(|Reverse((least, Reverse(last)))| {
                    (usage, Reverse(name)) <= (*least, Reverse(last.as_str()))
                });
            if usage == 0 || is_smaller {
                return;
            }
            kept.push(Reverse((usage, Reverse(name.to_owned()))));
            if kept.len() > count {
                kept.pop();
            }
        });
        let sorted = kept.into_sorted_vec();
        let pairs = sorted
            .into_iter()
            .map(|Reverse((usage, Reverse(name)))| (name, usage));
        pairs.collect()
    }

    /// The biggest children at a recent moment, and the age of that list: at most 100 ms, and the time that one look at all
    /// children takes. One task at a time looks again. Only tasks that come before the first look has ended each look
    /// themselves.
    pub(super) fn largest_children_lately(&self, index: u32) -> (Largest, Duration) {
        let now_ns = self.tree.machine.now_ns();
        let lately = &self.hooks(index).largest;
        {
            let mut lately = lately.lock();
            if let Some(made_ns) = lately.made_ns {
                let age_ns = now_ns.saturating_sub(made_ns);
                if age_ns < RENEW_NS || lately.is_renewed {
                    return (lately.list.clone(), Duration::from_nanos(age_ns));
                }
                lately.is_renewed = true;
            }
        }
        let list = self.largest_children(index, IN_REFUSALS);
        let mut lately = lately.lock();
        lately.list.clone_from(&list);
        lately.made_ns = Some(now_ns);
        lately.is_renewed = false;
        (list, Duration::ZERO)
    }
}
