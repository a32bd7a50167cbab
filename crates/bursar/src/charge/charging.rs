//! Charging past the fast path: reserve, drain, reclaim, and only then refuse.

use bursar_machine::{AtomicWord, Machine, Order, Outcome, Slot};

use super::counter::USAGE_MAX;
use super::drain::Refusal;
use super::events::Event;
use super::ledger::{Closed, Gates, Referred};
use super::reclaim::{RECLAIM_TRIES, Round};
use super::stock::CHARGE_MAX;
use super::{ChargeError, Ledger, NowaitError};
use crate::stats::ROOT;

/// Reason why an attempt to charge failed.
#[derive(Clone, Copy, Debug)]
pub(super) enum Refused {
    /// This group's limit, with all stock below it taken back.
    By(u32),
    /// The group was removed.
    Removed,
}

/// A charge that has moved.
pub(crate) struct Moved<'a, M: Machine> {
    reserved: u64,
    /// The group that it was charged to before, if that has listeners.
    told: Option<Referred<'a, M>>,
}

/// Bytes that are charged and not handed over yet. Returns them on drop: a reclaimer may panic, and then the charge unwinds.
#[must_use]
pub(super) struct Unheld<'a, M: Machine> {
    ledger: &'a Ledger<M>,
    index: u32,
    bytes: u64,
}

impl<M: Machine> Drop for Unheld<'_, M> {
    fn drop(&mut self) {
        // Calls no listeners, because it unwinds.
        let later = |index| self.ledger.notice_later_below(index, None);
        self.ledger
            .uncharge_directly(self.index, None, self.bytes, later);
    }
}

impl<M: Machine> Unheld<'_, M> {
    /// Hands the bytes over to the caller's caller.
    pub(super) fn hand_over(self) {
        std::mem::forget(self);
    }
}

