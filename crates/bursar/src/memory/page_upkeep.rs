//! Upkeep of a memory's pages, CPU by CPU at different times.

use bursar_machine::{Machine, Shard};

use super::Memory;
use crate::housekeeping::{HousekeepingError, Options, Timetable, Upkeep, Upkeeper};
use crate::react::{Core, fork};

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
    /// Makes the upkeep of this memory's page lists, which looks after each CPU at a different time. [`Memory::tick`] alone does
    /// all of them in one call. Nothing happens until the [`Upkeeper`] is ticked or started.
    ///
    /// [`Memory::tick`] is still needed: it flushes, frees records and wakes tasks. It skips page lists that were looked after
    /// since its last call. Give `options` the interval of [`PageOptions::decay_period`]: a shorter one makes nothing
    /// decay faster.
    ///
    /// The lists of isolated CPUs are left alone from now on, for as long as the memory lives, also by [`Memory::tick`]: an
    /// isolated CPU should see no fence. An allocation that finds no page anywhere still empties all lists.
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
            core: self.core.clone(),
        };
        let upkeep: Box<dyn Upkeep> = Box::new(of_pages);
        let upkeeper = Upkeeper::new(self.machine(), upkeep, options)?;
        isolated
            .into_iter()
            .for_each(|cpu| self.core.pages.leave_alone(cpu));
        Ok(upkeeper)
    }
}
