//! Work of each policy under one hold, and that no page is lost or given out twice.

use std::sync::atomic::{AtomicBool, Ordering};

use bursar::pages::parts::Shortage;
use bursar_machine::pages::{Block, Frames, MAX_ORDER, Order, SPAN_PAGES};
use bursar_machine::{Host, Shard};
use bursar_rig::Tasks;
use bursar_rig::random::Random;
use bursar_sim::{Settings as SimSettings, Sim, Simulator, Topology};
use hdrhistogram::Histogram;

use super::lists::List;
use super::policy::Cause;
use super::*;

const ZERO: Order = Order::ZERO;
const GIB: u64 = 1 << 18;
const BATCH: u64 = 63;
const SCALED: u64 = 2_016;
/// The ways of a few lines, and readings of the clock.
const SOME_NS: u64 = 1_000;

/// Greatest value, as precise as it is kept.
fn max(values: &Histogram<u64>) -> u64 {
    values.lowest_equivalent(values.max())
}

/// Time of a block under the zone's lock.
fn block_ns() -> u64 {
    ZONE_PAGE_NS
}

type Task<'a> = Box<dyn FnOnce() + Send + 'a>;

fn on_sim(cpus: usize, settings: Settings, test: impl FnOnce(&Sim, &PageLists<Sim>)) {
    let simulator = Simulator::new(SimSettings::new(Topology::new(cpus, 1, 1000), 1));
    let machine = simulator.machine();
    let lists = PageLists::new(&machine, settings).expect("page numbers");
    test(&machine, &lists);
}

/// Single pages that never were in lists.
fn pages_of_zone<M: Tasks>(lists: &PageLists<M>, pages: u64) -> Vec<Block> {
    (0..pages)
        .map(|_| lists.zone.alloc(ZERO).expect("free"))
        .collect()
}

/// Lists of a CPU that hold `pages`, and may.
fn fill<M: Tasks>(lists: &PageLists<M>, shard: Shard, pages: u32) {
    for block in pages_of_zone(lists, u64::from(pages)) {
        lists.lock(shard).refill(List::FIRST, block);
    }
    lists.lock(shard).tuning.high = pages;
}

fn listed_pages<M: Tasks>(lists: &PageLists<M>) -> u64 {
    lists.shards().map(|shard| lists.listed_pages(shard)).sum()
}

/// Everything is in the zone, in as few blocks as it can be.
fn assert_whole<M: Tasks>(lists: &PageLists<M>) {
    let pages = lists.managed_pages();
    assert_eq!(lists.zone_free_pages(), pages);
    let spans = pages / u64::from(SPAN_PAGES);
    assert_eq!(lists.zone_free_blocks(Order::MAX), spans);
}

#[test]
fn sizes_are_those_of_the_published_machine() {
    let limits = Settings::of(1024 * GIB, 316, Release::Whole).limits;
    let sizes = (limits.batch, limits.high_min, limits.high_max);
    assert_eq!(sizes, (63, 953, 106_184));
}

/// On the published machine: one CPU frees what others have allocated.
#[test]
fn whole_frees_2016_pages_under_one_hold_and_batched_63() {
    for (release, longest) in [
        (Release::Whole, SCALED),
        (Release::BatchedDecay, SCALED),
        (Release::ZoneBreak, SCALED),
        (Release::Batched, BATCH),
    ] {
        let name = release.name();
        let settings = Settings::of(1024 * GIB, 316, release);
        on_sim(316, settings, |machine, lists| {
            let blocks = pages_of_zone(lists, 20_000);
            machine.run(vec![Box::new(|| lists.free_many(blocks))]);
            let holds = lists.holds();
            assert_eq!(holds.longest_pages, longest, "{name}");
            assert_eq!(max(&holds.pages), longest, "{name}");
            let work_ns = longest * block_ns();
            let held_ns = max(&holds.held_ns);
            // Values are kept to a thousandth.
            let is_work = (work_ns - work_ns / 1_000..work_ns + SOME_NS).contains(&held_ns);
            assert!(is_work, "{name}: {held_ns} ns");
            assert_eq!(holds.long > 0, longest > LONG_PAGES, "{name}");
            // Nobody was there to lose a lock to, or to make room for.
            let counts = lists.counts();
            assert!(counts.returns > 5, "{name}");
            let stopped = (counts.lost, counts.moved, counts.breaks);
            assert_eq!((stopped, counts.straight), ((0, 0, 0), 0), "{name}");
            let pages = lists.zone_free_pages() + listed_pages(lists);
            assert_eq!(pages, lists.managed_pages());
            lists.drain_all();
            assert_whole(lists);
        });
    }
}

