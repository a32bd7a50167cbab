//! Page memory of the loom machine: blocks without bytes, and stacks of them whose headers are words of loom's.
//!
//! A section is mutual exclusion per CPU, as for slots. Without sections the list's lock is tried once, as on the host.
//! The blocks are not in words of loom's, because a block cannot be made from bits. Beside each lies such a word with its page, changed as
//! the entry is on the host. Each look at an entry checks that it finds the page of the block that is there.

use std::ops::Range;
use std::sync::{Arc, Mutex as PlainMutex};

use bursar_machine::pages::{Block, BlockStacks, Bounds, StackWord, depth};
use bursar_machine::{AtomicWord, MemoryOrder, Shard, busy_wait};

use super::{Cpus, LoomWord, current};

/// The most blocks of a list.
const ENTRIES: usize = 4;

struct List {
    head: LoomWord,
    bounds: LoomWord,
    free: [LoomWord; StackWord::Last as usize + 1],
    lock: LoomWord,
    entries: [LoomWord; ENTRIES],
    /// The oldest first.
    blocks: PlainMutex<Vec<Block>>,
}

impl List {
    /// `count` says by depth and bounds, which are looked at with `look`, how many blocks `act` moves, and `change` what
    /// that adds to the head, which is stored with `commit`.
    fn perform(
        &self,
        (look, commit): (MemoryOrder, MemoryOrder),
        count: impl FnOnce(usize, Bounds) -> usize,
        change: fn(u64) -> u64,
        act: impl FnOnce(&mut Vec<Block>, usize),
    ) -> usize {
        // At least an acquire: pairs with the store that thaws the list; who sees that must see what the freezer left.
        let bounds = Bounds::of(self.bounds.load(look));
        let head = &self.head;
        let before = head.load(MemoryOrder::Relaxed);
        let count = count(depth(before), bounds);
        if count > 0 {
            let old = self.pages();
            assert_eq!(depth(before), old.len(), "an old depth beside new bounds");
            let takes = change(1) != 1;
            if takes {
                self.check(&old, old.len() - count..old.len());
            }
            act(&mut self.blocks.lock().unwrap(), count);
            for (at, &page) in self.pages().iter().enumerate().skip(old.len()) {
                self.entries[at].store(page, MemoryOrder::Relaxed);
            }
            let after = before.wrapping_add(change(count as u64));
            // Only a task that is alone here writes.
            head.store(after, commit);
        }
        count
    }

    /// Pages of the blocks. The lock is released before the next word is touched, where another thread may run.
    fn pages(&self) -> Vec<u64> {
        let blocks = self.blocks.lock().unwrap();
        blocks.iter().map(|block| block.pfn().0.into()).collect()
    }

    /// Looks at entries.
    fn check(&self, pages: &[u64], range: Range<usize>) {
        for at in range {
            let seen = self.entries[at].load(MemoryOrder::Relaxed);
            assert_eq!(seen, pages[at], "an old entry below a new depth");
        }
    }
}

/// See the module.
#[derive(Clone)]
pub struct LoomStacks {
    cpus: Arc<Cpus>,
    /// Of each used CPU, and of the extra shard.
    lists: Arc<Vec<Vec<List>>>,
}

impl LoomStacks {
    pub(super) fn new(cpus: Arc<Cpus>, capacities: &[u16]) -> Self {
        let list = || List {
            head: LoomWord::new(0),
            bounds: LoomWord::new(0),
            free: std::array::from_fn(|_| LoomWord::new(0)),
            lock: LoomWord::new(0),
            entries: std::array::from_fn(|_| LoomWord::new(0)),
            blocks: PlainMutex::default(),
        };
        let shard = || capacities.iter().map(|_| list()).collect();
        let lists = (0..=cpus.used.len()).map(|_| shard()).collect();
        Self {
            cpus,
            lists: Arc::new(lists),
        }
    }

    fn list(&self, shard: Shard, list: usize) -> &List {
        &self.lists[self.cpus.place(shard)][list]
    }

