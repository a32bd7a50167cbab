use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use super::super::Place;
use super::*;

const HOUR: Duration = Duration::from_secs(3600);

/// Items of work that wait on each CPU, with the number of calls for each.
struct Counted {
    waiting: Vec<AtomicU64>,
    calls: Vec<AtomicU64>,
    is_busy: Vec<AtomicBool>,
    panics_once: AtomicBool,
}

impl Counted {
    fn new(machine: &Host) -> Self {
        let shards = machine.cpus() + 1;
        let zeros = || (0..shards).map(|_| AtomicU64::new(0)).collect();
        Self {
            waiting: zeros(),
            calls: zeros(),
            is_busy: (0..shards).map(|_| AtomicBool::new(false)).collect(),
            panics_once: AtomicBool::new(false),
        }
    }

    /// Adds an item of the current CPU.
    fn add(&self) {
        let shard = Host::start().expect("a host").current_shard();
        self.waiting[shard.index()].fetch_add(1, Ordering::Relaxed);
    }

    fn waiting(&self) -> u64 {
        let each = self.waiting.iter();
        each.map(|items| items.load(Ordering::Relaxed)).sum()
    }

    fn calls(&self) -> u64 {
        let each = self.calls.iter();
        each.map(|calls| calls.load(Ordering::Relaxed)).sum()
    }
}

impl Upkeep for Counted {
    fn needs(&self, shard: Shard) -> bool {
        self.waiting[shard.index()].load(Ordering::Relaxed) > 0
    }

    fn run(&self, shard: Shard) -> bool {
        assert!(
            !self.panics_once.swap(false, Ordering::Relaxed),
            "as planned"
        );
        let busy = &self.is_busy[shard.index()];
        assert!(!busy.swap(true, Ordering::Relaxed), "two at once");
        self.calls[shard.index()].fetch_add(1, Ordering::Relaxed);
        let items = self.waiting[shard.index()].swap(0, Ordering::Relaxed);
        assert!(busy.swap(false, Ordering::Relaxed));
        items > 0
    }
}

/// Upkeep at once, and again after an interval.
#[derive(Debug)]
struct AtOnce(Duration);

impl Timetable for AtOnce {
    fn interval_ns(&self) -> u64 {
        self.0.as_nanos() as u64
    }

    fn first(&self, _: Place, now_ns: u64) -> u64 {
        now_ns
    }

    fn next(&self, _: Place, now_ns: u64) -> u64 {
        now_ns + self.interval_ns()
    }
}

fn upkeeper<T: Timetable>(timetable: T) -> Upkeeper<Host, Counted, T> {
    let machine = Host::start().expect("a host");
    Upkeeper::new(&machine, Counted::new(&machine), Options::new(timetable)).expect("sense")
}

#[test]
fn a_tick_does_what_is_due_and_says_when_it_comes_again() {
    let upkeeper = upkeeper(AtOnce(HOUR));
    let work = upkeeper.upkeep();
    work.add();
    let before_ns = upkeeper.housekeeping().machine().now_ns();
    let next_ns = upkeeper.tick();
    assert_eq!(work.waiting(), 0, "the shepherd has its work done at once");
    let calls = work.calls();
    assert_eq!(calls, 1);
    assert!(next_ns > before_ns + upkeeper.housekeeping().options().timetable.interval_ns() / 2);
    work.add();
    assert!(upkeeper.tick() <= next_ns);
    assert_eq!(work.calls(), calls, "nothing is due");
}

#[test]
fn a_grid_waits_for_its_points() {
    let upkeeper = upkeeper(Grid::every(HOUR));
    upkeeper.upkeep().add();
    let next_ns = upkeeper.tick();
    // Unless a point of the grid has just passed.
    if upkeeper.upkeep().calls() == 0 {
        assert_eq!(upkeeper.upkeep().waiting(), 1);
    }
    let (cpus, hour_ns) = (u64::from(upkeeper.cpus()), HOUR.as_nanos() as u64);
    let mut phases = (0..cpus).map(|rank| rank * hour_ns / cpus);
    assert!(phases.any(|phase_ns| next_ns % hour_ns == phase_ns));
}

#[test]
fn threads_keep_up_and_two_never_meet() {
    let upkeeper = upkeeper(Grid::every(Duration::from_millis(1)));
    let work = upkeeper.upkeep();
    assert_eq!(upkeeper.start(0).expect("none").count(), 0);
    for threads in [1, 2, 100] {
        let threads = upkeeper.start(threads).expect("threads");
        assert!((1..=upkeeper.cpus() as usize).contains(&threads.count()));
        for _ in 0..20 {
            let calls = work.calls();
            work.add();
            // Ends when a call has done it, while other threads tick too.
            while work.waiting() > 0 || work.calls() == calls {
                upkeeper.tick();
                std::thread::yield_now();
            }
        }
    }
}

#[test]
fn without_anybody_who_ticks_threads_do_it_alone_and_survive_a_panic() {
    let upkeeper = upkeeper(AtOnce(Duration::from_millis(2)));
    let work = upkeeper.upkeep();
    work.panics_once.store(true, Ordering::Relaxed);
    let threads = upkeeper.start(2).expect("threads");
    work.add();
    while work.waiting() > 0 {
        std::thread::yield_now();
    }
    assert!(!work.panics_once.load(Ordering::Relaxed));
    drop(threads);
}