#[test]
fn decay_frees_2016_pages_under_one_hold_or_32_batches() {
    for (release, longest, holds) in [
        (Release::Whole, SCALED, 1),
        (Release::BatchedDecay, BATCH, 32),
        (Release::ZoneBreak, SCALED, 1),
        (Release::Batched, BATCH, 32),
    ] {
        on_sim(1, Settings::of(16 * GIB, 8, release), |_, lists| {
            let here = Shard(0);
            fill(lists, here, 20_000);
            let before = lists.holds();
            assert!(lists.decay(here), "there is more to do");
            let after = lists.holds();
            let name = release.name();
            assert_eq!(lists.listed_pages(here), 20_000 - SCALED, "{name}");
            assert_eq!(lists.high(here), 20_000 - SCALED, "{name}");
            assert_eq!(after.holds - before.holds, holds, "{name}");
            assert_eq!(after.longest_pages, longest, "{name}");
            let mut steps = 1;
            while lists.decay(here) {
                steps += 1;
            }
            let least = u64::from(lists.settings.limits.high_min);
            assert_eq!((lists.high(here), lists.listed_pages(here)), (least, least));
            assert!((20..30).contains(&steps), "{name}: {steps} steps");
        });
    }
}

#[test]
fn drains_free_2016_pages_under_one_hold_unless_told_otherwise() {
    for release in Release::ALL {
        for (drain, longest) in [(DrainHold::Scaled, SCALED), (DrainHold::Batch, BATCH)] {
            let settings = Settings {
                drain,
                ..Settings::of(16 * GIB, 8, release)
            };
            on_sim(2, settings, |_, lists| {
                fill(lists, Shard(1), 5_000);
                lists.drain_cpu(Shard(1));
                assert_eq!(lists.holds().longest_pages, longest, "{release:?}");
                assert_eq!(listed_pages(lists), 0);
                assert_whole(lists);
            });
        }
    }
}

#[test]
fn holds_are_counted_by_their_cause() {
    on_sim(
        2,
        Settings::of(16 * GIB, 8, Release::Whole),
        |machine, lists| {
            let blocks = pages_of_zone(lists, 5_000);
            fill(lists, Shard(1), 20_000);
            lists.forget_holds();
            machine.run(vec![Box::new(|| lists.free_many(blocks))]);
            lists.decay(Shard(1));
            lists.drain_all();
            let _page = lists.alloc(ZERO);
            let pages = |of: &HoldsOfCause| -> u64 {
                let values = of.pages.iter_recorded();
                values
                    .map(|it| it.value_iterated_to() * it.count_at_value())
                    .sum()
            };
            let holds = lists.holds();
            let [taken, freed, decayed, drained] =
                [0, 1, 2, 3].map(|it| pages(&holds.by_cause[it]));
            assert_eq!((taken, decayed), (BATCH, SCALED));
            assert!(freed > 0 && drained > 0, "{freed} and {drained}");
            assert_eq!(freed + decayed + drained, 5_000 + 20_000);
            let counts: u64 = holds.by_cause.iter().map(|it| it.pages.len()).sum();
            assert_eq!((counts, holds.given.len()), (holds.holds, holds.holds - 1));
        },
    );
}

