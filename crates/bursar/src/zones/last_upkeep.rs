//! Findings of the last upkeep of a zone (`upkeep.rs`).

use super::lists::ORDERS;

/// Divisor of a period that gives the time by which upkeep may come early and still count. Timers are inexact.
pub(super) const EARLY: u64 = 8;

/// State at the last upkeep.
pub(super) struct LastUpkeep {
    /// CPUs by shard.
    pub(super) cpus: Vec<OfCpu>,
    /// Number of blocks in the depot, by order.
    pub(super) depot: [u64; ORDERS],
    /// Number of free pages with memory behind them.
    pub(super) backed: u64,
    last_ns: Option<u64>,
}

#[derive(Clone, Copy, Default)]
pub(super) struct OfCpu {
    /// Lists by order.
    pub(super) seen: [Seen; ORDERS],
    pub(super) last_ns: Option<u64>,
}

impl OfCpu {
    /// Returns whether the last upkeep is at least `after_ns` ago. The clock of another CPU may be a little behind.
    pub(super) fn is_due(&self, now_ns: u64, after_ns: u64) -> bool {
        self.last_ns
            .is_none_or(|last_ns| now_ns.saturating_sub(last_ns) >= after_ns)
    }
}

#[derive(Clone, Copy, Default)]
pub(super) struct Seen {
    pub(super) head: u64,
    pub(super) idle_periods: u32,
}

impl LastUpkeep {
    pub(super) fn new(shards: usize) -> Self {
        Self {
            cpus: vec![OfCpu::default(); shards],
            depot: [0; ORDERS],
            backed: 0,
            last_ns: None,
        }
    }

    /// Begins a new period if the last one is over, or nearly so; returns the time since that began.
    pub(super) fn begin(&mut self, now_ns: u64, period_ns: u64) -> Option<u64> {
        // On the first call, the time of the last period is unknown.
        let elapsed_ns = self
            .last_ns
            .map_or(period_ns, |last_ns| now_ns.saturating_sub(last_ns));
        if elapsed_ns < period_ns - period_ns / EARLY {
            return None;
        }
        self.last_ns = Some(now_ns);
        Some(elapsed_ns)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// As a timer is that fires a little less late than the time before.
    #[test]
    fn a_period_that_is_nearly_over_is_over() {
        let mut last = LastUpkeep::new(1);
        for (now_ns, begins) in [
            (100, Some(80)),
            (169, None),
            (170, Some(70)),
            (400, Some(230)),
        ] {
            assert_eq!(last.begin(now_ns, 80), begins, "{now_ns}");
        }
    }
}
