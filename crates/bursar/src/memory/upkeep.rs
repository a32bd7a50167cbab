//! Upkeep of a memory's pages CPU by CPU, instead of all in one moment.

use bursar_machine::{Machine, Shard};

use super::Memory;
use crate::books::Books;
use crate::housekeeping::{HousekeepingError, Options, Upkeep, Upkeeper};

/// Upkeep of the page lists of one memory.
struct OfPages<M: Machine> {
    books: M::Shared<Books<M>>,
}

impl<M: Machine> OfPages<M> {
    /// Whether a shard stands for what no CPU has of its own.
    fn is_rest(&self, shard: Shard) -> bool {
        shard == self.books.tree.extra()
    }
}

impl<M: Machine> Upkeep for OfPages<M> {
    fn needs(&self, shard: Shard) -> bool {
        // Memory that lies in the depot is on no list.
        let zones = self.books.zones();
        zones.is_some_and(|zones| self.is_rest(shard) || zones.has_work(shard))
    }

    fn fold(&self, _: Shard) -> bool {
        false
    }

    fn pages(&self, shard: Shard) -> bool {
        let _operation = self.books.operation();
        let Some(zones) = self.books.zones() else {
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
    /// Upkeep of this memory's page lists, CPU by CPU at times of their own, instead of all of them in one moment of
    /// [`Memory::tick`]. Nothing happens until the [`Upkeeper`] is ticked or started.
    ///
    /// [`Memory::tick`] stays what it is and is still needed: it flushes, frees records and tells those who watch. Of page lists it
    /// leaves out those that were looked after since, so nothing is done twice. Let `options` have the interval of
    /// [`PageOptions::decay_period`]: a shorter one makes nothing decay faster.
    ///
    /// The lists of isolated CPUs are left alone from now on, for as long as the memory lives, also by [`Memory::tick`]: whoever
    /// isolates a CPU wants no fence there. An allocation that finds no page anywhere still empties all lists.
    ///
    /// ```
    /// use bursar::Memory;
    /// use bursar::housekeeping::{Options, Period};
    ///
    /// let memory = Memory::host()?;
    /// let options = Options::new(Period::new(1_000_000_000, 1_000)?);
    /// let threads = memory.housekeeping(options)?.start(1)?;
    /// # drop(threads);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// [`HousekeepingError`], see there.
    ///
    /// [`PageOptions::decay_period`]: crate::pages::PageOptions::decay_period
    pub fn housekeeping(&self, options: Options) -> Result<Upkeeper<M>, HousekeepingError> {
        let isolated = options.isolated.clone();
        let of_pages: OfPages<M> = OfPages {
            books: self.books.clone(),
        };
        let upkeep: Box<dyn Upkeep> = Box::new(of_pages);
        let upkeeper = Upkeeper::new(self.machine(), upkeep, options)?;
        isolated
            .into_iter()
            .for_each(|cpu| self.books.leave_alone(cpu));
        Ok(upkeeper)
    }
}
