//! Page memory of the loom machine: blocks without bytes, and stacks of them in words of loom's.
//!
//! The lists are those of the host ([`BlockList`]). A section is mutual exclusion per CPU, as for slots.

use std::sync::Arc;

use bursar_machine::pages::{Block, BlockList, BlockStacks, Bounds, ListOperation, StackWord};
use bursar_machine::{AtomicWord, Shard};

use super::{Cpus, LoomWord, current};

/// Words of one list.
struct Words {
    head: LoomWord,
    bounds: LoomWord,
    lock: LoomWord,
    free: [LoomWord; StackWord::Last as usize + 1],
    entries: Box<[LoomWord]>,
}

impl Words {
    fn list(&self) -> BlockList<'_, LoomWord> {
        // SAFETY: the words are zero at first, and are given to nobody else. `perform` locks lists without sections only.
        unsafe { BlockList::new(&self.head, &self.bounds, &self.lock, &self.entries) }
    }
}

/// See the module.
#[derive(Clone)]
pub struct LoomStacks {
    cpus: Arc<Cpus>,
    /// Words of each used CPU, and of the extra shard.
    words: Arc<Vec<Vec<Words>>>,
}

impl LoomStacks {
    pub(super) fn new(cpus: Arc<Cpus>, capacities: &[u16]) -> Self {
        let zero = || LoomWord::new(0);
        let list = |&capacity: &u16| Words {
            head: zero(),
            bounds: zero(),
            lock: zero(),
            free: std::array::from_fn(|_| zero()),
            entries: (0..capacity).map(|_| zero()).collect(),
        };
        let shard = || capacities.iter().map(list).collect();
        let words = (0..=cpus.used.len()).map(|_| shard()).collect();
        Self {
            cpus,
            words: Arc::new(words),
        }
    }

    fn words(&self, shard: Shard, list: usize) -> &Words {
        &self.words[self.cpus.place(shard)][list]
    }

    fn list(&self, shard: Shard, list: usize) -> BlockList<'_, LoomWord> {
        self.words(shard, list).list()
    }

    /// Performs an operation on the current CPU's list, unless its lock is taken.
    fn perform<R>(
        &self,
        list: usize,
        act: impl FnOnce(ListOperation<'_, LoomWord>) -> R,
    ) -> Option<R> {
        let shard = current();
        let list = self.list(shard, list);
        if self.cpus.has_sections(shard) {
            let _alone = self.cpus.sections[self.cpus.place(shard)].lock().unwrap();
            // SAFETY: the CPU's lock keeps sections apart, `Cpus::fence` waits for it, and a list with sections is never locked.
            return Some(act(unsafe { list.in_section() }));
        }
        list.try_lock().map(act)
    }
}

impl BlockStacks for LoomStacks {
    type Word = LoomWord;

    fn push(&self, list: usize, block: Block) -> Result<(), Block> {
        let mut block = Some(block);
        let pushed = self.perform(list, |one| one.push(block.take().expect("once")));
        pushed.unwrap_or_else(|| Err(block.expect("not performed")))
    }

    fn pop(&self, list: usize) -> Option<Block> {
        self.perform(list, |one| one.pop())?
    }

    fn push_many(&self, list: usize, blocks: &mut Vec<Block>) -> usize {
        self.perform(list, |one| one.push_many(blocks)).unwrap_or(0)
    }

    fn pop_many(&self, list: usize, count: usize, blocks: &mut Vec<Block>) -> usize {
        let popped = self.perform(list, |one| one.pop_many(count, blocks));
        popped.unwrap_or(0)
    }

    fn word(&self, shard: Shard, list: usize, word: StackWord) -> &LoomWord {
        &self.words(shard, list).free[word as usize]
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
        self.cpus.fence();
        for &(shard, list) in lists {
            // SAFETY: begun above, once; the fence since waits for all sections.
            unsafe {
                self.list(shard, list)
                    .end_freeze(|_| loom::thread::yield_now());
            }
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
