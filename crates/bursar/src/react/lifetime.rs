//! The life of groups: birth, references, listeners, the end, the reuse of records.
//!
//! A group ends when it is removed, or when nothing refers to it any more but children that have ended. Its record lives on
//! while something refers to it or bytes are charged to it. A record is *listed* when its group has ended and its last
//! reference goes. Each birth and each end of a group look at a few listed records, and each tick at some more. A record that
//! is still charged goes to the end of the list. So the number of records that a call looks at is bounded.

use std::sync::atomic::Ordering::Relaxed;

use bursar_machine::{AtomicWord, CHARGED, Lock, Machine, MemoryOrder, Shard, Slot};

use super::core::Core;
use super::error::ChargeError;
use super::hooks::Hooks;
use super::leftover::Left;
use super::{fork, leftover};
use crate::limit::Limits;
use crate::tree::{CreateError, ROOT, References};

/// Listed records that the last reference of a group looks at. More than one, so that the list gets shorter.
const REAPED_BY_END: usize = 4;
/// Listed records that the birth of a group looks at.
const REAPED_BY_BIRTH: usize = 2;

/// A reference to a group's record, until dropped.
pub(crate) struct Referred<'a, M: Machine> {
    core: &'a Core<M>,
    pub(crate) index: u32,
}

impl<M: Machine> Drop for Referred<'_, M> {
    fn drop(&mut self) {
        forget(self.core, self.index);
    }
}

/// Takes one more reference to a group whose record the caller keeps.
pub(crate) fn referred<M: Machine>(core: &Core<M>, index: u32) -> Referred<'_, M> {
    core.counters.refer(index);
    Referred { core, index }
}

/// Takes the reference that a charge of 0 bytes holds.
pub(crate) fn pin<M: Machine>(core: &Core<M>, index: u32) -> Result<(), ChargeError> {
    if core.tree().node(index).is_removed() {
        return Err(ChargeError::Removed {
            group: path(core, index).into(),
        });
    }
    core.counters.refer(index);
    Ok(())
}

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
    (core.counters.listeners.load(MemoryOrder::Full) != 0).then(|| referred(core, index))
}

/// Makes a child with limits.
pub(crate) fn create<M: Machine>(
    core: &Core<M>,
    parent: u32,
    name: &str,
    limits: Limits,
) -> Result<u32, CreateError> {
    let _operation = fork::operation(core);
    reap(core, REAPED_BY_BIRTH);
    core.tree().create(
        parent,
        name,
        |ordinal| core.counters.make_room(parent, ordinal),
        |index| core.counters.put(index) && core.put_hooks(index),
        |index| {
            core.counters.begin_life(index, limits);
            if let Some(hooks) = core.hooks(index) {
                hooks.clear();
            }
        },
    )
}

/// The path of names from the root.
pub(crate) fn path<M: Machine>(core: &Core<M>, index: u32) -> String {
    let _operation = fork::operation(core);
    core.tree().path(index)
}

/// Groups that have ended and whose records wait for their last handle or byte.
pub(crate) fn removed_groups<M: Machine>(core: &Core<M>) -> usize {
    core.removed_groups.load(Relaxed) as usize
}

/// Completes the end of a group that has lost its name. If nothing else kept the parent's name, the parent ends next. Returns the
/// groups that still have bytes, for [`leftover::tell`].
pub(super) fn end<M: Machine>(core: &Core<M>, index: u32) -> Vec<Left> {
    let mut ending = index;
    let mut left_over = Vec::new();
    loop {
        unprotect(core, ending);
        // Operations that looked before the name was gone are done when this returns, and their stock is back.
        core.counters.drain_closed(ending, || ());
        // Its stock is back. The caller may not call listeners.
        core.counters.mark_untold(ending, None);
        core.tree().absorb(ending);
        left_over.extend(leftover::note(core, ending));
        let node = core.tree().node(ending);
        // The record may be gone when it has ended.
        let parent = node.parent().expect("the root never ends");
        // Relaxed: a statistic.
        core.removed_groups.fetch_add(1, Relaxed);
        // Counted as removed before its record can end. The root counts nothing.
        let left = (parent != ROOT).then(|| core.tree().node(parent).child_removed());
        node.end();
        list(core, ending);
        let is_last = left.is_some_and(References::only_removed_children);
        if !is_last || !core.tree().detach_unreferenced(parent) {
            return left_over;
        }
        ending = parent;
    }
}

/// Lists a record if its group has ended and nothing refers to it.
fn list<M: Machine>(core: &Core<M>, index: u32) {
    if core.tree().node(index).take_listing() {
        core.listed.lock().push_back(index);
    }
}

/// Drops a reference. The last one but those of removed children removes the group.
pub(crate) fn forget<M: Machine>(core: &Core<M>, index: u32) {
    if index == ROOT {
        return;
    }
    let mut left_over = Vec::new();
    {
        let _operation = fork::operation(core);
        let left = core.tree().node(index).forget();
        // Without these references it has no living children. Another task may have looked it up by name meanwhile. Then it
        // lives on, and the drop of that handle comes here again.
        if left.only_removed_children() {
            if core.tree().detach_unreferenced(index) {
                left_over = end(core, index);
            } else {
                list(core, index);
            }
            reap(core, REAPED_BY_END);
        }
    }
    leftover::tell(core, &left_over);
}

