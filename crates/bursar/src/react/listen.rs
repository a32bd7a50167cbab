//! Listeners of groups: who they are.

use bursar_machine::{AtomicWord, Lock, Machine, MemoryOrder};

use super::core::Core;
use super::fork;
use super::hooks::Hooks;
use super::lifetime::{self, Referred};

/// State that users registered with a group.
pub(super) fn hooks<M: Machine>(core: &Core<M>, index: u32) -> &Hooks<M> {
    if let Some(hooks) = core.hooks(index)
        && !fork::is_forked(core)
    {
        return hooks;
    }
    // A fork must not leave them half made, and its child must wait for no task that is gone.
    let _operation = fork::operation(core);
    core.hooks_or_new(index)
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
