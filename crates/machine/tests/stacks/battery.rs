//! Promises of stacks of blocks on any machine, one task at a time.

use bursar_machine::pages::{Block, BlockStacks, Bounds, Order, ReserveOptions, depth, pops};
use bursar_machine::{Machine, Shard};
use bursar_rig::Tasks;

/// Blocks that a list has room for.
pub const CAPACITY: u16 = 16;

/// All shards.
pub fn shards<M: Machine>(machine: &M) -> impl Iterator<Item = Shard> + Clone {
    (0..=machine.cpus() as u32).map(Shard)
}

/// `count` blocks of one page, in the order of their numbers.
pub fn pages<M: Machine>(machine: &M, count: usize) -> Vec<Block> {
    fn cut(block: Block, pages: &mut Vec<Block>) {
        if block.order() == Order::ZERO {
            return pages.push(block);
        }
        let (low, high) = block.split();
        cut(low, pages);
        cut(high, pages);
    }
    let (_, mut span) = machine
        .reserve(&ReserveOptions::pages(count as u64))
        .unwrap();
    let mut pages = Vec::new();
    while let Some(block) = span.take() {
        cut(block, &mut pages);
    }
    pages.truncate(count);
    pages
}

/// Sets bounds of a list on all shards, frozen or not.
pub fn set_bounds<M: Machine>(machine: &M, stacks: &M::Stacks, list: usize, bounds: Bounds) {
    for shard in shards(machine) {
        if !stacks.set_bounds(shard, list, bounds) {
            stacks.thaw(shard, list, bounds);
        }
    }
}

/// Freezes a list on all shards.
pub fn freeze<M: Machine>(machine: &M, stacks: &M::Stacks, list: usize) {
    let lists: Vec<_> = shards(machine).map(|shard| (shard, list)).collect();
    stacks.freeze(&lists);
}

/// The sum over all shards of what a list's head says.
pub fn sum<M: Machine>(
    machine: &M,
    stacks: &M::Stacks,
    list: usize,
    part: impl Fn(u64) -> u64,
) -> u64 {
    shards(machine)
        .map(|shard| part(stacks.head(shard, list)))
        .sum()
}

fn held<M: Machine>(machine: &M, stacks: &M::Stacks, list: usize) -> u64 {
    sum(machine, stacks, list, |head| depth(head) as u64)
}

fn numbers(blocks: &[Block]) -> Vec<u32> {
    let first = blocks.iter().map(|block| block.pfn().0).min().unwrap_or(0);
    blocks.iter().map(|block| block.pfn().0 - first).collect()
}

/// All of what follows.
pub fn all<M: Tasks>(machine: &M, settle_down: &(dyn Fn() + Sync)) {
    let parts: [fn(&M); 6] = [
        last_in_first_out,
        many_at_once,
        bounds_are_kept,
        frozen_lists_refuse,
        the_oldest_are_taken_first,
        content_stays_with_the_block,
    ];
    for part in parts {
        let task = || {
            settle_down();
            part(machine);
        };
        machine.run(vec![Box::new(task)]);
    }
}

fn last_in_first_out<M: Machine>(machine: &M) {
    let stacks = machine.stacks(&[CAPACITY, CAPACITY]).unwrap();
    assert!(stacks.pop(0).is_none(), "nothing is there yet");
    set_bounds(machine, &stacks, 0, Bounds::up_to(5));
    set_bounds(machine, &stacks, 1, Bounds::up_to(5));
    let blocks = pages(machine, 4);
    let first = blocks[0].pfn().0;
    for block in blocks {
        stacks.push(0, block).unwrap();
    }
    assert!(stacks.pop(1).is_none(), "another list");
    assert_eq!(held(machine, &stacks, 0), 4);
    for expected in (0..4).rev() {
        assert_eq!(stacks.pop(0).unwrap().pfn().0 - first, expected);
    }
    assert!(stacks.pop(0).is_none());
    assert_eq!(sum(machine, &stacks, 0, pops), 4);
    assert_eq!(sum(machine, &stacks, 1, pops), 0);
}

fn many_at_once<M: Machine>(machine: &M) {
    let stacks = machine.stacks(&[CAPACITY]).unwrap();
    set_bounds(machine, &stacks, 0, Bounds::up_to(4));
    let mut blocks = pages(machine, 6);
    assert_eq!(stacks.push_many(0, &mut blocks), 4, "as many as fit");
    assert_eq!(numbers(&blocks), [0, 1], "off the end");
    assert_eq!(stacks.push_many(0, &mut blocks), 0);
    let mut popped = vec![blocks.remove(0)];
    assert_eq!(stacks.pop_many(0, 3, &mut popped), 3);
    assert_eq!(
        numbers(&popped),
        [0, 3, 4, 5],
        "the most recently pushed last"
    );
    assert_eq!(sum(machine, &stacks, 0, pops), 0, "not counted");
    assert_eq!(stacks.pop_many(0, 9, &mut popped), 1);
    assert_eq!(stacks.pop_many(0, 9, &mut popped), 0);
    assert_eq!(numbers(&popped), [0, 3, 4, 5, 2]);
    assert_eq!(stacks.push_many(0, &mut Vec::new()), 0);
    assert_eq!(stacks.push_many(0, &mut popped), 4);
    assert_eq!(numbers(&[stacks.pop(0).unwrap(), popped.remove(0)]), [2, 0]);
}

