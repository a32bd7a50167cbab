//! Per-CPU states, totals, and the flush that brings the states into the totals.
//!
//! An update only adds to the state word of its own CPU, and states are never reset. The flusher keeps the last value
//! that it saw, and folds the difference into the group's total and into the sum pending for the parent. Parents follow
//! their children within the same CPU's turn. So after a flush of a subtree nothing is pending below its top.

use std::sync::atomic::{AtomicU64, Ordering};

use bursar_machine::{AtomicWord, Lock, Machine, MemoryOrder, OutOfMemory, Shard};

use super::states::States;
use super::substrate::Substrate;
use super::threshold::{Threshold, UpdateCounts};
use super::updated::{Listing, Updated};
use super::{GroupIndex, Padded};

/// The statistics of a tree of groups.
pub(super) struct Rstat<M: Machine> {
    shards: usize,
    cpus_a_hold: usize,
    /// Whether a flush drops `books` between CPUs also where no other task wants it.
    always_drops: bool,
    parents: Vec<Option<GroupIndex>>,
    states: States<M>,
    updated: Updated<M>,
    pub(super) counts: UpdateCounts<M>,
    /// Per group and statistic. Written under `books`, read without it.
    totals: Vec<M::Word>,
    /// Lock that all flushes take.
    books: Padded<M::Spin<Books>>,
    /// Number of flushes that want `books` now. Not a word of the machine: the kernel looks at the lock itself.
    wanted: AtomicU64,
    /// Times that a flush dropped `books` half-way. A tally that the kernel does not have.
    drops: AtomicU64,
}

/// Data that only flushers touch.
struct Books {
    /// Per shard, group and statistic: the state that was folded last.
    folded: Vec<i64>,
    /// Per group and statistic: the sum that its children passed up and that it has not taken in yet.
    pending: Vec<i64>,
    /// Groups to flush on the current CPU.
    taken: Vec<GroupIndex>,
}

impl<M: Machine> Rstat<M> {
    pub(super) fn new(
        machine: &M,
        threshold: Threshold,
        listing: Listing,
        substrate: Substrate,
        parents: Vec<Option<GroupIndex>>,
        statistics: usize,
    ) -> Result<Self, OutOfMemory> {
        let Substrate {
            gate, cpus_a_hold, ..
        } = substrate;
        assert!(cpus_a_hold > 0, "a hold is for at least one CPU");
        let (groups, shards) = (parents.len(), machine.cpus() + 1);
        Ok(Self {
            shards,
            cpus_a_hold,
            always_drops: listing == Listing::Pushed,
            states: States::new(machine, groups, statistics)?,
            updated: Updated::new(parents.clone(), shards, listing),
            counts: UpdateCounts::new(machine, threshold, gate, parents.clone()),
            totals: (0..groups * statistics).map(|_| M::Word::new(0)).collect(),
            books: Padded(M::Spin::new(Books {
                folded: vec![0; shards * groups * statistics],
                pending: vec![0; groups * statistics],
                taken: Vec::with_capacity(groups),
            })),
            wanted: AtomicU64::new(0),
            drops: AtomicU64::new(0),
            parents,
        })
    }

    /// Adds `delta` to a statistic of `group` on the current CPU.
    #[doc(alias = "__mod_memcg_state")]
    #[inline]
    pub(super) fn add(&self, group: GroupIndex, statistic: usize, delta: i64) {
        self.update(group, statistic, delta, delta);
    }

    /// Adds `delta` bytes to a statistic that counts bytes, as [`Rstat::add`] does.
    #[doc(alias = "__mod_memcg_lruvec_state")]
    #[inline]
    pub(super) fn add_bytes(&self, group: GroupIndex, statistic: usize, delta: i64) {
        self.update(group, statistic, delta, self.counts.updates_of_bytes(delta));
    }

    #[inline]
    fn update(&self, group: GroupIndex, statistic: usize, delta: i64, updates: i64) {
        let shard = self.states.add(group, statistic, delta);
        self.updated.mark(shard, group);
        self.counts.count(shard, group, updates);
    }

