//! A fork at any moment: the child has every page except those held by tasks that are gone, and these tasks hinder no
//! other.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use bursar::{Freshness, Limits};
use bursar_rig::Forks;

use super::super::books::run;
use super::churn::churn;
use super::many::{alloc_many, free_many};
use super::world::{Held, PAGES, Request, World, some_options};
use crate::random::Random;

struct Child {
    /// Whether its first operation is done.
    is_right: AtomicBool,
    /// Number of pages that are lost.
    lost: AtomicU64,
}

fn work<M: Forks>(world: &World<M>, mut random: Random) {
    let mut held: Vec<Held<M>> = Vec::new();
    for _ in 0..5 {
        let who = 1 + random.below(2) as usize;
        match random.below(8) {
            0..3 => held.extend(world.alloc(who, &Request::some(&mut random))),
            3 | 4 => held.extend(alloc_many(world, &mut random, who)),
            5 => free_many(world, std::mem::take(&mut held)),
            6 => held.pop().into_iter().for_each(|page| world.free(page)),
            _ => world.tend(&mut random),
        }
    }
    free_many(world, held);
}

fn fork<M: Forks>(machine: &M, world: &World<M>, child: &Child, mut random: Random) {
    let mut held = Vec::new();
    for _ in 0..random.below(3) {
        held.extend(world.alloc(1, &Request::some(&mut random)));
    }
    machine.fork();
    match random.below(4) {
        0 => world.memory.tick(),
        1 => drop(world.memory.zone_info()),
        2 => held.extend(world.alloc(2, &Request::some(&mut random))),
        _ => drop(world.groups[1].read(Freshness::Exact)),
    }
    // The books follow from what was charged: a slow operation, whatever came before.
    world.memory.tick();
    child.is_right.store(true, Ordering::Relaxed);
    let at_rest = world.at_rest();
    let (sure, most) = world.truth().held();
    let lost = PAGES - at_rest;
    assert!(
        (sure..=most).contains(&lost),
        "{lost} pages are not at rest in the child, and {sure} to {most} are held"
    );
    // By number: no other task's pages are handed out, and none twice.
    let free = world.all_at_rest();
    assert_eq!(
        free.len() as u64,
        at_rest,
        "pages that can be had, and at rest"
    );
    child.lost.store(lost - sure, Ordering::Relaxed);
    held.into_iter().for_each(|page| world.free(page));
    churn(world, random, 4);
}

pub(super) fn scenario<M: Forks>(machine: &M, seed: u64) {
    let mut random = Random::fork(seed, 0);
    let options = some_options(&mut random);
    let world = World::new(machine, options, 10, &[Limits::none(), Limits::none()]);
    let child = Child {
        is_right: AtomicBool::new(false),
        lost: AtomicU64::new(0),
    };
    let (all, born) = (&world, &child);
    let check = || {
        if machine.forks() == 0 || born.is_right.load(Ordering::Relaxed) {
            all.check_held();
        }
    };
    let forks = move |random| fork(machine, all, born, random);
    let works = move |random| work(all, random);
    run(machine, seed, check, tasks![forks, works, works, works]);
    // Tasks that come after.
    let again = move |random| churn(all, random, 3);
    let tend = move |mut random: Random| all.tend(&mut random);
    run(
        machine,
        seed + 1,
        || all.check_held(),
        tasks![again, again, tend],
    );
    let lost = child.lost.load(Ordering::Relaxed);
    let free = world.truth().free() - lost;
    assert_eq!(
        world.at_rest(),
        free,
        "pages at rest, and neither held nor lost"
    );
    assert_eq!(
        world.all_at_rest().len() as u64,
        free,
        "pages that can be had"
    );
}
