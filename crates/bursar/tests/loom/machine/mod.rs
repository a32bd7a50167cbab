//! A machine of loom's types, so that loom runs the production code.
//!
//! The model covers the memory model of C++ as far as loom knows it (with loads that return old values), and blocking.
//! It covers every interleaving of atomic accesses and lock operations up to a bound on preemptions.
//!
//! * [`MemoryOrder::Full`] is a sequentially consistent fence before each access, and another one after each write, because loom takes
//!   sequentially consistent accesses for acquire-release ones. The host does the same where it is not x86-64.
//! * A section is mutual exclusion per CPU: relaxed accesses under that CPU's lock, and commits that release nothing. Only the look at
//!   the state acquires. That is what a section does on 64-bit Arm; on x86-64 it does more. A task that sees a shard thawed must see
//!   its freezer's writes. A fence takes each lock once. So every section that began before it has ended, and every
//!   later one sees the earlier writes. This is less than `membarrier`, which also orders accesses of other threads
//!   outside sections. Aborts and restarts are not modelled: a section has no effect before its commit, so a restarted
//!   one is one that began later.
//! * Time stands still; threads stay on the CPU that they were started on. A task that would spin before it sleeps sleeps at once.

mod stacks;
mod word;

use std::cell::Cell;
use std::fmt;
use std::sync::{Arc, Mutex as PlainMutex};

use bursar_machine::pages::{ReserveError, ReserveOptions, Span};
use bursar_machine::{
    AtomicShard, AtomicWord, CAP, CEILING, CHARGED, Event, Lock, Machine, MemoryOrder, OutOfMemory,
    Outcome, STATE, Shard, Slot, State, busy_wait,
};
use bursar_rig::frames::Unbacked;
use loom::sync::{Condvar, Mutex, MutexGuard};

pub use stacks::LoomStacks;
pub use word::LoomWord;
use word::{number, spawn};

/// A model, explored up to a number of preemptions: a test for each kind of shard.
macro_rules! model {
    ($name:ident, $preemptions:expr, $model:expr $(,)?) => {
        mod $name {
            use super::*;

            #[test]
            fn sections() {
                crate::machine::explore($preemptions, Kind::Sections, $model);
            }

            #[test]
            fn atomics() {
                crate::machine::explore($preemptions, Kind::Atomics, $model);
            }
        }
    };
}

const MODEL_STACK_WORDS: usize = 16 << 10;

/// Explores a model up to a bound on preemptions; `LOOM_MAX_PREEMPTIONS` overrides it.
pub fn explore(preemptions: usize, kind: Kind, model: impl Fn(Kind) + Send + Sync + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound.get_or_insert(preemptions);
    builder.max_branches = builder.max_branches.max(20_000);
    let model = std::sync::Arc::new(model);
    builder.check(move || {
        let model = model.clone();
        // Loom's first thread has 32 KiB of stack, too few to build a memory of its words. Its unit is a machine word.
        let big = loom::thread::Builder::new().stack_size(MODEL_STACK_WORDS);
        let thread = big.spawn(move || model(kind)).unwrap();
        thread.join().unwrap();
    });
}

loom::thread_local! {
    static CURRENT: Cell<u32> = Cell::new(0);
}

/// Starts a thread on a CPU. Only the first thread does.
pub fn spawn_on<T: 'static>(
    cpu: u32,
    work: impl FnOnce() -> T + 'static,
) -> loom::thread::JoinHandle<T> {
    spawn(move || {
        run_on(cpu);
        work()
    })
}

/// Puts the calling thread on a CPU.
pub fn run_on(cpu: u32) {
    CURRENT.with(|current| current.set(cpu));
}

/// Way in which the shards of CPUs are changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// By sections.
    Sections,
    /// By atomic operations.
    Atomics,
}

struct Cpus {
    kind: Kind,
    count: u32,
    /// CPUs that threads run on; no others have words.
    used: &'static [u32],
    sections: Vec<Mutex<()>>,
    slots: PlainMutex<Vec<Arc<Words>>>,
    /// Blocks of the largest order that reservations have.
    spans: PlainMutex<u32>,
}

impl Cpus {
    fn fence(&self) {
        if self.kind == Kind::Sections {
            let wait = |section: &Mutex<()>| drop(section.lock().unwrap());
            self.sections.iter().for_each(wait);
        }
    }

    fn place(&self, shard: Shard) -> usize {
        if shard.0 == self.count {
            return self.used.len();
        }
        let place = self.used.iter().position(|&cpu| cpu == shard.0);
        place.expect("a CPU that threads run on")
    }

    fn has_sections(&self, shard: Shard) -> bool {
        self.kind == Kind::Sections && shard.0 < self.count
    }
}

/// See the module.
#[derive(Clone)]
pub struct LoomMachine {
    cpus: Arc<Cpus>,
}

impl fmt::Debug for LoomMachine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "LoomMachine({:?})", self.cpus.kind)
    }
}

