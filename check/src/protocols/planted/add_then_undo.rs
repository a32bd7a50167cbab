//! Keeping to a limit: a charge looks first, and adds only what fits. The broken version adds, looks, and undoes.

use std::sync::atomic::{AtomicU64, Ordering};

use bursar_machine::{AtomicWord, Machine, MemoryOrder};
use bursar_rig::Watched;

use super::bug::Version;
use crate::protocols::books::run;
use crate::random::Random;

const MAX: u64 = 10;

fn try_charge<M: Machine>(usage: &M::Word, bytes: u64, version: Version) -> bool {
    if version == Version::Broken {
        let fits = usage.fetch_add(bytes, MemoryOrder::Full) + bytes <= MAX;
        if !fits {
            usage.fetch_sub(bytes, MemoryOrder::Full);
        }
        return fits;
    }
    let mut seen = usage.load(MemoryOrder::Full);
    while seen + bytes <= MAX {
        match usage.compare_exchange(seen, seen + bytes, MemoryOrder::Full) {
            Ok(_) => return true,
            Err(now) => seen = now,
        }
    }
    false
}

pub(super) fn scenario<M: Watched>(machine: &M, seed: u64, version: Version) {
    let usage = M::Word::new(0);
    // Bytes that are charged, at most.
    let present = AtomicU64::new(0);
    let (usage, present) = (&usage, &present);
    let small = move |_: Random| {
        for bytes in [2, 3] {
            let others = present.fetch_add(bytes, Ordering::Relaxed);
            let is_charged = try_charge::<M>(usage, bytes, version);
            // Two of these fit together, whatever they are.
            assert!(
                is_charged,
                "false refusal: {bytes} bytes, and {others} of {MAX} were charged"
            );
            usage.fetch_sub(bytes, MemoryOrder::Full);
            present.fetch_sub(bytes, Ordering::Relaxed);
        }
    };
    let large = move |_: Random| {
        assert!(
            !try_charge::<M>(usage, MAX + 1, version),
            "more than the limit was charged"
        );
    };
    let check = || {
        let usage = usage.load(MemoryOrder::Full);
        assert!(usage <= MAX, "above the limit: {usage} bytes of {MAX}");
    };
    run(machine, seed, check, tasks![small, small, large]);
}
