//! The feature `tracing`: events that a subscriber gets. Each test has a process: if a thread makes an event for the first time just while
//! another's subscriber comes, `tracing` takes it for an event that nobody wants.
#![cfg(feature = "tracing")]

use std::sync::{Arc, Mutex, mpsc};

use bursar::{Charge, Freshness, HighPolicy, Limits, Memory};
use bursar_rig::told::{PanicsWhenAsked, Told, line};
use tracing::{Event, subscriber};

use crate::common::inner::in_own_process;
use crate::common::{Task, UNIT, refused, units};

/// The events while something runs, as text.
fn events(run: impl FnOnce()) -> Vec<String> {
    let (lines, told) = mpsc::channel();
    let keep = move |event: &Event<'_>| {
        lines.send(line(event, "slept_ns")).unwrap();
    };
    subscriber::with_default(Told(keep), run);
    told.try_iter().collect()
}

/// Each kind of trouble once.
fn trouble() {
    let memory = Memory::builder()
        .high_policy(HighPolicy::Throttle)
        .build()
        .unwrap();
    let group = |name: &str, limits| memory.root().child(name, limits).unwrap();
    let full = group("full\n", Limits::max(UNIT));
    let slow = group("slow", Limits::none().high(UNIT));
    let cache = group("cache", Limits::max(units(2)));
    let cached = Mutex::new(Some(cache.try_charge(units(2)).unwrap()));
    let _reclaimer = cache.add_reclaimer(0, move |_| match cached.lock().unwrap().take() {
        Some(charge) => charge.bytes(),
        None => 0,
    });
    refused(full.try_charge(units(2)));
    let charge = full.charge(units(2));
    let mut waiting = Task::new(full.charge_async(UNIT));
    assert!(waiting.poll().is_pending());
    drop(waiting);
    full.close().unwrap();
    drop(charge);
    drop(slow.try_charge(UNIT + UNIT / 16).unwrap());
    drop(cache.try_charge(UNIT).unwrap());
}

#[test]
fn each_kind_of_trouble_is_told() {
    if !in_own_process(module_path!(), "each_kind_of_trouble_is_told", &[]) {
        return;
    }
    let told = events(trouble);
    assert_eq!(
        told,
        [
            r"warn: message=refused left_out=0 group=/full\n limited=/full\n requested_bytes=2097152 usage_bytes=0 max_bytes=1048576",
            r"warn: message=overshot left_out=0 group=/full\n limited=/full\n bytes=2097152",
            r"warn: message=gave up waiting left_out=0 group=/full\n limited=/full\n requested_bytes=1048576 usage_bytes=2097152 max_bytes=1048576",
            r"warn: message=removed with bytes charged left_out=0 group=/full\n left_bytes=2097152",
            "info: message=throttled left_out=0 group=/slow",
            "info: message=reclaimed left_out=0 group=/cache target_bytes=1048576 freed_bytes=2097152",
        ]
    );
}

/// By the machine's clock, whatever it says: events and those left out are all refusals.
#[test]
fn events_left_out_are_counted() {
    if !in_own_process(module_path!(), "events_left_out_are_counted", &[]) {
        return;
    }
    let memory = Memory::builder().build().unwrap();
    let full = memory.root().child("full", Limits::max(UNIT)).unwrap();
    let mut refusals = 0;
    let told = events(|| {
        let mut seen = 0;
        // Until a second event has come, which counts all those in between.
        while seen < 2 {
            seen = memory.refusals().len();
            refused(full.try_charge(units(2)));
            refusals += 1;
        }
    });
    let left_out = |line: &String| -> u64 {
        let count = line.split("left_out=").nth(1).unwrap();
        count.split(' ').next().unwrap().parse().unwrap()
    };
    let counted: u64 = told.iter().map(left_out).sum::<u64>() + told.len() as u64;
    assert!(counted <= refusals, "{told:?}");
    assert!(
        (1..=3).contains(&told.len()),
        "{refusals} refusals: {told:?}"
    );
}

#[test]
fn a_subscriber_that_panics_harms_nobody() {
    if !in_own_process(module_path!(), "a_subscriber_that_panics_harms_nobody", &[]) {
        return;
    }
    let memory = Memory::builder().build().unwrap();
    let full = memory.root().child("full", Limits::max(UNIT)).unwrap();
    let panics = Told(|_: &Event<'_>| panic!("a bug of the subscriber"));
    subscriber::with_default(panics, || refused(full.try_charge(units(2))));
    assert_eq!(full.events().panicked_callbacks, 1);
    drop(full.try_charge(UNIT).unwrap());
}

#[test]
fn a_subscriber_that_panics_when_it_is_asked_harms_nobody() {
    if !in_own_process(
        module_path!(),
        "a_subscriber_that_panics_when_it_is_asked_harms_nobody",
        &[],
    ) {
        return;
    }
    let memory = Memory::builder().build().unwrap();
    let full = memory.root().child("full", Limits::max(UNIT)).unwrap();
    subscriber::with_default(PanicsWhenAsked, || {
        trouble();
        refused(full.try_charge(units(2)));
        drop(full.charge(units(2)));
    });
    assert_eq!(full.events().panicked_callbacks, 2);
    assert_eq!((full.reserved(), memory.root().reserved()), (0, 0));
    drop(full.try_charge(UNIT).unwrap());
}

/// It accounts for its lines in the memory that they are about, and looks around there.
#[test]
fn a_subscriber_may_charge_what_it_is_told_of() {
    if !in_own_process(
        module_path!(),
        "a_subscriber_may_charge_what_it_is_told_of",
        &[],
    ) {
        return;
    }
    // An event that is made for the first time within a subscriber is one that `tracing` takes for unwanted.
    events(trouble);
    let memory = Memory::builder().build().unwrap();
    let (root, lines) = (memory.root(), Arc::<Mutex<Vec<Charge>>>::default());
    let _log = root.child("log", Limits::none()).unwrap();
    let full = root.child("full", Limits::max(UNIT)).unwrap();
    let (told, kept) = (memory.clone(), lines.clone());
    let accounts = Told(move |_: &Event<'_>| {
        let log = told.find("/log").expect("it is kept");
        let line = log.try_charge(100).expect("no limit");
        kept.lock().unwrap().push(line);
        if let Some(full) = told.find("/full") {
            refused(full.try_charge(units(2)));
            drop(full.charge(units(2)));
            let again = told.root().child("full", Limits::none());
            assert!(again.is_err(), "the name is taken");
        }
        assert!(told.snapshot(Freshness::Exact).is_ok());
        told.tick();
        drop(told.refusals());
    });
    subscriber::with_default(accounts, || {
        refused(full.try_charge(units(2)));
        let charge = full.charge(units(2));
        let mut waiting = Task::new(full.charge_async(UNIT));
        assert!(waiting.poll().is_pending());
        drop(waiting);
        full.close().unwrap();
        drop(charge);
    });
    let kept = lines.lock().unwrap().len();
    assert_eq!(kept, 4, "a refusal, an overshoot, a wait, and an end");
    let root = memory.root();
    assert_eq!(
        root.read(Freshness::Exact).unwrap().usage_bytes(),
        100 * kept as u64
    );
    assert_eq!((root.events().panicked_callbacks, full.reserved()), (0, 0));
}