impl LoomMachine {
    /// A machine with `count` CPUs, of which `used` have threads.
    pub fn new(kind: Kind, count: u32, used: &'static [u32]) -> Self {
        assert!(used.iter().all(|&cpu| cpu < count));
        Self {
            cpus: Arc::new(Cpus {
                kind,
                count,
                used,
                sections: used.iter().map(|_| Mutex::new(())).collect(),
                slots: PlainMutex::new(Vec::new()),
                spans: PlainMutex::new(0),
            }),
        }
    }

    /// Stock of the group that was the `index`-th to get words (the root is the 0th), bytes.
    pub fn stock(&self, index: usize) -> u64 {
        let words = self.cpus.slots.lock().unwrap()[index].clone();
        let slot = LoomSlot {
            cpus: self.cpus.clone(),
            words,
        };
        let rooms = self.cpus.used.iter().map(|&cpu| slot.room(Shard(cpu)));
        u64::try_from(rooms.sum::<i64>()).expect("no shard's room is negative")
    }
}

impl Machine for LoomMachine {
    type Word = LoomWord;
    type Mutex<T: Send + 'static> = LoomMutex<T>;
    type Spin<T: Send + 'static> = LoomMutex<T>;
    type Event = LoomEvent;
    type Slot = LoomSlot;
    type Shared<T: Send + Sync + 'static> = Arc<T>;
    type Operation = ();
    type Frames = Unbacked<()>;
    type Stacks = LoomStacks;

    fn share<T: Send + Sync + 'static>(value: T) -> Arc<T> {
        Arc::new(value)
    }

    fn cpus(&self) -> usize {
        self.cpus.count as usize
    }

    fn nodes(&self) -> usize {
        1
    }

    fn node_of(&self, shard: Shard) -> Option<usize> {
        (shard.0 < self.cpus.count).then_some(0)
    }

    fn current_shard(&self) -> Shard {
        CURRENT.with(|current| Shard(current.get()))
    }

    fn slots(&self, words: usize) -> Result<Vec<LoomSlot>, OutOfMemory> {
        let shards = self.cpus.used.len() + 1;
        let shard = || (0..words).map(|_| LoomWord::new(0)).collect();
        let words = Arc::new(Words((0..shards).map(|_| shard()).collect()));
        self.cpus.slots.lock().unwrap().push(words.clone());
        Ok(vec![LoomSlot {
            cpus: self.cpus.clone(),
            words,
        }])
    }

    fn reserve(&self, options: &ReserveOptions) -> Result<(Unbacked<()>, Span), ReserveError> {
        Unbacked::reserve(&mut self.cpus.spans.lock().unwrap(), options.pages)
    }

    fn memory_bytes(&self) -> u64 {
        1 << 22
    }

    fn stacks(&self, capacities: &[u16]) -> Result<LoomStacks, OutOfMemory> {
        Ok(LoomStacks::new(self.cpus.clone(), capacities))
    }

    fn fence(&self) {
        self.cpus.fence();
    }

    fn warn(&self, message: std::fmt::Arguments<'_>) {
        panic!("{message}");
    }

    fn now_ns(&self) -> u64 {
        0
    }

    fn relax(&self, _round: u32) {
        loom::thread::yield_now();
    }

    fn spins(&self) -> u32 {
        0
    }

    fn sleep_until(&self, _deadline_ns: u64) {
        loom::thread::yield_now();
    }

    fn task(&self) -> u64 {
        number() as u64 + 1
    }

    fn operation(&self) {}

    fn forks(&self) -> u64 {
        0
    }
}

/// The words of one group: of each used CPU, and of the extra shard.
struct Words(Vec<Box<[LoomWord]>>);

/// See the module.
#[derive(Clone)]
pub struct LoomSlot {
    cpus: Arc<Cpus>,
    words: Arc<Words>,
}

impl LoomSlot {
    fn copy(&self, shard: Shard) -> &[LoomWord] {
        &self.words.0[self.cpus.place(shard)]
    }

    fn atomic(&self, shard: Shard) -> AtomicShard<'_, LoomWord> {
        AtomicShard::new(self.copy(shard), shard)
    }

    /// Runs `section` on the words of a CPU if they are published, alone on that CPU.
    fn section(&self, cpu: Shard, section: impl FnOnce(&[LoomWord]) -> Outcome) -> Outcome {
        let _alone = self.cpus.sections[self.cpus.place(cpu)].lock().unwrap();
        let words = self.copy(cpu);
        if words[STATE].load(MemoryOrder::Acquire) & 0xff != State::PUBLISHED {
            return Outcome::Unpublished {
                shard: cpu,
                committed: false,
            };
        }
        section(words)
    }
}

fn current() -> Shard {
    CURRENT.with(|current| Shard(current.get()))
}

/// `word += delta` inside a section.
fn commit(word: &LoomWord, delta: i64) -> i64 {
    let now = word.load_signed(MemoryOrder::Relaxed).wrapping_add(delta);
    word.store(now as u64, MemoryOrder::Relaxed);
    now
}

