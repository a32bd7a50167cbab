//! Returning bytes past the fast path, and telling listeners.

use bursar_machine::{Machine, Outcome, Slot};

use super::Ledger;
use super::ledger::Gates;

impl<M: Machine> Ledger<M> {
    /// Returns `bytes` of a charge. Call after the fast path failed. Never waits, never fails. Calls wakers and callbacks.
    #[cold]
    pub(crate) fn uncharge_slowly(&self, index: u32, bytes: u64) {
        let told = self.uncharge_telling(index, bytes, |index| self.listening_at(index));
        if let Some(Some(told)) = told {
            self.notice(told.index);
        }
    }

    /// [`Ledger::uncharge_slowly`] that leaves it to later operations to tell listeners. Async-signal-safe.
    #[cold]
    pub(crate) fn uncharge_nowait(&self, index: u32, bytes: u64) {
        self.uncharge_telling(index, bytes, |index| {
            self.notice_later_below(index, None);
        });
    }

    /// Returns `bytes`. If that changed a usage, calls `tell` afterwards, while the group's record is certain to exist.
    fn uncharge_telling<R>(
        &self,
        index: u32,
        bytes: u64,
        tell: impl FnOnce(u32) -> R,
    ) -> Option<R> {
        let slot = &self.tree.node(index).slot;
        loop {
            match slot.uncharge(bytes) {
                Outcome::Done => return None,
                // The usual reason: the shard was not published.
                Outcome::Unpublished { shard, committed } => {
                    let usable = self.tree.publish(index, shard);
                    if committed {
                        return None;
                    }
                    if !usable {
                        break;
                    }
                }
                Outcome::Short | Outcome::Moved => break,
            }
        }
        if self.is_forked() {
            self.defer(index, -(bytes as i64));
            self.notice_later_below(index, None);
            return None;
        }
        if bytes < self.policies.stock_max
            && let Ok(_flight) = self.enter(Gates::Operations, Some(index))
            && let Some(surplus) = self.uncharge_into_stock(index, bytes)
        {
            // In flight: the record stays.
            return (surplus > 0).then(|| tell(index));
        }
        Some(self.uncharge_directly(index, None, bytes, tell))
    }

    /// Returns `bytes` to all counters up to `end`, past the stock. The counters come first, because nothing keeps the group's
    /// record once no byte is charged.
    pub(super) fn uncharge_directly<R>(
        &self,
        index: u32,
        end: Option<u32>,
        bytes: u64,
        tell: impl FnOnce(u32) -> R,
    ) -> R {
        self.release(index, end, bytes);
        let told = tell(index);
        let bytes = bytes as i64;
        self.adjust_anywhere(index, -bytes, -bytes);
        told
    }
}
