//! The end of groups: removal, and the reuse of records.

use bursar_machine::{AtomicWord, CHARGED, Lock, Machine, Order, Shard, Slot};

use super::{Ledger, RemoveError};
use crate::stats::ROOT;

/// Candidates that a call looks at in passing.
const SOME: usize = 4;

impl<M: Machine> Ledger<M> {
    /// Removes a group: its name is free, it takes no charge and no child, its numbers count as its parent's own.
    ///
    /// What is charged to it stays charged, to it and to its ancestors, until it is returned.
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

    /// What follows when a group has lost its name.
    fn end(&self, index: u32) {
        self.unprotect(index);
        // Those who looked before the name was gone are done when this returns, and their stock is back.
        self.drain_closed(index, || ());
        // Its stock is back; the caller may not call.
        self.notice_later_below(index, None);
        self.tree.absorb(index);
        self.removed.lock().push_back(index);
    }

    /// Takes one more reference to a group.
    pub(crate) fn refer(&self, index: u32) {
        // Full: a new reference comes from an old one, which stays until this is done.
        self.tree.node(index).references.fetch_add(1, Order::Full);
    }

    /// Drops a handle's reference. The last one removes the group.
    pub(crate) fn forget(&self, index: u32) {
        if index == ROOT {
            return;
        }
        let _operation = self.operation();
        if self.tree.node(index).references.fetch_sub(1, Order::Full) == 1 {
            // Without references it has no children. Somebody may have looked it up by name meanwhile: then it lives on,
            // and that handle's drop comes here again.
            if self.tree.detach_unreferenced(index) == Ok(true) {
                self.end(index);
            }
            self.reap(SOME);
        }
    }

    /// Ends the life of removed groups that nothing refers to any more, looking at `count` candidates at most.
    pub(crate) fn reap(&self, count: usize) {
        let _operation = self.operation();
        let candidates: Vec<u32> = {
            let mut removed = self.removed.lock();
            let unreferenced =
                |&index: &u32| self.tree.node(index).references.load(Order::Full) == 0;
            let mut candidates = Vec::new();
            // Those looked at go to the end, so that all get their turn.
            for _ in 0..removed.len() {
                if candidates.len() == count {
                    break;
                }
                if let Some(index) = removed.pop_front() {
                    if unreferenced(&index) {
                        candidates.push(index);
                    } else {
                        removed.push_back(index);
                    }
                }
            }
            candidates
        };
        for index in candidates {
            // In this order: a charge that becomes one of nothing takes its reference before it returns its bytes.
            if self.is_uncharged(index) && self.tree.node(index).references.load(Order::Full) == 0 {
                // In flight at the end, so that no drain higher up is about to look at this record.
                let parent = self.tree.node(index).parent();
                let parent = self.tree.bury(index, |end| {
                    let _flight = self.enter_patiently(parent);
                    end();
                });
                self.forget(parent);
            } else {
                self.removed.lock().push_back(index);
            }
        }
    }

    /// Whether no byte is charged to a removed group that nobody refers to.
    ///
    /// What is charged to it may still grow, but on the extra shard only ([`Ledger::charge_anyway_nowait`]): the numbers of all
    /// others can only fall. That one is read last, so the sum of what is read one by one is no less than the truth when it was
    /// read. Zero means zero, for good: without a byte charged there is nothing to grow.
    fn is_uncharged(&self, index: u32) -> bool {
        let node = self.tree.node(index);
        let charged = |shard: Shard| node.slot.word(shard, CHARGED).load_signed(Order::Full);
        // Closed: slow operations that began have ended with the record, too.
        self.drain_closed(index, || {
            let touched = self.tree.touched(index);
            debug_assert_eq!(touched.last(), Some(&self.tree.extra()), "the highest");
            touched.into_iter().map(charged).sum::<i64>() == 0
        })
    }
}