fn room_in_section(words: &[LoomWord]) -> i64 {
    let ceiling = words[CEILING].load_signed(MemoryOrder::Relaxed);
    ceiling.wrapping_sub(words[CHARGED].load_signed(MemoryOrder::Relaxed))
}

// The sections do what `crates/machine/src/host/rseq.rs` does, the rest what `slots.rs` beside it does.
impl Slot for LoomSlot {
    type Word = LoomWord;

    fn add(&self, word: usize, delta: i64) -> Outcome {
        self.add_fetch(word, delta).0
    }

    fn add_fetch(&self, word: usize, delta: i64) -> (Outcome, Shard, i64) {
        let shard = current();
        if !self.cpus.has_sections(shard) {
            let (outcome, sum) = self.atomic(shard).add_fetch(word, delta);
            return (outcome, shard, sum);
        }
        let mut sum = 0;
        let outcome = self.section(shard, |words| {
            sum = commit(&words[word], delta);
            Outcome::Done
        });
        (outcome, shard, sum)
    }

    fn charge(&self, bytes: u64) -> Outcome {
        let shard = current();
        if !self.cpus.has_sections(shard) {
            return self.atomic(shard).charge(bytes);
        }
        self.section(shard, |words| {
            if bytes.wrapping_sub(1) >= room_in_section(words) as u64 {
                return Outcome::Short;
            }
            commit(&words[CHARGED], bytes as i64);
            Outcome::Done
        })
    }

    fn uncharge(&self, bytes: u64) -> Outcome {
        let shard = current();
        if !self.cpus.has_sections(shard) {
            return self.atomic(shard).uncharge(bytes);
        }
        self.section(shard, |words| {
            let cap = words[CAP].load_signed(MemoryOrder::Relaxed);
            if bytes > (cap - room_in_section(words)) as u64 {
                return Outcome::Short;
            }
            commit(&words[CHARGED], -(bytes as i64));
            Outcome::Done
        })
    }

    fn adjust(&self, shard: Shard, charged: i64, ceiling: i64) -> Outcome {
        if !self.cpus.has_sections(shard) {
            return self.atomic(shard).adjust(charged, ceiling);
        }
        if current() != shard {
            return Outcome::Moved;
        }
        self.section(shard, |words| {
            let room = room_in_section(words).wrapping_add(ceiling.wrapping_sub(charged));
            if room < 0 || room > words[CAP].load_signed(MemoryOrder::Relaxed) {
                return Outcome::Short;
            }
            commit(&words[CHARGED], charged);
            commit(&words[CEILING], ceiling);
            Outcome::Done
        })
    }

    fn add_extra(&self, word: usize, delta: i64) {
        self.atomic(Shard(self.cpus.count)).add(word, delta);
    }

    fn word(&self, shard: Shard, word: usize) -> &LoomWord {
        &self.copy(shard)[word]
    }

    fn room(&self, shard: Shard) -> i64 {
        if !self.cpus.has_sections(shard) {
            return self.atomic(shard).room();
        }
        let words = self.copy(shard);
        let ceiling = words[CEILING].load_signed(MemoryOrder::Acquire);
        ceiling.wrapping_sub(words[CHARGED].load_signed(MemoryOrder::Acquire))
    }

    fn settle(&self, shard: Shard) {
        if !self.cpus.has_sections(shard) {
            let shard = self.atomic(shard);
            busy_wait(|| !shard.is_busy(), |_| loom::thread::yield_now());
        }
    }

    fn take_room(&self, shard: Shard) -> u64 {
        if !self.cpus.has_sections(shard) {
            return self.atomic(shard).take_room();
        }
        let words = self.copy(shard);
        let charged = words[CHARGED].load_signed(MemoryOrder::Acquire);
        let room = words[CEILING]
            .load_signed(MemoryOrder::Acquire)
            .wrapping_sub(charged);
        words[CEILING].store(charged as u64, MemoryOrder::Release);
        u64::try_from(room).expect("sections never let the room become negative")
    }
}

/// A lock of loom's.
pub struct LoomMutex<T>(Mutex<T>);

impl<T: Send + 'static> Lock<T> for LoomMutex<T> {
    type Guard<'a> = MutexGuard<'a, T>;

    fn new(value: T) -> Self {
        Self(Mutex::new(value))
    }
    fn lock(&self) -> MutexGuard<'_, T> {
        self.0.lock().unwrap()
    }
    fn try_lock(&self) -> Option<MutexGuard<'_, T>> {
        self.0.try_lock().ok()
    }
    fn waits(&self) -> u64 {
        0
    }
}

/// A completion.
pub struct LoomEvent {
    happened: Mutex<bool>,
    changed: Condvar,
}

impl Event for LoomEvent {
    fn new() -> Self {
        Self {
            happened: Mutex::new(false),
            changed: Condvar::new(),
        }
    }

    fn set(&self) {
        *self.happened.lock().unwrap() = true;
        self.changed.notify_all();
    }

    fn wait(&self) {
        let mut happened = self.happened.lock().unwrap();
        while !*happened {
            happened = self.changed.wait(happened).unwrap();
        }
    }
}
