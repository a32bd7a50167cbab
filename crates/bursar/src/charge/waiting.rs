//! Waiting for a limit: charges that are granted in the order in which they came, when others return memory.
//!
//! A waiting charge holds a ticket, and queues at the group whose limit blocks it. Of all that wait on the way to the root, the
//! charge with the lowest ticket tries; the others queue behind it. A task that returns memory, raises a limit or leaves a
//! queue wakes the first in it, if its charge may fit now.
//!
//! No wake-up is lost: a task enters the queue, and then closes and drains the group and tries. While the queue is not empty no
//! stock is held below. So after that each return goes to the counters, and looks at the queue afterwards.
//!
//! Charges that do not wait ([`crate::Group::try_charge`]) take the memory that is there even if others wait. They cannot be
//! refused on account of charges that came first.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::task::{Poll, Waker};

use bursar_machine::{AtomicWord, Lock, Machine, Order};

use super::charging::Refused;
use super::high::HighPolicy;
use super::limits::Limit;
use super::reclaim::Reason;
use super::{ChargeError, Ledger};

struct Waiter {
    index: u32,
    bytes: u64,
    /// Shared, because cloning a waker runs the runtime's code, and this is cloned under the queue's lock.
    waker: Arc<Waker>,
}

/// The charges that wait for one group's limit, by ticket.
#[derive(Default)]
pub(crate) struct Queue(BTreeMap<u64, Waiter>);

impl Queue {
    /// Puts the queue right in a forked child. Wakers are left alone: their runtime's locks may stay taken.
    pub(super) fn forget_tasks(&mut self) {
        std::mem::forget(std::mem::take(&mut self.0));
    }
}

/// A waiting charge.
#[derive(Debug)]
pub(crate) struct Ticket {
    index: u32,
    bytes: u64,
    number: Option<u64>,
    /// The group in whose queue it is.
    queued_at: Option<u32>,
}

impl Ticket {
    pub(crate) fn new(index: u32, bytes: u64) -> Self {
        Self {
            index,
            bytes,
            number: None,
            queued_at: None,
        }
    }
}

impl<M: Machine> Ledger<M> {
    fn queue(&self, index: u32) -> &M::Mutex<Queue> {
        &self.hooks(index).queue
    }

    /// Charges if it is the ticket's turn and the memory is there. Otherwise makes sure that `waker` is woken when that may
    /// have changed. The caller refers to the group.
    ///
    /// # Errors
    /// [`ChargeError`] if waiting is in vain: the charge is larger than a limit, or the group was removed.
    pub(crate) fn poll_charge(
        &self,
        ticket: &mut Ticket,
        waker: &Waker,
    ) -> Poll<Result<(), ChargeError>> {
        // Puts the books right in a forked child, so that it waits for no task that is gone.
        drop(self.operation());
        let charged = self.poll_queued(ticket, waker);
        let Poll::Ready(charged) = charged else {
            // Stock was taken back. A task that returns memory wakes the first that waits. That may be this one, which would
            // only be polled again.
            self.notice_watchers(ticket.index);
            return Poll::Pending;
        };
        let unheld = charged
            .is_ok()
            .then(|| self.unheld(ticket.index, ticket.bytes));
        self.leave(ticket);
        self.notice(ticket.index);
        if let Ok(reserved) = charged {
            self.pay_for_high(ticket.index, reserved, HighPolicy::Owe);
        }
        if let Some(unheld) = unheld {
            unheld.hand_over();
        }
        Poll::Ready(charged.map(|_| ()))
    }

    /// [`Ledger::poll_charge`] up to the charge. Returns the bytes reserved.
    fn poll_queued(&self, ticket: &mut Ticket, waker: &Waker) -> Poll<Result<u64, ChargeError>> {
        let (index, bytes) = (ticket.index, ticket.bytes);
        self.check_size(bytes)?;
        if ticket.number.is_none() {
            // Relaxed: each number is given once.
            ticket.number = Some(self.tickets.fetch_add(1, Order::Relaxed));
        } else if let Some(at) = ticket.queued_at {
            // Before we try: a task that wakes us from now on wakes this waker.
            self.enqueue(ticket, at, waker);
        }
        let mut has_asked = false;
        loop {
            if self.tree.node(index).is_removed() {
                return Poll::Ready(Err(self.refuse(index, Refused::Removed, bytes)));
            }
            if let Some(at) = self.never_fits(index, bytes) {
                return Poll::Ready(Err(self.refuse(index, Refused::By(at), bytes)));
            }
            if let Some(at) = self.first_ahead(ticket) {
                // Enters its queue, so that its leaving wakes us. It may leave before we enter, so look again then.
                if ticket.queued_at == Some(at) {
                    return Poll::Pending;
                }
                self.enqueue(ticket, at, waker);
                continue;
            }
            let refused = match self.attempt(index, None, bytes) {
                Ok(reserved) => return Poll::Ready(Ok(reserved)),
                Err(refused) => refused,
            };
            let Refused::By(limiting) = refused else {
                continue;
            };
            if ticket.queued_at != Some(limiting) {
                self.enqueue(ticket, limiting, waker);
            } else if !has_asked && self.reclaim_for(index, limiting, bytes).asked {
                has_asked = true;
            } else {
                return Poll::Pending;
            }
        }
    }

    /// A group on the way to the root whose limit the charge alone exceeds.
    fn never_fits(&self, index: u32, bytes: u64) -> Option<u32> {
        let max = |at: u32| self.counter(at).settings.max.load(Order::Full);
        self.tree.chain(index).find(|&at| max(at) < bytes)
    }

