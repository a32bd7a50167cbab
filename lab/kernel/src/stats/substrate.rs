//! Settings of a policy's substrate.

/// Settings that are the same for all policies of a comparison.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Substrate {
    /// Interval between calls of [`super::Published::flush_periodic`]; rate-limited flushes rely on it.
    pub flush_period_ns: u64,
    /// Number of CPUs for which a flush keeps the global lock before it drops the lock if another task wants it. The
    /// kernel came to 1; [`usize::MAX`] never drops it. `kernel-6.17` drops it after each, whether wanted or not.
    pub cpus_a_hold: usize,
    /// Whether readers check thresholds.
    pub gate: Gate,
}

/// Whether a reader checks a threshold for a flush.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Gate {
    /// As published.
    Threshold,
    /// A flush is always worth it, so that only the rule by which readers wait is left.
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
