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

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU64, Ordering};

    use bursar_rig::Tasks;
    use bursar_sim::{Explorer, SectionKind, Settings, Sim, Simulator, Topology};

    use super::*;

    /// In the other order a reader joins the second flush, and the end of the first one wakes it.
    #[test]
    fn a_flush_that_a_reader_joined_has_ended_when_it_returns() {
        let scenario = |machine: &Sim, _| {
            let flush = SharedFlush::<Sim>::new();
            let [begun, ended] = [AtomicU64::new(0), AtomicU64::new(0)];
            // Relaxed: one thread of the host runs all tasks.
            let add_one = |to: &AtomicU64| to.fetch_add(1, Ordering::Relaxed);
            let read = || {
                for _ in 0..2 {
                    let mut joined = 0;
                    let run = || {
                        add_one(&begun);
                        // Takes a step, so that others come in between.
                        flush.is_running();
                        add_one(&ended);
                    };
                    flush.share(u64::MAX, run, |outcome| {
                        if outcome == Shared::Joined {
                            joined = begun.load(Ordering::Relaxed);
                        }
                    });
                    let ended = ended.load(Ordering::Relaxed);
                    assert!(
                        ended >= joined,
                        "joined flush {joined}, and {ended} have ended"
                    );
                }
            };
            machine.run(vec![Box::new(read), Box::new(read), Box::new(read)]);
        };
        let explorer = Explorer {
            topology: Topology::new(2, 1, 1000),
            sections: SectionKind::Restartable,
            seed: 1,
        };
        let explored = explorer.explore(&scenario, 0, 2_000, |_| ());
        assert_eq!(explored.found, None);
    }

    #[test]
    fn a_reader_joins_while_another_holds_the_lock_of_those_that_begin() {
        let simulator = Simulator::new(Settings::new(Topology::new(2, 1, 1000), 1));
        let machine = simulator.machine();
        let flush = SharedFlush::<Sim>::new();
        machine.run(vec![Box::new(|| {
            assert!(flush.begin());
            let _start = flush.start.lock();
            // With the lock it would wait for itself, which the machine reports.
            assert!(!flush.begin());
        })]);
    }
}
