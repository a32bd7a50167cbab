//! Operations that finish without the help of others: they do not wait, and take few steps of their own.
//!
//! Then the steps of other tasks cannot matter. If all others stopped forever, at any place and holding anything, this
//! task could still take each of its steps.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard};

use bursar_rig::Watched;

use super::locked::locked;
/// More steps than any such operation takes, however often sections begin anew and claims are checked again. (The
/// longest is a charge that neither waits nor fails above two limits: it claims twice at each group on the way before
/// it oversteps, and counts that at each group above.)
const STEPS_MAX: u32 = 400;

/// Operations that are under way, by task: their names, and the steps that they have taken.
pub(super) struct OwnSteps<M: Watched> {
    machine: M,
    under_way: Mutex<BTreeMap<u64, (&'static str, u32)>>,
}

impl<M: Watched> OwnSteps<M> {
    pub(super) fn new(machine: &M) -> Self {
        Self {
            machine: machine.clone(),
            under_way: Mutex::default(),
        }
    }

    fn under_way(&self) -> MutexGuard<'_, BTreeMap<u64, (&'static str, u32)>> {
        locked(&self.under_way)
    }

    /// Runs an operation that must not need others.
    pub(super) fn of<R>(&self, what: &'static str, operation: impl FnOnce() -> R) -> R {
        let task = self.machine.task();
        self.under_way().insert(task, (what, 0));
        let result = operation();
        self.under_way().remove(&task);
        result
    }

    /// Checks the steps, after each step.
    pub(super) fn check(&self) {
        let last = self.machine.last_step();
        if let Some((what, steps)) = self.under_way().get_mut(&last.task) {
            assert!(!last.waits, "{what} waits for another task");
            *steps += 1;
            assert!(
                *steps <= STEPS_MAX,
                "{what} has taken {steps} steps, and is not done"
            );
        }
    }
}
