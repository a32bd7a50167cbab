//! Telling listeners after an operation that changed usage or limits, outside of all locks.

use std::panic::{AssertUnwindSafe, catch_unwind};

use bursar_machine::{AtomicWord, Lock, Machine, Order};

use super::Ledger;
use super::events::Event;
use super::ledger::Referred;

/// Groups looked up under one hold of the lock of the listened groups.
const GROUPS_PER_HOLD: usize = 64;

impl<M: Machine> Ledger<M> {
    /// Calls a user's callback or waker for a group. A panic is counted and ends here. This may run in the drop of a charge,
    /// which must not unwind, and other listeners must still be called. The panic hook has shown the message.
    pub(super) fn call_user(&self, index: u32, call: impl FnOnce()) {
        // Unwind safe: no lock of ours is held and nothing of ours is half changed.
        let Err(thrown) = catch_unwind(AssertUnwindSafe(call)) else {
            return;
        };
        self.count(index, Event::Panicked, 1);
        // Its drop runs the user's code, too. A payload that it throws is leaked.
        if let Err(thrown) = catch_unwind(AssertUnwindSafe(|| drop(thrown))) {
            std::mem::forget(thrown);
        }
    }

    /// Counts one more listener at a group.
    pub(super) fn listen(&self, index: u32) {
        *self.listening.lock().entry(index).or_insert(0) += 1;
        // Full: pairs with `listening_at`.
        self.listeners.fetch_add(1, Order::Full);
    }

    pub(super) fn unlisten(&self, index: u32) {
        self.listeners.fetch_sub(1, Order::Full);
        let mut listening = self.listening.lock();
        if let Some(count) = listening.get_mut(&index) {
            *count -= 1;
            if *count == 0 {
                listening.remove(&index);
            }
        }
    }

    /// A reference to a group whose usage has just changed, if it has listeners. For [`Ledger::notice`] after the last byte
    /// that kept the group's record may be gone. Call while the record exists.
    pub(super) fn listening_at(&self, index: u32) -> Option<Referred<'_, M>> {
        // Full: after the change. Either we see the listener, or it sees the change.
        (self.listeners.load(Order::Full) != 0).then(|| self.referred(index))
    }

    /// Tells listeners at a group and above it that its usage or limits have changed.
    pub(crate) fn notice(&self, index: u32) {
        self.tell_over_return();
        if self.listeners.load(Order::Full) == 0 {
            return;
        }
        if self.unnoticed.load(Order::Relaxed) != 0 {
            return self.notice_all();
        }
        self.tree.chain(index).for_each(|at| self.notice_at(at));
    }

    /// [`Ledger::notice`] without waiting charges, unless an operation left telling them to the next.
    pub(super) fn notice_watchers(&self, index: u32) {
        if self.listeners.load(Order::Full) == 0 {
            return;
        }
        if self.unnoticed.load(Order::Relaxed) != 0 {
            return self.notice_all();
        }
        for at in self.tree.chain(index) {
            if self.counter(at).settings.watchers.load(Order::Full) != 0 {
                self.tell(at);
            }
        }
    }

    fn notice_at(&self, at: u32) {
        let settings = &self.counter(at).settings;
        if settings.waiting.load(Order::Full) != 0 {
            self.wake_first(at);
        }
        if settings.watchers.load(Order::Full) != 0 {
            self.tell(at);
        }
    }

    /// Leaves telling listeners to the next operation that may call them. Async-signal-safe.
    pub(crate) fn notice_later(&self) {
        if self.listeners.load(Order::Full) != 0 {
            self.unnoticed.store(1, Order::Full);
        }
    }

    /// [`Ledger::notice_later`] if there are listeners on the way from `index` up to, and without, `end`. Async-signal-safe.
    pub(super) fn notice_later_below(&self, index: u32, end: Option<u32>) {
        let is_listened_to = |at: u32| {
            let settings = &self.counter(at).settings;
            // Full: after the change.
            let listening = [&settings.waiting, &settings.watchers];
            listening.iter().any(|word| word.load(Order::Full) != 0)
        };
        if self.listeners.load(Order::Full) != 0 && self.way(index, end).any(is_listened_to) {
            self.notice_later();
        }
    }

    /// Tells all listeners of the memory.
    pub(crate) fn notice_all(&self) {
        self.tell_over_return();
        // Full: a later change is noticed later.
        self.unnoticed.swap(0, Order::Full);
        let mut next = 0;
        loop {
            // Referred to under the lock: a listener keeps the group, but may stop when it is told.
            let some: Vec<Referred<'_, M>> = {
                let listening = self.listening.lock();
                let groups = listening.range(next..).take(GROUPS_PER_HOLD);
                groups.map(|(&at, _)| self.referred(at)).collect()
            };
            let Some(last) = some.last() else { return };
            next = last.index + 1;
            some.iter().for_each(|at| self.notice_at(at.index));
        }
    }
}
