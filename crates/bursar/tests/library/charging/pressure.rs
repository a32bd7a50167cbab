//! Pressure: levels by usage and `high`, calls of watchers and their times, limits of callbacks; stalls while
//! reclaimers run.
//!
//! The growth and fading of stall averages takes time, so the unit tests of the clock and the simulated machine cover
//! it. Charges are whole units, so there is no stock and usage is exact.

use std::cell::Cell;
use std::future::Future;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::task::{Context, Wake, Waker};
use std::time::Duration;

use crate::common::{Short, Task, UNIT, memory, owing, units};
use bursar::{
    Charge, Group, Level, Limits, Memory, MemoryError, Pressure, PressurePolicy, Reason,
    Registration,
};

fn watched(group: &Group, seen: &Arc<Mutex<Vec<Level>>>) -> Registration {
    let seen = seen.clone();
    group.on_pressure(move |pressure| seen.lock().unwrap().push(pressure.level))
}

#[test]
fn levels_follow_usage_and_callbacks_follow_levels() {
    let group = owing().make_max("group", units(100));
    let seen = Arc::default();
    let registration = watched(&group, &seen);
    let mut held = group.try_charge(0).unwrap();
    let mut told = Level::None;
    // Up at 70, 85 and 95; down 5 lower.
    for (usage, expected) in [
        (69, Level::None),
        (70, Level::Low),
        (84, Level::Low),
        (85, Level::High),
        (95, Level::Critical),
        (91, Level::Critical),
        (89, Level::High),
        (81, Level::High),
        (79, Level::Low),
        (66, Level::Low),
        (64, Level::None),
        (100, Level::Critical),
        (0, Level::None),
    ] {
        held.resize(usage * UNIT).unwrap();
        let pressure = group.pressure();
        assert_eq!((pressure.level, pressure.by_usage), (expected, expected));
        assert_eq!(pressure.by_stall, Level::None);
        let news = std::mem::take(&mut *seen.lock().unwrap());
        let changed = (told != expected).then_some(expected);
        assert_eq!(news, Vec::from_iter(changed), "{usage}");
        told = expected;
    }
    // Limits count as much as usage does.
    held.resize(50 * UNIT).unwrap();
    group.set_max(units(50));
    group.set_max(units(100));
    group.set_high(units(60));
    group.set_high(units(49));
    group.set_high(u64::MAX);
    let expected = [Level::Critical, Level::None, Level::Low, Level::High];
    let expected = Vec::from_iter(expected.into_iter().chain([Level::None]));
    assert_eq!(std::mem::take(&mut *seen.lock().unwrap()), expected);
    // A late watcher is told at once; a watcher that has gone, never.
    held.resize(100 * UNIT).unwrap();
    let late = Arc::default();
    let _late = watched(&group, &late);
    assert_eq!(*late.lock().unwrap(), [Level::Critical]);
    drop(registration);
    drop(held);
    assert_eq!(*late.lock().unwrap(), [Level::Critical, Level::None]);
    assert_eq!(*seen.lock().unwrap(), [Level::Critical]);
}

#[test]
fn levels_follow_the_policy() {
    let mut policy = PressurePolicy::default();
    policy.usage_percent = [10, 20, 30];
    policy.release_percent = 0;
    // Any share of stall, none included, is high; critical is all of it.
    policy.stall_ratio = [0.0, 0.0, 1.0];
    let group = Memory::builder()
        .pressure_policy(policy)
        .build()
        .unwrap()
        .make_max("group", units(10));
    let mut held = group.try_charge(UNIT).unwrap();
    for (usage, expected) in [
        (1, Level::Low),
        (2, Level::High),
        (3, Level::Critical),
        (2, Level::High),
        (0, Level::None),
    ] {
        held.resize(usage * UNIT).unwrap();
        let pressure = group.pressure();
        assert_eq!(
            (pressure.by_usage, pressure.by_stall),
            (expected, Level::High)
        );
        assert_eq!(pressure.level, expected.max(Level::High));
    }
}

