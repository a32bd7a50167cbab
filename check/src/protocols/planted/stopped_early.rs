//! Marking the way to the root: a marker goes all the way. The broken version stops at a mark that is set already.

use std::sync::atomic::{AtomicU64, Ordering};

use bursar_machine::{AtomicWord, Machine, MemoryOrder};
use bursar_rig::Watched;

use super::bug::Version;
use crate::protocols::books::run;
use crate::random::Random;

/// One leaf below one root.
struct Way<M: Machine> {
    value: M::Word,
    leaf: M::Word,
    root: M::Word,
    folded: M::Word,
}

impl<M: Machine> Way<M> {
    fn add(&self, version: Version) {
        self.value.fetch_add(1, MemoryOrder::Full);
        let is_marked = self.leaf.swap(1, MemoryOrder::Full) != 0;
        if version == Version::Broken && is_marked {
            return;
        }
        self.root.store(1, MemoryOrder::Full);
    }

    /// Takes the marks from the top down. There is one flusher.
    fn flush(&self) -> u64 {
        if self.root.swap(0, MemoryOrder::Full) != 0 && self.leaf.swap(0, MemoryOrder::Full) != 0 {
            let value = self.value.load(MemoryOrder::Full);
            self.folded.store(value, MemoryOrder::Full);
        }
        self.folded.load(MemoryOrder::Full)
    }
}

pub(super) fn scenario<M: Watched>(machine: &M, seed: u64, version: Version) {
    let way = Way::<M> {
        value: M::Word::new(0),
        leaf: M::Word::new(0),
        root: M::Word::new(0),
        folded: M::Word::new(0),
    };
    let added = AtomicU64::new(0);
    let (way, added) = (&way, &added);
    let add = move |_: Random| {
        way.add(version);
        added.fetch_add(1, Ordering::Relaxed);
    };
    let read = move |_: Random| {
        for _ in 0..2 {
            let before = added.load(Ordering::Relaxed);
            let read = way.flush();
            assert!(read >= before, "lost: read {read}, and {before} were there");
        }
    };
    run(machine, seed, || (), tasks![add, add, read]);
}
