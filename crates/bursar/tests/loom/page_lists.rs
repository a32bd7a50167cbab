//! Stacks of blocks under loom: threads push and pop while others do so, freeze and thaw.

use std::sync::Arc;

use crate::machine::{Kind, LoomMachine, LoomWord, run_on, spawn_on};
use bursar_machine::pages::{Block, BlockStacks, Bounds, Order, ReserveOptions, depth, pops};
use bursar_machine::{AtomicWord, Machine, MemoryOrder, Shard};

/// Two pages.
fn two_pages(machine: &LoomMachine) -> Vec<Block> {
    let (_, mut span) = machine.reserve(&ReserveOptions::pages(1)).unwrap();
    let mut block = span.take().unwrap();
    while block.order() > Order::new(1) {
        block = block.split().0;
    }
    let (low, high) = block.split();
    vec![low, high]
}

/// Both pages are there, once.
fn check(mut blocks: Vec<Block>) {
    blocks.sort_unstable_by_key(Block::pfn);
    let pfns: Vec<_> = blocks.iter().map(|block| block.pfn().0).collect();
    assert!(pfns.len() == 2 && pfns[0] != pfns[1], "{pfns:?}");
}

// A freezer takes and thaws while the list's own CPU pops and pushes: everything is there once, and pops are counted.
model!(a_freezer_takes_and_thaws, 2, |kind| {
    let machine = LoomMachine::new(kind, 1, &[0]);
    let stacks = machine.stacks(&[2]).unwrap();
    stacks.set_bounds(Shard(0), 0, Bounds::up_to(2));
    let mut blocks = two_pages(&machine);
    stacks.push(0, blocks.pop().unwrap()).unwrap();
    let worker = {
        let (stacks, mut own) = (stacks.clone(), blocks);
        spawn_on(0, move || {
            let popped = stacks.pop(0);
            let pops = u64::from(popped.is_some());
            own.extend(popped);
            stacks.push_many(0, &mut own);
            stacks.pop_many(0, 1, &mut own);
            (own, pops)
        })
    };
    let mut taken = Vec::new();
    stacks.freeze(&[(Shard(0), 0)]);
    let before = stacks.head(Shard(0), 0);
    let count = stacks.take_oldest(Shard(0), 0, 1, &mut taken);
    assert_eq!(count, depth(before).min(1));
    stacks.thaw(Shard(0), 0, Bounds::up_to(2));
    let (own, popped) = worker.join().unwrap();
    taken.extend(own);
    stacks.freeze(&[(Shard(0), 0)]);
    stacks.take_oldest(Shard(0), 0, 2, &mut taken);
    assert_eq!(pops(stacks.head(Shard(0), 0)), popped);
    check(taken);
});

// Two threads of a CPU hand its list over to each other.
model!(two_threads_of_a_cpu, 3, |kind| {
    let machine = LoomMachine::new(kind, 1, &[0]);
    let stacks = machine.stacks(&[2]).unwrap();
    stacks.set_bounds(Shard(0), 0, Bounds::up_to(2));
    let mut blocks = two_pages(&machine);
    stacks.push(0, blocks.pop().unwrap()).unwrap();
    let other = {
        let (stacks, mut own) = (stacks.clone(), blocks);
        spawn_on(0, move || {
            stacks.push_many(0, &mut own);
            own.extend(stacks.pop(0));
            own
        })
    };
    run_on(0);
    let mut own = Vec::new();
    stacks.pop_many(0, 2, &mut own);
    stacks.push_many(0, &mut own);
    own.extend(other.join().unwrap());
    stacks.pop_many(0, 2, &mut own);
    check(own);
});

// A freezer that takes a page finds the bytes that its owner wrote before the push, though both write them without any order.
model!(a_freezer_finds_the_bytes_of_a_page, 3, |kind| {
    let machine = LoomMachine::new(kind, 1, &[0]);
    let stacks = machine.stacks(&[1]).unwrap();
    stacks.set_bounds(Shard(0), 0, Bounds::up_to(1));
    let block = two_pages(&machine).pop().unwrap();
    let bytes = Arc::new(LoomWord::new(0));
    let owner = {
        let (stacks, bytes) = (stacks.clone(), bytes.clone());
        spawn_on(0, move || {
            bytes.store(1, MemoryOrder::Relaxed);
            stacks.push(0, block).is_ok()
        })
    };
    let mut taken = Vec::new();
    stacks.freeze(&[(Shard(0), 0)]);
    if stacks.take_oldest(Shard(0), 0, 1, &mut taken) == 1 {
        assert_eq!(bytes.load(MemoryOrder::Relaxed), 1);
    }
    assert_eq!(owner.join().unwrap(), taken.len() == 1);
});
