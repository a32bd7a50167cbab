//! Stock: bytes that a CPU holds ahead of need, so that charges and returns are one section on its words ([`Slot::charge`],
//! [`Slot::uncharge`]).
//!
//! A shard holds stock only while it is *armed*: marked as a holder, with a cap above zero. A charge or a return that the stock does not
//! cover raises the cap to 32 times its size, if the limits above have a budget for that (`budget.rs`), and to no more than the memory is
//! set to ([`super::StockSettings`]). A refill reserves at most half a cap ahead, and a return that does not fit leaves half a cap, so that
//! neither follows the other at once. Drains disarm. Every operation that adds to a shard's stock compares with the cap in the same step,
//! so a shard never holds more than its cap.

use bursar_machine::{AtomicWord, CAP, CHARGED, Machine, MemoryOrder, Outcome, Shard, Slot};

use super::budget;
use super::counters::{Counters, StockNews, Way};
use super::events::Event;

/// Reason why a charge does not fit at first sight.
#[derive(Debug)]
pub(crate) enum Short {
    /// This group's limit is in the way, perhaps because of stock.
    At(u32),
    /// The group was removed.
    Removed,
}

impl<M: Machine> Counters<M> {
    /// Claims `bytes` and, if that fits too, some ahead for the stock. Returns the bytes ahead.
    pub(crate) fn claim_ahead(&self, way: &Way<'_, M>, bytes: u64) -> Result<u64, u32> {
        let room = way.room(bytes)?;
        // `record` looks at the shard again, because the task may move. The look here spares a claim that is given up.
        let ahead = self.ahead(way, bytes, room);
        if ahead > 0 && way.claim(bytes + ahead).is_ok() {
            return Ok(ahead);
        }
        way.claim(bytes).map(|()| 0)
    }

    fn ahead(&self, way: &Way<'_, M>, bytes: u64, room: u64) -> u64 {
        let shard = self.tree.machine.current_shard();
        let wish = budget::wish(bytes, self.stock.stock_max);
        if way.end.is_some() || wish == 0 || shard == self.tree.extra() {
            return 0;
        }
        let word = self.tree.node(way.index).slot.word(shard, CAP);
        let seen = word.load(MemoryOrder::Relaxed);
        // `budget::ahead` says so, too. Near a limit the caps need not be looked at.
        let is_near = room < budget::ROOM_FOR_STOCK.saturating_mul(bytes);
        let cap = match seen >= wish {
            true => wish,
            false if is_near => 0,
            false => way.cap(seen, wish),
        };
        // A limit is near, or others hold the stock below it.
        if cap < wish {
            self.note_stock(StockNews::Missed);
        }
        if is_near {
            return 0;
        }
        budget::ahead(bytes, cap, way.claimed(), way.caps(), room)
    }

    /// Lets `shard` hold the stock that a request of `bytes` wishes for, as far as the limits on the way allow, unless it may hold as much
    /// already. Slow operations only.
    fn arm(&self, way: &Way<'_, M>, shard: Shard, bytes: u64) {
        debug_assert!(way.end.is_none());
        let index = way.index;
        let word = self.tree.node(index).slot.word(shard, CAP);
        let seen = word.load(MemoryOrder::Relaxed);
        let wish = budget::wish(bytes, self.stock.stock_max);
        if seen >= wish {
            return;
        }
        let cap = way.cap(seen, wish);
        // A raise by less than an eighth is not worth the words that all CPUs share.
        let more = cap.saturating_sub(seen);
        if cap < bytes || more == 0 || more < seen / 8 || !way.add_cap(more) {
            return;
        }
        // Full: pairs with the swap in `drain_slice`, and with other threads on this CPU.
        if word.compare_exchange(seen, cap, MemoryOrder::Full).is_err() {
            // Another thread on this CPU armed the shard with its own cap, or a drain disarmed it.
            way.remove_cap(more);
        }
        if cap > budget::STOCK_LEAST {
            self.note_stock(StockNews::Large);
        }
        // Marked last: a slice of a drain may run beside us, and if it took an older mark it does not come back. A drain ends
        // only when we have left.
        self.mark_holder(index, shard.0);
    }

    /// Marks that a shard of `index` may hold stock, up to the root. Slow operations only: the last step of a drain waits for
    /// them.
    fn mark_holder(&self, index: u32, shard: u32) {
        self.counter(index).holders.mark(shard);
        let mut at = index;
        while let Some(parent) = self.tree.node(at).parent() {
            self.counter(parent)
                .holding_children
                .mark(self.tree.node(at).ordinal());
            at = parent;
        }
    }

