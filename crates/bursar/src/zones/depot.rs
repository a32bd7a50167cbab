//! The depot: batches of blocks between the per-CPU lists and the buddy.
//!
//! A batch changes hands whole, by its pointer. So a hold takes the same time for any number of blocks. The lines that
//! list the blocks are read after the lock, by the thread that gets them. A few CPUs share a *shelf*. A thread that
//! finds a shelf locked tries the others before it waits. Full shelves take nothing; the rest goes to the buddy. An
//! empty shelf costs a look at one word.

use std::sync::atomic::{AtomicU64, Ordering};

use bursar_machine::pages::Block;
use bursar_machine::{Machine, Shard};

use super::histogram::Histogram;
use super::hold::{Hold, Holder, KnownLock, Timed, Work};
use crate::apart::Apart;

/// Blocks of one order that move together.
pub(super) type Batch = Vec<Block>;

/// Contents of a shelf: batches for each list, and empty ones to fill.
#[derive(Default)]
pub(super) struct Stored {
    batches: Vec<Vec<Batch>>,
    /// Single blocks that will make a batch.
    open: Vec<Batch>,
    spare: Vec<Batch>,
}

struct Shelf<M: Machine> {
    lock: KnownLock<M::Spin<Timed<Stored>>>,
    /// Number of blocks by list. Written under the lock; read without it as a hint where to look.
    blocks: Box<[AtomicU64]>,
}

/// Shelves of a zone.
pub(super) struct Depot<M: Machine> {
    shelves: Box<[Apart<Shelf<M>>]>,
    cpus_per_shelf: usize,
    batches_max: usize,
    /// Number of blocks in a batch, by list.
    sizes: Box<[usize]>,
}

type ShelfHold<'a, M> = Hold<'a, M, Stored, <M as Machine>::Spin<Timed<Stored>>>;

impl<M: Machine> Depot<M> {
    /// Makes an empty depot for batches of `sizes` blocks, one size for each list.
    pub(super) fn new(
        cpus: usize,
        cpus_per_shelf: usize,
        batches_max: usize,
        sizes: Box<[usize]>,
    ) -> Self {
        let shelf = || {
            Apart(Shelf {
                lock: KnownLock::new(Stored {
                    // Room for all that they ever hold, so that nothing is allocated under the lock.
                    batches: sizes
                        .iter()
                        .map(|_| Vec::with_capacity(batches_max))
                        .collect(),
                    open: sizes.iter().map(|&size| Vec::with_capacity(size)).collect(),
                    spare: Vec::with_capacity(batches_max),
                }),
                blocks: sizes.iter().map(|_| AtomicU64::new(0)).collect(),
            })
        };
        let cpus_per_shelf = cpus_per_shelf.max(1);
        let shelves = cpus.div_ceil(cpus_per_shelf).max(1);
        Self {
            shelves: (0..shelves).map(|_| shelf()).collect(),
            cpus_per_shelf,
            batches_max,
            sizes,
        }
    }

    fn first(&self, shard: Shard) -> usize {
        shard.index() / self.cpus_per_shelf % self.shelves.len()
    }

    /// Shelves, beginning with a CPU's own.
    fn around(&self, shard: Shard) -> impl Iterator<Item = &Apart<Shelf<M>>> {
        let (before, from) = self.shelves.split_at(self.first(shard));
        from.iter().chain(before)
    }

    /// Takes a batch for `list` with at least one block; `None` if the depot has none.
    pub(super) fn take(&self, machine: &M, shard: Shard, list: usize) -> Option<Batch> {
        // Shelves that are locked come last.
        for patient in [false, true] {
            for shelf in self.around(shard).filter(|shelf| shelf.has(list)) {
                let held = if patient {
                    Some(shelf.lock.lock(machine, Work::Alloc))
                } else {
                    shelf.lock.try_lock(machine, Work::Alloc)
                };
                if let Some(batch) = held.and_then(|held| shelf.take_from(held, list)) {
                    return Some(batch);
                }
            }
        }
        None
    }

