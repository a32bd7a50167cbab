//! Random operations on pages by several threads, against a reference. No page has two holders, none is lost, and no
//! group sees another group's bytes. Buddies merge when all are freed.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use crate::common::model_pages::{Held, World, options};
use crate::common::world::Stop;
use crate::common::{Random, seed};
use bursar::pages::{HoldBounds, ListOptions, PageOptions};

const MIB: u64 = 1 << 20;
const THREADS: u64 = 4;

/// Threads come and go, each leaving some pages behind, while one ticks.
fn churn(
    options: PageOptions,
    rounds: u64,
    steps: usize,
    before_step: impl Fn(&mut Random) + Sync,
) {
    let seed = seed();
    let world = World::new(options);
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let ticks = scope.spawn(|| {
            while !done.load(Ordering::Relaxed) {
                world.memory.tick();
                let info = world.memory.zone_info().unwrap();
                assert!(info.zones.iter().all(|zone| zone.free <= zone.managed));
                assert!(world.memory.stuck(Duration::from_secs(60)).is_empty());
                std::thread::yield_now();
            }
        });
        let stop = Stop(&done);
        for round in 0..rounds {
            std::thread::scope(|scope| {
                for thread in 0..THREADS {
                    let (world, before_step) = (&world, &before_step);
                    scope.spawn(move || {
                        let mut random = Random(seed ^ round << 8 ^ thread);
                        let mut held: Vec<Held> = Vec::new();
                        for _ in 0..steps {
                            before_step(&mut random);
                            world.step(&mut random, &mut held);
                        }
                        let kept = held.split_off(held.len() / 2);
                        world.free_many(held);
                        world.basket().extend(kept);
                    });
                }
            });
            // Nothing moves but what the ticking thread moves.
            let basket = std::mem::take(&mut *world.basket());
            basket.into_iter().for_each(|page| world.free(page));
        }
        drop(stop);
        ticks.join().unwrap();
    });
    world.finish();
}

/// Upkeep at any time, and no page with memory behind is kept.
fn restless(bytes: u64) -> PageOptions {
    let mut options = options(bytes);
    options.decay_period = Duration::from_micros(50);
    options.idle_periods = 1;
    options.retained_bytes_per_cpu = 0;
    options
}

#[test]
fn with_the_usual_lists() {
    churn(restless(32 * MIB), 3, 1500, |_| ());
}

/// Each operation goes beyond its list, and each hold ends with its first block.
#[test]
fn with_the_smallest_lists() {
    let mut options = restless(16 * MIB);
    options.lists = vec![ListOptions::new(0, 2), ListOptions::new(2, 1)];
    options.batch = Some(1);
    options.hold = HoldBounds { blocks: 1, ns: 1 };
    options.shelf_batches = 1;
    options.cpus_per_shelf = 1;
    churn(options, 3, 1500, |_| ());
}

/// So little that somebody drains all lists all the time.
#[test]
fn with_too_little_memory() {
    let mut options = restless(4 * MIB);
    options.lists = vec![ListOptions::new(0, 16), ListOptions::new(1, 4)];
    options.batch = Some(4);
    churn(options, 3, 1500, |_| ());
}

#[cfg(target_os = "linux")]
#[test]
fn with_threads_that_move() {
    use crate::common::cpus;
    use bursar_machine::host::allowed_cpus;

    let allowed = allowed_cpus();
    churn(restless(16 * MIB), 2, 1500, |random| {
        if random.below(20) == 0 {
            cpus::move_to(cpus::this_thread(), allowed[random.below(allowed.len())]);
        }
    });
}
