//! Shared by the tests: a small random generator with a seed, the statistics of the tests, futures run by hand, memory
//! that reclaimers give back.
#![allow(dead_code, reason = "each test uses a part")]

pub mod child;
#[cfg(target_os = "linux")]
pub mod cpus;
#[cfg(unix)]
pub mod fork;
pub mod inner;
pub mod model_pages;
#[cfg(unix)]
pub mod signals;
pub mod site;
pub mod world;

use std::future::Future;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::{Pin, pin};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Wake, Waker};
use std::thread::Thread;

use bursar_machine::host::{allowed_cpus, pin_to};

use bursar::{
    Charge, ChargeError, Freshness, Group, HighPolicy, LimitReached, Limits, Memory, Reading,
    Registration,
};
pub use bursar_check::model::statistics::{BALANCE, BATCHED, EAGER, ROWS, STATISTICS};

pub fn memory() -> Memory {
    Memory::builder()
        .statistics(STATISTICS)
        .build()
        .expect("the host starts")
}

/// A memory where no CPU holds stock that covers a charge of a [`UNIT`].
pub fn memory_with_least_stock() -> Memory {
    Memory::builder()
        .statistics(STATISTICS)
        .stock_max(LEAST_STOCK)
        .build()
        .expect("the host starts")
}

/// The stock of a CPU and group whose charges are small, bytes.
pub const LEAST_STOCK: u64 = 256 << 10;

/// A memory in which no charge sleeps, each owes for `high`, and no stock covers one of a [`UNIT`].
pub fn owing() -> Memory {
    let builder = Memory::builder().high_policy(HighPolicy::Owe);
    let builder = builder.stock_max(LEAST_STOCK);
    builder.build().expect("the host starts")
}

/// Short forms of the most frequent steps of tests.
pub trait Short {
    fn handle(&self) -> Group;

    /// A child with these limits.
    fn make_with(&self, name: impl AsRef<str>, limits: Limits) -> Group {
        self.handle().child(name, limits).unwrap()
    }

    /// A child without limits.
    fn make(&self, name: impl AsRef<str>) -> Group {
        self.make_with(name, Limits::none())
    }

    fn make_max(&self, name: impl AsRef<str>, max: u64) -> Group {
        self.make_with(name, Limits::max(max))
    }

    fn exact(&self) -> Reading {
        self.handle().read(Freshness::Exact).unwrap()
    }

    /// Exact usage.
    fn used(&self) -> i64 {
        self.exact().usage().value
    }

    fn rows(&self) -> i64 {
        self.exact().get(ROWS).value
    }
}

impl Short for Group {
    fn handle(&self) -> Group {
        self.clone()
    }
}

impl Short for Memory {
    fn handle(&self) -> Group {
        self.root()
    }
}

/// Usage and statistics of a group: values, and own parts.
pub fn numbers(reading: &Reading) -> [(i64, i64); 5] {
    let gauges = [BALANCE, EAGER, BATCHED].map(|of| (reading.get(of).value, reading.own(of)));
    let usage = (reading.usage().value, reading.own_usage());
    let rows = (reading.get(ROWS).value, reading.own(ROWS));
    [usage, rows, gauges[0], gauges[1], gauges[2]]
}

/// SplitMix64 (Steele, Lea, Flood 2014): enough for choosing operations.
pub struct Random(pub u64);

impl Random {
    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    pub fn below(&mut self, limit: usize) -> usize {
        (self.next() % limit as u64) as usize
    }
}

/// The seed of this run: `BURSAR_SEED`, else a fixed one. Printed when a test fails.
pub fn seed() -> u64 {
    let seed = std::env::var("BURSAR_SEED")
        .ok()
        .and_then(|seed| seed.parse().ok())
        .unwrap_or(20_261_121);
    println!("replay with BURSAR_SEED={seed}");
    seed
}

/// Four times the largest batch: charges of whole units leave no stock, so what is reserved is what is charged.
pub const UNIT: u64 = 1 << 20;

