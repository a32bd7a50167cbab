//! Per-CPU stacks of blocks of the host: their place in memory, and the path that an operation takes.
//!
//! A chunk is one stride for each shard, as for slots. In a stride the lists follow one another; each is a header of
//! one line and its entries.

use core::ptr::NonNull;

use super::chunk::{self, LIST_HEADER, LIST_LIMIT, STRIDE, STRIDE_SHIFT};
use super::sync::HostWord;
use super::{backend, fence, fork, rseq, slots, time};
use crate::pages::{
    Block, BlockList, BlockStacks, Bounds, LIST_BLOCKS_MAX, LISTS_MAX, ListOperation, StackWord,
    depth,
};
use crate::{OutOfMemory, Shard};

/// Number of words of a list's header.
const HEADER_WORDS: usize = LIST_HEADER / 8;
/// Indexes of the header's words. Sections know that the head is the first.
const HEAD: usize = 0;
const BOUNDS: usize = LIST_LIMIT / 8;
/// Index of the first word that is free for use.
const FREE_WORDS: usize = 2;
/// Index of the lock of a list without sections.
const LOCK: usize = FREE_WORDS + StackWord::Last as usize + 1;

// No change of these constants lets the lock and a free word be one.
const _: () = assert!(FREE_WORDS + (StackWord::Last as usize) < LOCK && LOCK < HEADER_WORDS);
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

/// List of a shard.
type List = BlockList<'static, HostWord>;

/// Operation on a list without sections. A fork waits until it is gone: in this order, so that the list's lock is free by then.
struct Operation {
    list: ListOperation<'static, HostWord>,
    _operation: fork::HostOperation,
}

impl HostStacks {
    fn base(&self, list: usize) -> *mut u8 {
        debug_assert!(list < LISTS_MAX, "no such list");
        self.lists[list % PLACES].as_ptr()
    }

    /// Words of a list's header, and its entries.
    fn words(&self, shard: Shard, list: usize) -> (&'static [HostWord], &'static [HostWord]) {
        assert!(list < usize::from(self.count), "no such list");
        let capacity = usize::from(self.capacities[list]);
        assert!(shard <= slots::shards_max(), "no such shard");
        // SAFETY: (1) the chunk has a stride for each shard up to the extra one, and the list lies inside the first
        // stride, so its copies lie inside the others; (2) it stays mapped and is only written through atomics and
        // sections; (3) zeroed memory is a valid `HostWord`.
        let words = unsafe {
            let at = self.lists[list].add(shard.index() << STRIDE_SHIFT);
            core::slice::from_raw_parts(at.cast().as_ptr(), HEADER_WORDS + capacity)
        };
        words.split_at(HEADER_WORDS)
    }

    fn list(&self, shard: Shard, list: usize) -> List {
        let (header, entries) = self.words(shard, list);
        // SAFETY: (1) a chunk is zeroed; (2) only sections and these lists write these words: `word` gives out others; (3)
        // `operation` locks lists without sections only.
        unsafe { BlockList::new(&header[HEAD], &header[BOUNDS], &header[LOCK], entries) }
    }

    /// The calling thread's list if it has no sections (see `HostSlot::without_section`); `None` if it has.
    fn without_section(&self, list: usize) -> Option<List> {
        if backend::has_sections() {
            if rseq::current_cpu().is_some() {
                return None;
            }
            return Some(self.list(slots::shards_max(), list));
        }
        Some(self.list(slots::current_shard(), list))
    }

    /// Begins an operation on a list that [`Self::without_section`] found.
    fn operation(list: List) -> Option<Operation> {
        let _operation = fork::operation();
        let list = list.try_lock()?;
        Some(Operation { list, _operation })
    }

    /// List of the calling thread's CPU, to look at.
    fn looked_at(&self, list: usize) -> Option<List> {
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
        match self.without_section(list).and_then(Self::operation) {
            Some(operation) => operation.list.push(block),
            None => Err(block),
        }
    }

    fn pop(&self, list: usize) -> Option<Block> {
        if let Some(block) = self.try_pop(list) {
            return Some(block);
        }
        Self::operation(self.without_section(list)?)?.list.pop()
    }

    fn push_many(&self, list: usize, blocks: &mut Vec<Block>) -> usize {
        if let Some(list) = self.without_section(list) {
            return Self::operation(list).map_or(0, |one| one.list.push_many(blocks));
        }
        // The look estimates how many fit; the section decides.
        while let Some(look) = self.looked_at(list) {
            let room = look.bounds().limit as usize;
            let count = room.saturating_sub(depth(look.head())).min(blocks.len());
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
            return Self::operation(list).map_or(0, |one| one.list.pop_many(count, blocks));
        }
        while let Some(look) = self.looked_at(list) {
            let floor = look.bounds().floor as usize;
            let count = depth(look.head()).saturating_sub(floor).min(count);
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
        &self.words(shard, list).0[FREE_WORDS + word as usize]
    }

    fn head(&self, shard: Shard, list: usize) -> u64 {
        self.list(shard, list).head()
    }

    fn bounds(&self, shard: Shard, list: usize) -> Bounds {
        self.list(shard, list).bounds()
    }

    fn set_bounds(&self, shard: Shard, list: usize, bounds: Bounds) -> bool {
        self.list(shard, list).set_bounds(bounds)
    }

    fn freeze(&self, lists: &[(Shard, usize)]) {
        for &(shard, list) in lists {
            self.list(shard, list).begin_freeze();
        }
        if backend::has_sections() {
            fence::combined();
        }
        for &(shard, list) in lists {
            // SAFETY: begun above, once; the fence since waits for all sections.
            unsafe { self.list(shard, list).end_freeze(time::relax) };
        }
    }

    fn thaw(&self, shard: Shard, list: usize, bounds: Bounds) {
        self.list(shard, list).thaw(bounds);
    }

    fn take_oldest(
        &self,
        shard: Shard,
        list: usize,
        count: usize,
        blocks: &mut Vec<Block>,
    ) -> usize {
        self.list(shard, list).take_oldest(count, blocks)
    }
}
