//! Pages as raw memory: the first task that claims one has it, and no other.

use std::collections::BTreeMap;
use std::mem::ManuallyDrop;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

use bursar::Limits;
use bursar::pages::Pfn;
use bursar::raw::ClaimError;
use bursar_machine::Machine;
use bursar_machine::pages::Block;
use bursar_rig::Watched;

use super::super::books::run;
use super::world::{Held, Request, World, some_options};
use crate::model::pages::{At, Who, Work};
use crate::protocols::locked::locked;
use crate::random::Random;

/// Pages that are given out.
struct Raw {
    /// Tokens; the task that wins finds its own here.
    blocks: Mutex<BTreeMap<Pfn, (Block, At)>>,
    /// All pages that were ever given out, for repeated claims.
    known: Mutex<Vec<Pfn>>,
    given: AtomicU64,
    claimed: AtomicU64,
}

impl Raw {
    fn give<M: Machine>(&self, held: Held<M>) {
        let Held { page, at } = held;
        let pfn = page.pfn();
        self.given.fetch_add(1, Ordering::Relaxed);
        locked(&self.known).push(pfn);
        // The token is in its place before any task can win: a task that looks at the table finds it there only after
        // this.
        let block = ManuallyDrop::into_inner(page).into_block();
        let before = locked(&self.blocks).insert(pfn, (block, at));
        assert!(before.is_none(), "{pfn} was given out twice");
    }

    /// Claims a page that was given out, if no other task has it back yet.
    fn claim<M: Machine>(&self, world: &World<M>, pfn: Pfn) -> Option<Held<M>> {
        match world.memory.claim(pfn) {
            Ok(claim) => {
                self.claimed.fetch_add(1, Ordering::Relaxed);
                let token = locked(&self.blocks).remove(&pfn);
                let (block, at) = token.expect("one claims a page that was given out once");
                assert_eq!((claim.pfn(), claim.order()), (block.pfn(), block.order()));
                let page = ManuallyDrop::new(claim.page(&world.memory, block));
                Some(Held { page, at })
            }
            Err(ClaimError::AlreadyFreed { .. } | ClaimError::NotGivenOut { .. }) => None,
            Err(error) => panic!("{error}"),
        }
    }
}

fn work<M: Watched>(world: &World<M>, raw: &Raw, mut random: Random, who: Who) {
    for _ in 0..5 {
        if random.below(2) == 0 {
            let page = world.alloc(who, &Request::some(&mut random));
            page.into_iter().for_each(|page| raw.give(page));
            continue;
        }
        let some = {
            let known = locked(&raw.known);
            let count = known.len() as u64;
            (count > 0).then(|| known[random.below(count) as usize])
        };
        let Some(pfn) = some else { continue };
        let claimed = world.work(Work::Other, || raw.claim(world, pfn));
        claimed.into_iter().for_each(|page| world.free(page));
    }
}

pub(super) fn scenario<M: Watched>(machine: &M, seed: u64) {
    let mut random = Random::fork(seed, 0);
    let options = some_options(&mut random);
    let world = World::new(machine, options, 3, &[Limits::none(), Limits::none()]);
    let raw = Raw {
        blocks: Mutex::default(),
        known: Mutex::default(),
        given: AtomicU64::new(0),
        claimed: AtomicU64::new(0),
    };
    let first = world.alloc(1, &Request::page()).expect("there are some");
    raw.give(first);
    let (all, given) = (&world, &raw);
    let first = move |random| work(all, given, random, 1);
    let second = move |random| work(all, given, random, 2);
    run(
        machine,
        seed,
        || all.check_held(),
        tasks![first, second, first],
    );
    world.check();
    for pfn in std::mem::take(&mut *locked(&raw.known)) {
        let page = raw.claim(&world, pfn);
        page.into_iter().for_each(|page| world.free(page));
    }
    let count = |number: &AtomicU64| number.load(Ordering::Relaxed);
    assert_eq!(
        count(&raw.given),
        count(&raw.claimed),
        "given out, and claimed"
    );
    world.finish();
}
