//! The host's per-CPU stacks of blocks: where they lie, and which path an operation takes.
//!
//! A chunk is one stride for each shard, as for slots; in a stride the lists follow one another, each a header of one line
//! and its entries.

use core::num::NonZeroU64;
use core::ptr::NonNull;

use super::slots::{self, STRIDE, STRIDE_SHIFT};
use super::sync::HostWord;
use super::{backend, chunk, fork, rseq, sync};
use crate::pages::{Block, BlockStacks, Bounds, LIST_BLOCKS_MAX, LISTS_MAX, StackWord, depth};
use crate::shard::busy_wait;
use crate::{AtomicWord, Order, OutOfMemory, Shard};

/// Bytes of a list's header.
pub(super) const LIST_HEADER: usize = 64;
/// Where the limit lies in it; the floor follows.
pub(super) const LIST_LIMIT: usize = StackWord::Bounds as usize * 8;
/// Words of a list's header.
const HEADER_WORDS: usize = LIST_HEADER / 8;

const _: () = assert!(StackWord::Head as usize == 0 && (StackWord::Lock as usize) < HEADER_WORDS);
const _: () = assert!((LISTS_MAX * HEADER_WORDS + LIST_BLOCKS_MAX) * 8 <= STRIDE);

/// Per-CPU stacks of blocks on the host.
#[derive(Clone, Copy, Debug)]
pub struct HostStacks {
    /// CPU 0's copies.
    lists: [NonNull<u8>; LISTS_MAX],
    /// Entries; 0 for lists that do not exist.
    capacities: [u16; LISTS_MAX],
}

// SAFETY: what the lists point to is shared memory that stays mapped until the process ends and is only accessed as
// atomic words or by sections.
unsafe impl Send for HostStacks {}
// SAFETY: as above.
unsafe impl Sync for HostStacks {}

/// Reserves a chunk and cuts it into lists.
pub(super) fn chunk_of_stacks(capacities: &[u16]) -> Result<HostStacks, OutOfMemory> {
    let lists = capacities.len();
    assert!((1..=LISTS_MAX).contains(&lists), "1 to {LISTS_MAX} lists");
    let entries: usize = capacities.iter().copied().map(usize::from).sum();
    assert!(
        entries <= LIST_BLOCKS_MAX,
        "the lists of a CPU hold at most {LIST_BLOCKS_MAX} blocks together"
    );
    let base = chunk::reserve(slots::shards_max().index() + 1, 0)?;
    let mut stacks = HostStacks {
        lists: [base; LISTS_MAX],
        capacities: [0; LISTS_MAX],
    };
    let mut at = 0;
    for (list, &capacity) in capacities.iter().enumerate() {
        // SAFETY: checked above: all lists lie inside the first stride.
        stacks.lists[list] = unsafe { base.add(at) };
        stacks.capacities[list] = capacity;
        at += LIST_HEADER + usize::from(capacity) * 8;
    }
    Ok(stacks)
}

/// A list of a shard, as words.
#[derive(Clone, Copy)]
struct List<'a> {
    header: &'a [HostWord],
    entries: &'a [HostWord],
}

