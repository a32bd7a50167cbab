//! Checks of a forked child on a memory that it inherited.

use bursar::engine::NowaitError;
use bursar::{Charge, ChargeError, Freshness, Group};

use super::world::{TENANT_MAX, World};
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

/// What the child does with a memory that it inherited, and with a fresh one.
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
    for (at, charge) in held.drain(..) {
        world.notes[at].uncharge(charge);
    }
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
                for (at, charge) in held {
                    world.notes[at].uncharge(charge);
                }
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
