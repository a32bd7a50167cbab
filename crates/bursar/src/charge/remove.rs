//! The end of groups: removal, and the reuse of records.

use bursar_machine::{AtomicWord, CHARGED, Lock, Machine, Order, Shard, Slot};

use super::{Ledger, RemoveError};
use crate::stats::ROOT;

impl<M: Machine> Ledger<M> {
    /// Removes a group: its name is free, it takes no charge and no child, its numbers count as its parent's own.
    ///
    /// What is charged to it stays charged, to it and to its ancestors, until it is returned.
    pub(crate) fn remove(&self, index: u32) -> Result<(), RemoveError> {
        if index == ROOT {
            return Err(RemoveError::Root);
        }
        match self.tree.detach(index) {
            Ok(true) => {}
            Ok(false) => return Ok(()),
            Err(children) => return Err(RemoveError::HasChildren { children }),
        }
        // Those who looked before the name was gone are done when this returns, and their stock is back.
        self.drain_closed(index, || ());
        self.tree.absorb(index);
        self.removed.lock().push(index);
        Ok(())
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
        if self.tree.node(index).references.fetch_sub(1, Order::Full) == 1 {
            // Nobody refers to it, so it has no children.
            self.remove(index)
                .expect("a group without references has no children");
            self.reap();
        }
    }

    /// Ends the life of removed groups that nothing refers to any more.
    pub(crate) fn reap(&self) {
        let candidates: Vec<u32> = {
            let mut removed = self.removed.lock();
            let unreferenced =
                |&index: &u32| self.tree.node(index).references.load(Order::Full) == 0;
            let (candidates, rest) = removed.drain(..).partition(unreferenced);
            *removed = rest;
            candidates
        };
        for index in candidates {
            if self.is_uncharged(index) {
                // In flight at the end, so that no drain higher up is about to look at this record.
                let parent = self.tree.node(index).parent();
                let parent = self.tree.bury(index, |end| {
                    let _flight = self.enter_patiently(parent);
                    end();
                });
                self.forget(parent);
            } else {
                self.removed.lock().push(index);
            }
        }
    }

    /// Whether no byte is charged to a removed group that nobody refers to.
    ///
    /// Nothing is charged to it any more, so each shard's number can only fall, and the sum of what is read one by one is
    /// no less than the truth at the end. Zero means zero, for good.
    fn is_uncharged(&self, index: u32) -> bool {
        let node = self.tree.node(index);
        let charged = |shard: Shard| node.slot.word(shard, CHARGED).load_signed(Order::Full);
        // Closed: slow operations that began have ended with the record, too.
        self.drain_closed(index, || {
            self.tree
                .touched(index)
                .into_iter()
                .map(charged)
                .sum::<i64>()
                == 0
        })
    }
}
