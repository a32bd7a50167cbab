//! Bursar.

use std::time::Duration;

use bursar::pages::{HoldBounds, Order, PageOptions, Watermarks, Zeroed};
use bursar::{Host, Memory, Page};
use bursar_machine::pages::PAGE_BYTES;
use bursar_machine::{LockWaits, Shard};
use bursar_rig::timer::{BoundTask, Timers};

use super::{Holds, Lists, Waits, of_histogram};
use crate::measure::Unit;

/// Greatest number of pages in a CPU's list.
const LIST_PAGES: u32 = 2_048;

/// Pages of a memory, not charged to any group, because the other subjects have no groups.
pub struct Own<M: Timers> {
    memory: Memory<M>,
    managed_pages: u64,
}

/// Sizes of a memory; all else is Bursar's default.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OwnSizes {
    /// Pages of the zone.
    pub pages: u64,
    /// Watermarks; none: by the memory's size.
    pub watermarks: Option<Watermarks>,
    /// Blocks moved under one hold, however long that takes; none: Bursar's own bounds, 63 blocks and 2 us.
    pub hold_blocks: Option<u32>,
    /// Interval between looks at idle lists.
    pub decay_period: Duration,
}

impl<M: Timers> Own<M> {
    /// Makes a memory with all pages free.
    ///
    /// # Errors
    /// The machine's error if it cannot reserve them.
    pub fn new(machine: &M, sizes: OwnSizes) -> Result<Self, String> {
        let options = PageOptions {
            bytes_per_node: Some(sizes.pages * PAGE_BYTES as u64 / machine.nodes() as u64),
            watermarks: sizes.watermarks,
            hold: match sizes.hold_blocks {
                None => HoldBounds::default(),
                Some(blocks) => HoldBounds {
                    blocks,
                    ns: u64::MAX,
                },
            },
            decay_period: sizes.decay_period,
            ..PageOptions::default()
        };
        let memory = Memory::<Host>::builder()
            .pages(options)
            .build_on(machine.clone())
            .map_err(|error| error.to_string())?;
        // The first page makes the zones.
        let page = memory.alloc_pages(Order::ZERO, Zeroed::No);
        drop(page.map_err(|error| error.to_string())?);
        let info = memory.zone_info().ok_or("no zones")?;
        let managed_pages = info.zones.iter().map(|zone| zone.managed).sum();
        Ok(Self {
            memory,
            managed_pages,
        })
    }

    /// Returns the memory.
    pub fn memory(&self) -> &Memory<M> {
        &self.memory
    }
}

impl<M: Timers> Lists<M> for Own<M> {
    type Page = Page<M>;

    fn alloc(&self, count: usize, pages: &mut Vec<Page<M>>) {
        let one = || self.memory.alloc_pages(Order::ZERO, Zeroed::No).ok();
        pages.extend(std::iter::from_fn(one).take(count));
    }

    fn write(&self, page: &mut Page<M>, mark: u8) -> bool {
        super::write_lines(page.uninit_mut(), mark)
    }

    fn free(&self, page: Page<M>) {
        drop(page);
    }

    fn free_many(&self, pages: Vec<Page<M>>) {
        Page::free_many(pages);
    }

    /// One CPU decays the lists of all idle CPUs; busy CPUs find their bounds lowered.
    fn decay(&self, shard: Shard) -> bool {
        if shard == Shard(0) {
            self.memory.tick();
        }
        true
    }

    /// Fills lists up to their greatest length of 2,048 pages.
    fn fill(&self, machine: &M, pages: u32) {
        let fill = |cpu: u32| -> BoundTask<'_> {
            let fill = move || {
                let mut held = Vec::new();
                self.alloc(pages.min(LIST_PAGES) as usize, &mut held);
                self.free_many(held);
            };
            (Some(cpu), Box::new(fill))
        };
        machine.run_bound((0..machine.cpus() as u32).map(fill).collect());
    }

    fn drain_all(&self) {
        self.memory.drain_pages();
    }

    /// Does nothing: lists are small enough to need no such state.
    fn set_reclaim(&self, _is_active: bool) {}

    fn managed_pages(&self) -> u64 {
        self.managed_pages
    }

    fn about_free_pages(&self) -> u64 {
        self.memory.free_pages()
    }

    fn free_pages(&self) -> u64 {
        let info = self.memory.zone_info();
        let zones = info.iter().flat_map(|info| &info.zones);
        zones.map(|zone| zone.managed - zone.in_use()).sum()
    }

    /// The zone's lock is a sleeping one, those of the depot spin.
    fn waits(&self, waits: LockWaits) -> Waits {
        Waits {
            zone_ns: waits.sleep_ns,
            list_ns: waits.spin_ns,
        }
    }

    fn holds(&self) -> Holds {
        let info = self.memory.zone_info();
        let zones: Vec<_> = info.iter().flat_map(|info| &info.zones).collect();
        let all = |histogram: fn(&bursar::pages::ZoneReport) -> &bursar::pages::Histogram| {
            zones.iter().map(|zone| histogram(zone)).collect::<Vec<_>>()
        };
        let mut waits = all(|zone| &zone.zone_waits);
        waits.extend(all(|zone| &zone.depot_waits));
        Holds {
            holds: zones.iter().map(|zone| zone.zone_holds.count()).sum(),
            given_pages: of_histogram(Unit::Count, &all(|zone| &zone.zone_given)),
            held_ns: of_histogram(Unit::Ns, &all(|zone| &zone.zone_holds)),
            waited_ns: of_histogram(Unit::Ns, &waits),
            by_cause: Vec::new(),
        }
    }
}
