//! Charges and returns past the fast path that never wait, drain or allocate, and call nothing. All are async-signal-safe. They leave it
//! to the next operation that may wait to tell listeners.

use bursar_machine::{Machine, Outcome};

use super::core::Core;
use super::error::NowaitError;
use super::{fork, high};
use crate::limit::{CHARGE_MAX, Closed, StockNews, Way};

/// Charges `bytes` without waiting, draining or allocating. Call after the fast path gave `outcome`.
#[cold]
pub(crate) fn try_charge<M: Machine>(
    core: &Core<M>,
    index: u32,
    bytes: u64,
    outcome: Outcome,
) -> Result<(), NowaitError> {
    match core.counters.charge_published(index, bytes, outcome) {
        true => Ok(()),
        false => charge(core, index, bytes),
    }
}

fn charge<M: Machine>(core: &Core<M>, index: u32, bytes: u64) -> Result<(), NowaitError> {
    let counters = &core.counters;
    if bytes > CHARGE_MAX {
        return Err(NowaitError::TooLarge);
    }
    if fork::is_forked(core) {
        return Err(NowaitError::Busy);
    }
    let way = counters.way(index, None);
    let operation = counters.begin(&way);
    let _operation = operation.map_err(|Closed(_)| NowaitError::Busy)?;
    // Counted in first: either a removal waits for us, or we see it.
    if core.tree().node(index).is_removed() {
        return Err(NowaitError::Removed);
    }
    let ahead = counters.claim_ahead(&way, bytes);
    let ahead = ahead.map_err(|_| NowaitError::LimitReached)?;
    // A limit may be near, and a thread that only allocates never drains.
    if ahead == 0 {
        counters.note_stock(StockNews::Spent);
    }
    let reserved = counters.commit_charge(&way, bytes, ahead);
    high::owe_if_above(core, index, reserved);
    counters.mark_untold(index, None);
    Ok(())
}

/// Charges `bytes` whatever the limits say, without waiting, draining or allocating. Call after the fast path gave `outcome`.
/// Returns the bytes charged: fewer if the tree has no numbers for more.
#[cold]
pub(crate) fn charge_anyway<M: Machine>(
    core: &Core<M>,
    index: u32,
    bytes: u64,
    outcome: Outcome,
) -> u64 {
    if core.counters.charge_published(index, bytes, outcome) {
        return bytes;
    }
    let bytes = core.counters.chargeable(bytes);
    if bytes > 0 {
        overshoot(core, index, bytes);
    }
    bytes
}

/// Does the same for bytes that are in use, which no number is too large for.
#[cold]
pub(crate) fn count<M: Machine>(core: &Core<M>, index: u32, bytes: u64, outcome: Outcome) {
    if !core.counters.charge_published(index, bytes, outcome) {
        overshoot(core, index, bytes);
    }
}

fn overshoot<M: Machine>(core: &Core<M>, index: u32, bytes: u64) {
    debug_assert!(0 < bytes && bytes <= CHARGE_MAX);
    if charge(core, index, bytes).is_ok() {
        return;
    }
    let counters = &core.counters;
    if fork::is_forked(core) {
        fork::defer(core, index, bytes as i64);
        return counters.mark_untold(index, None);
    }
    // Counted in if the way is open. If it is closed, a task drains. It may be this very thread, below a signal handler, so do
    // not wait.
    let operation = counters.begin(&counters.way(index, None));
    if counters.claim_anyway(index, bytes).is_some() {
        // Takes the stock back if no drain did before.
        counters.note_stock(StockNews::Spent);
    }
    // Counted in first: either a removal waits for us, or we see it.
    counters.commit_anyway(index, bytes, operation.is_ok());
    high::owe_if_above(core, index, bytes);
    counters.mark_untold(index, None);
}

/// Returns `bytes` of a charge, and leaves it to later operations to tell listeners. Call after the fast path gave `outcome`.
#[cold]
pub(crate) fn uncharge<M: Machine>(core: &Core<M>, index: u32, bytes: u64, outcome: Outcome) {
    let told = || core.counters.mark_untold(index, None);
    let past_stock = |way: &Way<'_, M>| core.counters.uncharge_directly(way, bytes, told);
    uncharge_telling(core, index, bytes, outcome, told, past_stock);
}

/// Returns `bytes`. If that changed a usage, calls `tell` afterwards, while the group's record is certain to exist. So does
/// `past_stock`, which returns them to the counters.
pub(super) fn uncharge_telling<M: Machine, R>(
    core: &Core<M>,
    index: u32,
    bytes: u64,
    outcome: Outcome,
    tell: impl Fn() -> R,
    past_stock: impl FnOnce(&Way<'_, M>) -> R,
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
    let way = counters.way(index, None);
    match counters.uncharge_near(&way, bytes, &tell) {
        Some(told) => told,
        None => Some(past_stock(&way)),
    }
}