impl<M: Machine> Ledger<M> {
    /// Bytes that were just charged, until they are handed over.
    pub(super) fn unheld(&self, index: u32, bytes: u64) -> Unheld<'_, M> {
        Unheld {
            ledger: self,
            index,
            bytes,
        }
    }

    /// Charges `bytes` to `index`. Call after the fast path failed.
    #[cold]
    pub(crate) fn try_charge_slowly(&self, index: u32, bytes: u64) -> Result<(), ChargeError> {
        self.check_size(bytes)?;
        if self.charge_from_stock(index, bytes) {
            return Ok(());
        }
        let charged = self.charge_and_pay(index, bytes);
        charged.map_err(|refused| self.refuse(index, refused, bytes))
    }

    /// Charges, asks for reclaim before it gives up, tells listeners, and pays for a `high`.
    fn charge_and_pay(&self, index: u32, bytes: u64) -> Result<(), Refused> {
        let (reserved, ()) = self.charge_reclaiming(index, None, bytes, || ())?;
        let unheld = self.unheld(index, bytes);
        self.notice(index);
        self.pay_for_high(index, reserved, self.policies.high);
        unheld.hand_over();
        Ok(())
    }

    /// Charges along the way up to `end`, and does `then` in the same operation. Asks for reclaim before it gives up. Returns
    /// the bytes reserved.
    fn charge_reclaiming<R>(
        &self,
        index: u32,
        end: Option<u32>,
        bytes: u64,
        then: impl FnOnce() -> R,
    ) -> Result<(u64, R), Refused> {
        let mut tries = RECLAIM_TRIES;
        loop {
            let operation = self.operation();
            let refused = match self.attempt(index, end, bytes) {
                Ok(reserved) => return Ok((reserved, then())),
                Err(refused) => refused,
            };
            drop(operation);
            // Before reclaimers are asked: a reservation that was undone may have hidden memory that came back, and stock was
            // taken back.
            self.notice(index);
            let round = match refused {
                Refused::By(limiting) if tries > 0 => self.reclaim_for(index, limiting, bytes),
                _ => Round::default(),
            };
            if !round.asked {
                return Err(refused);
            }
            // Tries once more in any case, because the bytes that were freed count, not the number returned. Reclaimers that
            // freed nothing are not asked again.
            tries = if round.freed == 0 { 0 } else { tries - 1 };
        }
    }

    /// Reserves along the way up to `end`, charges, and keeps the rest as stock. Drains and tries again where a limit is in the
    /// way. Returns the bytes reserved.
    pub(super) fn attempt(&self, index: u32, end: Option<u32>, bytes: u64) -> Result<u64, Refused> {
        loop {
            let _operation = self.operation();
            let flight = self.enter_patiently(Gates::Operations, Some(index));
            if self.tree.node(index).is_removed() {
                return Err(Refused::Removed);
            }
            let limiting = match self.reserve_ahead(index, end, bytes) {
                Ok(ahead) => {
                    self.commit_charge(index, bytes, ahead);
                    return Ok(bytes + ahead);
                }
                Err(limiting) => limiting,
            };
            drop(flight);
            match self.charge_drained(limiting, index, end, bytes) {
                Ok(()) => return Ok(bytes),
                Err(Refusal::Removed) => return Err(Refused::Removed),
                Err(Refusal::By(at)) => return Err(Refused::By(at)),
                // Another limit is in the way now.
                Err(Refusal::Elsewhere) => {}
            }
        }
    }

    /// Charges `bytes` without waiting, draining or allocating. Call after the fast path failed. Async-signal-safe.
    #[cold]
    pub(crate) fn try_charge_nowait(&self, index: u32, bytes: u64) -> Result<(), NowaitError> {
        if bytes > CHARGE_MAX {
            return Err(NowaitError::TooLarge);
        }
        if self.is_forked() {
            return Err(NowaitError::Busy);
        }
        if self.charge_from_stock(index, bytes) {
            return Ok(());
        }
        let _flight = self
            .enter(Gates::Operations, Some(index))
            .map_err(|Closed(_)| NowaitError::Busy)?;
        // Counted in first: either a removal waits for us, or we see it.
        if self.tree.node(index).is_removed() {
            return Err(NowaitError::Removed);
        }
        let ahead = self.reserve_ahead(index, None, bytes);
        let ahead = ahead.map_err(|_| NowaitError::LimitReached)?;
        // A limit may be near, and a thread that only allocates never drains. Relaxed, both: upkeep looks for itself.
        if ahead == 0 && self.much_stock.load(Order::Relaxed) == 0 {
            self.much_stock.store(1, Order::Relaxed);
        }
        self.commit_charge(index, bytes, ahead);
        self.owe_for_high(index, bytes + ahead);
        self.notice_later_below(index, None);
        Ok(())
    }

    /// Charges `bytes` whatever the limits say, without waiting, draining or allocating. Call after the fast path failed.
    /// Async-signal-safe.
    #[cold]
    pub(crate) fn charge_anyway_nowait(&self, index: u32, bytes: u64) {
        debug_assert!(0 < bytes && bytes <= CHARGE_MAX);
        if self.try_charge_nowait(index, bytes).is_ok() {
            return;
        }
        if self.is_forked() {
            self.defer(index, bytes as i64);
            return self.notice_later_below(index, None);
        }
        // In flight if the way is open. If it is closed, a task drains. It may be this very thread, below a signal handler, so
        // do not wait.
        let flight = self.enter(Gates::Operations, Some(index));
        for at in self.tree.chain(index) {
            if self.counter(at).charge(bytes) {
                self.count(at, Event::Overshot, 1);
                // Relaxed: upkeep looks for itself, and takes the stock back if no drain did before.
                self.much_stock.store(1, Order::Relaxed);
            }
        }
        // Counted in first: either a removal waits for us, or we see it.
        self.commit_anyway(index, bytes, flight.is_ok());
        self.owe_for_high(index, bytes);
        self.notice_later_below(index, None);
    }

    /// Records a charge that is in the counters. A removed group is charged on the extra shard only, and so is one that may be
    /// removed meanwhile (`is_kept` says that it is kept from that): see [`Ledger::is_uncharged`].
    fn commit_anyway(&self, index: u32, bytes: u64, is_kept: bool) {
        if is_kept && !self.tree.node(index).is_removed() {
            self.commit_charge(index, bytes, 0);
        } else {
            self.charge_extra(index, bytes as i64);
        }
    }

    /// Charges `bytes` whatever the limits say.
    #[cold]
    pub(crate) fn charge_slowly(&self, index: u32, bytes: u64) {
        debug_assert!(bytes <= CHARGE_MAX);
        // Fallibly first: a limit that only stock of other CPUs, or memory that can be reclaimed, keeps us from is not
        // overshot.
        if self.charge_from_stock(index, bytes) || self.charge_and_pay(index, bytes).is_ok() {
            return;
        }
        let operation = self.operation();
        let mut over = None;
        for at in self.tree.chain(index) {
            if self.counter(at).charge(bytes) {
                self.count(at, Event::Overshot, 1);
                over = Some(at);
            }
        }
        // The caller's handle keeps the record: only without handles is a record examined for its bytes.
        self.commit_anyway(index, bytes, true);
        let unheld = self.unheld(index, bytes);
        // The latch: while the usage is above the limit nothing refills. The stock that existed is gone before we return, so
        // the next fallible charge meets the limit.
        if let Some(highest) = over {
            self.drain_closed(highest, || ());
        }
        drop(operation);
        self.notice(index);
        self.pay_for_high(index, bytes, self.policies.high);
        unheld.hand_over();
    }

    /// Tries the fast path again, and publishes the shard if that was all that was missing.
    fn charge_from_stock(&self, index: u32, bytes: u64) -> bool {
        let slot = &self.tree.node(index).slot;
        loop {
            match slot.charge(bytes) {
                Outcome::Done => return true,
                Outcome::Unpublished { shard, committed } => {
                    let usable = self.tree.publish(index, shard);
                    if committed {
                        return true;
                    }
                    if !usable {
                        return false;
                    }
                }
                Outcome::Short | Outcome::Moved => return false,
            }
        }
    }

    /// Moves bytes charged to `from` to another group. The caller updates the charge that holds them, and then calls
    /// [`Ledger::after_move`].
    pub(crate) fn move_charge(
        &self,
        from: u32,
        to: u32,
        bytes: u64,
    ) -> Result<Moved<'_, M>, ChargeError> {
        let common = self.common_ancestor(from, to);
        // Both halves are one operation: a forked child finds the bytes charged once.
        let uncharge =
            || self.uncharge_directly(from, Some(common), bytes, |index| self.listening_at(index));
        let moved = self.charge_reclaiming(to, Some(common), bytes, uncharge);
        let (reserved, told) = moved.map_err(|refused| self.refuse(to, refused, bytes))?;
        Ok(Moved { reserved, told })
    }

    /// Tells listeners, and pays for a `high`. Either may unwind.
    pub(crate) fn after_move(&self, to: u32, moved: Moved<'_, M>) {
        if let Some(told) = moved.told {
            self.notice(told.index);
        }
        self.notice(to);
        self.pay_for_high(to, moved.reserved, self.policies.high);
    }

    /// The part of `bytes` that the tree has numbers for.
    pub(crate) fn chargeable(&self, bytes: u64) -> u64 {
        // Relaxed: far from anything that is ever used.
        let used = self.counter(ROOT).usage.load(Order::Relaxed);
        let room = USAGE_MAX.saturating_sub(used);
        bytes.min(CHARGE_MAX).min(room)
    }

    pub(super) fn check_size(&self, bytes: u64) -> Result<(), ChargeError> {
        if bytes > CHARGE_MAX {
            return Err(ChargeError::TooLarge { requested: bytes });
        }
        Ok(())
    }
}
