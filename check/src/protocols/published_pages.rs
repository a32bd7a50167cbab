//! The published policies of page lists: allocations, frees, decay and drains of a zone of one large block, on three CPUs.
//!
//! Whatever a policy does between its batches, no page is lost or handed out twice, counts are right, and in the end
//! all pages are one block again. These policies make no promise to readers, so nothing can be stale.

use std::sync::atomic::{AtomicBool, Ordering};

use bursar_kernel::pages::{Counts, DrainHold, Measured, PageLists, Reclaim, Release, Settings};
use bursar_machine::Shard;
use bursar_machine::pages::{Block, Frames, Order, SPAN_PAGES};
use bursar_rig::Watched;

use super::books::run;
use super::protocol::Protocol;
use crate::random::Random;

/// CPUs of the machine.
const CPUS: usize = 3;

/// Returns all policies.
pub fn all<M: Watched>() -> Vec<Protocol<M>> {
    let protocol =
        |name, release: Release, scenario| Protocol::of(CPUS, name, scenario, release.summary());
    vec![
        protocol("pages-whole", Release::Whole, |machine: &M, variety| {
            run_once(machine, Release::Whole, variety);
        }),
        protocol(
            "pages-batched-decay",
            Release::BatchedDecay,
            |machine: &M, variety| {
                run_once(machine, Release::BatchedDecay, variety);
            },
        ),
        protocol(
            "pages-zone-break",
            Release::ZoneBreak,
            |machine: &M, variety| {
                run_once(machine, Release::ZoneBreak, variety);
            },
        ),
        protocol("pages-batched", Release::Batched, |machine: &M, variety| {
            run_once(machine, Release::Batched, variety);
        }),
    ]
}

/// Runs a policy once, with variety from a number; returns the counts. Panics at an error.
pub fn run_once<M: Watched>(machine: &M, release: Release, variety: u64) -> Counts {
    let mut random = Random::new(variety);
    let scene = Scene::new(machine, release, &mut random);
    let scene = &scene;
    let work = move |random: Random| scene.work(random);
    let drain = move |mut random: Random| match random.below(3) {
        0 => scene
            .lists
            .drain_cpu(Shard(random.below(CPUS as u64) as u32)),
        _ => scene.lists.drain_all(),
    };
    let decay = move |_: Random| {
        for cpu in 0..CPUS as u32 {
            scene.lists.decay(Shard(cpu));
        }
        scene.lists.set_reclaim(Reclaim::Active);
    };
    run(
        machine,
        variety,
        || (),
        tasks![work, work, work, drain, decay],
    );
    scene.check();
    scene.lists.counts()
}

/// A zone with lists, and the pages that are handed out.
struct Scene<M: Watched> {
    lists: PageLists<M>,
    /// Not the machine's words: recording costs no step.
    used: Vec<AtomicBool>,
}

impl<M: Watched> Scene<M> {
    /// Makes lists so small that few operations overflow them, and sometimes a zone that is short of pages.
    fn new(machine: &M, release: Release, random: &mut Random) -> Self {
        let mut settings = Settings {
            drain: match random.below(2) {
                0 => DrainHold::Scaled,
                _ => DrainHold::Batch,
            },
            measured: Measured::Counts,
            high_watermark_pages: random.below(2) * u64::from(SPAN_PAGES),
            ..Settings::of(u64::from(SPAN_PAGES), CPUS, release)
        };
        settings.limits.batch = 1 + random.below(2) as u32;
        settings.limits.high_min = 2 + random.below(3) as u32;
        settings.limits.high_max = settings.limits.high_min + 4 * random.below(2) as u32;
        let lists = PageLists::new(machine, settings).expect("a zone of one block");
        let used = (0..lists.managed_pages()).map(|_| AtomicBool::new(false));
        Self {
            used: used.collect(),
            lists,
        }
    }

    fn work(&self, mut random: Random) {
        let mut held = Vec::new();
        for _ in 0..2 + random.below(5) {
            let order = Order::new(random.below(3) as u8);
            let block = self.lists.alloc(order);
            let block = block.expect("far fewer are wanted than there are");
            assert_eq!(block.order(), order);
            self.note(&block, true);
            held.push(block);
            if random.happens(4) {
                let block = held.swap_remove(random.below(held.len() as u64) as usize);
                self.note(&block, false);
                self.lists.free(block);
            }
        }
        held.iter().for_each(|block| self.note(block, false));
        match random.below(2) {
            0 => self.lists.free_many(held),
            _ => held.into_iter().for_each(|block| self.lists.free(block)),
        }
    }

    fn note(&self, block: &Block, is_used: bool) {
        let first = (block.pfn().0 - self.lists.frames().first().0) as usize;
        for page in &self.used[first..first + block.order().pages() as usize] {
            // Relaxed: one thread of the host runs all tasks.
            let was = page.swap(is_used, Ordering::Relaxed);
            assert_ne!(was, is_used, "a page of {block:?}");
        }
    }

    /// Checks everything, after all tasks have ended.
    fn check(&self) {
        let lists = &self.lists;
        let in_lists = |shard| lists.listed_pages(Shard(shard));
        let listed: u64 = (0..=CPUS as u32).map(in_lists).sum();
        let free = lists.zone_free_pages();
        assert_eq!(free + listed, lists.managed_pages(), "pages were lost");
        lists.drain_all();
        let whole = lists.zone_free_blocks(Order::MAX);
        assert_eq!(whole, 1, "blocks of the largest order");
    }
}
