//! Tasks that keep the CPUs busy, or hardly busy: each is bound to its CPU.

use std::sync::atomic::{AtomicU64, Ordering};

use bursar_kernel::pages::Reclaim;
use bursar_kernel::upkeep::Housekeeping;
use bursar_machine::Shard;
use bursar_machine::pages::{Block, Order};
use bursar_rig::timer::{Timer, TimerKind, Timers};

use super::parameters::{Parameters, Tasks};
use super::record::{Call, Cause, Record, Spans};
use super::space::{Exchange, Phase, Space};
use super::substrate::{COUNTERS, Room, Substrate, counter};
use super::zones::Zones;
use crate::random::Random;

/// Pages that are put on the lists of reclaim at once.
#[doc(alias = "PAGEVEC_SIZE")]
const LRU_BATCH: u64 = 31;
/// Pages that are unmapped before their frames are freed together.
const UNMAP_BATCH: u64 = 512;
/// Pages that one page of page tables maps.
const TABLE_PAGES: u64 = 512;
/// Order of a huge page.
const HUGE: Order = Order::new(9);

/// State that a task shares with all others.
pub(super) struct Scene<'a, M: Timers> {
    pub(super) machine: &'a M,
    pub(super) parameters: &'a Parameters,
    pub(super) housekeeping: &'a Housekeeping<M, Substrate<'a, M>>,
    pub(super) record: &'a Record,
    pub(super) room: Room,
    /// Pages of all tasks. Not a word of the machine: the kernel reads its own counter.
    pub(super) resident_pages: &'a AtomicU64,
    pub(super) exchange: &'a Exchange<M>,
    /// Time from which the tasks' work counts, and their end.
    pub(super) span: (u64, u64),
}

impl<M: Timers> Clone for Scene<'_, M> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<M: Timers> Copy for Scene<'_, M> {}

/// Work of a task.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Done {
    /// Pages rewritten within the span.
    pub(super) pages: u64,
    /// Pages given up for others.
    pub(super) swapped: u64,
    /// Pages that could not be allocated.
    pub(super) refused: u64,
    /// Sum that it added to each counter.
    pub(super) added: [i64; COUNTERS],
}

impl Default for Done {
    fn default() -> Self {
        Self {
            pages: 0,
            swapped: 0,
            refused: 0,
            added: [0; COUNTERS],
        }
    }
}

struct Task<'a, M: Timers> {
    scene: Scene<'a, M>,
    shard: Shard,
    random: Random,
    space: Space<M>,
    idle_at_ns: u64,
    done: Done,
}

/// Runs the task of a CPU to its end.
pub(super) fn run<M: Timers>(scene: Scene<'_, M>, cpu: u32) -> Done {
    let now_ns = scene.machine.now_ns();
    let mut random = Random::fork(scene.parameters.seed, u64::from(cpu));
    let mut task = Task {
        scene,
        shard: Shard(cpu),
        space: Space::new(scene.parameters, scene.machine.cpus(), &mut random),
        random,
        idle_at_ns: now_ns,
        done: Done::default(),
    };
    task.idle_at_ns = now_ns + task.until_idle();
    task.change_others();
    match scene.parameters.tasks {
        Tasks::Busy => task.stress(),
        Tasks::Idle => task.doze(),
    }
    task.unmap();
    if cpu == 0
        && let Some(spare) = scene.exchange.take()
    {
        task.space = spare;
        task.unmap();
    }
    task.done
}

