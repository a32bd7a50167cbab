//! Per-CPU stacks of blocks of the host: their place in memory, and the path that an operation takes.
//!
//! A chunk is one stride for each shard, as for slots. In a stride the lists follow one another; each is a header of
//! one line and its entries.

use core::num::NonZeroU64;
use core::ptr::NonNull;

use super::chunk::{self, LIST_HEADER, LIST_LIMIT, STRIDE, STRIDE_SHIFT};
use super::sync::HostWord;
use super::{backend, fence, fork, rseq, slots, time};
use crate::pages::{Block, BlockStacks, Bounds, LIST_BLOCKS_MAX, LISTS_MAX, StackWord, depth};
use crate::shard::busy_wait;
use crate::{AtomicWord, MemoryOrder, OutOfMemory, Shard};

/// Number of words of a list's header.
const HEADER_WORDS: usize = LIST_HEADER / 8;
/// Indexes of the header's words. Sections know that the head is the first.
const HEAD: usize = 0;
const BOUNDS: usize = LIST_LIMIT / 8;
/// Index of the first word that is free for use.
const FREE_WORDS: usize = 2;
/// Index of the lock of a list without sections.
const LOCK: usize = FREE_WORDS + StackWord::Last as usize + 1;

const _: () = assert!(LOCK < HEADER_WORDS);
const _: () = assert!((LISTS_MAX * HEADER_WORDS + LIST_BLOCKS_MAX) * 8 <= STRIDE);

/// Number of places for lists: a power of two, so that a mask brings a number into range. Places beyond the last list
/// are the first list's; to use them is a bug but sound.
const PLACES: usize = LISTS_MAX.next_power_of_two();

/// Per-CPU stacks of blocks on the host.
#[derive(Clone, Copy, Debug)]
pub struct HostStacks {
    /// CPU 0's copies.
    lists: [NonNull<u8>; PLACES],
    /// Number of entries of each list.
    capacities: [u16; PLACES],
    /// Number of lists.
    count: u8,
}

// SAFETY: the lists point to shared memory that stays mapped until the process ends and is only accessed as atomic
// words or by sections.
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
        lists: [base; PLACES],
        capacities: [capacities[0]; PLACES],
        count: lists as u8,
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

/// List of a shard, as words.
#[derive(Clone, Copy)]
struct List<'a> {
    header: &'a [HostWord],
    entries: &'a [HostWord],
}

impl List<'_> {
    fn head(&self) -> &HostWord {
        &self.header[HEAD]
    }

    fn bounds_word(&self) -> &HostWord {
        &self.header[BOUNDS]
    }

    fn lock(&self) -> &HostWord {
        &self.header[LOCK]
    }

    fn depth(&self) -> usize {
        // Acquire: where this list has no sections, pairs with the Release of the push of these blocks. A freezer of
        // sections has passed a fence.
        depth(self.head().load(MemoryOrder::Acquire))
    }

    fn bounds(&self) -> Bounds {
        Bounds::of(self.bounds_word().load(MemoryOrder::Full))
    }

    fn entry(&self, at: usize) -> Block {
        // Relaxed: the entry is older than the depth that includes it.
        let bits = self.entries[at].load(MemoryOrder::Relaxed);
        Block::from_bits(NonZeroU64::new(bits).expect("entries below the depth hold blocks"))
    }

    fn push(&self, block: Block) -> Result<(), Block> {
        // The bounds first; see `pages::stacks`.
        let limit = self.bounds().limit as usize;
        let depth = self.depth();
        if depth >= limit {
            return Err(block);
        }
        self.entries[depth].store(block.into_bits().get(), MemoryOrder::Relaxed);
        self.change_depth(1);
        Ok(())
    }

    fn pop(&self) -> Option<Block> {
        let floor = self.bounds().floor as usize;
        let depth = self.depth();
        if depth <= floor {
            return None;
        }
        let block = self.entry(depth - 1);
        self.change_depth(0xffff);
        Some(block)
    }

    fn change_depth(&self, by: u64) {
        let head = self.head();
        let now = head.load(MemoryOrder::Relaxed).wrapping_add(by);
        // Release: a reader of the depth sees the stored entries. Only the lock's holder writes.
        head.store(now, MemoryOrder::Release);
    }

    /// The list, if its lock is free now.
    fn try_lock(&self) -> Option<Locked<'_>> {
        let operation = fork::operation();
        // Full: pairs with the freezer's `Full` store of the bounds. If our lock comes first, the freezer waits for us.
        // If its bounds come first, we see them.
        let taken = self.lock().compare_exchange(0, 1, MemoryOrder::Full);
        taken.ok().map(|_| Locked {
            list: *self,
            _operation: operation,
        })
    }
}

