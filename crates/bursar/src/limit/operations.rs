//! Slow operations under way, by CPU.
//!
//! An operation takes the word of its CPU, if that is free, and writes its group there. So it counts itself in once, whatever its
//! depth, and CPUs do not meet. At its group and at each group above it marks the CPU, unless the mark is there already. If another
//! operation has the word (its task was preempted, or a signal handler runs), the operation counts itself in at the gates of its
//! group and of all groups above instead.
//!
//! A task that closes a group takes the marks of that group, and waits until no marked CPU's word has an operation at or below the
//! group, and until the group's gate is empty. It never waits for an operation elsewhere. It looks only at CPUs where an operation
//! began since the last closing: otherwise each of many refusals would fetch a line of every CPU.

use bursar_machine::{AtomicWord, Machine, MemoryOrder, Shard};

use crate::apart::Apart;

/// Shards on which operations at or below a group have begun since the group was last closed.
pub(super) struct Begun<M: Machine>(Box<[M::Word]>);

impl<M: Machine> Begun<M> {
    /// For `shards` shards and the extra one.
    pub(super) fn new(shards: u32) -> Self {
        let words = 0..=shards / u64::BITS;
        Self(words.map(|_| M::Word::new(0)).collect())
    }

    /// Marks a shard whose word an operation has taken.
    pub(super) fn mark(&self, Shard(shard): Shard) {
        let word = &self.0[(shard / u64::BITS) as usize];
        let bit = 1 << (shard % u64::BITS);
        // Full, both: after taking the word, and before the look whether the group is closed. If we find the mark of another
        // operation, a closer that takes it comes later, and finds our word taken. If the closer came first, the mark is gone.
        if word.load(MemoryOrder::Full) & bit == 0 {
            word.fetch_or(bit, MemoryOrder::Full);
        }
    }

    /// Takes the marks.
    fn take(&self) -> impl Iterator<Item = Shard> + '_ {
        self.0.iter().zip(0..).flat_map(|(word, at)| {
            // Full, both: pair with `mark`.
            let mut bits = match word.load(MemoryOrder::Full) {
                0 => 0,
                _ => word.swap(0, MemoryOrder::Full),
            };
            std::iter::from_fn(move || {
                let bit = (bits != 0).then(|| bits.trailing_zeros())?;
                bits &= bits - 1;
                Some(Shard(at * u64::BITS + bit))
            })
        })
    }
}

/// For each shard: 0, or 1 and the group of the operation that has the word.
pub(super) struct Operations<M: Machine>(Box<[Apart<M::Word>]>);

impl<M: Machine> Operations<M> {
    pub(super) fn new(machine: &M) -> Self {
        let words = 0..=machine.cpus();
        Self(words.map(|_| Apart(M::Word::new(0))).collect())
    }

    /// Takes the word of a shard for an operation at a group, if it is free. The caller looks next whether the group, or one
    /// above, is closed.
    pub(super) fn take(&self, shard: Shard, index: u32) -> Option<&M::Word> {
        let word: &M::Word = &self.0[shard.0 as usize];
        let taken = u64::from(index) + 1;
        // Full: pairs with `wait_for`. If we come first, the closer waits for us. If the closing comes first, we see it.
        let before = word.compare_exchange(0, taken, MemoryOrder::Full);
        before.is_ok().then_some(word)
    }

    /// Gives a word back.
    pub(super) fn give_back(word: &M::Word) {
        // Release: pairs with the load in `wait_for`, so that a closer that sees us gone sees our writes.
        word.store(0, MemoryOrder::Release);
    }

    /// Waits until no marked shard has an operation at a group of which `is_below` says that it is closed. Call after closing it.
    pub(super) fn wait_for(&self, machine: &M, begun: &Begun<M>, is_below: impl Fn(u32) -> bool) {
        for shard in begun.take() {
            // Full: pairs with `take`.
            let is_elsewhere = || match self.0[shard.0 as usize].load(MemoryOrder::Full) {
                0 => true,
                taken => !is_below((taken - 1) as u32),
            };
            bursar_machine::busy_wait(is_elsewhere, |round| machine.relax(round));
        }
    }

    /// Forgets operations of tasks that a forked child does not have.
    pub(super) fn forget_tasks(&self) {
        for word in &self.0 {
            word.store(0, MemoryOrder::Full);
        }
    }
}
