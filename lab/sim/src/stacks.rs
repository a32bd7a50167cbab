//! Per-CPU stacks of blocks: the same as the host's, in sections or under the list's lock.
//!
//! The blocks are in a `Vec`, the oldest first. The words of the header have the same meaning as on the host. Entries
//! have lines of their own, eight entries on each, which are made when the list first grows that deep.

use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use bursar_machine::pages::{
    Block, BlockStacks, Bounds, LIST_BLOCKS_MAX, LISTS_MAX, StackWord, depth,
};
use bursar_machine::{AtomicWord, MemoryOrder, Shard, busy_wait};

use crate::current::{current_shard, relax};
use crate::engine::{Engine, with_engine};
use crate::lines::{Access, LineId};
use crate::operation::operation;
use crate::settings::SectionKind;
use crate::task::Step;
use crate::word::SimWord;
use crate::{fence, section};

/// Number of entries on a line.
const LINE_ENTRIES: usize = 8;
/// Number of words of a header that are free for use.
const FREE_WORDS: usize = StackWord::Last as usize + 1;

/// List of one shard. All words of the header are on one line.
struct List {
    head: SimWord,
    bounds: SimWord,
    free: [SimWord; FREE_WORDS],
    lock: SimWord,
    entries: Mutex<Entries>,
}

#[derive(Default)]
struct Entries {
    /// Blocks, the oldest first.
    blocks: Vec<Block>,
    lines: Vec<LineId>,
}

impl List {
    fn new() -> Self {
        let line = with_engine(|engine| engine.world.lines.allocate()).unwrap_or(0);
        Self {
            head: SimWord::on_line(0, line),
            bounds: SimWord::on_line(0, line),
            free: std::array::from_fn(|_| SimWord::on_line(0, line)),
            lock: SimWord::on_line(0, line),
            entries: Mutex::default(),
        }
    }

    fn line(&self) -> LineId {
        self.head.line()
    }

    /// Locks the entries; never held over a step.
    fn entries(&self) -> MutexGuard<'_, Entries> {
        self.entries.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Lines of `count` entries from the `first` on.
    fn lines_of(&self, first: usize, count: usize) -> Vec<LineId> {
        let lines = &mut self.entries().lines;
        let end = (first + count).div_ceil(LINE_ENTRIES);
        let allocate = || with_engine(|engine| engine.world.lines.allocate()).unwrap_or(0);
        lines.extend((lines.len()..end).map(|_| allocate()));
        lines[first / LINE_ENTRIES..end].to_vec()
    }
}

struct Lists {
    cpus: u32,
    capacities: Box<[u16]>,
    sections: SectionKind,
    /// Lists of all shards; those of each shard follow one another.
    lists: Box<[OnceLock<List>]>,
    /// Number of the engine that the lines belong to.
    engine: Option<u32>,
}

impl Drop for Lists {
    fn drop(&mut self) {
        with_engine(|engine| {
            if self.engine != Some(engine.number) {
                return;
            }
            for list in self.lists.iter().filter_map(OnceLock::get) {
                engine.world.lines.release(list.line());
                let lines = &list.entries().lines;
                lines
                    .iter()
                    .for_each(|&line| engine.world.lines.release(line));
            }
        });
    }
}

/// Per-CPU stacks of blocks on a simulated machine.
#[derive(Clone)]
pub struct SimStacks(Arc<Lists>);

/// Operation of the current CPU on a list.
struct Operation<C, M> {
    /// Returns the number of blocks to move, from depth and bounds.
    count: C,
    /// Returns the amount to add to the head, from that number.
    change: fn(u64) -> u64,
    /// Moves that number of blocks.
    move_blocks: M,
}

impl SimStacks {
    pub(crate) fn new(cpus: usize, capacities: &[u16], sections: SectionKind) -> Self {
        let count = capacities.len();
        assert!((1..=LISTS_MAX).contains(&count), "1 to {LISTS_MAX} lists");
        let entries: usize = capacities.iter().copied().map(usize::from).sum();
        assert!(
            entries <= LIST_BLOCKS_MAX,
            "the lists of a CPU hold at most {LIST_BLOCKS_MAX} blocks together"
        );
        Self(Arc::new(Lists {
            cpus: cpus as u32,
            capacities: capacities.into(),
            sections,
            lists: (0..(cpus + 1) * count).map(|_| OnceLock::new()).collect(),
            engine: with_engine(|engine| engine.number),
        }))
    }

