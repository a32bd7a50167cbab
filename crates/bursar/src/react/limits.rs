//! Limits while everything runs: changing them, and taking back much stock below one.

use bursar_machine::{AtomicWord, Machine, MemoryOrder};

use super::core::Core;
use super::hooks::Reason;
use super::lifetime::{self, Referred};
use super::{fork, reclaim, tell};
use crate::limit::Limit;
use crate::tree::ROOT;

/// Changes a group's `max`. When this returns, no stock below was reserved under a higher limit, and reclaimers were asked for
/// the excess.
pub(crate) fn set_max<M: Machine>(core: &Core<M>, index: u32, max: Limit) {
    set_max_by(core, index, |set| set(max));
}

/// The same, for a limit that other tasks set as well. `with_max` hands on what the limit is by now, and lets nobody else do that meanwhile. It is
/// called up to twice, the second time in a drain.
pub(crate) fn set_max_by<M: Machine>(
    core: &Core<M>,
    index: u32,
    with_max: impl Fn(&mut dyn FnMut(Limit)),
) {
    let mut is_raised = false;
    {
        // A lock of the caller's must not be held while the process forks.
        let _operation = fork::operation(core);
        with_max(&mut |max| is_raised = raise_max(core, index, max));
    }
    if is_raised {
        return tell::changed(core, index);
    }
    let operation = fork::operation(core);
    core.counters.lower_max(index, with_max);
    drop(operation);
    tell::changed(core, index);
    tell::in_vain(core, index);
    reclaim::down_to(core, index, Reason::Max, || {
        // Full: pairs with another call that sets the limit.
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
    // Full, both: pair with `lower_max` and other calls of this, and with the loads in `limit/counter.rs`.
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
    // Full: pairs with `Counters::limits`.
    core.counters
        .counter(index)
        .settings
        .low
        .store(low, MemoryOrder::Full);
}

pub(crate) fn set_min<M: Machine>(core: &Core<M>, index: u32, min: Limit) {
    // Full: pairs with `Counters::limits`.
    core.counters
        .counter(index)
        .settings
        .min
        .store(min, MemoryOrder::Full);
}

/// Takes stock back, once a flush period: all that is below a limit whose budget is spent, and all there is if a CPU may hold large stock.
/// Those that use it soon have it again.
pub(crate) fn trim<M: Machine>(core: &Core<M>) {
    let now_ns = core.tree().machine.now_ns();
    // Relaxed, both: hints. Another task that trims at the same time does it once more.
    if now_ns < core.trim_due_ns.load(MemoryOrder::Relaxed) {
        return;
    }
    let due_ns = now_ns.saturating_add(core.tree().flush_period_ns);
    core.trim_due_ns.store(due_ns, MemoryOrder::Relaxed);
    match core.counters.take_stock_news() {
        (_, true) => take_back(core, ROOT),
        (true, false) => trim_below(core, ROOT),
        (false, false) => {}
    }
}

/// [`trim`] for a charge that misses the stock: in a memory where no tick has trimmed for two periods.
pub(super) fn trim_if_late<M: Machine>(core: &Core<M>) {
    let now_ns = core.tree().machine.now_ns();
    let due_ns = core.trim_due_ns.load(MemoryOrder::Relaxed);
    let period_ns = core.tree().flush_period_ns;
    if due_ns == 0 {
        // Relaxed, all: as in `trim`.
        core.trim_due_ns
            .store(now_ns.saturating_add(period_ns), MemoryOrder::Relaxed);
    } else if now_ns >= due_ns.saturating_add(period_ns) {
        trim(core);
    }
}

fn take_back<M: Machine>(core: &Core<M>, index: u32) {
    fork::drain(core, index);
    tell::changed(core, index);
}

fn trim_below<M: Machine>(core: &Core<M>, index: u32) {
    let counter = core.counters.counter(index);
    if counter.stock_max() == 0 {
        return;
    }
    if counter.has_much_stock() {
        return take_back(core, index);
    }
    let mut below: Vec<Referred<'_, M>> = Vec::new();
    core.tree().for_each_child(index, |_, child| {
        if core.counters.counter(child).stock_max() != 0 {
            below.push(lifetime::referred(core, child));
        }
    });
    below.iter().for_each(|at| trim_below(core, at.index));
}
