//! Waiting for a limit: charges that are granted first come first among those that fit, when others return memory.
//!
//! A waiting charge holds a ticket, and queues at the group whose limit blocks it. A charge tries unless a charge with a lower
//! ticket waits on its way to the root and either fits now, or has room kept for it. Otherwise it queues behind that charge. Room is kept for the
//! first waiter when it was passed as often, or has waited as long, as [`PassingRule`] allows.
//!
//! A task that returns memory, raises a limit or leaves a queue wakes one waiter: the first that may try now. A woken waiter that
//! stays in the queue wakes the next one that fits. So a return costs one search (see `queue.rs`), however many wait.
//!
//! A charge that passes others enters their queues' counts before it tries, and leaves them if it fails. So charges that pass at the
//! same time do not exceed the bound. A waiter that goes to another queue keeps its passes, but for those of charges that are
//! granted at that moment.
//!
//! No wake-up is lost: a task enters the queue, and then closes and drains the group and tries. While the queue is not empty no
//! stock is held below. So after that each return goes to the counters, and looks at the queue afterwards. Where a waiter fits, the
//! task that made room has woken it, or has woken one before it.
//!
//! Charges that do not wait ([`crate::Group::try_charge`]) take the memory that is there even if others wait. They cannot be
//! refused on account of charges that came first.

use std::sync::Arc;
use std::task::Waker;
use std::time::Duration;

use bursar_machine::{AtomicWord, Lock, Machine, MemoryOrder};

use super::core::Core;
use super::lifetime;
use super::queue::{Now, Place, Queue, Waiter};

/// A waiting charge.
#[derive(Debug)]
pub(crate) struct Ticket {
    pub(super) index: u32,
    pub(super) bytes: u64,
    /// Taken at the first try.
    number: Option<u64>,
    /// Time of the first try.
    came_ns: u64,
    /// The group in whose queue it is.
    pub(super) queued_at: Option<u32>,
}

impl Ticket {
    pub(crate) fn new(index: u32, bytes: u64) -> Self {
        Self {
            index,
            bytes,
            number: None,
            came_ns: 0,
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
        ticket.came_ns = core.tree().machine.now_ns();
    } else if let Some(at) = ticket.queued_at {
        enqueue(core, ticket, at, waker);
    }
}

/// A charge's leave to try, until dropped. Notes whom the charge passed if it is granted.
pub(super) struct Pass<'a, M: Machine> {
    core: &'a Core<M>,
    number: u64,
    /// Groups where it passes others.
    at: Vec<u32>,
    pub(super) is_granted: bool,
}

impl<M: Machine> Drop for Pass<'_, M> {
    fn drop(&mut self) {
        for &at in &self.at {
            let rule = self.core.policies.passing;
            let mut queue = queue_of(self.core, at).lock();
            let may_others = queue.end_pass(self.number, self.is_granted, rule);
            drop(queue);
            if may_others {
                wake_next(self.core, at, None);
            }
        }
    }
}

/// Leave to try, unless a charge that came before comes first.
///
/// # Errors
/// The group on the way to the root where that charge waits.
pub(super) fn may_try<'a, M: Machine>(
    core: &'a Core<M>,
    ticket: &Ticket,
) -> Result<Pass<'a, M>, u32> {
    loop {
        // Full: a charge that moves is in two queues when it counts. If that was before this look, it is in the new one. If
        // it is after the last look, it was in the old one. In between, we look again.
        let moves = core.moves.load(MemoryOrder::Full);
        let looked = look(core, ticket);
        if looked.is_err() || core.moves.load(MemoryOrder::Full) == moves {
            return looked;
        }
    }
}

fn look<'a, M: Machine>(core: &'a Core<M>, ticket: &Ticket) -> Result<Pass<'a, M>, u32> {
    let mut pass = Pass {
        core,
        number: ticket.number.expect("taken first"),
        at: Vec::new(),
        is_granted: false,
    };
    for at in core.tree().chain(ticket.index) {
        let settings = &core.counters.counter(at).settings;
        // Full: a queue that another task has entered is seen.
        if settings.waiting.load(MemoryOrder::Full) == 0 {
            continue;
        }
        let place = {
            let mut queue = queue_of(core, at).lock();
            queue.begin_pass(pass.number, now(core, at))
        };
        match place {
            Place::First => {}
            Place::Passing => pass.at.push(at),
            Place::Behind => return Err(at),
        }
    }
    Ok(pass)
}

