//! The feature `tracing`: events that a subscriber gets. One test, so that no other thread makes an event just while its subscriber comes:
//! `tracing` would take it for an event that nobody wants.
#![cfg(feature = "tracing")]

use std::fmt::{Debug, Write};
use std::future::Future;
use std::pin::pin;
use std::sync::mpsc;
use std::task::{Context, Waker};

use bursar::{Limits, Memory};
use bursar_arbiter::{Arbiter, Ask, Policy};
use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Metadata, Subscriber, subscriber};

/// A subscriber that sends each event as a line, and then panics.
struct Told(mpsc::Sender<String>);

impl Subscriber for Told {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        metadata.target() == "bursar"
    }
    fn new_span(&self, _: &Attributes<'_>) -> Id {
        Id::from_u64(1)
    }
    fn record(&self, _: &Id, _: &Record<'_>) {}
    fn record_follows_from(&self, _: &Id, _: &Id) {}
    fn event(&self, event: &Event<'_>) {
        let mut line = event.metadata().level().to_string();
        event.record(&mut Line(&mut line));
        self.0.send(line).expect("the test listens");
        panic!("a subscriber's bug");
    }
    fn enter(&self, _: &Id) {}
    fn exit(&self, _: &Id) {}
}

struct Line<'a>(&'a mut String);

impl Visit for Line<'_> {
    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        // Times differ from run to run.
        match field.name() {
            "waited_ns" => {}
            name => write!(self.0, " {name}={value:?}").expect("a string takes all text"),
        }
    }
}

#[test]
fn grants_waits_and_refusals_are_told_once_each() {
    let (lines, told) = mpsc::channel();
    subscriber::with_default(Told(lines), || {
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
        drop(grant);
    });
    let expected = [
        "DEBUG message=admitted left_out=0 group=/acme\\n/first bytes=6291456 width=1",
        "INFO message=waits to be admitted left_out=0 group=/acme\\n query=second",
        "WARN message=not admitted left_out=0 group=/acme\\n query=third why=the query needs at least 9.00 MiB, and /acme\\n may have at most 8.00 MiB",
    ];
    assert_eq!(told.try_iter().collect::<Vec<_>>(), expected);
}
