//! The errors of charges that are refused, and the biggest children of a group that they name. Refusals may come by the hundred thousand a second.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::time::Duration;

use bursar_machine::{AtomicWord, Lock, Machine, MemoryOrder};

use super::core::Core;
use super::error::{ChargeError, LimitReached};
use super::fork;
use super::listen;
use super::registered::Largest;
use crate::limit::{CHARGE_MAX, Event};

/// Number of children named in a refusal.
const IN_REFUSALS: usize = 5;
/// Age from which refusals look at all children again, ns.
const RENEW_NS: u64 = 100_000_000;

/// Reason why a charge is refused.
#[derive(Clone, Copy, Debug)]
pub(super) enum Refused {
    /// This group's limit, with all stock below it taken back.
    By(u32),
    /// The group was removed.
    Removed,
}

pub(super) fn check_size(bytes: u64) -> Result<(), ChargeError> {
    if bytes > CHARGE_MAX {
        return Err(ChargeError::TooLarge { requested: bytes });
    }
    Ok(())
}

/// Makes the error of a refused charge, and counts it.
pub(super) fn refuse<M: Machine>(
    core: &Core<M>,
    index: u32,
    refused: Refused,
    bytes: u64,
) -> ChargeError {
    let limited = match refused {
        Refused::By(limited) => limited,
        Refused::Removed => {
            return ChargeError::Removed {
                group: core.tree().path(index).into(),
            };
        }
    };
    core.counters.count(limited, Event::Refused, 1);
    let (largest, largest_age) = largest_children_lately(core, limited);
    let counter = core.counters.counter(limited);
    ChargeError::LimitReached(Box::new(LimitReached {
        charged: core.tree().path(index),
        limited: core.tree().path(limited),
        requested: bytes,
        usage: counter.usage(MemoryOrder::Relaxed),
        max: counter.settings.max.load(MemoryOrder::Relaxed),
        largest,
        largest_age,
    }))
}

/// The usage of the biggest living children. Looks at each child, a bounded number under each hold of the group's lock.
pub(crate) fn largest_children<M: Machine>(core: &Core<M>, index: u32, count: usize) -> Largest {
    let _operation = fork::operation(core);
    // The smallest of those kept is on top. Among equals the first name is the bigger one.
    let mut kept: BinaryHeap<Reverse<(u64, Reverse<String>)>> = BinaryHeap::new();
    core.tree().for_each_child(index, |name, child| {
        let usage = core.counters.usage(child);
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
fn largest_children_lately<M: Machine>(core: &Core<M>, index: u32) -> (Largest, Duration) {
    let now_ns = core.tree().machine.now_ns();
    let lately = &listen::registered(core, index).largest;
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
    let list = largest_children(core, index, IN_REFUSALS);
    let mut lately = lately.lock();
    lately.list.clone_from(&list);
    lately.made_ns = Some(now_ns);
    lately.is_renewed = false;
    (list, Duration::ZERO)
}
