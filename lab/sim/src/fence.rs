//! Fence against sections, shared by tasks that want one at the same time.

use crate::engine::{Engine, NOBODY, Step, TaskId};

/// Fences of a machine: one runs, and other tasks wait for the next.
#[derive(Debug, Default)]
pub(crate) struct Fences {
    is_running: bool,
    /// Tasks that wait for the same next fence, which the first of them passes for all.
    waiting: Vec<TaskId>,
    /// Leader of those tasks, once its turn has come.
    led_by: Option<TaskId>,
}

impl Engine {
    /// Passes a fence.
    pub(crate) fn fence(&self) {
        if !self.is_scheduled() {
            return;
        }
        self.visible(Step::Fence, 0);
        self.count(|tally| tally.fences += 1);
        if self.explored.is_some() {
            return self.explored_fence();
        }
        let current = self.current.get();
        let must_wait = {
            let mut fences = self.fences.borrow_mut();
            if fences.is_running {
                fences.waiting.push(current);
            }
            std::mem::replace(&mut fences.is_running, true)
        };
        let mut followers = Vec::new();
        if must_wait {
            self.spend(self.settings.costs.syscall_ns);
            self.block();
            let mut fences = self.fences.borrow_mut();
            if fences.led_by.take_if(|leader| *leader == current).is_none() {
                return;
            }
            followers = std::mem::take(&mut fences.waiting);
        }
        self.interrupt_all();
        self.sync();
        for task in followers {
            self.spend(self.settings.costs.wake_ns);
            self.wake(task, self.now_ns.get());
        }
        let leader = {
            let mut fences = self.fences.borrow_mut();
            let leader = (!fences.waiting.is_empty()).then(|| fences.waiting.remove(0));
            fences.led_by = leader;
            fences.is_running = leader.is_some();
            leader
        };
        if let Some(leader) = leader {
            self.spend(self.settings.costs.wake_ns);
            self.wake(leader, self.now_ns.get());
        }
    }

    /// Ends all CPUs' use of translations of memory that the current task takes away.
    pub(crate) fn shoot_down(&self) {
        if self.is_scheduled() && self.explored.is_none() {
            self.interrupt_all();
        }
    }

    /// Interrupts each CPU that runs a task of ours, and waits for all of them, as the kernel does.
    fn interrupt_all(&self) {
        let own = self.cpu.get();
        let mut targets = 0;
        for (cpu, state) in (0..).zip(&self.cpus) {
            if cpu != own && state.current.get() != NOBODY {
                self.with_task(state.current.get(), |task| {
                    task.breaks.set(task.breaks.get() + 1);
                });
                self.interrupt(cpu, self.settings.costs.fence_interrupt_ns);
                targets += 1;
            }
        }
        let costs = &self.settings.costs;
        let wait_ns = if targets > 0 { costs.fence_wait_ns } else { 0 };
        self.spend(costs.fence_base_ns + wait_ns + targets * costs.fence_cpu_ns);
    }

    /// Passes a fence on one CPU after the other; other tasks go on in between.
    fn explored_fence(&self) {
        for cpu in 0..self.cpus.len() as u32 {
            self.break_sections(cpu);
            self.visible(Step::Fence, cpu);
        }
    }

    /// Makes sections that are under way on `cpu` begin anew.
    fn break_sections(&self, cpu: u32) {
        for task in self.tasks.borrow().iter() {
            if task.cpu.get() == cpu {
                task.breaks.set(task.breaks.get() + 1);
            }
        }
    }
}
