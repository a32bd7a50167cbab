//! A flush that readers join by one completion, armed again for each flush. The flusher arms it and then shows that the
//! flush runs, with a write barrier between the two. The broken version shows it first, as CPUs without the barrier may: a
//! reader joins, finds the completion of the flush before still done, and returns while nothing was flushed for it.
//!
//! The explorer's memory is sequentially consistent. So the barrier's absence is the other order of the two stores.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use bursar_machine::{AtomicWord, Event, Lock, Machine, MemoryOrder};
use bursar_rig::Watched;

use super::bug::Version;
use crate::protocols::books::run;
use crate::random::Random;

struct Shared<M: Machine> {
    is_running: M::Word,
    is_done: M::Word,
    sleepers: M::Spin<Vec<Arc<M::Event>>>,
    /// Flushes that have ended.
    ended: AtomicU64,
}

impl<M: Machine> Shared<M> {
    fn flush(&self, version: Version) {
        let rearm = || self.is_done.store(0, MemoryOrder::Relaxed);
        let show = || self.is_running.store(1, MemoryOrder::Release);
        match version {
            Version::Mended => (rearm(), show()),
            Version::Broken => (show(), rearm()),
        };
        self.is_running.store(0, MemoryOrder::Relaxed);
        self.ended.fetch_add(1, Ordering::Relaxed);
        let mut sleepers = self.sleepers.lock();
        self.is_done.store(1, MemoryOrder::Relaxed);
        for sleeper in sleepers.drain(..) {
            sleeper.set();
        }
    }

    fn wait(&self) {
        loop {
            let mut sleepers = self.sleepers.lock();
            if self.is_done.load(MemoryOrder::Relaxed) == 1 {
                return;
            }
            let woken = Arc::new(M::Event::new());
            sleepers.push(woken.clone());
            drop(sleepers);
            woken.wait();
        }
    }
}

pub(super) fn scenario<M: Watched>(machine: &M, seed: u64, version: Version) {
    let shared = Shared::<M> {
        is_running: M::Word::new(0),
        is_done: M::Word::new(0),
        sleepers: Lock::new(Vec::new()),
        ended: AtomicU64::new(0),
    };
    let shared = &shared;
    let flush = move |_: Random| (0..3).for_each(|_| shared.flush(version));
    let read = move |_: Random| {
        if shared.is_running.load(MemoryOrder::Acquire) == 1 {
            let before = shared.ended.load(Ordering::Relaxed);
            shared.wait();
            let ended = shared.ended.load(Ordering::Relaxed);
            assert!(
                ended > before,
                "a reader joined a flush, and none has ended"
            );
        }
    };
    run(machine, seed, || (), tasks![flush, read, read]);
}
