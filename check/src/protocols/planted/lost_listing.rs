//! Per-CPU lists of updated groups without locks, as of Linux 6.17: updates choose by an exchange of the group's word the one
//! that pushes the group, and a flusher on another CPU takes it off and clears the word. The broken version exchanges in a
//! way that is atomic on its own CPU alone, as x86 does without the lock prefix: it reads, compares, and writes back. It
//! writes over what the flusher has cleared meanwhile. So the group seems listed, and no later flush finds it.

use bursar_machine::{AtomicWord, Lock, Machine, MemoryOrder};
use bursar_rig::Watched;

use super::bug::Version;
use crate::protocols::books::run;
use crate::random::Random;

const OFF: u64 = 0;
const ON: u64 = 1;

/// One group on one CPU.
struct Listing<M: Machine> {
    state: M::Word,
    /// Whether the group seems listed.
    word: M::Word,
    list: M::Spin<bool>,
}

impl<M: Machine> Listing<M> {
    fn update(&self, version: Version) {
        self.state.fetch_add(1, MemoryOrder::Relaxed);
        // The look that an interrupt may follow: its own update can list the group before the exchange.
        if self.word.load(MemoryOrder::Relaxed) == ON {
            return;
        }
        let is_chosen = match version {
            Version::Mended => {
                let exchanged = self.word.compare_exchange(OFF, ON, MemoryOrder::Full);
                exchanged.is_ok()
            }
            Version::Broken => {
                let seen = self.word.load(MemoryOrder::Relaxed);
                // Also where the comparison fails: the instruction always writes.
                self.word.store(ON, MemoryOrder::Relaxed);
                seen == OFF
            }
        };
        if is_chosen {
            *self.list.lock() = true;
        }
    }

    /// Returns what is there after a flush, if the group is on the list.
    fn flush(&self) -> Option<u64> {
        let is_listed = std::mem::take(&mut *self.list.lock());
        is_listed.then(|| {
            self.word.store(OFF, MemoryOrder::Relaxed);
            self.state.load(MemoryOrder::Relaxed)
        })
    }
}

pub(super) fn scenario<M: Watched>(machine: &M, seed: u64, version: Version) {
    let listing = Listing::<M> {
        state: M::Word::new(0),
        word: M::Word::new(OFF),
        list: Lock::new(false),
    };
    let listed = &listing;
    let update = move |_: Random| listed.update(version);
    let flush = move |_: Random| _ = listed.flush();
    run(machine, seed, || (), tasks![update, update, flush]);
    // All is quiet: the next update must be seen by the next flush.
    listing.update(version);
    assert!(
        listing.flush().is_some(),
        "a group seems listed, and is on no list"
    );
}
