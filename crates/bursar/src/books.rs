//! All that one memory keeps: its groups with their counters, and its pages.

use std::ops::Deref;
use std::sync::OnceLock;

use bursar_machine::Machine;
use bursar_machine::pages::ReserveError;

use crate::charge::Ledger;
use crate::pages::{PageOptions, Zones};

/// The books of one memory. Zones are set up when the first page is asked for, or when the memory is built.
pub(crate) struct Books<M: Machine> {
    // First: what the fast paths use lies where it lay without pages.
    ledger: Ledger<M>,
    zones: OnceLock<Zones<M>>,
    options: PageOptions,
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
        use bursar_machine::Lock;
        Self {
            ledger,
            zones: OnceLock::new(),
            options,
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

    /// The zones, set up if need be.
    #[cold]
    pub(crate) fn set_up_zones(&self) -> Result<&Zones<M>, ReserveError> {
        use bursar_machine::Lock;
        let _one = self.setup.lock();
        if let Some(zones) = self.zones.get() {
            return Ok(zones);
        }
        let machine = &self.ledger.tree.machine;
        let zones = Zones::new(machine, self.options.clone())?;
        Ok(self.zones.get_or_init(|| zones))
    }
}
