//! Events for the crate `tracing`, in builds with the feature of that name. Each arbiter makes at most ten a second of each kind; the next
//! one tells how many were left out. A subscriber is a user's code: it is called outside of the lock, and its panic ends here.

#![cfg_attr(not(feature = "tracing"), expect(unused_variables))]

use std::time::Duration;

use bursar::{Group, Machine};

use crate::ask::{AdmitError, Ask};

/// Interval between two events of a kind, ns.
#[cfg(feature = "tracing")]
const INTERVAL_NS: u64 = 100_000_000;

/// Kinds of events.
#[cfg(feature = "tracing")]
#[derive(Clone, Copy)]
enum Kind {
    Granted,
    Waits,
    Refused,
}

/// Time at which the next event of each kind may come, ns, and number of events left out since the last.
#[derive(Default)]
pub(crate) struct Trace {
    #[cfg(feature = "tracing")]
    rates: [(std::sync::atomic::AtomicU64, std::sync::atomic::AtomicU64); 3],
}

/// Makes an event, if it is due and a subscriber wants it.
macro_rules! event {
    ($trace:ident, $machine:ident, $kind:ident, $level:ident, $($fields:tt)+) => {
        #[cfg(feature = "tracing")]
        if tracing::enabled!(target: "bursar", tracing::Level::$level)
            && let Some(left_out) = $trace.allow(Kind::$kind, $machine.now_ns())
        {
            let tell = || tracing::event!(target: "bursar", tracing::Level::$level, left_out, $($fields)+);
            if std::panic::catch_unwind(std::panic::AssertUnwindSafe(tell)).is_err() {
                $machine.warn(format_args!("a subscriber of an arbiter's events panicked"));
            }
        }
    };
}

impl Trace {
    /// Whether an event may come now; with the number of those left out before it.
    #[cfg(feature = "tracing")]
    fn allow(&self, kind: Kind, now_ns: u64) -> Option<u64> {
        use std::sync::atomic::Ordering::Relaxed;
        let (next_ns, left_out) = &self.rates[kind as usize];
        // Relaxed, all: nothing else is published by these words.
        let due_ns = next_ns.load(Relaxed);
        let is_due = now_ns >= due_ns;
        let next = now_ns + INTERVAL_NS;
        if !is_due
            || next_ns
                .compare_exchange(due_ns, next, Relaxed, Relaxed)
                .is_err()
        {
            left_out.fetch_add(1, Relaxed);
            return None;
        }
        Some(left_out.swap(0, Relaxed))
    }

    /// A query may start in this group, which is its grant's.
    pub(crate) fn granted<M: Machine>(
        &self,
        machine: &M,
        group: &Group<M>,
        width: u32,
        waited: Duration,
    ) {
        event!(self, machine, Granted, DEBUG,
            group = %bursar::printable(&group.path()),
            bytes = group.limits().max, width, waited_ns = waited.as_nanos() as u64,
            "admitted");
    }

    /// A query must wait.
    pub(crate) fn waits<M: Machine>(&self, machine: &M, ask: &Ask<M>) {
        event!(self, machine, Waits, INFO,
            group = %bursar::printable(&ask.group.path()), query = %bursar::printable(&ask.name),
            "waits to be admitted");
    }

    /// A query was refused.
    pub(crate) fn refused<M: Machine>(&self, machine: &M, ask: &Ask<M>, error: &AdmitError) {
        event!(self, machine, Refused, WARN,
            group = %bursar::printable(&ask.group.path()), query = %bursar::printable(&ask.name),
            why = %error,
            "not admitted");
    }
}

#[cfg(all(test, feature = "tracing"))]
mod tests {
    use super::*;

    #[test]
    fn each_kind_comes_ten_times_a_second() {
        let trace = Trace::default();
        assert_eq!(trace.allow(Kind::Waits, 5), Some(0));
        for at in [5, 6, INTERVAL_NS + 4] {
            assert_eq!(trace.allow(Kind::Waits, at), None);
        }
        assert_eq!(trace.allow(Kind::Refused, 6), Some(0));
        assert_eq!(trace.allow(Kind::Waits, INTERVAL_NS + 5), Some(3));
    }
}
