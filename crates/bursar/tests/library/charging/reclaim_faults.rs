//! Reclaimers that lie, panic or call back, and threads that reclaim from each other.
//!
//! All charges except those of the threads are whole units, so there is no stock and each target is exact. One test is about stock.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, Weak};

use crate::common::{Pages, Random, Short, Task, UNIT, crew, memory, panics, refused, seed, units};
use bursar::{ChargeError, HighPolicy, Limits, Memory, Reason, Registration};

#[test]
fn rounds_are_bounded() {
    let group = memory().make_max("group", units(4));
    let _held = group.try_charge(4 * UNIT).unwrap();
    for (said, calls_expected) in [(0, 1), (1, 16), (units(1), 16), (u64::MAX, 16)] {
        let calls = Arc::new(AtomicU64::new(0));
        let counted = calls.clone();
        let _liar = group.add_reclaimer(0, move |request| {
            assert_eq!((request.target, request.reason), (units(1), Reason::Max));
            counted.fetch_add(1, Ordering::Relaxed);
            said
        });
        let before = group.events();
        let error = refused(group.try_charge(UNIT));
        assert_eq!((&error.limited[..], error.usage), ("/group", units(4)));
        assert_eq!(calls.load(Ordering::Relaxed), calls_expected, "{said}");
        let events = group.events();
        assert_eq!(events.max - before.max, calls_expected + 1);
        assert_eq!(events.refused - before.refused, 1);
        let unreturned = events.reclaim_unreturned - before.reclaim_unreturned;
        assert_eq!(unreturned, if said == 0 { 0 } else { calls_expected });
    }
}

/// A small charge that comes back becomes stock, and the group's reserved bytes stay as they are.
#[test]
fn bytes_that_become_stock_came_back() {
    let cache = memory().make("cache");
    let held = Arc::new(Mutex::new(vec![cache.try_charge(1000).unwrap()]));
    let evicted = held.clone();
    let _reclaimer = cache.add_reclaimer(0, move |_| {
        let one = evicted.lock().unwrap().pop();
        one.map_or(0, |one| one.bytes())
    });
    let reserved = cache.reserved();
    assert_eq!(cache.reclaim(1), 1000);
    assert_eq!(cache.reserved(), reserved, "stock, or this shows nothing");
    assert_eq!(cache.events().reclaim_unreturned, 0);
}

/// Whatever asks: nothing is charged, and later calls ask again, so that no trace of the interrupted one is left.
#[test]
fn a_panic_leaves_no_trace() {
    let tenant = memory().make("tenant");
    let group = tenant.make_max("group", units(4));
    let other = tenant.make("other");
    let (pages, fails) = (Pages::default(), Arc::new(AtomicBool::new(true)));
    let (evicted, failing) = (pages.clone(), fails.clone());
    let _kept = group.add_reclaimer(0, move |request| {
        assert!(!failing.load(Ordering::Relaxed), "as planned");
        evicted.evict(request.target)
    });
    pages.fill(&group, 4);
    let mut elsewhere = other.try_charge(UNIT).unwrap();
    let mut small = group.try_charge(0).unwrap();
    let check = || {
        assert_eq!((group.reserved(), tenant.reserved()), (units(4), units(5)));
        let usage = tenant.used();
        assert_eq!(usage as u64, units(5));
        let stall = || group.pressure().stall.some.total;
        assert_eq!(stall(), stall(), "nobody stalls any more");
    };
    // `high` as well: there the charge has succeeded when reclaimers are asked.
    for high in [u64::MAX, units(4)] {
        fails.store(false, Ordering::Relaxed);
        group.set_high(high);
        if high != u64::MAX {
            group.set_max(u64::MAX);
        }
        fails.store(true, Ordering::Relaxed);
        assert!(panics(|| group.try_charge(UNIT)));
        check();
        assert!(panics(|| group.charge(UNIT)));
        check();
        assert!(panics(|| small.resize(UNIT)));
        assert_eq!(small.bytes(), 0);
        check();
        assert!(panics(|| elsewhere.move_to(&group)));
        // Above `high` the bytes have moved already.
        let moved = elsewhere.group_path() == "/tenant/group";
        assert_eq!(moved, high != u64::MAX);
        elsewhere.move_to(&other).unwrap();
        check();
        assert!(panics(|| group.reclaim(UNIT)));
        check();
    }
    assert!(panics(|| group.set_high(0)));
    group.set_high(u64::MAX);
    assert!(panics(|| group.set_max(units(3))));
    assert_eq!(group.limits().max, units(3), "set before anyone is asked");
    check();
    let mut waits = Task::new(group.charge_async(UNIT));
    assert!(panics(|| waits.poll()));
    drop(waits);
    check();
    fails.store(false, Ordering::Relaxed);
    let charge = group.try_charge(UNIT).expect("it evicts");
    let mut waits = Task::new(group.charge_async(UNIT));
    assert!(waits.poll().is_ready(), "nobody is left in the queue");
    drop(charge);
}

