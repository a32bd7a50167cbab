//! Calls of users' code, outside of all locks.

use std::panic::{AssertUnwindSafe, catch_unwind};

use bursar_machine::Machine;

use super::core::Core;
use crate::limit::Event;

/// Calls a user's callback or waker for a group. A panic is counted and ends here. This may run in the drop of a charge,
/// which must not unwind, and other listeners must still be called. The panic hook has shown the message.
pub(super) fn call<M: Machine>(core: &Core<M>, index: u32, call: impl FnOnce()) {
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
