//! Changing limits while everything runs.

use bursar_machine::{AtomicWord, Machine, MemoryOrder};

use super::core::Core;
use super::hooks::Reason;
use super::{fork, reclaim, tell};
use crate::limit::Limit;

/// Changes a group's `max`. When this returns, no stock below was reserved under a higher limit, and reclaimers were asked for
/// the excess.
pub(crate) fn set_max<M: Machine>(core: &Core<M>, index: u32, max: Limit) {
    if raise_max(core, index, max) {
        return tell::changed(core, index);
    }
    let operation = fork::operation(core);
    core.counters.lower_max(index, max);
    drop(operation);
    tell::changed(core, index);
    reclaim::down_to(core, index, Reason::Max, || {
        core.counters
            .counter(index)
            .settings
            .max
            .load(MemoryOrder::Full)
    });
}

/// Raises `max`, which needs no drain. `false` if the new limit is lower.
fn raise_max<M: Machine>(core: &Core<M>, index: u32, max: Limit) -> bool {
    let max_word = &core.counters.counter(index).settings.max;
    let mut seen = max_word.load(MemoryOrder::Full);
    while max >= seen {
        match max_word.compare_exchange(seen, max, MemoryOrder::Full) {
            Ok(_) => return true,
            Err(now) => seen = now,
        }
    }
    false
}

/// Changes `high`, and asks reclaimers for the excess.
pub(crate) fn set_high<M: Machine>(core: &Core<M>, index: u32, high: Limit) {
    core.counters.set_high(index, high);
    if core.counters.usage_now(index) > high {
        // Stock is in no use, so reclaimers are not asked for it.
        fork::drain(core, index);
    }
    tell::changed(core, index);
    reclaim::down_to(core, index, Reason::High, || {
        core.counters.limits(index).high
    });
}

pub(crate) fn set_low<M: Machine>(core: &Core<M>, index: u32, low: Limit) {
    core.counters
        .counter(index)
        .settings
        .low
        .store(low, MemoryOrder::Full);
}

pub(crate) fn set_min<M: Machine>(core: &Core<M>, index: u32, min: Limit) {
    core.counters
        .counter(index)
        .settings
        .min
        .store(min, MemoryOrder::Full);
}
