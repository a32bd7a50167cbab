//! Events for the crate `tracing`, in builds with the feature of that name. Each arbiter makes at most ten a second of each kind; the next
//! one tells how many were left out. A subscriber is a user's code: it is called outside of the lock, and its panic ends here.

#![cfg_attr(not(feature = "tracing"), expect(unused_variables, dead_code))]

use std::time::Duration;

use bursar::{Group, Machine};
#[cfg(feature = "tracing")]
use bursar_machine::EventRate;

use crate::ask::{AdmitError, Ask};
use crate::decision::Decision;

/// Interval between two events of a kind.
#[cfg(feature = "tracing")]
const INTERVAL_NS: u64 = 100_000_000;

/// Makes events. It has a rate for each kind.
pub(crate) struct Trace<M: Machine> {
    machine: M,
    #[cfg(feature = "tracing")]
    granted: EventRate<M::Word>,
    #[cfg(feature = "tracing")]
    waits: EventRate<M::Word>,
    #[cfg(feature = "tracing")]
    refused: EventRate<M::Word>,
    #[cfg(feature = "tracing")]
    decided: EventRate<M::Word>,
}

/// Makes an event, if it is due and a subscriber wants it.
macro_rules! event {
    ($trace:ident, $kind:ident, $level:ident, $($fields:tt)+) => {
        #[cfg(feature = "tracing")]
        crate::engine::call(&$trace.machine, "a subscriber of an arbiter's events", || {
            if tracing::enabled!(target: "bursar", tracing::Level::$level)
                && let Some(left_out) = $trace.$kind.allow($trace.machine.now_ns())
            {
                tracing::event!(target: "bursar", tracing::Level::$level, left_out, $($fields)+);
            }
        });
    };
}

impl<M: Machine> Trace<M> {
    pub(crate) fn new(machine: &M) -> Self {
        Self {
            machine: machine.clone(),
            #[cfg(feature = "tracing")]
            granted: EventRate::new(INTERVAL_NS),
            #[cfg(feature = "tracing")]
            waits: EventRate::new(INTERVAL_NS),
            #[cfg(feature = "tracing")]
            refused: EventRate::new(INTERVAL_NS),
            #[cfg(feature = "tracing")]
            decided: EventRate::new(INTERVAL_NS),
        }
    }

    /// A query may start in this group, which is its grant's.
    pub(crate) fn granted(&self, group: &Group<M>, width: u32, waited: Duration) {
        event!(self, granted, DEBUG,
            group = %bursar::printable(&group.path()),
            bytes = group.limits().max, width, waited_ns = waited.as_nanos() as u64,
            "admitted");
    }

    /// A query must wait.
    pub(crate) fn waits(&self, ask: &Ask<M>) {
        event!(self, waits, INFO,
            group = %bursar::printable(&ask.group.path()), query = %bursar::printable(&ask.name),
            "waits to be admitted");
    }

    /// A query was refused.
    pub(crate) fn refused(&self, ask: &Ask<M>, error: &AdmitError) {
        event!(self, refused, WARN,
            group = %bursar::printable(&ask.group.path()), query = %bursar::printable(&ask.name),
            why = %error,
            "not admitted");
    }

    /// A query must yield, or is refused because nobody can.
    pub(crate) fn decided(&self, decision: &Decision) {
        event!(self, decided, WARN,
            decision = decision.number, decided = %decision.kind.name(),
            query = %bursar::printable(&decision.query), needed_by = %bursar::printable(&decision.needed_by),
            limited = %bursar::printable(&decision.limited),
            missing = decision.missing, charged = decision.charged, expected = decision.expected,
            "decided in a shortage");
    }
}