#[test]
fn policies_that_make_no_sense() {
    let build = |policy| Memory::builder().pressure_policy(policy).build().map(drop);
    let good = PressurePolicy::default();
    for policy in [
        good.usage_percent([5, 5, 100]).release_percent(4),
        good.release_percent(69),
        good.stall_ratio([0.0, 1.0, 1.0]),
    ] {
        assert_eq!(build(policy), Ok(()), "{policy:?}");
    }
    let above = "release_percent is not below the first usage_percent";
    let no_ratio = "stall_ratio is not from 0 to 1";
    for (policy, reason) in [
        (good.usage_percent([70, 69, 95]), "usage_percent descends"),
        (
            good.usage_percent([70, 85, 101]),
            "usage_percent is above 100",
        ),
        (good.release_percent(70), above),
        (good.usage_percent([0, 1, 2]).release_percent(0), above),
        (good.stall_ratio([0.2, 0.1, 0.6]), "stall_ratio descends"),
        (good.stall_ratio([0.1, 0.2, 1.1]), no_ratio),
        (good.stall_ratio([-0.1, 0.2, 0.3]), no_ratio),
        (good.stall_ratio([0.1, f64::NAN, 0.3]), no_ratio),
    ] {
        let error = MemoryError::BadPressurePolicy { reason };
        assert_eq!(build(policy), Err(error), "{policy:?}");
    }
}

#[test]
fn callbacks_may_change_the_level() {
    let memory = owing();
    let group = memory.make_max("group", units(10));
    let (seen, depth) = (Arc::new(Mutex::new(Vec::new())), AtomicUsize::new(0));
    let cache: Arc<Mutex<Vec<Charge>>> = Arc::default();
    let itself: Arc<Mutex<Option<Registration>>> = Arc::default();
    let (noted, cached) = (seen.clone(), cache.clone());
    let (own, handle) = (Arc::downgrade(&itself), group.clone());
    let registration = group.on_pressure(move |pressure: Pressure| {
        assert_eq!(depth.fetch_add(1, Ordering::Relaxed), 0, "one at a time");
        noted.lock().unwrap().push(pressure.level);
        match pressure.level {
            Level::Critical => drop(std::mem::take(&mut *cached.lock().unwrap())),
            Level::Low => {
                let more = handle.try_charge(3 * UNIT).unwrap();
                cached.lock().unwrap().push(more);
                // The end of it, from within.
                drop(own.upgrade().and_then(|own| own.lock().unwrap().take()));
            }
            _ => {}
        }
        handle.exact();
        depth.fetch_sub(1, Ordering::Relaxed);
    });
    let page = group.try_charge(3 * UNIT).unwrap();
    cache.lock().unwrap().push(page);
    let rest = group.try_charge(7 * UNIT).unwrap();
    // At 10 all of the cache goes; at 7 it grows again; and so on, until this thread leaves it to others.
    let first = [Level::Critical, Level::Low, Level::Critical, Level::Low];
    {
        let seen = seen.lock().unwrap();
        assert_eq!(seen[..4], first);
        assert!(seen.len() < 100, "it comes to an end");
    }
    *itself.lock().unwrap() = Some(registration);
    memory.tick();
    assert!(itself.lock().unwrap().is_none());
    let told = seen.lock().unwrap().len();
    drop(rest);
    assert_eq!(seen.lock().unwrap().len(), told, "unsubscribed");
    assert_eq!(group.events().panicked_callbacks, 0, "as asserted there");
}