    fn perform(
        &self,
        list: usize,
        count: impl FnOnce(usize, Bounds) -> usize,
        change: fn(u64) -> u64,
        act: impl FnOnce(&mut Vec<Block>, usize),
    ) -> usize {
        let shard = current();
        let list = self.list(shard, list);
        if self.cpus.has_sections(shard) {
            let _alone = self.cpus.sections[self.cpus.place(shard)].lock().unwrap();
            // A section's commit releases nothing: the freezer passes a fence before it looks at the depth.
            return list.perform(
                (MemoryOrder::Acquire, MemoryOrder::Relaxed),
                count,
                change,
                act,
            );
        }
        let lock = &list.lock;
        // Full, and the look at the bounds: pairs with the freezer's `Full` store of these and its look at the lock, as on
        // the host.
        if lock.compare_exchange(0, 1, MemoryOrder::Full).is_err() {
            return 0;
        }
        // Release: pairs with the freezer's look at the depth.
        let moved = list.perform(
            (MemoryOrder::Full, MemoryOrder::Release),
            count,
            change,
            act,
        );
        // Full: pairs with `freeze`.
        lock.store(0, MemoryOrder::Full);
        moved
    }
}

impl BlockStacks for LoomStacks {
    type Word = LoomWord;

    fn push(&self, list: usize, block: Block) -> Result<(), Block> {
        let mut block = Some(block);
        self.perform(
            list,
            |depth, bounds| usize::from(depth < bounds.limit as usize),
            |_| 1,
            |blocks, _| blocks.extend(block.take()),
        );
        block.map_or(Ok(()), Err)
    }

    fn pop(&self, list: usize) -> Option<Block> {
        let mut popped = None;
        self.perform(
            list,
            |depth, bounds| usize::from(depth > bounds.floor as usize),
            |_| 0xffff,
            |blocks, _| popped = blocks.pop(),
        );
        popped
    }

    fn push_many(&self, list: usize, blocks: &mut Vec<Block>) -> usize {
        let most = blocks.len();
        self.perform(
            list,
            |depth, bounds| (bounds.limit as usize).saturating_sub(depth).min(most),
            |count| count,
            |to, count| to.extend(blocks.drain(most - count..)),
        )
    }

    fn pop_many(&self, list: usize, count: usize, blocks: &mut Vec<Block>) -> usize {
        self.perform(
            list,
            |depth, bounds| depth.saturating_sub(bounds.floor as usize).min(count),
            u64::wrapping_neg,
            |from, count| blocks.extend(from.drain(from.len() - count..)),
        )
    }

    fn word(&self, shard: Shard, list: usize, word: StackWord) -> &LoomWord {
        &self.list(shard, list).free[word as usize]
    }

    fn head(&self, shard: Shard, list: usize) -> u64 {
        self.list(shard, list).head.load(MemoryOrder::Acquire)
    }

    fn bounds(&self, shard: Shard, list: usize) -> Bounds {
        // Relaxed: a look.
        Bounds::of(self.list(shard, list).bounds.load(MemoryOrder::Relaxed))
    }

    /// A model has lists with room for all its blocks.
    fn set_bounds(&self, shard: Shard, list: usize, bounds: Bounds) -> bool {
        bounds.set(&self.list(shard, list).bounds, usize::MAX)
    }

    fn freeze(&self, lists: &[(Shard, usize)]) {
        for &(shard, list) in lists {
            let bounds = &self.list(shard, list).bounds;
            // Full: pairs with the lock of lists without sections.
            let before = bounds.swap(Bounds::FROZEN.bits(), MemoryOrder::Full);
            assert!(!Bounds::of(before).is_frozen(), "one freezes at a time");
        }
        self.cpus.fence();
        for &(shard, list) in lists {
            if !self.cpus.has_sections(shard) {
                let lock = &self.list(shard, list).lock;
                // Full: pairs with `perform`.
                busy_wait(
                    || lock.load(MemoryOrder::Full) == 0,
                    |_| loom::thread::yield_now(),
                );
            }
        }
    }

    fn thaw(&self, shard: Shard, list: usize, bounds: Bounds) {
        bounds.thaw(&self.list(shard, list).bounds, usize::MAX);
    }

    fn take_oldest(
        &self,
        shard: Shard,
        list: usize,
        count: usize,
        blocks: &mut Vec<Block>,
    ) -> usize {
        let list = self.list(shard, list);
        let head = &list.head;
        // Acquire: pairs with the release of whoever pushed what is there.
        let before = head.load(MemoryOrder::Acquire);
        let count = count.min(depth(before));
        let pages = list.pages();
        assert_eq!(depth(before), pages.len(), "a freezer finds an old depth");
        list.check(&pages, 0..count);
        for at in count..pages.len() {
            let moved = list.entries[at].load(MemoryOrder::Relaxed);
            list.entries[at - count].store(moved, MemoryOrder::Relaxed);
        }
        blocks.extend(list.blocks.lock().unwrap().drain(..count));
        // Release: pairs with the bounds that thaw the list.
        head.store(before - count as u64, MemoryOrder::Release);
        count
    }
}
