//! A worker as in `stress-ng --vm`: it maps memory, faults it in, rewrites it a few times and unmaps it, in a loop.
//!
//! If all workers together want more memory than there is, a worker that needs a page swaps out some of its own, and
//! reads them again when it reaches them. A bogo operation is a mebibyte rewritten.

use bursar_rig::timer::Timers;

use super::scene::{FAULT_PAGES, GATHER_PAGES, Log, Scene};
use super::swap::{READ_PAGES, RECLAIM_PAGES};
use crate::page_allocators::Lists;
use crate::random::Random;

const ROLE: u64 = 2;
const OPERATION_PAGES: f64 = 256.0;

pub(super) fn stress<M: Timers, S: Lists<M>>(scene: &Scene<'_, M, S>, index: u64, log: &mut Log) {
    let mut worker = Worker {
        scene,
        random: scene.random(ROLE, index),
        pages: Vec::new(),
        swapped: 0,
        slept_ns: 0,
        has_reclaimed: false,
        log,
    };
    let machine = scene.machine;
    let began_ns = machine.now_ns();
    let waits = machine.lock_waits();
    // The first time with a part of its memory, so that workers are not all at the same point: they were not after a minute.
    let all = scene.parameters.worker_pages();
    let mut part = worker.random.below(all) + 1;
    while !scene.is_over(machine.now_ns()) {
        worker.cycle(part);
        part = all;
    }
    let off_ns =
        machine.run_queue_ns() + machine.lock_waits().since(waits).sleep_ns + worker.slept_ns;
    worker.log.cpu_ns = (machine.now_ns() - began_ns).saturating_sub(off_ns);
}

struct Worker<'a, 'b, M: Timers, S: Lists<M>> {
    scene: &'a Scene<'b, M, S>,
    random: Random,
    /// Resident pages.
    pages: Vec<S::Page>,
    /// Pages in swap.
    swapped: u64,
    slept_ns: u64,
    /// Whether it has announced reclaim and not yet withdrawn that.
    has_reclaimed: bool,
    log: &'a mut Log,
}

impl<M: Timers, S: Lists<M>> Worker<'_, '_, M, S> {
    /// Goes once from mapping to unmapping, or until the load is over.
    fn cycle(&mut self, all: u64) {
        let scene = self.scene;
        while self.mapped() < all && !scene.is_over(scene.machine.now_ns()) {
            let more = (all - self.mapped()).min(FAULT_PAGES as u64);
            self.bring_in(more);
        }
        for _ in 0..scene.parameters.rewrites {
            if !self.rewrite() {
                break;
            }
        }
        let began_ns = scene.machine.now_ns();
        scene.unmap(std::mem::take(&mut self.pages));
        self.log.frees_ns.push(scene.machine.now_ns() - began_ns);
        self.swapped = 0;
        if self.has_reclaimed {
            self.has_reclaimed = false;
            scene.subject.set_reclaim(false);
        }
    }

    fn mapped(&self) -> u64 {
        self.pages.len() as u64 + self.swapped
    }

    /// Writes to all pages; `false` if the load ends before.
    fn rewrite(&mut self) -> bool {
        let scene = self.scene;
        let all = self.mapped();
        let mut done = 0;
        // Pages in swap that are due, in parts of `all`.
        let mut due = 0;
        while done < all {
            if scene.is_over(scene.machine.now_ns()) {
                return false;
            }
            let some = (all - done).min(GATHER_PAGES as u64);
            due += some * self.swapped;
            while due >= READ_PAGES * all && self.swapped >= READ_PAGES {
                due -= READ_PAGES * all;
                self.read_from_swap();
            }
            let resident = self.pages.len();
            let from = (done as usize).min(resident);
            let to = (from + some as usize).min(resident);
            scene.touch(&mut self.pages[from..to], scene.parameters.rewrite_ns);
            done += some;
            self.log.done += some as f64 / OPERATION_PAGES;
        }
        true
    }

    fn read_from_swap(&mut self) {
        let machine = self.scene.machine;
        let began_ns = machine.now_ns();
        machine.sleep_until(began_ns + self.scene.parameters.swap_io_ns);
        self.slept_ns += machine.now_ns() - began_ns;
        let came = self.bring_in(READ_PAGES);
        self.swapped = self.swapped.saturating_sub(came);
    }

    /// Faults pages in, and makes room first if there is none. Returns how many were faulted in.
    fn bring_in(&mut self, pages: u64) -> u64 {
        let scene = self.scene;
        let free_pages = scene.subject.about_free_pages();
        if scene.marks.is_short_of(pages, free_pages) {
            self.reclaim();
        } else if self.has_reclaimed && scene.marks.is_calm(free_pages) {
            self.has_reclaimed = false;
            scene.subject.set_reclaim(false);
        }
        let before = self.pages.len();
        scene.map(pages, &mut self.pages);
        let came = (self.pages.len() - before) as u64;
        if came == 0 {
            // All that is free is in lists, or between.
            self.reclaim();
            scene.subject.drain_all();
        }
        came
    }

    /// Swaps some of its own pages out. A worker without pages waits until others have swapped.
    fn reclaim(&mut self) {
        let scene = self.scene;
        self.has_reclaimed = true;
        scene.subject.set_reclaim(true);
        if self.pages.is_empty() {
            let began_ns = scene.machine.now_ns();
            scene
                .machine
                .sleep_until(began_ns + scene.parameters.swap_io_ns);
            self.slept_ns += scene.machine.now_ns() - began_ns;
            return;
        }
        let mut gone = Vec::new();
        while gone.len() < RECLAIM_PAGES && !self.pages.is_empty() {
            let at = self.random.below(self.pages.len() as u64) as usize;
            gone.push(self.pages.swap_remove(at));
        }
        let count = gone.len() as u64;
        scene.unmap(gone);
        self.swapped += count;
        self.log.swapped_out += count;
    }
}
