//! Decay of each CPU's lists, when the kernel's `vmstat_update()` comes to it: CPU `c` aims at whole intervals less `3 * c` ticks,
//! and the timer wheel rounds that.

use bursar_machine::Shard;
use bursar_rig::timer::{Timer, TimerKind, Timers, tick_ns};

use super::scene::{Log, Scene};
use crate::page_allocators::Lists;

/// Ticks between the target times of neighbouring CPUs (`round_jiffies_common()`).
const SKEW: u64 = 3;

pub(super) fn decay<M: Timers, S: Lists<M>>(scene: &Scene<'_, M, S>, cpu: u32, log: &mut Log) {
    let machine = scene.machine;
    let tick_ns = tick_ns(machine.hz());
    let interval = (scene.parameters.decay_period_ms * 1_000_000 / tick_ns).max(1);
    loop {
        let now = machine.now_ns() / tick_ns;
        let deadline_ns = next(now, interval, u64::from(cpu)) * tick_ns;
        if deadline_ns >= scene.end_ns {
            return;
        }
        machine.sleep_on_timer(Timer {
            kind: TimerKind::Wheel,
            deadline_ns,
        });
        let began_ns = machine.now_ns();
        scene.subject.decay(Shard(cpu));
        log.decays_ns.push(machine.now_ns() - began_ns);
    }
}

/// Returns the next target tick of a CPU.
fn next(now: u64, interval: u64, cpu: u64) -> u64 {
    let skew = SKEW * cpu % interval;
    (now + skew + 1).next_multiple_of(interval) - skew
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cpus_aim_three_ticks_before_their_neighbours_and_always_ahead() {
        assert_eq!(next(0, 1_000, 0), 1_000);
        assert_eq!(next(0, 1_000, 1), 997);
        assert_eq!(next(996, 1_000, 1), 997);
        assert_eq!(next(997, 1_000, 1), 1_997);
        assert_eq!(next(500, 10, 7), 509);
        for now in 0..3_000 {
            let at = next(now, 1_000, 315);
            assert!(at > now && at <= now + 1_000);
        }
    }
}
