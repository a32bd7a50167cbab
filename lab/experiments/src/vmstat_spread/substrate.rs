//! The data that upkeep maintains and loads change: small counters, page lists, or a lock.

use bursar_kernel::pages::{Measured, PageLists, Release, Settings, Stops};
use bursar_kernel::upkeep::{SmallCounters, Upkeep, threshold};
use bursar_machine::{Lock, Shard};
use bursar_rig::timer::Timers;

use super::parameters::{Parameters, Work};
use super::record::Record;

/// Number of items that the kernel counts: of a zone and of a node.
pub(super) const COUNTERS: usize = 10 + 45;

/// Items that a fault changes. Other events change the others.
pub(super) mod counter {
    pub(in super::super) const FREE_PAGES: usize = 0;
    pub(in super::super) const ZONE_LRU: usize = 1;
    pub(in super::super) const PAGE_TABLES: usize = 2;
    pub(in super::super) const NODE_LRU: usize = 3;
    pub(in super::super) const ANON_MAPPED: usize = 4;
    /// The first of the others.
    pub(in super::super) const OTHER: usize = 5;
}

/// All data that upkeep touches.
pub(super) struct Substrate<'a, M: Timers> {
    pub(super) machine: M,
    pub(super) counters: SmallCounters<M>,
    pub(super) lists: PageLists<M>,
    lock: M::Spin<u64>,
    work: Work,
    lock_hold_ns: u64,
    fold_ns: u64,
    record: &'a Record,
}

/// Number of pages, and how many of them the tasks may have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Room {
    /// Pages of the zone that really exists.
    pub(super) pages: u64,
    /// Above this, memory is reclaimed.
    pub(super) for_tasks: u64,
}

impl Room {
    /// If the machine's memory holds all that the tasks map, the zone has that and the pages that lists keep. Otherwise
    /// it has the machine's memory, scaled down as the load is.
    pub(super) fn new(parameters: &Parameters, cpus: usize, high_watermark_pages: u64) -> Self {
        let mapped = parameters.pages_of_task(cpus) * cpus as u64;
        let memory = parameters.memory_pages() / parameters.scale;
        // Lists keep no more than was freed, and what came from the zone in a refill.
        let lists = mapped + cpus as u64 * LISTED_PAGES;
        let needed = mapped + lists + high_watermark_pages;
        Self {
            pages: needed.min(memory),
            for_tasks: memory.saturating_sub(high_watermark_pages / parameters.scale),
        }
    }
}

/// Greatest number of pages in a CPU's lists besides those freed to them.
const LISTED_PAGES: u64 = 4_096;

impl<'a, M: Timers> Substrate<'a, M> {
    /// Makes the substrate. Sizes of lists follow from all the memory that the machine is said to have.
    ///
    /// # Errors
    /// If there is no room.
    pub(super) fn new(
        machine: &M,
        parameters: &Parameters,
        record: &'a Record,
    ) -> Result<(Self, Room), String> {
        let cpus = machine.cpus();
        let nominal = Settings::of(parameters.memory_pages(), cpus, Release::Batched);
        let room = Room::new(parameters, cpus, nominal.high_watermark_pages);
        let is_short = room.pages < parameters.pages_of_task(cpus) * cpus as u64;
        let settings = Settings {
            pages: room.pages,
            high_watermark_pages: match is_short {
                true => nominal.high_watermark_pages / parameters.scale,
                false => nominal.high_watermark_pages.min(room.pages / 2),
            },
            zone_page_ns: parameters.zone_page_ns,
            stops: Stops {
                every_ns: parameters.stop_interval_us * 1_000,
                for_ns: parameters.stop_us * 1_000,
                seed: parameters.seed,
            },
            measured: Measured::Holds,
            ..nominal
        };
        let lists = PageLists::new(machine, settings).map_err(|error| error.to_string())?;
        let threshold = threshold(cpus, parameters.memory_pages());
        let counters =
            SmallCounters::new(machine, COUNTERS, threshold).map_err(|error| error.to_string())?;
        let substrate = Self {
            machine: machine.clone(),
            counters,
            lists,
            lock: M::Spin::new(0),
            work: parameters.work,
            lock_hold_ns: parameters.lock_hold_ns,
            fold_ns: parameters.fold_ns,
            record,
        };
        Ok((substrate, room))
    }
}

impl<M: Timers> Upkeep for Substrate<'_, M> {
    fn needs(&self, shard: Shard) -> bool {
        match self.work {
            Work::Vmstat => self.counters.needs_fold(shard),
            Work::Lock => true,
        }
    }

    fn fold(&self, shard: Shard) -> bool {
        // The look at all items, and what tracing a call costs.
        self.machine.compute(self.fold_ns);
        match self.work {
            Work::Vmstat => self.counters.fold(shard) > 0,
            Work::Lock => false,
        }
    }

    fn pages(&self, shard: Shard) -> bool {
        match self.work {
            Work::Vmstat => {
                let waited_ns = self.lists.upkeep_waited_ns(shard);
                let began_ns = self.machine.now_ns();
                let is_left = self.lists.decay(shard);
                let span_ns = self.machine.now_ns() - began_ns;
                let waited_ns = self.lists.upkeep_waited_ns(shard) - waited_ns;
                self.record.note_pages(shard, span_ns, waited_ns);
                is_left
            }
            Work::Lock => {
                let began_ns = self.machine.now_ns();
                let mut held = self.lock.lock();
                let got_ns = self.machine.now_ns();
                *held += 1;
                self.machine.compute(self.lock_hold_ns);
                drop(held);
                let ended_ns = self.machine.now_ns();
                let waited_ns = got_ns - began_ns;
                self.record
                    .note_pages(shard, ended_ns - began_ns, waited_ns);
                true
            }
        }
    }
}
