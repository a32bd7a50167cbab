//! Periodic upkeep of records, stock and listeners.

use bursar_machine::{AtomicWord, Machine, MemoryOrder};

use super::core::Core;
use super::lifetime::{self, Referred};
use super::{fork, tell};
use crate::tree::ROOT;

/// Listed records that a tick looks at.
const REAPED: usize = 1024;

/// Ends records that nothing needs, takes back stock where a limit has much of it below, and tells listeners.
pub(crate) fn tick<M: Machine>(core: &Core<M>) {
    lifetime::reap(core, REAPED);
    trim(core);
    // Stall averages change with time alone.
    tell::all(core);
}

/// Takes stock back at a limit that has much of it below, if there is one, once a flush period.
fn trim<M: Machine>(core: &Core<M>) {
    let now_ns = core.tree().machine.now_ns();
    // Relaxed, both: hints. Another task that trims at the same time does it once more.
    if now_ns < core.trim_due_ns.load(MemoryOrder::Relaxed)
        || core.counters.much_stock.swap(0, MemoryOrder::Relaxed) == 0
    {
        return;
    }
    let due_ns = now_ns.saturating_add(core.tree().flush_period_ns);
    core.trim_due_ns.store(due_ns, MemoryOrder::Relaxed);
    trim_below(core, ROOT);
}

fn trim_below<M: Machine>(core: &Core<M>, index: u32) {
    let counter = core.counters.counter(index);
    if counter.stock_max() == 0 {
        return;
    }
    if counter.has_much_stock() {
        fork::drain(core, index);
        return tell::changed(core, index);
    }
    let mut below: Vec<Referred<'_, M>> = Vec::new();
    core.tree().for_each_child(index, |_, child| {
        if core.counters.counter(child).stock_max() != 0 {
            below.push(lifetime::referred(core, child));
        }
    });
    below.iter().for_each(|at| trim_below(core, at.index));
}