/// Room at a limit, and the time.
fn now<M: Machine>(core: &Core<M>, at: u32) -> Now {
    let counter = core.counters.counter(at);
    // Full: after the return. By the usage: no later look follows a claim that is given up again.
    let usage = counter.usage(MemoryOrder::Full);
    let max = counter.settings.max.load(MemoryOrder::Full);
    Now {
        max,
        left: max.saturating_sub(usage),
        ns: core.tree().machine.now_ns(),
        rule: core.policies.passing,
    }
}

/// A charge that waits for a limit; see [`crate::GroupSnapshot::waiting`].
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct WaitingCharge {
    /// Path of the group that it would charge.
    pub charged: String,
    /// Bytes that it asks for.
    pub bytes: u64,
    /// Time since it was first polled.
    pub waited: Duration,
}

/// The first charges that wait for a group's limit, by ticket.
pub(crate) fn waiting<M: Machine>(core: &Core<M>, at: u32) -> Vec<WaitingCharge> {
    const SHOWN_MAX: usize = 16;
    // Relaxed: who comes or leaves at this moment is shown or not.
    let settings = &core.counters.counter(at).settings;
    let has_waiters = settings.waiting.load(MemoryOrder::Relaxed) != 0;
    let Some(hooks) = core.hooks(at).filter(|_| has_waiters) else {
        return Vec::new();
    };
    let now_ns = core.tree().machine.now_ns();
    // A waiter keeps its group's record for as long as it is in the queue.
    let queue = hooks.queue.lock();
    let first = queue.waiters().take(SHOWN_MAX).map(|waiter| WaitingCharge {
        charged: core.tree().path(waiter.index),
        bytes: waiter.bytes,
        waited: Duration::from_nanos(now_ns.saturating_sub(waiter.came_ns)),
    });
    first.collect()
}

/// Puts a ticket in a group's queue, and takes it out of another's.
pub(super) fn enqueue<M: Machine>(core: &Core<M>, ticket: &mut Ticket, at: u32, waker: &Waker) {
    let number = ticket.number.expect("taken first");
    let waiter = Waiter {
        index: ticket.index,
        bytes: ticket.bytes,
        came_ns: ticket.came_ns,
        // Runs the runtime's code, so before anything is changed.
        waker: Arc::new(waker.clone()),
    };
    if ticket.queued_at != Some(at) {
        // A later return looks at the queue. An earlier one is there when we try.
        lifetime::listen(core, at);
    }
    let before = ticket.queued_at.filter(|&before| before != at);
    let passed = before.map_or(0, |before| queue_of(core, before).lock().passed(number));
    let replaced = {
        let mut queue = queue_of(core, at).lock();
        let replaced = queue.enter(number, waiter, passed);
        if replaced.is_none() {
            // Full: pairs with `listening_at`. Either a return sees us, or we see what it returned.
            let waiting = &core.counters.counter(at).settings.waiting;
            waiting.fetch_add(1, MemoryOrder::Full);
        }
        replaced
    };
    if replaced.is_none() {
        for above in core.tree().chain(ticket.index) {
            // Full: pairs with `has_waiting`. The charge looks at removals and limits after it.
            let waits = &core.counters.counter(above).waits_below;
            waits.fetch_add(1, MemoryOrder::Full);
        }
    }
    // Its drop runs the runtime's code.
    drop(replaced);
    ticket.queued_at = Some(at);
    if let Some(before) = before {
        // Full: pairs with `may_try`. In both until now, so that no task that looks for those ahead misses us: see `may_try`.
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
        let removed = queue.leave(number);
        // Or a forked child has forgotten it.
        if removed.is_some() {
            let waiting = &core.counters.counter(at).settings.waiting;
            // Full: pairs with `tell_at` and `PageCounter::room`. The ticket is out of the queue.
            waiting.fetch_sub(1, MemoryOrder::Full);
        }
        let is_behind = |&(other, _): &(u64, &Waiter)| other > number;
        // If it was the first, there is another first now, which may never have tried. If it was woken, another may fit.
        let first = queue.first().filter(is_behind);
        let next = first.or_else(|| queue.next(now(core, at)).filter(is_behind));
        (removed, next.map(|(_, waiter)| waiter.waker.clone()))
    };
    for above in removed.iter().flat_map(|one| core.tree().chain(one.index)) {
        // Full: pairs with nothing. It is no loss to look for a charge that is gone.
        let waits = &core.counters.counter(above).waits_below;
        waits.fetch_sub(1, MemoryOrder::Full);
    }
    // First, because the rest runs the runtime's code.
    lifetime::unlisten(core, at);
    core.call_user(at, move || drop(removed));
    if let Some(next) = next {
        wake(core, at, next);
    }
}

