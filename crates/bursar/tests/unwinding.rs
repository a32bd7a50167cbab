//! Code of users that panics inside a charge: the charge unwinds and charges nothing, and what was held is held once.

mod common;

use std::future::Future;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Waker};

use bursar::{Freshness, Group, Limits, Registration};
use common::memory;

const MIB: usize = 1 << 20;

fn usage(group: &Group) -> i64 {
    group.read(Freshness::Exact).unwrap().usage().value
}

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

#[test]
fn a_reclaimer_that_panics_above_high_charges_nothing() {
    let group = memory().root().child("group", Limits::none().high(1 << 20));
    let group = group.unwrap();
    let reclaimer = group.add_reclaimer(0, |_| panic!("on purpose"));
    unwinds(|| drop(group.try_charge(2 * MIB)));
    unwinds(|| drop(group.charge(2 * MIB)));
    drop(reclaimer);
    assert_eq!(usage(&group), 0);
    group.set_max(0);
    assert_eq!(group.reserved(), 0);
}

#[test]
fn a_listener_that_panics_charges_nothing() {
    let charges: [fn(&Group); 3] = [
        |group| drop(group.try_charge(8 * MIB)),
        |group| drop(group.charge(9 * MIB)),
        |group| {
            let future = pin!(group.charge_async(8 * MIB));
            let _ = future.poll(&mut Context::from_waker(Waker::noop()));
        },
    ];
    for charge in charges {
        let (group, armed, _listener) = listened();
        armed.store(true, Ordering::Relaxed);
        unwinds(|| charge(&group));
        assert_eq!(usage(&group), 0);
        group.set_max(0);
        assert_eq!(group.reserved(), 0);
    }
}

#[test]
fn what_shrinks_or_moves_while_a_listener_panics_is_returned_once() {
    let (group, armed, _listener) = listened();
    let mut held = group.try_charge(8 * MIB).unwrap();
    armed.store(true, Ordering::Relaxed);
    unwinds(|| held.resize(MIB).unwrap());
    assert_eq!((held.bytes(), usage(&group)), (MIB, MIB as i64));
    drop(held);
    assert_eq!(usage(&group), 0);

    let mut held = group.try_charge(8 * MIB).unwrap();
    let other = group.parent().unwrap().child("other", Limits::none());
    let other = other.unwrap();
    armed.store(true, Ordering::Relaxed);
    unwinds(|| held.move_to(&other).unwrap());
    assert_eq!(held.group_path(), "/other");
    assert_eq!([usage(&group), usage(&other)], [0, 8 << 20]);
    drop(held);
    assert_eq!([usage(&group), usage(&other)], [0, 0]);
}
