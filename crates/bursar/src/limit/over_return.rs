//! Returns of more bytes than a group has: a bug of the caller, contained to the group.
//!
//! Only bytes that a number stands for can be returned too often ([`crate::Charge::forget`],
//! [`Engine::uncharge`](crate::engine::Engine::uncharge)). In builds with debug assertions the group counts them, and the call at fault
//! panics before it changes anything.
//!
//! In other builds the fast path counts nothing, so the bug shows only when the usage of the group would fall below 0. That usage stops
//! at 0, and the groups above are lowered by no more than it had. The bytes may be missing at a group above the one that returns: then
//! that group lost them before, and it is the one that is noted. Its slot gets back the bytes that the usage did not lose, so usage
//! stays the sum of charged bytes and stock.
//!
//! The bytes of a group include the stock of its CPUs, and these charge from it without a look at any counter. So the first return that is too
//! large is *put off*. From then on no CPU gets stock of the group. An operation that may wait takes back the stock that there is,
//! and then returns what was put off. Later returns take at once what the group has, because all of that is charged.
//!
//! The bug does not show while as many other bytes of the group are charged or held as stock. The bytes are missing from its usage, and
//! from those above, until the others are returned. If these others are all that is left of a removed group, its record is used again
//! under them. Then their return is taken from the next group.

use bursar_machine::{AtomicWord, Machine, MemoryOrder};

use super::counter::PageCounter;
use super::counters::{CHARGE_MAX, Counters, Way};
use super::events::Event;

/// In [`super::counter::Settings::draining`]: the group has returned too much, and no stock is taken below it any more.
pub(super) const NO_STOCK: u64 = 1 << 63;
/// In [`PageCounter::over_return`]: no task has looked after the first case yet. There is a reference to the group.
const PENDING: u64 = 1;
/// In [`PageCounter::over_return`]: all stock below was taken back.
const DRAINED: u64 = 2;
/// Mark in place of a group: several are pending.
const SEVERAL: u64 = u64::MAX;

impl<M: Machine> PageCounter<M> {
    /// Begins the life of a new group. References kept the record until nothing was pending.
    pub(super) fn forget_over_return(&self) {
        // Full, all: pair with `stop_stock`, `put_off` and `take_stock` of the record's last group, which are over.
        let is_pending = self.over_return.swap(0, MemoryOrder::Full) & PENDING != 0;
        debug_assert!(!is_pending && self.put_off.load(MemoryOrder::Full) == 0);
        let draining = self.settings.draining.swap(0, MemoryOrder::Full);
        debug_assert_eq!(draining & !NO_STOCK, 0);
    }

    /// Whether the group returned too much, and has no stock for good.
    fn is_drained(&self) -> bool {
        // Full: pairs with `take_stock`, see `put_off`.
        self.over_return.load(MemoryOrder::Full) & DRAINED != 0
    }
}

impl<M: Machine> Counters<M> {
    /// From now on a number stands for `bytes` that are charged.
    #[inline(always)]
    pub(crate) fn lend(&self, index: u32, bytes: u64) {
        #[cfg(debug_assertions)]
        self.counter(index).lend(bytes);
        #[cfg(not(debug_assertions))]
        let _ = (index, bytes);
    }

    /// A number that stood for `bytes` is about to be returned.
    ///
    /// # Errors
    /// In builds with debug assertions: the bytes that there are such numbers for, if these are fewer.
    #[inline(always)]
    pub(crate) fn take_back(&self, index: u32, bytes: u64) -> Result<(), u64> {
        #[cfg(debug_assertions)]
        return self.counter(index).take_back(bytes);
        #[cfg(not(debug_assertions))]
        {
            let _ = (index, bytes);
            Ok(())
        }
    }

    /// Returns `bytes` to all counters, past the stock, and puts off what the group does not have. The counters come first, because
    /// nothing keeps the group's record once no byte is charged. Calls `then` in between. Async-signal-safe.
    pub(crate) fn uncharge_directly<R>(
        &self,
        way: &Way<'_, M>,
        bytes: u64,
        then: impl FnOnce() -> R,
    ) -> R {
        let (had, left) = self.release_charged(way, bytes);
        if left > 0 {
            self.put_off(way.index, left);
        }
        let then = then();
        self.uncharge_slot(way.index, had);
        then
    }

    /// [`Counters::uncharge_directly`] for a caller that may wait. Puts nothing off: if the group has fewer bytes, calls
    /// `take_stock`, which does [`Counters::take_stock`].
    pub(crate) fn uncharge_whole<R>(
        &self,
        way: &Way<'_, M>,
        bytes: u64,
        take_stock: impl FnOnce(),
        then: impl FnOnce() -> R,
    ) -> R {
        let (mut had, left) = self.release_charged(way, bytes);
        if left > 0 {
            self.stop_stock(way.index);
            take_stock();
            had += self.release_charged(way, left).0;
        }
        let then = then();
        self.uncharge_slot(way.index, had);
        then
    }

