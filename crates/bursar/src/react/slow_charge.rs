//! Charging and returning past the fast path. One loop turns the answers of [`crate::limit`] into the next step: drain the group in the way, ask
//! its reclaimers, queue, or refuse. A charge that succeeds tells listeners and pays for a `high`.

use std::task::{Poll, Waker};

use bursar_machine::{Machine, Outcome};

use super::core::Core;
use super::core::HighPolicy;
use super::error::ChargeError;
use super::lifetime::Referred;
use super::reclaim::{RECLAIM_TRIES, Round};
use super::refusal::{self, Refused};
use super::wait::{self, Pass, Ticket};
use super::{fork, high, lifetime, limits, nowait, reclaim, tell, trace};
use crate::limit::{CHARGE_MAX, Event, Refusal, Short, StockNews, Way};

/// Next step of a charge that is neither made nor refused yet.
enum Next {
    /// Look whether it is the charge's turn.
    Turn,
    /// Reserve along the way to the root.
    Try,
    /// Take back the stock below this group, whose limit is in the way, and try again.
    Drain(u32),
    /// Ask the reclaimers of this group, whose limit is in the way with all stock taken back.
    Reclaim(u32),
    /// Enter the queue of this group.
    Queue(u32),
    Refuse(Refused),
}

/// Conduct of a charge where a limit stays in the way.
enum Otherwise<'a> {
    /// Asks reclaimers, as long as that helps and at most so many times more. Then it is refused.
    Refuse { tries: u32 },
    /// Enters the queue, and asks reclaimers once for each poll.
    Queue {
        ticket: &'a mut Ticket,
        waker: &'a Waker,
        has_asked: bool,
    },
}

/// Charges `bytes` along the way from `index` up to `end`, and does `then` in the same operation. Returns the bytes reserved.
fn charge<M: Machine, R>(
    core: &Core<M>,
    (index, end): (u32, Option<u32>),
    bytes: u64,
    mut otherwise: Otherwise<'_>,
    then: impl FnOnce() -> R,
) -> Poll<Result<(u64, R), Refused>> {
    // Dropped after the operation, because it wakes others.
    let mut pass: Option<Pass<'_, M>> = None;
    let mut operation: Option<M::Operation> = None;
    let mut has_drained = false;
    let mut next = Next::Turn;
    loop {
        next = match next {
            Next::Turn => {
                operation = None;
                pass = None;
                match &otherwise {
                    Otherwise::Refuse { .. } => Next::Try,
                    Otherwise::Queue { ticket, .. } => match turn(core, ticket) {
                        Ok(granted) => {
                            pass = Some(granted);
                            Next::Try
                        }
                        Err(Next::Queue(at)) if ticket.queued_at == Some(at) => {
                            return Poll::Pending;
                        }
                        Err(next) => next,
                    },
                }
            }
            Next::Try => {
                operation.get_or_insert_with(|| fork::operation(core));
                match core.counters.charge_with_stock(index, end, bytes) {
                    Ok(reserved) => {
                        grant(&mut pass);
                        return Poll::Ready(Ok((reserved, then())));
                    }
                    // Looked at only here, because a charge that fits needs no look.
                    Err(Short::At(at)) => match never_fits(core, (index, end), bytes) {
                        Some(limited) => Next::Refuse(Refused::By(limited)),
                        None => Next::Drain(at),
                    },
                    Err(Short::Removed) => Next::Refuse(Refused::Removed),
                }
            }
            Next::Drain(at) => {
                has_drained = true;
                match core.counters.charge_drained(at, index, end, bytes) {
                    Ok(()) => {
                        grant(&mut pass);
                        return Poll::Ready(Ok((bytes, then())));
                    }
                    // Another limit is in the way now.
                    Err(Refusal::Elsewhere) => Next::Try,
                    Err(Refusal::Removed) => Next::Refuse(Refused::Removed),
                    // A return that was put off may make the room.
                    Err(Refusal::By(_)) if core.counters.has_over_returned() => {
                        operation = None;
                        pass = None;
                        tell::changed(core, index);
                        Next::Turn
                    }
                    Err(Refusal::By(at)) => match &otherwise {
                        Otherwise::Queue { ticket, .. } if ticket.queued_at != Some(at) => {
                            Next::Queue(at)
                        }
                        _ => Next::Reclaim(at),
                    },
                }
            }
            Next::Reclaim(at) => {
                operation = None;
                pass = None;
                match &mut otherwise {
                    Otherwise::Refuse { tries } => {
                        // First: stock was taken back.
                        if !core.counters.is_unobserved() {
                            tell::changed(core, index);
                        }
                        if *tries == 0 {
                            return Poll::Ready(Err(Refused::By(at)));
                        }
                        let round = match reclaim::may_make_room(core, at, bytes) {
                            true => reclaim::for_charge(core, index, at, bytes),
                            false => Round::default(),
                        };
                        if !round.asked {
                            return Poll::Ready(Err(Refused::By(at)));
                        }
                        // Tries once more in any case, because the bytes that were freed count, not the number returned.
                        // Reclaimers that freed nothing are not asked again.
                        *tries = if round.freed == 0 { 0 } else { *tries - 1 };
                        Next::Try
                    }
                    Otherwise::Queue { has_asked, .. } => {
                        if *has_asked || !reclaim::for_charge(core, index, at, bytes).asked {
                            return Poll::Pending;
                        }
                        *has_asked = true;
                        Next::Turn
                    }
                }
            }
            Next::Queue(at) => {
                operation = None;
                pass = None;
                let Otherwise::Queue { ticket, waker, .. } = &mut otherwise else {
                    unreachable!("only a charge with a ticket queues");
                };
                // A charge ahead that leaves wakes us. It may leave before we enter, so look again.
                wait::enqueue(core, ticket, at, waker);
                Next::Turn
            }
            Next::Refuse(refused) => {
                drop(operation);
                if let Otherwise::Refuse { .. } = otherwise
                    && has_drained
                {
                    tell::changed(core, index);
                }
                return Poll::Ready(Err(refused));
            }
        }
    }
}

