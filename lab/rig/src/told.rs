//! Events of `tracing`, handed to a function. For tests of the library's events.
//!
//! Each such test has a process of its own. If a thread makes an event for the first time just while another's subscriber comes, `tracing`
//! takes it for an event that nobody wants.

use std::fmt::{Debug, Write};

use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::subscriber::Interest;
use tracing::{Event, Metadata, Subscriber};

/// A subscriber that hands each event of the library to a function.
pub struct Told<F>(pub F);

impl<F: Fn(&Event<'_>) + 'static> Subscriber for Told<F> {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        metadata.target() == "bursar"
    }
    fn new_span(&self, _: &Attributes<'_>) -> Id {
        Id::from_u64(1)
    }
    fn record(&self, _: &Id, _: &Record<'_>) {}
    fn record_follows_from(&self, _: &Id, _: &Id) {}
    fn event(&self, event: &Event<'_>) {
        self.0(event);
    }
    fn enter(&self, _: &Id) {}
    fn exit(&self, _: &Id) {}
}

/// A subscriber that is asked about each event, and panics then.
pub struct PanicsWhenAsked;

impl Subscriber for PanicsWhenAsked {
    // Without this, `tracing` asks only once for each place in the code.
    fn register_callsite(&self, _: &'static Metadata<'static>) -> Interest {
        Interest::sometimes()
    }
    fn enabled(&self, _: &Metadata<'_>) -> bool {
        panic!("a bug of the subscriber");
    }
    fn new_span(&self, _: &Attributes<'_>) -> Id {
        Id::from_u64(1)
    }
    fn record(&self, _: &Id, _: &Record<'_>) {}
    fn record_follows_from(&self, _: &Id, _: &Id) {}
    fn event(&self, _: &Event<'_>) {}
    fn enter(&self, _: &Id) {}
    fn exit(&self, _: &Id) {}
}

/// An event as text: its level, and its fields but for `without`, a time that differs from run to run.
pub fn line(event: &Event<'_>, without: &str) -> String {
    let level = event.metadata().level().as_str().to_lowercase();
    let mut line = Line {
        text: format!("{level}:"),
        without,
    };
    event.record(&mut line);
    line.text
}

struct Line<'a> {
    text: String,
    without: &'a str,
}

impl Visit for Line<'_> {
    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        if field.name() != self.without {
            write!(self.text, " {}={value:?}", field.name()).expect("a string takes all text");
        }
    }
}
