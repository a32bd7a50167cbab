//! Bounded waits for a mutex: by the number of waiters, or by time.

use bursar_machine::{AtomicWord, Lock, Machine, MemoryOrder};

use super::Padded;
use super::policy::UNBOUNDED;

/// A mutex with bounded waits.
pub(super) struct Turn<M: Machine> {
    pub(super) mutex: M::Mutex<()>,
    /// Number of waiters, where it is bounded.
    waiting: Padded<M::Word>,
    /// Acquisitions that waited by polling.
    polled: M::Word,
}

type Guard<'a, M> = <<M as Machine>::Mutex<()> as Lock<()>>::Guard<'a>;

impl<M: Machine> Turn<M> {
    pub(super) fn new() -> Self {
        Self {
            mutex: M::Mutex::new(()),
            waiting: Padded(M::Word::new(0)),
            polled: M::Word::new(0),
        }
    }

    /// Returns how many acquisitions found it taken and waited.
    pub(super) fn waits(&self) -> u64 {
        // Relaxed: a tally orders nothing.
        self.mutex.waits() + self.polled.load(MemoryOrder::Relaxed)
    }

    /// Waits for the mutex, unless `max_waiters` do already.
    pub(super) fn take_within(&self, max_waiters: u64) -> Option<Guard<'_, M>> {
        if max_waiters == UNBOUNDED {
            return Some(self.mutex.lock());
        }
        if let Some(free) = self.mutex.try_lock() {
            return Some(free);
        }
        // Relaxed: a bound on the number of waiters, and nothing that they read.
        let before = self.waiting.0.fetch_add(1, MemoryOrder::Relaxed);
        let turn = (before < max_waiters).then(|| self.mutex.lock());
        self.waiting.0.fetch_sub(1, MemoryOrder::Relaxed);
        turn
    }

    /// Waits for the mutex for `timeout_ns`. Polls, because no machine has a lock with a time-out: a later task may be
    /// served earlier, as with any such lock that is not queued.
    pub(super) fn take_in_time(&self, machine: &M, timeout_ns: u64) -> Option<Guard<'_, M>> {
        if let Some(free) = self.mutex.try_lock() {
            return Some(free);
        }
        // Relaxed: a tally orders nothing.
        self.polled.fetch_add(1, MemoryOrder::Relaxed);
        let began_ns = machine.now_ns();
        for round in 0.. {
            if is_over(began_ns, machine.now_ns(), timeout_ns) {
                return None;
            }
            // Never a sleep, which would leave the lock to others.
            machine.relax(round.min(bursar_machine::GIVE_WAY));
            if let Some(free) = self.mutex.try_lock() {
                return Some(free);
            }
        }
        None
    }
}

/// Returns whether a wait has taken as long as it may. A clock that is behind decides nothing.
fn is_over(began_ns: u64, now_ns: u64, timeout_ns: u64) -> bool {
    now_ns.saturating_sub(began_ns) >= timeout_ns
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wait_ends_with_its_time() {
        assert!(is_over(10, 10, 0));
        assert!(!is_over(10, 19, 10));
        assert!(is_over(10, 20, 10));
        assert!(!is_over(10, 5, 10));
    }
}
