//! State that all tasks of a run share.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use bursar_machine::Shard;
use bursar_rig::timer::Timers;

use super::parameters::Parameters;
use super::swap::Marks;
use crate::page_allocators::{Lists, Waits};
use crate::random::Random;

/// Pages that are faulted in between two checks of anything else.
pub(super) const FAULT_PAGES: usize = 64;
/// Pages that an unmapping collects before it frees them and yields its CPU.
#[doc(alias = "MAX_GATHER_BATCH")]
pub(super) const GATHER_PAGES: usize = 512;

/// Log of one task.
#[derive(Clone, Debug, Default)]
pub(super) struct Log {
    /// Waits for locks in each operation of a bystander that takes pages.
    pub(super) alloc_waits: Vec<Waits>,
    /// The same of a bystander that frees pages.
    pub(super) free_waits: Vec<Waits>,
    /// Length of each operation of a bystander.
    pub(super) operations_ns: Vec<u64>,
    /// Length of each free of many pages, from the first to the last.
    pub(super) frees_ns: Vec<u64>,
    /// Length of each decay of a CPU's lists.
    pub(super) decays_ns: Vec<u64>,
    /// Units of the load's work that are done: pages freed, or bogo operations.
    pub(super) done: f64,
    /// Pages that a bystander has taken or freed.
    pub(super) bystander_pages: u64,
    /// Time on a CPU meanwhile.
    pub(super) cpu_ns: u64,
    /// The part of it that a shell's processes compute.
    pub(super) user_ns: u64,
    /// Pages that went to swap.
    pub(super) swapped_out: u64,
    /// Time in the queue of a CPU.
    pub(super) run_queue_ns: u64,
    pub(super) ended_ns: u64,
}

/// A task.
pub(super) struct Job<'a> {
    /// CPU that the task is bound to.
    pub(super) cpu: Option<u32>,
    pub(super) work: Box<dyn FnOnce() -> Log + Send + 'a>,
}

/// State of a run; see the module.
pub(super) struct Scene<'a, M: Timers, S: Lists<M>> {
    pub(super) machine: &'a M,
    pub(super) subject: &'a S,
    pub(super) parameters: &'a Parameters,
    pub(super) start_ns: u64,
    pub(super) end_ns: u64,
    /// Memory that exiting tasks have mapped before the start.
    mapped: Vec<Mutex<Vec<S::Page>>>,
    /// Pages on their way from the task that took them to the one that frees them, by pair.
    mail: Vec<Mutex<Vec<S::Page>>>,
    /// Tasks that the run waits for and that have not ended yet.
    unfinished: AtomicU64,
    pub(super) marks: Marks,
    /// Whether there is memory behind pages.
    has_memory: bool,
}

impl<'a, M: Timers, S: Lists<M>> Scene<'a, M, S> {
    pub(super) fn new(machine: &'a M, subject: &'a S, parameters: &'a Parameters) -> Self {
        let mut page = Vec::new();
        subject.alloc(1, &mut page);
        let has_memory = page.iter_mut().all(|page| subject.write(page, 1));
        subject.free_many(page);
        let boxes = |count: u64| (0..count).map(|_| Mutex::default()).collect();
        Self {
            machine,
            subject,
            parameters,
            start_ns: 0,
            end_ns: 0,
            mapped: boxes(parameters.exiters),
            mail: boxes((parameters.bystanders + parameters.freers) / 2),
            unfinished: AtomicU64::new(parameters.exiters + parameters.drains),
            marks: Marks::new(parameters, subject.managed_pages()),
            has_memory,
        }
    }

    /// Maps the memory of the tasks that will exit.
    pub(super) fn map_before(&self) {
        let pages = self.parameters.exiter_pages();
        let mut tasks: Vec<Box<dyn FnOnce() + Send + '_>> = Vec::new();
        for mapped in &self.mapped {
            tasks.push(Box::new(move || {
                let mut held = Vec::new();
                self.map(pages, &mut held);
                *lock(mapped) = held;
            }));
        }
        self.machine.run(tasks);
    }

