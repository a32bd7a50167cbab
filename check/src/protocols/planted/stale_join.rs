//! Sharing walks: a reader uses one that began after it came. The broken version uses the one that runs.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use bursar_machine::{AtomicWord, Event, Lock, Machine, MemoryOrder};
use bursar_rig::Watched;

use super::bug::Version;
use crate::protocols::books::run;
use crate::random::Random;

struct Turns<M: Machine> {
    begun: u64,
    ended: u64,
    running: Option<Arc<M::Event>>,
}

struct Walker<M: Machine> {
    words: [M::Word; 2],
    folded: M::Word,
    turns: M::Mutex<Turns<M>>,
}

impl<M: Machine> Walker<M> {
    fn walk(&self, version: Version) {
        let wanted = {
            let turns = self.turns.lock();
            match version {
                Version::Broken if turns.running.is_some() => turns.begun,
                _ => turns.begun + 1,
            }
        };
        loop {
            let mut turns = self.turns.lock();
            if turns.ended >= wanted {
                return;
            }
            if let Some(running) = turns.running.clone() {
                drop(turns);
                running.wait();
                continue;
            }
            turns.begun += 1;
            let ended = Arc::new(M::Event::new());
            turns.running = Some(ended.clone());
            drop(turns);
            self.fold();
            let mut turns = self.turns.lock();
            turns.ended = turns.begun;
            turns.running = None;
            drop(turns);
            ended.set();
        }
    }

    fn fold(&self) {
        let sum = self
            .words
            .iter()
            .map(|word| word.load(MemoryOrder::Full))
            .sum();
        self.folded.store(sum, MemoryOrder::Full);
    }
}

pub(super) fn scenario<M: Watched>(machine: &M, seed: u64, version: Version) {
    let walker = Walker::<M> {
        words: [0; 2].map(M::Word::new),
        folded: M::Word::new(0),
        turns: M::Mutex::new(Turns {
            begun: 0,
            ended: 0,
            running: None,
        }),
    };
    let added = AtomicU64::new(0);
    let (walker, added) = (&walker, &added);
    let task = move |mut random: Random| {
        for _ in 0..2 {
            walker.words[random.below(2) as usize].fetch_add(1, MemoryOrder::Full);
            added.fetch_add(1, Ordering::Relaxed);
            let before = added.load(Ordering::Relaxed);
            walker.walk(version);
            let read = walker.folded.load(MemoryOrder::Full);
            assert!(
                read >= before,
                "stale: read {read}, and {before} were there"
            );
        }
    };
    let tasks = (0..3).map(|_| Box::new(task) as Box<_>).collect();
    run(machine, seed, || (), tasks);
}
