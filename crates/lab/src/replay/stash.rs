//! Pages that are neither in the zone nor in a list: those that the recorded tasks have.

use std::sync::{Mutex, MutexGuard, PoisonError};

use bursar::machine::pages::Block;
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

/// Blocks of each order that the stash needs at the beginning, so that no drain finds it empty: the greatest excess of
/// drains over refills, and as much again as the largest moves of all CPUs, because policies change their order.
pub(super) fn needed(load: &Load, cpus: usize) -> [u64; ORDERS] {
    let copies = cpus.div_ceil(load.cpus()) as u64;
    let mut moves: Vec<(i64, usize, i64)> = Vec::new();
    for cpu in &load.cpus {
        let due = cpu.due_pages.iter();
        moves.extend(due.map(|(at_ns, pages)| (*at_ns, 0, i64::from(*pages))));
        moves.extend(cpu.moves.iter().map(|it| {
            let blocks = i64::from(it.blocks());
            let sign = if it.kind == BurstKind::Drain { 1 } else { -1 };
            (it.at_ns, usize::from(it.order), sign * blocks)
        }));
    }
    moves.sort_unstable();
    let mut net = [0_i64; ORDERS];
    let mut most = [0_i64; ORDERS];
    let mut largest = [0_i64; ORDERS];
    for (_, order, blocks) in moves {
        net[order] += blocks;
        most[order] = most[order].max(net[order]);
        largest[order] = largest[order].max(blocks);
    }
    std::array::from_fn(|order| {
        let blocks = most[order] as u64 * copies + largest[order] as u64 * cpus as u64;
        blocks.min(PAGES_MAX >> order)
    })
}
