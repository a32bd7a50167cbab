//! Charge and uncharge.
//!
//! The fast path is one section on the current CPU's words ([`Slot::charge`], [`Slot::uncharge`]). All else is here.
//!
//! A shard may hold a *batch* as stock. The batch adapts to the head-room: at most [`BATCH_MAX`], and never more than a
//! quarter of what is left divided by the CPUs, so that stock cannot eat what others need. A refill reserves half a batch
//! ahead and a return leaves half a batch, so that neither follows the other at once. A shard holds stock only while it
//! is *armed*: marked as a holder, with a cap above zero. Drains disarm.

use bursar_machine::{AtomicWord, CAP, CHARGED, Machine, Order, Outcome, Shard, Slot};

use super::drain::Refusal;
use super::events::Event;
use super::ledger::{Closed, Referred};
use super::reclaim::{RECLAIM_TRIES, Round};
use super::{ChargeError, Ledger, NowaitError};

/// The most stock of one (group, CPU), bytes: 64 pages of 4 KiB, the kernel's `MEMCG_CHARGE_BATCH`.
#[doc(alias = "MEMCG_CHARGE_BATCH")]
pub(crate) const BATCH_MAX: u64 = 64 * 4096;
/// The largest charge, bytes. Sums of as many as fit in memory stay below 2^63.
pub(crate) const CHARGE_MAX: u64 = 1 << 56;

/// Why an attempt to charge failed.
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
    /// The group that it was charged to before, if anybody listens.
    told: Option<Referred<'a, M>>,
}

/// Bytes that are charged and that nobody holds yet. Returned on drop: whoever is asked for memory or told of a change may
/// panic, and then the charge unwinds.
#[must_use]
pub(super) struct Unheld<'a, M: Machine> {
    ledger: &'a Ledger<M>,
    index: u32,
    bytes: u64,
}

impl<M: Machine> Drop for Unheld<'_, M> {
    fn drop(&mut self) {
        // Calls nobody, since it unwinds.
        let later = |_| self.ledger.notice_later();
        self.ledger
            .uncharge_directly(self.index, None, self.bytes, later);
    }
}