    /// A group on the way to the root where a charge waits that came before.
    fn first_ahead(&self, ticket: &Ticket) -> Option<u32> {
        let number = ticket.number.expect("taken first");
        let is_ahead = |&at: &u32| {
            // Full: a queue that another task has entered is seen.
            self.counter(at).settings.waiting.load(Order::Full) != 0 && {
                let queue = self.queue(at).lock();
                queue.0.keys().next().is_some_and(|&first| first < number)
            }
        };
        loop {
            // Full: a charge that moves is in two queues when it counts. If that was before this look, it is in the new one. If
            // it is after the last look, it was in the old one. In between, we look again.
            let moves = self.moves.load(Order::Full);
            let ahead = self.tree.chain(ticket.index).find(is_ahead);
            if ahead.is_some() || self.moves.load(Order::Full) == moves {
                return ahead;
            }
        }
    }

    /// Puts a ticket in a group's queue, and takes it out of another's.
    fn enqueue(&self, ticket: &mut Ticket, at: u32, waker: &Waker) {
        let number = ticket.number.expect("taken first");
        let waiter = Waiter {
            index: ticket.index,
            bytes: ticket.bytes,
            // Runs the runtime's code, so before anything is changed.
            waker: Arc::new(waker.clone()),
        };
        if ticket.queued_at != Some(at) {
            // A later return looks at the queue. An earlier one is there when we try.
            self.listen(at);
        }
        let replaced = {
            let mut queue = self.queue(at).lock();
            let replaced = queue.0.insert(number, waiter);
            if replaced.is_none() {
                // Full: pairs with `listening_at`. Either a return sees us, or we see what it returned.
                let waiting = &self.counter(at).settings.waiting;
                waiting.fetch_add(1, Order::Full);
            }
            replaced
        };
        // Its drop runs the runtime's code.
        drop(replaced);
        let before = ticket.queued_at.replace(at);
        if let Some(before) = before.filter(|&before| before != at) {
            // In both until now, so that no task that looks for those ahead misses us: see `first_ahead`.
            self.moves.fetch_add(1, Order::Full);
            self.leave_queue(before, number);
        }
    }

    /// Takes a ticket out of its queue. The next one gets its turn.
    pub(crate) fn leave(&self, ticket: &mut Ticket) {
        if let Some(at) = ticket.queued_at.take() {
            self.leave_queue(at, ticket.number.expect("it was queued"));
        }
    }

    fn leave_queue(&self, at: u32, number: u64) {
        let (removed, next) = {
            let mut queue = self.queue(at).lock();
            let removed = queue.0.remove(&number);
            // Or a forked child has forgotten it.
            if removed.is_some() {
                let waiting = &self.counter(at).settings.waiting;
                waiting.fetch_sub(1, Order::Full);
            }
            let first = queue.0.first_key_value();
            // If it was the first, there is another first now.
            let next = first.filter(|(other, _)| **other > number);
            (removed, next.map(|(_, waiter)| waiter.waker.clone()))
        };
        // First, because the rest runs the runtime's code.
        self.unlisten(at);
        drop(removed);
        if let Some(next) = next {
            self.call_user(at, || next.wake_by_ref());
        }
    }

    /// Wakes the first in a group's queue if its charge may fit, or never will.
    pub(super) fn wake_first(&self, at: u32) {
        let waker = {
            let queue = self.queue(at).lock();
            let first = queue.0.first_key_value();
            let first = first.filter(|(_, waiter)| self.may_fit(at, waiter.bytes));
            first.map(|(_, waiter)| waiter.waker.clone())
        };
        if let Some(waker) = waker {
            self.call_user(at, || waker.wake_by_ref());
        }
    }

    fn may_fit(&self, at: u32, bytes: u64) -> bool {
        let counter = self.counter(at);
        // Full: after the return. By the usage: no later look follows a claim that is given up again.
        let usage = counter.usage.load(Order::Full);
        let max: Limit = counter.settings.max.load(Order::Full);
        bytes > max || usage.saturating_add(bytes) <= max
    }

    /// Wakes all charges that wait on the way from a group to the root, and whose group was removed.
    pub(super) fn wake_removed(&self, index: u32) {
        self.tree
            .chain(index)
            .for_each(|at| self.wake_removed_at(at));
    }

    /// Wakes all charges in a group's queue whose group was removed.
    pub(super) fn wake_removed_at(&self, at: u32) {
        let Some(hooks) = self.counter(at).hooks() else {
            return;
        };
        let wakers: Vec<Arc<Waker>> = {
            let queue = hooks.queue.lock();
            let is_removed = |waiter: &&Waiter| self.tree.node(waiter.index).is_removed();
            let removed = queue.0.values().filter(is_removed);
            removed.map(|waiter| waiter.waker.clone()).collect()
        };
        for waker in wakers {
            self.call_user(at, || waker.wake_by_ref());
        }
    }

    /// One round of reclaim for a charge that does not fit at `limiting`.
    pub(super) fn reclaim_for(
        &self,
        index: u32,
        limiting: u32,
        bytes: u64,
    ) -> super::reclaim::Round {
        let counter = self.counter(limiting);
        // Relaxed: only how much to ask for. Whether the charge fits is tried.
        let usage = counter.usage.load(Order::Relaxed);
        let max = counter.settings.max.load(Order::Relaxed);
        let over = usage.saturating_add(bytes).saturating_sub(max).max(1);
        self.reclaim_stalled(index, limiting, over, Reason::Max)
    }
}
