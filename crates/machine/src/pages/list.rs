//! One list of blocks, as words. Operations of lists without sections, which a lock keeps apart, and freezers run this code.
//!
//! The host uses it, and so do the models of loom, on words of their own. Sections of the host are instructions instead
//! (`host/rseq`), with the same steps.

use core::num::NonZeroU64;

use super::block::Block;
use super::stacks::{Bounds, depth};
use crate::shard::busy_wait;
use crate::{AtomicWord, MemoryOrder};

/// List of blocks of one shard.
#[derive(Debug)]
pub struct BlockList<'a, W> {
    head: &'a W,
    bounds: &'a W,
    lock: &'a W,
    entries: &'a [W],
}

impl<'a, W: AtomicWord> BlockList<'a, W> {
    /// The list in these words. A list whose words are all zero is empty, and has room for no block.
    ///
    /// # Safety
    /// `W` works as an atomic word. The words are distinct, were zero when a list was first made of them, and every list of them has
    /// the same ones in the same places. From then on nobody else writes them but sections of the list's CPU. A list that sections
    /// change is never locked.
    #[inline]
    pub unsafe fn new(head: &'a W, bounds: &'a W, lock: &'a W, entries: &'a [W]) -> Self {
        Self {
            head,
            bounds,
            lock,
            entries,
        }
    }

    /// As [`super::BlockStacks::head`].
    pub fn head(&self) -> u64 {
        // Relaxed: a look. A freezer that takes blocks has passed the lock or the fence.
        self.head.load(MemoryOrder::Relaxed)
    }

    /// As [`super::BlockStacks::bounds`].
    pub fn bounds(&self) -> Bounds {
        // Relaxed: a look.
        Bounds::of(self.bounds.load(MemoryOrder::Relaxed))
    }

    /// As [`super::BlockStacks::set_bounds`].
    ///
    /// # Panics
    /// As there.
    pub fn set_bounds(&self, bounds: Bounds) -> bool {
        bounds.set(self.bounds, self.entries.len())
    }

    /// Begins an operation where there are no sections, unless another is under way.
    pub fn try_lock(self) -> Option<ListOperation<'a, W>> {
        // Full: pairs with `begin_freeze`. If our lock comes first, the freezer waits for us. If its bounds come first, we see
        // them. It also acquires what the operation before left.
        let taken = self.lock.compare_exchange(0, 1, MemoryOrder::Full);
        taken.ok().map(|_| ListOperation {
            list: self,
            is_locked: true,
        })
    }

    /// Begins an operation with the memory orders of a section, for models.
    ///
    /// # Safety
    /// Until it ends, no other operation on this list is under way, and the machine's fence waits for its end.
    pub unsafe fn in_section(self) -> ListOperation<'a, W> {
        ListOperation {
            list: self,
            is_locked: false,
        }
    }

    /// Begins to freeze the list. Next are the machine's fence, if the list has sections, and [`BlockList::end_freeze`].
    ///
    /// # Panics
    /// If it is frozen.
    pub fn begin_freeze(&self) {
        // Full: pairs with `try_lock`; for lists with sections the fence does it. Only a list that is not frozen changes, because
        // another freezer may be taking blocks there.
        let mut seen = self.bounds.load(MemoryOrder::Relaxed);
        loop {
            assert!(!Bounds::of(seen).is_frozen(), "one freezes at a time");
            let freezing = Bounds::FREEZING.bits();
            match self
                .bounds
                .compare_exchange(seen, freezing, MemoryOrder::Full)
            {
                Ok(_) => return,
                Err(now) => seen = now,
            }
        }
    }

    /// Waits, with a back-off by `relax`, until no operation is under way; the list is frozen then.
    ///
    /// # Safety
    /// The caller has begun this freeze by [`BlockList::begin_freeze`], has since passed a fence that waits for the list's sections,
    /// if it has any, and ends the freeze once.
    pub unsafe fn end_freeze(&self, relax: impl Fn(u32)) {
        // Full: pairs with `try_lock`, and with the end of a `ListOperation`. The lock of a list with sections is always free.
        busy_wait(|| self.lock.load(MemoryOrder::Full) == 0, relax);
        // Full: pairs with the exchange in `take_oldest`, which thereby knows that no operation is under way. No other code
        // changes bounds that are freezing.
        self.bounds.store(Bounds::FROZEN.bits(), MemoryOrder::Full);
    }

    /// As [`super::BlockStacks::thaw`].
    ///
    /// # Panics
    /// As there.
    pub fn thaw(&self, bounds: Bounds) {
        bounds.thaw(self.bounds, self.entries.len());
    }

    /// As [`super::BlockStacks::take_oldest`].
    ///
    /// # Panics
    /// As there.
    pub fn take_oldest(&self, count: usize, blocks: &mut Vec<Block>) -> usize {
        let (frozen, taking) = (Bounds::FROZEN.bits(), Bounds::TAKING.bits());
        // Full, and the store below: of two takers, one sees the other; and the taker sees what `end_freeze` saw.
        let alone = self
            .bounds
            .compare_exchange(frozen, taking, MemoryOrder::Full);
        assert!(alone.is_ok(), "only from a frozen list, one at a time");
        let head = self.head();
        let count = count.min(depth(head));
        blocks.extend((0..count).map(|at| self.block(at)));
        // Relaxed, both: only the holder of `TAKING` touches a frozen list.
        for at in count..depth(head) {
            let bits = self.entries[at].load(MemoryOrder::Relaxed);
            self.entries[at - count].store(bits, MemoryOrder::Relaxed);
        }
        self.head.store(head - count as u64, MemoryOrder::Relaxed);
        // Full: also pairs with `thaw`. An operation that sees the thawed bounds sees what is left here.
        self.bounds.store(frozen, MemoryOrder::Full);
        count
    }

    /// Block of an entry below the depth, which the caller takes out.
    fn block(&self, at: usize) -> Block {
        // Relaxed: the entry is older than the depth that includes it.
        let bits = self.entries[at].load(MemoryOrder::Relaxed);
        Block::from_bits(NonZeroU64::new(bits).expect("entries below the depth hold blocks"))
    }
}

