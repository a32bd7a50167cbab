//! A task's memory, and the task's progress in it.

use std::collections::VecDeque;
use std::sync::{Mutex, PoisonError};

use bursar_machine::pages::Block;
use bursar_rig::timer::Timers;

use super::parameters::Parameters;
use crate::random::Random;

/// Progress of a task.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Phase {
    /// Rewriting the mapped pages, from one end to the other and again.
    Rewrite {
        /// Pages left to rewrite until all is unmapped.
        left: u64,
        /// Number of them in this pass.
        in_pass: u64,
        /// Pages that this pass must fault in first.
        missing: u64,
    },
    /// Giving all back.
    Unmap,
}

/// The memory of a task.
pub(super) struct Space<M: Timers> {
    /// Mapped blocks: pages, and huge pages.
    pub(super) mapped: VecDeque<(Block, M::PageMemory)>,
    /// Pages in them.
    pub(super) pages: u64,
    /// Whether faults take huge pages where they can.
    pub(super) has_huge_pages: bool,
    pub(super) phase: Phase,
}

impl<M: Timers> Space<M> {
    /// Makes a space with nothing mapped. The time left until the next mapping is as likely long as short, so that
    /// tasks do not begin all at once.
    pub(super) fn new(parameters: &Parameters, cpus: usize, random: &mut Random) -> Self {
        let pages = parameters.pages_of_pass(cpus) * parameters.rewrites;
        let left = random.below(pages + 1);
        Self {
            mapped: VecDeque::new(),
            pages: 0,
            has_huge_pages: false,
            phase: Phase::Rewrite {
                left,
                in_pass: left,
                missing: 0,
            },
        }
    }
}

/// Place where tasks exchange their memory, as if the scheduler had exchanged their CPUs. There is one space more than
/// CPUs; it waits here.
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

    /// Takes the waiting space for good.
    pub(super) fn take(&self) -> Option<Space<M>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).take()
    }
}
