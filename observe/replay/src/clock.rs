//! Ticks of the recorded kernel, on the clock of its events.

use bursar_rig::timer::tick_ns;
use bursar_watch::seen::Upkeep;

/// Ticks after which the wheel's buckets of up to 512 ticks repeat.
const WHEEL_TICKS: u64 = 512;

/// Ticks of the recorded kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Clock {
    tick_ns: u64,
    /// Moment of tick 0, modulo 2^64.
    zero_ns: u64,
}

impl Clock {
    /// Finds the ticks by the timers that expired. The most punctual one shows them best.
    pub(crate) fn of(calls: &[Upkeep], hz: u32) -> Option<Self> {
        let tick_ns = tick_ns(hz);
        let zeros = calls.iter().filter_map(|upkeep| {
            let jiffy = upkeep.expire_jiffy.or(upkeep.slot_jiffy)?;
            Some(upkeep.expire_ns?.wrapping_sub(jiffy.wrapping_mul(tick_ns)))
        });
        // Jiffies begin near 2^32, so zero may be before the clock's: compare by the signed distance from the first.
        let mut zeros = zeros.peekable();
        let first = *zeros.peek()?;
        let zero_ns = zeros.min_by_key(|zero| zero.wrapping_sub(first) as i64)?;
        Some(Self { tick_ns, zero_ns })
    }

    /// Moment of a tick.
    pub(crate) fn at(self, jiffy: u64) -> u64 {
        self.zero_ns.wrapping_add(jiffy.wrapping_mul(self.tick_ns))
    }

    /// Tick of a moment.
    pub(crate) fn jiffy(self, at_ns: u64) -> u64 {
        at_ns.wrapping_sub(self.zero_ns) / self.tick_ns
    }

    /// Place of a moment among the ticks after which seconds and buckets repeat, nanoseconds.
    pub(crate) fn phase_ns(self, at_ns: u64, hz: u32) -> u64 {
        at_ns.wrapping_sub(self.zero_ns) % (repeat_ticks(hz) * self.tick_ns)
    }
}

/// Ticks after which seconds and the wheel's buckets repeat: their least common multiple.
pub(crate) fn repeat_ticks(hz: u32) -> u64 {
    let hz = u64::from(hz);
    // Of a power of two, the common divisor is one too.
    let common = 1 << hz.trailing_zeros().min(WHEEL_TICKS.trailing_zeros());
    hz / common * WHEEL_TICKS
}

/// Tick on which a call's timer expired; of a call without a timer, the tick on which it began.
pub(crate) fn fired_at(upkeep: &Upkeep, clock: Option<Clock>, tick_ns: u64) -> u64 {
    let tick = |at_ns: u64| clock.map_or(at_ns / tick_ns, |clock| clock.jiffy(at_ns));
    match (upkeep.expire_jiffy, upkeep.expire_ns) {
        (Some(jiffy), _) => jiffy,
        (None, Some(expire_ns)) => tick(expire_ns),
        (None, None) => tick(upkeep.start_ns),
    }
}

/// Tick of the slot in which a call's timer was; of a call without a known slot, the tick on which it fired.
pub(crate) fn slot_of(upkeep: &Upkeep, clock: Option<Clock>, tick_ns: u64) -> u64 {
    let fired = fired_at(upkeep, clock, tick_ns);
    upkeep.slot_jiffy.unwrap_or(fired)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn seconds_and_buckets_repeat_together() {
        for hz in [100, 250, 300, 1000, 7] {
            let ticks = repeat_ticks(hz);
            assert!(ticks.is_multiple_of(u64::from(hz)), "{hz}");
            assert!(ticks.is_multiple_of(WHEEL_TICKS), "{hz}");
        }
        assert_eq!(repeat_ticks(1000), 64_000);
    }
}
