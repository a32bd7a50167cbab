//! Limits are hard: no fallible charge exceeds one, and no charge is refused while the memory is there.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use bursar::{ChargeError, Freshness, Group};
use bursar_machine::Machine;
use bursar_machine::host::{allowed_cpus, pin_to};

use crate::common::{Random, Short, memory, seed};

#[test]
fn stock_on_another_cpu_is_found() {
    const MAX: u64 = 8 << 20;
    let memory = memory();
    let tenant = memory.make_max("tenant", MAX);
    let one = tenant.make("one");
    let two = tenant.make("two");
    let cpus = allowed_cpus();
    for round in 0..20 {
        pin_to(cpus[round % cpus.len()]).unwrap();
        drop(one.try_charge(100).unwrap());
        assert!(
            tenant.reserved() > 0,
            "stock is held, or this test shows nothing"
        );
        let cached = tenant.read(Freshness::Cached).unwrap().usage();
        assert!(cached.lo <= 0 && cached.hi >= 0, "{cached:?}");
        pin_to(cpus[(round + 1) % cpus.len()]).unwrap();
        let all = two.try_charge(MAX).unwrap();
        assert_eq!(tenant.reserved(), MAX);
        assert!(one.try_charge(1).is_err());
        drop(all);
    }
}

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

/// Each thread keeps within its share, so the sum is within the limit at all times, and no charge may be refused: not
/// because of stock elsewhere, nor because of another charge under way that a higher limit is about to refuse.
#[test]
fn nobody_within_the_limit_is_refused() {
    const THREADS: u64 = 4;
    const SHARE: u64 = 256 << 10;
    let seed = seed();
    let memory = memory();
    let company = memory.make_max("company", THREADS * SHARE + 5000);
    // More than the shares, so that what the greedy ask for fits here and is refused above.
    let tenant = company.make_max("tenant", THREADS * SHARE + 90_000);
    let queries: Vec<Group> = (0..3)
        .map(|index| tenant.make(format!("q{index}")))
        .collect();
    let stop = AtomicBool::new(false);
    let (queries, tenant, stop) = (&queries, &tenant, &stop);
    std::thread::scope(|scope| {
        scope.spawn(move || {
            while !stop.load(Ordering::Relaxed) {
                // Never fits beside the shares and the 5,000 bytes of slack.
                if let Ok(charge) = tenant.try_charge(THREADS * SHARE + 5001) {
                    panic!("above the limit: {charge:?}");
                }
            }
        });
        let workers: Vec<_> = (0..THREADS)
            .map(|thread| {
                scope.spawn(move || {
                    let cpus = allowed_cpus();
                    let mut random = Random(seed ^ thread);
                    let mut held: Vec<bursar::Charge> = Vec::new();
                    let mut sum = 0;
                    for step in 0..6000 {
                        if step % 16 == 0 {
                            let _ = pin_to(cpus[random.below(cpus.len())]);
                        }
                        let bytes = 1 + random.below(SHARE as usize / 4) as u64;
                        while sum + bytes > SHARE {
                            let charge = held.swap_remove(random.below(held.len()));
                            sum -= charge.bytes();
                        }
                        match queries[random.below(3)].try_charge(bytes) {
                            Ok(charge) => held.push(charge),
                            Err(error) => {
                                stop.store(true, Ordering::Relaxed);
                                panic!("refused within the limit: {error}");
                            }
                        }
                        sum += bytes;
                    }
                })
            })
            .collect();
        let results: Vec<_> = workers.into_iter().map(|worker| worker.join()).collect();
        stop.store(true, Ordering::Relaxed);
        results
            .into_iter()
            .for_each(|result| result.expect("a worker found fault"));
    });
    assert_eq!(tenant.used(), 0);
}

/// Greedy threads against a limit that moves: what they hold is never more than the limit that was in force.
#[test]
fn fallible_charges_never_exceed_the_limit() {
    let seed = seed();
    let memory = memory();
    let tenant = memory.make_max("tenant", 1 << 20);
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

/// After a limit was lowered below the usage, no charge succeeds until enough was returned, whatever stock there was.
#[test]
fn a_lowered_limit_holds_at_once() {
    let memory = memory();
    let tenant = memory.make_max("tenant", 1 << 20);
    let query = tenant.make("query");
    let stop = AtomicBool::new(false);
    let keep = query.try_charge(300 << 10).unwrap();
    std::thread::scope(|scope| {
        for _ in 0..3 {
            scope.spawn(|| {
                while !stop.load(Ordering::Relaxed) {
                    drop(query.try_charge(4096));
                }
            });
        }
        for _ in 0..300 {
            tenant.set_max(100 << 10);
            assert!(query.try_charge(1).is_err());
            tenant.set_max(1 << 20);
            drop(query.try_charge(1).expect("there is room"));
        }
        stop.store(true, Ordering::Relaxed);
    });
    drop(keep);
}