/// Ends the records that nothing refers to and no byte is charged to, among at most `count` listed ones.
pub(crate) fn reap<M: Machine>(core: &Core<M>, count: usize) {
    let mut first_kept = None;
    for _ in 0..count {
        // One for each record: each may wait for flushes, and a fork waits for operations.
        let _operation = fork::operation(core);
        let Some(index) = core.listed.lock().pop_front() else {
            return;
        };
        let has_come_round = first_kept == Some(index);
        if has_come_round || !reap_one(core, index) {
            first_kept.get_or_insert(index);
            core.listed.lock().push_back(index);
        }
        if has_come_round {
            return;
        }
    }
}

/// Ends a listed record, if that is possible. Returns whether it is no longer listed.
fn reap_one<M: Machine>(core: &Core<M>, index: u32) -> bool {
    let node = core.tree().node(index);
    let is_unreferenced = || node.references().is_empty();
    let was_unreferenced = is_unreferenced();
    if was_unreferenced {
        if !is_uncharged(core, index) || !core.tree().make_room_to_end(index) {
            return false;
        }
        leftover::forget(core, index);
    }
    // The second look: a charge that becomes empty takes its reference before it returns its bytes.
    if !was_unreferenced || !is_unreferenced() {
        // Listed again with its last reference, which may be gone already.
        node.end();
        list(core, index);
        return true;
    }
    let parent = core.tree().bury(index, |end| {
        // Not while a drain higher up may be about to look at this record.
        let entered = core.counters.enter_drains(node.parent());
        entered.is_ok().then(end).is_some()
    });
    let Some(parent) = parent else {
        return false;
    };
    core.removed_groups.fetch_sub(1, Relaxed);
    if parent != ROOT {
        core.tree().node(parent).forget_child();
        list(core, parent);
    }
    true
}

/// Whether no byte is charged to a removed group without references.
///
/// Its charge may still grow, but on the extra shard only ([`crate::limit::Counters::commit_anyway`]); the numbers of all other shards can
/// only fall. The extra shard is read last, so the sum of the numbers read is no less than the truth at that moment. A sum
/// of zero stays zero: without a byte charged there is nothing to grow. A task that returns a byte of a removed group
/// lowers its word last, so no task is left inside the record.
fn is_uncharged<M: Machine>(core: &Core<M>, index: u32) -> bool {
    let node = core.tree().node(index);
    let charged = |shard: Shard| {
        // Full: pairs with the last step of a return: the addition in `AtomicShard`, or the store of a section.
        node.slot
            .word(shard, CHARGED)
            .load_signed(MemoryOrder::Full)
    };
    // Numbers of bytes that were returned and never charged wrap.
    let (mut sum, mut last) = (0_i64, None);
    core.tree().for_touched(index, |shards| {
        sum = shards
            .iter()
            .map(|&shard| charged(shard))
            .fold(sum, i64::wrapping_add);
        last = shards.last().copied().or(last);
    });
    debug_assert_eq!(last, Some(core.tree().extra()), "the highest");
    sum == 0
}

/// Looks at returns that a task makes before it goes on anyway: the returning one may have been preempted. Judgement: some 10 ms.
const RETURN_ROUNDS: u32 = 1 << 14;

/// Waits for tasks that are returning the last bytes of an ended group. They lower the groups above after it, and its words last. So bytes
/// that the group has no more may be missing above for a moment.
pub(super) fn wait_for_returns<M: Machine>(core: &Core<M>, index: u32) {
    let mut rounds = 0;
    // An operation each, because it takes a lock that a fork must not copy.
    let is_uncharged = || {
        let _operation = fork::operation(core);
        is_uncharged(core, index)
    };
    while rounds < RETURN_ROUNDS && !is_uncharged() {
        // Never a sleep, which would make the rounds much longer.
        let round = rounds.min(bursar_machine::GIVE_WAY);
        core.tree().machine.relax(round);
        rounds += 1;
    }
}

/// Ends the protection of a removed group.
fn unprotect<M: Machine>(core: &Core<M>, index: u32) {
    let settings = &core.counters.counter(index).settings;
    // Full, both: pair with `Counters::limits`.
    settings.min.store(0, MemoryOrder::Full);
    settings.low.store(0, MemoryOrder::Full);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Memory;

    #[test]
    fn a_group_without_listeners_is_forgotten() {
        let memory = Memory::host().unwrap();
        let group = memory.root().child("group", crate::Limits::none()).unwrap();
        let (core, index) = (group.core(), group.index());
        let listening = || core.listening.lock().get(&index).copied();
        listen(core, index);
        listen(core, index);
        unlisten(core, index);
        assert_eq!(listening(), Some(1));
        unlisten(core, index);
        assert_eq!(listening(), None);
    }
}
