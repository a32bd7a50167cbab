//! Zones of tests.

use bursar_machine::host::{allowed_cpus, pin_to};
use bursar_machine::pages::{Block, BlockStacks, Order};
use bursar_machine::{Host, Machine, Shard};

use super::alloc::Begun;
use super::tuned::Tuned;
use super::zone::{Mark, Zone};
use super::{PageOptions, Watermarks, Zones};

/// Number of blocks that move at a time.
pub(super) const BATCH: usize = 16;

/// Options of a zone that no allocation finds short. Its lists hold 64 single pages at least, and four times as many at most.
pub(super) fn options() -> PageOptions {
    let cpus = Host::start().expect("the host starts").cpus() as u64;
    PageOptions {
        // A list may hold an eighth of its CPU's share.
        bytes_per_node: Some(cpus * (8 << 20)),
        batch: Some(BATCH as u32),
        watermarks: Some(Watermarks {
            min: 0,
            low: 0,
            high: 0,
        }),
        ..PageOptions::default()
    }
}

pub(super) fn zones<M: Machine>(machine: &M, options: PageOptions) -> Zones<M> {
    Zones::new(machine, options, &mut Begun::nothing()).expect("address space")
}

/// Keeps this thread on one CPU, so that its lists stay the same; returns whether it could.
pub(super) fn stays_on_a_cpu() -> bool {
    allowed_cpus()
        .first()
        .is_some_and(|&cpu| pin_to(cpu).is_ok())
}

/// Takes single pages from the buddy.
pub(super) fn pages<M: Machine>(zone: &Zone<M>, count: usize) -> Vec<Block> {
    let mut blocks = Vec::new();
    // A hold may end early.
    while blocks.len() < count {
        let taken = zone.take(Order::ZERO, count - blocks.len(), Mark::Min, &mut blocks);
        assert!(taken > 0, "there are pages");
    }
    blocks
}

/// Puts batches of single pages into the depot.
pub(super) fn fill_depot<M: Machine>(zone: &Zone<M>, batches: usize) {
    (0..batches).for_each(|_| zone.put_batch(Shard(0), 0, pages(zone, BATCH)));
    assert_eq!(zone.depot.blocks(0), (batches * BATCH) as u64);
}

/// Puts single pages on this CPU's list, which then may hold `high`.
pub(super) fn fill_list<M: Machine>(zone: &Zone<M>, count: usize, high: u32) {
    let shard = zone.machine.current_shard();
    let mut blocks = pages(zone, count);
    zone.lists.set_tuned(shard, 0, Tuned::new(count as u32));
    assert_eq!(zone.lists.stacks.push_many(0, &mut blocks), count);
    zone.lists.set_tuned(shard, 0, Tuned::new(high));
}

/// Number of single pages on this CPU's list.
pub(super) fn listed<M: Machine>(zone: &Zone<M>) -> usize {
    zone.lists.depth(zone.machine.current_shard(), 0)
}