    fn capacity(&self, list: usize) -> usize {
        self.0.capacities.get(list).copied().map_or(0, usize::from)
    }

    fn list(&self, shard: Shard, list: usize) -> &List {
        let exists = list < self.0.capacities.len() && shard.0 <= self.0.cpus;
        assert!(exists, "no such list");
        let at = shard.index() * self.0.capacities.len() + list;
        self.0.lists[at].get_or_init(List::new)
    }

    fn has_sections(&self, shard: Shard) -> bool {
        self.0.sections == SectionKind::Restartable && shard.0 < self.0.cpus
    }

    /// Performs the operation on the CPU that the task is on; returns the number of blocks moved.
    fn perform<C, M>(&self, list: usize, operation: Operation<C, M>) -> usize
    where
        C: Fn(usize, Bounds) -> usize,
        M: FnOnce(&mut Vec<Block>, usize),
    {
        let (moved, here) = loop {
            let shard = current_shard();
            let here = self.list(shard, list);
            if !self.has_sections(shard) {
                break (here.perform_locked(operation), here);
            }
            if let Some(count) = here.look(shard, &operation.count) {
                here.commit(count, operation);
                break (count, here);
            }
            // The section was interrupted.
        };
        debug_assert!(here.entries().blocks.len() <= self.capacity(list));
        moved
    }
}

impl List {
    /// Runs the first part of a section: finds the number of blocks to move. `None` if it was interrupted.
    fn look(&self, shard: Shard, count: impl Fn(usize, Bounds) -> usize) -> Option<usize> {
        with_engine(|engine| {
            section::section(engine, shard, self.line(), || {
                // The bounds first, as on the host, because a thaw passes no fence.
                let bounds = Bounds::of(self.bounds.peek());
                section::inside_section(engine, self.line());
                count(depth(self.head.peek()), bounds)
            })
        })
        .expect("sections run on a simulator")
    }

    /// Runs the second part of a section, before the next step.
    fn commit<C, M>(&self, count: usize, operation: Operation<C, M>)
    where
        M: FnOnce(&mut Vec<Block>, usize),
    {
        if count == 0 {
            return;
        }
        let head = &self.head;
        let (before, change) = (head.peek(), (operation.change)(count as u64));
        head.poke(before.wrapping_add(change));
        (operation.move_blocks)(&mut self.entries().blocks, count);
        with_engine(|engine| {
            let lines = self.lines_of(lowest(before, change), count);
            let touch = |line| engine.access(line, Access::Write, 0);
            lines.into_iter().for_each(touch);
        });
    }

    /// Performs the whole operation where there are no sections; moves nothing if the lock is taken. Each access is a
    /// step.
    fn perform_locked<C, M>(&self, wanted: Operation<C, M>) -> usize
    where
        C: Fn(usize, Bounds) -> usize,
        M: FnOnce(&mut Vec<Block>, usize),
    {
        // A fork waits until the lock is released.
        let _operation = operation();
        let lock = &self.lock;
        // Full: pairs with the freezer's `Full` store of the bounds, as on the host.
        if lock.compare_exchange(0, 1, MemoryOrder::Full).is_err() {
            return 0;
        }
        // Full: as above. The bounds first: a task that read the depth first might read it frozen, and the bounds
        // thawed.
        let bounds = Bounds::of(self.bounds.load(MemoryOrder::Full));
        let head = &self.head;
        // Acquire: pairs with the Release below, of the lock's previous holder.
        let before = head.load(MemoryOrder::Acquire);
        let count = (wanted.count)(depth(before), bounds);
        if count > 0 {
            let change = (wanted.change)(count as u64);
            self.step_on(lowest(before, change), count);
            (wanted.move_blocks)(&mut self.entries().blocks, count);
            // Release: a task that sees the depth sees the blocks.
            head.store(before.wrapping_add(change), MemoryOrder::Release);
        }
        // Full: pairs with `freeze`.
        lock.store(0, MemoryOrder::Full);
        count
    }

    /// Makes visible accesses to entries.
    fn step_on(&self, first: usize, count: usize) {
        for line in self.lines_of(first, count) {
            with_engine(|engine: &Engine| {
                engine.visible(Step::Store, line);
                engine.access(line, Access::Write, 0);
            });
        }
    }
}

/// Lowest entry that a change of the head adds or takes.
fn lowest(before: u64, change: u64) -> usize {
    depth(before).min(depth(before.wrapping_add(change)))
}

impl BlockStacks for SimStacks {
    type Word = SimWord;