impl<M: Machine> Unheld<'_, M> {
    /// The caller's caller holds them from now on.
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

    /// Charges, asking for reclaim before it gives up, and does what follows from it.
    fn charge_and_pay(&self, index: u32, bytes: u64) -> Result<(), Refused> {
        let (reserved, ()) = self.charge_reclaiming(index, None, bytes, || ())?;
        let unheld = self.unheld(index, bytes);
        self.notice(index);
        self.pay_for_high(index, reserved);
        unheld.hand_over();
        Ok(())
    }

    /// Charges along the way up to `end`, and does `then` in the same operation; asks for reclaim before it gives up. Returns
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
            let round = match refused {
                Refused::By(limiting) if tries > 0 => self.reclaim_for(index, limiting, bytes),
                _ => Round::default(),
            };
            if !round.asked {
                self.notice(index);
                return Err(refused);
            }
            // Once more in any case: what was freed counts, not what was said. Who frees nothing is not asked again.
            tries = if round.freed == 0 { 0 } else { tries - 1 };
        }
    }

    /// Charges `bytes` without waiting, draining or allocating. Call after the fast path failed. Async-signal-safe.
    #[cold]
    pub(crate) fn try_charge_nowait(&self, index: u32, bytes: u64) -> Result<(), NowaitError> {
        if bytes == 0 || bytes > CHARGE_MAX {
            return Err(NowaitError::BadSize);
        }
        if self.is_forked() {
            return Err(NowaitError::Busy);
        }
        if self.charge_from_stock(index, bytes) {
            return Ok(());
        }
        let _flight = self
            .enter(Some(index))
            .map_err(|Closed(_)| NowaitError::Busy)?;
        // Counted in first: a removal waits for us, or we see it.
        if self.tree.node(index).is_removed() {
            return Err(NowaitError::Removed);
        }
        let ahead = self.reserve_ahead(index, None, bytes);
        let ahead = ahead.map_err(|_| NowaitError::LimitReached)?;
        self.commit_charge(index, bytes, ahead);
        self.owe_for_high(index, bytes + ahead);
        self.notice_later();
        Ok(())
    }

    /// Charges `bytes` whatever the limits say.
    #[cold]
    pub(crate) fn charge_slowly(&self, index: u32, bytes: u64) {
        debug_assert!(bytes <= CHARGE_MAX);
        // Fallibly first: a limit that only stock of other CPUs keeps us from, or what can be reclaimed, is not overshot.
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
        self.commit_charge(index, bytes, 0);
        let unheld = self.unheld(index, bytes);
        // The latch: while the usage is above the limit nothing refills, and what stock there was is gone before we
        // return, so that the next fallible charge meets the limit.
        if let Some(highest) = over {
            self.drain_closed(highest, || ());
        }
        drop(operation);
        self.notice(index);
        self.pay_for_high(index, bytes);
        unheld.hand_over();
    }

    /// Returns `bytes` of a charge. Call after the fast path failed. Never waits, never fails; wakes and calls those who
    /// listen.
    #[cold]
    pub(crate) fn uncharge_slowly(&self, index: u32, bytes: u64) {
        let told = self.uncharge_telling(index, bytes, |index| self.listening_at(index));
        if let Some(Some(told)) = told {
            self.notice(told.index);
        }
    }

    /// [`Ledger::uncharge_slowly`] that leaves it to others to tell those who listen. Async-signal-safe.
    #[cold]
    pub(crate) fn uncharge_nowait(&self, index: u32, bytes: u64) {
        self.uncharge_telling(index, bytes, |_| self.notice_later());
    }

    /// Returns `bytes`. If that changed any usage, calls `tell` after it, while the group's record is certain to be there.
    fn uncharge_telling<R>(
        &self,
        index: u32,
        bytes: u64,
        tell: impl FnOnce(u32) -> R,
    ) -> Option<R> {
        let slot = &self.tree.node(index).slot;
        loop {
            match slot.uncharge(bytes) {
                Outcome::Done => return None,
                // The usual reason: the shard was not published.
                Outcome::Unpublished { shard, committed } => {
                    let usable = self.tree.publish(index, shard);
                    if committed {
                        return None;
                    }
                    if !usable {
                        break;
                    }
                }
                Outcome::Short | Outcome::Moved => break,
            }
        }
        if self.is_forked() {
            self.defer_uncharge(index, bytes);
            self.notice_later();
            return None;
        }
        if bytes < BATCH_MAX
            && let Ok(_flight) = self.enter(Some(index))
            && let Some(surplus) = self.uncharge_into_stock(index, bytes)
        {
            // In flight: the record stays.
            return (surplus > 0).then(|| tell(index));
        }
        Some(self.uncharge_directly(index, None, bytes, tell))
    }

    /// Returns `bytes` to all counters up to `end`, past the stock. The counters come first: once no byte is charged any
    /// more, nothing keeps the group's record.
    pub(super) fn uncharge_directly<R>(
        &self,
        index: u32,
        end: Option<u32>,
        bytes: u64,
        tell: impl FnOnce(u32) -> R,
    ) -> R {
        self.release(index, end, bytes);
        let told = tell(index);
        let bytes = bytes as i64;
        self.adjust_anywhere(index, -bytes, -bytes);
        told
    }

    /// Whether an operation took effect though it was not [`Outcome::Done`]; sees to its publication then.
    #[cold]
    pub(crate) fn is_committed(&self, index: u32, outcome: Outcome) -> bool {
        let Outcome::Unpublished {
            shard,
            committed: true,
        } = outcome
        else {
            return false;
        };
        self.tree.publish(index, shard);
        true
    }

    /// Moves bytes charged to `from` to another group. The caller says so to whoever holds them, and then calls
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

    /// Tells those who listen, and pays for what is above a `high`; either may unwind.
    pub(crate) fn after_move(&self, to: u32, moved: Moved<'_, M>) {
        if let Some(told) = moved.told {
            self.notice(told.index);
        }
        self.notice(to);
        self.pay_for_high(to, moved.reserved);
    }

    pub(super) fn check_size(&self, bytes: u64) -> Result<(), ChargeError> {
        if bytes > CHARGE_MAX {
            return Err(ChargeError::TooLarge {
                requested: usize::try_from(bytes).unwrap_or(usize::MAX),
            });
        }
        Ok(())
    }

    /// The fast path again, publishing where that was all that was missing.
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

    /// Reserves along the way up to `end`, charges, and keeps the rest as stock; drains and tries again where a limit is in
    /// the way. Returns the bytes reserved.
    pub(super) fn attempt(&self, index: u32, end: Option<u32>, bytes: u64) -> Result<u64, Refused> {
        loop {
            let _operation = self.operation();
            let flight = self.enter_patiently(Some(index));
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

    /// Reserves `bytes` and, if that fits too, half a batch ahead; returns the bytes ahead.
    fn reserve_ahead(&self, index: u32, end: Option<u32>, bytes: u64) -> Result<u64, u32> {
        let ahead = self.batch(index) / 2;
        if end.is_none() && ahead > 0 && bytes < BATCH_MAX {
            let extra = self.tree.extra();
            if self.tree.machine.current_shard() != extra
                && self.reserve(index, end, bytes + ahead).is_ok()
            {
                return Ok(ahead);
            }
        }
        self.reserve(index, end, bytes).map(|()| 0)
    }

    /// How much stock a CPU may hold, bytes.
    fn batch(&self, index: u32) -> u64 {
        let share = self.head_room(index) / (4 * self.tree.machine.cpus() as u64);
        share.min(BATCH_MAX)
    }

    /// Lets `shard` hold `cap` bytes of stock, if it may not hold as much already. Slow operations only.
    ///
    /// A refill tops up to the cap by what it saw, and an uncharge on the same CPU may come in between, so there may be up
    /// to twice the cap, which is what the counters allow for.
    fn arm(&self, index: u32, shard: Shard, cap: u64) {
        let word = self.tree.node(index).slot.word(shard, CAP);
        let seen = word.load(Order::Relaxed);
        if seen >= cap {
            return;
        }
        let more = 2 * (cap - seen);
        // Allowed for, and marked, before there is any: a drain finds it, a reader's range contains it.
        self.tree.chain(index).for_each(|at| {
            self.counter(at).stock_max.fetch_add(more, Order::Full);
            if self.counter(at).has_much_stock() {
                // Relaxed: upkeep looks for itself.
                self.much_stock.store(1, Order::Relaxed);
            }
        });
        self.mark_holder(index, shard.0);
        if word.compare_exchange(seen, cap, Order::Full).is_err() {
            // Another thread on this CPU armed it with a cap of its own.
            self.tree.chain(index).for_each(|at| {
                self.counter(at).stock_max.fetch_sub(more, Order::Full);
            });
        }
    }

    /// Records a charge that is reserved, with `ahead` more bytes for the stock. Slow operations only, if `ahead` > 0.
    pub(super) fn commit_charge(&self, index: u32, bytes: u64, mut ahead: u64) {
        if ahead == 0 {
            return self.adjust_anywhere(index, bytes as i64, bytes as i64);
        }
        let slot = &self.tree.node(index).slot;
        loop {
            let shard = self.tree.machine.current_shard();
            if shard == self.tree.extra() || !self.tree.publish(index, shard) {
                self.release(index, None, ahead);
                return self.adjust_anywhere(index, bytes as i64, bytes as i64);
            }
            self.arm(index, shard, 2 * ahead);
            // Charges that the room does not cover leave it as it is, so topping up must look at it.
            let cap = slot.word(shard, CAP).load(Order::Relaxed);
            let room = u64::try_from(slot.room(shard)).unwrap_or(0);
            let surplus = ahead.saturating_sub(cap.saturating_sub(room));
            self.release(index, None, surplus);
            ahead -= surplus;
            match slot.adjust(shard, bytes as i64, (bytes + ahead) as i64) {
                Outcome::Done => return,
                Outcome::Unpublished { shard, committed } => {
                    self.tree.publish(index, shard);
                    if committed {
                        return;
                    }
                }
                Outcome::Moved => {}
                Outcome::Short => unreachable!("more room, not less"),
            }
        }
    }

    /// Adds to the account of whatever shard will take it, without changing anyone's room.
    pub(super) fn adjust_anywhere(&self, index: u32, charged: i64, ceiling: i64) {
        debug_assert_eq!(charged, ceiling);
        let slot = &self.tree.node(index).slot;
        loop {
            let shard = self.tree.machine.current_shard();
            if shard == self.tree.extra() || !self.tree.publish(index, shard) {
                slot.add_extra(CHARGED, charged);
                self.tree.publish(index, self.tree.extra());
                return;
            }
            match slot.adjust(shard, charged, ceiling) {
                Outcome::Done => return,
                Outcome::Unpublished { shard, committed } => {
                    self.tree.publish(index, shard);
                    if committed {
                        return;
                    }
                }
                Outcome::Moved => {}
                Outcome::Short => unreachable!("the room stays as it is"),
            }
        }
    }

    /// Uncharges on this CPU, and returns to the counters what would exceed half the cap; says how much that was. `None` if
    /// this CPU cannot hold stock now.
    fn uncharge_into_stock(&self, index: u32, bytes: u64) -> Option<u64> {
        let slot = &self.tree.node(index).slot;
        loop {
            let shard = self.tree.machine.current_shard();
            if shard == self.tree.extra()
                || self.tree.node(index).is_removed()
                || !self.tree.publish(index, shard)
            {
                return None;
            }
            let batch = self.batch(index);
            if batch < bytes {
                return None;
            }
            self.arm(index, shard, batch);
            let cap = slot.word(shard, CAP).load(Order::Relaxed);
            let room = u64::try_from(slot.room(shard)).unwrap_or(0) + bytes;
            let surplus = if room > cap { room - cap / 2 } else { 0 };
            // The counters get the surplus last, unlike in `uncharge_directly`: we are in flight, the record stays.
            match slot.adjust(shard, -(bytes as i64), -(surplus as i64)) {
                Outcome::Done => {}
                Outcome::Unpublished { shard, committed } => {
                    self.tree.publish(index, shard);
                    if !committed {
                        continue;
                    }
                }
                // Another thread on this CPU used the room meanwhile.
                Outcome::Moved | Outcome::Short => continue,
            }
            self.release(index, None, surplus);
            return Some(surplus);
        }
    }
}
