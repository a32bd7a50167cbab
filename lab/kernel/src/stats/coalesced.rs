//! One flush of the whole tree for all readers that want one: the first runs it, others wait for it.
//!
//! A reader may join a flush that has already passed the CPU of an update that the reader must see. The thread's
//! version allows that, and so do all policies here that share a flush.
//!
//! All flushes share one completion ([`Completion`]). The flusher arms it before the flush becomes visible as running,
//! and completes it after that. In the other order, a reader could join and find the completion of the last flush still
//! done (`bursar-lab explore --planted`, `late-rearm`). One window stays: a second flush may arm the completion between the end of the
//! first and its completion. Readers that join the second then return at once.
//!
//! The thread's patch differs in two ways. It completes, and only then clears its flag: so a late reader joins a flush that has
//! ended. And who sees the flag joins without the lock, which all that join take here.

use bursar_machine::{AtomicWord, Lock, Machine, MemoryOrder};

use super::Padded;
use super::completion::Completion;

/// A flush that others may join while it runs.
pub(super) struct SharedFlush<M: Machine> {
    /// Whether it runs.
    pub(super) running: M::Spin<bool>,
    /// End that the joined readers wait for.
    pub(super) ended: Completion<M>,
    /// 1 while it runs, for a look without the lock.
    is_running: Padded<M::Word>,
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
            running: M::Spin::new(false),
            ended: Completion::new(),
            is_running: Padded(M::Word::new(0)),
            waiting: Padded(M::Word::new(0)),
        }
    }

    /// Joins the flush that runs, if at most `max_waiters` do; or runs one. Calls `count` with the outcome before it
    /// waits.
    pub(super) fn share(&self, max_waiters: u64, run: impl FnOnce(), count: impl FnOnce(Shared)) {
        let mut running = self.running.lock();
        if *running {
            drop(running);
            self.join(max_waiters, count);
            return;
        }
        self.ended.rearm();
        *running = true;
        // Relaxed, here and below: a hint to later readers; a reader that joins takes the lock.
        self.is_running.0.store(1, MemoryOrder::Relaxed);
        drop(running);
        count(Shared::Ran);
        run();
        self.is_running.0.store(0, MemoryOrder::Relaxed);
        *self.running.lock() = false;
        self.ended.complete_all();
    }

    /// Returns whether a flush runs that could be joined.
    pub(super) fn is_running(&self) -> bool {
        self.is_running.0.load(MemoryOrder::Relaxed) == 1
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
