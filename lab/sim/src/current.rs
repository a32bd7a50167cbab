//! The current task: its CPU, its pauses and its sleep.

use bursar_machine::Shard;
use bursar_rig::timer::{Timer, TimerKind, tick_ns, wheel_expiry};

use crate::engine::{Engine, Schedule, with_engine};
use crate::explored::Point;
use crate::fault::Killed;
use crate::task::Step;
use crate::timed::Timed;
use crate::world::World;

/// CPU of the current task; outside of tasks CPU 0.
#[inline]
pub(crate) fn current_shard() -> Shard {
    Shard(with_engine(|engine| engine.world.tasks.cpu.get()).unwrap_or(0))
}

pub(crate) fn relax(round: u32) {
    with_engine(|engine| {
        if !engine.is_scheduled() {
            assert!(round < 1 << 20, "nobody is there to wait for");
            return;
        }
        let timed = match &engine.schedule {
            Schedule::Timed(timed) => timed,
            Schedule::Explored(explored) => return explored.point(&engine.world, Point::Relax),
        };
        engine.visible(Step::Relax, 0);
        if round < 64 {
            engine.spend(engine.costs().relax_ns);
        } else {
            engine.spend(engine.costs().syscall_ns);
            timed.yield_now(&engine.world);
        }
    });
}

/// Expiry of a timer that is set now.
pub(crate) fn expiry_ns(world: &World, timer: Timer) -> u64 {
    let Timer { kind, deadline_ns } = timer;
    if kind == TimerKind::Exact {
        return deadline_ns;
    }
    let tick_ns = tick_ns(world.settings.topology.hz);
    let now = world.clock.now_ns() / tick_ns;
    wheel_expiry(now, deadline_ns.div_ceil(tick_ns)).saturating_mul(tick_ns)
}

/// Sleeps until a timer expires, or another task wakes this one.
pub(crate) fn sleep(engine: &Engine, timer: Timer) {
    let world = &engine.world;
    match &engine.schedule {
        Schedule::Timed(timed) => timed_sleep(world, timed, timer),
        Schedule::Explored(explored) => explored.sleep(world, timer.deadline_ns),
    }
}

fn timed_sleep(world: &World, timed: &Timed, timer: Timer) {
    let current = world.tasks.current.get();
    timed.sync(world);
    if timer.deadline_ns > world.clock.now_ns() {
        timed.arm(world, expiry_ns(world, timer), timer.kind, current);
        timed.block(world);
    }
    // Not in a destructor, because a task dies once.
    if !std::thread::panicking() && timed.faults.takes_life(current, world.clock.now_ns()) {
        std::panic::resume_unwind(Box::new(Killed));
    }
}