/// Wakes the waiter in a group's queue that may try now, if it is behind a ticket that was woken and waits on.
pub(super) fn wake_next<M: Machine>(core: &Core<M>, at: u32, behind: Option<u64>) {
    let waker = {
        let queue = queue_of(core, at).lock();
        let next = queue.next(now(core, at));
        let next = next.filter(|&(number, _)| Some(number) > behind);
        next.map(|(_, waiter)| waiter.waker.clone())
    };
    if let Some(waker) = waker {
        wake(core, at, waker);
    }
}

/// Wakes the next waiter that fits, after a charge that may have been woken waits on.
pub(super) fn wake_behind<M: Machine>(core: &Core<M>, ticket: &Ticket) {
    if let Some(at) = ticket.queued_at {
        wake_next(core, at, ticket.number);
    }
}

/// Whether charges to a group or below wait, in whatever queue. Call after a change that ends their wait.
pub(super) fn has_waiting<M: Machine>(core: &Core<M>, index: u32) -> bool {
    // Full: pairs with `enqueue`. Either we see the charge, or it sees the change.
    let waits = &core.counters.counter(index).waits_below;
    waits.load(MemoryOrder::Full) != 0
}

/// Wakes all charges that wait on the way from a group to the root, and whose group was removed.
pub(super) fn wake_removed<M: Machine>(core: &Core<M>, index: u32) {
    core.tree()
        .chain(index)
        .for_each(|at| wake_removed_at(core, at));
}

/// Wakes all charges in a group's queue whose group was removed.
pub(super) fn wake_removed_at<M: Machine>(core: &Core<M>, at: u32) {
    wake_if(core, at, |waiter| {
        core.tree().node(waiter.index).is_removed()
    });
}

/// Wakes all charges in a group's queue that are larger than the limit of `lowered`, which is on their way. [`wake_next`] has woken the first of
/// its own queue.
pub(super) fn wake_in_vain_at<M: Machine>(core: &Core<M>, at: u32, lowered: u32) {
    let settings = &core.counters.counter(lowered).settings;
    // Full: after the limit was lowered. A charge that enters a queue looks at the limits after that.
    let max = settings.max.load(MemoryOrder::Full);
    let mut is_told = at == lowered;
    wake_if(core, at, |waiter| {
        let is_told = std::mem::take(&mut is_told);
        let is_on_way = || core.tree().chain(waiter.index).any(|at| at == lowered);
        !is_told && waiter.bytes > max && is_on_way()
    });
}

fn wake_if<M: Machine>(core: &Core<M>, at: u32, mut is_woken: impl FnMut(&Waiter) -> bool) {
    let Some(hooks) = core.hooks(at) else {
        return;
    };
    let wakers: Vec<Arc<Waker>> = {
        let queue = hooks.queue.lock();
        let woken = queue.waiters().filter(|waiter| is_woken(waiter));
        woken.map(|waiter| waiter.waker.clone()).collect()
    };
    for waker in wakers {
        wake(core, at, waker);
    }
}

fn wake<M: Machine>(core: &Core<M>, at: u32, waker: Arc<Waker>) {
    core.call_user(at, || waker.wake_by_ref());
    // Its charge may have left the queue, so that this is the last owner.
    core.call_user(at, move || drop(waker));
}