    /// Records a charge that is claimed, with `ahead` more bytes for the stock, or with fewer if they do not fit there. Returns the
    /// bytes recorded. Slow operations only, if `ahead` > 0.
    pub(crate) fn commit_charge(&self, way: &Way<'_, M>, bytes: u64, ahead: u64) -> u64 {
        let reserved = bytes + self.record(way, bytes, ahead);
        way.raise(reserved);
        reserved
    }

    /// Charges `bytes` on this CPU. Returns the bytes ahead that became stock, and gives up the claim to the others.
    fn record(&self, way: &Way<'_, M>, bytes: u64, mut ahead: u64) -> u64 {
        let index = way.index;
        let slot = &self.tree.node(index).slot;
        while ahead > 0 {
            let shard = self.tree.machine.current_shard();
            if shard == self.tree.extra() || !self.tree.publish(index, shard) {
                break;
            }
            self.arm(way, shard, bytes);
            // Charges that the room does not cover leave the room as it is, so topping up must look at it. (Else `adjust` would
            // refuse the whole, and the shard would get no stock.)
            let cap = slot.word(shard, CAP).load(MemoryOrder::Relaxed);
            let room = u64::try_from(slot.room(shard)).unwrap_or(0);
            let surplus = ahead.saturating_sub(cap.saturating_sub(room));
            way.unclaim(surplus);
            ahead -= surplus;
            match slot.adjust(shard, bytes as i64, (bytes + ahead) as i64) {
                Outcome::Done => return ahead,
                Outcome::Unpublished { shard, committed } => {
                    self.tree.publish(index, shard);
                    if committed {
                        return ahead;
                    }
                }
                Outcome::Moved => {}
                // Another thread on this CPU brought stock meanwhile, or a drain disarmed the shard.
                Outcome::Short => break,
            }
        }
        way.unclaim(ahead);
        self.adjust_anywhere(index, bytes as i64, bytes as i64);
        0
    }

    /// Adds to the account of the extra shard, which is never frozen.
    pub(crate) fn charge_extra(&self, index: u32, charged: i64) {
        self.tree.node(index).slot.add_extra(CHARGED, charged);
        self.tree.publish(index, self.tree.extra());
    }

