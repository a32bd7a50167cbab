//! The parameters of the experiment.

use std::time::Duration;

use bursar::pages::Watermarks;
use bursar::pages::parts as sizes;

use crate::page_allocators::{GIB_PAGES, MIB_PAGES, OwnSizes};
use crate::workload::{Misfit, SIMULATED_TASKS_MAX, Sizing, parameters};
use bursar_kernel::pages::{DrainHold, Release, Settings};

/// Greatest memory: pages are numbered to twice as many, and those of two runs may be numbered at once.
const MEMORY_GIB_MAX: u64 = 1 << 12;
/// Greatest number of pages that a run takes at the same time: each needs some 50 bytes of the host's memory.
const PAGES_MAX: u64 = 1 << 24;

/// Time to simulate that a page is mapped and freed, seconds of a CPU: 0.4 to 0.8 us, by policy, on one core of a server.
const PAGE_SECONDS: f64 = 0.6e-6;
/// The same of an operation of a bystander, beside its pages.
const OPERATION_SECONDS: f64 = 3e-6;
/// The same of a page in lists.
const LISTED_PAGE_SECONDS: f64 = 0.1e-6;
/// Simulated time that a page of a storm of exits takes.
const LONG_PAGE_SECONDS: f64 = 35e-9;
/// Timer slack and waking.
const THINK_OVERHEAD_US: u64 = 60;

parameters! {
    it;
    duration_ms: u64 [1 to 3_600_000];
    memory_gib: u64 [1 to MEMORY_GIB_MAX];
    memory_per_cpu_gib: u64 [0 to 1 << 10];
    swap_gib: u64 [0 to 1 << 20];
    sized_for_cpus: u64 [0 to 4_096];
    scale: u64 [1 to 1 << 16];
    batch_pages: u64 [0 to 4_096];
    drains_in_batches: bool;
    zone_page_ns: u64 [0 to 1_000_000];
    watchdog_us: u64 [1 to 100_000_000];
    touch_ns: u64 [0 to 1_000_000];
    unmap_ns: u64 [0 to 1_000_000];
    rewrite_ns: u64 [0 to 1_000_000];
    swap_io_ns: u64 [1 to 1_000_000_000];
    bystanders: u64 [0 to 10_000];
    bystander_pages: u64 [1 to 4_096];
    think_us: u64 [1 to 10_000_000];
    exiters: u64 [0 to 10_000];
    exiter_mib: u64 [1 to 1 << 20];
    settle_periods: u64 [0 to 10_000];
    freers: u64 [0 to 10_000];
    list_pages: u64 [1 to PAGES_MAX];
    drains: u64 [0 to 100];
    decay_period_ms: u64 [0 to 3_600_000];
    listed_pages: u64 [0 to 1 << 20];
    workers: u64 [0 to 10_000];
    worker_mib: u64 [1 to 1 << 30];
    rewrites: u64 [1 to 10_000];
    shells: u64 [0 to 10_000];
    processes: u64 [1 to 10_000_000];
    process_mib: u64 [1 to 1 << 20];
    process_doublings: u64 [0 to 8];
    page_compute_ns: u64 [0 to 1_000_000_000];
    has_tuned_lists: bool;
}

impl Parameters {
    /// Returns the pages of a task that exits.
    pub(super) fn exiter_pages(&self) -> u64 {
        self.exiter_mib * MIB_PAGES
    }

    /// Returns the pages of a worker, scaled.
    pub(super) fn worker_pages(&self) -> u64 {
        (self.worker_mib * MIB_PAGES / self.scale).max(1)
    }

    /// Returns the memory before it is scaled.
    fn memory_gib(&self, cpus: usize) -> u64 {
        match self.memory_per_cpu_gib {
            0 => self.memory_gib,
            each => each * self.cpus(cpus) as u64,
        }
    }

    /// Returns the number of CPUs that share the memory.
    fn cpus(&self, cpus: usize) -> usize {
        match self.sized_for_cpus {
            0 => cpus,
            other => other as usize,
        }
    }

    /// Returns the pages of the zone, scaled.
    fn zone_pages(&self, cpus: usize) -> Result<u64, String> {
        let gib = self.memory_gib(cpus);
        if gib > MEMORY_GIB_MAX {
            return Err(format!(
                "{gib} GiB of memory, and pages are numbered up to {MEMORY_GIB_MAX} GiB"
            ));
        }
        Ok(gib * GIB_PAGES / self.scale)
    }

    /// Returns the watermarks of all the memory, scaled.
    pub(super) fn watermarks(&self, zone_pages: u64) -> Watermarks {
        let pages = zone_pages * self.scale;
        let marks = Watermarks::of(pages, pages);
        Watermarks {
            min: marks.min / self.scale,
            low: marks.low / self.scale,
            high: marks.high / self.scale,
        }
    }

