//! Listeners of groups: who they are, and calling one of them, outside of all locks.

use std::panic::{AssertUnwindSafe, catch_unwind};

use bursar_machine::{AtomicWord, Lock, Machine, MemoryOrder};

use super::core::Core;
use super::fork;
use super::lifetime::{self, Referred};
use super::registered::Registered;
use crate::limit::Event;

/// State that users registered with a group.
pub(super) fn registered<M: Machine>(core: &Core<M>, index: u32) -> &Registered<M> {
    if let Some(registered) = core.registered(index)
        && !fork::is_forked(core)
    {
        return registered;
    }
    // A fork must not leave them half made, and its child must wait for no task that is gone.
    let _operation = fork::operation(core);
    core.registered_or_new(index)
}

/// Calls a user's callback or waker for a group. A panic is counted and ends here. This may run in the drop of a charge,
/// which must not unwind, and other listeners must still be called. The panic hook has shown the message.
pub(super) fn call_user<M: Machine>(core: &Core<M>, index: u32, call: impl FnOnce()) {
    // Unwind safe: no lock of ours is held and nothing of ours is half changed.
    let Err(thrown) = catch_unwind(AssertUnwindSafe(call)) else {
        return;
    };
    core.counters.count(index, Event::Panicked, 1);
    // Its drop runs the user's code, too. A payload that it throws is leaked.
    if let Err(thrown) = catch_unwind(AssertUnwindSafe(|| drop(thrown))) {
        std::mem::forget(thrown);
    }
}

/// Counts one more listener at a group.
pub(super) fn listen<M: Machine>(core: &Core<M>, index: u32) {
    *core.listening.lock().entry(index).or_insert(0) += 1;
    // Full: pairs with `listening_at`.
    core.counters.listeners.fetch_add(1, MemoryOrder::Full);
}

pub(super) fn unlisten<M: Machine>(core: &Core<M>, index: u32) {
    core.counters.listeners.fetch_sub(1, MemoryOrder::Full);
    let mut listening = core.listening.lock();
    if let Some(count) = listening.get_mut(&index) {
        *count -= 1;
        if *count == 0 {
            listening.remove(&index);
        }
    }
}

/// A reference to a group whose usage has just changed, if it has listeners. For [`super::tell::changed`] after the last byte
/// that kept the group's record may be gone. Call while the record exists.
pub(super) fn listening_at<M: Machine>(core: &Core<M>, index: u32) -> Option<Referred<'_, M>> {
    // Full: after the change. Either we see the listener, or it sees the change.
    (core.counters.listeners.load(MemoryOrder::Full) != 0).then(|| lifetime::referred(core, index))
}
