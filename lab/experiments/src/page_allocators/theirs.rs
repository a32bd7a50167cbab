//! The thread's policies.

use bursar_kernel::pages::{PageLists, Reclaim, Settings};
use bursar_machine::pages::{Block, Frames, Order};
use bursar_machine::{LockWaits, Shard};
use bursar_rig::timer::Timers;

use super::{Holds, Lists, OfCause, Waits};
use crate::measure::{Distribution, Unit};

/// Page lists of the thread's policies.
pub struct Theirs<M: Timers> {
    lists: PageLists<M>,
}

impl<M: Timers> Theirs<M> {
    /// Makes lists with all pages free.
    ///
    /// # Errors
    /// The machine's error if it cannot reserve them.
    pub fn new(machine: &M, settings: Settings) -> Result<Self, String> {
        let lists = PageLists::new(machine, settings).map_err(|error| error.to_string())?;
        Ok(Self { lists })
    }

    /// Returns the lists.
    pub fn lists(&self) -> &PageLists<M> {
        &self.lists
    }
}

impl<M: Timers> Lists<M> for Theirs<M> {
    type Page = Block;

    fn alloc(&self, count: usize, pages: &mut Vec<Block>) {
        let more = std::iter::from_fn(|| self.lists.alloc(Order::ZERO));
        pages.extend(more.take(count));
    }

    fn write(&self, page: &mut Block, mark: u8) -> bool {
        super::write_lines(self.lists.frames().uninit(page), mark)
    }

    fn free(&self, page: Block) {
        self.lists.free(page);
    }

    fn free_many(&self, pages: Vec<Block>) {
        self.lists.free_many(pages);
    }

    fn decay(&self, shard: Shard) -> bool {
        self.lists.decay(shard)
    }

    /// Takes no time.
    fn fill(&self, machine: &M, pages: u32) {
        for cpu in 0..machine.cpus() as u32 {
            self.lists.fill(Shard(cpu), pages);
        }
    }

    fn drain_all(&self) {
        self.lists.drain_all();
    }

    fn set_reclaim(&self, is_active: bool) {
        self.lists.set_reclaim(match is_active {
            true => Reclaim::Active,
            false => Reclaim::Idle,
        });
    }

    fn managed_pages(&self) -> u64 {
        self.lists.managed_pages()
    }

    fn about_free_pages(&self) -> u64 {
        self.lists.about_free_pages()
    }

    fn free_pages(&self) -> u64 {
        self.lists.zone_free_pages() + self.lists.all_listed_pages()
    }

    /// Allocations and frees never wait for the lists: they try the lock, and go to the zone if it is taken.
    fn waits(&self, waits: LockWaits) -> Waits {
        Waits {
            zone_ns: waits.all_ns(),
            list_ns: 0,
        }
    }

    fn holds(&self) -> Holds {
        let figures = self.lists.holds();
        Holds {
            holds: figures.holds,
            given_pages: Distribution::of_histogram(Unit::Count, &figures.given),
            held_ns: Distribution::of_histogram(Unit::Ns, &figures.held_ns),
            waited_ns: Distribution::of_histogram(Unit::Ns, &figures.waited_ns),
            by_cause: figures
                .by_cause
                .iter()
                .map(|of_cause| OfCause {
                    pages: Distribution::of_histogram(Unit::Count, &of_cause.pages),
                    waited_ns: Distribution::of_histogram(Unit::Ns, &of_cause.waited_ns),
                })
                .collect(),
        }
    }
}