impl List<'_> {
    fn word(&self, word: StackWord) -> &HostWord {
        &self.header[word as usize]
    }

    fn depth(&self) -> usize {
        // Acquire: pairs with the release of whoever pushed what is there, where this list has no sections; a freezer of
        // sections has passed a fence.
        depth(self.word(StackWord::Head).load(Order::Acquire))
    }

    fn bounds(&self) -> Bounds {
        Bounds::of(self.word(StackWord::Bounds).load(Order::Full))
    }

    fn entry(&self, at: usize) -> Block {
        // Relaxed: the entry is older than the depth that includes it.
        let bits = self.entries[at].load(Order::Relaxed);
        Block::from_bits(NonZeroU64::new(bits).expect("entries below the depth hold blocks"))
    }

    fn push(&self, block: Block) -> Result<(), Block> {
        let depth = self.depth();
        if depth >= self.bounds().limit as usize {
            return Err(block);
        }
        self.entries[depth].store(block.into_bits().get(), Order::Relaxed);
        self.change_depth(1);
        Ok(())
    }

    fn pop(&self) -> Option<Block> {
        let depth = self.depth();
        if depth <= self.bounds().floor as usize {
            return None;
        }
        let block = self.entry(depth - 1);
        self.change_depth(0xffff);
        Some(block)
    }

    fn change_depth(&self, by: u64) {
        let head = self.word(StackWord::Head);
        let now = head.load(Order::Relaxed).wrapping_add(by);
        // Release: what was stored in entries is there for whoever sees the depth. Only the lock's holder writes.
        head.store(now, Order::Release);
    }

    /// The list, if its lock can be had at once.
    fn try_lock(&self) -> Option<Locked<'_>> {
        let operation = fork::operation();
        // Full: pairs with the freezer's `Full` store of the bounds. If our lock comes first, the freezer waits for us; if its
        // bounds do, we see them.
        let taken = self
            .word(StackWord::Lock)
            .compare_exchange(0, 1, Order::Full);
        taken.ok().map(|_| Locked {
            list: *self,
            _operation: operation,
        })
    }
}

/// Holds the lock of a list without sections. An operation: a fork waits until it is gone.
struct Locked<'a> {
    list: List<'a>,
    _operation: fork::HostOperation,
}

impl Drop for Locked<'_> {
    fn drop(&mut self) {
        // Full: pairs with `settle`.
        self.list.word(StackWord::Lock).store(0, Order::Full);
    }
}

impl HostStacks {
    fn base(&self, list: usize) -> *mut u8 {
        debug_assert!(self.capacities[list] > 0, "no such list");
        self.lists[list].as_ptr()
    }

    fn list(&self, shard: Shard, list: usize) -> List<'_> {
        let capacity = usize::from(self.capacities[list]);
        assert!(capacity > 0 && shard <= slots::shards_max(), "no such list");
        // SAFETY: (1) the chunk has a stride for each shard up to the extra one, and the list lies inside the first stride, so
        // its copies inside the others; (2) it stays mapped and is only written through atomics and sections; (3) zeroed
        // memory is a valid `HostWord`.
        unsafe {
            let at = self.lists[list].add(shard.index() << STRIDE_SHIFT);
            let words = core::slice::from_raw_parts(at.cast().as_ptr(), HEADER_WORDS + capacity);
            let (header, entries) = words.split_at(HEADER_WORDS);
            List { header, entries }
        }
    }

    /// The calling thread's list if it has no sections, see `HostSlot::without_section`; `None` if it has.
    fn without_section(&self, list: usize) -> Option<List<'_>> {
        if backend::has_sections() {
            if rseq::current_cpu().is_some() {
                return None;
            }
            return Some(self.list(slots::shards_max(), list));
        }
        Some(self.list(slots::current_shard(), list))
    }

    // After a section did nothing: its list is full or empty, or this thread has none.

    #[cold]
    #[inline(never)]
    fn push_again(&self, list: usize, block: Block) -> Result<(), Block> {
        match self.without_section(list) {
            Some(list) => match list.try_lock() {
                Some(locked) => locked.list.push(block),
                None => Err(block),
            },
            None => Err(block),
        }
    }

    #[cold]
    #[inline(never)]
    fn pop_again(&self, list: usize) -> Option<Block> {
        self.without_section(list)?.try_lock()?.list.pop()
    }

    /// The calling thread's CPU list, to look at.
    fn looked_at(&self, list: usize) -> Option<List<'_>> {
        rseq::current_cpu().map(|shard| self.list(shard, list))
    }
}

impl BlockStacks for HostStacks {
    type Word = HostWord;

    #[inline(always)]
    fn push(&self, list: usize, block: Block) -> Result<(), Block> {
        let bits = block.into_bits();
        // SAFETY: `chunk_of_stacks` laid the lists out as required, and bounds stay within capacities.
        if unsafe { rseq::try_push(self.base(list), bits) } {
            return Ok(());
        }
        self.push_again(list, Block::from_bits(bits))
    }

