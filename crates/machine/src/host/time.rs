//! Clock of the host, and pauses of its threads.

use std::sync::OnceLock;
use std::time::{Duration, Instant};

use crate::GIVE_WAY;

/// Does [`crate::Machine::now_ns`] without a machine.
#[allow(clippy::disallowed_methods, reason = "this is the host's clock")]
pub(super) fn now_ns() -> u64 {
    static START: OnceLock<Instant> = OnceLock::new();
    let start = START.get_or_init(Instant::now);
    // 584 years of nanoseconds fit.
    u64::try_from(start.elapsed().as_nanos()).unwrap_or(u64::MAX)
}

/// Pauses: first for the sibling hyperthread, then for other threads, because the awaited thread may have been
/// preempted on this very CPU, and then for threads that have to wait until this one sleeps.
pub(super) fn relax(round: u32) {
    match pause(round) {
        Pause::Spin => std::hint::spin_loop(),
        Pause::Yield => std::thread::yield_now(),
        Pause::Sleep => std::thread::sleep(SLEEP),
    }
}

/// Round from which a pause sleeps. A thread of a real-time policy yields only to those of its own priority, so it
/// would wait without end for a holder of a lower one on its CPU.
const SLEEP_FROM: u32 = 2 * GIVE_WAY;
/// Length of a sleep: as long as the kernel's timers are late by default, so that a shorter one would end no sooner.
const SLEEP: Duration = Duration::from_micros(50);

/// Kind of a pause.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Pause {
    Spin,
    Yield,
    Sleep,
}

fn pause(round: u32) -> Pause {
    match round {
        ..GIVE_WAY => Pause::Spin,
        GIVE_WAY..SLEEP_FROM => Pause::Yield,
        _ => Pause::Sleep,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wait_spins_then_yields_and_then_sleeps() {
        let kinds = [0, 63, 64, 127, 128, u32::MAX].map(pause);
        let (spin, give, sleep) = (Pause::Spin, Pause::Yield, Pause::Sleep);
        assert_eq!(kinds, [spin, spin, give, give, sleep, sleep]);
        assert_eq!(pause(GIVE_WAY), give, "code counts on this");
    }

    #[test]
    fn a_task_spins_for_some_rounds_before_it_sleeps() {
        use crate::Machine;
        let spins = crate::Host::start().unwrap().spins();
        assert!((1..=GIVE_WAY).contains(&spins), "{spins}");
    }
}
