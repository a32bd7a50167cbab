//! Charged bytes beside the memory that this process has in use.
#![cfg(target_os = "linux")]

use crate::common::Short;
use bursar::{Drift, FlushPolicy, Freshness, Memory};

fn drift(memory: &Memory) -> Drift {
    let drift = memory.drift().unwrap();
    assert!(drift.resident >= drift.resident_anonymous, "{drift:?}");
    assert!(drift.reserved >= drift.charged, "{drift:?}");
    drift
}

#[test]
fn drift_tells_the_untouched_from_the_uncharged() {
    let _alone = crate::common::fork::alone();
    const BYTES: u64 = 128 << 20;
    let memory = Memory::host().unwrap();
    let group = memory.make("g");
    let charge = group.try_charge(BYTES).unwrap();
    let untouched = drift(&memory);
    assert_eq!(untouched.charged, BYTES);
    assert!(untouched.unaccounted() < 0, "{untouched:?}");
    let mut memory_in_use = vec![0_u8; BYTES as usize];
    memory_in_use
        .iter_mut()
        .step_by(4096)
        .for_each(|byte| *byte = 1);
    std::hint::black_box(&mut memory_in_use);
    // Half of it: what else the process does, and what the kernel has not counted yet, is less.
    let touched = drift(&memory);
    let risen = touched.unaccounted() - untouched.unaccounted();
    assert!(risen > BYTES as i64 / 2, "{untouched:?} {touched:?}");
    drop(charge);
    let uncharged = drift(&memory);
    assert_eq!(uncharged.charged, 0);
    assert!(uncharged.unaccounted() > BYTES as i64 / 2, "{uncharged:?}");
}

#[test]
fn drift_takes_the_cached_reading_where_no_other_is_allowed() {
    let _alone = crate::common::fork::alone();
    let memory = Memory::builder()
        .policy(FlushPolicy::PeriodicOnly)
        .build()
        .unwrap();
    let charge = memory.root().try_charge(5000).unwrap();
    let cached = memory.root().read(Freshness::Cached).unwrap();
    assert_eq!(
        drift(&memory).charged,
        u64::try_from(cached.usage().value).unwrap()
    );
    drop(charge);
}