    fn uncharge_slot(&self, index: u32, bytes: u64) {
        if bytes > 0 {
            let bytes = bytes as i64;
            self.adjust_anywhere(index, -bytes, -bytes);
        }
    }

    /// Returns `bytes` that were charged, if the group has them. If it has fewer and is drained, returns those, and notes the others.
    /// Returns how many the group had, and how many are left to return.
    fn release_charged(&self, way: &Way<'_, M>, bytes: u64) -> (u64, u64) {
        let mut had = way.release_if_there(bytes);
        if had == bytes || !self.counter(way.index).is_drained() {
            return (had, bytes - had);
        }
        // Another task may be faster.
        while had < bytes && way.claimed() > 0 {
            had += way.release_if_there(way.claimed().min(bytes - had));
        }
        if had < bytes {
            self.note_over_return(way.index, bytes - had, way.end);
        }
        (had, 0)
    }

    /// Leaves a return to the next operation that may wait. Async-signal-safe.
    fn put_off(&self, index: u32, bytes: u64) {
        let counter = self.counter(index);
        let some = bytes.min(CHARGE_MAX);
        if some < bytes {
            self.count(index, Event::OverReturned, bytes - some);
        }
        // Full: either `take_stock` finds the bytes, or we find its mark.
        counter.put_off.fetch_add(some, MemoryOrder::Full);
        self.stop_stock(index);
        if counter.is_drained() {
            self.return_put_off(index);
        }
    }

    fn return_put_off(&self, index: u32) {
        // Full: pairs with `put_off`. One task takes the bytes.
        let bytes = self.counter(index).put_off.swap(0, MemoryOrder::Full);
        if bytes > 0 {
            self.uncharge_directly(&self.way(index, None), bytes, || ());
            self.mark_untold(index, None);
        }
    }

    /// Ends the stock at and below a group that returned too much. Async-signal-safe.
    fn stop_stock(&self, index: u32) {
        let counter = self.counter(index);
        // Full: as for a drain. One task finds the bit unset.
        let before = counter
            .settings
            .draining
            .fetch_or(NO_STOCK, MemoryOrder::Full);
        if before & NO_STOCK == 0 {
            self.refer(index);
            // Full: the reference comes before. The task that takes the bit drops it.
            counter.over_return.fetch_or(PENDING, MemoryOrder::Full);
            self.note_pending(index);
        }
    }

    fn note_pending(&self, index: u32) {
        let this = u64::from(index) + 1;
        // Full, both: pair with `take_over_returned`, which looks for `PENDING` afterwards.
        let noted = self
            .over_returned
            .compare_exchange(0, this, MemoryOrder::Full);
        if noted.is_err() {
            self.over_returned.store(SEVERAL, MemoryOrder::Full);
        }
    }

    /// Takes back all stock at and below a group whose stock has ended, and returns what was put off.
    pub(crate) fn take_stock(&self, index: u32) {
        self.drain_closed(index, || {
            let over_return = &self.counter(index).over_return;
            // Full: pairs with `is_drained`. Either we find what is put off, or the task that put it off finds this.
            over_return.fetch_or(DRAINED, MemoryOrder::Full);
            self.return_put_off(index);
        });
    }

    /// Whether [`Counters::take_over_returned`] may find a group.
    pub(crate) fn has_over_returned(&self) -> bool {
        // Relaxed: a later call sees it.
        self.over_returned.load(MemoryOrder::Relaxed) != 0
    }

    /// Groups that returned too much for the first time. The caller calls [`Counters::take_stock`], and drops a reference to each.
    pub(crate) fn take_over_returned(&self) -> Vec<u32> {
        let is_pending = |index: &u32| {
            let over_return = &self.counter(*index).over_return;
            // Full: pairs with `stop_stock`.
            over_return.fetch_and(!PENDING, MemoryOrder::Full) & PENDING != 0
        };
        // Full: pairs with `note_pending`.
        match self.over_returned.swap(0, MemoryOrder::Full) {
            0 => Vec::new(),
            SEVERAL => {
                let groups = self.tree.groups().into_iter();
                groups.map(|(index, _)| index).filter(is_pending).collect()
            }
            one => Some((one - 1) as u32)
                .into_iter()
                .filter(is_pending)
                .collect(),
        }
    }

    /// Whether this is the first call for this memory.
    pub(crate) fn is_first_told(&self) -> bool {
        // Relaxed: nothing else is told by it.
        self.has_told.swap(1, MemoryOrder::Relaxed) == 0
    }

    /// Puts a group right in a forked child, which has no stock. Returns the bytes that were put off.
    pub(crate) fn put_over_return_right(&self, index: u32) -> u64 {
        let counter = self.counter(index);
        // Full, all: pair with nothing. The child has no other thread.
        if counter.settings.draining.load(MemoryOrder::Full) & NO_STOCK != 0 {
            let before = counter.over_return.fetch_or(DRAINED, MemoryOrder::Full);
            if before & PENDING != 0 {
                self.note_pending(index);
            }
        }
        counter.put_off.swap(0, MemoryOrder::Full)
    }

