//! Returning bytes past the fast path, and telling listeners.

use bursar_machine::{Machine, Outcome};

use super::core::Core;
use super::{fork, lifetime, tell};

/// Returns `bytes` of a charge. Call after the fast path gave `outcome`. Never fails. Waits only if the group returned too much. Calls wakers and callbacks.
#[cold]
pub(crate) fn uncharge<M: Machine>(core: &Core<M>, index: u32, bytes: u64, outcome: Outcome) {
    let told = || lifetime::listening_at(core, index);
    let take_stock = || {
        let kept = lifetime::referred(core, index);
        tell::take_stock(core, kept.index);
    };
    let past_stock = || {
        core.counters
            .uncharge_whole(index, None, bytes, take_stock, told)
    };
    let told = uncharge_telling(core, index, bytes, outcome, told, past_stock);
    tell::settle_over_returns(core);
    if let Some(Some(told)) = told {
        tell::changed(core, told.index);
    }
}

/// Does the same, but leaves it to later operations to tell listeners. Async-signal-safe.
#[cold]
pub(crate) fn uncharge_nowait<M: Machine>(
    core: &Core<M>,
    index: u32,
    bytes: u64,
    outcome: Outcome,
) {
    let told = || core.counters.mark_untold(index, None);
    let past_stock = || core.counters.uncharge_directly(index, bytes, told);
    uncharge_telling(core, index, bytes, outcome, told, past_stock);
}

/// Returns `bytes`. If that changed a usage, calls `tell` afterwards, while the group's record is certain to exist. So does
/// `past_stock`, which returns them to the counters.
fn uncharge_telling<M: Machine, R>(
    core: &Core<M>,
    index: u32,
    bytes: u64,
    outcome: Outcome,
    tell: impl Fn() -> R,
    past_stock: impl FnOnce() -> R,
) -> Option<R> {
    let counters = &core.counters;
    if counters.uncharge_published(index, bytes, outcome) {
        return None;
    }
    if fork::is_forked(core) {
        fork::defer(core, index, -(bytes as i64));
        counters.mark_untold(index, None);
        return None;
    }
    match counters.uncharge_near(index, bytes, &tell) {
        Some(told) => told,
        None => Some(past_stock()),
    }
}