/// Longest wait for the zone's lock while 16 CPUs free 4,000 pages each.
fn longest_wait_ns(release: Release) -> (u64, Counts) {
    let mut result = None;
    on_sim(16, Settings::of(16 * GIB, 16, release), |machine, lists| {
        let free = |_| -> Task<'_> {
            let blocks = pages_of_zone(lists, 4_000);
            Box::new(|| lists.free_many(blocks))
        };
        machine.run((0..16).map(free).collect());
        let counts = lists.counts();
        result = Some((max(&lists.holds().waited_ns), counts));
        assert!(listed_pages(lists) > 16 * BATCH);
        lists.drain_all();
        assert_eq!(lists.counts().breaks, counts.breaks, "nobody waits now");
        assert_whole(lists);
    });
    result.expect("it ran")
}

#[test]
fn bystanders_wait_for_whole_and_not_for_the_others() {
    let (whole_ns, counts) = longest_wait_ns(Release::Whole);
    assert!(whole_ns > 1_000 * block_ns() && counts.breaks == 0);
    assert!(counts.zone_waits > 16);
    // The lock is queued: all others have their turn before, each for a batch.
    let turns_ns = 16 * (BATCH * block_ns() + SOME_NS);
    let (break_ns, counts) = longest_wait_ns(Release::ZoneBreak);
    assert!(counts.breaks > 100, "{counts:?}");
    let (batched_ns, counts) = longest_wait_ns(Release::Batched);
    assert_eq!(counts.breaks, 0);
    for wait_ns in [break_ns, batched_ns] {
        assert!(wait_ns < turns_ns, "{wait_ns} of {turns_ns} ns");
        assert!(whole_ns > 4 * wait_ns, "{whole_ns} and {wait_ns} ns");
    }
}

#[test]
fn a_batched_free_that_loses_the_lists_leaves_the_rest() {
    let settings = Settings::of(16 * GIB, 2, Release::Batched);
    on_sim(2, settings, |machine, lists| {
        let blocks = pages_of_zone(lists, 30_000);
        // Looks at the lists of CPU 0 again and again, as a drain would, but takes nothing.
        let is_done = AtomicBool::new(false);
        let free: Task<'_> = Box::new(|| {
            lists.free_many(blocks);
            is_done.store(true, Ordering::Relaxed);
        });
        let look: Task<'_> = Box::new(|| {
            while !is_done.load(Ordering::Relaxed) {
                for shard in lists.shards() {
                    drop(lists.lock(shard));
                }
            }
        });
        machine.run(vec![free, look]);
        let counts = lists.counts();
        assert!(counts.lost > 0 && counts.straight > 0, "{counts:?}");
        assert!(lists.holds().longest_pages <= BATCH);
        lists.drain_all();
        assert_whole(lists);
    });
}

#[test]
fn lists_take_whole_batches_and_keep_what_is_freed() {
    let settings = Settings::of(16 * GIB, 8, Release::Whole);
    on_sim(1, settings, |_, lists| {
        let page = lists.alloc(ZERO).expect("free");
        assert_eq!(listed_pages(lists), 62);
        let pfn = page.pfn();
        lists.free(page);
        assert_eq!(listed_pages(lists), 63);
        assert_eq!(lists.lock(Shard(0)).tuning.free_count, 1);
        let again = lists.alloc(ZERO).expect("free");
        assert_eq!(again.pfn(), pfn, "the last one first");
        assert_eq!(lists.lock(Shard(0)).tuning.free_count, 0);
        assert_eq!(lists.counts().refills, 1);
        // Orders without a list.
        for order in [4, 8, MAX_ORDER] {
            let block = lists.alloc(Order::new(order)).expect("free");
            assert_eq!(listed_pages(lists), 62);
            lists.free(block);
        }
        assert_eq!(lists.counts().refills, 1);
        let huge = lists.alloc(Order::new(9)).expect("free");
        assert_eq!(listed_pages(lists), 62 + 512, "two, since one is too few");
        assert_eq!(lists.holds().longest_pages, 1_024);
        lists.free_many([huge, again]);
        lists.drain_all();
        assert_whole(lists);
    });
}

