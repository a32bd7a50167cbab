//! The errors of charges that are refused, and the report of the tree that goes with them. Refusals may come by the hundred thousand
//! a second, so they share a report for 100 ms.

use std::cmp::Reverse;
use std::sync::Arc;
use std::time::Duration;

use bursar_machine::{AtomicWord, Lock, Machine, MemoryOrder};

use super::core::Core;

use super::error::{ChargeError, LimitReached, TreeReport};
use super::hooks::{Largest, Lately};
use super::report::{self, Child, LARGEST_MAX, RENEW_NS};
use super::{fork, lifetime, trace};
use crate::limit::Event;

/// Number of children named in a refusal.
const IN_REFUSALS: usize = 5;
/// Number of refusals that a memory keeps.
const KEPT_MAX: usize = 16;

/// Reason why a charge is refused.
#[derive(Clone, Copy, Debug)]
pub(super) enum Refused {
    /// This group's limit, with all stock below it taken back, or smaller than the charge.
    By(u32),
    /// The group was removed.
    Removed,
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
    let reached = reached(core, index, limited, bytes);
    trace::refused(core, limited, &reached);
    ChargeError::LimitReached(Box::new(reached))
}

/// Makes the reason of a charge that waited for `limited` and was given up, and counts it.
pub(super) fn gave_up<M: Machine>(
    core: &Core<M>,
    index: u32,
    limited: u32,
    bytes: u64,
) -> ChargeError {
    core.counters.count(index, Event::GaveUp, 1);
    let reached = reached(core, index, limited, bytes);
    trace::gave_up(core, limited, &reached);
    ChargeError::LimitReached(Box::new(reached))
}

/// The limit in the way of a charge. It is kept if it has a new report.
fn reached<M: Machine>(core: &Core<M>, index: u32, limited: u32, bytes: u64) -> LimitReached {
    let (largest, report, largest_age, is_new) = lately(core, limited);
    let counter = core.counters.counter(limited);
    let reached = LimitReached {
        charged: core.tree().path(index),
        limited: core.tree().path(limited),
        requested: bytes,
        usage: counter.usage(MemoryOrder::Relaxed),
        max: counter.settings.max.load(MemoryOrder::Relaxed),
        largest,
        largest_age,
        report,
    };
    if is_new {
        let _operation = fork::operation(core);
        let mut kept = core.refusals.lock();
        if kept.len() == KEPT_MAX {
            kept.pop_front();
        }
        kept.push_back(reached.clone());
    }
    reached
}

/// The usage of the biggest living children. Looks at each child.
pub(crate) fn largest_children<M: Machine>(core: &Core<M>, index: u32, count: usize) -> Largest {
    named(&report::largest_children(core, index, count))
}

fn named(children: &[Child]) -> Largest {
    let named = |(usage, Reverse(name), _): &Child| (name.clone(), *usage);
    children.iter().map(named).collect()
}

/// Marks the end of making a report, also if that unwinds.
struct Renewal<'a, M: Machine>(&'a M::Mutex<Lately>);

impl<M: Machine> Drop for Renewal<'_, M> {
    fn drop(&mut self) {
        self.0.lock().is_renewed = false;
    }
}

/// The biggest children and the tree around a group at a recent moment, and the age of both: at most 100 ms, and the time that making
/// them takes. Also whether this call made them. One task at a time makes new ones. Only tasks that come before the first are
/// made each make their own.
fn lately<M: Machine>(core: &Core<M>, index: u32) -> (Largest, Arc<TreeReport>, Duration, bool) {
    let now_ns = core.tree().machine.now_ns();
    let lately = &lifetime::hooks(core, index).lately;
    {
        let mut lately = lately.lock();
        if let Some((list, report)) = &lately.made {
            let age_ns = now_ns.saturating_sub(report.made_ns);
            if age_ns < RENEW_NS || lately.is_renewed {
                let age = Duration::from_nanos(age_ns);
                return (list.clone(), report.clone(), age, false);
            }
        }
        lately.is_renewed = true;
    }
    // The list is the library's own, so an allocator charges it to no group.
    let _operation = fork::operation(core);
    let renewal = Renewal::<M>(lately);
    let children = report::largest_children(core, index, LARGEST_MAX);
    let mut list = named(&children);
    list.truncate(IN_REFUSALS);
    let report = Arc::new(report::around(core, index, children));
    lately.lock().made = Some((list.clone(), report.clone()));
    drop(renewal);
    (list, report, Duration::ZERO, true)
}

/// The tree around a group, and its age.
pub(crate) fn tree<M: Machine>(core: &Core<M>, index: u32) -> (Arc<TreeReport>, Duration) {
    let (_, report, age, _) = lately(core, index);
    (report, age)
}

/// The refusals that were kept, the oldest first, with their ages.
pub(crate) fn kept<M: Machine>(core: &Core<M>) -> Vec<(Duration, LimitReached)> {
    let _operation = fork::operation(core);
    let now_ns = core.tree().machine.now_ns();
    let age = |kept: &LimitReached| now_ns.saturating_sub(kept.report.made_ns);
    let kept = core.refusals.lock();
    kept.iter()
        .map(|refusal| (Duration::from_nanos(age(refusal)), refusal.clone()))
        .collect()
}