    /// Puts a batch on a shelf near `shard`.
    ///
    /// # Errors
    /// The batch, if the shelves are full.
    pub(super) fn put(
        &self,
        machine: &M,
        shard: Shard,
        list: usize,
        batch: Batch,
    ) -> Result<(), Batch> {
        if batch.is_empty() {
            self.put_spare(machine, shard, batch);
            return Ok(());
        }
        let room = (self.batches_max * self.sizes[list]) as u64;
        for patient in [false, true] {
            for shelf in self.around(shard).filter(|shelf| shelf.count(list) < room) {
                let held = if patient {
                    Some(shelf.lock.lock(machine, Work::Free))
                } else {
                    shelf.lock.try_lock(machine, Work::Free)
                };
                let Some(mut held) = held else { continue };
                if held.batches[list].len() < self.batches_max {
                    shelf.change(list, batch.len() as i64);
                    held.batches[list].push(batch);
                    return Ok(());
                }
            }
        }
        Err(batch)
    }

    /// Puts a single block on a CPU's own shelf, to make a batch with others.
    ///
    /// # Errors
    /// The block, if there is no room.
    pub(super) fn put_one(
        &self,
        machine: &M,
        shard: Shard,
        list: usize,
        block: Block,
    ) -> Result<(), Block> {
        let shelf = &self.shelves[self.first(shard)];
        let mut held = shelf.lock.lock(machine, Work::Free);
        if held.open[list].len() == self.sizes[list] {
            if held.batches[list].len() == self.batches_max {
                return Err(block);
            }
            let Some(empty) = Self::with_room(held.spare.pop(), self.sizes[list]) else {
                return Err(block);
            };
            let full = std::mem::replace(&mut held.open[list], empty);
            held.batches[list].push(full);
        }
        // A batch was taken, and the next one began without memory.
        let missing = self.sizes[list] - held.open[list].len();
        if held.open[list].try_reserve_exact(missing).is_err() {
            return Err(block);
        }
        held.open[list].push(block);
        shelf.change(list, 1);
        Ok(())
    }

    /// Takes an empty batch with room for those of `list`, or makes one; `None` if there is no memory for it.
    pub(super) fn spare(&self, machine: &M, shard: Shard, list: usize) -> Option<Batch> {
        let shelf = &self.shelves[self.first(shard)];
        let held = shelf.lock.try_lock(machine, Work::Free);
        let spare = held.and_then(|mut held| held.spare.pop());
        Self::with_room(spare, self.sizes[list])
    }

    fn with_room(batch: Option<Batch>, size: usize) -> Option<Batch> {
        let mut batch = batch.unwrap_or_default();
        batch.try_reserve_exact(size).ok()?;
        Some(batch)
    }

    /// Gives an empty batch back.
    pub(super) fn put_spare(&self, machine: &M, shard: Shard, batch: Batch) {
        debug_assert!(batch.is_empty());
        let shelf = &self.shelves[self.first(shard)];
        if let Some(mut held) = shelf.lock.try_lock(machine, Work::Free)
            && held.spare.len() < self.batches_max
        {
            held.spare.push(batch);
        }
    }

    /// Takes a batch of `list` from any shelf that has one, and waits for locks. Used to empty the depot.
    pub(super) fn take_any(&self, machine: &M, list: usize) -> Option<Batch> {
        self.shelves.iter().find_map(|shelf| {
            shelf.has(list).then_some(())?;
            shelf.take_from(shelf.lock.lock(machine, Work::Drain), list)
        })
    }

    /// Number of blocks of `list` on all shelves.
    pub(super) fn blocks(&self, list: usize) -> u64 {
        self.shelves.iter().map(|shelf| shelf.count(list)).sum()
    }

    /// Times of holders and waiters of all shelves.
    pub(super) fn times(&self, machine: &M) -> (Histogram, Histogram) {
        let mut all = (Histogram::default(), Histogram::default());
        for shelf in &self.shelves {
            let held = shelf.lock.lock(machine, Work::Report);
            let (holds, waits) = held.times();
            all.0.merge(holds);
            all.1.merge(waits);
        }
        all
    }

