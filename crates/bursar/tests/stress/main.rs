//! Stress: every operation of threads on groups, for `BURSAR_STRESS_SECONDS`, with every reading compared with the
//! truth.
//!
//! The kinds of stress run one after the other and share the time equally. A failure prints its seed. The machine
//! decides the order in which threads run, so a replay may need several runs.
#![cfg(target_os = "linux")]

mod births;
mod budgets;
#[path = "../common/mod.rs"]
mod common;
mod handlers;
mod returns;

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread::Scope;

use bursar::{Bytes, Host, Machine};
use bursar_check::model::Before;
use bursar_machine::host::{allowed_cpus, resident};
use common::child::fork_beside_threads;
use common::site::{DEPARTMENT_MAX, Held, Site, TENANT_MAX};
use common::{Leaves, Random, cpus, crew, seed};

/// Seconds for the whole file unless `BURSAR_STRESS_SECONDS` is set.
const SECONDS: u64 = 16;
/// Kinds of stress, which share the time.
const KINDS: u64 = 7;
/// A kind that runs for so long must not grow: before that, allocators and stacks may still.
const FLAT_MIN_NS: u64 = 60_000_000_000;
/// Growth that is allowed for the kernel's batched counters, and for freed blocks that the allocator keeps. A minute of `threads_that_hop_and_end` had 0.1 MiB.
const GROWTH_BYTES: u64 = 4 << 20;

static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());

/// The time of one kind, which has the machine for itself.
struct Stage {
    _turn: MutexGuard<'static, ()>,
    host: Host,
    begin_ns: u64,
    end_ns: u64,
    seed: u64,
    /// The most bytes in memory, by half of the time.
    resident: [AtomicU64; 2],
}

impl Stage {
    fn begin() -> Self {
        let turn = ONE_AT_A_TIME.lock();
        let turn = turn.unwrap_or_else(PoisonError::into_inner);
        let seconds = std::env::var("BURSAR_STRESS_SECONDS").ok();
        let seconds = seconds.map_or(SECONDS, |seconds| {
            seconds
                .parse()
                .expect("BURSAR_STRESS_SECONDS must be a whole number of seconds")
        });
        let host = Host::start().expect("the host starts");
        let begin_ns = host.now_ns();
        Self {
            begin_ns,
            end_ns: begin_ns + seconds * 1_000_000_000 / KINDS,
            host,
            seed: seed(),
            resident: Default::default(),
            _turn: turn,
        }
    }

    /// Whether the time is up. Each kind does its least number of rounds first.
    fn is_over(&self) -> bool {
        self.note_resident();
        self.host.now_ns() >= self.end_ns
    }

    /// To be called about evenly over the time.
    fn note_resident(&self) {
        let half = usize::from(self.left_ns() < (self.end_ns - self.begin_ns) / 2);
        let bytes = resident().expect("a size").bytes;
        self.resident[half].fetch_max(bytes, Ordering::Relaxed);
    }

    fn left_ns(&self) -> u64 {
        self.end_ns.saturating_sub(self.host.now_ns())
    }

    /// Random numbers of one thread.
    fn random(&self, stream: u64) -> Random {
        Random(Random(self.seed ^ stream << 32).next())
    }
}

impl Drop for Stage {
    fn drop(&mut self) {
        let [first, second] = self.resident.each_mut().map(|most| *most.get_mut());
        let seconds = (self.end_ns - self.begin_ns) / 1_000_000_000;
        let [most, later] = [first, second].map(Bytes);
        println!("{seconds} s; resident at most {most} in the first half, {later} in the second");
        // A kind whose rounds are long may have none in the first half.
        let is_judged = self.end_ns - self.begin_ns >= FLAT_MIN_NS && first > 0;
        if is_judged && !std::thread::panicking() {
            let bound = first + first / 10 + GROWTH_BYTES;
            assert!(second <= bound, "memory grew from {most} to {later}");
        }
    }
}

/// One seat of a thread that ends and is replaced by another.
struct Seat<'a> {
    site: &'a Site,
    /// The thread that has the seat; 0 for none.
    thread: &'a AtomicUsize,
    seated: &'a AtomicUsize,
}

