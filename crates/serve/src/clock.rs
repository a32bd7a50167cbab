//! Times.

use rustix::time::{ClockId, clock_gettime};

/// Time since some moment before this process began.
pub(crate) fn monotonic_ns() -> u64 {
    ns(ClockId::Monotonic)
}

/// Time since 1970.
pub(crate) fn unix_ns() -> u64 {
    ns(ClockId::Realtime)
}

fn ns(clock: ClockId) -> u64 {
    let time = clock_gettime(clock);
    let seconds = u64::try_from(time.tv_sec).unwrap_or(0);
    seconds * 1_000_000_000 + u64::try_from(time.tv_nsec).unwrap_or(0)
}
