//! The end of groups: removal, and the reuse of records.
//!
//! A group ends when it is removed, or when nothing refers to it any more but children that have ended. Its record lives on
//! while something refers to it or bytes are charged to it. A record is *listed* when its group has ended and its last
//! reference goes. Each birth and each end of a group look at a few listed records, and each tick at some more. A record that
//! is still charged goes to the end of the list. So the number of records that a call looks at is bounded.

use std::sync::atomic::Ordering::Relaxed;

use bursar_machine::{AtomicWord, CHARGED, Lock, Machine, Order, Shard, Slot};

use super::ledger::Gates;
use super::{Ledger, RemoveError};
use crate::stats::{ROOT, References};

/// Listed records that the last reference of a group looks at. More than one, so that the list gets shorter.
const REAPED_BY_END: usize = 4;
/// The same for a birth.
pub(super) const REAPED_BY_BIRTH: usize = 2;
/// The same for a tick.
pub(crate) const REAPED_BY_TICK: usize = 1024;

impl<M: Machine> Ledger<M> {
    /// Removes a group: its name is free, it takes no charge and no child, and its numbers count as its parent's own.
    ///
    /// Bytes charged to it stay charged, to it and to its ancestors, until they are returned.
    pub(crate) fn remove(&self, index: u32) -> Result<(), RemoveError> {
        if index == ROOT {
            return Err(RemoveError::Root);
        }
        {
            let _operation = self.operation();
            match self.tree.detach(index) {
                Ok(true) => self.end(index),
                Ok(false) => {}
                Err(children) => return Err(RemoveError::HasChildren { children }),
            }
        }
        self.wake_removed(index);
        self.notice(index);
        Ok(())
    }

    /// Completes the end of a group that has lost its name. If nothing else kept the parent's name, the parent ends next.
    pub(super) fn end(&self, index: u32) {
        let mut ending = index;
        loop {
            self.unprotect(ending);
            // Operations that looked before the name was gone are done when this returns, and their stock is back.
            self.drain_closed(ending, || ());
            // Its stock is back. The caller may not call listeners.
            self.notice_later_below(ending, None);
            self.tree.absorb(ending);
            let node = self.tree.node(ending);
            // The record may be gone when it has ended.
            let parent = node.parent().expect("the root never ends");
            // Relaxed: a statistic.
            self.removed_groups.fetch_add(1, Relaxed);
            // Counted as removed before its record can end. The root counts nothing.
            let left = (parent != ROOT).then(|| self.tree.node(parent).child_removed());
            node.end();
            self.list(ending);
            let is_last = left.is_some_and(References::only_removed_children);
            if !is_last || !self.tree.detach_unreferenced(parent) {
                return;
            }
            ending = parent;
        }
    }

    /// Lists a record if its group has ended and nothing refers to it.
    fn list(&self, index: u32) {
        if self.tree.node(index).take_listing() {
            self.listed.lock().push_back(index);
        }
    }

    /// Takes one more reference to a group.
    pub(crate) fn refer(&self, index: u32) {
        // The root needs none, and all CPUs use its line.
        if index != ROOT {
            self.tree.node(index).refer();
        }
    }

    /// Drops a reference. The last one but those of removed children removes the group.
    pub(crate) fn forget(&self, index: u32) {
        if index == ROOT {
            return;
        }
        let _operation = self.operation();
        let left = self.tree.node(index).forget();
        // Without these references it has no living children. Another task may have looked it up by name meanwhile. Then it
        // lives on, and the drop of that handle comes here again.
        if left.only_removed_children() {
            if self.tree.detach_unreferenced(index) {
                self.end(index);
            } else {
                self.list(index);
            }
            self.reap(REAPED_BY_END);
        }
    }

    /// Ends the records that nothing refers to and no byte is charged to, among at most `count` listed ones.
    pub(crate) fn reap(&self, count: usize) {
        let mut first_kept = None;
        for _ in 0..count {
            // One for each record: each may wait for flushes, and a fork waits for operations.
            let _operation = self.operation();
            let Some(index) = self.listed.lock().pop_front() else {
                return;
            };
            let has_come_round = first_kept == Some(index);
            if has_come_round || !self.reap_one(index) {
                first_kept.get_or_insert(index);
                self.listed.lock().push_back(index);
            }
            if has_come_round {
                return;
            }
        }
    }

    /// Ends a listed record, if that is possible. Returns whether it is no longer listed.
    fn reap_one(&self, index: u32) -> bool {
        let node = self.tree.node(index);
        let is_unreferenced = || node.references().is_empty();
        let was_unreferenced = is_unreferenced();
        if was_unreferenced && !self.is_uncharged(index) {
            return false;
        }
        // The second look: a charge that becomes empty takes its reference before it returns its bytes.
        if !was_unreferenced || !is_unreferenced() {
            // Listed again with its last reference, which may be gone already.
            node.end();
            self.list(index);
            return true;
        }
        let parent = self.tree.bury(index, |end| {
            // Not while a drain higher up may be about to look at this record.
            let flight = self.enter(Gates::Drains, node.parent());
            flight.is_ok().then(end).is_some()
        });
        let Some(parent) = parent else {
            return false;
        };
        self.removed_groups.fetch_sub(1, Relaxed);
        if parent != ROOT {
            self.tree.node(parent).forget_child();
            self.list(parent);
        }
        true
    }

    /// Whether no byte is charged to a removed group without references.
    ///
    /// Its charge may still grow, but on the extra shard only ([`Ledger::commit_anyway`]); the numbers of all other shards can
    /// only fall. The extra shard is read last, so the sum of the numbers read is no less than the truth at that moment. A sum
    /// of zero stays zero: without a byte charged there is nothing to grow. A task that returns a byte of a removed group
    /// lowers its word last, so no task is left inside the record.
    fn is_uncharged(&self, index: u32) -> bool {
        let node = self.tree.node(index);
        let touched = self.tree.touched(index);
        debug_assert_eq!(touched.last(), Some(&self.tree.extra()), "the highest");
        let charged = |shard: Shard| node.slot.word(shard, CHARGED).load_signed(Order::Full);
        touched.into_iter().map(charged).sum::<i64>() == 0
    }
}
