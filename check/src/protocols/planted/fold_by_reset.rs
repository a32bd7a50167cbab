//! A CPU's difference that is folded from elsewhere. The broken folder takes out the value that it read, in two steps;
//! the CPU, which needs no lock for its own words, adds in two steps as well. The mended folder leaves the value and
//! records how much it has folded.

use bursar_machine::{AtomicWord, MemoryOrder};
use bursar_rig::Watched;

use super::bug::Version;
use crate::protocols::books::run;
use crate::random::Random;

struct Counter<W> {
    /// Written by its CPU; by broken folders too.
    value: W,
    base: W,
    global: W,
}

impl<W: AtomicWord> Counter<W> {
    /// Called by one task only, as on one CPU.
    fn add(&self, delta: u64) {
        let before = self.value.load(MemoryOrder::Relaxed);
        self.value.store(before + delta, MemoryOrder::Relaxed);
    }

    fn fold(&self, version: Version) {
        if version == Version::Broken {
            let difference = self.value.swap(0, MemoryOrder::Full);
            self.global.fetch_add(difference, MemoryOrder::Full);
            return;
        }
        let base = self.base.load(MemoryOrder::Full);
        let value = self.value.load(MemoryOrder::Full);
        if self
            .base
            .compare_exchange(base, value, MemoryOrder::Full)
            .is_ok()
        {
            self.global
                .fetch_add(value.wrapping_sub(base), MemoryOrder::Full);
        }
    }
}

pub(super) fn scenario<M: Watched>(machine: &M, seed: u64, version: Version) {
    let word = || M::Word::new(0);
    let counter = Counter {
        value: word(),
        base: word(),
        global: word(),
    };
    let all = &counter;
    let add = |_: Random| (0..3).for_each(|_| all.add(1));
    let fold = |_: Random| (0..2).for_each(|_| all.fold(version));
    run(machine, seed, || (), tasks![add, fold, fold]);
    counter.fold(version);
    let global = counter.global.load(MemoryOrder::Full);
    assert_eq!(global, 3, "additions folded, and made");
}