    /// Notes `bytes` that a group returned up to `end` and did not have. Async-signal-safe.
    #[cold]
    fn note_over_return(&self, index: u32, bytes: u64, end: Option<u32>) {
        self.count(index, Event::OverReturned, bytes);
        // All counters above were lowered when the group lost the bytes. From `end` on they still stand for bytes elsewhere.
        if let Some(end) = end {
            self.tree.chain(end).for_each(|at| {
                self.counter(at).claim_anyway(bytes);
            });
            self.way(end, None).raise(bytes);
        }
        self.stop_stock(index);
    }

    /// Notes `bytes` that a group has lost before: the counters miss them, and its slot gets them back. Async-signal-safe.
    #[cold]
    pub(crate) fn note_loss(&self, index: u32, bytes: u64, end: Option<u32>) {
        self.note_over_return(index, bytes, end);
        self.charge_extra(index, bytes as i64);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Group, Limits, Memory};

    fn group() -> Group {
        let memory = Memory::host().unwrap();
        memory.root().child("tenant", Limits::none()).unwrap()
    }

    /// Charges without stock. No number stands for the bytes, so a return of more does not panic.
    fn charge<M: Machine>(counters: &Counters<M>, index: u32, bytes: u64) {
        counters.claim_anyway(index, bytes);
        counters.commit_anyway(index, bytes, true);
    }

    /// Whether the group has no stock any more, what is put off, and what it has.
    fn state<M: Machine>(counters: &Counters<M>, index: u32) -> (bool, u64, u64) {
        let counter = counters.counter(index);
        let draining = counter.settings.draining.load(MemoryOrder::Full);
        let put_off = counter.put_off.load(MemoryOrder::Full);
        (draining == NO_STOCK, put_off, counter.claimed())
    }

    #[test]
    fn what_a_group_does_not_have_is_put_off_until_its_stock_is_taken_back() {
        let group = group();
        let counters = &group.core().counters;
        let index = group.index();
        let back = |bytes| {
            counters.uncharge_directly(&counters.way(index, None), bytes, || ());
            state(counters, index)
        };
        charge(counters, index, 200);
        assert_eq!(back(100), (false, 0, 100));
        assert_eq!(back(150), (true, 150, 100));
        assert_eq!(group.events().over_returned_bytes, 0);
        counters.take_stock(index);
        assert_eq!(state(counters, index), (true, 0, 0));
        assert_eq!(group.events().over_returned_bytes, 50);
        // From now on nothing is put off.
        charge(counters, index, 10);
        assert_eq!(back(15), (true, 0, 0));
        assert_eq!(group.events().over_returned_bytes, 55);
    }

    #[test]
    fn a_return_of_nothing_changes_nothing() {
        let group = group();
        let counters = &group.core().counters;
        let index = group.index();
        counters.uncharge_slot(index, 0);
        assert!(counters.tree.node(index).published.is_empty());
        let watchers = &counters.counter(index).settings.watchers;
        counters.listeners.store(1, MemoryOrder::Full);
        watchers.store(1, MemoryOrder::Full);
        counters.return_put_off(index);
        assert_eq!(counters.untold.load(MemoryOrder::Full), 0);
        counters.listeners.store(0, MemoryOrder::Full);
        watchers.store(0, MemoryOrder::Full);
    }

    #[test]
    fn no_more_is_put_off_than_a_charge_may_have() {
        let group = group();
        let counters = &group.core().counters;
        counters.put_off(group.index(), 5);
        assert_eq!(group.events().over_returned_bytes, 0);
        counters.put_off(group.index(), u64::MAX);
        assert_eq!(state(counters, group.index()), (true, CHARGE_MAX + 5, 0));
        assert_eq!(group.events().over_returned_bytes, u64::MAX - CHARGE_MAX);
    }

    #[test]
    fn a_new_group_has_no_mark_of_the_one_before() {
        let group = group();
        let counters = &group.core().counters;
        counters.stop_stock(group.index());
        assert!(state(counters, group.index()).0);
        assert_eq!(counters.take_over_returned(), [group.index()]);
        counters.counter(group.index()).forget_over_return();
        assert!(!state(counters, group.index()).0);
    }

    #[test]
    fn a_child_process_has_no_stock_to_wait_for() {
        let group = group();
        let counters = &group.core().counters;
        let counter = counters.counter(group.index());
        let right = || {
            counters.over_returned.store(0, MemoryOrder::Full);
            let bytes = counters.put_over_return_right(group.index());
            (bytes, counter.is_drained(), counters.has_over_returned())
        };
        assert_eq!(right(), (0, false, false));
        counters.put_off(group.index(), 150);
        assert!(!counter.is_drained());
        assert_eq!(right(), (150, true, true));
        assert_eq!(counters.take_over_returned(), [group.index()]);
        assert_eq!(right(), (0, true, false));
    }
}
