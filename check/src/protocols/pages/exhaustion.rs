//! More pages are wanted than there are: several tasks empty all lists at once, and give up only if other tasks hold or
//! move pages.
//!
//! This defines "refused for no reason". A task's pages are no longer at rest while it frees them, moves them for
//! upkeep, or has fetched a batch of which it needs one; another task that looks meanwhile may find none. So among all
//! tasks that work at once, if they only allocate, one succeeds when a block is there. A task that is alone always
//! succeeds (`truth.rs`).

use bursar::pages::{Order, Watermarks};
use bursar::{AllocPagesError, Limits};
use bursar_rig::Watched;

use super::super::books::run;
use super::churn::churn;
use super::world::{Request, World, some_options, tiny_options};
use crate::model::pages::Work;
use crate::random::Random;

pub(super) fn scenario<M: Watched>(machine: &M, seed: u64) {
    let mut random = Random::fork(seed, 0);
    let mut options = some_options(&mut random);
    let min = random.below(2);
    options.watermarks = Some(Watermarks {
        min,
        low: min + random.below(2),
        high: 2,
    });
    let left = min + 1 + random.below(4);
    let world = World::new(machine, options, left, &[Limits::none(), Limits::none()]);
    let all = &world;
    let work = move |random| churn(all, random, 4);
    // The pages lie on lists of CPUs on which no task that wants them may be.
    let want = move |mut random: Random| {
        let mut held = Vec::new();
        for _ in 0..2 {
            let order = Order::new(random.below(2) as u8);
            let request = Request {
                order,
                ..Request::page()
            };
            held.extend(all.alloc(1, &request));
        }
        held.into_iter().for_each(|page| all.free(page));
    };
    run(machine, seed, || all.check_held(), tasks![work, want, want]);
    // And when all are gone: whatever is free is had.
    want(random);
    world.finish();
}

/// Runs a race for the last page. A page is uncharged after it was put back, so a task that may be charged finds the
/// page.
pub(super) fn last_page_scenario<M: Watched>(machine: &M, seed: u64) {
    let mut random = Random::fork(seed, 0);
    let options = tiny_options(&mut random);
    let limit = Limits::max(Order::ZERO.bytes() as u64);
    let world = World::new(machine, options, 1, &[limit]);
    let all = &world;
    let want = move |mut random: Random| {
        for _ in 0..3 {
            let held = all.work(Work::Alloc(1), || {
                let group = &all.groups[1];
                match group.alloc_pages(Order::ZERO, bursar::pages::Zeroed::No) {
                    Ok(page) => Some(all.take(page, 1)),
                    Err(AllocPagesError::Refused(_)) => None,
                    Err(error) => panic!("within the limit: {error}"),
                }
            });
            if let Some(mut held) = held {
                if random.below(2) == 0 {
                    all.write(&mut held);
                }
                all.free(held);
            }
        }
    };
    run(machine, seed, || all.check_held(), tasks![want, want, want]);
    world.finish();
}
