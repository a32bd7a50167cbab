//! A budget of stock that CPUs share: a raise is counted, and taken back if the sum is too much. The broken version looks first, and two that
//! look at once both raise.

use std::sync::atomic::{AtomicU64, Ordering};

use bursar_machine::{AtomicWord, Machine, MemoryOrder};
use bursar_rig::Watched;

use super::bug::Version;
use crate::protocols::books::run;
use crate::random::Random;

const BUDGET: u64 = 10;

fn raise<M: Machine>(caps: &M::Word, more: u64, version: Version) -> bool {
    if version == Version::Broken {
        let fits = caps.load(MemoryOrder::Full) + more <= BUDGET;
        if fits {
            caps.fetch_add(more, MemoryOrder::Full);
        }
        return fits;
    }
    let fits = caps.fetch_add(more, MemoryOrder::Full) + more <= BUDGET;
    if !fits {
        caps.fetch_sub(more, MemoryOrder::Full);
    }
    fits
}

pub(super) fn scenario<M: Watched>(machine: &M, seed: u64, version: Version) {
    let caps = M::Word::new(0);
    // Bytes that CPUs may hold.
    let allowed = AtomicU64::new(0);
    let (caps, allowed) = (&caps, &allowed);
    let task = move |_: Random| {
        for more in [3, 4] {
            if raise::<M>(caps, more, version) {
                // Relaxed: a count that the check looks at between two steps.
                allowed.fetch_add(more, Ordering::Relaxed);
            }
        }
    };
    let check = || {
        let allowed = allowed.load(Ordering::Relaxed);
        assert!(allowed <= BUDGET, "CPUs may hold {allowed} of {BUDGET}");
    };
    run(machine, seed, check, tasks![task, task]);
}