fn grant<M: Machine>(pass: &mut Option<Pass<'_, M>>) {
    if let Some(pass) = pass {
        pass.is_granted = true;
    }
}

fn check_size(bytes: u64) -> Result<(), ChargeError> {
    if bytes > CHARGE_MAX {
        return Err(ChargeError::TooLarge { requested: bytes });
    }
    Ok(())
}

/// Leave of a queued charge to try. Otherwise the next step: it is refused if waiting is in vain, and else queues.
fn turn<'a, M: Machine>(core: &'a Core<M>, ticket: &Ticket) -> Result<Pass<'a, M>, Next> {
    match in_vain(core, ticket) {
        Some(refused) => Err(Next::Refuse(refused)),
        None => wait::may_try(core, ticket).map_err(Next::Queue),
    }
}

/// Reason why a charge need not wait: its group was removed, or a limit is smaller.
fn in_vain<M: Machine>(core: &Core<M>, ticket: &Ticket) -> Option<Refused> {
    if core.tree().node(ticket.index).is_removed() {
        return Some(Refused::Removed);
    }
    never_fits(core, (ticket.index, None), ticket.bytes).map(Refused::By)
}

/// The group on the way whose limit is smaller than a charge, which counts there.
fn never_fits<M: Machine>(core: &Core<M>, way: (u32, Option<u32>), bytes: u64) -> Option<u32> {
    let limited = core.counters.never_fits(way, bytes)?;
    core.counters.count(limited, Event::Max, 1);
    Some(limited)
}

/// [`charge`] that does not queue.
fn charge_or_refuse<M: Machine, R>(
    core: &Core<M>,
    way: (u32, Option<u32>),
    bytes: u64,
    then: impl FnOnce() -> R,
) -> Result<(u64, R), Refused> {
    let tries = RECLAIM_TRIES;
    match charge(core, way, bytes, Otherwise::Refuse { tries }, then) {
        Poll::Ready(charged) => charged,
        Poll::Pending => unreachable!("it does not queue"),
    }
}

/// Bytes that are charged and not handed over yet. Returns them on drop: a reclaimer may panic, and then the charge unwinds.
#[must_use]
struct Unheld<'a, M: Machine> {
    core: &'a Core<M>,
    index: u32,
    bytes: u64,
}