    #[inline(always)]
    fn pop(&self, list: usize) -> Option<Block> {
        // SAFETY: as in `push`.
        match unsafe { rseq::try_pop(self.base(list)) } {
            Some(bits) => Some(Block::from_bits(bits)),
            None => self.pop_again(list),
        }
    }

    fn push_many(&self, list: usize, blocks: &mut Vec<Block>) -> usize {
        if let Some(list) = self.without_section(list) {
            let Some(locked) = list.try_lock() else {
                return 0;
            };
            let room = locked.list.bounds().limit as usize;
            let count = room.saturating_sub(locked.list.depth()).min(blocks.len());
            for block in blocks.drain(blocks.len() - count..) {
                locked.list.push(block).expect("there is room");
            }
            return count;
        }
        // A look says how many may fit; the section knows.
        while let Some(look) = self.looked_at(list) {
            let room = look.bounds().limit as usize;
            let count = room.saturating_sub(look.depth()).min(blocks.len());
            if count == 0 {
                return 0;
            }
            let kept = blocks.len() - count;
            // SAFETY: as in `push`; a block is its bits (`repr(transparent)`), and `count` of them lie from `kept` on.
            let pushed = unsafe {
                rseq::push_many(self.base(list), blocks.as_ptr().add(kept).cast(), count)
            };
            if pushed {
                // SAFETY: shorter, and those beyond are the stack's now: they must not be dropped, and have no drop.
                unsafe { blocks.set_len(kept) };
                return count;
            }
        }
        0
    }

    fn pop_many(&self, list: usize, count: usize, blocks: &mut Vec<Block>) -> usize {
        if let Some(list) = self.without_section(list) {
            let Some(locked) = list.try_lock() else {
                return 0;
            };
            let list = &locked.list;
            let floor = list.bounds().floor as usize;
            let depth = list.depth();
            let count = depth.saturating_sub(floor).min(count);
            blocks.extend((depth - count..depth).map(|at| list.entry(at)));
            list.change_depth((count as u64).wrapping_neg());
            return count;
        }
        blocks.reserve(count);
        while let Some(look) = self.looked_at(list) {
            let floor = look.bounds().floor as usize;
            let count = look.depth().saturating_sub(floor).min(count);
            if count == 0 {
                return 0;
            }
            let length = blocks.len();
            // SAFETY: as in `push`; there is room for `count` more.
            let popped = unsafe {
                let to = blocks.as_mut_ptr().add(length).cast();
                rseq::pop_many(self.base(list), to, count)
            };
            if popped {
                // SAFETY: the section wrote that many entries, each the bits of a block that nobody else has any more.
                unsafe { blocks.set_len(length + count) };
                return count;
            }
        }
        0
    }

    fn word(&self, shard: Shard, list: usize, word: StackWord) -> &HostWord {
        &self.list(shard, list).header[word as usize]
    }

    fn settle(&self, shard: Shard, list: usize) {
        if shard == slots::shards_max() || !backend::has_sections() {
            let lock = self.word(shard, list, StackWord::Lock);
            // Full: pairs with `List::try_lock`.
            busy_wait(|| lock.load(Order::Full) == 0, sync::relax);
        }
    }

    fn take_oldest(
        &self,
        shard: Shard,
        list: usize,
        count: usize,
        blocks: &mut Vec<Block>,
    ) -> usize {
        let list = self.list(shard, list);
        debug_assert_eq!(list.bounds(), Bounds::FROZEN);
        let depth = list.depth();
        let count = count.min(depth);
        blocks.extend((0..count).map(|at| list.entry(at)));
        for at in count..depth {
            let bits = list.entries[at].load(Order::Relaxed);
            list.entries[at - count].store(bits, Order::Relaxed);
        }
        // Its release pairs with the bounds that thaw the list.
        list.change_depth((count as u64).wrapping_neg());
        count
    }
}
