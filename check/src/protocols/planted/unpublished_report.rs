//! Batched statistics: one shard of one group, with the steps of `add_batched`, a walk and retiring. The broken version reports what
//! another task has added, and does not publish the shard first.

use std::sync::atomic::{AtomicU64, Ordering};

use bursar_machine::{AtomicWord, Lock, Machine, MemoryOrder};
use bursar_rig::Watched;

use super::bug::Version;
use crate::protocols::books::run;
use crate::random::Random;

/// A task reports as soon as this much is not reported.
const BATCH: u64 = 2;

#[derive(Default)]
struct Fold {
    total: u64,
    /// The word at the last look.
    seen: u64,
    /// Reports and publications before the last walk, and marked shards that it found.
    reports: u64,
    publications: u64,
    left: u64,
}

struct Counter<M: Machine> {
    version: Version,
    word: M::Word,
    /// Part of the word that is reported.
    base: M::Word,
    /// Whether the shard is published, and marked.
    mark: M::Word,
    publications: M::Word,
    reports: M::Word,
    fold: M::Mutex<Fold>,
    /// Sum of the additions that have returned. Not the machine's word: recording costs no step.
    returned: AtomicU64,
}

impl<M: Machine> Counter<M> {
    fn new(version: Version) -> Self {
        let word = || M::Word::new(0);
        Self {
            version,
            word: word(),
            base: word(),
            mark: word(),
            publications: word(),
            reports: word(),
            fold: M::Mutex::new(Fold::default()),
            returned: AtomicU64::new(0),
        }
    }

    fn add(&self, by: u64) {
        self.word.fetch_add(by, MemoryOrder::Full);
        self.publish();
        let seen = self.base.load(MemoryOrder::Full);
        let sum = self.word.load(MemoryOrder::Full);
        if sum - seen >= BATCH {
            if self.version == Version::Mended {
                self.publish();
            }
            self.reports.fetch_add(sum - seen, MemoryOrder::Full);
            let _ = self.base.compare_exchange(seen, sum, MemoryOrder::Full);
        }
        // Relaxed, here and below: one thread of the host runs all tasks.
        self.returned.fetch_add(by, Ordering::Relaxed);
    }

    fn publish(&self) {
        if self.mark.load(MemoryOrder::Full) == 0 {
            self.mark.store(1, MemoryOrder::Full);
            self.publications.fetch_add(1, MemoryOrder::Full);
        }
    }

    fn fold(&self, fold: &mut Fold) {
        let now = self.word.load(MemoryOrder::Full);
        fold.total += now - std::mem::replace(&mut fold.seen, now);
    }

    /// Removes the mark. An addition that has found it is in the word by now.
    fn retire(&self) {
        let mut fold = self.fold.lock();
        self.mark.store(0, MemoryOrder::Full);
        self.fold(&mut fold);
    }

    fn walk(&self) {
        let publications = self.publications.load(MemoryOrder::Full);
        let reports = self.reports.load(MemoryOrder::Full);
        let mut fold = self.fold.lock();
        let left = self.mark.load(MemoryOrder::Full);
        if left > 0 {
            self.fold(&mut fold);
        }
        (fold.publications, fold.reports, fold.left) = (publications, reports, left);
    }

    /// Checks that what the last walk found, and its error, allow for all that was added.
    fn check(&self) {
        let fold = self.fold.lock();
        let slots = self.publications.load(MemoryOrder::Full) - fold.publications + fold.left;
        let reported = self.reports.load(MemoryOrder::Full) - fold.reports;
        let most = fold.total + reported + slots * 2 * BATCH;
        let returned = self.returned.load(Ordering::Relaxed);
        assert!(
            returned <= most,
            "{most} at most, and {returned} were added"
        );
    }
}

pub(super) fn scenario<M: Watched>(machine: &M, seed: u64, version: Version) {
    let counter = &Counter::<M>::new(version);
    // The shard is in use.
    counter.add(BATCH);
    let add_and_read = |_: Random| {
        counter.add(1);
        counter.walk();
    };
    let retire = |_: Random| counter.retire();
    // More than a published shard holds back.
    let add_much = |_: Random| counter.add(10 * BATCH);
    run(machine, seed, || (), tasks![add_and_read, retire, add_much]);
    counter.check();
}