impl<M: Timers> Task<'_, M> {
    fn is_over(&self) -> bool {
        self.scene.machine.now_ns() >= self.scene.span.1
    }

    /// Works as `stress-ng --vm` does.
    fn stress(&mut self) {
        while !self.is_over() {
            self.space.phase = match self.space.phase {
                Phase::Unmap if self.space.pages == 0 => {
                    self.space.phase = self.first_pass();
                    self.migrate();
                    self.space.phase
                }
                Phase::Unmap => {
                    self.give_back(UNMAP_BATCH);
                    Phase::Unmap
                }
                Phase::Rewrite {
                    left,
                    in_pass,
                    missing,
                } if missing > 0 => {
                    let pages = self.fault_in(missing);
                    Phase::Rewrite {
                        left,
                        in_pass,
                        missing: missing - pages,
                    }
                }
                Phase::Rewrite { left: 0, .. } => Phase::Unmap,
                Phase::Rewrite {
                    left, in_pass: 0, ..
                } => self.next_pass(left),
                Phase::Rewrite { left, in_pass, .. } => {
                    let pages = self.rewrite(in_pass);
                    Phase::Rewrite {
                        left: left - pages,
                        in_pass: in_pass - pages,
                        missing: 0,
                    }
                }
            };
            self.idle_if_due();
        }
    }

    /// Maps everything anew, for a while: each of stress-ng's methods takes another time.
    fn first_pass(&mut self) -> Phase {
        let parameters = self.scene.parameters;
        let pass = parameters.pages_of_pass(self.scene.machine.cpus());
        let left = self.random.exponential(pass * parameters.rewrites);
        self.space.has_huge_pages = self.random.below(100) < parameters.huge_percent;
        Phase::Rewrite {
            left,
            in_pass: left.min(pass),
            missing: parameters.pages_of_task(self.scene.machine.cpus()),
        }
    }

    /// Returns to the first page. Pages given up meanwhile must be faulted in again.
    fn next_pass(&self, left: u64) -> Phase {
        let parameters = self.scene.parameters;
        let cpus = self.scene.machine.cpus();
        Phase::Rewrite {
            left,
            in_pass: left.min(parameters.pages_of_pass(cpus)),
            missing: parameters
                .pages_of_task(cpus)
                .saturating_sub(self.space.pages),
        }
    }

    /// Sleeps nearly always.
    fn doze(&mut self) {
        while !self.is_over() {
            let now_ns = self.scene.machine.now_ns();
            self.sleep(self.idle_at_ns.saturating_sub(now_ns));
            self.scene
                .machine
                .compute(self.scene.parameters.idle_sleep_us * 1_000);
            self.change_others();
            self.quiet();
            self.idle_at_ns = self.scene.machine.now_ns() + self.until_idle();
        }
    }

    /// Faults in some of the missing pages, as far as they can be allocated: a huge page, or a few pages. Returns how many were
    /// wanted.
    fn fault_in(&mut self, missing: u64) -> u64 {
        let huge_pages = u64::from(HUGE.pages());
        if self.space.has_huge_pages && missing >= huge_pages {
            self.make_room(huge_pages);
            if let Some(mut block) = self.zones().alloc(HUGE, 1).pop() {
                let memory = self.scene.machine.touch_page(block.pfn().0.into());
                self.zones().zero(&mut block);
                self.space.mapped.push_back((block, memory));
                self.mapped(huge_pages);
                return huge_pages;
            }
        }
        let pages = missing.min(LRU_BATCH);
        self.make_room(pages);
        let blocks = self.pages(pages as usize);
        let got = blocks.len() as u64;
        self.done.refused += pages - got;
        let memory = self.scene.machine.touch_pages(self.space.pages, got);
        self.space.mapped.extend(blocks.into_iter().zip(memory));
        self.mapped(got);
        pages
    }

    fn zones(&self) -> &Zones<M> {
        &self.scene.housekeeping.upkeep().zones
    }

    /// Counts pages that were faulted in.
    fn mapped(&mut self, pages: u64) {
        self.space.pages += pages;
        self.account(pages as i64);
        // Relaxed: a tally that orders nothing.
        self.scene
            .resident_pages
            .fetch_add(pages, Ordering::Relaxed);
    }

    /// Allocates so many pages, if need be from other CPUs' lists.
    fn pages(&self, count: usize) -> Vec<Block> {
        let zones = self.zones();
        let mut blocks = zones.alloc(Order::ZERO, count);
        if blocks.len() < count {
            zones.drain_all();
            blocks.extend(zones.alloc(Order::ZERO, count - blocks.len()));
        }
        blocks
    }

    /// Gives up the oldest pages if all tasks together have too many, as direct reclaim makes a task do.
    fn make_room(&mut self, pages: u64) {
        let Scene {
            room,
            resident_pages,
            parameters,
            housekeeping,
            ..
        } = self.scene;
        let resident = resident_pages.load(Ordering::Relaxed);
        if resident + pages <= room.for_tasks {
            return;
        }
        let zones = &housekeeping.upkeep().zones;
        zones.set_reclaim(Reclaim::Active);
        let given_up = self.give_back(pages);
        self.done.swapped += given_up;
        // Out, and in again later: the device's time, in which the CPU may be idle.
        self.quiet();
        self.sleep(2 * given_up * parameters.swap_page_ns);
        if resident_pages.load(Ordering::Relaxed) + pages <= room.for_tasks {
            zones.set_reclaim(Reclaim::Idle);
        }
    }

    /// Rewrites some of so many pages; returns how many.
    fn rewrite(&mut self, pages: u64) -> u64 {
        let Parameters {
            rewrite_page_ns: page_ns,
            preempt_us,
            ..
        } = *self.scene.parameters;
        let pages = pages.min((preempt_us * 1_000 / page_ns).max(1));
        self.scene.machine.compute(pages * page_ns);
        let now_ns = self.scene.machine.now_ns();
        if (self.scene.span.0..self.scene.span.1).contains(&now_ns) {
            self.done.pages += pages;
        }
        pages
    }

    fn unmap(&mut self) {
        while self.space.pages > 0 {
            self.give_back(UNMAP_BATCH);
        }
    }

    /// Gives up to so many of the oldest pages back, and the rest of the last huge page. Returns how many.
    fn give_back(&mut self, pages: u64) -> u64 {
        let mut given = 0;
        let mut blocks = Vec::new();
        while given < pages
            && let Some((block, memory)) = self.space.mapped.pop_front()
        {
            given += u64::from(block.order().pages());
            drop(memory);
            blocks.push(block);
        }
        self.zones().free_many(blocks);
        self.space.pages -= given;
        self.account(-(given as i64));
        // Relaxed: a tally that orders nothing.
        let resident = self.scene.resident_pages;
        resident.fetch_sub(given, Ordering::Relaxed);
        given
    }

    /// Counts pages that have come, or gone.
    fn account(&mut self, pages: i64) {
        self.add(counter::FREE_PAGES, -pages);
        self.add(counter::ZONE_LRU, pages);
        self.add(counter::NODE_LRU, pages);
        self.add(counter::ANON_MAPPED, pages);
        // One in so many: a page of page tables comes or goes.
        let before = self.space.pages as i64 - pages;
        let tables = |pages: i64| pages.div_euclid(TABLE_PAGES as i64);
        let after = tables(self.space.pages as i64) - tables(before);
        if after != 0 {
            self.add(counter::PAGE_TABLES, after);
        }
    }

    fn add(&mut self, counter: usize, delta: i64) {
        self.scene
            .housekeeping
            .upkeep()
            .counters
            .add(counter, delta);
        self.done.added[counter] += delta;
    }

    /// Changes the counters of a task that soon sleeps: it reads a file, or waits for a lock or a page.
    fn change_others(&mut self) {
        for _ in 0..self.scene.parameters.idle_counters {
            let others = (COUNTERS - counter::OTHER) as u64;
            let counter = counter::OTHER + self.random.below(others) as usize;
            let delta = if self.random.happens(2) { 1 } else { -1 };
            self.add(counter, delta);
        }
    }

    fn idle_if_due(&mut self) {
        if self.scene.machine.now_ns() < self.idle_at_ns {
            return;
        }
        self.change_others();
        self.quiet();
        let about_ns = self.scene.parameters.idle_sleep_us * 1_000;
        let asleep_ns = self.random.exponential(about_ns);
        self.sleep(asleep_ns);
        self.migrate();
        self.idle_at_ns = self.scene.machine.now_ns() + self.until_idle();
    }

    /// Lets the scheduler exchange the tasks of two CPUs now and then.
    fn migrate(&mut self) {
        if self.random.below(100) < self.scene.parameters.migrate_percent {
            self.scene.exchange.exchange(&mut self.space);
        }
    }

    /// Prepares the CPU for idling. As in the kernel, it folds only while upkeep is queued, and only if there is
    /// something to fold. The shepherd finds the rest.
    fn quiet(&self) {
        let Scene {
            machine,
            housekeeping,
            record,
            ..
        } = self.scene;
        if housekeeping.due(self.shard).is_none() {
            return;
        }
        let queued_ns = machine.run_queue_ns();
        let began_ns = machine.now_ns();
        let has_folded = housekeeping.quiet(self.shard);
        let ended_ns = machine.now_ns();
        if !has_folded {
            return;
        }
        // Records of upkeep of the same CPU that ran in between are its own: an idle entry has no page work.
        let spans = Spans {
            run_queue_ns: machine.run_queue_ns() - queued_ns,
            ..Spans::default()
        };
        let what = (self.shard.0, Cause::Idle, record.due(self.shard, began_ns));
        record.called(Call::new(what, (began_ns, ended_ns), spans));
    }

    fn sleep(&self, duration_ns: u64) {
        let machine = self.scene.machine;
        let deadline_ns = machine.now_ns() + duration_ns;
        machine.sleep_on_timer(Timer {
            kind: TimerKind::Exact,
            deadline_ns: deadline_ns.min(self.scene.span.1),
        });
    }

    fn until_idle(&mut self) -> u64 {
        let about_ns = self.scene.parameters.idle_entry_interval_ms * 1_000_000;
        self.random.exponential(about_ns)
    }
}
