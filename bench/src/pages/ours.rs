//! Bursar's contenders, and the yardstick: the only place that knows them.
//!
//! Each name in [`NAMES`] has an arm in [`with`] that makes the allocator and runs the job on it, as the arms for peers in
//! `contenders.rs` do. The targets look for the names below.

use bursar_bench_peers::Absent;

use crate::pages::contenders::Job;

/// The yardstick: a push and a pop of a per-CPU stack by restartable sequences, and nothing else.
pub const BARE_STACK: &str = "bare rseq push+pop";
/// Pages that are charged to nobody.
pub const BURSAR: &str = "bursar";
/// Pages that are charged to a group three levels deep.
pub const BURSAR_CHARGED: &str = "bursar, 3 levels charged";

/// Those that take part. None does yet: there is no page allocator to measure.
pub const NAMES: &[&str] = &[];

/// Does `job` with blocks of `BYTES` bytes of the contender called `name`.
///
/// # Errors
/// Why that is not possible here.
pub fn with<const BYTES: usize, J: Job>(name: &str, _job: J) -> Result<J::Output, Absent> {
    Err(Absent(format!("no contender is called {name}")))
}
