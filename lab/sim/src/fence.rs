//! Fence against sections, shared by tasks that want one at the same time.

use crate::engine::{Engine, Schedule};
use crate::task::{NOBODY, Step, Task};
use crate::timed::Timed;
use crate::world::World;

/// Passes a fence.
pub(crate) fn fence(engine: &Engine) {
    if !engine.is_scheduled() {
        return;
    }
    engine.visible(Step::Fence, 0);
    engine.world.count(|counts| counts.fences += 1);
    match &engine.schedule {
        Schedule::Timed(timed) => timed_fence(engine, timed),
        Schedule::Explored(_) => explored_fence(engine),
    }
}

/// Passes a fence at once, or with the tasks that wait for the next.
fn timed_fence(engine: &Engine, timed: &Timed) {
    let current = engine.world.tasks.current.get();
    let must_wait = {
        let mut fences = timed.fences.borrow_mut();
        if fences.is_running {
            fences.waiting.push(current);
        }
        std::mem::replace(&mut fences.is_running, true)
    };
    let mut followers = Vec::new();
    if must_wait {
        engine.spend(engine.costs().syscall_ns);
        engine.block();
        let mut fences = timed.fences.borrow_mut();
        if fences.led_by.take_if(|leader| *leader == current).is_none() {
            return;
        }
        followers = std::mem::take(&mut fences.waiting);
    }
    interrupt_all(&engine.world, timed);
    engine.sync();
    for task in followers {
        engine.pass_undisturbed(engine.costs().wake_ns);
        engine.wake(task);
    }
    let leader = {
        let mut fences = timed.fences.borrow_mut();
        let leader = (!fences.waiting.is_empty()).then(|| fences.waiting.remove(0));
        fences.led_by = leader;
        fences.is_running = leader.is_some();
        leader
    };
    if let Some(leader) = leader {
        engine.pass_undisturbed(engine.costs().wake_ns);
        engine.wake(leader);
    }
}

/// Ends all CPUs' use of translations of memory that the current task takes away.
pub(crate) fn shoot_down(engine: &Engine) {
    if let Some(timed) = engine.timed()
        && engine.is_scheduled()
    {
        // Others have worked until now.
        engine.sync();
        interrupt_all(&engine.world, timed);
    }
}

/// Interrupts each CPU that runs a task of ours, and waits for all of them, as the kernel does.
fn interrupt_all(world: &World, timed: &Timed) {
    let costs = &world.settings.costs;
    let own = world.tasks.cpu.get();
    let mut targets = 0;
    for (cpu, state) in (0..).zip(&timed.cpus) {
        let task = state.current.get();
        if cpu != own && task != NOBODY {
            world.tasks.with(task, Task::break_section);
            timed.interrupt(world, cpu, costs.fence_interrupt_ns);
            targets += 1;
        }
    }
    let wait_ns = if targets > 0 { costs.fence_wait_ns } else { 0 };
    world
        .clock
        .advance(costs.fence_base_ns + wait_ns + targets * costs.fence_cpu_ns);
}

/// Passes a fence on one CPU after the other: sections that are under way there begin anew. Other tasks go on in between.
fn explored_fence(engine: &Engine) {
    for cpu in 0..engine.world.cpus() as u32 {
        for task in engine.world.tasks.list.borrow().iter() {
            if task.cpu.get() == cpu {
                task.break_section();
            }
        }
        engine.visible(Step::Fence, cpu);
    }
}
