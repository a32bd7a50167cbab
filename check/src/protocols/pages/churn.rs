//! Two groups allocate, write and free while a task ticks: lists decay, are drained from afar, and memory goes back.

use bursar::Limits;
use bursar::pages::{ListOptions, Order, Watermarks, Zeroed};
use bursar_rig::Watched;

use super::super::books::run;
use super::world::{Held, Request, World, some_options};
use crate::model::pages::Work;
use crate::random::Random;

/// A group that sometimes zeroes the pages that it frees.
const SECRET: usize = 1;

/// Allocates, writes and frees at random, and holds nothing at the end.
pub(super) fn churn<M: Watched>(world: &World<M>, mut random: Random, operations: u64) {
    let mut held: Vec<Held<M>> = Vec::new();
    for _ in 0..operations {
        if !held.is_empty() && random.below(5) < 2 {
            let at = random.below(held.len() as u64) as usize;
            world.free(held.swap_remove(at));
            continue;
        }
        let who = 1 + random.below(2) as usize;
        let page = world.alloc(who, &Request::some(&mut random));
        held.extend(page.map(|mut page| {
            if random.below(2) == 0 {
                world.write(&mut page);
            }
            page
        }));
    }
    held.into_iter().for_each(|page| world.free(page));
}

/// Runs a group of which only a page is left for a while, as its number is given to the next group.
fn live_and_die<M: Watched>(world: &World<M>, random: &mut Random) {
    let name = format!("t{}", random.number());
    let group = world.groups[1].child(&name, Limits::none());
    let group = group.expect("a name of its own");
    let page = world.alloc_for(&group, world.new_holder(), &Request::some(random));
    group.remove().expect("it has no children");
    drop(group);
    if let Some(mut page) = page {
        world.write(&mut page);
        world.free(page);
    }
}

pub(super) fn scenario<M: Watched>(machine: &M, seed: u64) {
    let mut random = Random::fork(seed, 0);
    let options = some_options(&mut random);
    let limits = [Limits::none(), Limits::none()];
    let world = World::new(machine, options, 8, &limits);
    let zeroes = random.below(4) == 0;
    if zeroes {
        world.groups[SECRET].set_zero_on_free(Zeroed::Yes);
        world.truth().zeroed_when_freed(SECRET);
    }
    let all = &world;
    let work = move |random| churn(all, random, 5);
    let tend = move |mut random: Random| {
        for _ in 0..3 {
            match random.below(8) {
                0 => live_and_die(all, &mut random),
                _ => all.tend(&mut random),
            }
        }
    };
    run(machine, seed, || all.check_held(), tasks![work, work, tend]);
    world.finish();
}

/// Runs lists whose bounds change with each refill and overflow, as long as there is room for more.
pub(super) fn tuning_scenario<M: Watched>(machine: &M, seed: u64) {
    let mut random = Random::fork(seed, 0);
    let mut options = some_options(&mut random);
    options.lists = vec![ListOptions::new(0, 8)];
    options.batch = Some(1);
    options.watermarks = Some(Watermarks {
        min: 0,
        low: 0,
        high: 0,
    });
    options.idle_periods = 1;
    let limits = [Limits::none(), Limits::none()];
    let world = World::new(machine, options, 24, &limits);
    let all = &world;
    let work = move |mut random: Random| {
        let who = 1 + random.below(2) as usize;
        let wanted = 2 + random.below(7);
        let held = (0..wanted).filter_map(|_| all.alloc(who, &Request::page()));
        let held: Vec<Held<M>> = held.collect();
        held.into_iter().for_each(|page| all.free(page));
    };
    let drain = move |mut random: Random| {
        for _ in 0..3 {
            if random.below(4) == 0 {
                all.work(Work::Other, || all.memory.tick());
                continue;
            }
            // There is no such block, so all lists are emptied in search of it.
            let request = Request {
                order: Order::new(6),
                ..Request::page()
            };
            assert!(all.alloc(1, &request).is_none(), "a block of the ballast");
        }
    };
    run(
        machine,
        seed,
        || all.check_held(),
        tasks![work, work, drain],
    );
    world.finish();
}
