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

use std::sync::Arc;
use std::task::Waker;

use bursar_machine::{AtomicWord, Lock, Machine, MemoryOrder};

use super::core::Core;
use super::hooks::{Queue, Waiter};
use super::lifetime;
use crate::limit::Limit;

/// A waiting charge.
#[derive(Debug)]
pub(crate) struct Ticket {
    pub(super) index: u32,
    pub(super) bytes: u64,
    /// Taken at the first try.
    number: Option<u64>,
    /// The group in whose queue it is.
    pub(super) queued_at: Option<u32>,
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

    /// Whether it is in a queue.
    pub(crate) fn is_queued(&self) -> bool {
        self.queued_at.is_some()
    }

    /// Whether it was tried before.
    pub(super) fn has_waited(&self) -> bool {
        self.number.is_some()
    }
}

fn queue_of<M: Machine>(core: &Core<M>, index: u32) -> &M::Mutex<Queue> {
    &lifetime::hooks(core, index).queue
}

/// Prepares a ticket for a try. A task that wakes it from now on wakes this waker.
pub(super) fn renew<M: Machine>(core: &Core<M>, ticket: &mut Ticket, waker: &Waker) {
    if ticket.number.is_none() {
        // Relaxed: each number is given once.
        ticket.number = Some(core.tickets.fetch_add(1, MemoryOrder::Relaxed));
    } else if let Some(at) = ticket.queued_at {
        enqueue(core, ticket, at, waker);
    }
}

/// A group on the way to the root where a charge waits that came before.
pub(super) fn first_ahead<M: Machine>(core: &Core<M>, ticket: &Ticket) -> Option<u32> {
    let number = ticket.number.expect("taken first");
    let is_ahead = |&at: &u32| {
        // Full: a queue that another task has entered is seen.
        core.counters
            .counter(at)
            .settings
            .waiting
            .load(MemoryOrder::Full)
            != 0
            && {
                let queue = queue_of(core, at).lock();
                queue.keys().next().is_some_and(|&first| first < number)
            }
    };
    loop {
        // Full: a charge that moves is in two queues when it counts. If that was before this look, it is in the new one. If
        // it is after the last look, it was in the old one. In between, we look again.
        let moves = core.moves.load(MemoryOrder::Full);
        let ahead = core.tree().chain(ticket.index).find(is_ahead);
        if ahead.is_some() || core.moves.load(MemoryOrder::Full) == moves {
            return ahead;
        }
    }
}

/// Puts a ticket in a group's queue, and takes it out of another's.
pub(super) fn enqueue<M: Machine>(core: &Core<M>, ticket: &mut Ticket, at: u32, waker: &Waker) {
    let number = ticket.number.expect("taken first");
    let waiter = Waiter {
        index: ticket.index,
        bytes: ticket.bytes,
        // Runs the runtime's code, so before anything is changed.
        waker: Arc::new(waker.clone()),
    };
    if ticket.queued_at != Some(at) {
        // A later return looks at the queue. An earlier one is there when we try.
        lifetime::listen(core, at);
    }
    let replaced = {
        let mut queue = queue_of(core, at).lock();
        let replaced = queue.insert(number, waiter);
        if replaced.is_none() {
            // Full: pairs with `listening_at`. Either a return sees us, or we see what it returned.
            let waiting = &core.counters.counter(at).settings.waiting;
            waiting.fetch_add(1, MemoryOrder::Full);
        }
        replaced
    };
    // Its drop runs the runtime's code.
    drop(replaced);
    let before = ticket.queued_at.replace(at);
    if let Some(before) = before.filter(|&before| before != at) {
        // Full: pairs with `first_ahead`. In both until now, so that no task that looks for those ahead misses us: see `first_ahead`.
        core.moves.fetch_add(1, MemoryOrder::Full);
        leave_queue(core, before, number);
    }
}

/// Takes a ticket out of its queue. The next one gets its turn.
pub(crate) fn leave<M: Machine>(core: &Core<M>, ticket: &mut Ticket) {
    if let Some(at) = ticket.queued_at.take() {
        leave_queue(core, at, ticket.number.expect("it was queued"));
    }
}

fn leave_queue<M: Machine>(core: &Core<M>, at: u32, number: u64) {
    let (removed, next) = {
        let mut queue = queue_of(core, at).lock();
        let removed = queue.remove(&number);
        // Or a forked child has forgotten it.
        if removed.is_some() {
            let waiting = &core.counters.counter(at).settings.waiting;
            // Full: pairs with `tell_at` and `PageCounter::room`. The ticket is out of the queue.
            waiting.fetch_sub(1, MemoryOrder::Full);
        }
        let first = queue.first_key_value();
        // If it was the first, there is another first now.
        let next = first.filter(|(other, _)| **other > number);
        (removed, next.map(|(_, waiter)| waiter.waker.clone()))
    };
    // First, because the rest runs the runtime's code.
    lifetime::unlisten(core, at);
    drop(removed);
    if let Some(next) = next {
        core.call_user(at, || next.wake_by_ref());
    }
}

/// Wakes the first in a group's queue if its charge may fit, or never will.
pub(super) fn wake_first<M: Machine>(core: &Core<M>, at: u32) {
    let waker = {
        let queue = queue_of(core, at).lock();
        let first = queue.first_key_value();
        let first = first.filter(|(_, waiter)| may_fit(core, at, waiter.bytes));
        first.map(|(_, waiter)| waiter.waker.clone())
    };
    if let Some(waker) = waker {
        core.call_user(at, || waker.wake_by_ref());
    }
}

fn may_fit<M: Machine>(core: &Core<M>, at: u32, bytes: u64) -> bool {
    let counter = core.counters.counter(at);
    // Full: after the return. By the usage: no later look follows a claim that is given up again.
    let usage = counter.usage(MemoryOrder::Full);
    let max: Limit = counter.settings.max.load(MemoryOrder::Full);
    bytes > max || usage.saturating_add(bytes) <= max
}

/// Wakes all charges that wait on the way from a group to the root, and whose group was removed.
pub(super) fn wake_removed<M: Machine>(core: &Core<M>, index: u32) {
    core.tree()
        .chain(index)
        .for_each(|at| wake_removed_at(core, at));
}

/// Wakes all charges in a group's queue whose group was removed.
pub(super) fn wake_removed_at<M: Machine>(core: &Core<M>, at: u32) {
    let Some(hooks) = core.hooks(at) else {
        return;
    };
    let wakers: Vec<Arc<Waker>> = {
        let queue = hooks.queue.lock();
        let is_removed = |waiter: &&Waiter| core.tree().node(waiter.index).is_removed();
        let removed = queue.values().filter(is_removed);
        removed.map(|waiter| waiter.waker.clone()).collect()
    };
    for waker in wakers {
        core.call_user(at, || waker.wake_by_ref());
    }
}