impl<M: Machine> Drop for Unheld<'_, M> {
    fn drop(&mut self) {
        let counters = &self.core.counters;
        // Calls no listeners, because it unwinds.
        counters.uncharge_directly(&counters.way(self.index, None), self.bytes, || {
            counters.mark_untold(self.index, None);
        });
    }
}

/// Tells listeners of a charge that reserved `reserved`, and pays for a `high`. Returns the `bytes` charged if a callback
/// unwinds.
fn settle<M: Machine>(core: &Core<M>, index: u32, bytes: u64, reserved: u64, policy: HighPolicy) {
    // In a memory without a ticker nobody else does it.
    let may_trim = core.counters.has_stock_news(StockNews::Missed);
    let is_observed = !core.counters.is_unobserved();
    if !may_trim && !is_observed {
        return;
    }
    let unheld = Unheld { core, index, bytes };
    if may_trim {
        limits::trim_if_late(core);
    }
    if is_observed {
        tell::changed(core, index);
        high::pay(core, index, reserved, policy);
    }
    std::mem::forget(unheld);
}

/// Charges within the limits, asks for reclaim before it gives up, and settles.
fn charge_and_settle<M: Machine>(core: &Core<M>, index: u32, bytes: u64) -> Result<(), Refused> {
    let (reserved, ()) = charge_or_refuse(core, (index, None), bytes, || ())?;
    settle(core, index, bytes, reserved, core.policies.high);
    Ok(())
}

/// Charges `bytes` to `index`, or takes the reference that a charge of 0 bytes holds. Call after the fast path gave `outcome`. Returns
/// no charge, so that the charge that the fast path makes stays in registers.
#[cold]
pub(crate) fn try_charge<M: Machine>(
    core: &Core<M>,
    index: u32,
    bytes: u64,
    outcome: Outcome,
) -> Result<(), ChargeError> {
    if bytes == 0 {
        return lifetime::pin(core, index);
    }
    if core.counters.charge_published(index, bytes, outcome) {
        return Ok(());
    }
    check_size(bytes)?;
    let charged = charge_and_settle(core, index, bytes);
    charged.map_err(|refused| refusal::refuse(core, index, refused, bytes))
}

/// Charges `bytes` whatever the limits say. Call after the fast path gave `outcome`. Returns the bytes charged: fewer if the
/// tree has no numbers for more.
#[cold]
pub(crate) fn charge_anyway<M: Machine>(
    core: &Core<M>,
    index: u32,
    bytes: u64,
    outcome: Outcome,
) -> u64 {
    let counters = &core.counters;
    if counters.charge_published(index, bytes, outcome) {
        return bytes;
    }
    let bytes = counters.chargeable(bytes);
    // Fallibly first: a limit that only stock of other CPUs, or memory that can be reclaimed, keeps us from is not overshot.
    if bytes == 0 || charge_and_settle(core, index, bytes).is_ok() {
        return bytes;
    }
    let operation = fork::operation(core);
    let over = counters.claim_anyway(index, bytes);
    // The caller's handle keeps the record: only without handles is a record examined for its bytes.
    counters.commit_anyway(index, bytes, true);
    // The latch: while the usage is above the limit nothing refills. The stock that existed is gone before we return, so the next
    // fallible charge meets the limit.
    if let Some(highest) = over {
        counters.drain_closed(highest, || ());
    }
    drop(operation);
    if let Some(limited) = over {
        trace::overshot(core, index, limited, bytes);
    }
    settle(core, index, bytes, bytes, core.policies.high);
    bytes
}

