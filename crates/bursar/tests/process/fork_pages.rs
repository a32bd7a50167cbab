//! A process that forks while threads allocate and free pages. The child has all pages that no thread held, and no lock
//! is left taken.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use crate::common::fork::in_child;
use crate::common::model_pages::{Held, World, options};
use crate::common::world::Stop;
use crate::common::{Random, seed};
use bursar::Memory;
use bursar::pages::{ListOptions, Order, Zeroed};

const THREADS: u64 = 3;
const FORKS: usize = 40;

/// Checks in the child that each page which is not at rest is held, or was under way.
fn live_in_child(world: &World, mut held: Vec<Held>, random: &mut Random) {
    match random.below(3) {
        0 => world.memory.tick(),
        1 => drop(world.alloc(random).map(|held| world.free(held))),
        _ => (),
    }
    let (sure, under_way) = (world.held(), world.under_way.load(Ordering::SeqCst));
    let at_rest = world.at_rest();
    assert!(
        at_rest + sure <= world.managed && at_rest + sure + under_way >= world.managed,
        "{at_rest} at rest, {sure} held, {under_way} under way, of {}",
        world.managed
    );
    let mut all = Vec::new();
    while let Ok(page) = world.memory.alloc_pages(Order::ZERO, Zeroed::No) {
        assert!(!world.is_held(page.pfn()), "{page:?} is held");
        all.push(page);
    }
    all.sort_by_key(bursar::Page::pfn);
    assert!(all.windows(2).all(|two| two[0].pfn() != two[1].pfn()));
    assert_eq!(
        all.len() as u64,
        at_rest,
        "pages that can be had, and at rest"
    );
    drop(all);
    held.drain(..).for_each(|page| world.free(page));
    (0..200).for_each(|_| world.step(random, &mut held));
}

#[test]
fn a_child_has_all_pages_that_nobody_held() {
    let _alone = crate::common::fork::alone();
    let seed = seed();
    let mut options = options(8 << 20);
    options.lists = vec![ListOptions::new(0, 16), ListOptions::new(1, 4)];
    options.batch = Some(4);
    options.decay_period = Duration::from_micros(50);
    options.idle_periods = 1;
    let world = World::new(options);
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        for thread in 0..THREADS {
            let (world, stop) = (&world, &stop);
            scope.spawn(move || {
                let mut random = Random(seed ^ thread);
                let mut held = Vec::new();
                while !stop.load(Ordering::Relaxed) {
                    world.step(&mut random, &mut held);
                    if random.below(50) == 0 {
                        world.memory.tick();
                    }
                }
                world.free_many(held);
            });
        }
        let _stop = Stop(&stop);
        let mut random = Random(!seed);
        let mut held = Vec::new();
        for _ in 0..FORKS {
            (0..random.below(20)).for_each(|_| world.step(&mut random, &mut held));
            // The lock of the basket is not ours to repair in the child.
            let basket = world.basket();
            let seed = random.next();
            in_child(|| {
                drop(basket);
                live_in_child(&world, std::mem::take(&mut held), &mut Random(seed));
            });
        }
        world.free_many(held);
    });
    world.finish();
}

/// Half of each piece of the table's pages are given out by a thread that is gone in the middle of it, the others by the child.
#[test]
fn a_child_gives_pages_out_as_raw_memory() {
    let _alone = crate::common::fork::alone();
    const BLOCKS: u32 = 256;
    const ROUNDS: usize = 25;
    const HALF: Order = Order::new(9);
    let mut random = Random(seed());
    for _ in 0..ROUNDS {
        let bytes = u64::from(BLOCKS) * Order::MAX.bytes() as u64;
        let memory = Memory::builder().pages(options(bytes)).build().unwrap();
        let some = memory
            .root()
            .alloc_many(HALF, 2 * BLOCKS as usize, Zeroed::No);
        let is_low = |page: &bursar::Page| page.pfn().0.is_multiple_of(Order::MAX.pages());
        let (theirs, mut ours): (Vec<_>, Vec<_>) = some.unwrap().into_iter().partition(is_low);
        let given = AtomicU64::new(0);
        let raw = std::thread::scope(|scope| {
            let gives = scope.spawn(|| {
                let give = |page: bursar::Page| {
                    given.fetch_add(1, Ordering::Relaxed);
                    page.into_block()
                };
                theirs.into_iter().map(give).collect::<Vec<_>>()
            });
            let first = random.below(BLOCKS as usize) as u64;
            while given.load(Ordering::Relaxed) < first {
                std::hint::spin_loop();
            }
            in_child(|| {
                for page in ours.drain(..) {
                    let block = page.into_block();
                    let claim = memory.claim(block.pfn()).unwrap();
                    drop(claim.page(&memory, block));
                }
            });
            gives.join().unwrap()
        });
        for block in raw {
            let claim = memory.claim(block.pfn()).unwrap();
            drop(claim.page(&memory, block));
        }
    }
}