    /// Returns the total as of the last flush of `group`.
    #[inline]
    pub(super) fn total(&self, group: GroupIndex, statistic: usize) -> i64 {
        let statistics = self.states.statistics();
        assert!(
            statistic < statistics,
            "statistic {statistic} was not declared"
        );
        // Relaxed: a total is one word, and says nothing about other words.
        self.totals[group * statistics + statistic].load_signed(MemoryOrder::Relaxed)
    }

    /// Folds the updates in `target` and below it, on all possible CPUs.
    #[doc(alias = "cgroup_rstat_flush")]
    pub(super) fn flush(&self, target: GroupIndex) {
        self.flush_clocked(target, || 0);
    }

    /// Flushes as [`Rstat::flush`]; returns the time for which it had the global lock, by a clock.
    pub(super) fn flush_clocked(&self, target: GroupIndex, clock: impl Fn() -> u64) -> u64 {
        let mut held = 0;
        let mut books = self.lock();
        let mut since = clock();
        for shard in 0..self.shards {
            let may_drop = shard > 0 && shard % self.cpus_a_hold == 0;
            if may_drop && (self.always_drops || self.is_wanted()) {
                held += clock().saturating_sub(since);
                drop(books);
                // Relaxed: a tally orders nothing.
                self.drops.fetch_add(1, Ordering::Relaxed);
                books = self.lock();
                since = clock();
            }
            self.flush_cpu(&mut books, Shard(shard as u32), target);
        }
        held += clock().saturating_sub(since);
        drop(books);
        if self.parents[target].is_none() {
            self.counts.flushed_root();
        }
        held
    }

    /// Returns how often the global lock was dropped in the middle of a flush.
    pub(super) fn lock_drops(&self) -> u64 {
        self.drops.load(Ordering::Relaxed)
    }

    /// Returns how often a flush found the global lock taken.
    pub(super) fn lock_waits(&self) -> u64 {
        self.books.0.waits()
    }

    fn lock(&self) -> <M::Spin<Books> as Lock<Books>>::Guard<'_> {
        // Relaxed: only a hint to the holder that dropping the lock would help a waiter.
        self.wanted.fetch_add(1, Ordering::Relaxed);
        let books = self.books.0.lock();
        self.wanted.fetch_sub(1, Ordering::Relaxed);
        books
    }

    fn is_wanted(&self) -> bool {
        self.wanted.load(Ordering::Relaxed) > 0
    }

    fn flush_cpu(&self, books: &mut Books, shard: Shard, target: GroupIndex) {
        let mut taken = std::mem::take(&mut books.taken);
        self.updated.take(shard, target, &mut taken);
        for &group in &taken {
            self.fold(books, shard, group);
            self.counts.folded(shard, group);
        }
        books.taken = taken;
    }

    #[doc(alias = "mem_cgroup_css_rstat_flush")]
    fn fold(&self, books: &mut Books, shard: Shard, group: GroupIndex) {
        let statistics = self.states.statistics();
        for statistic in 0..statistics {
            let here = group * statistics + statistic;
            let folded = &mut books.folded[shard.index() * self.totals.len() + here];
            // A later value is as good, and its difference is not lost but next.
            let state = self.states.get(shard, group, statistic);
            let passed_up = std::mem::take(&mut books.pending[here]);
            let change = state.wrapping_sub(*folded).wrapping_add(passed_up);
            *folded = state;
            if change == 0 {
                continue;
            }
            // Relaxed: written only under `books`.
            let total = self.totals[here].load_signed(MemoryOrder::Relaxed);
            self.totals[here].store(total.wrapping_add(change) as u64, MemoryOrder::Relaxed);
            if let Some(parent) = self.parents[group] {
                let there = parent * statistics + statistic;
                books.pending[there] = books.pending[there].wrapping_add(change);
            }
        }
    }
}

#[cfg(test)]
impl<M: Machine> Rstat<M> {
    /// Holds the global lock while `held` runs.
    pub(super) fn while_locked<R>(&self, held: impl FnOnce() -> R) -> R {
        let _books = self.books.0.lock();
        held()
    }

    /// Records that one more task wants the global lock from now on.
    pub(super) fn want(&self) {
        self.wanted.fetch_add(1, Ordering::Relaxed);
    }

    /// Lists every group on every CPU.
    pub(super) fn list_all(&self) {
        for shard in 0..self.shards {
            for group in 0..self.parents.len() {
                self.updated.mark(Shard(shard as u32), group);
            }
        }
    }
}