pub fn units(count: u64) -> u64 {
    count * UNIT
}

/// The limit that refused a charge.
pub fn refused(charged: Result<Charge, ChargeError>) -> LimitReached {
    match charged {
        Err(ChargeError::LimitReached(reached)) => *reached,
        other => panic!("not refused by a limit: {other:?}"),
    }
}

/// A waker that counts.
#[derive(Default)]
pub struct Wakes(AtomicUsize);

impl Wake for Wakes {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, Ordering::SeqCst);
    }
}

/// A future that the test polls by hand.
pub struct Task<F> {
    future: F,
    wakes: Arc<Wakes>,
}

impl<F: Future + Unpin> Task<F> {
    pub fn new(future: F) -> Self {
        Self {
            future,
            wakes: Arc::default(),
        }
    }

    pub fn into_future(self) -> F {
        self.future
    }

    pub fn poll(&mut self) -> Poll<F::Output> {
        let waker = Waker::from(self.wakes.clone());
        Pin::new(&mut self.future).poll(&mut Context::from_waker(&waker))
    }

    /// Number of wakes since the last call.
    pub fn wakes(&self) -> usize {
        self.wakes.0.swap(0, Ordering::SeqCst)
    }
}

struct Unpark(Thread);

impl Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}

/// Runs a future on this thread.
pub fn block_on<F: Future>(future: F) -> F::Output {
    let mut future = pin!(future);
    let waker = Waker::from(Arc::new(Unpark(std::thread::current())));
    loop {
        if let Poll::Ready(output) = future.as_mut().poll(&mut Context::from_waker(&waker)) {
            return output;
        }
        std::thread::park();
    }
}

/// Whether it panics.
pub fn panics<R>(call: impl FnOnce() -> R) -> bool {
    catch_unwind(AssertUnwindSafe(call)).is_err()
}

/// Charges that a reclaimer gives back, the latest first.
#[derive(Clone, Default)]
pub struct Pages(Arc<Mutex<Vec<Charge>>>);

impl Pages {
    pub fn push(&self, page: Charge) {
        self.0.lock().unwrap().push(page);
    }

    /// Charges so many units, one by one.
    pub fn fill(&self, group: &Group, units: usize) {
        (0..units).for_each(|_| self.push(group.try_charge(UNIT).expect("there is room")));
    }

    /// Returns pages of `target` bytes, or all; says how many bytes that was.
    pub fn evict(&self, target: u64) -> u64 {
        let mut freed = 0;
        while freed < target {
            // Not under the lock: a return may call others who want it.
            let Some(page) = self.0.lock().unwrap().pop() else {
                break;
            };
            freed += page.bytes();
        }
        freed
    }

    pub fn bytes(&self) -> u64 {
        let pages = self.0.lock().unwrap();
        pages.iter().map(|page| page.bytes()).sum()
    }

    /// Registers the eviction as a reclaimer.
    pub fn evict_for(&self, group: &Group) -> Registration {
        let pages = self.clone();
        group.add_reclaimer(0, move |request| pages.evict(request.target))
    }
}

/// One less is at work when this is dropped, also after a panic.
pub struct Leaves<'a>(pub &'a AtomicUsize);

impl Drop for Leaves<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::SeqCst);
    }
}

/// Runs `work` in so many threads, each with its number, and `watch` here until all have ended.
pub fn crew(threads: u64, work: impl Fn(u64) + Sync, mut watch: impl FnMut()) {
    let working = AtomicUsize::new(threads as usize);
    std::thread::scope(|scope| {
        for thread in 0..threads {
            let (work, working) = (&work, &working);
            scope.spawn(move || {
                let _leaves = Leaves(working);
                work(thread);
            });
        }
        while working.load(Ordering::SeqCst) > 0 {
            watch();
        }
    });
}

/// Puts the calling thread on any CPU, where the machine lets it.
pub fn hop(random: &mut Random) {
    let cpus = allowed_cpus();
    let _ = pin_to(cpus[random.below(cpus.len())]);
}
