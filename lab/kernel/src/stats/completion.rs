//! A completion that is armed again for each use (kernel: `struct completion`).
//!
//! The thread's patch has one static completion for all flushes of the whole tree. So a waiter that is woken by the end
//! of one flush, but runs only after the next flush has armed the completion again, sleeps until that flush ends too.
//!
//! Arming again is a plain store, as `reinit_completion()` is. Waiters here cannot be interrupted: no task of the lab
//! receives signals. A signal would end a wait early, with old numbers, and change nothing for other readers.

use std::sync::Arc;

use bursar_machine::{AtomicWord, Event, Lock, Machine, MemoryOrder};

use super::Padded;

/// See the module.
pub(super) struct Completion<M: Machine> {
    /// 1 if no task has to wait.
    done: Padded<M::Word>,
    /// Events of the tasks that sleep. The lock also orders looks at `done` with their sleep.
    sleepers: M::Spin<Vec<Arc<M::Event>>>,
}

impl<M: Machine> Completion<M> {
    pub(super) fn new() -> Self {
        Self {
            done: Padded(M::Word::new(0)),
            sleepers: M::Spin::new(Vec::new()),
        }
    }

    /// Makes all later waits sleep.
    #[doc(alias = "reinit_completion")]
    pub(super) fn rearm(&self) {
        // Relaxed: the caller publishes its next use after this.
        self.done.0.store(0, MemoryOrder::Relaxed);
    }

    /// Wakes all tasks that sleep. The lock is held meanwhile, as in the kernel, so woken tasks wait for the last wake-up.
    pub(super) fn complete_all(&self) {
        let mut sleepers = self.sleepers.lock();
        // Relaxed, here and below: read under the lock.
        self.done.0.store(1, MemoryOrder::Relaxed);
        for sleeper in sleepers.drain(..) {
            sleeper.set();
        }
    }

    /// Sleeps until a look finds the completion done.
    #[doc(alias = "wait_for_completion")]
    pub(super) fn wait(&self) {
        loop {
            let mut sleepers = self.sleepers.lock();
            if self.done.0.load(MemoryOrder::Relaxed) == 1 {
                return;
            }
            let event = Arc::new(M::Event::new());
            sleepers.push(event.clone());
            drop(sleepers);
            event.wait();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicBool, Ordering};

    use bursar_rig::Tasks;
    use bursar_sim::{Settings, Sim, Simulator, Topology};

    use super::*;

    #[test]
    fn a_waiter_that_wakes_late_sleeps_again() {
        let simulator = Simulator::new(Settings::new(Topology::new(2, 1, 1000), 1));
        let machine = simulator.machine();
        let completion = Completion::<Sim>::new();
        let (has_returned, machine, completion) = (&AtomicBool::new(false), &machine, &completion);
        let sleep = |ns| machine.sleep_until(machine.now_ns() + ns);
        machine.run(vec![
            Box::new(|| {
                completion.wait();
                has_returned.store(true, Ordering::Relaxed);
            }),
            Box::new(|| {
                sleep(1_000_000);
                completion.complete_all();
                // The waiter needs longer to run than this CPU needs for a store.
                completion.rearm();
                sleep(1_000_000);
                assert!(!has_returned.load(Ordering::Relaxed), "armed again");
                completion.complete_all();
                sleep(1_000_000);
                assert!(has_returned.load(Ordering::Relaxed));
                // Done stays done.
                completion.wait();
            }),
        ]);
    }
}
