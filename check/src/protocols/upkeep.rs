//! Upkeep under shepherds, timers, CPUs that are awake anyway, and CPUs that become idle. No CPU has two timers or two
//! calls at once, and no CPU that has work is forgotten.

use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use bursar_kernel::upkeep::{
    Clocked, Firing, Housekeeping, Options, Period, SmallCounters, Upkeep,
};
use bursar_machine::{Machine, Shard};
use bursar_rig::Watched;
use bursar_rig::timer::Timer;

use super::books::run;
use super::locked::locked;
use crate::random::Random;

const FIRINGS: [Firing; 4] = [
    Firing::RoundJiffies { skew: 3 },
    Firing::Spread,
    Firing::PhaseGrid { exact: false },
    Firing::PhaseGrid { exact: true },
];
/// A tick of the fastest clock.
const INTERVAL_NS: u64 = 100_000;

/// A counter that is folded, and page work that takes steps.
struct Work<M: Machine> {
    counters: SmallCounters<M>,
    is_busy: Vec<AtomicBool>,
    /// Calls that will still report more work.
    more: AtomicU64,
}

impl<M: Machine> Upkeep for Work<M> {
    fn needs(&self, shard: Shard) -> bool {
        self.counters.needs_fold(shard)
    }

    fn fold(&self, shard: Shard) -> bool {
        self.counters.fold(shard) > 0
    }

    fn pages(&self, shard: Shard) -> bool {
        // Relaxed, here and below: one thread of the host runs all tasks.
        let is_busy = &self.is_busy[shard.index()];
        assert!(!is_busy.swap(true, Ordering::Relaxed), "two at once");
        // Some steps.
        self.counters.needs_fold(shard);
        is_busy.store(false, Ordering::Relaxed);
        let more = self.more.load(Ordering::Relaxed);
        self.more.store(more.saturating_sub(1), Ordering::Relaxed);
        more > 0
    }
}

struct World<M: Machine> {
    machine: M,
    housekeeping: Housekeeping<M, Work<M>>,
    /// Timers that are set. No step while the host's lock is held.
    timers: Mutex<Vec<(Shard, Timer)>>,
    /// Number of timers of each CPU that are set, or have expired and are being served.
    set: Vec<AtomicU64>,
    added: AtomicU64,
}

impl<M: Machine> World<M> {
    fn queue(&self, shard: Shard, timer: Timer) {
        let timers = || locked(&self.timers);
        timers().push((shard, timer));
    }

    fn expired(&self, random: &mut Random) -> Option<(Shard, Timer)> {
        let mut timers = locked(&self.timers);
        let count = timers.len() as u64;
        (count > 0).then(|| timers.swap_remove(random.below(count) as usize))
    }

    fn shepherd(&self) {
        self.housekeeping.shepherd(|shard, timer| {
            let before = self.set[shard.index()].fetch_add(1, Ordering::Relaxed);
            assert_eq!(before, 0, "a second timer for {shard:?}");
            self.queue(shard, timer);
        });
    }

    /// Serves one timer, if any is set.
    fn serve(&self, random: &mut Random) -> bool {
        let Some((shard, timer)) = self.expired(random) else {
            return false;
        };
        self.machine.sleep_until(timer.deadline_ns);
        match self.housekeeping.fire(shard) {
            Some(timer) => self.queue(shard, timer),
            None => {
                let before = self.set[shard.index()].fetch_sub(1, Ordering::Relaxed);
                assert_eq!(before, 1);
            }
        }
        true
    }

    fn add(&self, mut random: Random) {
        for _ in 0..3 {
            let delta = 1 + random.below(3);
            self.housekeeping.upkeep().counters.add(0, delta as i64);
            self.added.fetch_add(delta, Ordering::Relaxed);
        }
    }

    fn be_awake(&self, mut random: Random) {
        for _ in 0..3 {
            let shard = Shard(random.below(self.machine.cpus() as u64) as u32);
            if random.happens(3) {
                self.housekeeping.quiet(shard);
            } else {
                self.housekeeping.awake(shard);
            }
        }
    }

    /// Finishes, after all other tasks have ended.
    fn finish(&self, mut random: Random) {
        self.housekeeping.upkeep().more.store(0, Ordering::Relaxed);
        for shard in (0..self.machine.cpus() as u32).map(Shard) {
            let set = self.set[shard.index()].load(Ordering::Relaxed);
            let is_due = self.housekeeping.due(shard).is_some();
            assert_eq!(set, u64::from(is_due), "timers of {shard:?}, which is due");
        }
        self.shepherd();
        for shard in (0..self.machine.cpus() as u32).map(Shard) {
            let has_work = self.housekeeping.upkeep().needs(shard);
            let is_due = self.housekeeping.due(shard).is_some();
            assert!(is_due || !has_work, "{shard:?} is forgotten");
        }
        let rounds = (0..).take_while(|_| self.serve(&mut random)).take(100);
        assert!(rounds.count() < 100, "upkeep never ends");
        let counters = &self.housekeeping.upkeep().counters;
        // Threads without a CPU belong to no shepherd here.
        counters.fold(Shard(self.machine.cpus() as u32));
        let added = self.added.load(Ordering::Relaxed);
        assert_eq!(counters.read(0), added as i64, "folded, and added");
    }
}

pub(super) fn scenario<M: Watched>(machine: &M, seed: u64) {
    let mut random = Random::new(seed);
    let firing = FIRINGS[random.below(4) as usize];
    let period = Period::new(INTERVAL_NS, 10_000).expect("a tick");
    let options = Options {
        slack_ns: random.below(INTERVAL_NS),
        ..Options::new(Clocked::new(firing, period))
    };
    let cpus = machine.cpus();
    let work = Work {
        counters: SmallCounters::new(machine, 1, i64::MAX).expect("a few words"),
        is_busy: (0..cpus).map(|_| AtomicBool::new(false)).collect(),
        more: AtomicU64::new(random.below(3)),
    };
    let world = World {
        machine: machine.clone(),
        housekeeping: Housekeeping::new(machine, work, options).expect("settings that make sense"),
        timers: Mutex::default(),
        set: (0..cpus).map(|_| AtomicU64::new(0)).collect(),
        added: AtomicU64::new(0),
    };
    let all = &world;
    let shepherd = |_: Random| (0..3).for_each(|_| all.shepherd());
    let serve = |mut random: Random| {
        (0..4).for_each(|_| {
            all.serve(&mut random);
        });
    };
    run(
        machine,
        seed,
        || (),
        tasks![
            shepherd,
            shepherd,
            serve,
            serve,
            |random| all.add(random),
            |random| all.add(random),
            |random| all.be_awake(random)
        ],
    );
    world.finish(random);
}
