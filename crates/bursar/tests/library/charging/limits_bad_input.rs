//! Invalid limits, one by one and together; debts and sleeps above `high`.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use crate::common::{Short, UNIT, owing, panics, units};
use bursar::{HighPolicy, Limits, Memory};

const ANY: [u64; 6] = [0, 1, 5 << 20, 6 << 20, 7 << 20, u64::MAX];

/// Each combination by itself: the strictest of them decides, and none can be set that is not in force.
#[test]
fn any_combination() {
    let group = owing().make("group");
    let _held = group.try_charge(5 * UNIT).unwrap();
    for at in 0..ANY.len().pow(4) {
        let pick = |place: u32| ANY[at / ANY.len().pow(place) % ANY.len()];
        let [min, low, high, max] = [pick(0), pick(1), pick(2), pick(3)];
        let limits = Limits::max(max).high(high).low(low).min(min);
        group.set_limits(limits);
        assert_eq!(group.limits(), limits);
        assert_eq!(group.is_over_max(), max < units(5));
        let protection = group.protection();
        assert_eq!(protection.min, min.min(units(5)), "{limits:?}");
        assert_eq!(protection.low, low.min(units(5)), "{limits:?}");
        let _ = group.take_debt();
        let before = group.events();
        let charged = group.try_charge(UNIT);
        assert_eq!(charged.is_ok(), max >= units(6), "{limits:?}");
        let owed = charged.is_ok() && high < units(6);
        assert_eq!(group.take_debt().bytes, if owed { UNIT } else { 0 });
        assert_eq!(group.events().high - before.high, u64::from(owed));
        assert_eq!(
            group.events().refused - before.refused,
            u64::from(charged.is_err())
        );
        drop(charged);
        // The same from the start.
        let born = group.make_with("born", limits);
        assert_eq!(born.limits(), limits);
        assert_eq!(
            born.try_charge(1).is_ok(),
            max >= units(6) || max == u64::MAX
        );
        assert_eq!(group.try_charge(0).map(|charge| charge.bytes()), Ok(0));
    }
}

/// A limit that is set to what it is asks nobody, unless it is exceeded.
#[test]
fn the_same_again() {
    let group = owing().make_max("group", units(4));
    let calls = Arc::new(AtomicU64::new(0));
    let counted = calls.clone();
    let _kept = group.add_reclaimer(0, move |_| {
        counted.fetch_add(1, Ordering::Relaxed);
        0
    });
    let held = group.try_charge(4 * UNIT).unwrap();
    for _ in 0..3 {
        group.set_max(units(4));
        group.set_high(units(4));
    }
    assert_eq!(calls.load(Ordering::Relaxed), 0);
    group.set_high(units(4) - 1);
    group.set_high(u64::MAX);
    group.set_max(0);
    assert_eq!(calls.load(Ordering::Relaxed), 2);
    assert!(group.try_charge(1).is_err() && group.engine().try_charge_nowait(1).is_err());
    assert!(!panics(|| group.charge(1)));
    drop(held);
    group.set_max(u64::MAX);
    assert_eq!(group.try_charge(UNIT).unwrap().bytes(), UNIT);
    // The stock that a small one leaves is gone with the limit.
    drop(group.try_charge(100).unwrap());
    assert!(group.reserved() > 0);
    group.set_max(0);
    assert!(group.try_charge(1).is_err() && group.reserved() == 0);
}

/// A default that sleeps would stop an async runtime's thread for 2 s a call.
#[test]
fn by_default_no_charge_sleeps() {
    let memory = Memory::host().unwrap();
    let limits = Limits::none().high(units(1));
    let tenant = memory.make_with("tenant", limits);
    let mut held = tenant.try_charge(4 * UNIT).unwrap();
    assert_eq!(tenant.events().throttled, Duration::ZERO);
    assert_eq!(tenant.take_debt().delay, Duration::from_secs(2));
    held.resize(5 * UNIT).unwrap();
    let more = tenant.charge(UNIT);
    assert_eq!(tenant.events().throttled, Duration::ZERO);
    assert_eq!(tenant.take_debt().bytes, units(2));
    drop((held, more));
}

#[test]
fn throttled_by_how_far_above() {
    const HIGH: u64 = 20 << 20;
    let throttling = Memory::builder().high_policy(HighPolicy::Throttle);
    let tenant = throttling
        .build()
        .unwrap()
        .make_with("tenant", Limits::none().high(HIGH));
    let query = tenant.make("query");
    let _high = query.try_charge(HIGH).unwrap();
    // At most 192 KiB with stock, 0.94 %: 4.2 ms, which is not worth a sleep.
    let small = query.try_charge(64 << 10).unwrap();
    let events = tenant.own_events();
    assert_eq!((events.high, events.throttled), (1, Duration::ZERO));
    drop(small);
    // No sleep for who may not; a debt instead.
    let nowait = query.engine().try_charge_nowait(1 << 20).unwrap();
    assert_eq!(query.events().throttled, Duration::ZERO);
    assert!(query.take_debt().bytes >= 1 << 20);
    drop(nowait);
    // 1.33 % and 272 KiB, perhaps with 256 KiB of stock: 12 ms, or some more.
    let slow = query.try_charge(272 << 10).unwrap();
    let throttled = query.own_events().throttled;
    assert!(throttled > Duration::from_millis(10));
    assert_eq!(tenant.events().throttled, throttled);
    let stall = tenant.pressure().stall;
    assert!(stall.some.total >= throttled);
    assert_eq!(query.take_debt().bytes, 0, "paid");
    drop(slow);
}
