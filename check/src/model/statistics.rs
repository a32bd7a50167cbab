//! Statistics that tests keep: one of each kind.

use bursar::{Counter, Gauge, Statistic};

/// All of them.
pub const STATISTICS: &[Statistic] = &[
    Statistic::counter("rows"),
    Statistic::gauge("balance"),
    Statistic::gauge("eager").eager(),
    Statistic::gauge("batched").batch(64),
];
/// A counter.
pub const ROWS: Counter = Counter::from_name(STATISTICS, "rows");
/// A gauge.
pub const BALANCE: Gauge = Gauge::from_name(STATISTICS, "balance");
/// A gauge whose changes reach the ancestors at once.
pub const EAGER: Gauge = Gauge::from_name(STATISTICS, "eager");
/// A gauge whose CPUs report to the ancestors from 64 on.
pub const BATCHED: Gauge = Gauge::from_name(STATISTICS, "batched");
