//! A machine of tests: the host, with a clock and forks that the test moves.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use bursar::{Host, Machine, Memory};
use bursar_arbiter::{Arbiter, Policy, Real};
use bursar_machine::pages::{ReserveError, ReserveOptions, Span};
use bursar_machine::{OutOfMemory, Shard};

use super::common::MIB;

/// Time of the clock at its start. A host's is never 0.
const START_NS: u64 = 1_000_000;

#[derive(Clone, Debug)]
pub struct Clock {
    host: Host,
    set: Arc<Set>,
}

#[derive(Debug)]
struct Set {
    now_ns: AtomicU64,
    forks: AtomicU64,
}

impl Clock {
    pub fn pass(&self, time: Duration) {
        let ns = u64::try_from(time.as_nanos()).expect("less than a century");
        self.set.now_ns.fetch_add(ns, Ordering::SeqCst);
    }

    /// From now on the process is a child.
    pub fn fork(&self) {
        self.set.forks.fetch_add(1, Ordering::SeqCst);
    }
}

/// A memory of so many MiB with a clock.
fn memory(max: u64) -> (Memory<Clock>, Clock) {
    let clock = Clock {
        host: Host::start().expect("a host"),
        set: Arc::new(Set {
            now_ns: AtomicU64::new(START_NS),
            forks: AtomicU64::new(0),
        }),
    };
    let builder = Memory::builder().max(max.saturating_mul(MIB));
    let memory = builder.build_on(clock.clone()).expect("a memory");
    (memory, clock)
}

/// A memory of so many MiB with a clock, and its arbiter.
pub fn timed(max: u64, policy: Policy) -> (Arbiter<Clock>, Clock) {
    let (memory, clock) = memory(max);
    (Arbiter::new(&memory, policy), clock)
}

/// The same of 100 MiB, of which the process really takes as many percent as the last value says.
pub fn timed_with_real(policy: Policy) -> (Arbiter<Clock>, Clock, Arc<AtomicU64>) {
    let (memory, clock) = memory(100);
    let taken = Arc::new(AtomicU64::new(0));
    let seen = taken.clone();
    let gauge = move || {
        Some(Real {
            bytes: seen.load(Ordering::SeqCst) * MIB,
            stall_percent: 0.0,
        })
    };
    (Arbiter::with_real(&memory, policy, gauge), clock, taken)
}

impl Machine for Clock {
    type Word = <Host as Machine>::Word;
    type Mutex<T: Send + 'static> = <Host as Machine>::Mutex<T>;
    type Spin<T: Send + 'static> = <Host as Machine>::Spin<T>;
    type Event = <Host as Machine>::Event;
    type Slot = <Host as Machine>::Slot;
    type Shared<T: Send + Sync + 'static> = <Host as Machine>::Shared<T>;
    type Operation = <Host as Machine>::Operation;
    type Frames = <Host as Machine>::Frames;
    type Stacks = <Host as Machine>::Stacks;

    fn share<T: Send + Sync + 'static>(value: T) -> Self::Shared<T> {
        Host::share(value)
    }

    fn cpus(&self) -> usize {
        self.host.cpus()
    }

    fn nodes(&self) -> usize {
        self.host.nodes()
    }

    fn node_of(&self, shard: Shard) -> Option<usize> {
        self.host.node_of(shard)
    }

    fn current_shard(&self) -> Shard {
        self.host.current_shard()
    }

    fn slots(&self, words: usize) -> Result<Vec<Self::Slot>, OutOfMemory> {
        self.host.slots(words)
    }

    fn reserve(&self, options: &ReserveOptions) -> Result<(Self::Frames, Span), ReserveError> {
        self.host.reserve(options)
    }

    fn memory_bytes(&self) -> u64 {
        self.host.memory_bytes()
    }

    fn stacks(&self, capacities: &[u16]) -> Result<Self::Stacks, OutOfMemory> {
        self.host.stacks(capacities)
    }

    fn fence(&self) {
        self.host.fence();
    }

    fn warn(&self, message: fmt::Arguments<'_>) {
        self.host.warn(message);
    }

    fn now_ns(&self) -> u64 {
        self.set.now_ns.load(Ordering::SeqCst)
    }

    fn relax(&self, round: u32) {
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
        self.set.forks.load(Ordering::SeqCst)
    }
}
