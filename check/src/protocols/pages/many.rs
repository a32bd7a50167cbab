//! Many pages at a time, and frees of many of different groups: all or none, and pages that were not allocated are not
//! charged.

use bursar::pages::{Order, Zeroed};
use bursar::{Limits, Page};
use bursar_rig::Watched;

use super::super::books::run;
use super::world::{Held, Request, World, some_options};
use crate::model::pages::Work;
use crate::random::Random;

pub(super) fn alloc_many<M: Watched>(
    world: &World<M>,
    random: &mut Random,
    who: usize,
) -> Vec<Held<M>> {
    let order = Order::new([0, 0, 1, 2][random.below(4) as usize]);
    let count = 1 + random.below(4) as usize;
    let zeroed = match random.below(3) {
        0 => Zeroed::Yes,
        _ => Zeroed::No,
    };
    let pages = count as u64 * u64::from(order.pages());
    world.work(Work::Alloc(pages), || {
        match world.groups[who].alloc_many(order, count, zeroed) {
            Ok(pages) => {
                assert_eq!(pages.len(), count, "all or none");
                pages
                    .into_iter()
                    .map(|page| world.take(page, who))
                    .collect()
            }
            result => {
                // Pages that were allocated before are given back, perhaps zeroed meanwhile.
                world.work(Work::Other, || world.truth().zeroed_in_secret());
                assert!(world.judge(result, order, false).is_none());
                Vec::new()
            }
        }
    })
}

pub(super) fn free_many<M: Watched>(world: &World<M>, held: Vec<Held<M>>) {
    let pages = held.iter().map(|held| u64::from(held.page.order().pages()));
    world.work(Work::Free(pages.sum()), || {
        let pages: Vec<Page<M>> = held.into_iter().map(|held| world.release(held)).collect();
        Page::free_many(pages);
    });
}

pub(super) fn scenario<M: Watched>(machine: &M, seed: u64) {
    let mut random = Random::fork(seed, 0);
    let options = some_options(&mut random);
    let limits = [Limits::none(), Limits::max(6 * 4096)];
    let left = 4 + random.below(9);
    let world = World::new(machine, options, left, &limits);
    let all = &world;
    let work = move |mut random: Random| {
        let mut held = Vec::new();
        for _ in 0..3 {
            let who = 1 + random.below(2) as usize;
            match random.below(4) {
                0 => held.extend(all.alloc(who, &Request::some(&mut random))),
                1 => free_many(all, std::mem::take(&mut held)),
                _ => held.extend(alloc_many(all, &mut random, who)),
            }
            if let Some(last) = held.last_mut() {
                all.write(last);
            }
        }
        free_many(all, held);
    };
    let tend = move |mut random: Random| all.tend(&mut random);
    run(machine, seed, || all.check_held(), tasks![work, work, tend]);
    world.finish();
}
