//! The current task: its CPU, its pauses and its sleep.

use bursar_machine::Shard;
use bursar_rig::timer::{Timer, TimerKind, tick_ns, wheel_expiry};

use crate::engine::{Engine, with_engine};
use crate::explored::Point;
use crate::task::{Step, TaskId};
use crate::timed::Alarm;

/// CPU of the current task; outside of tasks CPU 0.
pub(crate) fn current_shard() -> Shard {
    Shard(with_engine(|engine| engine.cpu.get()).unwrap_or(0))
}

pub(crate) fn relax(round: u32) {
    with_engine(|engine| {
        if !engine.is_scheduled() {
            assert!(round < 1 << 20, "nobody is there to wait for");
            return;
        }
        if let Some(explored) = &engine.explored {
            return engine.explored_point(explored, Point::Relax);
        }
        engine.visible(Step::Relax, 0);
        if round < 64 {
            engine.spend(engine.settings.costs.relax_ns);
        } else {
            engine.spend(engine.settings.costs.syscall_ns);
            engine.yield_now();
        }
    });
}

/// Expiry of a timer that is set now.
pub(crate) fn expiry_ns(engine: &Engine, timer: Timer) -> u64 {
    let Timer { kind, deadline_ns } = timer;
    if kind == TimerKind::Exact {
        return deadline_ns;
    }
    let tick_ns = tick_ns(engine.settings.topology.hz);
    let now = engine.now_ns.get() / tick_ns;
    wheel_expiry(now, deadline_ns.div_ceil(tick_ns)).saturating_mul(tick_ns)
}

pub(crate) fn alarm(engine: &Engine, kind: TimerKind, task: TaskId) -> Alarm {
    let number = engine.with_task(task, |task| task.sleeps.get());
    Alarm {
        task,
        number,
        is_deferrable: kind == TimerKind::Deferrable,
    }
}

/// Sleeps until a timer expires, or another task wakes this one.
pub(crate) fn sleep(engine: &Engine, timer: Timer) {
    engine.sync();
    if timer.deadline_ns > engine.now_ns.get() {
        let expires_ns = expiry_ns(engine, timer);
        engine.arm(expires_ns, alarm(engine, timer.kind, engine.current.get()));
        engine.block();
    }
    kill_if_due(engine);
}

/// Ends the current task if its time has come, but not in a destructor, because a task dies once.
fn kill_if_due(engine: &Engine) {
    if !std::thread::panicking()
        && engine
            .faults
            .takes_life(engine.current.get(), engine.now_ns.get())
    {
        std::panic::resume_unwind(Box::new(crate::fault::Killed));
    }
}