impl<'a> Seat<'a> {
    fn take<'scope>(self, scope: &'scope Scope<'scope, 'a>, mut random: Random, heirs: usize) {
        scope.spawn(move || {
            // Also after a panic: others must end.
            let leaves = Leaves(self.seated);
            let thread = cpus::this_thread() as usize;
            self.thread.store(thread, Ordering::SeqCst);
            let mut held = Held::new();
            let steps = 1 + random.below(1_500);
            (0..steps).for_each(|_| self.site.step(&mut random, &mut held));
            self.thread.store(0, Ordering::SeqCst);
            self.site.leave(held);
            if heirs > 0 {
                std::mem::forget(leaves);
                self.take(scope, random, heirs - 1);
            }
        });
    }
}

/// Threads hop between CPUs, are moved by others, end, and leave their charges for other threads to return.
#[test]
fn threads_that_hop_and_end() {
    const SEATS: usize = 4;
    const HEIRS: usize = 12;
    let stage = Stage::begin();
    let site = Site::new();
    let cpus = allowed_cpus();
    let mut epochs = 0;
    while epochs < 2 || !stage.is_over() {
        let seated = AtomicUsize::new(SEATS);
        let threads: [AtomicUsize; SEATS] = Default::default();
        std::thread::scope(|scope| {
            for (seat, thread) in threads.iter().enumerate() {
                let (site, seated) = (&site, &seated);
                let random = stage.random(epochs << 8 | seat as u64);
                let seat = Seat {
                    site,
                    thread,
                    seated,
                };
                seat.take(scope, random, HEIRS);
            }
            scope.spawn(|| {
                let mut random = stage.random(epochs << 8 | 100);
                while seated.load(Ordering::SeqCst) > 0 {
                    site.watch(&mut random);
                }
            });
            let mut random = stage.random(epochs << 8 | 101);
            while seated.load(Ordering::SeqCst) > 0 {
                let thread = threads[random.below(SEATS)].load(Ordering::SeqCst);
                if thread != 0 {
                    // It may have ended meanwhile.
                    cpus::move_to(thread as i32, cpus[random.below(cpus.len())]);
                }
                std::thread::yield_now();
            }
        });
        site.check();
        epochs += 1;
    }
    site.end();
}

/// A limit that was set holds: what is reserved falls until it is within the limit, and stays there.
fn change_limit(site: &Site, at: usize, most: u64, random: &mut Random) {
    let (group, truths) = site.part(at);
    let max = random.below(most as usize) as u64;
    group.set_max(max);
    let mut highest = group.reserved();
    for _ in 0..random.below(60) {
        let before = Before::of(truths.clone());
        let reserved = group.reserved();
        let (charged, _) = before.bounds(truths.clone());
        let bound = highest.max(max);
        assert!(
            reserved <= bound && charged <= bound as i64,
            "{group:?}: {reserved} reserved, {charged} charged, limit {max}, {highest} before"
        );
        highest = reserved;
        std::thread::yield_now();
    }
    if random.below(2) == 0 {
        group.set_max(most);
    }
}

/// Limits of two levels change while threads charge.
#[test]
fn limits_that_change() {
    const WORKERS: u64 = 4;
    let stage = Stage::begin();
    let site = Site::new();
    let limits = 1 + site.departments.len() as u64;
    let mut epochs = 0;
    while epochs < 2 || !stage.is_over() {
        let charging = AtomicUsize::new(WORKERS as usize);
        let work = |thread: u64| {
            let mut random = stage.random(epochs << 8 | thread);
            if thread < WORKERS {
                let _leaves = Leaves(&charging);
                let mut held = Held::new();
                (0..12_000).for_each(|_| site.step(&mut random, &mut held));
                return site.leave(held);
            }
            // One task for each limit: what one has set, no other changes.
            let at = (thread - WORKERS) as usize;
            let most = [TENANT_MAX, DEPARTMENT_MAX][at.min(1)];
            while charging.load(Ordering::SeqCst) > 0 {
                change_limit(&site, at, most, &mut random);
            }
            site.part(at).0.set_max(most);
        };
        crew(WORKERS + limits, work, std::thread::yield_now);
        site.check();
        epochs += 1;
    }
    site.end();
}

/// A process forks beside threads that charge and allocate. The child finds its books whole, and nothing happens to the
/// parent's.
#[test]
fn forks_beside_threads_that_allocate() {
    let stage = Stage::begin();
    fork_beside_threads(stage.seed, 8, |forks| forks < 20 || !stage.is_over());
}
