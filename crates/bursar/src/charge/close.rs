//! Closing a subtree: the end of a group and of all groups below it, in one call.
//!
//! First the groups are refused children, from the top down. A group that is refused children keeps those that it has, so the
//! walk finds every group, however many tasks make children meanwhile. Then each group is removed, from the bottom up. No
//! group has a living child when its turn comes.

use bursar_machine::Machine;

use super::ledger::Referred;
use super::{Ledger, RemoveError};
use crate::stats::ROOT;

impl<M: Machine> Ledger<M> {
    /// Removes a group and all groups below it. The caller refers to the group.
    pub(crate) fn close(&self, index: u32) -> Result<(), RemoveError> {
        if index == ROOT {
            return Err(RemoveError::Root);
        }
        let subtree = self.refuse_births(index);
        for group in subtree.iter().rev() {
            // One for each group: each may wait for flushes, and a fork waits for operations.
            let _operation = self.operation();
            match self.tree.detach(group.index) {
                Ok(true) => self.end(group.index),
                // Another task has removed it.
                Ok(false) => {}
                Err(_) => unreachable!("its children were removed, and it takes no more"),
            }
        }
        // Waits for charges that looked before the names were gone. Each end above did so for its group. But another task may
        // have taken a group's name away, and not have waited yet.
        self.drain_closed(index, || ());
        for group in &subtree {
            self.wake_removed_at(group.index);
        }
        let parent = self.tree.node(index).parent().expect("not the root");
        self.wake_removed(parent);
        // Also tasks that wait for the end of one of these groups.
        self.notice_all();
        Ok(())
    }

    /// Lets no group of a subtree have more children; returns the subtree, parents before children.
    fn refuse_births(&self, index: u32) -> Vec<Referred<'_, M>> {
        let _operation = self.operation();
        let mut subtree = vec![self.referred(index)];
        let mut position = 0;
        while position < subtree.len() {
            let at = subtree[position].index;
            self.tree.refuse_children(at);
            self.tree
                .for_each_child(at, |_, child| subtree.push(self.referred(child)));
            position += 1;
        }
        subtree
    }
}
