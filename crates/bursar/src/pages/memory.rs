//! Calls of a memory that are about its pages.

use std::time::Duration;

use bursar_machine::pages::{Order, Pfn};
use bursar_machine::{Machine, Shard};

use super::error::{AllocPagesError, ClaimError};
use super::page::{Page, Tag, UNCHARGED};
use super::raw::{self, Claim};
use super::request::get_block;
use crate::housekeeping::{HousekeepingError, Options, Timetable, Upkeep, Upkeeper};
use crate::limit::PROCESS;
use crate::memory::Memory;
use crate::react::{Core, fork};
use crate::zones::{Stuck, Zeroed, Zone, ZoneInfo, Zones};

/// Upkeep of the page lists of one memory.
struct OfPages<M: Machine> {
    core: M::Shared<Core<M>>,
}

impl<M: Machine> OfPages<M> {
    /// Whether a shard stands for what belongs to no CPU.
    fn is_rest(&self, shard: Shard) -> bool {
        shard == self.core.tree().extra()
    }
}

impl<M: Machine> Upkeep for OfPages<M> {
    fn needs(&self, shard: Shard) -> bool {
        // Memory that lies in the depot is on no list.
        let zones = self.core.pages.zones();
        zones.is_some_and(|zones| self.is_rest(shard) || zones.has_work(shard))
    }

    fn run(&self, shard: Shard) -> bool {
        let _operation = fork::operation(&self.core);
        let Some(zones) = self.core.pages.zones() else {
            return false;
        };
        let left = zones.tick_cpu(shard);
        if self.is_rest(shard) {
            zones.tick_rest();
        }
        left
    }
}

impl<M: Machine> Memory<M> {
    /// Allocates 2^order pages for the process itself, which no group is charged for.
    ///
    /// # Errors
    /// [`AllocPagesError`].
    #[inline(always)]
    pub fn alloc_pages(&self, order: Order, zeroed: Zeroed) -> Result<Page<M>, AllocPagesError> {
        match get_block(self.core(), order, PROCESS, zeroed) {
            Ok((zone, block)) => Ok(Page {
                core: self.core().clone(),
                slot: self.core().pages.root_slot.clone(),
                block: Some(block),
                tag: Tag::new(UNCHARGED, zone, order, zeroed),
            }),
            Err(error) => Err(*error),
        }
    }

    /// Contents of the zones, and counts of their events; `None` before the zones are set up by the first allocation.
    #[doc(alias = "/proc/zoneinfo")]
    pub fn zone_info(&self) -> Option<ZoneInfo> {
        let _operation = fork::operation(self.core());
        self.core().pages.zones().map(Zones::info)
    }

    /// Approximate number of free pages in the zones; excludes per-CPU lists and the depot. Never blocks.
    #[doc(alias = "NR_FREE_PAGES")]
    pub fn free_pages(&self) -> u64 {
        let zones = self.core().pages.zones();
        zones.map_or(0, |zones| zones.free_and_reserve().0)
    }

    /// Empties the lists of all CPUs and the depot into the zones, so that neighbours join. Returns the number of
    /// blocks.
    ///
    /// The lists fill again as they are used.
    #[doc(alias = "drain_all_pages")]
    pub fn drain_pages(&self) -> u64 {
        let _operation = fork::operation(self.core());
        let zones = self.core().pages.zones();
        zones.map_or(0, |zones| zones.iter().map(Zone::drain_all).sum())
    }

    /// Locks of pages that have been held for at least `threshold`, with their holders; normally none.
    ///
    /// Takes no lock. Call it from a timer.
    #[doc(alias = "softlockup")]
    pub fn stuck(&self, threshold: Duration) -> Vec<Stuck> {
        let threshold_ns = u64::try_from(threshold.as_nanos()).unwrap_or(u64::MAX);
        let zones = self.core().pages.zones();
        zones.map_or(Vec::new(), |zones| zones.stuck(threshold_ns))
    }

    /// Reservations that pages come from, by node; none before the first page is requested.
    pub fn frames(&self) -> impl Iterator<Item = &M::Frames> {
        let zones = self.core().pages.zones().into_iter().flat_map(Zones::iter);
        zones.map(|zone| &zone.frames)
    }

    /// Raw block that contains a page, by its first page. Explains an address that [`Memory::claim`] refuses. Another
    /// task may have claimed the block by the time the caller looks.
    pub fn raw_block(&self, pfn: Pfn) -> Option<(Pfn, Order)> {
        self.core().pages.zones()?.table.around(pfn)
    }

    /// Claims a block that [`Page::into_block`] gave out.
    ///
    /// # Errors
    /// [`ClaimError`]: a double free, or not such a block. Nothing changes then.
    pub fn claim(&self, pfn: Pfn) -> Result<Claim, ClaimError> {
        raw::claim(self.core(), pfn)
    }

    /// Makes the upkeep of this memory's page lists, which looks after each CPU at a different time. [`Memory::tick`] alone does
    /// all of them in one call. Nothing happens until the [`Upkeeper`] is ticked or started.
    ///
    /// [`Memory::tick`] is still needed: it flushes, frees records and wakes tasks. It skips page lists that were looked after
    /// since its last call. Give `options` the interval of [`PageOptions::decay_period`]: a shorter one makes nothing
    /// decay faster.
    ///
    /// The lists of isolated CPUs are left alone from now on, for as long as the memory lives, also by [`Memory::tick`]. So
    /// no fence is made for them. A fence for the list of another CPU still interrupts each CPU that runs the process. An allocation that finds
    /// no page anywhere still empties all lists.
    ///
    /// ```
    /// use std::time::Duration;
    ///
    /// use bursar::Memory;
    /// use bursar::housekeeping::Options;
    ///
    /// let memory = Memory::host()?;
    /// let options = Options::every(Duration::from_secs(1));
    /// let threads = memory.housekeeping(options)?.start(1)?;
    /// # drop(threads);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// [`HousekeepingError`] if the options contradict themselves or this machine.
    ///
    /// [`PageOptions::decay_period`]: crate::pages::PageOptions::decay_period
    pub fn housekeeping<T: Timetable>(
        &self,
        options: Options<T>,
    ) -> Result<Upkeeper<M, Box<dyn Upkeep>, T>, HousekeepingError> {
        let isolated = options.isolated.clone();
        let of_pages: OfPages<M> = OfPages {
            core: self.core().clone(),
        };
        let upkeep: Box<dyn Upkeep> = Box::new(of_pages);
        let upkeeper = Upkeeper::new(self.machine(), upkeep, options)?;
        isolated
            .into_iter()
            .for_each(|cpu| self.core().pages.leave_alone(cpu));
        Ok(upkeeper)
    }
}

#[cfg(test)]
mod tests {
    use bursar_machine::Host;

    use super::*;

    #[test]
    fn upkeep_of_pages_waits_for_the_first_page() {
        let memory = Memory::host().unwrap();
        let upkeep = OfPages::<Host> {
            core: *memory.core(),
        };
        let rest = memory.core().tree().extra();
        let is_rest = [Shard(0), rest].map(|shard| upkeep.is_rest(shard));
        assert_eq!(is_rest, [false, true]);
        assert!(!upkeep.needs(rest) && !upkeep.needs(Shard(0)));
        assert_eq!((memory.free_pages(), memory.drain_pages()), (0, 0));
        drop(memory.alloc_pages(Order::ZERO, Zeroed::No).unwrap());
        assert!(upkeep.needs(rest));
    }
}