/// Operation on a [`BlockList`], alone there but for a freezer that waits for it.
#[derive(Debug)]
pub struct ListOperation<'a, W: AtomicWord> {
    list: BlockList<'a, W>,
    /// Has the list's lock, rather than being in a section.
    is_locked: bool,
}

impl<W: AtomicWord> Drop for ListOperation<'_, W> {
    fn drop(&mut self) {
        if self.is_locked {
            // Full: pairs with `BlockList::end_freeze`, and releases what this operation did to the next `try_lock`.
            self.list.lock.store(0, MemoryOrder::Full);
        }
    }
}

impl<W: AtomicWord> ListOperation<'_, W> {
    /// Bounds and depth. The bounds first; see `stacks.rs`. One look at the bounds decides: a freezer may change them meanwhile, and
    /// then waits for this operation.
    fn look(&self) -> (Bounds, usize) {
        let order = match self.is_locked {
            // Full: pairs with `begin_freeze`.
            true => MemoryOrder::Full,
            // Acquire: pairs with `thaw`.
            false => MemoryOrder::Acquire,
        };
        let bounds = Bounds::of(self.list.bounds.load(order));
        (bounds, depth(self.list.head()))
    }

    fn change_depth(&self, by: u64) {
        let head = self.list.head().wrapping_add(by);
        // Relaxed: only this operation writes. The lock or the fence shows it to others.
        self.list.head.store(head, MemoryOrder::Relaxed);
    }

    /// As [`super::BlockStacks::push`].
    ///
    /// # Errors
    /// The block.
    pub fn push(self, block: Block) -> Result<(), Block> {
        let (bounds, depth) = self.look();
        if depth >= bounds.limit as usize {
            return Err(block);
        }
        // Relaxed, here and in `push_many`: nobody looks above the depth.
        self.list.entries[depth].store(block.into_bits().get(), MemoryOrder::Relaxed);
        self.change_depth(1);
        Ok(())
    }

    /// As [`super::BlockStacks::pop`].
    pub fn pop(self) -> Option<Block> {
        let (bounds, depth) = self.look();
        if depth <= bounds.floor as usize {
            return None;
        }
        let block = self.list.block(depth - 1);
        // One block less, and one more that was popped.
        self.change_depth(0xffff);
        Some(block)
    }

    /// As [`super::BlockStacks::push_many`].
    pub fn push_many(self, blocks: &mut Vec<Block>) -> usize {
        let (bounds, depth) = self.look();
        let room = (bounds.limit as usize).saturating_sub(depth);
        let count = room.min(blocks.len());
        if count > 0 {
            let pushed = blocks.drain(blocks.len() - count..);
            for (entry, block) in self.list.entries[depth..].iter().zip(pushed) {
                entry.store(block.into_bits().get(), MemoryOrder::Relaxed);
            }
            self.change_depth(count as u64);
        }
        count
    }

    /// As [`super::BlockStacks::pop_many`].
    pub fn pop_many(self, count: usize, blocks: &mut Vec<Block>) -> usize {
        let (bounds, depth) = self.look();
        let count = depth.saturating_sub(bounds.floor as usize).min(count);
        // The head of a frozen list belongs to the freezer, which may be changing it.
        if count > 0 {
            blocks.extend((depth - count..depth).map(|at| self.list.block(at)));
            self.change_depth((count as u64).wrapping_neg());
        }
        count
    }
}
