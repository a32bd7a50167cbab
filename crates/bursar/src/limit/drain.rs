//! Taking a subtree's stock back: before a refusal, when a limit is lowered, after an overshoot.
//!
//! A drain goes in two steps. First it takes the stock in *slices* of a bounded number of shards. Each slice is a turn among
//! the drains of overlapping subtrees. Charges and returns below go on meanwhile, past the stock: while the
//! group is `draining`, the batch below it is 0, so stock does not grow back. When no holder is left, the drain closes the
//! group to slow operations. It takes the stock that earlier operations have armed meanwhile. Then it does its last step: it
//! tries once more, or changes the limit.
//!
//! The cost is a constant time for each shard that holds stock. A charge that fits waits for the last step only. A charge that
//! needs the drained stock takes slices itself. The end of a group below waits for a slice, as a drain of a part does.

use bursar_machine::{AtomicWord, CAP, Lock, Machine, MemoryOrder, STATE, Shard, Slot, State};

use super::counter::PageCounter;
use super::counters::{Closed, Counters, SHARDS_PER_SLICE};
use super::events::Event;
use super::limits::Limit;
use crate::gate::Gate;
use crate::tree::ROOT;

/// Inside the gates of drains of a group and of all above it, until dropped.
pub(crate) struct DrainsAbove<'a, M: Machine> {
    counters: &'a Counters<M>,
    lowest: Option<u32>,
}

impl<M: Machine> Drop for DrainsAbove<'_, M> {
    fn drop(&mut self) {
        let chain = self.lowest.map(|lowest| self.counters.tree.chain(lowest));
        for at in chain.into_iter().flatten() {
            self.counters.counter(at).drains.exit();
        }
    }
}

/// A turn among the drains of overlapping subtrees, until dropped.
struct DrainTurn<'a, M: Machine> {
    counter: &'a PageCounter<M>,
    _above: DrainsAbove<'a, M>,
}

impl<M: Machine> Drop for DrainTurn<'_, M> {
    fn drop(&mut self) {
        self.counter.drains.open();
    }
}

/// The stock that one turn takes.
struct Slice {
    holders: [(u32, Shard); SHARDS_PER_SLICE],
    /// Number of holders.
    found: usize,
    /// Marks that led to no holder.
    in_vain: usize,
    most: usize,
}

impl Slice {
    fn is_full(&self) -> bool {
        self.found >= self.most || self.in_vain >= self.most
    }
}

/// A closed gate of operations, until dropped.
struct Closing<'a, M: Machine>(&'a Gate<M>);

impl<M: Machine> Drop for Closing<'_, M> {
    fn drop(&mut self) {
        self.0.open();
    }
}

/// While it lives, no stock is taken below a group.
struct Draining<'a, M: Machine>(&'a PageCounter<M>);

impl<'a, M: Machine> Draining<'a, M> {
    fn of(counter: &'a PageCounter<M>) -> Self {
        // Full: slow operations that begin from now on see it. For the others the group is closed in the end.
        counter.settings.draining.fetch_add(1, MemoryOrder::Full);
        Self(counter)
    }
}

impl<M: Machine> Drop for Draining<'_, M> {
    fn drop(&mut self) {
        self.0.settings.draining.fetch_sub(1, MemoryOrder::Full);
    }
}

/// A charge that does not fit.
#[derive(Debug)]
pub(crate) enum Refusal {
    /// This group's limit refuses it, and no stock is left below.
    By(u32),
    /// It fits here now, but not at another group.
    Elsewhere,
    /// The group was removed meanwhile.
    Removed,
}

impl<M: Machine> Counters<M> {
    /// Charges `bytes` from `index` up to `end` with `limiting` closed and drained.
    /// Does so while no other operation is under way there. If the charge were recorded later, the group could be removed in
    /// between. Then others would have been refused for bytes that no charge gets.
    pub(crate) fn charge_drained(
        &self,
        limiting: u32,
        index: u32,
        end: Option<u32>,
        bytes: u64,
    ) -> Result<(), Refusal> {
        self.drain_closed(limiting, || {
            if self.tree.node(index).is_removed() {
                return Err(Refusal::Removed);
            }
            let way = self.way(index, end);
            let room = way.room(bytes);
            match room.and_then(|_| way.claim(bytes)) {
                Ok(()) => {
                    self.commit_charge(&way, bytes, 0);
                    Ok(())
                }
                Err(at) if at == limiting => {
                    self.count(at, Event::Max, 1);
                    Err(Refusal::By(at))
                }
                Err(_) => Err(Refusal::Elsewhere),
            }
        })
    }