    /// Adds to the account of any shard that takes it, without a change of its room.
    pub(crate) fn adjust_anywhere(&self, index: u32, charged: i64, ceiling: i64) {
        debug_assert_eq!(charged, ceiling);
        let slot = &self.tree.node(index).slot;
        loop {
            let shard = self.tree.machine.current_shard();
            if shard == self.tree.extra() || !self.tree.publish(index, shard) {
                return self.charge_extra(index, charged);
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

    /// Uncharges on this CPU, and returns to the counters the bytes that would exceed half the cap. Returns their number, or
    /// `None` if this CPU cannot hold stock now.
    fn uncharge_into_stock(&self, way: &Way<'_, M>, bytes: u64) -> Option<u64> {
        let index = way.index;
        let slot = &self.tree.node(index).slot;
        loop {
            let shard = self.tree.machine.current_shard();
            if shard == self.tree.extra()
                || self.tree.node(index).is_removed()
                || !self.tree.publish(index, shard)
            {
                return None;
            }
            // A return of more than the group has is a bug, which stock would hide.
            if way.claimed() < bytes
                || way.room(0).unwrap_or(0) < budget::ROOM_FOR_STOCK.saturating_mul(bytes)
            {
                return None;
            }
            self.arm(way, shard, bytes);
            let cap = slot.word(shard, CAP).load(MemoryOrder::Relaxed);
            if cap < bytes {
                return None;
            }
            let room = u64::try_from(slot.room(shard)).unwrap_or(0) + bytes;
            // Enough for another request of this size.
            let kept = (cap / 2).max(bytes);
            let surplus = if room > cap { room - kept } else { 0 };
            // We are counted in, so the record stays until the claim is given up.
            if surplus > 0 {
                way.lower(surplus);
            }
            let outcome = slot.adjust(shard, -(bytes as i64), -(surplus as i64));
            let committed = match outcome {
                Outcome::Done => true,
                Outcome::Unpublished { shard, committed } => {
                    self.tree.publish(index, shard);
                    committed
                }
                Outcome::Moved | Outcome::Short => false,
            };
            if committed {
                way.unclaim(surplus);
                return Some(surplus);
            }
            if surplus > 0 {
                way.raise(surplus);
            }
            // Another thread on this CPU used the room meanwhile, or filled it, or a drain disarmed the shard.
            if outcome == Outcome::Short {
                return None;
            }
        }
    }

    /// Completes a charge on the fast path that had this outcome: publishes the shard, and tries again if that was all that was
    /// missing. Returns whether the bytes are charged.
    pub(crate) fn charge_published(&self, index: u32, bytes: u64, outcome: Outcome) -> bool {
        let slot = &self.tree.node(index).slot;
        self.published(index, outcome, || slot.charge(bytes))
    }

    /// The same for a return.
    pub(crate) fn uncharge_published(&self, index: u32, bytes: u64, outcome: Outcome) -> bool {
        let slot = &self.tree.node(index).slot;
        self.published(index, outcome, || slot.uncharge(bytes))
    }

    fn published(&self, index: u32, first: Outcome, again: impl Fn() -> Outcome) -> bool {
        let mut outcome = first;
        loop {
            match outcome {
                Outcome::Done => return true,
                // The usual reason.
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
            outcome = again();
        }
    }

    /// Returns `bytes` through this CPU's stock, if it can hold stock now. The value says whether that changed the counters;
    /// `None` if nothing was returned. While the caller's `then` runs, the group's record is certain to exist.
    pub(crate) fn uncharge_near<R>(
        &self,
        way: &Way<'_, M>,
        bytes: u64,
        then: impl FnOnce() -> R,
    ) -> Option<Option<R>> {
        if bytes > self.stock.stock_max {
            return None;
        }
        // Counted in: the record stays.
        let _operation = self.begin(way).ok()?;
        let surplus = self.uncharge_into_stock(way, bytes)?;
        Some((surplus > 0).then(then))
    }

    /// Claims `bytes` at all groups from `index` up, whatever the limits say. Returns the highest group whose `max` is now
    /// exceeded.
    pub(crate) fn claim_anyway(&self, index: u32, bytes: u64) -> Option<u32> {
        let mut over = None;
        for at in self.tree.chain(index) {
            if self.counter(at).claim_anyway(bytes) {
                self.count(at, Event::Overshot, 1);
                over = Some(at);
            }
        }
        over
    }

    /// Records a charge that is claimed. A removed group is charged on the extra shard only, and so is one that may be removed
    /// meanwhile (`is_kept` says that it is kept from that): see `react/lifetime.rs`.
    pub(crate) fn commit_anyway(&self, index: u32, bytes: u64, is_kept: bool) {
        if is_kept && !self.tree.node(index).is_removed() {
            self.adjust_anywhere(index, bytes as i64, bytes as i64);
        } else {
            self.charge_extra(index, bytes as i64);
        }
        self.way(index, None).raise(bytes);
    }

    /// Reserves along the way up to `end`, charges, and keeps the rest as stock. Waits for gates to open. Returns the bytes
    /// reserved.
    pub(crate) fn charge_with_stock(
        &self,
        index: u32,
        end: Option<u32>,
        bytes: u64,
    ) -> Result<u64, Short> {
        let whole = self.way(index, None);
        let _operation = self.begin_patiently(&whole);
        if self.tree.node(index).is_removed() {
            return Err(Short::Removed);
        }
        let part = end.map(|_| self.way(index, end));
        let way = part.as_ref().unwrap_or(&whole);
        let ahead = self.claim_ahead(way, bytes).map_err(Short::At)?;
        Ok(self.commit_charge(way, bytes, ahead))
    }
}

#[cfg(test)]
mod tests {
    use bursar_machine::host::{allowed_cpus, pin_to};

    use super::*;
    use crate::{Group, Limits, Memory};

    const KIB: u64 = 1 << 10;
    const MIB: u64 = 1 << 20;

    /// A tenant of 64 MiB, two groups below it, and the shard of the CPU on which the test stays.
    fn tenant() -> (Group, Group, Group, Shard) {
        pin_to(allowed_cpus()[0]).unwrap();
        let memory = Memory::host().unwrap();
        let limits = Limits::max(64 * MIB);
        let tenant = memory.root().child("tenant", limits).unwrap();
        let child = |name| tenant.child(name, Limits::none()).unwrap();
        let (query, other) = (child("query"), child("other"));
        let shard = query.core().counters.tree.machine.current_shard();
        (tenant, query, other, shard)
    }

    /// Charges without stock.
    fn charge<M: Machine>(counters: &Counters<M>, index: u32, bytes: u64) {
        assert_eq!(counters.claim_anyway(index, bytes), None);
        counters.commit_anyway(index, bytes, true);
    }

    fn word<M: Machine>(counters: &Counters<M>, index: u32, shard: Shard, word: usize) -> u64 {
        let slot = &counters.tree.node(index).slot;
        slot.word(shard, word).load(MemoryOrder::Relaxed)
    }

    #[test]
    fn near_a_limit_nothing_is_claimed_ahead() {
        let (_, query, other, shard) = tenant();
        let counters = &query.core().counters;
        let ahead = |index, room| {
            let ahead = counters.ahead(&counters.way(index, None), 16 * KIB, room);
            (ahead, counters.take_stock_news())
        };
        // Upkeep takes stock back after a request that had less than it wished for.
        assert_eq!(ahead(query.index(), 128 * KIB), (16 * KIB, (false, false)));
        assert_eq!(ahead(query.index(), 128 * KIB - 1), (0, (true, false)));
        counters.arm(&counters.way(query.index(), None), shard, 16 * KIB);
        counters.take_stock_news();
        assert_eq!(ahead(query.index(), 128 * KIB - 1), (0, (false, false)));
        assert_eq!(ahead(other.index(), 1), (0, (true, false)));
    }

    #[test]
    fn a_cap_covers_its_request_and_grows_by_an_eighth_at_least() {
        let (_, query, _, shard) = tenant();
        let counters = &query.core().counters;
        let arm = |bytes| {
            counters.arm(&counters.way(query.index(), None), shard, bytes);
            word(counters, query.index(), shard, CAP)
        };
        // The tenant's groups have no budget for 8 MiB on one CPU.
        let caps = [8 * MIB, 16 * KIB, 17 * KIB, 18 * KIB].map(arm);
        assert_eq!(caps, [0, 512 * KIB, 512 * KIB, 576 * KIB]);
    }

    #[test]
    fn a_return_beyond_the_cap_leaves_half_of_it() {
        let (_, query, _, shard) = tenant();
        let counters = &query.core().counters;
        charge(counters, query.index(), 33 * 16 * KIB);
        let way = counters.way(query.index(), None);
        let back = || {
            let told = counters.uncharge_near(&way, 16 * KIB, || ());
            (told, counters.tree.node(query.index()).slot.room(shard))
        };
        for at in 1..=32 {
            assert_eq!(back(), (Some(None), (at * 16) << 10));
        }
        assert_eq!(back(), (Some(Some(())), 256 << 10));
        assert_eq!(query.reserved(), 256 * KIB);
    }

    #[test]
    fn near_a_limit_a_return_is_no_stock() {
        let (tenant, query, other, shard) = tenant();
        let counters = &query.core().counters;
        let way = counters.way(query.index(), None);
        charge(counters, query.index(), 32 * KIB);
        counters.arm(&way, shard, 16 * KIB);
        let room = |room| {
            let full = counters.counter(tenant.index()).reserved();
            charge(counters, other.index(), 64 * MIB - full - room);
            counters.uncharge_near(&way, 16 * KIB, || ())
        };
        assert_eq!(room(128 * KIB), Some(None));
        assert_eq!(room(128 * KIB - 1), None);
    }

    #[test]
    fn a_charge_that_is_told_to_have_happened_is_not_repeated() {
        let (_, query, _, shard) = tenant();
        let counters = &query.core().counters;
        counters.arm(&counters.way(query.index(), None), shard, KIB);
        charge(counters, query.index(), 3 * KIB);
        let unpublished = |committed| Outcome::Unpublished { shard, committed };
        let room = || counters.tree.node(query.index()).slot.room(shard);
        let back = |outcome| {
            (
                counters.uncharge_published(query.index(), KIB, outcome),
                room(),
            )
        };
        assert_eq!(back(Outcome::Done), (true, 0));
        assert_eq!(back(Outcome::Short), (false, 0));
        assert_eq!(back(unpublished(true)), (true, 0));
        assert_eq!(back(unpublished(false)), (true, 1 << 10));
        let again = |outcome| {
            (
                counters.charge_published(query.index(), KIB, outcome),
                room(),
            )
        };
        assert_eq!(again(unpublished(true)), (true, 1 << 10));
        assert_eq!(again(unpublished(false)), (true, 0));
        assert_eq!(again(Outcome::Moved), (false, 0));
    }

    /// The record of a removed group is used again once its shards have no charge.
    #[test]
    fn a_removed_group_is_charged_on_the_extra_shard() {
        let (_, query, _, shard) = tenant();
        let counters = &query.core().counters;
        let extra = counters.tree.extra();
        let index = query.index();
        let mut charges = Vec::new();
        let mut commit = |is_kept| {
            assert_eq!(counters.claim_anyway(index, 100), None);
            counters.commit_anyway(index, 100, is_kept);
            charges.push([shard, extra].map(|shard| word(counters, index, shard, CHARGED)));
        };
        commit(true);
        commit(false);
        query.remove().unwrap();
        commit(true);
        assert_eq!(charges, [[100, 0], [100, 100], [100, 200]]);
    }
}
