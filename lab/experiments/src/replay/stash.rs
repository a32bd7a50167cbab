//! Pages that are neither in the zone nor in a list: those that the recorded tasks have.

use std::sync::{Mutex, MutexGuard, PoisonError};

use bursar_machine::pages::Block;
use bursar_recording::BurstKind;

use super::load::{Load, ORDERS};

/// Greatest number of pages in the stash.
const PAGES_MAX: u64 = 1 << 22;

/// Blocks by order. Not memory of the machine: a replay does not know which task has which page.
#[derive(Default)]
pub(super) struct Stash(Mutex<[Vec<Block>; ORDERS]>);

impl Stash {
    pub(super) fn take(&self, order: u8) -> Option<Block> {
        self.lock().get_mut(usize::from(order))?.pop()
    }

    pub(super) fn put(&self, block: Block) {
        let order = block.order().index();
        self.lock()[order].push(block);
    }

    fn lock(&self) -> MutexGuard<'_, [Vec<Block>; ORDERS]> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Blocks of each order that the stash needs at the beginning, so that no drain finds it empty in whatever order the CPUs come: the
/// greatest excess of drains over refills of each CPU, and all that its upkeep gives back.
pub(super) fn needed(load: &Load, cpus: usize) -> [u64; ORDERS] {
    let copies = cpus.div_ceil(load.cpus()) as u64;
    let mut needed = [0_u64; ORDERS];
    for cpu in &load.cpus {
        let due = cpu.due_pages.iter().map(|(_, pages)| u64::from(*pages));
        needed[0] += due.sum::<u64>();
        let [mut net, mut most] = [[0_i64; ORDERS]; 2];
        // A copy of the load may begin anywhere in it, and go on from its beginning.
        for it in cpu.moves.iter().chain(&cpu.moves) {
            let order = usize::from(it.order);
            let blocks = i64::from(it.blocks());
            // What refills leave over is not counted on: they may come later than they did.
            net[order] = match it.kind {
                BurstKind::Drain => net[order] + blocks,
                BurstKind::Refill => (net[order] - blocks).max(0),
            };
            most[order] = most[order].max(net[order]);
        }
        for (needed, most) in needed.iter_mut().zip(most) {
            *needed += most as u64;
        }
    }
    std::array::from_fn(|order| (needed[order] * copies).min(PAGES_MAX >> order))
}
