//! Telling of changes, one call at a time: the caller looks again before it stops. The broken version stops after one
//! call.

use std::sync::atomic::{AtomicU64, Ordering};

use bursar_machine::{AtomicWord, Lock, Machine, MemoryOrder};
use bursar_rig::Watched;

use super::bug::Version;
use crate::protocols::books::run;
use crate::random::Random;

struct Telling {
    is_telling: bool,
    /// The last level that was told.
    told: u64,
}

struct Watch<M: Machine> {
    level: M::Word,
    telling: M::Mutex<Telling>,
    heard: AtomicU64,
}

impl<M: Machine> Watch<M> {
    fn change(&self, by: u64, version: Version) {
        self.level.fetch_add(by, MemoryOrder::Full);
        {
            let mut telling = self.telling.lock();
            if telling.is_telling {
                return;
            }
            telling.is_telling = true;
        }
        loop {
            let level = {
                let mut telling = self.telling.lock();
                let level = self.level.load(MemoryOrder::Full);
                if telling.told == level {
                    telling.is_telling = false;
                    return;
                }
                telling.told = level;
                level
            };
            self.call(level);
            if version == Version::Broken {
                self.telling.lock().is_telling = false;
                return;
            }
        }
    }

    /// Tells a level. It takes a step, so that others come in between.
    fn call(&self, level: u64) {
        let _ = self.level.load(MemoryOrder::Full);
        // Relaxed: one thread of the host runs all tasks.
        self.heard.store(level, Ordering::Relaxed);
    }
}

pub(super) fn scenario<M: Watched>(machine: &M, seed: u64, version: Version) {
    let watched = Watch::<M> {
        level: M::Word::new(0),
        telling: M::Mutex::new(Telling {
            is_telling: false,
            told: 0,
        }),
        heard: AtomicU64::new(0),
    };
    let all = &watched;
    let change = move |mut random: Random| all.change(1 + random.below(2), version);
    let tasks = (0..3).map(|_| Box::new(change) as Box<_>).collect();
    run(machine, seed, || (), tasks);
    let heard = watched.heard.load(Ordering::Relaxed);
    let level = watched.level.load(MemoryOrder::Full);
    assert_eq!(heard, level, "the last level that was told, and the level");
}
