//! Upkeep that is queued by others and by itself. The broken shepherd checks whether it is queued, not whether it runs,
//! as the kernel's did (Linux 6.12). Then it is queued twice.

use std::sync::atomic::{AtomicU64, Ordering};

use bursar_machine::{AtomicWord, Machine, MemoryOrder};
use bursar_rig::Watched;

use super::bug::Version;
use crate::protocols::books::run;
use crate::random::Random;

const IDLE: u64 = 0;
const QUEUED: u64 = 1;
const RUNNING: u64 = 2;

struct Work<M: Machine> {
    state: M::Word,
    /// Number of times that it is queued. Not the machine's word: recording costs no step.
    queued: AtomicU64,
}

impl<M: Machine> Work<M> {
    fn queue(&self) {
        // Relaxed: one thread of the host runs all tasks.
        let before = self.queued.fetch_add(1, Ordering::Relaxed);
        assert_eq!(before, 0, "queued a second time");
    }

    fn shepherd(&self, version: Version) {
        let seen = self.state.load(MemoryOrder::Full);
        let may = match version {
            Version::Broken => seen != QUEUED,
            Version::Mended => seen == IDLE,
        };
        if may
            && self
                .state
                .compare_exchange(seen, QUEUED, MemoryOrder::Full)
                .is_ok()
        {
            self.queue();
        }
    }

    /// Runs the queued upkeep, which queues itself again.
    fn fire(&self) {
        if self.queued.swap(0, Ordering::Relaxed) == 0 {
            return;
        }
        self.state.store(RUNNING, MemoryOrder::Full);
        self.state.store(QUEUED, MemoryOrder::Full);
        self.queue();
    }
}

pub(super) fn scenario<M: Watched>(machine: &M, seed: u64, version: Version) {
    let work = Work::<M> {
        state: M::Word::new(IDLE),
        queued: AtomicU64::new(0),
    };
    let all = &work;
    let shepherd = |_: Random| (0..3).for_each(|_| all.shepherd(version));
    let fire = |_: Random| (0..3).for_each(|_| all.fire());
    run(machine, seed, || (), tasks![shepherd, fire]);
}