/// Charges if it is the ticket's turn and the memory is there. Otherwise makes sure that `waker` is woken when that may have
/// changed. The caller refers to the group.
///
/// # Errors
/// [`ChargeError`] if waiting is in vain: the charge is larger than a limit, or the group was removed.
pub(crate) fn poll_charge<M: Machine>(
    core: &Core<M>,
    ticket: &mut Ticket,
    waker: &Waker,
) -> Poll<Result<(), ChargeError>> {
    let (index, bytes) = (ticket.index, ticket.bytes);
    // Repairs a forked child, so that it waits for no task that is gone.
    drop(fork::operation(core));
    if !ticket.has_waited() {
        check_size(bytes)?;
        if let Some(refused) = in_vain(core, ticket) {
            // Nothing has changed, so there is nothing to tell.
            return Poll::Ready(Err(refusal::refuse(core, index, refused, bytes)));
        }
    }
    wait::renew(core, ticket, waker);
    let otherwise = Otherwise::Queue {
        ticket: &mut *ticket,
        waker,
        has_asked: false,
    };
    let Poll::Ready(charged) = charge(core, (index, None), bytes, otherwise, || ()) else {
        // Stock was taken back. A task that returns memory wakes the first that fits. That may be this one, which would only be
        // polled again. If it was woken and does not fit any more, another may.
        tell::watchers(core, index);
        wait::wake_behind(core, ticket);
        return Poll::Pending;
    };
    let charged = charged.map_err(|refused| refusal::refuse(core, index, refused, bytes));
    let unheld = charged.is_ok().then(|| Unheld { core, index, bytes });
    wait::leave(core, ticket);
    tell::changed(core, index);
    if let Ok((reserved, ())) = charged {
        high::pay(core, index, reserved, HighPolicy::Owe);
    }
    std::mem::forget(unheld);
    Poll::Ready(charged.map(|_| ()))
}

/// Gives up a charge that waits, so that the next one gets its turn. Returns the limit in its way. The caller refers to the group.
pub(crate) fn give_up<M: Machine>(core: &Core<M>, ticket: &mut Ticket) -> ChargeError {
    // As in `poll_charge`.
    drop(fork::operation(core));
    let (index, bytes, queued_at) = (ticket.index, ticket.bytes, ticket.queued_at);
    wait::leave(core, ticket);
    if core.tree().node(index).is_removed() {
        return refusal::refuse(core, index, Refused::Removed, bytes);
    }
    // It may fit by now, or wait only behind others.
    let limited = core.counters.full(index, bytes).or(queued_at);
    refusal::gave_up(core, index, limited.unwrap_or(index), bytes)
}

/// Returns `bytes` of a charge. Call after the fast path gave `outcome`. Never fails. Waits only if the group returned too much. Calls wakers and callbacks.
#[cold]
pub(crate) fn uncharge<M: Machine>(core: &Core<M>, index: u32, bytes: u64, outcome: Outcome) {
    let told = || lifetime::listening_at(core, index);
    let take_stock = || {
        let kept = lifetime::referred(core, index);
        tell::take_stock(core, kept.index);
    };
    let past_stock = |way: &Way<'_, M>| core.counters.uncharge_whole(way, bytes, take_stock, told);
    let told = nowait::uncharge_telling(core, index, bytes, outcome, told, past_stock);
    tell::settle_over_returns(core);
    if let Some(Some(told)) = told {
        tell::changed(core, told.index);
    }
}

/// A charge that has moved.
pub(crate) struct Moved<'a, M: Machine> {
    reserved: u64,
    /// The group that it was charged to before, if that has listeners.
    told: Option<Referred<'a, M>>,
}

/// Moves bytes charged to `from` to another group. The caller updates the charge that holds them, and then calls [`after_move`].
pub(crate) fn move_charge<M: Machine>(
    core: &Core<M>,
    from: u32,
    to: u32,
    bytes: u64,
) -> Result<Moved<'_, M>, ChargeError> {
    let common = Some(core.counters.common_ancestor(from, to));
    // Both halves are one operation: a forked child finds the bytes charged once.
    let uncharge = || {
        let told = || lifetime::listening_at(core, from);
        let take_stock = || tell::take_stock(core, from);
        let way = core.counters.way(from, common);
        core.counters.uncharge_whole(&way, bytes, take_stock, told)
    };
    let moved = charge_or_refuse(core, (to, common), bytes, uncharge);
    let (reserved, told) = moved.map_err(|refused| refusal::refuse(core, to, refused, bytes))?;
    Ok(Moved { reserved, told })
}

/// Tells listeners, and pays for a `high`. Either may unwind.
pub(crate) fn after_move<M: Machine>(core: &Core<M>, to: u32, moved: Moved<'_, M>) {
    if let Some(told) = moved.told {
        tell::changed(core, told.index);
    }
    tell::changed(core, to);
    high::pay(core, to, moved.reserved, core.policies.high);
}