    /// Shelves that are locked, with their holders and the number of waiters.
    pub(super) fn holders(&self) -> impl Iterator<Item = (usize, Holder, u64)> {
        let holders = self.shelves.iter().enumerate();
        holders.filter_map(|(shelf, at)| {
            let (holder, waiting) = at.lock.holder()?;
            Some((shelf, holder, waiting))
        })
    }
}

impl<M: Machine> Shelf<M> {
    fn count(&self, list: usize) -> u64 {
        // Relaxed: a hint; the lists under the lock decide.
        self.blocks[list].load(Ordering::Relaxed)
    }

    fn has(&self, list: usize) -> bool {
        self.count(list) > 0
    }

    /// Changes the count; called under the lock.
    fn change(&self, list: usize, by: i64) {
        let now = self.count(list).wrapping_add_signed(by);
        self.blocks[list].store(now, Ordering::Relaxed);
    }

    fn take_from(&self, mut held: ShelfHold<'_, M>, list: usize) -> Option<Batch> {
        let batch = match held.batches[list].pop() {
            Some(batch) => batch,
            None if held.open[list].is_empty() => return None,
            None => {
                let empty = held.spare.pop().unwrap_or_default();
                std::mem::replace(&mut held.open[list], empty)
            }
        };
        self.change(list, -(batch.len() as i64));
        Some(batch)
    }
}

#[cfg(test)]
mod tests {
    use bursar_machine::Host;
    use bursar_machine::pages::{Order, ReserveOptions};

    use super::*;

    const ZERO: Shard = Shard(0);
    const ONE: Shard = Shard(1);

    /// Depot of two shelves, each with room for one batch of two.
    fn depot() -> (Host, Depot<Host>) {
        (Host::start().unwrap(), Depot::new(2, 1, 1, Box::new([2])))
    }

    /// Makes batches of two.
    fn batches(machine: &Host) -> impl Iterator<Item = Batch> {
        let (_, mut span) = machine.reserve(&ReserveOptions::pages(1 << 12)).unwrap();
        std::iter::from_fn(move || {
            let (one, other) = span.take()?.split();
            Some(vec![one, other])
        })
    }

    #[test]
    fn a_batch_is_on_any_shelf_with_room() {
        let (machine, depot) = depot();
        let mut batches = batches(&machine);
        let mut put = || depot.put(&machine, ZERO, 0, batches.next().unwrap());
        assert!(put().is_ok() && put().is_ok());
        assert_eq!(depot.blocks(0), 4);
        assert_eq!(put().map_err(|batch| batch.len()), Err(2), "no room");
        for left in [2, 0] {
            let batch = depot.take(&machine, ONE, 0).unwrap();
            assert_eq!((batch.len(), depot.blocks(0)), (2, left));
        }
        assert!(depot.take(&machine, ONE, 0).is_none());
    }

    #[test]
    fn single_blocks_become_batches() {
        let (machine, depot) = depot();
        let mut blocks = batches(&machine).flatten();
        let mut put = || depot.put_one(&machine, ONE, 0, blocks.next().unwrap());
        assert!((0..4).all(|_| put().is_ok()));
        assert_eq!(put().map_err(|block| block.order()), Err(Order::new(9)));
        assert_eq!(depot.blocks(0), 4);
        for left in [2, 0] {
            let batch = depot.take(&machine, ZERO, 0).unwrap();
            assert_eq!((batch.len(), depot.blocks(0)), (2, left));
        }
    }

    #[test]
    fn empty_batches_are_used_again_and_few_are_kept() {
        let (machine, depot) = depot();
        (0..2).for_each(|_| depot.put_spare(&machine, ZERO, Vec::with_capacity(100)));
        let room = || depot.spare(&machine, ZERO, 0).unwrap().capacity();
        assert_eq!(room(), 100);
        assert!((2..100).contains(&room()), "a new one");
    }
}