    /// Lets the lists decay as long as it takes since they were last used.
    pub(super) fn settle(&self) {
        let machine = self.machine;
        let period_ns = self.parameters.decay_period_ms.max(1) * 1_000_000;
        for _ in 0..self.parameters.settle_periods {
            machine.sleep_until(machine.now_ns() + period_ns);
            for cpu in 0..machine.cpus() as u32 {
                self.subject.decay(Shard(cpu));
            }
        }
    }

    /// Starts the load.
    pub(super) fn start(&mut self) {
        self.start_ns = self.machine.now_ns();
        self.end_ns = self.start_ns + self.parameters.duration_ms * 1_000_000;
    }

    /// Returns a task that does its work, and logs it.
    pub(super) fn job<'s>(
        &'s self,
        cpu: Option<u32>,
        work: impl FnOnce(&'s Self, &mut Log) + Send + 's,
    ) -> Job<'s> {
        let work = move || {
            let mut log = Log::default();
            work(self, &mut log);
            log.run_queue_ns = self.machine.run_queue_ns();
            log.ended_ns = self.machine.now_ns();
            log
        };
        Job {
            cpu,
            work: Box::new(work),
        }
    }

    /// Returns whether the load is over at that moment.
    pub(super) fn is_over(&self, now_ns: u64) -> bool {
        if self.parameters.exiters + self.parameters.drains > 0 {
            // Relaxed: only when to stop.
            return self.unfinished.load(Ordering::Relaxed) == 0;
        }
        now_ns >= self.end_ns
    }

    /// Records the end of a task that the run waits for.
    pub(super) fn finish_one(&self) {
        // Relaxed: see `is_over`.
        self.unfinished.fetch_sub(1, Ordering::Relaxed);
    }

    pub(super) fn take_mapped(&self, index: u64) -> Vec<S::Page> {
        std::mem::take(&mut lock(&self.mapped[index as usize]))
    }

    pub(super) fn post(&self, pair: u64, pages: Vec<S::Page>) {
        lock(&self.mail[pair as usize]).extend(pages);
    }

    /// Returns the number of pages in a pair's mail.
    pub(super) fn posted(&self, pair: u64) -> usize {
        lock(&self.mail[pair as usize]).len()
    }

    /// Takes up to `count` pages that were posted.
    pub(super) fn collect(&self, pair: u64, count: usize) -> Vec<S::Page> {
        let mut mail = lock(&self.mail[pair as usize]);
        let count = count.min(mail.len());
        mail.drain(..count).collect()
    }

    /// Frees the pages that are still in the mail.
    pub(super) fn clear(&self) {
        for mail in self.mail.iter().chain(&self.mapped) {
            let pages = std::mem::take(&mut *lock(mail));
            self.subject.free_many(pages);
        }
    }

    /// Faults in up to `count` pages; fewer only if no more are free.
    pub(super) fn map(&self, count: u64, held: &mut Vec<S::Page>) {
        let mut left = count as usize;
        while left > 0 {
            let before = held.len();
            self.subject.alloc(left.min(FAULT_PAGES), held);
            let got = held.len() - before;
            if got == 0 {
                return;
            }
            self.touch(&mut held[before..], self.parameters.touch_ns);
            left -= got;
        }
    }

    /// Writes to pages, or lets the same time pass where they have no memory.
    pub(super) fn touch(&self, pages: &mut [S::Page], page_ns: u64) {
        if !self.has_memory {
            return self.machine.compute(pages.len() as u64 * page_ns);
        }
        for page in pages {
            self.subject.write(page, 2);
        }
    }

    /// Unmaps pages and frees them.
    pub(super) fn unmap(&self, mut pages: Vec<S::Page>) {
        while !pages.is_empty() {
            let some = pages.split_off(pages.len().saturating_sub(GATHER_PAGES));
            if !self.has_memory {
                let unmap_ns = self.parameters.unmap_ns;
                self.machine.compute(some.len() as u64 * unmap_ns);
            }
            self.subject.free_many(some);
        }
    }

    pub(super) fn random(&self, role: u64, index: u64) -> Random {
        Random::fork(self.parameters.seed, role << 32 | index)
    }
}

fn lock<T>(shared: &Mutex<T>) -> MutexGuard<'_, T> {
    shared.lock().unwrap_or_else(PoisonError::into_inner)
}
