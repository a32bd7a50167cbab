//! Events that come too often: at most one an interval is let through, and those left out are counted.

use crate::atomic::{AtomicWord, MemoryOrder};

/// Lets at most one event an interval through. `W` is a [`Machine`](crate::Machine)'s word.
#[derive(Debug)]
pub struct EventRate<W> {
    interval_ns: u64,
    next_ns: W,
    left_out: W,
}

impl<W: AtomicWord> EventRate<W> {
    /// Makes the rate of one kind of event. The first one is let through.
    pub fn new(interval_ns: u64) -> Self {
        Self {
            interval_ns,
            next_ns: W::new(0),
            left_out: W::new(0),
        }
    }

    /// Whether an event may come now; with the number of those left out since the last one.
    pub fn allow(&self, now_ns: u64) -> Option<u64> {
        // Relaxed, all: nothing else is published by these words.
        let due_ns = self.next_ns.load(MemoryOrder::Relaxed);
        let next_ns = now_ns.saturating_add(self.interval_ns);
        let is_ours = now_ns >= due_ns
            && self
                .next_ns
                .compare_exchange(due_ns, next_ns, MemoryOrder::Relaxed)
                .is_ok();
        if !is_ours {
            self.left_out.fetch_add(1, MemoryOrder::Relaxed);
            return None;
        }
        Some(self.left_out.swap(0, MemoryOrder::Relaxed))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Host, Machine};

    #[test]
    fn one_an_interval_is_let_through_and_the_others_are_counted() {
        let rate = EventRate::<<Host as Machine>::Word>::new(10);
        assert_eq!(rate.allow(5), Some(0));
        for at in [5, 6, 14] {
            assert_eq!(rate.allow(at), None);
        }
        assert_eq!(rate.allow(15), Some(3));
        assert_eq!(rate.allow(30), Some(0));
    }
}