    /// Whether stock may be held at or below `index`.
    pub(crate) fn has_holders(&self, index: u32) -> bool {
        let counter = self.counter(index);
        !counter.holders.is_empty() || !counter.holding_children.is_empty()
    }

    /// Takes all stock at and below `index` back, does `last` while no slow operation runs there, and lets them run again.
    pub(crate) fn drain_closed<R>(&self, index: u32, last: impl FnOnce() -> R) -> R {
        let counter = self.counter(index);
        let _draining = Draining::of(counter);
        loop {
            // Between two slices, because drains of parts of this subtree, and ends of groups in it, wait for one slice.
            counter.drains.give_way(&self.tree.machine);
            let _turn = self.drain_turn(index);
            // One at a time. The look at the holders belongs under the lock, because a slice takes more marks out than it
            // drains.
            let _slow = counter.slow.lock();
            self.drain_slice(index);
            if !self.has_holders(index) {
                return self.close_drained(index, last);
            }
        }
    }

    /// Enters the turns of drains above, and closes that of `index`.
    fn drain_turn(&self, index: u32) -> DrainTurn<'_, M> {
        let above = self.enter_drains_patiently(self.tree.node(index).parent());
        let counter = self.counter(index);
        // Waits for turns below. These wait for nothing that we hold.
        counter.drains.close(&self.tree.machine);
        DrainTurn {
            counter,
            _above: above,
        }
    }

    /// Enters the gates of drains of `lowest` and of all above it, unless one of them is closed.
    pub(crate) fn enter_drains(&self, lowest: Option<u32>) -> Result<DrainsAbove<'_, M>, Closed> {
        let chain = || {
            lowest
                .into_iter()
                .flat_map(|lowest| self.tree.chain(lowest))
        };
        chain().for_each(|at| self.counter(at).drains.enter());
        let entered = DrainsAbove {
            counters: self,
            lowest,
        };
        match chain().find(|&at| self.counter(at).drains.is_closed()) {
            // Dropping `entered` leaves them again.
            Some(closed) => Err(Closed(closed)),
            None => Ok(entered),
        }
    }

    /// The same, after closed gates have opened. Do not call it inside of these gates, nor after closing one of them.
    fn enter_drains_patiently(&self, lowest: Option<u32>) -> DrainsAbove<'_, M> {
        let mut _arriving = None;
        loop {
            match self.enter_drains(lowest) {
                Ok(entered) => return entered,
                Err(Closed(at)) => {
                    let gate = &self.counter(at).drains;
                    // Drains give way to tasks that wait.
                    _arriving = Some(gate.arrive());
                    gate.wait_until_open();
                }
            }
        }
    }

    /// The second step of a drain. The caller has the turn, so no task closes a group above or below meanwhile.
    fn close_drained<R>(&self, index: u32, last: impl FnOnce() -> R) -> R {
        let _closing = Closing(self.close(index));
        // Stock that was armed by operations that did not see us drain. They are gone, so no more comes.
        while self.has_holders(index) {
            self.drain_slice(index);
        }
        last()
    }

    /// Takes the stock of at most a slice of holders.
    fn drain_slice(&self, scope: u32) {
        let mut slice = Slice {
            holders: [(ROOT, Shard(0)); SHARDS_PER_SLICE],
            found: 0,
            in_vain: 0,
            most: self.stock.shards_per_slice,
        };
        self.take_holders(scope, &mut slice);
        let holders = &slice.holders[..slice.found];
        for &(index, shard) in holders {
            let state = self.tree.node(index).slot.word(shard, STATE);
            // Full: before the fence. No section that missed it commits after the fence.
            let before = State(state.fetch_or(State::FROZEN, MemoryOrder::Full));
            debug_assert!(!before.is_frozen(), "drains of one shard take turns");
        }
        if !holders.is_empty() {
            self.tree.machine.fence();
        }
        let mut drained = 0;
        for &(index, shard) in holders {
            let slot = &self.tree.node(index).slot;
            slot.settle(shard);
            // Full: pairs with the exchange in `arm`.
            let cap = slot.word(shard, CAP).swap(0, MemoryOrder::Full);
            let stock = slot.take_room(shard);
            // Full: pairs with the look at the state that begins each operation; the cap is gone before it.
            slot.word(shard, STATE)
                .fetch_and(!State::FROZEN, MemoryOrder::Full);
            self.way(index, None).release(stock);
            drained += stock;
            if stock > 0 {
                // The task that asked for the drain tells listeners at and above `scope`, and may tell of no other groups.
                self.mark_untold(index, Some(scope));
            }
            // Full: pairs with `usage_range`. After the stock is returned: a reader's range contains both.
            self.tree.chain(index).for_each(|at| {
                self.counter(at).disarmed.fetch_add(cap, MemoryOrder::Full);
            });
        }
        if drained > 0 {
            self.count(scope, Event::Drained, drained);
        }
    }

    /// Takes holders out of the marks until the slice is full. The marks above stay until all below are taken.
    fn take_holders(&self, index: u32, slice: &mut Slice) {
        let counter = self.counter(index);
        counter.holders.take_while(|shard| {
            let has_room = !slice.is_full();
            if has_room {
                slice.holders[slice.found] = (index, Shard(shard));
                slice.found += 1;
            }
            has_room
        });
        counter.holding_children.take_while(|ordinal| {
            if slice.is_full() {
                return false;
            }
            let before = slice.found;
            let child = {
                let children = self.tree.node(index).children.lock();
                children.ordinals.get(ordinal as usize).copied().flatten()
            };
            // A mark may outlive the child that it was made for, and the stock of that child.
            if let Some(child) = child {
                self.take_holders(child, slice);
            }
            slice.in_vain += usize::from(slice.found == before);
            // A shard that is armed now marks the child first, and this set after we took the mark: that mark stays.
            !slice.is_full() || child.is_none_or(|child| !self.has_holders(child))
        });
    }

    /// Lowers a group's `max`. Nothing is reserved below while the limit changes, and no stock that was reserved under the old
    /// limit is left. `with_max` hands the limit on when it is set.
    pub(crate) fn lower_max(&self, index: u32, with_max: impl FnOnce(&mut dyn FnMut(Limit))) {
        let max_word = &self.counter(index).settings.max;
        // Full: pairs with the loads of `claim_anyway` and `reserved`. `claim` is counted in, so it is not under way.
        let mut set = |max| max_word.store(max, MemoryOrder::Full);
        self.drain_closed(index, || with_max(&mut set));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Limits, Memory};

    /// A slice is bounded also where marks lead to no holder, as those of groups without stock.
    #[test]
    fn marks_in_vain_count_in_a_slice() {
        const MOST: usize = 3;
        let memory = Memory::host().unwrap();
        let tenant = memory.root().child("tenant", Limits::none()).unwrap();
        let queries = [0, 1, 2, 3, 4].map(|at| {
            let name = at.to_string();
            tenant.child(name, Limits::none()).unwrap()
        });
        let counters = &tenant.core().counters;
        let counter = counters.counter(tenant.index());
        for query in &queries {
            let node = counters.tree.node(query.index());
            counter.holding_children.mark(node.ordinal());
        }
        let slice = || {
            let mut slice = Slice {
                holders: [(ROOT, Shard(0)); SHARDS_PER_SLICE],
                found: 0,
                in_vain: 0,
                most: MOST,
            };
            counters.take_holders(tenant.index(), &mut slice);
            (slice.found, slice.in_vain)
        };
        assert_eq!([slice(), slice(), slice()], [(0, 3), (0, 2), (0, 0)]);
        counter.holders.mark(0);
        assert_eq!([slice(), slice()], [(1, 0), (0, 0)]);
    }

    /// The usage of a group falls when its stock goes. So its listeners are told, although the drain was for a group above.
    #[test]
    fn listeners_below_a_drain_are_told() {
        let memory = Memory::host().unwrap();
        let tenant = memory.root().child("tenant", Limits::none()).unwrap();
        let query = tenant.child("query", Limits::none()).unwrap();
        let counters = &tenant.core().counters;
        let drained = || {
            counters.untold.swap(0, MemoryOrder::Full);
            counters.drain_closed(tenant.index(), || ());
            counters.untold.load(MemoryOrder::Full)
        };
        drop(query.try_charge(1 << 20).unwrap());
        assert_eq!(drained(), 0, "nobody listens");
        let _listener = query.on_pressure(|_| ());
        drop(query.try_charge(1 << 20).unwrap());
        assert!(
            counters.counter(query.index()).reserved() > 0,
            "it has stock"
        );
        assert_eq!([drained(), drained()], [1, 0]);
    }
}
