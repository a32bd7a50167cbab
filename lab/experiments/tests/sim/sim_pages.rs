//! Pages on simulated machines: each page is in one place and none is lost, while CPUs stand still, holders of locks stall,
//! sections are preempted and tasks are killed. A task that needs nothing of a stalled one goes on.
//!
//! A task that never comes back while it holds a lock is not among the faults: tasks that need that lock wait without end,
//! here as in the kernel. A lock is short, and a process's threads are not killed one by one.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use bursar::pages::{Order, PageOptions, Watermarks, Zeroed};
use bursar::{AllocPagesError, Freshness, Group, Limits, Memory, Page};
use bursar_machine::Machine;
use bursar_rig::Tasks;
use bursar_rig::random::Random;
use bursar_rig::timer::Timers;
use bursar_sim::{Chance, SectionKind, Sim, Simulator, Stall};

use crate::common::{Body, MS, Struck, US, builder, settings};

/// Blocks of the largest order on each node.
const BLOCKS: u64 = 4;
const PIECE: u64 = Order::MAX.pages() as u64;

/// Pages that tasks hold.
struct Holders {
    first: u32,
    pages: Vec<AtomicU32>,
}

impl Holders {
    fn of(&self, page: &Page<Sim>) -> &[AtomicU32] {
        let at = (page.pfn().0 - self.first) as usize;
        &self.pages[at..at + page.order().pages() as usize]
    }
}

/// A page in a task's hands, also if that is killed.
struct Held<'a> {
    page: Option<Page<Sim>>,
    holders: &'a Holders,
}

impl<'a> Held<'a> {
    fn new(page: Page<Sim>, holders: &'a Holders) -> Self {
        for holder in holders.of(&page) {
            assert_eq!(
                holder.fetch_add(1, Ordering::Relaxed),
                0,
                "{page:?} is in two hands"
            );
        }
        Self {
            page: Some(page),
            holders,
        }
    }

    fn release(mut self) -> Page<Sim> {
        let page = self.page.take().expect("it is there until now");
        self.forget(&page);
        page
    }

    fn forget(&self, page: &Page<Sim>) {
        for holder in self.holders.of(page) {
            holder.fetch_sub(1, Ordering::Relaxed);
        }
    }
}

impl Drop for Held<'_> {
    fn drop(&mut self) {
        if let Some(page) = self.page.take() {
            self.forget(&page);
        }
    }
}

struct World {
    groups: Vec<Group<Sim>>,
    holders: Holders,
    granted: AtomicU64,
    refused: AtomicU64,
    memory: Memory<Sim>,
    machine: Sim,
}

fn options() -> PageOptions {
    PageOptions {
        bytes_per_node: Some(BLOCKS * PIECE * 4096),
        watermarks: Some(Watermarks {
            min: 0,
            low: 16,
            high: 32,
        }),
        batch: Some(8),
        decay_period: Duration::from_micros(20),
        idle_periods: 2,
        retained_bytes_per_cpu: 0,
        ..PageOptions::default()
    }
}

impl World {
    fn new(simulator: &Simulator) -> Self {
        let machine = simulator.machine();
        let memory = builder()
            .pages(options())
            .build_on(machine.clone())
            .expect("there is room");
        let groups = [Limits::none(), Limits::max(BLOCKS * PIECE * 2048)]
            .into_iter()
            .zip(["a", "b"])
            .map(|(limits, name)| memory.root().child(name, limits).expect("there is room"))
            .collect();
        let page = memory
            .alloc_pages(Order::MAX, Zeroed::No)
            .expect("all are free");
        let pages = BLOCKS * PIECE;
        Self {
            groups,
            holders: Holders {
                first: page.pfn().0,
                pages: (0..pages).map(|_| AtomicU32::new(0)).collect(),
            },
            granted: AtomicU64::new(0),
            refused: AtomicU64::new(0),
            memory,
            machine,
        }
    }

    fn alloc(&self, random: &mut Random) -> Option<Held<'_>> {
        let group = &self.groups[random.below(2) as usize];
        let order = Order::new([0, 0, 0, 1, 2, 3, 5][random.below(7) as usize]);
        let zeroed = match random.below(4) {
            0 => Zeroed::Yes,
            _ => Zeroed::No,
        };
        let count = match group.alloc_pages(order, zeroed) {
            Ok(mut page) => {
                let _ = page.uninit_mut();
                self.granted.fetch_add(1, Ordering::Relaxed);
                return Some(Held::new(page, &self.holders));
            }
            Err(AllocPagesError::Exhausted { .. } | AllocPagesError::Refused(_)) => &self.refused,
            Err(error) => panic!("{error}"),
        };
        count.fetch_add(1, Ordering::Relaxed);
        None
    }

    fn work<'a>(&'a self, basket: &Mutex<Vec<Held<'a>>>, mut random: Random) {
        let basket = || basket.lock().unwrap_or_else(PoisonError::into_inner);
        let mut held: Vec<Held<'_>> = Vec::new();
        for _ in 0..60 {
            match random.below(16) {
                0 => {
                    let some = held.drain(held.len() / 2..).map(Held::release);
                    let some: Vec<_> = some.collect();
                    Page::free_many(some);
                }
                1 => {
                    let group = &self.groups[random.below(2) as usize];
                    let count = 1 + random.below(20) as usize;
                    let some = group.alloc_many(Order::ZERO, count, Zeroed::No);
                    let some = some.unwrap_or_default().into_iter();
                    held.extend(some.map(|page| Held::new(page, &self.holders)));
                }
                // No step while the host's lock is held.
                2 => basket().extend(held.pop()),
                3 => {
                    let page = basket().pop();
                    drop(page);
                }
                4..9 if !held.is_empty() => {
                    drop(held.swap_remove(random.below(held.len() as u64) as usize));
                }
                _ => held.extend(self.alloc(&mut random)),
            }
            self.machine.compute(US / 2);
            if random.happens(8) {
                self.machine.sleep_until(self.machine.now_ns() + 10 * US);
            }
        }
    }

    fn run(&self, tasks: u32, seed: u64) {
        let basket = Mutex::default();
        let mut bodies: Vec<Body<'_>> = Vec::new();
        for number in 0..u64::from(tasks) {
            let basket = &basket;
            bodies.push(Box::new(move || {
                self.work(basket, Random::fork(seed, number))
            }));
        }
        bodies.push(Box::new(|| {
            for _ in 0..30 {
                self.memory.tick();
                self.machine.sleep_until(self.machine.now_ns() + 15 * US);
            }
        }));
        self.machine.run(bodies);
    }

    /// Checks when all is given back.
    fn finish(&self) {
        let held = self.holders.pages.iter();
        assert_eq!(
            held.filter(|holder| holder.load(Ordering::Relaxed) > 0)
                .count(),
            0
        );
        let info = self.memory.zone_info().expect("there were allocations");
        let zone = &info.zones[0];
        assert_eq!(
            zone.free + zone.depot + zone.listed,
            BLOCKS * PIECE,
            "{zone}"
        );
        for group in &self.groups {
            let usage = group.read(Freshness::Exact).expect("readers may flush");
            assert_eq!(usage.usage().value, 0, "{group:?}");
        }
        let largest = || self.memory.alloc_pages(Order::MAX, Zeroed::No).ok();
        let all: Vec<_> = std::iter::from_fn(largest).collect();
        let distinct: BTreeSet<_> = all.iter().map(Page::pfn).collect();
        assert_eq!(distinct.len() as u64, BLOCKS, "all are whole again");
    }
}

