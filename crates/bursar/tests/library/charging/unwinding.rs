//! Panics of users' code inside a charge. A reclaimer's panic unwinds through the charge, which then charges nothing. A
//! panic of a pressure callback or a waker does not unwind: it is counted, and everything else goes on.

use crate::common::inner;
use std::future::Future;
use std::panic::{AssertUnwindSafe, catch_unwind, panic_any};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::task::{Context, Wake, Waker};

use crate::common::{Short, Task, block_on, memory};
use bursar::{Charge, Group, Level, Limits, Memory, Registration};

const MIB: u64 = 1 << 20;

fn unwinds(work: impl FnOnce()) {
    assert!(catch_unwind(AssertUnwindSafe(work)).is_err(), "it panics");
}

/// A group of 8 MiB, and a listener that panics at the next change of its pressure once it is armed.
fn listened() -> (Group, Arc<AtomicBool>, Registration) {
    let group = memory().root().child("group", Limits::max(8 << 20));
    let group = group.unwrap();
    let armed = Arc::new(AtomicBool::new(false));
    let fuse = armed.clone();
    let listener = group.on_pressure(move |_| {
        assert!(!fuse.swap(false, Ordering::Relaxed), "on purpose");
    });
    (group, armed, listener)
}

/// A payload of a panic whose drop panics again, so many times.
struct Bomb(usize);

impl Drop for Bomb {
    fn drop(&mut self) {
        if self.0 > 0 {
            panic_any(Bomb(self.0 - 1));
        }
    }
}

/// A waker that panics.
struct Fails;

impl Wake for Fails {
    fn wake(self: Arc<Self>) {
        panic!("on purpose");
    }
}

#[test]
fn a_listener_that_panics_stops_no_charge() {
    let (group, armed, _listener) = listened();
    let charges: [fn(&Group) -> Charge; 3] = [
        |group| group.try_charge(8 * MIB).unwrap(),
        |group| group.charge(8 * MIB),
        |group| block_on(group.charge_async(8 * MIB)).unwrap(),
    ];
    for (told, charge) in (0..).zip(charges) {
        armed.store(true, Ordering::Relaxed);
        let charge = charge(&group);
        assert!(!armed.load(Ordering::Relaxed), "it was called");
        assert_eq!(group.events().panicked_callbacks, 2 * told + 1);
        assert_eq!(group.used(), 8 << 20);
        armed.store(true, Ordering::Relaxed);
        drop(charge);
        assert_eq!(group.events().panicked_callbacks, 2 * told + 2);
        assert_eq!(group.used(), 0);
    }
    let root = group.parent().unwrap();
    assert_eq!(root.events().panicked_callbacks, 6);
    assert_eq!(root.own_events().panicked_callbacks, 0);
    let shown = group.events().to_string();
    assert!(shown.contains("panicked callbacks 6"), "{shown}");
}

/// Whatever it throws, those that registered later are told, and so are tasks that wait.
#[test]
fn all_others_are_told_of_what_one_panics_at() {
    let group = memory().root().child("group", Limits::max(8 << 20));
    let group = group.unwrap();
    let _first = group.on_pressure(|pressure| {
        if pressure.level != Level::None {
            panic_any(Bomb(2));
        }
    });
    let mut changes = Vec::new();
    let fails = Waker::from(Arc::new(Fails));
    for _ in 0..2 {
        let mut change = Box::pin(group.pressure_changed(Level::None));
        let polled = change.as_mut().poll(&mut Context::from_waker(&fails));
        assert!(polled.is_pending());
        changes.push(change);
    }
    let mut waiting = Task::new(group.pressure_changed(Level::None));
    assert!(waiting.poll().is_pending());
    let seen = Arc::new(Mutex::new(Vec::new()));
    let noted = seen.clone();
    let _second = group.on_pressure(move |pressure| noted.lock().unwrap().push(pressure.level));
    let held = group.try_charge(8 * MIB).unwrap();
    assert_eq!(waiting.wakes(), 1);
    assert_eq!(*seen.lock().unwrap(), [Level::Critical]);
    assert_eq!(group.events().panicked_callbacks, 3);
    drop(held);
    assert_eq!(seen.lock().unwrap().last(), Some(&Level::None));
}

/// The thread that returns the memory calls the waker of the waiting task.
#[test]
fn a_waker_that_panics_reaches_no_drop() {
    let (group, _armed, _listener) = listened();
    let held = group.try_charge(8 * MIB).unwrap();
    let fails = Waker::from(Arc::new(Fails));
    let mut first = Box::pin(group.charge_async(MIB));
    let polled = first.as_mut().poll(&mut Context::from_waker(&fails));
    assert!(polled.is_pending());
    let mut second = Task::new(group.charge_async(MIB));
    assert!(second.poll().is_pending());
    drop(held);
    assert_eq!(group.events().panicked_callbacks, 1);
    // The turn passes to the next.
    drop(first);
    assert_eq!(second.wakes(), 1);
    assert!(second.poll().is_ready());
}

/// A second panic in a destructor ends the process.
#[test]
fn a_listener_that_panics_ends_no_process_that_unwinds() {
    let test = "a_listener_that_panics_ends_no_process_that_unwinds";
    if !inner::in_own_process(module_path!(), test, &[]) {
        return;
    }
    let (group, armed, _listener) = listened();
    unwinds(|| {
        let _held = group.try_charge(8 * MIB).unwrap();
        armed.store(true, Ordering::Relaxed);
        panic!("on purpose, with a charge held");
    });
    assert_eq!((group.used(), group.events().panicked_callbacks), (0, 1));
}

/// The task that tells it is the last owner of a listener that ends its own registration.
#[test]
fn a_listener_whose_end_panics_loses_no_bytes() {
    let memory = Memory::builder().stock_max(0).build().unwrap();
    let group = memory.root().child("group", Limits::max(8 * MIB)).unwrap();
    let mut charge = group.try_charge(6 * MIB).unwrap();
    let other = group.try_charge(MIB).unwrap();
    let own: Arc<Mutex<Option<Registration>>> = Arc::default();
    let (bomb, registration) = (Bomb(1), own.clone());
    let listener = group.on_pressure(move |_| {
        let _ = &bomb;
        drop(registration.lock().unwrap().take());
    });
    *own.lock().unwrap() = Some(listener);
    charge.resize(2 * MIB).unwrap();
    assert_eq!((charge.bytes(), group.reserved()), (2 * MIB, 3 * MIB));
    assert_eq!(group.events().panicked_callbacks, 1);
    drop(charge);
    assert_eq!(group.reserved(), other.bytes());
}
