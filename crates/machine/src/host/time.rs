//! Clock of the host, and pauses of its threads.

use std::sync::OnceLock;
use std::time::Instant;

/// Does [`crate::Machine::now_ns`] without a machine.
#[allow(clippy::disallowed_methods, reason = "this is the host's clock")]
pub(super) fn now_ns() -> u64 {
    static START: OnceLock<Instant> = OnceLock::new();
    let start = START.get_or_init(Instant::now);
    // 584 years of nanoseconds fit.
    u64::try_from(start.elapsed().as_nanos()).unwrap_or(u64::MAX)
}

/// Pauses: first for the sibling hyperthread, then for other threads, because the awaited thread may have been
/// preempted on this very CPU.
pub(super) fn relax(round: u32) {
    if round < 64 {
        std::hint::spin_loop();
    } else {
        std::thread::yield_now();
    }
}
