//! Interface between Bursar and the machine that it runs on.
//!
//! Everything in Bursar that decides or accounts is written against [`Machine`]. It does not know whether it runs on
//! real threads ([`Host`]) or on virtual CPUs in virtual time. This crate is that interface, in types, and its host
//! side. With `bursar-alloc` it is the only part of the library with `unsafe` code. The crate `bursar-rig` adds the parts
//! that only experiments and tests need: starting tasks, timers, random numbers.
//!
//! * [`AtomicWord`], [`MemoryOrder`]: shared words, with a `Full` ordering where a full barrier is meant.
//! * [`Lock`], [`Event`]: locks that count their waits; completions.
//! * [`Slot`], [`Shard`], [`State`]: per-CPU words and the sections that change them.
//! * [`pages`]: page memory, as blocks with one owner each, and per-CPU stacks of them.
//! * [`Fnv1a64`]: identities of data; [`EventRate`]: bounds on what is told.
//! * [`host`]: real threads. Three backends with the same semantics; see [`host::Backend`].

#![warn(missing_docs)]

mod atomic;
mod caught;
mod debug;
mod fnv;
pub mod host;
mod lock;
pub mod pages;
mod rate;
mod shard;
mod slot;

use core::fmt;
use core::ops::Deref;

pub use atomic::{AtomicWord, MemoryOrder};
pub use caught::caught;
pub use fnv::Fnv1a64;
pub use host::Host;
pub use lock::{Event, Lock, LockWaits};
pub use rate::EventRate;
pub use shard::{AtomicShard, busy_wait};
pub use slot::{
    CAP, CEILING, CHARGED, FIRST_STATISTIC, Outcome, STATE, Shard, Slot, State, WORDS_MAX,
};

/// [`Machine::spins`] of most machines.
pub const SPINS: u32 = 512;

/// Round in which [`Machine::relax`] lets other threads run and does not sleep.
pub const GIVE_WAY: u32 = 64;

/// Machine: CPUs with words of their own, a fence, locks, a clock.
///
/// A value of this type is one *instance*, and slots belong to the instance that made them. Only the parts that all
/// instances share, the clock and the current CPU, are static.
pub trait Machine: Clone + fmt::Debug + Send + Sync + 'static {
    /// A word shared by all CPUs.
    type Word: AtomicWord;
    /// A lock whose waiters sleep.
    type Mutex<T: Send + 'static>: Lock<T> + 'static;
    /// A lock whose waiters spin.
    type Spin<T: Send + 'static>: Lock<T> + 'static;
    /// A completion.
    type Event: Event + 'static;
    /// Per-CPU words of one group.
    type Slot: Slot<Word = Self::Word>;
    /// Reference to a value that lives at least as long as any reference to it. If the machine can help it, cloning and
    /// dropping one does not touch memory that other CPUs use, because each charge holds one.
    type Shared<T: Send + Sync + 'static>: Clone + Deref<Target = T> + Send + Sync + 'static;
    /// Guard that [`Machine::operation`] returns.
    type Operation;
    /// A reservation of page memory.
    type Frames: pages::Frames;
    /// Per-CPU stacks of blocks of pages.
    type Stacks: pages::BlockStacks<Word = Self::Word>;

    /// Puts a value where [`Machine::Shared`] references can point to it.
    fn share<T: Send + Sync + 'static>(value: T) -> Self::Shared<T>;

    /// The same; `None` if there is no memory for it, on machines that can tell.
    fn try_share<T: Send + Sync + 'static>(value: T) -> Option<Self::Shared<T>> {
        Some(Self::share(value))
    }

    /// Number of CPUs that have a shard of their own. The extra shard has this number as its index.
    fn cpus(&self) -> usize;

    /// Number of NUMA nodes, at least 1.
    fn nodes(&self) -> usize;

    /// Node of a shard's CPU; `None` for the extra shard.
    fn node_of(&self, shard: Shard) -> Option<usize>;

    /// Shard of the calling task at this moment; it may be another one the next.
    fn current_shard(&self) -> Shard;

    /// Makes some slots of `words` zeroed words a shard: as many as suit this machine, at least one.
    ///
    /// Memory for a shard is taken at its first use.
    ///
    /// # Errors
    /// [`OutOfMemory`] if there is no room for them.
    fn slots(&self, words: usize) -> Result<Vec<Self::Slot>, OutOfMemory>;

    /// Reserves page memory. Memory is taken at its first use.
    ///
    /// # Errors
    /// [`pages::ReserveError`] says why the memory cannot be reserved.
    fn reserve(
        &self,
        options: &pages::ReserveOptions,
    ) -> Result<(Self::Frames, pages::Span), pages::ReserveError>;

    /// Bytes of memory that this machine has for its pages: all that it is built with, or less if a limit says so.
    fn memory_bytes(&self) -> u64;

    /// Notes that the caller has worked on the records of `count` page frames in plain memory. On machines where that
    /// takes no time by itself, time passes. Does nothing on the host.
    #[inline(always)]
    fn touch_frames(&self, count: u64) {
        let _ = count;
    }

    /// Makes per-CPU stacks, one list for each of `capacities`, with room for that many blocks. A list of capacity 0
    /// takes and gives none. No list takes any until its bounds are set.
    ///
    /// # Errors
    /// [`OutOfMemory`] if there is no room for them.
    ///
    /// # Panics
    /// If there are more than [`pages::LISTS_MAX`] lists, or together they hold more than [`pages::LIST_BLOCKS_MAX`]
    /// blocks.
    fn stacks(&self, capacities: &[u16]) -> Result<Self::Stacks, OutOfMemory>;

    /// Passes a fence against sections. When it returns, each section that began before this call has ended, committed
    /// or not. Each later section sees the caller's earlier writes. Concurrent callers share fences.
    fn fence(&self);

    /// Tells people of a bug of the program. The host prints a line on stderr.
    fn warn(&self, message: fmt::Arguments<'_>);

    /// Whether this thread unwinds from a panic.
    fn is_unwinding(&self) -> bool {
        std::thread::panicking()
    }

    /// Nanoseconds of a monotonic clock with an arbitrary start.
    fn now_ns(&self) -> u64;

    /// Pauses for a moment, in a loop that waits for another task's few remaining steps. `round` counts the loop's
    /// rounds from 0. The host's late pauses are sleeps; a loop without sleeps goes no higher than [`GIVE_WAY`].
    fn relax(&self, round: u32);

    /// Rounds for which a task waits with [`Machine::relax`] before it sleeps: some ten microseconds, as long as the work of others
    /// that it waits for. Judgement.
    #[inline]
    fn spins(&self) -> u32 {
        SPINS
    }

    /// Lets the calling task sleep until [`Machine::now_ns`] is at least `deadline_ns`.
    fn sleep_until(&self, deadline_ns: u64);

    /// Number of the calling task, which no other living task has; never 0.
    fn task(&self) -> u64;

    /// Marks the calling task as inside an operation that a fork must not cut in two, until the result is dropped.
    /// Waits while another task forks. Operations may be nested. Not for signal handlers.
    fn operation(&self) -> Self::Operation;

    /// Number of forks between the first process and this one. If the number has changed, all other tasks are gone,
    /// each wherever it was, but none inside a [`Machine::operation`].
    fn forks(&self) -> u64;
}

/// Error of a machine that has no room for more slots.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct OutOfMemory;

impl fmt::Display for OutOfMemory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("no address space or memory left for per-CPU words")
    }
}

crate::debug_as_message!(
    struct OutOfMemory {}
);

impl std::error::Error for OutOfMemory {}