/// Guard of the lock of a list without sections. It is an operation: a fork waits until it is gone.
struct Locked<'a> {
    list: List<'a>,
    _operation: fork::HostOperation,
}

impl Drop for Locked<'_> {
    fn drop(&mut self) {
        // Full: pairs with `freeze`.
        self.list.lock().store(0, MemoryOrder::Full);
    }
}

impl HostStacks {
    fn base(&self, list: usize) -> *mut u8 {
        debug_assert!(list < LISTS_MAX, "no such list");
        self.lists[list % PLACES].as_ptr()
    }

    fn list(&self, shard: Shard, list: usize) -> List<'_> {
        assert!(list < usize::from(self.count), "no such list");
        let capacity = usize::from(self.capacities[list]);
        assert!(shard <= slots::shards_max(), "no such shard");
        // SAFETY: (1) the chunk has a stride for each shard up to the extra one, and the list lies inside the first
        // stride, so its copies lie inside the others; (2) it stays mapped and is only written through atomics and
        // sections; (3) zeroed memory is a valid `HostWord`.
        unsafe {
            let at = self.lists[list].add(shard.index() << STRIDE_SHIFT);
            let words = core::slice::from_raw_parts(at.cast().as_ptr(), HEADER_WORDS + capacity);
            let (header, entries) = words.split_at(HEADER_WORDS);
            List { header, entries }
        }
    }

    /// Returns whether no sections change a shard's lists.
    fn has_locks(shard: Shard) -> bool {
        shard == slots::shards_max() || !backend::has_sections()
    }

    /// The calling thread's list if it has no sections (see `HostSlot::without_section`); `None` if it has.
    fn without_section(&self, list: usize) -> Option<List<'_>> {
        if backend::has_sections() {
            if rseq::current_cpu().is_some() {
                return None;
            }
            return Some(self.list(slots::shards_max(), list));
        }
        Some(self.list(slots::current_shard(), list))
    }

    /// List of the calling thread's CPU, to look at.
    fn looked_at(&self, list: usize) -> Option<List<'_>> {
        rseq::current_cpu().map(|shard| self.list(shard, list))
    }
}

impl BlockStacks for HostStacks {
    type Word = HostWord;

    #[inline(always)]
    fn try_push(&self, list: usize, block: Block) -> Result<(), Block> {
        let bits = block.into_bits();
        // SAFETY: `chunk_of_stacks` laid the lists out as required, and bounds stay within capacities: only
        // `set_bounds`, `freeze` and `thaw` write them.
        if unsafe { rseq::try_push(self.base(list), bits) } {
            return Ok(());
        }
        Err(Block::from_bits(bits))
    }

    #[inline(always)]
    fn try_pop(&self, list: usize) -> Option<Block> {
        // SAFETY: as in `try_push`.
        let bits = unsafe { rseq::try_pop(self.base(list)) };
        bits.map(Block::from_bits)
    }

    fn push(&self, list: usize, block: Block) -> Result<(), Block> {
        let block = match self.try_push(list, block) {
            Ok(()) => return Ok(()),
            Err(block) => block,
        };
        // Its list is full, or this thread has none.
        match self.without_section(list) {
            Some(list) => match list.try_lock() {
                Some(locked) => locked.list.push(block),
                None => Err(block),
            },
            None => Err(block),
        }
    }

    fn pop(&self, list: usize) -> Option<Block> {
        if let Some(block) = self.try_pop(list) {
            return Some(block);
        }
        self.without_section(list)?.try_lock()?.list.pop()
    }

