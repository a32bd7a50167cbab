//! Tasks push and pop while another freezes and takes: no block is lost or held twice, every pop is counted, bounds
//! hold.

use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};

use bursar_machine::pages::{Block, BlockStacks, Bounds, Pfn, depth, pops};
use bursar_machine::{Machine, Shard};
use bursar_rig::Tasks;
use bursar_rig::random::Random;

use super::battery::{CAPACITY, freeze, pages, set_bounds, shards, sum};

const LISTS: usize = 2;

/// Load of the fire.
pub struct Fire {
    /// Tasks that push and pop.
    pub workers: usize,
    /// Operations of each thread.
    pub operations: u64,
    /// The most rounds of the freezer.
    pub freezes: u64,
    /// Blocks in all.
    pub blocks: usize,
    /// Seed of everything random.
    pub seed: u64,
    /// Between rounds of the freezer, nanoseconds.
    pub pause_ns: u64,
    /// Called now and then with a number, to go elsewhere.
    pub hop: fn(u64),
}

/// Blocks that threads hold. Not the machine's words: looking is no step.
struct Hands {
    first: Pfn,
    is_held: Vec<AtomicBool>,
}

impl Hands {
    fn of(&self, block: &Block) -> &AtomicBool {
        &self.is_held[(block.pfn().0 - self.first.0) as usize]
    }

    fn take(&self, blocks: &[Block]) {
        for block in blocks {
            let was_held = self.of(block).swap(true, Ordering::AcqRel);
            assert!(!was_held, "{block:?} is in two hands");
        }
    }

    fn give(&self, blocks: &[Block]) {
        for block in blocks {
            let was_held = self.of(block).swap(false, Ordering::AcqRel);
            assert!(was_held, "{block:?} is in no hand");
        }
    }
}

struct Field<'a, M: Machine> {
    machine: &'a M,
    stacks: M::Stacks,
    fire: &'a Fire,
    hands: Hands,
    popped: AtomicU64,
    working: AtomicUsize,
    /// Blocks that the threads had in the end.
    left: Mutex<Vec<Block>>,
}

/// Counts a worker out, also if it fails.
struct Working<'a>(&'a AtomicUsize);

impl Drop for Working<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::AcqRel);
    }
}

/// See the module.
pub fn burn<M: Tasks>(machine: &M, fire: &Fire) {
    let mut blocks = pages(machine, fire.blocks);
    let field = Field {
        machine,
        stacks: machine.stacks(&[CAPACITY; LISTS]).unwrap(),
        fire,
        hands: Hands {
            first: blocks[0].pfn(),
            is_held: blocks.iter().map(|_| AtomicBool::new(true)).collect(),
        },
        popped: AtomicU64::new(0),
        working: AtomicUsize::new(fire.workers),
        left: Mutex::default(),
    };
    for list in 0..LISTS {
        set_bounds(machine, &field.stacks, list, Bounds::up_to(4));
    }
    let mut tasks: Vec<Box<dyn FnOnce() + Send + '_>> = Vec::new();
    for worker in 0..fire.workers {
        let share = blocks.len() / (fire.workers - worker);
        let own = blocks.split_off(blocks.len() - share);
        let field = &field;
        tasks.push(Box::new(move || field.work(worker as u64, own)));
    }
    tasks.push(Box::new(|| field.freeze_now_and_then()));
    machine.run(tasks);
    field.close();
}

