//! Limits are hard: no fallible charge exceeds one, and no charge is refused while the memory is there.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use bursar::{ChargeError, Group};
use bursar_machine::Machine;

use crate::common::{Random, Short, memory, seed};

#[test]
fn stock_adapts_to_the_head_room() {
    let memory = memory();
    let wide = memory.make("wide");
    let narrow = memory.make_max("narrow", 64 << 10);
    drop(wide.try_charge(100).unwrap());
    drop(narrow.try_charge(100).unwrap());
    let quarter = (64 << 10) / 4 / memory.machine().cpus() as u64;
    assert!((100 << 10..=256 << 10).contains(&wide.reserved()));
    assert!(
        (1..=quarter).contains(&narrow.reserved()),
        "a quarter of what is left, by CPU"
    );
}

/// Greedy threads against a limit that moves: what they hold is never more than the limit that was in force.
#[test]
fn fallible_charges_never_exceed_the_limit() {
    let seed = seed();
    let tenant = memory().make_max("tenant", 1 << 20);
    let queries: Vec<Group> = (0..4)
        .map(|index| tenant.make_max(format!("q{index}"), 700 << 10))
        .collect();
    let held_bytes = AtomicU64::new(0);
    let highest_max = AtomicU64::new(1 << 20);
    let refused = AtomicU64::new(0);
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let workers: Vec<_> = (0..4)
            .map(|thread| {
                let (queries, held_bytes, highest_max) = (&queries, &held_bytes, &highest_max);
                let (stop, refused) = (&stop, &refused);
                scope.spawn(move || {
                    let mut random = Random(seed ^ thread);
                    let mut held: Vec<bursar::Charge> = Vec::new();
                    while !stop.load(Ordering::Relaxed) {
                        match queries[random.below(4)].try_charge(1 + random.below(60_000) as u64) {
                            Ok(charge) => {
                                let bytes = charge.bytes();
                                let now = held_bytes.fetch_add(bytes, Ordering::SeqCst) + bytes;
                                let max = highest_max.load(Ordering::SeqCst);
                                assert!(now <= max, "{now} of {max}");
                                held.push(charge);
                            }
                            Err(ChargeError::LimitReached(_)) => {
                                refused.fetch_add(1, Ordering::Relaxed);
                                for _ in 0..held.len().min(1 + random.below(8)) {
                                    let charge = held.swap_remove(random.below(held.len()));
                                    held_bytes.fetch_sub(charge.bytes(), Ordering::SeqCst);
                                }
                            }
                            Err(other) => panic!("{other}"),
                        }
                    }
                    for charge in held {
                        held_bytes.fetch_sub(charge.bytes(), Ordering::SeqCst);
                    }
                })
            })
            .collect();
        let mut random = Random(seed);
        let mut rounds = 0;
        // Until the limit was felt often, on a machine of any speed; a worker that found fault ends it.
        while (rounds < 300 || refused.load(Ordering::Relaxed) < 100)
            && !workers.iter().any(|worker| worker.is_finished())
        {
            rounds += 1;
            // Raised before, lowered after: what a thread may compare with is never below what is in force.
            let max = (200 + random.below(1000) as u64) << 10;
            highest_max.fetch_max(max, Ordering::SeqCst);
            tenant.set_max(max);
            // The counter, not the statistics: a sum over CPUs that change is the sum of no moment.
            if tenant.reserved() <= max {
                highest_max.store(max.max(held_bytes.load(Ordering::SeqCst)), Ordering::SeqCst);
            }
            for query in &queries {
                assert!(query.reserved() <= 700 << 10);
            }
            std::thread::yield_now();
        }
        stop.store(true, Ordering::Relaxed);
        workers
            .into_iter()
            .for_each(|worker| worker.join().expect("a worker found fault"));
    });
    assert_eq!(tenant.used(), 0);
}