    fn push_many(&self, list: usize, blocks: &mut Vec<Block>) -> usize {
        if let Some(list) = self.without_section(list) {
            let Some(locked) = list.try_lock() else {
                return 0;
            };
            let list = &locked.list;
            // One look at the bounds decides: a freezer may change them meanwhile, and then waits for the lock.
            let room = list.bounds().limit as usize;
            let depth = list.depth();
            let count = room.saturating_sub(depth).min(blocks.len());
            if count == 0 {
                return 0;
            }
            let pushed = blocks.drain(blocks.len() - count..);
            for (entry, block) in list.entries[depth..].iter().zip(pushed) {
                // Relaxed: no reader looks above the depth.
                entry.store(block.into_bits().get(), MemoryOrder::Relaxed);
            }
            list.change_depth(count as u64);
            return count;
        }
        // The look estimates how many fit; the section decides.
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
                // SAFETY: the new length is shorter. The blocks beyond it are the stack's now; they must not be
                // dropped, and have no drop.
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
            if count == 0 {
                // The head of a frozen list belongs to the freezer, which may be changing it.
                return 0;
            }
            blocks.extend((depth - count..depth).map(|at| list.entry(at)));
            list.change_depth((count as u64).wrapping_neg());
            return count;
        }
        while let Some(look) = self.looked_at(list) {
            let floor = look.bounds().floor as usize;
            let count = look.depth().saturating_sub(floor).min(count);
            if count == 0 {
                return 0;
            }
            blocks.reserve(count);
            let length = blocks.len();
            // SAFETY: as in `push`; there is room for `count` more.
            let popped = unsafe {
                let to = blocks.as_mut_ptr().add(length).cast();
                rseq::pop_many(self.base(list), to, count)
            };
            if popped {
                // SAFETY: the section wrote that many entries, each the bits of a block that no other code holds any
                // more.
                unsafe { blocks.set_len(length + count) };
                return count;
            }
        }
        0
    }

    fn word(&self, shard: Shard, list: usize, word: StackWord) -> &HostWord {
        &self.list(shard, list).header[FREE_WORDS + word as usize]
    }

    fn head(&self, shard: Shard, list: usize) -> u64 {
        // Acquire: for a caller that takes blocks out the fence is what counts; others only look.
        self.list(shard, list).head().load(MemoryOrder::Acquire)
    }

    fn bounds(&self, shard: Shard, list: usize) -> Bounds {
        // Relaxed: a look.
        Bounds::of(
            self.list(shard, list)
                .bounds_word()
                .load(MemoryOrder::Relaxed),
        )
    }

    fn set_bounds(&self, shard: Shard, list: usize, bounds: Bounds) -> bool {
        let list = self.list(shard, list);
        bounds.set(list.bounds_word(), list.entries.len())
    }

    fn freeze(&self, lists: &[(Shard, usize)]) {
        for &(shard, list) in lists {
            let list = self.list(shard, list);
            let freezing = Bounds::FREEZING.bits();
            let bounds = list.bounds_word();
            // Full: pairs with `List::try_lock`; for lists with sections the fence does it. Only a list that is not
            // frozen changes, because another freezer may be taking blocks there.
            let mut seen = bounds.load(MemoryOrder::Relaxed);
            loop {
                assert!(!Bounds::of(seen).is_frozen(), "one freezes at a time");
                match bounds.compare_exchange(seen, freezing, MemoryOrder::Full) {
                    Ok(_) => break,
                    Err(now) => seen = now,
                }
            }
        }
        if backend::has_sections() {
            fence::combined();
        }
        for &(shard, list) in lists {
            let list = self.list(shard, list);
            if Self::has_locks(shard) {
                // Full: pairs with `List::try_lock`.
                busy_wait(|| list.lock().load(MemoryOrder::Full) == 0, time::relax);
            }
            // Full: pairs with the exchange in `take_oldest`, which thereby knows that no operation is under way. No
            // other code changes bounds that are freezing.
            let frozen = Bounds::FROZEN.bits();
            list.bounds_word().store(frozen, MemoryOrder::Full);
        }
    }

    fn thaw(&self, shard: Shard, list: usize, bounds: Bounds) {
        let list = self.list(shard, list);
        bounds.thaw(list.bounds_word(), list.entries.len());
    }

    fn take_oldest(
        &self,
        shard: Shard,
        list: usize,
        count: usize,
        blocks: &mut Vec<Block>,
    ) -> usize {
        let list = self.list(shard, list);
        let (frozen, taking) = (Bounds::FROZEN.bits(), Bounds::TAKING.bits());
        // Full, and the store below: of two takers, one sees the other; and the taker sees what `freeze` saw.
        let alone = list
            .bounds_word()
            .compare_exchange(frozen, taking, MemoryOrder::Full);
        assert!(alone.is_ok(), "only from a frozen list, one at a time");
        let depth = list.depth();
        let count = count.min(depth);
        blocks.extend((0..count).map(|at| list.entry(at)));
        for at in count..depth {
            let bits = list.entries[at].load(MemoryOrder::Relaxed);
            list.entries[at - count].store(bits, MemoryOrder::Relaxed);
        }
        // Its Release pairs with the bounds that thaw the list.
        list.change_depth((count as u64).wrapping_neg());
        list.bounds_word().store(frozen, MemoryOrder::Full);
        count
    }
}