impl<M: Machine> Field<'_, M> {
    fn work(&self, worker: u64, mut own: Vec<Block>) {
        let _working = Working(&self.working);
        let mut random = Random::fork(self.fire.seed, worker);
        for round in 0..self.fire.operations {
            if round.is_multiple_of(512) {
                (self.fire.hop)(worker + round / 512);
            }
            let list = random.below(LISTS as u64) as usize;
            match random.below(4) {
                0 => self.push(list, &mut own),
                1 => self.pop(list, &mut own),
                2 => self.push_many(list, 1 + random.below(4) as usize, &mut own),
                _ => self.pop_many(list, 1 + random.below(4) as usize, &mut own),
            }
        }
        self.left.lock().unwrap().append(&mut own);
    }

    fn push(&self, list: usize, own: &mut Vec<Block>) {
        if let Some(block) = own.pop() {
            self.hands.give(std::slice::from_ref(&block));
            if let Err(block) = self.stacks.push(list, block) {
                self.hands.take(std::slice::from_ref(&block));
                own.push(block);
            }
        }
    }

    fn pop(&self, list: usize, own: &mut Vec<Block>) {
        if let Some(block) = self.stacks.pop(list) {
            self.hands.take(std::slice::from_ref(&block));
            self.popped.fetch_add(1, Ordering::Relaxed);
            own.push(block);
        }
    }

    fn push_many(&self, list: usize, most: usize, own: &mut Vec<Block>) {
        let mut some = own.split_off(own.len().saturating_sub(most));
        self.hands.give(&some);
        let before = some.len();
        let pushed = self.stacks.push_many(list, &mut some);
        assert_eq!(some.len(), before - pushed);
        self.hands.take(&some);
        own.append(&mut some);
    }

    fn pop_many(&self, list: usize, most: usize, own: &mut Vec<Block>) {
        let before = own.len();
        let popped = self.stacks.pop_many(list, most, own);
        assert!(popped <= most && own.len() == before + popped);
        self.hands.take(&own[before..]);
    }

    fn freeze_now_and_then(&self) {
        let mut random = Random::fork(self.fire.seed, u64::MAX);
        let mut own = Vec::new();
        let mut bounds = vec![[(Bounds::up_to(4), 0); LISTS]; self.machine.cpus() + 1];
        for round in 0..self.fire.freezes {
            if self.working.load(Ordering::Acquire) == 0 {
                break;
            }
            (self.fire.hop)(round);
            let list = random.below(LISTS as u64) as usize;
            self.freeze_once(list, &mut random, &mut own, &mut bounds);
            self.push_many(list, 3, &mut own);
            if self.fire.pause_ns > 0 {
                let now_ns = self.machine.now_ns();
                self.machine.sleep_until(now_ns + self.fire.pause_ns);
            }
        }
        self.left.lock().unwrap().append(&mut own);
    }

    /// `bounds` are those of each shard and list, and how many blocks were there when they were set.
    fn freeze_once(
        &self,
        list: usize,
        random: &mut Random,
        own: &mut Vec<Block>,
        bounds: &mut [[(Bounds, usize); LISTS]],
    ) {
        let head = |shard| self.stacks.head(shard, list);
        freeze(self.machine, &self.stacks, list);
        let heads: Vec<u64> = shards(self.machine).map(head).collect();
        for shard in shards(self.machine) {
            let before = heads[shard.index()];
            assert_eq!(head(shard), before, "frozen, and changes");
            let (bounds, found) = &mut bounds[shard.index()][list];
            let held = depth(before);
            assert!(held <= bounds.limit as usize, "{held} above {bounds:?}");
            let least = (*found).min(bounds.floor as usize);
            assert!(held >= least, "{held} below {bounds:?}, of {found}");
            let wanted = random.below(held as u64 + 1) as usize;
            let had = own.len();
            let taken = self.stacks.take_oldest(shard, list, wanted, own);
            assert_eq!((taken, own.len()), (wanted, had + wanted));
            self.hands.take(&own[had..]);
            assert_eq!(head(shard), before - wanted as u64, "nobody else was there");
            *found = held - wanted;
            *bounds = self.other_bounds(*found, random);
            self.stacks.thaw(shard, list, *bounds);
        }
    }

    fn other_bounds(&self, held: usize, random: &mut Random) -> Bounds {
        let limit = 1 + random.below(u64::from(CAPACITY)) as u32;
        Bounds {
            limit: limit.max(held as u32),
            floor: random.below(3) as u32,
        }
    }

    /// Everything is there, once.
    fn close(self) {
        let mut blocks = self.left.into_inner().unwrap();
        let mut counted = 0;
        for list in 0..LISTS {
            freeze(self.machine, &self.stacks, list);
            let take = |shard: Shard| {
                let count = usize::from(CAPACITY);
                self.stacks.take_oldest(shard, list, count, &mut blocks);
            };
            shards(self.machine).for_each(take);
            counted += sum(self.machine, &self.stacks, list, pops);
        }
        assert_eq!(counted, self.popped.into_inner(), "pops counted and done");
        let mut pfns: Vec<_> = blocks
            .iter()
            .map(|block| block.pfn().0 - self.hands.first.0)
            .collect();
        pfns.sort_unstable();
        let expected: Vec<_> = (0..self.fire.blocks as u32).collect();
        assert_eq!(pfns, expected);
    }
}
