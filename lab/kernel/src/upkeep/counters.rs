//! Small counters: each CPU adds on its own, and the amount that it holds back is bounded.
//!
//! The kernel keeps a difference of eight bits for each CPU and counter. It moves the difference to a global number
//! when it exceeds a threshold, or once a second. The move sets the difference to 0, so the CPU itself must make it.
//!
//! Here nothing is ever reset. A CPU's *value* is the sum of all additions there, written only by its sections. Its
//! *base* is the part of the value that has been moved. A *move* replaces the base by the value, and adds the
//! difference between the two bases to the global number. Any task may move for any CPU: it replaces the base by
//! compare-and-exchange, so one of several simultaneous moves succeeds. The differences of a CPU's bases add up to its
//! last base, whatever happened in between.
//!
//! # Invariants
//! * The global number is the sum of all bases, except for moves that are between their two steps. So nothing is
//!   counted twice or lost, and no fence is needed.
//! * An addition returns when the value and its base differ by the threshold at most.
//!
//! # Accepted
//! [`SmallCounters::read`] is off by the amount that CPUs hold back, normally the threshold for each shard at most. A
//! fold from elsewhere may be preempted between its look and its exchange. Then it may leave as much again behind, and
//! the additions that ran when it looked. The next addition beyond the threshold, or the next fold, moves them.

use std::fmt;
use std::ops::Range;
use std::sync::atomic::{AtomicI64, Ordering};

use bursar_machine::{
    AtomicWord, FIRST_STATISTIC, Machine, MemoryOrder, OutOfMemory, Outcome, STATE, Shard, Slot,
    State, WORDS_MAX,
};

use crate::Padded;

/// Maximum number of counters in one [`SmallCounters`].
pub const COUNTERS_MAX: usize = (WORDS_MAX - FIRST_STATISTIC) / 2;

/// Counters with a part on each CPU.
#[doc(alias = "vm_stat_diff")]
pub struct SmallCounters<M: Machine> {
    machine: M,
    /// Value and base of each counter, one behind the other, so that an addition touches one line.
    slot: M::Slot,
    global: Box<[Padded<M::Word>]>,
    /// Amount that a CPU may hold back. A plain word: it bounds an error, and no protocol depends on it.
    threshold: AtomicI64,
}

impl<M: Machine> fmt::Debug for SmallCounters<M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SmallCounters")
            .field("counters", &self.global.len())
            .field("threshold", &self.threshold)
            .finish_non_exhaustive()
    }
}

impl<M: Machine> SmallCounters<M> {
    /// Makes `counters` counters, all 0, of which a CPU holds back at most `threshold`; nothing if that is 0 or less.
    ///
    /// Memory for a CPU's part is taken at its first use.
    ///
    /// # Errors
    /// [`OutOfMemory`].
    ///
    /// # Panics
    /// If there are more than [`COUNTERS_MAX`].
    pub fn new(machine: &M, counters: usize, threshold: i64) -> Result<Self, OutOfMemory> {
        assert!(counters <= COUNTERS_MAX, "too many counters: {counters}");
        let mut slots = machine.slots(FIRST_STATISTIC + 2 * counters)?;
        Ok(Self {
            machine: machine.clone(),
            slot: slots.swap_remove(0),
            global: (0..counters).map(|_| Padded(M::Word::new(0))).collect(),
            threshold: AtomicI64::new(threshold),
        })
    }

    /// Number of counters.
    pub fn counters(&self) -> usize {
        self.global.len()
    }

    /// Amount that a CPU may hold back.
    pub fn threshold(&self) -> i64 {
        // Relaxed: see the field.
        self.threshold.load(Ordering::Relaxed)
    }

    /// Changes the amount that a CPU may hold back. An excess moves at the CPU's next addition, or at the next fold.
    #[doc(alias = "set_pgdat_percpu_threshold")]
    pub fn set_threshold(&self, threshold: i64) {
        self.threshold.store(threshold, Ordering::Relaxed);
    }

    /// Adds to a counter. Beyond the threshold, the whole amount that the CPU holds back moves. Async-signal-safe.
    ///
    /// # Panics
    /// If there is no such counter.
    #[inline]
    #[doc(alias = "mod_zone_page_state")]
    pub fn add(&self, counter: usize, delta: i64) {
        let (shard, value) = self.add_fetch(counter, delta);
        let threshold = self.threshold().max(0);
        if self.held(shard, counter, value).saturating_abs() > threshold {
            self.relieve(shard, counter, 0, |held| held.saturating_abs() > threshold);
        }
    }

    /// Adds 1. Beyond the threshold, half of it moves in advance. For a counter that goes up and down, or up for long,
    /// that halves the moves. Async-signal-safe.
    ///
    /// # Panics
    /// If there is no such counter.
    #[inline]
    #[doc(alias = "inc_zone_page_state")]
    pub fn inc(&self, counter: usize) {
        self.step(counter, 1);
    }

    /// Subtracts 1, as [`SmallCounters::inc`] adds it.
    ///
    /// # Panics
    /// If there is no such counter.
    #[inline]
    #[doc(alias = "dec_zone_page_state")]
    pub fn dec(&self, counter: usize) {
        self.step(counter, -1);
    }

    #[inline]
    fn step(&self, counter: usize, delta: i64) {
        let (shard, value) = self.add_fetch(counter, delta);
        let threshold = self.threshold().max(0);
        let is_over = |held: i64| held.saturating_mul(delta) > threshold;
        if is_over(self.held(shard, counter, value)) {
            self.relieve(shard, counter, delta * (threshold / 2), is_over);
        }
    }