/// Whatever found the change goes on with the books right, and all others are told.
#[test]
fn a_callback_that_panics() {
    let tenant = owing().make("tenant");
    let group = tenant.make_max("group", units(10));
    let other = tenant.make("other");
    let (fails, seen) = (Arc::new(AtomicBool::new(false)), Arc::default());
    let failing = fails.clone();
    let _bad = group.on_pressure(move |_| {
        assert!(!failing.swap(false, Ordering::Relaxed), "as planned");
    });
    let _good = watched(&group, &seen);
    let check = |expected: u64, level: Level| {
        let usage = group.used();
        assert_eq!(
            (usage as u64, group.reserved()),
            (units(expected), units(expected))
        );
        assert_eq!(tenant.reserved(), units(10), "the other's as well");
        let told = seen.lock().unwrap().last().copied();
        assert_eq!(told.unwrap_or_default(), level);
    };
    let fails_in = |call: &mut dyn FnMut()| {
        let before = tenant.events().panicked_callbacks;
        fails.store(true, Ordering::Relaxed);
        call();
        assert!(!fails.load(Ordering::Relaxed));
        assert_eq!(tenant.events().panicked_callbacks, before + 1);
    };
    let mut held = group.try_charge(UNIT).unwrap();
    let mut elsewhere = other.try_charge(9 * UNIT).unwrap();
    fails_in(&mut || elsewhere.move_to(&group).unwrap());
    check(10, Level::Critical);
    fails_in(&mut || elsewhere.move_to(&other).unwrap());
    check(1, Level::None);
    drop(elsewhere);
    fails_in(&mut || held.resize(10 * UNIT).unwrap());
    check(10, Level::Critical);
    let mut part = Some(held.split(9 * UNIT).unwrap());
    fails_in(&mut || drop(part.take()));
    let filler = other.try_charge(9 * UNIT).unwrap();
    check(1, Level::None);
    drop(filler);
    held.resize(10 * UNIT).unwrap();
    check(10, Level::Critical);
    fails_in(&mut || group.set_max(units(1000)));
    check(10, Level::None);
    fails_in(&mut || group.set_max(units(10)));
    check(10, Level::Critical);
    fails_in(&mut || held.resize(0).unwrap());
    assert_eq!((held.bytes(), tenant.reserved()), (0, 0));
    held.resize(10 * UNIT).unwrap();
    // Also one that panics when it registers is registered.
    let (calls, counted) = (Arc::new(AtomicUsize::new(0)), Arc::default());
    let counting: Arc<AtomicUsize> = calls.clone();
    let _seen: Registration = watched(&group, &counted);
    let registered = group.on_pressure(move |_| {
        counting.fetch_add(1, Ordering::Relaxed);
        panic!("as planned");
    });
    held.resize(0).unwrap();
    assert_eq!(calls.load(Ordering::Relaxed), 2);
    drop(registered);
    held.resize(10 * UNIT).unwrap();
    assert_eq!(calls.load(Ordering::Relaxed), 2);
    check(10, Level::Critical);
}

#[test]
fn futures_wait_for_another_level() {
    let memory = owing();
    let group = memory.make_max("group", units(10));
    let mut now = Task::new(group.pressure_changed(Level::High));
    assert!(now.poll().is_ready());
    let mut change = Task::new(group.pressure_changed(Level::None));
    let mut dropped = Task::new(group.pressure_changed(Level::None));
    assert!(change.poll().is_pending() && dropped.poll().is_pending());
    let small = group.try_charge(UNIT).unwrap();
    assert_eq!(change.wakes(), 0);
    let large = group.try_charge(9 * UNIT).unwrap();
    assert_eq!((change.wakes(), dropped.wakes()), (1, 1));
    drop(dropped);
    let polled = change.poll();
    assert!(matches!(polled, std::task::Poll::Ready(Level::Critical)));
    // Gone again before the task looks: it waits on.
    let mut change = Task::new(group.pressure_changed(Level::Critical));
    assert!(change.poll().is_pending());
    drop(large);
    let large = group.try_charge(9 * UNIT).unwrap();
    assert!(change.wakes() >= 1 && change.poll().is_pending());
    large.release_nowait();
    assert_eq!(change.wakes(), 0, "not by who may call nobody");
    memory.tick();
    assert!(change.wakes() >= 1 && change.poll().is_ready());
    drop(small);
}

/// Time passes for `some` while a reclaimer runs; for `full` too, unless somebody else works.
#[test]
fn stalls_of_all_and_of_some() {
    let tenant = owing().make("tenant");
    let group = tenant.make_max("group", units(1));
    let _held = group.try_charge(UNIT).unwrap();
    let [handle, above] = [&group, &tenant].map(Clone::clone);
    let _kept = group.add_reclaimer(0, move |request| {
        if request.reason == Reason::Asked {
            return 0;
        }
        for group in [&handle, &above] {
            let before = group.pressure().stall.some.total;
            // Until the clock has moved on, with a bound on the rounds.
            let moved = || group.pressure().stall.some.total > before;
            assert!((0..100_000_000).any(|_| moved()), "{group:?}");
        }
        0
    });
    let stalls = |group: &Group| {
        let stall = group.pressure().stall;
        (stall.some.total, stall.full.total)
    };
    let mut before = stalls(&group);
    for (workers, is_full) in [(0, true), (1, true), (2, false), (0, true)] {
        let _at_work: Vec<_> = (0..workers).map(|_| group.work()).collect();
        assert!(group.try_charge(UNIT).is_err());
        let after = stalls(&group);
        assert!(after.0 > before.0, "{workers}");
        assert_eq!(after.1 > before.1, is_full, "{workers}");
        assert_eq!(stalls(&group), after, "over when the charge is");
        before = after;
    }
    // Above it stalled and worked as well.
    assert!(stalls(&tenant).1 > Duration::ZERO && stalls(&tenant).1 < stalls(&tenant).0);
    // Group::reclaim is nobody's need.
    group.reclaim(1);
    assert_eq!(stalls(&group), before);
}

