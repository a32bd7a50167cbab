//! Per-CPU states, totals, and the flush that brings the states into the totals.
//!
//! An update only adds to the state word of its own CPU; nobody resets one. The flusher keeps the value it saw last and
//! folds the difference into the group's total and into what is pending for the parent. Parents follow their children
//! within the same CPU's turn, so that after a flush of a subtree nothing is pending below its top.

use bursar_machine::{
    AtomicWord, FIRST_STATISTIC, Lock, Machine, Order, OutOfMemory, STATE, Shard, Slot, State,
};

use super::threshold::UpdateCounts;
use super::updated::Updated;
use super::{GroupIndex, Padded, Threshold};

/// The statistics of a tree of groups.
pub(super) struct Rstat<M: Machine> {
    machine: M,
    statistics: usize,
    parents: Vec<Option<GroupIndex>>,
    slots: Vec<M::Slot>,
    updated: Updated<M>,
    pub(super) counts: UpdateCounts<M>,
    /// Per group and statistic. Written under `books`, read without it.
    totals: Vec<M::Word>,
    /// The one lock that all flushes take.
    books: Padded<M::Spin<Books>>,
    /// Flushes that want `books` now.
    wanted: Padded<M::Word>,
}

/// What only flushers touch.
struct Books {
    /// Per shard, group and statistic: the state that was folded last.
    folded: Vec<i64>,
    /// Per group and statistic: what its children passed up and it has not taken in.
    pending: Vec<i64>,
    /// The groups to flush on the CPU whose turn it is.
    taken: Vec<GroupIndex>,
}

impl<M: Machine> Rstat<M> {
    pub(super) fn new(
        machine: &M,
        threshold: Threshold,
        parents: Vec<Option<GroupIndex>>,
        statistics: usize,
    ) -> Result<Self, OutOfMemory> {
        let (groups, shards) = (parents.len(), machine.cpus() + 1);
        let mut slots = Vec::new();
        while slots.len() < groups {
            slots.extend(machine.slots(FIRST_STATISTIC + statistics)?);
        }
        slots.truncate(groups);
        for slot in &slots {
            for shard in 0..shards {
                // Bursar's own mark is not used here: set once, an addition is one section and nothing more, which is
                // what the kernel's per-CPU addition was. Relaxed: no task has the slot yet.
                slot.word(Shard(shard as u32), STATE)
                    .store(State::PUBLISHED, Order::Relaxed);
            }
        }
        Ok(Self {
            statistics,
            updated: Updated::new(parents.clone(), shards),
            counts: UpdateCounts::new(threshold, parents.clone(), machine),
            totals: (0..groups * statistics).map(|_| M::Word::new(0)).collect(),
            books: Padded(M::Spin::new(Books {
                folded: vec![0; shards * groups * statistics],
                pending: vec![0; groups * statistics],
                taken: Vec::with_capacity(groups),
            })),
            wanted: Padded(M::Word::new(0)),
            machine: machine.clone(),
            parents,
            slots,
        })
    }

    pub(super) fn groups(&self) -> usize {
        self.parents.len()
    }

    /// Adds `delta` to a statistic of `group` on the current CPU.
    #[doc(alias = "__mod_memcg_state")]
    #[inline]
    pub(super) fn add(&self, group: GroupIndex, statistic: usize, delta: i64) {
        assert!(
            statistic < self.statistics,
            "statistic {statistic} was not declared"
        );
        let (_, shard, _) = self.slots[group].add_fetch(FIRST_STATISTIC + statistic, delta);
        self.updated.mark(shard, group);
        self.counts.count(shard, group, delta.unsigned_abs());
    }

    /// The total as of the last flush of `group`.
    #[inline]
    pub(super) fn total(&self, group: GroupIndex, statistic: usize) -> i64 {
        assert!(
            statistic < self.statistics,
            "statistic {statistic} was not declared"
        );
        // Relaxed: a total is one word, and says nothing about other words.
        self.totals[group * self.statistics + statistic].load_signed(Order::Relaxed)
    }

    /// Folds what was updated in `target` and below it, on all possible CPUs.
    #[doc(alias = "cgroup_rstat_flush")]
    pub(super) fn flush(&self, target: GroupIndex) {
        let mut books = self.lock();
        for shard in 0..=self.machine.cpus() {
            if shard > 0 && self.is_wanted() {
                drop(books);
                books = self.lock();
            }
            self.flush_cpu(&mut books, Shard(shard as u32), target);
        }
        drop(books);
        if self.parents[target].is_none() {
            self.counts.flushed_root();
        }
    }

    /// How often a flush found the global lock taken.
    pub(super) fn lock_waits(&self) -> u64 {
        self.books.0.waits()
    }

    fn lock(&self) -> <M::Spin<Books> as Lock<Books>>::Guard<'_> {
        // Relaxed: only a hint to the holder that dropping the lock would help somebody.
        self.wanted.0.fetch_add(1, Order::Relaxed);
        let books = self.books.0.lock();
        self.wanted.0.fetch_sub(1, Order::Relaxed);
        books
    }

    fn is_wanted(&self) -> bool {
        self.wanted.0.load(Order::Relaxed) > 0
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
        for statistic in 0..self.statistics {
            let here = group * self.statistics + statistic;
            let folded = &mut books.folded[shard.index() * self.totals.len() + here];
            // Relaxed: a later value is as good, and its difference is not lost but next.
            let state = self.slots[group]
                .word(shard, FIRST_STATISTIC + statistic)
                .load_signed(Order::Relaxed);
            let passed_up = std::mem::take(&mut books.pending[here]);
            let change = state.wrapping_sub(*folded).wrapping_add(passed_up);
            *folded = state;
            if change == 0 {
                continue;
            }
            // Relaxed: written only under `books`.
            let total = self.totals[here].load_signed(Order::Relaxed);
            self.totals[here].store(total.wrapping_add(change) as u64, Order::Relaxed);
            if let Some(parent) = self.parents[group] {
                let there = parent * self.statistics + statistic;
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

    /// Lists every group on every CPU.
    pub(super) fn list_all(&self) {
        for shard in 0..=self.machine.cpus() {
            for group in 0..self.parents.len() {
                self.updated.mark(Shard(shard as u32), group);
            }
        }
    }
}