#[test]
fn a_return_begins_with_the_list_just_used_and_empties_each() {
    let settings = Settings::of(16 * GIB, 8, Release::Whole);
    on_sim(1, settings, |_, lists| {
        for order in [0, 1, 1, 3, 3] {
            let order = Order::new(order);
            let block = lists.zone.alloc(order).expect("free");
            let list = List::of(order).expect("listed");
            lists.lock(Shard(0)).refill(list, block);
        }
        let list = List::of(Order::new(1)).expect("listed");
        let mut cpu = lists.lock(Shard(0));
        let orders: Vec<u8> = std::iter::from_fn(|| cpu.pop_oldest(list))
            .map(|block| block.order().get())
            .collect();
        assert_eq!(orders, [1, 1, 3, 3, 0]);
        assert_eq!(cpu.count, 0);
    });
}

#[test]
fn a_return_is_so_many_pages_in_whole_blocks() {
    let settings = Settings::of(16 * GIB, 8, Release::Whole);
    on_sim(1, settings, |_, lists| {
        let order = Order::new(3);
        let list = List::of(order).expect("listed");
        let mut cpu = lists.lock(Shard(0));
        for _ in 0..20 {
            cpu.refill(list, lists.zone.alloc(order).expect("free"));
        }
        lists.give_back(Cause::Free, &mut cpu, list, 63);
        assert_eq!(cpu.count, 160 - 64);
    });
}

#[test]
fn a_long_list_takes_the_lock_once_for_31_blocks() {
    let simulator = Simulator::new(SimSettings::new(Topology::new(1, 1, 1000), 1));
    let machine = simulator.machine();
    let settings = Settings::of(16 * GIB, 8, Release::Whole);
    let lists = PageLists::new(&machine, settings).expect("page numbers");
    let pages = pages_of_zone(&lists, 100);
    let before = simulator.counts().acquisitions;
    machine.run(vec![Box::new(|| lists.free_many(pages))]);
    assert_eq!(simulator.counts().acquisitions - before, 4);
    lists.drain_all();
    assert_whole(&lists);
}

#[test]
fn what_was_freed_first_goes_back_first() {
    let settings = Settings::of(16 * GIB, 8, Release::Whole);
    on_sim(1, settings, |_, lists| {
        let pages = pages_of_zone(lists, 3);
        let pfns: Vec<_> = pages.iter().map(Block::pfn).collect();
        let mut cpu = lists.lock(Shard(0));
        for page in pages {
            let back = cpu.push(List::FIRST, page, &settings.limits, Shortage::None);
            assert_eq!(back, 0);
        }
        let oldest = std::iter::from_fn(|| cpu.pop_oldest(List::FIRST));
        let given_back: Vec<_> = oldest.map(|block| block.pfn()).collect();
        assert_eq!(given_back, pfns);
    });
}

#[test]
fn lists_of_a_short_zone_keep_little() {
    let settings = Settings::of(GIB, 8, Release::Whole);
    on_sim(1, settings, |_, lists| {
        assert_eq!(lists.zone.shortage(), Shortage::None);
        let above = lists.zone_free_pages() - settings.high_watermark_pages;
        let mut blocks = pages_of_zone(lists, above);
        assert_eq!(lists.zone.shortage(), Shortage::None);
        blocks.extend(pages_of_zone(lists, 1));
        assert_eq!(lists.zone.shortage(), Shortage::BelowHigh);
        lists.set_reclaim(Reclaim::Active);
        assert_eq!(lists.zone.shortage(), Shortage::Reclaim);
        // Four batches, of which no more than three go back at once.
        for block in blocks.drain(..1_000) {
            lists.free(block);
            assert!(listed_pages(lists) < 252);
        }
        lists.set_reclaim(Reclaim::Idle);
        lists.free_many(blocks);
        assert_eq!(lists.zone.shortage(), Shortage::None);
    });
}

#[test]
fn an_empty_zone_refuses_and_gives_everything_back() {
    let settings = Settings::of(u64::from(SPAN_PAGES), 1, Release::Batched);
    on_sim(1, settings, |_, lists| {
        let pages: Vec<_> = std::iter::from_fn(|| lists.alloc(ZERO)).collect();
        assert_eq!(pages.len(), SPAN_PAGES as usize);
        assert!(lists.alloc(Order::MAX).is_none());
        lists.free_many(pages);
        lists.drain_all();
        assert_whole(lists);
    });
}

