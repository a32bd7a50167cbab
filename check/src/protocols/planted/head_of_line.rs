//! A queue for memory: a task that fits passes a larger one that does not, once at most. The broken version serves in turn only, and
//! then the larger one waits for memory of a task that waits behind it.

use std::sync::Arc;

use bursar_machine::{Event, Lock, Machine};
use bursar_rig::Watched;

use super::bug::Version;
use crate::protocols::books::run;
use crate::random::Random;

const MAX: u64 = 10;
const HELD: u64 = 4;

struct Waiting<M: Machine> {
    bytes: u64,
    passes_left: u32,
    served: Arc<M::Event>,
}

struct Queued<M: Machine> {
    left: u64,
    waiting: Vec<Waiting<M>>,
}

struct Limited<M: Machine> {
    queued: M::Mutex<Queued<M>>,
    passes_max: u32,
}

impl<M: Machine> Queued<M> {
    /// Takes memory behind the first `ahead` that wait, and notes that they are passed.
    fn take(&mut self, ahead: usize, bytes: u64) -> bool {
        let ahead = &mut self.waiting[..ahead];
        let fits = bytes <= self.left && ahead.iter().all(|one| one.passes_left > 0);
        if fits {
            ahead.iter_mut().for_each(|one| one.passes_left -= 1);
            self.left -= bytes;
        }
        fits
    }
}

impl<M: Machine> Limited<M> {
    fn charge(&self, bytes: u64) {
        let served = Arc::new(M::Event::new());
        {
            let mut queued = self.queued.lock();
            let ahead = queued.waiting.len();
            if queued.take(ahead, bytes) {
                return;
            }
            queued.waiting.push(Waiting {
                bytes,
                passes_left: self.passes_max,
                served: served.clone(),
            });
        }
        served.wait();
    }

    fn uncharge(&self, bytes: u64) {
        let mut served = Vec::new();
        {
            let mut queued = self.queued.lock();
            queued.left += bytes;
            let mut at = 0;
            while let Some(bytes) = queued.waiting.get(at).map(|one| one.bytes) {
                if queued.take(at, bytes) {
                    served.push(queued.waiting.remove(at).served);
                } else {
                    at += 1;
                }
            }
        }
        served.iter().for_each(|served| served.set());
    }
}

pub(super) fn scenario<M: Watched>(machine: &M, seed: u64, version: Version) {
    let limited = Limited::<M> {
        queued: M::Mutex::new(Queued {
            left: MAX - HELD,
            waiting: Vec::new(),
        }),
        passes_max: match version {
            Version::Broken => 0,
            Version::Mended => 1,
        },
    };
    let limited = &limited;
    let large = move |_: Random| {
        limited.charge(MAX - HELD + 1);
        limited.uncharge(MAX - HELD + 1);
    };
    let holder = move |_: Random| {
        limited.charge(1);
        limited.uncharge(HELD + 1);
    };
    run(machine, seed, || (), tasks![large, holder]);
}
