//! Small counters under additions and folds from everywhere. Nothing is lost or counted twice. A precise read counts
//! all additions that had returned and none that had not begun. The error of a cheap read is bounded.

use std::sync::atomic::{AtomicI64, Ordering};

use bursar_kernel::upkeep::SmallCounters;
use bursar_machine::{Machine, Shard};
use bursar_rig::Watched;

use super::books::run;
use crate::random::Random;

const COUNTERS: usize = 2;
const ADDERS: i64 = 3;
/// The largest addition.
const LARGEST: i64 = 5;

/// Additions to one counter: the sums of the positive and of the negative ones.
#[derive(Default)]
struct Truth {
    begun: [AtomicI64; 2],
    returned: [AtomicI64; 2],
}

impl Truth {
    fn note(sums: &[AtomicI64; 2], delta: i64) {
        // Relaxed, here and below: one thread of the host runs all tasks.
        sums[usize::from(delta < 0)].fetch_add(delta, Ordering::Relaxed);
    }

    fn around(&self, add: impl FnOnce(), delta: i64) {
        Self::note(&self.begun, delta);
        add();
        Self::note(&self.returned, delta);
    }

    /// Returns the least and the greatest value that a read may find now.
    fn range(&self) -> (i64, i64) {
        let of = |sums: &[AtomicI64; 2], at: usize| sums[at].load(Ordering::Relaxed);
        (
            of(&self.returned, 0) + of(&self.begun, 1),
            of(&self.begun, 0) + of(&self.returned, 1),
        )
    }
}

struct World<M: Machine> {
    counters: SmallCounters<M>,
    truth: [Truth; COUNTERS],
    shards: u64,
}

impl<M: Machine> World<M> {
    fn add(&self, mut random: Random) {
        for _ in 0..4 {
            let at = random.below(COUNTERS as u64) as usize;
            let counters = &self.counters;
            let truth = &self.truth[at];
            match random.below(4) {
                0 => truth.around(|| counters.inc(at), 1),
                1 => truth.around(|| counters.dec(at), -1),
                _ => {
                    let delta = random.below(2 * LARGEST as u64 + 1) as i64 - LARGEST;
                    truth.around(|| counters.add(at, delta), delta);
                }
            }
        }
    }

    fn fold(&self, mut random: Random) {
        for _ in 0..3 {
            let shard = Shard(random.below(self.shards) as u32);
            if random.happens(4) {
                self.counters.needs_fold(shard);
            }
            self.counters.fold(shard);
        }
    }

    fn read(&self, mut random: Random) {
        let at = random.below(COUNTERS as u64) as usize;
        let (least, _) = self.truth[at].range();
        let begun_before = self.truth[at].begun[1].load(Ordering::Relaxed);
        let value = self.counters.precise(at);
        let (_, most) = self.truth[at].range();
        // Subtractions during the look may be in it.
        let subtracted = self.truth[at].begun[1].load(Ordering::Relaxed) - begun_before;
        let returned_before = most - self.truth[at].returned[1].load(Ordering::Relaxed);
        assert!(
            value >= least + subtracted && value <= returned_before,
            "{value} was read, {least} and {subtracted} to {most} were added"
        );
    }

    /// Checks the bounds after each step, in a moment in which nothing else happens.
    fn check(&self) {
        for (at, truth) in self.truth.iter().enumerate() {
            let (least, most) = truth.range();
            let value = self.counters.precise(at);
            assert!(
                (least..=most).contains(&value),
                "{value} is counted, {least} to {most} were added"
            );
        }
    }

    /// Checks the sums, after all tasks have ended.
    fn finish(&self) {
        let shards = self.shards as i64;
        let bound = shards * (2 * self.counters.threshold() + ADDERS * LARGEST);
        for (at, truth) in self.truth.iter().enumerate() {
            let (value, _) = truth.range();
            let off = value - self.counters.read(at);
            assert!(off.abs() <= bound, "{off} are held back, of {bound}");
        }
        for shard in (0..self.shards as u32).map(Shard) {
            self.counters.fold(shard);
            assert!(!self.counters.needs_fold(shard), "something is left");
        }
        for (at, truth) in self.truth.iter().enumerate() {
            let (value, _) = truth.range();
            assert_eq!(self.counters.read(at), value, "folded, and added");
        }
    }
}

pub(super) fn scenario<M: Watched>(machine: &M, seed: u64) {
    let threshold = Random::new(seed).below(5) as i64;
    let world = World {
        counters: SmallCounters::new(machine, COUNTERS, threshold).expect("a few words"),
        truth: Default::default(),
        shards: machine.cpus() as u64 + 1,
    };
    let all = &world;
    let add = |random| all.add(random);
    let fold = |random| all.fold(random);
    let read = |random| all.read(random);
    run(
        machine,
        seed,
        || all.check(),
        tasks![add, add, add, fold, fold, read],
    );
    world.finish();
}
