//! Limits are hard: no fallible charge exceeds one, and no charge is refused while the memory is there.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use bursar::ChargeError;
use bursar_machine::Machine;

use crate::common::world::Stop;
use crate::common::{Random, Short, crew, memory, owing, refused, seed};

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

/// Also where more groups are on the way than most programs have.
#[test]
fn limits_hold_at_any_depth() {
    const MAX: u64 = 1 << 20;
    let mut groups = vec![memory().root()];
    for _ in 0..64 {
        groups.push(groups[groups.len() - 1].make("deeper"));
    }
    for depth in [1, 6, 7, 8, 9, 64] {
        for limited in [1, depth] {
            groups[limited].set_max(MAX);
            let charge = groups[depth].try_charge(MAX).unwrap();
            let reached = refused(groups[depth].try_charge(1));
            assert_eq!(reached.limited, groups[limited].path());
            let reserved: Vec<u64> = groups.iter().map(|group| group.reserved()).collect();
            assert_eq!(reserved[..=depth], vec![MAX; depth + 1]);
            assert_eq!(reserved[depth + 1..], vec![0; 64 - depth]);
            drop(charge);
            assert!(groups.iter().all(|group| group.reserved() == 0));
            groups[limited].set_max(u64::MAX);
        }
    }
}

/// Greedy threads against limits that change: what they hold is never more than the `max` that was in force.
#[test]
fn fallible_charges_never_exceed_the_limit() {
    const MOST: u64 = 700 << 10;
    let seed = seed();
    let tenant = owing().make_max("tenant", 1 << 20);
    let queries = [0, 1, 2, 3].map(|index| tenant.make_max(format!("q{index}"), MOST));
    // Both in one word, so that they are compared at one moment: what is held, and above it the highest `max`.
    let held_and_max = AtomicU64::new(1 << 20 << 32);
    let refused = AtomicU64::new(0);
    let is_over = AtomicBool::new(false);
    let work = |thread| {
        let mut random = Random(seed ^ thread);
        let mut held: Vec<bursar::Charge> = Vec::new();
        while !is_over.load(Ordering::Relaxed) {
            let query = &queries[random.below(4)];
            match query.try_charge(1 + random.below(60_000) as u64) {
                Ok(charge) => {
                    let bytes = charge.bytes();
                    let both = held_and_max.fetch_add(bytes, Ordering::SeqCst) + bytes;
                    let (now, max) = (both & u64::from(u32::MAX), both >> 32);
                    assert!(now <= max, "{now} of {max}");
                    held.push(charge);
                }
                Err(ChargeError::LimitReached(_)) => {
                    refused.fetch_add(1, Ordering::Relaxed);
                    for _ in 0..held.len().min(1 + random.below(8)) {
                        let charge = held.swap_remove(random.below(held.len()));
                        held_and_max.fetch_sub(charge.bytes(), Ordering::SeqCst);
                    }
                }
                Err(other) => panic!("{other}"),
            }
            let _ = query.take_debt();
        }
        let left: u64 = held.iter().map(bursar::Charge::bytes).sum();
        held_and_max.fetch_sub(left, Ordering::SeqCst);
    };
    let mut random = Random(!seed);
    let mut rounds = 0;
    let mut in_force = 1 << 20;
    crew(4, work, || {
        // Ends the threads unless it is forgotten: also if this one finds fault.
        let stop = Stop(&is_over);
        rounds += 1;
        // Until the limit was felt often, on a machine of any speed.
        if rounds > 600 && refused.load(Ordering::Relaxed) >= 100 {
            return;
        }
        // Raised before, lowered after: what a thread may compare with is never below what is in force.
        let max = (200 + random.below(1000) as u64) << 10;
        if max > in_force {
            held_and_max.fetch_add((max - in_force) << 32, Ordering::SeqCst);
            in_force = max;
        }
        tenant.set_max(max);
        // The counter, not the statistics: a sum over CPUs that change is the sum of no moment.
        let reserved = tenant.reserved();
        if reserved <= max {
            held_and_max.fetch_sub((in_force - max) << 32, Ordering::SeqCst);
            in_force = max;
        }
        // Fallible charges only, so the usage falls from here on until it is within the limit.
        assert!(tenant.reserved() <= reserved.max(max), "{max}");
        let query = &queries[random.below(4)];
        let any = random.below(400_000) as u64;
        match random.below(4) {
            0 => query.set_min(any),
            1 => query.set_low(any),
            2 => query.set_high(any),
            // Of numbers that change meanwhile: it only must not fail.
            _ => drop(query.protection()),
        }
        assert!(queries.iter().all(|query| query.reserved() <= MOST));
        std::mem::forget(stop);
        std::thread::yield_now();
    });
    assert_eq!(tenant.used(), 0);
    tenant.set_max(0);
    assert_eq!(tenant.reserved(), 0);
}
