//! Pages allocated by some tasks and freed by others: batches change hands through the depot, whose shelves are small.

use std::sync::Mutex;

use bursar::Limits;
use bursar_rig::Watched;

use super::super::books::run;
use super::world::{Held, Request, World, tiny_options};
use crate::protocols::locked::locked;
use crate::random::Random;

pub(super) fn scenario<M: Watched>(machine: &M, seed: u64) {
    let mut random = Random::fork(seed, 0);
    let options = tiny_options(&mut random);
    let world = World::new(machine, options, 12, &[Limits::none(), Limits::none()]);
    // Some to begin with, so that tasks that free have work. Not the machine's lock.
    let basket: Mutex<Vec<Held<M>>> = Mutex::default();
    for who in [1, 2, 1, 2, 1] {
        let page = world.alloc(who, &Request::page());
        locked(&basket).extend(page);
    }
    let (all, basket) = (&world, &basket);
    let produce = move |mut random: Random| {
        for _ in 0..4 {
            let who = 1 + random.below(2) as usize;
            if let Some(mut page) = all.alloc(who, &Request::some(&mut random)) {
                all.write(&mut page);
                locked(basket).push(page);
            }
        }
    };
    let consume = move |mut random: Random| {
        for _ in 0..5 {
            let page = {
                let mut pages = locked(basket);
                let count = pages.len() as u64;
                (count > 0).then(|| pages.swap_remove(random.below(count) as usize))
            };
            page.into_iter().for_each(|page| all.free(page));
        }
    };
    let tend = move |mut random: Random| all.tend(&mut random);
    run(
        machine,
        seed,
        || all.check_held(),
        tasks![produce, consume, consume, tend],
    );
    world.check();
    for page in std::mem::take(&mut *locked(basket)) {
        world.free(page);
    }
    world.finish();
}