/// The simulator is dropped last.
fn struck(cpus: usize, struck: Struck, sections: SectionKind, seed: u64) -> (World, Simulator) {
    let tasks = 2 * cpus as u32;
    let mut settings = settings(cpus, seed);
    settings.faults = struck.faults(cpus, tasks);
    settings.sections = sections;
    let simulator = Simulator::new(settings);
    let world = World::new(&simulator);
    world.run(tasks, seed);
    (world, simulator)
}

#[test]
fn nothing_is_lost_whatever_strikes() {
    for sections in [SectionKind::Restartable, SectionKind::Atomic] {
        for strike in Struck::EACH {
            println!("{strike:?}, {sections:?}");
            let (world, simulator) = struck(64, strike, sections, 7);
            let faults = simulator.counts().faults;
            // Without sections none is preempted.
            let is_idle = sections == SectionKind::Atomic && strike == Struck::PreemptedSections;
            assert_eq!(faults > 0, strike != Struck::Not && !is_idle, "{strike:?}");
            let read = |count: &AtomicU64| count.load(Ordering::Relaxed);
            assert!(read(&world.granted) > 1000, "{strike:?}");
            let counts = world.memory.zone_info().expect("it is there").counts();
            assert!(
                counts.pcp_drain > 0 && counts.pcp_spill > 0,
                "or this shows nothing: {counts}"
            );
            world.finish();
        }
    }
}

#[test]
fn the_same_seed_gives_the_same_run() {
    let hash = || {
        let (world, simulator) = struck(8, Struck::All, SectionKind::Restartable, 3);
        world.finish();
        simulator.event_hash()
    };
    assert_eq!(hash(), hash());
}

/// A CPU stands still with pages on its lists, in the middle of anything but a lock: all others are done long before it
/// wakes. If it holds a lock that they need, the watchdog says so.
#[test]
fn whoever_stands_still_stops_nobody_else() {
    const CPUS: usize = 64;
    const STILL_NS: u64 = 500 * MS;
    let mut free = 0;
    for number in 0..10 {
        let mut settings = settings(CPUS, number);
        settings.faults.stalls.push(Stall {
            cpu: 5,
            at_ns: (25 + 9 * number) * US + 37 * number,
            for_ns: STILL_NS,
        });
        settings.faults.section_preemption = Chance {
            one_in: 7,
            for_ns: 20 * US,
        };
        let simulator = Simulator::new(settings);
        let world = World::new(&simulator);
        let (all, done, stuck) = (&world, &AtomicU64::new(0), &AtomicU64::new(0));
        let basket: &Mutex<Vec<Held<'_>>> = &Mutex::default();
        let body = |task: u64| -> Body<'_> {
            Box::new(move || {
                all.work(basket, Random::fork(number, task));
                if all.machine.now_ns() < STILL_NS {
                    done.fetch_add(1, Ordering::Relaxed);
                }
            })
        };
        let bodies = (0..CPUS as u64).map(|task| (Some(task as u32), body(task)));
        let mut bodies: Vec<_> = bodies.collect();
        bodies.push((
            Some(0),
            Box::new(|| {
                all.machine.sleep_until(STILL_NS / 2);
                let found = all.memory.stuck(Duration::from_millis(10));
                stuck.store(found.len() as u64, Ordering::Relaxed);
            }),
        ));
        world.machine.run_bound(bodies);
        let left = std::mem::take(&mut *basket.lock().unwrap_or_else(PoisonError::into_inner));
        drop(left);
        let (done, stuck) = (done.load(Ordering::Relaxed), stuck.load(Ordering::Relaxed));
        if stuck == 0 {
            assert_eq!(
                done,
                CPUS as u64 - 1,
                "nobody holds a lock, in run {number}"
            );
            free += 1;
        }
        println!("run {number}: {done} done, {stuck} locks held");
        world.finish();
    }
    assert!(free > 0, "or this shows nothing");
}