    /// Amount moved so far, which is off by the amount that CPUs hold back.
    ///
    /// # Panics
    /// If there is no such counter.
    #[doc(alias = "zone_page_state")]
    pub fn read(&self, counter: usize) -> i64 {
        // Relaxed: a single number; other data is not read through it.
        self.global[counter].0.load_signed(MemoryOrder::Relaxed)
    }

    /// Sum with the amount that CPUs hold back. Includes all additions that had returned; those that run meanwhile may
    /// be in. Looks at each CPU.
    ///
    /// # Panics
    /// If there is no such counter.
    #[doc(alias = "zone_page_state_snapshot")]
    pub fn precise(&self, counter: usize) -> i64 {
        let values = self.shards().map(|shard| self.value(shard, counter));
        values.fold(0, i64::wrapping_add)
    }

    /// Returns whether a CPU holds anything back. Changes nothing.
    #[doc(alias = "need_update")]
    pub fn needs_fold(&self, shard: Shard) -> bool {
        (0..self.counters()).any(|counter| {
            let base = self.base(shard, counter);
            self.value(shard, counter) != base
        })
    }

    /// Moves the whole amount that a CPU holds back, from any CPU; returns the number of counters changed.
    /// Async-signal-safe.
    #[doc(alias = "refresh_cpu_vm_stats")]
    pub fn fold(&self, shard: Shard) -> u64 {
        self.fold_some(shard, 0..self.counters())
    }

    /// The same for some of the counters.
    ///
    /// # Panics
    /// If one of them does not exist.
    pub fn fold_some(&self, shard: Shard, counters: Range<usize>) -> u64 {
        counters
            .map(|counter| u64::from(self.move_all(shard, counter)))
            .sum()
    }

    /// In a forked child: sets the global numbers to the amounts that have been moved. A thread that was between the
    /// two steps of a move is gone. No other task may move meanwhile.
    pub fn recount(&self) {
        for (counter, global) in self.global.iter().enumerate() {
            let bases = self.shards().map(|shard| self.base(shard, counter));
            let sum = bases.fold(0, i64::wrapping_add);
            global.0.store(sum as u64, MemoryOrder::Relaxed);
        }
    }

    /// All shards: those of the CPUs, and that of threads without a CPU.
    fn shards(&self) -> impl Iterator<Item = Shard> + use<M> {
        (0..=self.machine.cpus() as u32).map(Shard)
    }

    fn word(&self, counter: usize) -> usize {
        assert!(counter < self.global.len(), "no such counter");
        FIRST_STATISTIC + 2 * counter
    }

    fn value(&self, shard: Shard, counter: usize) -> i64 {
        let word = self.slot.word(shard, self.word(counter));
        // Relaxed: as in `read`.
        word.load_signed(MemoryOrder::Relaxed)
    }

    fn base(&self, shard: Shard, counter: usize) -> i64 {
        let word = self.slot.word(shard, self.word(counter) + 1);
        // Acquire: pairs with `exchange`, whose task read the value before. The value that we read after this is at
        // least as new, so bases never go back to older ones.
        word.load_signed(MemoryOrder::Acquire)
    }

    #[inline]
    fn add_fetch(&self, counter: usize, delta: i64) -> (Shard, i64) {
        let word = self.word(counter);
        loop {
            match self.slot.add_fetch(word, delta) {
                (Outcome::Unpublished { shard, committed }, _, value) => {
                    self.publish(shard);
                    if committed {
                        return (shard, value);
                    }
                }
                (_, shard, value) => return (shard, value),
            }
        }
    }

    /// Publishes a shard at its first use, for good: flushes do not clean these slots.
    #[cold]
    fn publish(&self, shard: Shard) {
        // Relaxed: sections look at this word for itself.
        let state = self.slot.word(shard, STATE);
        state.fetch_or(State::PUBLISHED, MemoryOrder::Relaxed);
    }

    /// Amount that a CPU holds back if its value is `value`.
    #[inline]
    fn held(&self, shard: Shard, counter: usize, value: i64) -> i64 {
        value.wrapping_sub(self.base(shard, counter))
    }

    /// Moves the amount that a CPU holds back, and `beyond` in advance, until `is_over` is false.
    #[cold]
    fn relieve(&self, shard: Shard, counter: usize, beyond: i64, is_over: impl Fn(i64) -> bool) {
        loop {
            let base = self.base(shard, counter);
            let value = self.value(shard, counter);
            // Another task that was faster may have moved less than the CPU holds back by now.
            if !is_over(value.wrapping_sub(base))
                || self.exchange(shard, counter, base, value.wrapping_add(beyond))
            {
                return;
            }
        }
    }

    /// Moves the amount that a CPU holds back; returns whether there was any.
    fn move_all(&self, shard: Shard, counter: usize) -> bool {
        let base = self.base(shard, counter);
        let value = self.value(shard, counter);
        if value == base {
            return false;
        }
        // If another task has moved meanwhile, the rest moves the next time.
        self.exchange(shard, counter, base, value);
        true
    }

    /// Moves the difference between two bases, unless another task has moved since `base` was read.
    fn exchange(&self, shard: Shard, counter: usize, base: i64, moved: i64) -> bool {
        let word = self.slot.word(shard, self.word(counter) + 1);
        // Full: as a release it pairs with the Acquire in `base`.
        let exchanged = word.compare_exchange(base as u64, moved as u64, MemoryOrder::Full);
        if exchanged.is_ok() {
            let global = &self.global[counter].0;
            // Relaxed: as in `read`.
            global.fetch_add_signed(moved.wrapping_sub(base), MemoryOrder::Relaxed);
        }
        exchanged.is_ok()
    }
}

#[cfg(test)]
mod tests;
