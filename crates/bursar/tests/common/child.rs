//! Checks of a forked child on a memory that it inherited.

use std::sync::atomic::{AtomicBool, Ordering};

use bursar::engine::NowaitError;
use bursar::{Charge, ChargeError, Freshness, Group};

use super::fork::in_child;
use super::world::{Stop, TENANT_MAX, THREADS, World};
use super::{ROWS, Random, Short};

/// Charges a group all that fits, and no byte more.
pub fn fill(world: &World, at: usize) {
    let group = &world.groups[at];
    let room = |at: usize| {
        let above = &world.groups[at];
        let used = above.used() as u64;
        above.limits().max.saturating_sub(used)
    };
    let fits = world.shape.chain(at).map(room).min().unwrap();
    let charge = group.try_charge(fits).unwrap();
    match group.try_charge(1) {
        Err(ChargeError::LimitReached(reached)) => assert!(reached.usage >= reached.max),
        other => panic!("{other:?} beyond {fits} bytes"),
    }
    drop(charge);
    drop(group.try_charge(fits).unwrap());
}

/// Uses a memory that the child inherited, and a fresh one, in the child.
pub fn live_in_child(world: &World, mut held: Vec<(usize, Charge)>, random: &mut Random) {
    // Before anything else, as a signal handler might: refused, or put off.
    if random.below(2) == 0 {
        let refused = world.groups[1]
            .engine()
            .try_charge_nowait(1 << 20)
            .unwrap_err();
        assert_eq!(refused, NowaitError::Busy);
        while held.len() > 6 {
            let (at, charge) = held.pop().unwrap();
            world.notes[at].uncharge(charge);
        }
    }
    world.memory.tick();
    // From the root down: a look at a group without children would show those above what they miss.
    for group in &world.groups {
        let usage = group.used();
        assert_eq!(group.reserved() as i64, usage, "no stock is left");
    }
    world.check();
    for (at, group) in world.groups.iter().enumerate() {
        // It becomes stock, of which the range above must know.
        let charge = group.try_charge(3_000);
        let above = &world.groups[world.shape.chain(at).nth(1).unwrap_or(at)];
        above.exact();
        drop(charge);
        let cached = above.read(Freshness::Cached).unwrap().usage();
        let usage = above.used();
        assert!((cached.lo..=cached.hi).contains(&usage), "{cached:?}");
    }
    world.memory.root().set_max(0);
    world.memory.root().set_max(u64::MAX);

    let before = world.memory.reserved();
    let bytes: u64 = held.iter().map(|(_, charge)| charge.bytes()).sum();
    let (fresh, groups) = world.memory.reset_after_fork().unwrap();
    assert_eq!(groups.len(), fresh_paths(&world.memory.root()).len());
    assert_eq!(
        fresh_paths(&fresh.root()),
        fresh_paths(&world.memory.root())
    );
    for group in &world.groups {
        let copy = fresh.find(&group.path()).unwrap();
        assert_eq!(
            (copy.limits().max, copy.reserved()),
            (group.limits().max, 0)
        );
        assert_eq!(copy.rows(), 0);
    }
    world.uncharge(held);
    assert_eq!(fresh.reserved(), 0);
    world.groups[1].set_max(TENANT_MAX);
    world.groups[2].set_max(TENANT_MAX);
    world.check();
    let left = world.memory.exact().usage();
    assert_eq!(left.value as u64, before - bytes);

    for at in 1..world.groups.len() {
        fill(world, at);
    }
    // Threads of the child's own.
    std::thread::scope(|scope| {
        for _ in 0..2 {
            let mut random = Random(random.next());
            scope.spawn(move || {
                let mut held = Vec::new();
                (0..200).for_each(|_| world.step(&mut random, &mut held));
                world.uncharge(held);
            });
        }
    });
    world.check();

    let tenant = fresh.find("0").unwrap();
    let charge = tenant.try_charge(tenant.limits().max).unwrap();
    assert!(tenant.try_charge(1).is_err());
    fresh.find("0/0").unwrap().add(ROWS, 3);
    assert_eq!(fresh.rows(), 3);
    drop((charge, groups));
    world.check();
}

pub fn fresh_paths(group: &Group) -> Vec<(String, u64)> {
    let mut paths = Vec::new();
    for child in group.children() {
        paths.push((child.path(), child.limits().max));
        paths.extend(fresh_paths(&child));
    }
    paths
}

/// Forks beside threads that charge and allocate, as long as `goes_on` says so of the number of forks. The child finds its
/// books whole, and nothing happens to the parent's. One child of `of` does all that there is to do.
pub fn fork_beside_threads(seed: u64, of: usize, goes_on: impl Fn(usize) -> bool) {
    let world = World::new();
    let stop = AtomicBool::new(false);
    let random = |stream: u64| Random(Random(seed ^ stream << 32).next());
    std::thread::scope(|scope| {
        for thread in 0..THREADS as u64 {
            let (world, stop, mut random) = (&world, &stop, random(thread));
            scope.spawn(move || {
                let mut held = Vec::new();
                let mut blocks: Vec<Vec<u8>> = Vec::new();
                while !stop.load(Ordering::SeqCst) {
                    world.step(&mut random, &mut held);
                    blocks.push(vec![1; 1 + random.below(8_000)]);
                    if blocks.len() > 50 {
                        blocks.swap_remove(random.below(50));
                    }
                }
                world.uncharge(held);
            });
        }
        let _stop = Stop(&stop);
        let mut random = random(100);
        let mut held = Vec::new();
        for forks in 0.. {
            if !goes_on(forks) {
                break;
            }
            (0..random.below(60)).for_each(|_| world.step(&mut random, &mut held));
            let mut child = Random(random.next());
            if random.below(of) == 0 {
                // The child has the charges that we have; each drops its own.
                let held = &mut held;
                in_child(|| live_in_child(&world, std::mem::take(held), &mut child));
                continue;
            }
            in_child(|| {
                world.memory.tick();
                world.check();
                for group in &world.groups {
                    assert_eq!(group.reserved() as i64, group.used(), "{group:?}");
                }
                (0..child.below(100)).for_each(|_| world.step(&mut child, &mut held));
                world.check();
            });
        }
        world.uncharge(held);
    });
    world.check();
    assert_eq!(world.memory.used(), 0);
    world.groups.iter().for_each(|group| group.set_max(0));
    assert_eq!(world.memory.reserved(), 0, "lost stock");
}
