//! The better side of a figure.

use crate::measure::Unit;

/// The better side.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Better {
    /// Less of it.
    Lower,
    /// More of it.
    Higher,
    /// Neither: the figure describes how work was done, not how well.
    Neither,
}

/// Better sides of metrics that are not times. A metric that is not in the list has no better side. For example, reads
/// that move from 1-10 ms to 0.1-1 ms are an improvement, but reads that come there from below 0.1 ms are not. A flush
/// of a subtree instead of the root, or a wait for another's flush, may be either.
const KNOWN: [(&str, Better); 30] = [
    ("reads_under_100us", Better::Higher),
    ("reads_over_100ms", Better::Lower),
    ("broken_reads", Better::Lower),
    ("missing_updates", Better::Lower),
    ("reads_beyond_need", Better::Lower),
    ("wrong_victims", Better::Lower),
    ("victim_shortfall_pages", Better::Lower),
    ("stopped_early", Better::Lower),
    ("pair_error_pages", Better::Lower),
    ("overhead_error_pages", Better::Lower),
    ("flush_site_share", Better::Lower),
    ("charge_share", Better::Lower),
    ("flushes", Better::Lower),
    ("lock_waits", Better::Lower),
    ("fences", Better::Lower),
    ("herd", Better::Lower),
    ("herd_max", Better::Lower),
    ("herd_mean", Better::Lower),
    // As long as it is asked for, and where it was: neither is better short.
    ("period", Better::Neither),
    ("drift", Better::Neither),
    ("drift_apart", Better::Lower),
    ("instants_per_second", Better::Neither),
    ("wakeups_per_cpu_second", Better::Lower),
    ("wakeups_shared", Better::Higher),
    ("holds_over_1000", Better::Lower),
    ("stalls", Better::Lower),
    ("stall_rate", Better::Lower),
    ("bystander_waits_share", Better::Lower),
    ("long_hold_share", Better::Lower),
    ("ops_per_cpu_second", Better::Higher),
];

/// Returns the better side of a metric: the list's if it is there, else lower for times, and higher for events in a
/// second.
pub fn better(metric: &str, unit: Unit) -> Better {
    let known = KNOWN.iter().find(|(name, _)| *name == metric);
    match known {
        Some((_, better)) => *better,
        None if metric.contains("throughput") || metric.ends_with("_per_second") => Better::Higher,
        None if unit == Unit::Ns => Better::Lower,
        None => Better::Neither,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_better_short_and_rates_high() {
        for (metric, unit, expected) in [
            ("read_latency", Unit::Ns, Better::Lower),
            ("anything_that_takes_time", Unit::Ns, Better::Lower),
            ("pages_per_second", Unit::PerSecond, Better::Higher),
            ("reads_under_100us", Unit::Ratio, Better::Higher),
            ("reads_1ms_to_10ms", Unit::Ratio, Better::Neither),
            ("broken_reads", Unit::Ratio, Better::Lower),
            ("skips", Unit::Count, Better::Neither),
            ("herd", Unit::Count, Better::Lower),
            ("drift", Unit::Ns, Better::Neither),
            ("ops_per_second", Unit::PerSecond, Better::Higher),
        ] {
            assert_eq!(better(metric, unit), expected, "{metric}");
        }
    }
}
