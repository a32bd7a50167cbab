//! The data that upkeep maintains and loads change: small counters, page lists, or a lock.

use std::ops::Range;

use bursar_kernel::pages::{Measured, Release, Settings};
use bursar_kernel::upkeep::{SmallCounters, Upkeep, threshold};
use bursar_machine::{Lock, Shard};
use bursar_rig::timer::Timers;

use super::parameters::{Parameters, Work};
use super::record::Record;
use super::zones::{Zones, lower_pages, reserved_pages};

/// Number of items that the kernel counts for each zone.
const OF_ZONE: usize = 10;
/// Items of the three zones: `Normal` first. No task changes those of the others, which seldom have pages to give.
const ZONES: Range<usize> = 0..3 * OF_ZONE;
/// Items of the node, which upkeep folds after the page lists.
const NODE: Range<usize> = ZONES.end..ZONES.end + 45;
/// Number of all items.
pub(super) const COUNTERS: usize = NODE.end;

/// Items that a fault changes. Other events change the others.
pub(super) mod counter {
    pub(in super::super) const FREE_PAGES: usize = 0;
    pub(in super::super) const ZONE_LRU: usize = 1;
    pub(in super::super) const PAGE_TABLES: usize = super::NODE.start;
    pub(in super::super) const NODE_LRU: usize = super::NODE.start + 1;
    pub(in super::super) const ANON_MAPPED: usize = super::NODE.start + 2;
    /// The first of the others, which are the node's.
    pub(in super::super) const OTHER: usize = super::NODE.start + 3;
}

/// All data that upkeep touches.
pub(super) struct Substrate<'a, M: Timers> {
    pub(super) machine: M,
    pub(super) counters: SmallCounters<M>,
    pub(super) zones: Zones<M>,
    lock: M::Spin<u64>,
    work: Work,
    lock_hold_ns: u64,
    fold_ns: u64,
    record: &'a Record,
}

/// Number of pages, and how many of them the tasks may have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Room {
    /// Pages of `Normal` that really exist.
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
        let normal = memory.saturating_sub(lower_pages(parameters.scale)).max(1);
        // Lower zones keep the one from tasks, and reclaim begins below the other.
        let kept =
            reserved_pages(normal, parameters.scale) + high_watermark_pages / parameters.scale;
        Self {
            pages: needed.min(normal),
            for_tasks: memory.saturating_sub(kept),
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
        let of = |pages| Settings::of(pages, cpus, Release::Batched);
        let nominal = of(parameters.normal_pages());
        let room = Room::new(parameters, cpus, nominal.high_watermark_pages);
        let is_short = room.pages < parameters.pages_of_task(cpus) * cpus as u64;
        let settings = Settings {
            pages: room.pages,
            high_watermark_pages: match is_short {
                true => nominal.high_watermark_pages / parameters.scale,
                false => nominal.high_watermark_pages.min(room.pages / 2),
            },
            zone_page_ns: parameters.zone_page_ns,
            measured: Measured::Holds,
            ..nominal
        };
        let lower = |pages| Settings {
            zone_page_ns: parameters.zone_page_ns,
            ..of(pages)
        };
        let zones = Zones::new(machine, settings, parameters.scale, lower)?;
        let threshold = threshold(cpus, parameters.normal_pages());
        let counters =
            SmallCounters::new(machine, COUNTERS, threshold).map_err(|error| error.to_string())?;
        let substrate = Self {
            machine: machine.clone(),
            counters,
            zones,
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
            Work::Vmstat => self.counters.fold_some(shard, ZONES) > 0,
            Work::Lock => false,
        }
    }

    fn pages(&self, shard: Shard) -> bool {
        match self.work {
            Work::Vmstat => {
                let waited_ns = self.zones.upkeep_waited_ns(shard);
                let began_ns = self.machine.now_ns();
                let is_left = self.zones.decay(shard);
                let span_ns = self.machine.now_ns() - began_ns;
                let waited_ns = self.zones.upkeep_waited_ns(shard) - waited_ns;
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

    fn fold_rest(&self, shard: Shard) -> bool {
        self.work == Work::Vmstat && self.counters.fold_some(shard, NODE) > 0
    }
}
