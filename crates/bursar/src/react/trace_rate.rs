//! The rate of events for the crate `tracing`, by kind.

#![cfg_attr(not(feature = "tracing"), expect(dead_code))]

use bursar_machine::{AtomicWord, Machine, MemoryOrder};

/// Interval between two events of a kind, ns.
const INTERVAL_NS: u64 = 100_000_000;

/// Kinds of events.
#[derive(Clone, Copy)]
pub(super) enum Kind {
    Refused,
    GaveUp,
    Overshot,
    Throttled,
    Reclaimed,
    Removed,
}

/// When each kind may come again, and how many were left out since it came last.
pub(super) struct TraceRate<M: Machine> {
    next_ns: [M::Word; 6],
    left_out: [M::Word; 6],
}

impl<M: Machine> TraceRate<M> {
    pub(super) fn new() -> Self {
        let words = || std::array::from_fn(|_| M::Word::new(0));
        Self {
            next_ns: words(),
            left_out: words(),
        }
    }

    /// Whether an event may come now; with the number of those left out before it.
    pub(super) fn allow(&self, kind: Kind, now_ns: u64) -> Option<u64> {
        let (next_ns, left_out) = (&self.next_ns[kind as usize], &self.left_out[kind as usize]);
        // Relaxed, all: nothing else is published by these words.
        let due_ns = next_ns.load(MemoryOrder::Relaxed);
        let after_ns = now_ns + INTERVAL_NS;
        let is_ours = now_ns >= due_ns
            && next_ns
                .compare_exchange(due_ns, after_ns, MemoryOrder::Relaxed)
                .is_ok();
        if !is_ours {
            left_out.fetch_add(1, MemoryOrder::Relaxed);
            return None;
        }
        Some(left_out.swap(0, MemoryOrder::Relaxed))
    }
}