    /// Returns settings of the page lists of a policy of the thread.
    pub(super) fn published_settings(
        &self,
        cpus: usize,
        release: Release,
    ) -> Result<Settings, String> {
        let pages = self.zone_pages(cpus)?;
        let mut settings = Settings::of(pages * self.scale, self.cpus(cpus), release);
        settings.pages = pages;
        settings.high_watermark_pages = self.watermarks(pages).high;
        let limits = &mut settings.limits;
        if self.scale > 1 {
            let scaled = |high: u32| high / self.scale as u32;
            limits.high_min = scaled(limits.high_min).max(sizes::high_min(0, 1, limits.batch));
            // Less, and no task could free as much under one hold as unscaled.
            let least = 2 * limits.scaled_batch_max();
            limits.high_max = scaled(limits.high_max).max(least);
        }
        settings.zone_page_ns = self.zone_page_ns;
        if !self.has_tuned_lists {
            settings.limits.high_max = settings.limits.high_min;
        }
        if self.drains_in_batches {
            settings.drain = DrainHold::Batch;
        }
        settings.piece_pages = (self.batch_pages > 0).then_some(self.batch_pages as u32);
        Ok(settings)
    }

    /// Returns the sizes of Bursar's pages.
    pub(super) fn own_sizes(&self, cpus: usize) -> Result<OwnSizes, String> {
        let pages = self.zone_pages(cpus)?;
        Ok(OwnSizes {
            pages,
            watermarks: Some(self.watermarks(pages)),
            hold_blocks: (self.batch_pages > 0).then_some(self.batch_pages as u32),
            decay_period: Duration::from_millis(self.decay_period_ms.max(1)),
        })
    }

    /// Returns the number of tasks, without those that decay, one for each CPU.
    fn tasks(&self) -> u64 {
        self.bystanders + self.exiters + self.freers + self.drains + self.workers + self.shells
    }

    /// Returns the greatest number of pages that tasks hold at the same time.
    fn held_pages(&self) -> u64 {
        // Bystanders have few pages under way in comparison.
        let shells = self.shells * self.process_mib * MIB_PAGES;
        let long = self.exiters * self.exiter_pages() + self.freers * self.list_pages;
        long + shells + self.workers * self.worker_pages()
    }
}

impl Sizing for Parameters {
    fn misfits(&self) -> Vec<Misfit> {
        let odd = |key, tasks: u64| {
            let problem = format!(
                "is {tasks}, and must be even: one of each pair takes pages, the other frees them"
            );
            (tasks % 2 == 1, key, problem)
        };
        let held = self.held_pages();
        // An eighth may be in lists.
        let most =
            (self.memory_gib * GIB_PAGES / self.scale + self.swap_gib * GIB_PAGES / self.scale) / 8
                * 7;
        let key = if self.workers > 0 {
            "worker_mib"
        } else {
            "memory_gib"
        };
        vec![
            (
                self.tasks() - self.bystanders + self.decay_period_ms == 0,
                "exiters",
                "is 0, and nobody else frees many pages".to_owned(),
            ),
            odd("bystanders", self.bystanders),
            odd("freers", self.freers),
            (
                held > PAGES_MAX,
                "scale",
                format!(
                    "is {}, and the tasks would hold {held} pages at once; {PAGES_MAX} can be simulated",
                    self.scale
                ),
            ),
            (
                // With memory for each CPU, their number is known later.
                self.memory_per_cpu_gib == 0 && held > most,
                key,
                format!(
                    "leaves no room: the tasks need {held} pages, and there are {most} with swap and without what lists may hold, all divided by `scale`"
                ),
            ),
        ]
    }

    fn simulated_misfit(&self) -> Option<Misfit> {
        let tasks = self.tasks();
        let problem = format!(
            "is one of {tasks} tasks, and a simulated run has room for {SIMULATED_TASKS_MAX}"
        );
        Some((tasks > SIMULATED_TASKS_MAX, "exiters", problem))
    }

    fn run_ms(&self) -> u64 {
        self.duration_ms
    }

    fn simulated_seconds(&self, cpus: usize) -> f64 {
        let seconds = self.duration_ms as f64 / 1e3;
        let listed = self.listed_pages * cpus as u64;
        // Where exits and drains end the run, it is about as long as all their pages take under the zone's lock.
        let long_pages = self.exiters * self.exiter_pages() + self.drains * listed;
        let seconds = match long_pages {
            0 => seconds,
            pages => pages as f64 * LONG_PAGE_SECONDS,
        };
        let operations =
            self.bystanders as f64 * seconds / ((self.think_us + THINK_OVERHEAD_US) as f64 / 1e6);
        let page_ns = self.touch_ns + self.unmap_ns + self.rewrites * self.rewrite_ns;
        let worker_pages = self.workers as f64 * seconds * 1e9 / page_ns.max(1) as f64;
        let freer_pages = self.freers as f64 / 2.0 * seconds / LISTED_PAGE_SECONDS;
        let process_pages = match self.shells {
            0 => 0,
            shells => {
                let page_ns = (self.touch_ns + self.page_compute_ns).max(1);
                let most = shells * self.duration_ms * 1_000_000 / page_ns;
                most.min(self.processes * self.process_mib * MIB_PAGES / 4)
            }
        };
        let pages = (long_pages + process_pages) as f64 + worker_pages + freer_pages;
        operations * OPERATION_SECONDS
            + operations * self.bystander_pages as f64 * PAGE_SECONDS
            + pages * PAGE_SECONDS
            + listed as f64 * LISTED_PAGE_SECONDS
    }
}
