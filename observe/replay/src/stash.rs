//! Pages that are neither in the zone nor in a list: those that the recorded tasks have.

use std::sync::{Mutex, MutexGuard, PoisonError};

use bursar_machine::pages::Block;
use bursar_watch::seen::BurstKind;

use crate::load::Load;

/// Greatest number of pages in the stash.
const PAGES_MAX: u64 = 1 << 22;

/// Single pages. Not memory of the machine: a replay does not know which task has which page.
#[derive(Default)]
pub(crate) struct Stash(Mutex<Vec<Block>>);

impl Stash {
    pub(crate) fn take(&self) -> Option<Block> {
        self.lock().pop()
    }

    pub(crate) fn put(&self, page: Block) {
        self.lock().push(page);
    }

    fn lock(&self) -> MutexGuard<'_, Vec<Block>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Pages that the stash needs at the beginning, so that no drain finds it empty in whatever order the CPUs come: the greatest
/// excess of drains over refills of each CPU, and all that its upkeep gives back.
pub(crate) fn needed(load: &Load, cpus: usize) -> u64 {
    let copies = cpus.div_ceil(load.cpus()) as u64;
    let of_cpus = load.cpus.iter().map(|cpu| {
        let due = cpu.due_pages.iter().map(|(_, pages)| u64::from(*pages));
        let [mut net, mut most] = [0_i64; 2];
        // A copy of the load may begin anywhere in it, and go on from its beginning.
        for it in cpu.moves.iter().chain(&cpu.moves) {
            // Pages that refills leave over are not counted on: they may come later than they did.
            net = match it.kind {
                BurstKind::Drain => net + i64::from(it.pages),
                BurstKind::Refill => (net - i64::from(it.pages)).max(0),
            };
            most = most.max(net);
        }
        due.sum::<u64>() + most as u64
    });
    (of_cpus.sum::<u64>() * copies).min(PAGES_MAX)
}
