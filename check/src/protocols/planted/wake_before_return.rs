//! Waking tasks that wait for memory: memory is returned first, and then a waiter is looked for. The broken version
//! looks first.

use std::sync::Arc;

use bursar_machine::{AtomicWord, Event, Lock, Machine, MemoryOrder};
use bursar_rig::Watched;

use super::bug::Version;
use crate::protocols::books::run;
use crate::random::Random;

const MAX: u64 = 10;

struct Limited<M: Machine> {
    usage: M::Word,
    waiting: M::Mutex<Option<Arc<M::Event>>>,
}

impl<M: Machine> Limited<M> {
    fn try_charge(&self, bytes: u64) -> bool {
        let seen = self.usage.load(MemoryOrder::Full);
        seen + bytes <= MAX
            && self
                .usage
                .compare_exchange(seen, seen + bytes, MemoryOrder::Full)
                .is_ok()
    }

    fn uncharge(&self, bytes: u64, version: Version) {
        let take = || self.waiting.lock().take();
        let waiting = match version {
            Version::Broken => {
                let waiting = take();
                self.usage.fetch_sub(bytes, MemoryOrder::Full);
                waiting
            }
            Version::Mended => {
                self.usage.fetch_sub(bytes, MemoryOrder::Full);
                take()
            }
        };
        if let Some(waiting) = waiting {
            waiting.set();
        }
    }

    fn charge(&self, bytes: u64) {
        loop {
            let woken = Arc::new(M::Event::new());
            *self.waiting.lock() = Some(woken.clone());
            // In the queue first: what is returned from now on wakes us.
            if self.try_charge(bytes) {
                return;
            }
            woken.wait();
        }
    }
}

pub(super) fn scenario<M: Watched>(machine: &M, seed: u64, version: Version) {
    let limited = Limited::<M> {
        usage: M::Word::new(MAX),
        waiting: M::Mutex::new(None),
    };
    let limited = &limited;
    let charge = move |_: Random| limited.charge(MAX);
    let uncharge = move |_: Random| limited.uncharge(MAX / 2, version);
    run(machine, seed, || (), tasks![charge, uncharge, uncharge]);
}
