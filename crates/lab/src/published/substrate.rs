//! What a policy stands on, as far as it can be chosen.

/// What is the same for all policies of a comparison, and can be set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Substrate {
    /// How often [`super::Published::flush_periodic`] is going to be called; rate-limited flushes count on it.
    pub flush_period_ns: u64,
    /// A flush keeps the global lock for so many CPUs, and then drops it if somebody wants it. 1 is what the kernel came
    /// to; [`usize::MAX`] drops it never.
    pub cpus_a_hold: usize,
    /// Whether thresholds are asked.
    pub gate: Gate,
}

/// Whether a reader asks a threshold if a flush is worth it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Gate {
    /// As published.
    Threshold,
    /// A flush is always worth it: what is left is the rule by which readers wait.
    AlwaysDue,
}

impl Substrate {
    /// The kernel's periodic flush: every 2 s (`FLUSH_TIME`).
    pub const FLUSH_PERIOD_NS: u64 = 2_000_000_000;

    /// As published, with another period of the periodic flush.
    pub fn with_period(flush_period_ns: u64) -> Self {
        Self {
            flush_period_ns,
            ..Self::default()
        }
    }
}

impl Default for Substrate {
    /// As published.
    fn default() -> Self {
        Self {
            flush_period_ns: Self::FLUSH_PERIOD_NS,
            cpus_a_hold: 1,
            gate: Gate::Threshold,
        }
    }
}
