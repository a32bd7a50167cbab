//! One flush of the whole tree for all readers that want one: the first runs it, others wait for it.
//!
//! A reader may join a flush that has already passed the CPU of an update that the reader must see. The thread's
//! version allows that, and so do all policies here that share a flush.
//!
//! All flushes share one completion ([`Completion`]). The flusher arms it before the flush becomes visible as running. In the
//! other order, a reader could join and find the completion of the last flush still done (`bursar-lab explore --planted`,
//! `late-rearm`).
//!
//! The orders are those of the thread's patch. A reader that sees the flag joins without a lock. A flush completes, and only then clears its
//! flag. So a reader that comes between the two joins a flush that has ended, and returns at once.

use bursar_machine::{AtomicWord, Lock, Machine, MemoryOrder};

use super::Padded;
use super::completion::Completion;

/// A flush that others may join while it runs.
pub(super) struct SharedFlush<M: Machine> {
    /// Makes one of the readers that come at once the flusher.
    start: M::Spin<()>,
    /// 1 while it runs.
    is_running: Padded<M::Word>,
    /// End that the joined readers wait for.
    ended: Completion<M>,
    /// Number of joined readers.
    waiting: Padded<M::Word>,
}

/// Outcome for a reader that wanted a shared flush.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Shared {
    /// It ran the flush.
    Ran,
    /// It waited for a flush that ran already.
    Joined,
    /// It skipped the flush, because too many waited.
    Skipped,
}

impl<M: Machine> SharedFlush<M> {
    pub(super) fn new() -> Self {
        Self {
            start: M::Spin::new(()),
            is_running: Padded(M::Word::new(0)),
            ended: Completion::new(),
            waiting: Padded(M::Word::new(0)),
        }
    }

    /// Joins the flush that runs, if at most `max_waiters` do; or runs one. Calls `count` with the outcome before it
    /// waits.
    pub(super) fn share(&self, max_waiters: u64, run: impl FnOnce(), count: impl FnOnce(Shared)) {
        if !self.begin() {
            return self.join(max_waiters, count);
        }
        count(Shared::Ran);
        run();
        self.end();
    }

    /// Returns whether a flush runs that could be joined.
    pub(super) fn is_running(&self) -> bool {
        // Acquire: pairs with the store in `begin`. A reader that joins finds the completion armed.
        self.is_running.0.load(MemoryOrder::Acquire) == 1
    }

    /// Begins a flush, unless one runs; returns whether it did.
    pub(super) fn begin(&self) -> bool {
        if self.is_running() {
            return false;
        }
        let _start = self.start.lock();
        if self.is_running() {
            return false;
        }
        self.ended.rearm();
        // Release: pairs with the look in `is_running`.
        self.is_running.0.store(1, MemoryOrder::Release);
        true
    }

    pub(super) fn end(&self) {
        self.ended.complete_all();
        // Release: pairs with the look in `begin`. The next flush arms the completion after this one has completed it.
        self.is_running.0.store(0, MemoryOrder::Release);
    }

    fn join(&self, max_waiters: u64, count: impl FnOnce(Shared)) {
        // Relaxed: a bound on the number of waiters, and nothing that they read.
        if self.waiting.0.fetch_add(1, MemoryOrder::Relaxed) >= max_waiters {
            count(Shared::Skipped);
        } else {
            count(Shared::Joined);
            self.ended.wait();
        }
        self.waiting.0.fetch_sub(1, MemoryOrder::Relaxed);
    }
}
