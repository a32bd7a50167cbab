//! Scenarios that are measured, their sizes, and their work.

use bursar_bench_peers::Pages;

/// Pattern of the operations.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scenario {
    Pair,
    Deep,
    Remote,
    Churn,
    Worst,
    Retained,
    Hold,
}

/// Bytes of the smaller blocks.
pub const SMALL_BYTES: usize = 4 << 10;
/// Bytes of the larger blocks.
pub const LARGE_BYTES: usize = 64 << 10;

/// Something to do with an allocator, whichever it is.
pub trait Job {
    /// Result of the scenario.
    type Output;
    /// Does it.
    fn run<P: Pages>(self, pages: &P) -> Self::Output;
}
