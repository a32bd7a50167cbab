use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use super::super::{Firing, Period, SmallCounters};
use super::*;

const HOUR_NS: u64 = 3_600_000_000_000;

/// Counters, with the number of calls for each CPU.
struct Counted {
    counters: SmallCounters<Host>,
    calls: Vec<AtomicU64>,
    is_busy: Vec<AtomicBool>,
    panics_once: AtomicBool,
}

impl Counted {
    fn new(machine: &Host) -> Self {
        let shards = machine.cpus() + 1;
        Self {
            counters: SmallCounters::new(machine, 1, i64::MAX).expect("room"),
            calls: (0..shards).map(|_| AtomicU64::new(0)).collect(),
            is_busy: (0..shards).map(|_| AtomicBool::new(false)).collect(),
            panics_once: AtomicBool::new(false),
        }
    }

    fn calls(&self) -> u64 {
        let each = self.calls.iter();
        each.map(|calls| calls.load(Ordering::Relaxed)).sum()
    }
}

impl Upkeep for Counted {
    fn needs(&self, shard: Shard) -> bool {
        self.counters.needs_fold(shard)
    }

    fn fold(&self, shard: Shard) -> bool {
        assert!(
            !self.panics_once.swap(false, Ordering::Relaxed),
            "as planned"
        );
        let busy = &self.is_busy[shard.index()];
        assert!(!busy.swap(true, Ordering::Relaxed), "two at once");
        self.calls[shard.index()].fetch_add(1, Ordering::Relaxed);
        self.counters.fold(shard) > 0
    }

    fn pages(&self, shard: Shard) -> bool {
        assert!(self.is_busy[shard.index()].swap(false, Ordering::Relaxed));
        false
    }
}

fn upkeeper(firing: Firing, interval_ns: u64) -> Upkeeper<Host, Counted> {
    let machine = Host::start().expect("a host");
    let period = Period::new(interval_ns, 1_000).expect("a period");
    let options = Options {
        firing,
        ..Options::new(period)
    };
    Upkeeper::new(&machine, Counted::new(&machine), options).expect("sense")
}

#[test]
fn a_tick_does_what_is_due_and_says_when_it_comes_again() {
    let upkeeper = upkeeper(Firing::RoundJiffies { skew: 3 }, HOUR_NS);
    let now_ns = || upkeeper.housekeeping().machine().now_ns();
    let counters = &upkeeper.upkeep().counters;
    counters.add(0, 5);
    let before_ns = now_ns();
    let next_ns = upkeeper.tick();
    assert_eq!(
        counters.read(0),
        5,
        "the shepherd has its work done at once"
    );
    let calls = upkeeper.upkeep().calls();
    assert_eq!(calls, 1);
    assert!(next_ns > before_ns + HOUR_NS / 2);
    counters.add(0, 5);
    assert!(upkeeper.tick() <= next_ns);
    assert_eq!(upkeeper.upkeep().calls(), calls, "nothing is due");
}

#[test]
fn a_grid_waits_for_its_points() {
    let upkeeper = upkeeper(Firing::default(), HOUR_NS);
    let counters = &upkeeper.upkeep().counters;
    counters.add(0, 5);
    let next_ns = upkeeper.tick();
    // Unless a point of the grid has just passed.
    if upkeeper.upkeep().calls() == 0 {
        assert_eq!(counters.read(0), 0);
    }
    let cpus = u64::from(upkeeper.cpus());
    let mut phases = (0..cpus).map(|rank| rank * HOUR_NS / cpus);
    assert!(phases.any(|phase_ns| next_ns % HOUR_NS == phase_ns));
}

#[test]
fn threads_keep_up_and_two_never_meet() {
    let upkeeper = upkeeper(Firing::default(), 1_000_000);
    let counters = &upkeeper.upkeep().counters;
    assert_eq!(upkeeper.start(0).expect("none").count(), 0);
    for threads in [1, 2, 100] {
        let threads = upkeeper.start(threads).expect("threads");
        assert!((1..=upkeeper.cpus() as usize).contains(&threads.count()));
        let before = counters.precise(0);
        for _ in 0..20 {
            let calls = upkeeper.upkeep().calls();
            counters.add(0, 1);
            // Ends when a call has folded it, while other threads tick too.
            while counters.read(0) != counters.precise(0) || upkeeper.upkeep().calls() == calls {
                upkeeper.tick();
                std::thread::yield_now();
            }
        }
        assert_eq!(counters.precise(0), before + 20);
    }
}

#[test]
fn without_anybody_who_ticks_threads_do_it_alone_and_survive_a_panic() {
    let upkeeper = upkeeper(Firing::Spread, 2_000_000);
    let counters = &upkeeper.upkeep().counters;
    upkeeper.upkeep().panics_once.store(true, Ordering::Relaxed);
    let threads = upkeeper.start(2).expect("threads");
    counters.add(0, 3);
    while counters.read(0) != 3 {
        std::thread::yield_now();
    }
    assert!(!upkeeper.upkeep().panics_once.load(Ordering::Relaxed));
    drop(threads);
}
