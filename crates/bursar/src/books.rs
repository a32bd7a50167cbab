//! All that one memory keeps: its groups with their counters, and its pages.

use std::ops::Deref;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};

use bursar_machine::pages::ReserveError;
use bursar_machine::{Lock, Machine, Shard};

use crate::charge::Ledger;
use crate::pages::{PageOptions, Zone, Zones};
use crate::stats::ROOT;

/// The books of one memory. Zones are set up when the first page is asked for, or when the memory is built.
pub(crate) struct Books<M: Machine> {
    // First: what the fast paths use lies where it lay without pages.
    ledger: Ledger<M>,
    zones: OnceLock<Zones<M>>,
    /// The root's, for pages that no group pays for.
    pub(crate) root_slot: M::Slot,
    options: PageOptions,
    scrubs: AtomicBool,
    /// CPUs whose lists nobody looks after, by number. Plain words: nobody's protocol rests on them.
    left_alone: Box<[AtomicBool]>,
    /// One sets the zones up.
    setup: M::Mutex<()>,
}

impl<M: Machine> Deref for Books<M> {
    type Target = Ledger<M>;
    #[inline(always)]
    fn deref(&self) -> &Ledger<M> {
        &self.ledger
    }
}

impl<M: Machine> Books<M> {
    pub(crate) fn new(ledger: Ledger<M>, options: PageOptions) -> Self {
        Self {
            root_slot: ledger.tree.node(ROOT).slot.clone(),
            left_alone: (0..ledger.tree.machine.cpus())
                .map(|_| AtomicBool::new(false))
                .collect(),
            ledger,
            zones: OnceLock::new(),
            options,
            scrubs: AtomicBool::new(false),
            setup: M::Mutex::new(()),
        }
    }

    /// The zones, if there are any yet.
    #[inline(always)]
    pub(crate) fn zones(&self) -> Option<&Zones<M>> {
        self.zones.get()
    }

    pub(crate) fn page_options(&self) -> &PageOptions {
        &self.options
    }

    /// A zone that pages come from.
    #[inline(always)]
    pub(crate) fn zone(&self, number: u16) -> &Zone<M> {
        self.zones
            .get()
            .expect("pages come from zones")
            .zone(number)
    }

    /// Looks from now on whether a group's pages are to be zeroed when they are freed.
    pub(crate) fn scrub_from_now_on(&self) {
        // Relaxed: whoever frees later has heard of it from whoever asked for it.
        self.scrubs.store(true, Ordering::Relaxed);
    }

    /// Whether any group's pages are to be zeroed when they are freed.
    #[inline(always)]
    pub(crate) fn scrubs(&self) -> bool {
        self.scrubs.load(Ordering::Relaxed)
    }

    /// Leaves a CPU's lists alone from now on.
    pub(crate) fn leave_alone(&self, cpu: u32) {
        // Relaxed, here and below: a period sooner or later.
        self.left_alone[cpu as usize].store(true, Ordering::Relaxed);
    }

    /// Whether a CPU's lists are left alone.
    pub(crate) fn is_left_alone(&self, shard: Shard) -> bool {
        let cpu = self.left_alone.get(shard.index());
        cpu.is_some_and(|is| is.load(Ordering::Relaxed))
    }

    /// The zones, set up if need be.
    #[cold]
    pub(crate) fn set_up_zones(&self) -> Result<&Zones<M>, ReserveError> {
        let _one = self.setup.lock();
        if let Some(zones) = self.zones.get() {
            return Ok(zones);
        }
        let machine = &self.ledger.tree.machine;
        let zones = Zones::new(machine, self.options.clone())?;
        Ok(self.zones.get_or_init(|| zones))
    }
}
