//! Fence against sections, shared by tasks that want one at the same time.

use crate::engine::Engine;
use crate::task::{NOBODY, Step};

/// Passes a fence.
pub(crate) fn fence(engine: &Engine) {
    if !engine.is_scheduled() {
        return;
    }
    engine.visible(Step::Fence, 0);
    engine.count(|tally| tally.fences += 1);
    if engine.explored.is_some() {
        return explored_fence(engine);
    }
    let current = engine.current.get();
    let must_wait = {
        let mut fences = engine.fences.borrow_mut();
        if fences.is_running {
            fences.waiting.push(current);
        }
        std::mem::replace(&mut fences.is_running, true)
    };
    let mut followers = Vec::new();
    if must_wait {
        engine.spend(engine.settings.costs.syscall_ns);
        engine.block();
        let mut fences = engine.fences.borrow_mut();
        if fences.led_by.take_if(|leader| *leader == current).is_none() {
            return;
        }
        followers = std::mem::take(&mut fences.waiting);
    }
    interrupt_all(engine);
    engine.sync();
    for task in followers {
        engine.spend(engine.settings.costs.wake_ns);
        engine.wake(task, engine.now_ns.get());
    }
    let leader = {
        let mut fences = engine.fences.borrow_mut();
        let leader = (!fences.waiting.is_empty()).then(|| fences.waiting.remove(0));
        fences.led_by = leader;
        fences.is_running = leader.is_some();
        leader
    };
    if let Some(leader) = leader {
        engine.spend(engine.settings.costs.wake_ns);
        engine.wake(leader, engine.now_ns.get());
    }
}

/// Ends all CPUs' use of translations of memory that the current task takes away.
pub(crate) fn shoot_down(engine: &Engine) {
    if engine.is_scheduled() && engine.explored.is_none() {
        interrupt_all(engine);
    }
}

/// Interrupts each CPU that runs a task of ours, and waits for all of them, as the kernel does.
fn interrupt_all(engine: &Engine) {
    let own = engine.cpu.get();
    let mut targets = 0;
    for (cpu, state) in (0..).zip(&engine.cpus) {
        if cpu != own && state.current.get() != NOBODY {
            engine.with_task(state.current.get(), |task| {
                task.breaks.set(task.breaks.get() + 1);
            });
            engine.interrupt(cpu, engine.settings.costs.fence_interrupt_ns);
            targets += 1;
        }
    }
    let costs = &engine.settings.costs;
    let wait_ns = if targets > 0 { costs.fence_wait_ns } else { 0 };
    engine.spend(costs.fence_base_ns + wait_ns + targets * costs.fence_cpu_ns);
}

/// Passes a fence on one CPU after the other; other tasks go on in between.
fn explored_fence(engine: &Engine) {
    for cpu in 0..engine.cpus.len() as u32 {
        break_sections(engine, cpu);
        engine.visible(Step::Fence, cpu);
    }
}

/// Makes sections that are under way on `cpu` begin anew.
fn break_sections(engine: &Engine, cpu: u32) {
    for task in engine.tasks.borrow().iter() {
        if task.cpu.get() == cpu {
            task.breaks.set(task.breaks.get() + 1);
        }
    }
}
