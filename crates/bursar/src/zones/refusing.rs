//! Machine of tests: the host, which refuses some calls, and whose node and clock a test may choose.

use core::fmt;
use core::mem::MaybeUninit;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, AtomicUsize, Ordering};

use bursar_machine::pages::{Block, Frames, Pfn, ReserveError, ReserveOptions, Span};
use bursar_machine::{GIVE_WAY, Host, Machine, OutOfMemory, Shard};

type Inner<T> = <Host as Machine>::Shared<T>;

/// The host, with a number of nodes of its own choice.
#[derive(Clone, Debug)]
pub(super) struct Refusing {
    host: Host,
    nodes: usize,
    refusals: Arc<Refusals>,
}

/// Calls that are refused, what is chosen, and counts. Each test has its own, and one thread.
#[derive(Debug)]
pub(super) struct Refusals {
    /// Node without memory.
    pub(super) node: AtomicUsize,
    /// No machine has per-CPU stacks.
    pub(super) stacks: AtomicBool,
    /// First page of the block that is never given back to the system.
    pub(super) kept: AtomicU32,
    /// Reservations made.
    pub(super) reserved: AtomicUsize,
    /// Node of all CPUs.
    pub(super) home: AtomicUsize,
    /// Time; `u64::MAX`: the host's.
    pub(super) now_ns: AtomicU64,
    /// Nanoseconds that pass with each look at a time that is not the host's.
    pub(super) look_ns: AtomicU64,
    /// Pauses that give way to others.
    pub(super) pauses: AtomicUsize,
}

impl Refusing {
    /// Machine that refuses nothing as yet.
    pub(super) fn new(nodes: usize) -> (Self, Arc<Refusals>) {
        let refusals = Arc::new(Refusals {
            node: AtomicUsize::new(usize::MAX),
            stacks: AtomicBool::new(false),
            kept: AtomicU32::new(u32::MAX),
            reserved: AtomicUsize::new(0),
            home: AtomicUsize::new(0),
            now_ns: AtomicU64::new(u64::MAX),
            look_ns: AtomicU64::new(0),
            pauses: AtomicUsize::new(0),
        });
        let machine = Self {
            host: Host::start().unwrap(),
            nodes,
            refusals: refusals.clone(),
        };
        (machine, refusals)
    }
}

impl Machine for Refusing {
    type Word = <Host as Machine>::Word;
    type Mutex<T: Send + 'static> = <Host as Machine>::Mutex<T>;
    type Spin<T: Send + 'static> = <Host as Machine>::Spin<T>;
    type Event = <Host as Machine>::Event;
    type Slot = <Host as Machine>::Slot;
    type Shared<T: Send + Sync + 'static> = Inner<T>;
    type Operation = <Host as Machine>::Operation;
    type Frames = RefusingFrames;
    type Stacks = <Host as Machine>::Stacks;

    fn share<T: Send + Sync + 'static>(value: T) -> Inner<T> {
        Host::share(value)
    }

    fn cpus(&self) -> usize {
        self.host.cpus()
    }

    fn nodes(&self) -> usize {
        self.nodes
    }

    fn node_of(&self, shard: Shard) -> Option<usize> {
        let home = self.refusals.home.load(Ordering::Relaxed);
        self.host.node_of(shard).map(|_| home)
    }

    fn current_shard(&self) -> Shard {
        self.host.current_shard()
    }

    fn slots(&self, words: usize) -> Result<Vec<Self::Slot>, OutOfMemory> {
        self.host.slots(words)
    }

    fn reserve(&self, options: &ReserveOptions) -> Result<(Self::Frames, Span), ReserveError> {
        let node = options.node;
        if node == self.refusals.node.load(Ordering::Relaxed) {
            let reason = "as planned".to_owned();
            return Err(ReserveError::CannotBind { node, reason });
        }
        let (frames, span) = self.host.reserve(&ReserveOptions::pages(options.pages))?;
        self.refusals.reserved.fetch_add(1, Ordering::Relaxed);
        let refusals = self.refusals.clone();
        Ok((RefusingFrames { frames, refusals }, span))
    }

    fn memory_bytes(&self) -> u64 {
        self.host.memory_bytes()
    }

    fn stacks(&self, capacities: &[u16]) -> Result<Self::Stacks, OutOfMemory> {
        if self.refusals.stacks.load(Ordering::Relaxed) {
            return Err(OutOfMemory);
        }
        self.host.stacks(capacities)
    }

    fn fence(&self) {
        self.host.fence();
    }

    fn warn(&self, message: fmt::Arguments<'_>) {
        self.host.warn(message);
    }

    fn now_ns(&self) -> u64 {
        let Refusals {
            now_ns, look_ns, ..
        } = &*self.refusals;
        if now_ns.load(Ordering::Relaxed) == u64::MAX {
            return self.host.now_ns();
        }
        let look_ns = look_ns.load(Ordering::Relaxed);
        now_ns.fetch_add(look_ns, Ordering::Relaxed) + look_ns
    }

    fn relax(&self, round: u32) {
        if round == GIVE_WAY {
            self.refusals.pauses.fetch_add(1, Ordering::Relaxed);
        }
        self.host.relax(round);
    }

    fn sleep_until(&self, deadline_ns: u64) {
        self.host.sleep_until(deadline_ns);
    }

    fn task(&self) -> u64 {
        self.host.task()
    }

    fn operation(&self) -> Self::Operation {
        self.host.operation()
    }

    fn forks(&self) -> u64 {
        self.host.forks()
    }
}

/// Pages of the host, one block of which the system keeps, as if it was locked.
#[derive(Clone, Debug)]
pub(super) struct RefusingFrames {
    frames: <Host as Machine>::Frames,
    refusals: Arc<Refusals>,
}

impl Frames for RefusingFrames {
    fn first(&self) -> Pfn {
        self.frames.first()
    }

    fn pages(&self) -> u64 {
        self.frames.pages()
    }

    fn uninit<'a>(&self, block: &'a mut Block) -> &'a mut [MaybeUninit<u8>] {
        self.frames.uninit(block)
    }

    fn bytes<'a>(&self, block: &'a Block) -> Option<&'a [u8]> {
        self.frames.bytes(block)
    }

    fn bytes_mut<'a>(&self, block: &'a mut Block) -> Option<&'a mut [u8]> {
        self.frames.bytes_mut(block)
    }

    fn init(
        &self,
        block: &mut Block,
        write: impl for<'a> FnOnce(&'a mut [MaybeUninit<u8>]) -> &'a mut [u8],
    ) -> bool {
        self.frames.init(block, write)
    }

    fn zero(&self, block: &mut Block) {
        self.frames.zero(block);
    }

    fn discard(&self, block: &mut Block) -> bool {
        let kept = self.refusals.kept.load(Ordering::Relaxed);
        block.pfn().0 != kept && self.frames.discard(block)
    }
}
