//! The feature `tracing`: events that a subscriber gets. One test, so that no other thread makes an event just while its subscriber comes:
//! `tracing` would take it for an event that nobody wants.
#![cfg(feature = "tracing")]

use std::future::Future;
use std::pin::pin;
use std::sync::mpsc;
use std::task::{Context, Waker};

use bursar::{Limits, Memory};
use bursar_arbiter::{Arbiter, Ask, Policy};
use bursar_rig::told::{PanicsWhenAsked, Told, line};
use tracing::{Event, subscriber};

/// Makes each kind of event once. Nothing goes otherwise than without a subscriber.
fn trouble() {
    let memory = Memory::builder().build().expect("a memory");
    let acme = memory.root().child("acme\n", Limits::max(8 << 20));
    let acme = acme.expect("a new name");
    let arbiter = Arbiter::new(&memory, Policy::default());
    let ask = |name, mib: u64| Ask::new(&acme, name).least(mib << 20, 0).wanted(mib << 20);
    let grant = arbiter.try_admit(ask("first", 6)).expect("room");
    let mut waits = pin!(arbiter.admit(ask("second", 6)));
    let mut context = Context::from_waker(Waker::noop());
    assert!(waits.as_mut().poll(&mut context).is_pending());
    assert!(waits.as_mut().poll(&mut context).is_pending());
    arbiter.try_admit(ask("third", 9)).expect_err("never fits");
    let beside = acme.try_charge(1 << 20).expect("room");
    let mut grow = pin!(grant.grow(8 << 20));
    assert!(grow.as_mut().poll(&mut context).is_ready());
    drop(beside);
    drop(grant);
    assert_eq!(memory.root().reserved(), 0);
}

#[test]
fn grants_waits_refusals_and_decisions_are_told_once_each_and_no_panic_harms() {
    let (lines, told) = mpsc::channel();
    // Each panics as well, which harms nobody.
    let told_and_gone = Told(move |event: &Event<'_>| {
        lines
            .send(line(event, "waited_ns"))
            .expect("the test listens");
        panic!("a subscriber's bug");
    });
    subscriber::with_default(told_and_gone, trouble);
    subscriber::with_default(PanicsWhenAsked, trouble);
    let expected = [
        "debug: message=admitted left_out=0 group=/acme\\n/first bytes=6291456 width=1",
        "info: message=waits to be admitted left_out=0 group=/acme\\n query=second",
        "warn: message=not admitted left_out=0 group=/acme\\n query=third why=the query needs at least 9.00 MiB, and /acme\\n may have at most 8.00 MiB",
        "warn: message=decided in a shortage left_out=0 decision=1 decided=refuse query=/acme\\n/first needed_by=/acme\\n/first limited=/acme\\n missing=1048576 charged=0 expected=0",
    ];
    // In a build in which the memory tells its refusals as well.
    let of_the_arbiter = |line: &String| !line.starts_with("warn: message=refused ");
    let told: Vec<String> = told.try_iter().filter(of_the_arbiter).collect();
    assert_eq!(told, expected);
}
