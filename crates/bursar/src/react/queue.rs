//! The charges that wait for a group's limit.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::task::Waker;

pub(super) struct Waiter {
    pub(super) index: u32,
    pub(super) bytes: u64,
    /// Shared, because cloning a waker runs the runtime's code, and this is cloned under the queue's lock.
    pub(super) waker: Arc<Waker>,
}

/// The charges that wait for one group's limit, by ticket.
#[derive(Default)]
pub(crate) struct Queue(pub(super) BTreeMap<u64, Waiter>);

impl Queue {
    /// Puts the queue right in a forked child. Wakers are left alone: their runtime's locks may stay taken.
    pub(super) fn forget_tasks(&mut self) {
        std::mem::forget(std::mem::take(&mut self.0));
    }
}
