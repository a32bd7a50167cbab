//! Removing a group, and closing a subtree: the end of a group and of all groups below it, in one call.
//!
//! First the groups are refused children, from the top down. A group that is refused children keeps those that it has, so the
//! walk finds every group, however many tasks make children meanwhile. Then each group is removed, from the bottom up. No
//! group has a living child when its turn comes.

use bursar_machine::Machine;

use super::core::Core;
use super::error::RemoveError;
use super::lifetime::{self, Referred};
use super::{fork, leftover, tell, wait};
use crate::tree::ROOT;

/// Removes a group: its name is free, it takes no charge and no child, and its numbers count as its parent's own.
///
/// Bytes charged to it stay charged, to it and to its ancestors, until they are returned.
pub(crate) fn remove<M: Machine>(core: &Core<M>, index: u32) -> Result<(), RemoveError> {
    if index == ROOT {
        return Err(RemoveError::Root);
    }
    let left = {
        let _operation = fork::operation(core);
        match core.tree().detach(index) {
            Ok(true) => lifetime::end(core, index),
            // Another task removes it, and may not have drained it yet.
            Ok(false) => {
                core.counters.drain_closed(index, || ());
                Vec::new()
            }
            Err(children) => return Err(RemoveError::HasChildren { children }),
        }
    };
    if wait::has_waiting(core, index) {
        wait::wake_removed(core, index);
    }
    tell::changed(core, index);
    leftover::tell(core, &left);
    Ok(())
}

/// Removes a group and all groups below it. The caller refers to the group.
pub(crate) fn close<M: Machine>(core: &Core<M>, index: u32) -> Result<(), RemoveError> {
    if index == ROOT {
        return Err(RemoveError::Root);
    }
    let subtree = refuse_births(core, index);
    let mut left = Vec::new();
    for group in subtree.iter().rev() {
        // One for each group: each may wait for flushes, and a fork waits for operations.
        let _operation = fork::operation(core);
        match core.tree().detach(group.index) {
            Ok(true) => left.extend(lifetime::end(core, group.index)),
            // Another task has removed it.
            Ok(false) => {}
            Err(_) => unreachable!("its children were removed, and it takes no more"),
        }
    }
    // Waits for charges that looked before the names were gone. Each end above did so for its group. But another task may
    // have taken a group's name away, and not have waited yet.
    fork::drain(core, index);
    if wait::has_waiting(core, index) {
        for group in &subtree {
            wait::wake_removed_at(core, group.index);
        }
        let parent = core.tree().node(index).parent().expect("not the root");
        wait::wake_removed(core, parent);
    }
    // Also tasks that wait for the end of one of these groups.
    tell::all(core);
    leftover::tell(core, &left);
    Ok(())
}

/// Forbids more children to all groups of a subtree. Returns the subtree, parents before children.
fn refuse_births<M: Machine>(core: &Core<M>, index: u32) -> Vec<Referred<'_, M>> {
    let _operation = fork::operation(core);
    let mut subtree = vec![lifetime::referred(core, index)];
    let mut position = 0;
    while position < subtree.len() {
        let at = subtree[position].index;
        core.tree().refuse_children(at);
        core.tree()
            .for_each_child(at, |_, child| subtree.push(lifetime::referred(core, child)));
        position += 1;
    }
    subtree
}
