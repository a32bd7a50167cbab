//! Closing a subtree and taking its stock back: before a refusal, when a limit is lowered, after an overshoot.

use bursar_machine::{AtomicWord, CAP, Lock, Machine, Order, STATE, Shard, Slot, State};

use super::charging::Refused;
use super::counter::PageCounter;
use super::events::Event;
use super::ledger::Referred;
use super::{ChargeError, Ledger, LimitReached};
use crate::stats::ROOT;

/// Shards that are frozen at once, and drained under one hold of a group's slow lock.
const SHARDS_PER_SLICE: usize = 256;
/// Children named in a refusal.
const LARGEST: usize = 5;

/// A charge that does not fit.
#[derive(Debug)]
pub(super) enum Refusal {
    /// This group's limit refuses it, and no stock is left below.
    By(u32),
    /// It fits where it did not before, but not somewhere else.
    Elsewhere,
    /// The group was removed meanwhile.
    Removed,
}

impl<M: Machine> Ledger<M> {
    /// Charges `bytes` from `index` up to `end` with `limiting` closed and drained.
    ///
    /// All of it while nothing else is under way there. If the charge were recorded later, the group could be removed in
    /// between, and others would have been refused for bytes that nobody gets.
    pub(super) fn charge_drained(
        &self,
        limiting: u32,
        index: u32,
        end: Option<u32>,
        bytes: u64,
    ) -> Result<(), Refusal> {
        // Below the closed group we are not counted yet, and what we reserve there may be undone.
        let below = || {
            self.tree
                .chain(index)
                .take_while(|&at| at != limiting)
                .map(|at| self.counter(at))
        };
        self.drain_closed(limiting, || {
            below().for_each(PageCounter::enter);
            let reserved = match self.tree.node(index).is_removed() {
                true => None,
                false => Some(self.reserve(index, end, bytes)),
            };
            if let Some(Ok(())) = reserved {
                self.commit_charge(index, bytes, 0);
            }
            below().for_each(PageCounter::exit);
            match reserved.ok_or(Refusal::Removed)? {
                Ok(()) => Ok(()),
                Err(at) if at == limiting => {
                    self.count(at, Event::Max, 1);
                    Err(Refusal::By(at))
                }
                Err(_) => Err(Refusal::Elsewhere),
            }
        })
    }

    /// Closes `index`, takes all stock at and below it back, does `last` while nothing slow runs there, and opens it.
    pub(super) fn drain_closed<R>(&self, index: u32, last: impl FnOnce() -> R) -> R {
        let _operation = self.operation();
        let counter = self.counter(index);
        let above = self.tree.node(index).parent();
        counter.close(&self.tree.machine);
        while self.has_holders(index) {
            // What we take is in no counter for a moment, so those who close groups above us must know of us. If one of
            // these is closed we wait, and hold nothing meanwhile but our own closure.
            let _flight = self.enter_patiently(above);
            let _slice = counter.slow.lock();
            self.drain_slice(index);
        }
        let result = {
            let _flight = self.enter_patiently(above);
            // One at a time: another's reservation that fails higher up must not be in our way.
            let _last = counter.slow.lock();
            last()
        };
        counter.open();
        result
    }

    /// Takes stock back where a limit has much of it below, if there is such a limit; once a flush period.
    pub(crate) fn trim(&self) {
        let now_ns = self.tree.machine.now_ns();
        // Relaxed, both: hints. Who trims at the same time does it once more.
        if now_ns < self.trim_due_ns.load(Order::Relaxed)
            || self.much_stock.swap(0, Order::Relaxed) == 0
        {
            return;
        }
        let due_ns = now_ns.saturating_add(self.tree.flush_period_ns);
        self.trim_due_ns.store(due_ns, Order::Relaxed);
        self.trim_below(ROOT);
    }

    fn trim_below(&self, index: u32) {
        let counter = self.counter(index);
        if counter.stock_max.load(Order::Relaxed) == 0 {
            return;
        }
        if counter.has_much_stock() {
            self.drain_closed(index, || ());
            return self.notice(index);
        }
        let mut below: Vec<Referred<'_, M>> = Vec::new();
        self.tree.for_each_child(index, |_, child| {
            if self.counter(child).stock_max.load(Order::Relaxed) != 0 {
                below.push(self.referred(child));
            }
        });
        below.iter().for_each(|at| self.trim_below(at.index));
    }

    /// Takes the stock of at most a slice of holders.
    fn drain_slice(&self, scope: u32) {
        let mut holders = Vec::new();
        self.take_holders(scope, &mut holders);
        for &(index, shard) in &holders {
            let state = self.tree.node(index).slot.word(shard, STATE);
            // Full: before the fence, after which no section that missed it commits.
            let before = State(state.fetch_or(State::FROZEN, Order::Full));
            debug_assert!(!before.is_frozen(), "one drain at a time");
        }
        if !holders.is_empty() {
            self.tree.machine.fence();
        }
        let mut drained = 0;
        for &(index, shard) in &holders {
            let slot = &self.tree.node(index).slot;
            slot.settle(shard);
            let cap = slot.word(shard, CAP).swap(0, Order::Full);
            let stock = slot.take_room(shard);
            // Full: pairs with the look at the state that begins each operation; the cap is gone before it.
            slot.word(shard, STATE)
                .fetch_and(!State::FROZEN, Order::Full);
            self.release(index, None, stock);
            drained += stock;
            if stock > 0 {
                // Who asked for the drain tells those who listen at and above `scope`, and may be told of no other groups.
                self.notice_later_below(index, Some(scope));
            }
            // After the stock is returned: a reader's range contains both.
            self.tree.chain(index).for_each(|at| {
                self.counter(at).stock_max.fetch_sub(2 * cap, Order::Full);
            });
        }
        if drained > 0 {
            self.count(scope, Event::Drained, drained);
        }
    }

    /// Takes holders out of the marks, at most a slice of them; the marks above stay until all below are taken.
    fn take_holders(&self, index: u32, holders: &mut Vec<(u32, Shard)>) {
        let counter = self.counter(index);
        let mut shards = Vec::new();
        counter.holders.take(|shard| shards.push(Shard(shard)));
        for shard in shards {
            if holders.len() < SHARDS_PER_SLICE {
                holders.push((index, shard));
            } else {
                counter.holders.mark(shard.0);
            }
        }
        let mut ordinals = Vec::new();
        counter
            .holding_children
            .take(|ordinal| ordinals.push(ordinal));
        for ordinal in ordinals {
            let child = {
                let children = self.tree.node(index).children.lock();
                children.ordinals.get(ordinal as usize).copied().flatten()
            };
            let Some(child) = child else { continue };
            if holders.len() < SHARDS_PER_SLICE {
                self.take_holders(child, holders);
            }
            if self.has_holders(child) {
                counter.holding_children.mark(ordinal);
            }
        }
    }

    /// Says why a charge is refused, and counts it.
    pub(super) fn refuse(&self, index: u32, refused: Refused, bytes: u64) -> ChargeError {
        let limited = match refused {
            Refused::By(limited) => limited,
            Refused::Removed => {
                return ChargeError::Removed {
                    group: self.tree.path(index).into(),
                };
            }
        };
        self.count(limited, Event::Refused, 1);
        let counter = self.counter(limited);
        ChargeError::LimitReached(Box::new(LimitReached {
            charged: self.tree.path(index),
            limited: self.tree.path(limited),
            requested: bytes,
            usage: counter.usage.load(Order::Relaxed),
            max: counter.settings.max.load(Order::Relaxed),
            largest: self.largest_children(limited, LARGEST),
        }))
    }
}