#[test]
fn reclaimers_may_call_back() {
    let tenant = memory().make("tenant");
    let group = tenant.make_max("group", units(4));
    let pages = Pages::default();
    pages.fill(&group, 4);
    let itself: Arc<Mutex<Option<Registration>>> = Arc::default();
    let calls = Arc::new(AtomicU64::new(0));
    let (evicted, counted) = (pages.clone(), calls.clone());
    // Weak: a reclaimer that keeps its own registration would never be dropped.
    let (handle, own) = (group.clone(), Arc::downgrade(&itself));
    *itself.lock().unwrap() = Some(group.add_reclaimer(0, move |request| {
        counted.fetch_add(1, Ordering::Relaxed);
        refused(handle.try_charge(5 * UNIT));
        assert_eq!(handle.reclaim(1), 0, "not from within");
        let usage = handle.exact().usage();
        assert_eq!(usage.value as u64, units(4));
        let child = handle.make_max("child", 1);
        child.set_max(UNIT);
        child.remove().unwrap();
        let freed = evicted.evict(request.target);
        drop(handle.try_charge(UNIT).expect("just freed"));
        drop(Weak::upgrade(&own).unwrap().lock().unwrap().take());
        freed
    }));
    let charge = group.try_charge(UNIT).unwrap();
    refused(group.try_charge(UNIT));
    assert_eq!(calls.load(Ordering::Relaxed), 1, "it unregistered itself");
    // Another that ends its own group, on the way of a charge to it.
    let handle = group.clone();
    let last = group.add_reclaimer(0, move |_| {
        handle.remove().unwrap();
        1
    });
    match group.try_charge(UNIT) {
        Err(ChargeError::Removed { group }) => assert_eq!(&*group, "/tenant/group"),
        other => panic!("{other:?}"),
    }
    drop((charge, last));
    pages.evict(u64::MAX);
    assert_eq!(tenant.reserved(), 0);
}

/// Threads that share a cache near its limit: never above it, and the books are right.
#[test]
fn threads_with_one_cache() {
    const MAX: u64 = 4 << 20;
    let seed = seed();
    let tenant = memory().make_max("tenant", MAX);
    let groups = ["a", "b"].map(|name| tenant.make(name));
    groups[0].set_min(1 << 20);
    let caches = [(); 2].map(|()| Pages::default());
    let _kept = [0, 1].map(|at| caches[at].evict_for(&groups[at]));
    let succeeded = AtomicU64::new(0);
    let work = |thread| {
        let mut random = Random(seed ^ thread);
        for _ in 0..2000 {
            let at = random.below(2);
            // Others may take what was freed for us.
            if let Ok(page) = groups[at].try_charge(1 + random.below(60_000) as u64) {
                succeeded.fetch_add(1, Ordering::Relaxed);
                caches[at].push(page);
            }
        }
    };
    crew(4, work, || {
        let reserved = tenant.reserved();
        assert!(reserved <= MAX, "{reserved}");
    });
    assert!(succeeded.into_inner() > 4000, "eviction makes room");
    for (group, pages) in std::iter::zip(&groups, &caches) {
        assert_eq!(group.used() as u64, pages.bytes());
        pages.evict(u64::MAX);
    }
    tenant.set_max(0);
    assert_eq!(tenant.reserved(), 0);
}

/// A reclaimer that reports bytes which it did not free saves no sleep: usage above `high` is slept for.
#[test]
fn a_liar_does_not_lift_the_throttle() {
    let throttling = Memory::builder().high_policy(HighPolicy::Throttle);
    let group = throttling
        .build()
        .unwrap()
        .make_with("group", Limits::none().high(units(50)));
    let _held = group.try_charge(50 * UNIT).unwrap();
    let calls = Arc::new(AtomicU64::new(0));
    let counted = calls.clone();
    let _liar = group.add_reclaimer(0, move |_| counted.fetch_add(1, Ordering::Relaxed).max(1));
    let _more = group.try_charge(UNIT).unwrap();
    assert_eq!(calls.load(Ordering::Relaxed), 16);
    let throttled = group.events().throttled;
    // 2 per cent over with four batches: 64 s x 0.02^2 x 4, and a little less for what the formula rounds off.
    assert!(throttled.as_millis() >= 102, "{throttled:?}");
}
