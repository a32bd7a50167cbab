//! The zones of one memory, set up at the first request for a page that needs them.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};

use bursar_machine::pages::ReserveError;
use bursar_machine::{Lock, Machine, Shard};

use super::alloc::Begun;
use super::{PageOptions, Zone, Zones};
use crate::room;
use crate::tree::{ROOT, Tree};

/// Zones, and the settings of pages.
// The zones first: see `Core`.
#[repr(C)]
pub(crate) struct Pool<M: Machine> {
    zones: OnceLock<Zones<M>>,
    /// The root's slot, for pages that no group pays for.
    pub(crate) root_slot: M::Slot,
    options: PageOptions,
    scrubs: AtomicBool,
    /// CPUs whose lists get no upkeep, by number. Plain words: no protocol depends on them.
    left_alone: Box<[AtomicBool]>,
    /// Lets one task set up the zones, and keeps those that a set-up made before it failed.
    setup: M::Mutex<Begun<M>>,
}

impl<M: Machine> Pool<M> {
    /// `None` if there is no memory for it.
    pub(crate) fn new(tree: &Tree<M>, options: PageOptions) -> Option<Self> {
        Some(Self {
            zones: OnceLock::new(),
            root_slot: tree.node(ROOT).slot.clone(),
            options,
            scrubs: AtomicBool::new(false),
            left_alone: room::boxed(tree.machine.cpus(), || AtomicBool::new(false))?,
            setup: M::Mutex::new(Begun::nothing()),
        })
    }

    /// Zones, if they are set up.
    #[inline(always)]
    pub(crate) fn zones(&self) -> Option<&Zones<M>> {
        self.zones.get()
    }

    pub(crate) fn options(&self) -> &PageOptions {
        &self.options
    }

    /// Zone with a number that a page gave.
    #[inline(always)]
    pub(crate) fn zone(&self, number: u16) -> &Zone<M> {
        let zones = self.zones.get().expect("pages come from zones");
        zones.zone(number)
    }

    /// From now on, each free looks whether its group's pages must be zeroed.
    pub(crate) fn scrub_from_now_on(&self) {
        // Relaxed: a task that frees for a group that must be zeroed has synchronised with the call that asked for it.
        self.scrubs.store(true, Ordering::Relaxed);
    }

    /// Returns whether any group's pages must be zeroed when they are freed.
    #[inline(always)]
    pub(crate) fn scrubs(&self) -> bool {
        self.scrubs.load(Ordering::Relaxed)
    }

    /// Leaves a CPU's lists without upkeep from now on.
    pub(crate) fn leave_alone(&self, cpu: u32) {
        // Relaxed, here and below: a period sooner or later does not matter.
        self.left_alone[cpu as usize].store(true, Ordering::Relaxed);
    }

    /// Returns whether a CPU's lists get no upkeep.
    pub(crate) fn is_left_alone(&self, shard: Shard) -> bool {
        let cpu = self.left_alone.get(shard.index());
        cpu.is_some_and(|is| is.load(Ordering::Relaxed))
    }

    /// Zones, set up if necessary.
    #[cold]
    pub(crate) fn set_up(&self, machine: &M) -> Result<&Zones<M>, ReserveError> {
        let mut begun = self.setup.lock();
        if let Some(zones) = self.zones.get() {
            return Ok(zones);
        }
        let zones = Zones::new(machine, self.options.clone(), &mut begun)?;
        Ok(self.zones.get_or_init(|| zones))
    }
}

#[cfg(test)]
mod tests {
    use bursar_machine::pages::Order;

    use super::super::Zeroed;
    use super::super::refusing::Refusing;
    use super::*;
    use crate::Memory;

    #[test]
    fn a_set_up_that_failed_goes_on_where_it_stopped() {
        let (machine, refusals) = Refusing::new(2);
        let pages = PageOptions {
            bytes_per_node: Some(16 << 20),
            ..PageOptions::default()
        };
        let memory = Memory::builder().pages(pages).build_on(machine).unwrap();
        let try_one = || memory.alloc_pages(Order::ZERO, Zeroed::No).map(drop);
        let reserved = || refusals.reserved.load(Ordering::Relaxed);
        refusals.node.store(1, Ordering::Relaxed);
        assert!((0..3).all(|_| try_one().is_err()));
        assert_eq!(reserved(), 1, "node 0 once");
        refusals.node.store(usize::MAX, Ordering::Relaxed);
        refusals.stacks.store(true, Ordering::Relaxed);
        assert!((0..3).all(|_| try_one().is_err()));
        assert_eq!(reserved(), 2, "node 1 once");
        refusals.stacks.store(false, Ordering::Relaxed);
        assert_eq!(try_one(), Ok(()));
        assert_eq!(reserved(), 2);
        let zones = memory.zone_info().unwrap().zones;
        let nodes: Vec<_> = zones.iter().map(|zone| (zone.node, zone.managed)).collect();
        assert_eq!(nodes, [(0, 4_096), (1, 4_096)]);
    }

    #[test]
    fn pages_are_scrubbed_from_the_first_request_on() {
        let memory = Memory::builder().build().unwrap();
        let pool = &memory.core().pages;
        assert!(!pool.scrubs());
        pool.scrub_from_now_on();
        assert!(pool.scrubs());
    }
}