    fn push(&self, list: usize, block: Block) -> Result<(), Block> {
        let mut block = Some(block);
        let push = Operation {
            count: |depth, bounds: Bounds| usize::from(depth < bounds.limit as usize),
            change: |_| 1,
            move_blocks: |blocks: &mut Vec<Block>, _| blocks.extend(block.take()),
        };
        self.perform(list, push);
        block.map_or(Ok(()), Err)
    }

    fn pop(&self, list: usize) -> Option<Block> {
        let mut popped = None;
        let pop = Operation {
            count: |depth, bounds: Bounds| usize::from(depth > bounds.floor as usize),
            // One block less, and one more that was popped.
            change: |_| 0xffff,
            move_blocks: |blocks: &mut Vec<Block>, _| {
                popped = Some(blocks.pop().expect("the depth counts what is there"));
            },
        };
        self.perform(list, pop);
        popped
    }

    fn push_many(&self, list: usize, blocks: &mut Vec<Block>) -> usize {
        let most = blocks.len();
        let push = Operation {
            count: |depth, bounds: Bounds| (bounds.limit as usize).saturating_sub(depth).min(most),
            change: |count| count,
            move_blocks: |to: &mut Vec<Block>, count| to.extend(blocks.drain(most - count..)),
        };
        self.perform(list, push)
    }

    fn pop_many(&self, list: usize, count: usize, blocks: &mut Vec<Block>) -> usize {
        let pop = Operation {
            count: |depth: usize, bounds: Bounds| {
                depth.saturating_sub(bounds.floor as usize).min(count)
            },
            change: u64::wrapping_neg,
            move_blocks: |from: &mut Vec<Block>, count| {
                let kept = from.len().checked_sub(count);
                blocks.extend(from.drain(kept.expect("the depth counts what is there")..));
            },
        };
        self.perform(list, pop)
    }

    fn word(&self, shard: Shard, list: usize, word: StackWord) -> &SimWord {
        &self.list(shard, list).free[word as usize]
    }

    fn head(&self, shard: Shard, list: usize) -> u64 {
        // Acquire: for a caller that takes blocks out the fence is what counts; others only look.
        self.list(shard, list).head.load(MemoryOrder::Acquire)
    }

    fn bounds(&self, shard: Shard, list: usize) -> Bounds {
        // Relaxed: a look.
        Bounds::of(self.list(shard, list).bounds.load(MemoryOrder::Relaxed))
    }

    fn set_bounds(&self, shard: Shard, list: usize, bounds: Bounds) -> bool {
        let word = &self.list(shard, list).bounds;
        bounds.set(word, self.capacity(list))
    }

    /// Freezes at once, while the host first marks lists as freezing. Blocks are not made from words here, so it is
    /// enough that tasks freeze in turns.
    fn freeze(&self, lists: &[(Shard, usize)]) {
        for &(shard, list) in lists {
            let bounds = &self.list(shard, list).bounds;
            // Full: pairs with the lock of lists without sections; for lists with sections the fence does it.
            let before = bounds.swap(Bounds::FROZEN.bits(), MemoryOrder::Full);
            assert!(!Bounds::of(before).is_frozen(), "one freezes at a time");
        }
        if self.0.sections == SectionKind::Restartable {
            with_engine(fence::fence);
        }
        for &(shard, list) in lists {
            if !self.has_sections(shard) {
                let lock = &self.list(shard, list).lock;
                // Full: pairs with `List::perform_locked`.
                busy_wait(|| lock.load(MemoryOrder::Full) == 0, relax);
            }
        }
    }

    fn thaw(&self, shard: Shard, list: usize, bounds: Bounds) {
        let word = &self.list(shard, list).bounds;
        bounds.thaw(word, self.capacity(list));
    }

    fn take_oldest(
        &self,
        shard: Shard,
        list: usize,
        count: usize,
        blocks: &mut Vec<Block>,
    ) -> usize {
        let list = self.list(shard, list);
        let is_frozen = Bounds::of(list.bounds.peek()).is_frozen();
        assert!(is_frozen, "only from a frozen list");
        let head = &list.head;
        // Acquire: pairs with the Release of the push of these blocks; a freezer of sections has passed a fence.
        let before = head.load(MemoryOrder::Acquire);
        let count = count.min(depth(before));
        // The remaining blocks move down.
        list.step_on(0, depth(before));
        blocks.extend(list.entries().blocks.drain(..count));
        // Release: pairs with the bounds that thaw the list.
        head.store(before - count as u64, MemoryOrder::Release);
        count
    }
}
