//! Counts of events at the call sites.

use bursar_machine::{AtomicWord, Machine, MemoryOrder};

/// Numbers of events.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Flushes of the whole tree, periodic ones included.
    pub root: u64,
    /// Flushes of a subtree.
    pub subtree: u64,
    /// Reads, or periodic flushes, that found a flush worth it and did without.
    pub skips: u64,
    /// Rate-limited flushes that were skipped because the periodic flush was recent enough.
    pub ratelimited_skips: u64,
    /// Reads that waited for a flush that another reader ran.
    pub waits: u64,
    /// Acquisitions of a flush lock that found it taken.
    pub lock_waits: u64,
    /// Times that a flush dropped the global lock half-way: because another task wanted it, or always (`kernel-6.17`).
    pub lock_drops: u64,
}

/// The words behind [`Counts`].
pub(super) struct Tally<M: Machine> {
    pub(super) root: M::Word,
    pub(super) subtree: M::Word,
    pub(super) skips: M::Word,
    pub(super) ratelimited_skips: M::Word,
    pub(super) waits: M::Word,
}

/// Adds one. Relaxed: a tally orders nothing.
pub(super) fn count<W: AtomicWord>(word: &W) {
    word.fetch_add(1, MemoryOrder::Relaxed);
}

impl<M: Machine> Tally<M> {
    pub(super) fn new() -> Self {
        let word = || M::Word::new(0);
        Self {
            root: word(),
            subtree: word(),
            skips: word(),
            ratelimited_skips: word(),
            waits: word(),
        }
    }

    /// Returns the counts so far.
    pub(super) fn counts(&self) -> Counts {
        let read = |word: &M::Word| word.load(MemoryOrder::Relaxed);
        Counts {
            root: read(&self.root),
            subtree: read(&self.subtree),
            skips: read(&self.skips),
            ratelimited_skips: read(&self.ratelimited_skips),
            waits: read(&self.waits),
            ..Counts::default()
        }
    }
}