fn bounds_are_kept<M: Machine>(machine: &M) {
    let stacks = machine.stacks(&[CAPACITY]).unwrap();
    let mut blocks = pages(machine, 7);
    let refused = stacks.push(0, blocks.pop().unwrap()).unwrap_err();
    assert_eq!(stacks.push_many(0, &mut blocks), 0, "frozen at first");
    blocks.push(refused);
    set_bounds(machine, &stacks, 0, Bounds { limit: 3, floor: 2 });
    for _ in 0..3 {
        stacks.push(0, blocks.pop().unwrap()).unwrap();
    }
    let full = blocks.pop().unwrap();
    let pfn = full.pfn();
    assert_eq!(stacks.push(0, full).unwrap_err().pfn(), pfn);
    assert!(stacks.pop(0).is_some());
    assert!(stacks.pop(0).is_none(), "the floor");
    assert_eq!(stacks.pop_many(0, 5, &mut blocks), 0);
    // A limit below what is there lets nothing in, and everything out.
    set_bounds(machine, &stacks, 0, Bounds::up_to(1));
    assert!(stacks.push(0, blocks.pop().unwrap()).is_err());
    assert_eq!(stacks.push_many(0, &mut blocks), 0);
    assert_eq!(stacks.pop_many(0, 5, &mut blocks), 2);
    // Floors above the depth do not underflow, limits up to the capacity are good.
    set_bounds(
        machine,
        &stacks,
        0,
        Bounds {
            limit: 16,
            floor: 9,
        },
    );
    assert_eq!(stacks.pop_many(0, 5, &mut blocks), 0);
    let mut filling = pages(machine, 20);
    assert_eq!(
        stacks.push_many(0, &mut filling),
        16,
        "below the floor, too"
    );
    assert_eq!(stacks.pop_many(0, 20, &mut filling), 7);
}

fn frozen_lists_refuse<M: Machine>(machine: &M) {
    let stacks = machine.stacks(&[CAPACITY]).unwrap();
    let mut blocks = pages(machine, 6);
    set_bounds(machine, &stacks, 0, Bounds::up_to(8));
    let in_hand = blocks.pop().unwrap();
    assert_eq!(stacks.push_many(0, &mut blocks), 5);
    freeze(machine, &stacks, 0);
    blocks.push(stacks.push(0, in_hand).unwrap_err());
    assert_eq!(stacks.push_many(0, &mut blocks), 0);
    assert!(stacks.pop(0).is_none());
    assert_eq!(stacks.pop_many(0, 5, &mut blocks), 0);
    assert_eq!((blocks.len(), held(machine, &stacks, 0)), (1, 5));
    assert_eq!(sum(machine, &stacks, 0, pops), 0);
    set_bounds(machine, &stacks, 0, Bounds::up_to(8));
    assert_eq!(numbers(&[stacks.pop(0).unwrap(), blocks.remove(0)]), [0, 1]);
}

fn the_oldest_are_taken_first<M: Machine>(machine: &M) {
    let stacks = machine.stacks(&[CAPACITY, CAPACITY]).unwrap();
    for (list, limit) in [(0, 16), (1, 4)] {
        set_bounds(machine, &stacks, list, Bounds::up_to(limit));
    }
    let mut blocks = pages(machine, 14);
    assert_eq!(stacks.push_many(0, &mut blocks), 14);
    assert!(stacks.pop(0).is_some());
    freeze(machine, &stacks, 0);
    let mut taken = Vec::new();
    let mut take = |count| -> usize {
        let take = |shard| stacks.take_oldest(shard, 0, count, &mut taken);
        shards(machine).map(take).sum()
    };
    assert_eq!((take(0), take(3), take(2)), (0, 3, 2));
    assert_eq!(numbers(&taken), [0, 1, 2, 3, 4]);
    assert_eq!(held(machine, &stacks, 0), 8);
    assert_eq!(sum(machine, &stacks, 0, pops), 1, "taking is not popping");
    set_bounds(machine, &stacks, 0, Bounds::up_to(16));
    let mut rest = Vec::new();
    assert_eq!(stacks.pop_many(0, 7, &mut rest), 7);
    assert_eq!(numbers(&rest), [0, 1, 2, 3, 4, 5, 6]);
    freeze(machine, &stacks, 0);
    let all = shards(machine).map(|shard| stacks.take_oldest(shard, 0, 99, &mut taken));
    assert_eq!(all.sum::<usize>(), 1);
    assert_eq!(numbers(&taken), [0, 1, 2, 3, 4, 5]);
    assert_eq!(stacks.push_many(1, &mut taken), 4, "another list is not");
}

fn content_stays_with_the_block<M: Machine>(machine: &M) {
    use bursar_machine::pages::{Content, Frames, Owner};
    let stacks = machine.stacks(&[1]).unwrap();
    set_bounds(machine, &stacks, 0, Bounds::up_to(1));
    let (frames, mut span) = machine.reserve(&ReserveOptions::pages(1)).unwrap();
    let mut block = span.take().unwrap();
    let _ = frames.uninit(&mut block);
    block.set_owner(Owner::new(Owner::MAX));
    stacks.push(0, block).unwrap();
    let block = stacks.pop(0).unwrap();
    assert_eq!(block.pfn(), frames.first());
    assert_eq!(
        (block.order(), block.content(), block.owner().get()),
        (Order::MAX, Content::Unknown, Owner::MAX)
    );
}