/// Pages that are handed out, by their users.
struct Used<'a, M: Tasks> {
    lists: &'a PageLists<M>,
    pages: Vec<AtomicBool>,
}

impl<'a, M: Tasks> Used<'a, M> {
    fn new(lists: &'a PageLists<M>) -> Self {
        let pages = (0..lists.managed_pages()).map(|_| AtomicBool::new(false));
        Self {
            pages: pages.collect(),
            lists,
        }
    }

    fn set(&self, block: &Block, is_used: bool) {
        let first = (block.pfn().0 - self.lists.frames().first().0) as usize;
        for page in &self.pages[first..first + block.order().pages() as usize] {
            let was = page.swap(is_used, Ordering::Relaxed);
            assert_ne!(was, is_used, "a page of {block:?}");
        }
    }

    /// Allocates and frees at random, drains and decays now and then, and returns everything.
    fn work(&self, mut random: Random, operations: u32) {
        let lists = self.lists;
        let mut held: Vec<Block> = Vec::new();
        for _ in 0..operations {
            match random.below(100) {
                0 => lists.drain_cpu(Shard(random.below(lists.shards().count() as u64) as u32)),
                1 => lists.drain_all(),
                2..5 => {
                    lists.decay(lists.machine.current_shard());
                }
                5..10 => {
                    let kept = random.below(held.len() as u64 + 1) as usize;
                    let blocks = held.split_off(kept);
                    blocks.iter().for_each(|block| self.set(block, false));
                    lists.free_many(blocks);
                }
                10..65 => {
                    // A page half of the time, else any.
                    let orders = if random.happens(2) { 1 } else { 11 };
                    let order = Order::new(random.below(orders) as u8);
                    if let Some(block) = lists.alloc(order) {
                        assert_eq!(block.order(), order);
                        self.set(&block, true);
                        held.push(block);
                    }
                }
                _ => {
                    if let Some(block) = held.pop() {
                        self.set(&block, false);
                        lists.free(block);
                    }
                }
            }
        }
        held.iter().for_each(|block| self.set(block, false));
        lists.free_many(held);
    }
}

/// Random operations of many at once, on a zone that is too small for all they want.
fn conserves<M: Tasks>(machine: &M, release: Release, tasks: u64, operations: u32) {
    let settings = Settings {
        limits: bursar::pages::parts::Limits {
            batch: 7,
            high_min: 28,
            high_max: 400,
        },
        ..Settings::of(16 * u64::from(SPAN_PAGES), 8, release)
    };
    let lists = PageLists::new(machine, settings).expect("page numbers");
    let used = Used::new(&lists);
    let work = |task| -> Task<'_> {
        let used = &used;
        Box::new(move || used.work(Random::fork(5, task), operations))
    };
    machine.run((0..tasks).map(work).collect());
    let is_free = |page: &AtomicBool| !page.load(Ordering::Relaxed);
    assert!(used.pages.iter().all(is_free));
    for shard in lists.shards() {
        let cpu = lists.lock(shard);
        assert_eq!(cpu.count, cpu.counted_pages());
    }
    let pages = lists.zone_free_pages() + listed_pages(&lists);
    assert_eq!(pages, lists.managed_pages(), "{}", release.name());
    lists.drain_all();
    assert_whole(&lists);
}

#[test]
fn no_page_is_lost_or_given_out_twice_on_many_virtual_cpus() {
    for release in Release::ALL {
        let topology = Topology::new(24, 2, 1000);
        let simulator = Simulator::new(SimSettings::new(topology, 3));
        conserves(&simulator.machine(), release, 48, 600);
    }
}

#[test]
fn no_page_is_lost_or_given_out_twice_on_threads() {
    let host = Host::start().expect("the host has a backend");
    for release in Release::ALL {
        conserves(&host, release, 6, 4_000);
    }
}
