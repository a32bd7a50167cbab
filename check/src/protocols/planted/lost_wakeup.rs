//! Waiting for an event: look, announce the wait, look again, sleep. The broken version does not look again.

use std::sync::Arc;

use bursar_machine::{AtomicWord, Event, Lock, Machine, MemoryOrder};
use bursar_rig::Watched;

use super::bug::Version;
use crate::protocols::books::run;
use crate::random::Random;

struct Gate<M: Machine> {
    is_open: M::Word,
    sleepers: M::Mutex<Vec<Arc<M::Event>>>,
}

impl<M: Machine> Gate<M> {
    fn open(&self) {
        self.is_open.store(1, MemoryOrder::Full);
        for sleeper in std::mem::take(&mut *self.sleepers.lock()) {
            sleeper.set();
        }
    }

    fn wait(&self, version: Version) {
        if self.is_open.load(MemoryOrder::Full) != 0 {
            return;
        }
        let woken = Arc::new(M::Event::new());
        self.sleepers.lock().push(woken.clone());
        if version == Version::Mended && self.is_open.load(MemoryOrder::Full) != 0 {
            return;
        }
        woken.wait();
    }
}

pub(super) fn scenario<M: Watched>(machine: &M, seed: u64, version: Version) {
    let gate = Gate::<M> {
        is_open: M::Word::new(0),
        sleepers: M::Mutex::new(Vec::new()),
    };
    let gate = &gate;
    let wait = move |_: Random| gate.wait(version);
    let open = move |_: Random| gate.open();
    run(machine, seed, || (), tasks![wait, wait, open]);
}