/// Stock that is taken back so that nobody sleeps for it lowers the level, and that is told.
#[test]
fn stock_taken_back_for_a_limit_is_told() {
    let tenant = owing().make_with("tenant", Limits::none().high(units(1)));
    let [one, other] = ["one", "other"].map(|name| tenant.make(name));
    let seen = Arc::default();
    let _watches = watched(&tenant, &seen);
    let _small = one.try_charge(1).unwrap();
    let stock = tenant.reserved() - 1;
    assert!(stock > 100, "stock is held, or this shows nothing");
    let _large = other.try_charge(UNIT - stock + 100).unwrap();
    assert_eq!(tenant.events().high, 0, "not above it without stock");
    let told = seen.lock().unwrap().last().copied();
    assert_eq!(told.unwrap_or_default(), tenant.pressure().level);
}

/// Each callback makes a charge that leaves telling to the next operation, as an allocator does, and then returns memory.
#[test]
fn callbacks_that_leave_more_to_tell_are_not_called_inside_of_each_other() {
    thread_local!(static DEPTH: Cell<usize> = const { Cell::new(0) });
    let memory = memory();
    let (deepest, told) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
    let tenants: Vec<_> = (0..20)
        .map(|number| {
            let tenant = memory.make_max(format!("tenant-{number}"), 16 << 20);
            let held: Arc<Mutex<Vec<Charge>>> = Arc::default();
            let (own, cache) = (tenant.clone(), held.clone());
            let (deepest, told) = (deepest.clone(), told.clone());
            let listener = tenant.on_pressure(move |_| {
                DEPTH.set(DEPTH.get() + 1);
                deepest.fetch_max(DEPTH.get(), Ordering::Relaxed);
                told.fetch_add(1, Ordering::Relaxed);
                let scratch = own.engine().charge_nowait(1 << 20);
                drop(cache.lock().unwrap().pop());
                scratch.release_nowait();
                DEPTH.set(DEPTH.get() - 1);
            });
            (tenant, held, listener)
        })
        .collect();
    for (tenant, held, _) in &tenants {
        let charges = (0..15).map(|_| tenant.engine().charge_nowait(1 << 20));
        held.lock().unwrap().extend(charges);
    }
    memory.tick();
    assert_eq!(deepest.load(Ordering::Relaxed), 1);
    assert!(told.load(Ordering::Relaxed) >= 20);
}

/// Counts its wakes.
#[derive(Default)]
struct Woken(AtomicUsize);

impl Wake for Woken {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, Ordering::SeqCst);
    }
}

/// A callback leaves telling to the next operation, and then returns memory that another task waits for.
#[test]
fn a_charge_does_not_wait_for_the_end_of_a_callback() {
    let memory = memory();
    let (tenant, other) = (memory.make_max("tenant", 16 << 20), memory.make("other"));
    let held = Arc::new(Mutex::new(Vec::new()));
    let woken = Arc::new(Woken::default());
    let inside = Arc::new(AtomicUsize::new(0));
    let (cache, wakes, seen) = (held.clone(), woken.clone(), inside.clone());
    let listener = other.on_pressure(|_| ());
    let own = other.clone();
    let evicts = tenant.on_pressure(move |_| {
        let before = wakes.0.load(Ordering::SeqCst);
        own.engine().charge_nowait(1 << 20).release_nowait();
        drop(cache.lock().unwrap().pop());
        seen.fetch_add(wakes.0.load(Ordering::SeqCst) - before, Ordering::SeqCst);
    });
    let charges = (0..15).map(|_| tenant.engine().charge_nowait(1 << 20));
    held.lock().unwrap().extend(charges);
    let waker = Waker::from(woken.clone());
    let mut waits = tenant.charge_async(2 << 20);
    let _ = Pin::new(&mut waits).poll(&mut Context::from_waker(&waker));
    memory.tick();
    assert!(inside.load(Ordering::SeqCst) > 0);
    drop((listener, evicts));
}
