//! What a task of the load works on: memory, and how far it is with it.

use std::sync::{Mutex, PoisonError};

use bursar::machine::pages::Block;
use bursar_machine::timer::Timers;

use super::parameters::Parameters;
use crate::random::Random;

/// How far a task is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Phase {
    /// Rewriting what is mapped, from one end to the other and again.
    Rewrite {
        /// Pages to be rewritten until all is unmapped.
        left: u64,
        /// Of them, those of this pass.
        in_pass: u64,
        /// Pages that this pass has to fault in before.
        missing: u64,
    },
    /// Giving all back.
    Unmap,
}

/// The memory of a task.
pub(super) struct Space<M: Timers> {
    pub(super) mapped: Vec<(Block, M::PageMemory)>,
    pub(super) phase: Phase,
}

impl<M: Timers> Space<M> {
    /// Nothing is mapped, and what is left of the time between two mappings is as likely long as short: tasks do not begin
    /// all at once.
    pub(super) fn new(parameters: &Parameters, cpus: usize, random: &mut Random) -> Self {
        let pages = parameters.pages_of_pass(cpus) * parameters.rewrites;
        let left = random.below(pages + 1);
        Self {
            mapped: Vec::new(),
            phase: Phase::Rewrite {
                left,
                in_pass: left,
                missing: 0,
            },
        }
    }
}

/// Where tasks exchange what they work on, as if the scheduler had them change places. There is one more than CPUs; it waits.
pub(super) struct Exchange<M: Timers>(Mutex<Option<Space<M>>>);

impl<M: Timers> Exchange<M> {
    pub(super) fn new(spare: Option<Space<M>>) -> Self {
        Self(Mutex::new(spare))
    }

    /// Gives one and takes the other, if there is one.
    pub(super) fn exchange(&self, space: &mut Space<M>) {
        let mut spare = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(spare) = &mut *spare {
            std::mem::swap(spare, space);
        }
    }

    /// Takes what waits, for good.
    pub(super) fn take(&self) -> Option<Space<M>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).take()
    }
}
