//! The clock, pinned threads, and the one way in which every contender is timed.
//!
//! A contender does its work in *blocks* of some thousand operations. Each thread does one block untimed, meets the
//! others, and then does blocks until its slice of time is over, so that the threads overlap but for a block. The cost
//! of an operation is the time all threads spent divided by the operations all threads did: contention shows as a
//! higher cost, not as a lower throughput.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use bursar_machine::host;

/// A point in time to measure from.
#[derive(Clone, Copy)]
pub struct Stopwatch(Instant);

impl Stopwatch {
    /// Starts now.
    #[allow(clippy::disallowed_methods, reason = "benchmarks measure the host")]
    pub fn start() -> Self {
        Self(Instant::now())
    }

    /// Nanoseconds since the start.
    pub fn ns(self) -> u64 {
        u64::try_from(self.0.elapsed().as_nanos()).unwrap_or(u64::MAX)
    }
}

/// Time spent and operations done, summed over threads.
#[derive(Clone, Copy, Debug, Default)]
pub struct Spent {
    pub ns: u64,
    pub operations: u64,
}

impl Spent {
    /// Nanoseconds per operation.
    pub fn ns_per_operation(self) -> f64 {
        self.ns as f64 / self.operations.max(1) as f64
    }
}

/// Time for which one contender runs at a time.
#[derive(Clone, Copy)]
pub struct Slice {
    pub ns: u64,
}

impl Slice {
    /// Does `block`, which returns how many operations it did, until the slice is over: twice at least, the first time
    /// untimed. `meet` runs between the two.
    pub fn run(self, meet: impl FnOnce(), mut block: impl FnMut() -> u64) -> Spent {
        block();
        meet();
        let watch = Stopwatch::start();
        let mut operations = 0;
        loop {
            operations += block();
            let ns = watch.ns();
            if ns >= self.ns {
                return Spent { ns, operations };
            }
        }
    }
}

/// Place where the threads of one slice wait for one another. They spin: each has a CPU of its own, and being woken would
/// give one of them a head start.
pub struct Meeting {
    awaited: usize,
    here: AtomicUsize,
}

impl Meeting {
    /// A meeting of `awaited` threads.
    pub fn of(awaited: usize) -> Self {
        let here = AtomicUsize::new(0);
        Self { awaited, here }
    }

    /// Waits until all are here.
    pub fn join(&self) {
        // Relaxed: nothing but the time is agreed on here.
        self.here.fetch_add(1, Ordering::Relaxed);
        spin_until(|| self.here.load(Ordering::Relaxed) >= self.awaited);
    }
}

/// Spins, and gives way after a while in case the other thread shares the CPU.
pub fn spin_until(mut done: impl FnMut() -> bool) {
    let mut rounds = 0u32;
    while !done() {
        rounds += 1;
        if rounds.is_multiple_of(4096) {
            std::thread::yield_now();
        }
        std::hint::spin_loop();
    }
}

/// Runs `body(thread, meeting)` on a thread per entry of `cpus`, each pinned to its CPU, and adds up what they report.
pub fn on_cpus(cpus: &[usize], body: impl Fn(usize, &Meeting) -> Spent + Sync) -> Spent {
    let meeting = Meeting::of(cpus.len());
    let mut total = Spent::default();
    std::thread::scope(|scope| {
        let (body, meeting) = (&body, &meeting);
        let threads: Vec<_> = cpus
            .iter()
            .enumerate()
            .map(|(thread, &cpu)| {
                scope.spawn(move || {
                    pin(cpu);
                    body(thread, meeting)
                })
            })
            .collect();
        for thread in threads {
            let spent = thread.join().expect("a benchmark thread panicked");
            total.ns += spent.ns;
            total.operations += spent.operations;
        }
    });
    total
}

/// Pins the calling thread; says so once where that is impossible, for the figures mean less then.
fn pin(cpu: usize) {
    static COMPLAINED: AtomicBool = AtomicBool::new(false);
    if let Err(error) = host::pin_to(cpu)
        && !COMPLAINED.swap(true, Ordering::Relaxed)
    {
        eprintln!("warning: threads are not pinned (CPU {cpu}: {error})");
    }
}

/// Amounts of work.
#[derive(Clone, Copy)]
pub struct Effort {
    /// Number of turns of each contender.
    pub rounds: usize,
    /// Length of a turn.
    pub slice: Slice,
}

impl Effort {
    /// 20 ms a turn.
    pub fn full(rounds: usize) -> Self {
        let ns = Duration::from_millis(20).as_nanos() as u64;
        Self {
            rounds,
            slice: Slice { ns },
        }
    }

    /// 2 ms a turn: to see whether everything works. The figures are not representative.
    pub fn quick(rounds: usize) -> Self {
        let ns = Duration::from_millis(2).as_nanos() as u64;
        Self {
            rounds,
            slice: Slice { ns },
        }
    }

    /// Two blocks of one round, for tests.
    #[cfg(test)]
    pub fn smoke() -> Self {
        Self {
            rounds: 1,
            slice: Slice { ns: 0 },
        }
    }
}
