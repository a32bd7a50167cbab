//! The threshold for a flush: updates are counted per CPU, handed on in batches, and compared with a threshold.
//!
//! The per-CPU counts are plain loads and stores, not atomic additions, as in the kernel: an update that is preempted
//! between the two may lose counts of others. The counts decide when to flush and enter no statistic.
//!
//! Each flush resets the count of each group that it folds, once for every CPU on which the group is listed. That also
//! drops updates counted on a CPU that the flush had passed before, so a later reader finds too few updates to flush.
//! An update stops at a group that is already due. The update that made it due may not have reached the ancestors yet.
//!
//! # Lines of a level
//! Before the kernel cached per-CPU pointers to parents (6.8-rc4), each level of the walk was three loads that depend on each
//! other, as in the thread's last mail: the group's parent, its pointer to per-CPU counts, and the count (message of that commit: "3 memory loads (and
//! potentially 3 cache misses)"). The first two are read-only words here, which every CPU shares.
//!
//! # Bytes
//! Slab is counted in bytes. The thread's kernel (6.5) and its patches compared `abs(val)` as it came, so a page of slab
//! was 4,096 updates. Since 6.7 bytes are converted into pages, at least one. Here the global threshold does as 6.5, and
//! thresholds of groups do as 6.8.

use bursar_machine::{AtomicWord, Machine, MemoryOrder, Shard};

use super::substrate::Gate;
use super::{GroupIndex, Padded};

/// Updates that a CPU counts on its own before it hands them on, and that a flush is worth per CPU.
#[doc(alias = "MEMCG_CHARGE_BATCH")]
pub(super) const BATCH: u64 = 64;

/// Size of a page, bytes.
const PAGE_SIZE: i64 = 4096;

/// Place where updates are counted to decide whether a flush is worth it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Threshold {
    /// One count for the tree, reset by flushes of the whole tree.
    Global,
    /// A count for each group, reset for each that is flushed.
    PerGroup(GroupThreshold),
}

/// Way of counting the updates of a group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct GroupThreshold {
    pub(super) marks: Marks,
    pub(super) counted: Counted,
    /// Counters of a group, onto which CPUs are multiplexed in turn.
    pub(super) counters: usize,
}

impl GroupThreshold {
    /// The thread's last version, and 6.8.
    pub(super) const PUBLISHED: Self = Self {
        marks: Marks::AllAncestors,
        counted: Counted::Updates,
        counters: 1,
    };
}

/// Groups at which an update is counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Marks {
    /// The group and its ancestors, up to the first for which a flush is worth it already: the kernel since 6.16.
    UntilDue,
    /// The group and all its ancestors.
    AllAncestors,
    /// The group.
    GroupAlone,
}

/// Quantity that is counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Counted {
    /// The amount of each update.
    Updates,
    /// The sum of all updates, ups and downs, of any statistic: changes of two statistics may cancel.
    NetChange,
}

/// Counts of updates that no flush has seen.
#[derive(Debug)]
pub(super) struct UpdateCounts<M: Machine> {
    kind: Threshold,
    gate: Gate,
    parents: Vec<Option<GroupIndex>>,
    /// Flushing is worth it above this many updates.
    limit: u64,
    /// Whether a count stops once it is above the limit.
    stops_when_due: bool,
    /// Counters of each count.
    counters: usize,
    /// Per count and counter: the updates handed on. One count with a global threshold, else one for each group.
    pending: Vec<Padded<M::Word>>,
    /// Per shard and count: the updates not handed on.
    own: Vec<Padded<M::Word>>,
    /// Per group: its parent and its pointer to per-CPU counts, where a walk to the ancestors reads them. Both stand for
    /// loads alone: the numbers are in `parents`.
    pointers: Vec<[Padded<M::Word>; 2]>,
}

impl<M: Machine> UpdateCounts<M> {
    pub(super) fn new(
        machine: &M,
        kind: Threshold,
        gate: Gate,
        parents: Vec<Option<GroupIndex>>,
    ) -> Self {
        let (counts, counters) = match kind {
            Threshold::Global => (1, 1),
            Threshold::PerGroup(how) => (parents.len(), how.counters),
        };
        assert!(counters > 0, "a group is counted in at least one counter");
        let words = |number: usize| (0..number).map(|_| Padded(M::Word::new(0))).collect();
        let walks = matches!(
            kind,
            Threshold::PerGroup(GroupThreshold {
                marks: Marks::AllAncestors,
                ..
            })
        );
        let walked = if walks { parents.len() } else { 0 };
        let pointers = || [(); 2].map(|()| Padded(M::Word::new(0)));
        Self {
            pointers: (0..walked).map(|_| pointers()).collect(),
            kind,
            gate,
            limit: BATCH * machine.cpus() as u64,
            stops_when_due: !matches!(
                kind,
                Threshold::PerGroup(GroupThreshold {
                    counted: Counted::NetChange,
                    ..
                })
            ),
            counters,
            pending: words(counts * counters),
            own: words(counts * (machine.cpus() + 1)),
            parents,
        }
    }

    /// Updates that `delta` bytes count as.
    #[doc(alias = "memcg_state_val_in_pages")]
    #[inline]
    pub(super) fn updates_of_bytes(&self, delta: i64) -> i64 {
        match self.kind {
            Threshold::Global => delta,
            Threshold::PerGroup(_) if delta == 0 => 0,
            Threshold::PerGroup(_) => (delta.abs() / PAGE_SIZE).max(1) * delta.signum(),
        }
    }

    /// Counts `delta` updates of `group` on `shard`.
    #[doc(alias = "memcg_rstat_updated")]
    #[inline]
    pub(super) fn count(&self, shard: Shard, group: GroupIndex, delta: i64) {
        let amount = delta.unsigned_abs() as i64;
        let how = match self.kind {
            Threshold::Global => return self.count_one(shard, 0, amount),
            Threshold::PerGroup(how) => how,
        };
        let amount = match how.counted {
            Counted::Updates => amount,
            Counted::NetChange => delta,
        };
        let mut next = Some(group);
        while let Some(group) = next {
            // A group that is worth a flush has ancestors that are too, or so the early stop assumes; a flush that runs
            // meanwhile can reset an ancestor alone.
            if how.marks == Marks::UntilDue && self.is_above(group) {
                return;
            }
            if let Some(pointers) = self.pointers.get(group) {
                for Padded(pointer) in pointers {
                    // Relaxed: nothing is read but the line.
                    _ = pointer.load(MemoryOrder::Relaxed);
                }
            }
            self.count_one(shard, group, amount);
            if how.marks == Marks::GroupAlone {
                return;
            }
            next = self.parents[group];
        }
    }

    #[inline]
    fn count_one(&self, shard: Shard, count: usize, amount: i64) {
        let own = self.own(shard, count);
        // Relaxed throughout this file: counts that only decide when to flush.
        let counted = own.load_signed(MemoryOrder::Relaxed).wrapping_add(amount);
        if counted.unsigned_abs() < BATCH {
            own.store(counted as u64, MemoryOrder::Relaxed);
            return;
        }
        own.store(0, MemoryOrder::Relaxed);
        // Beyond the threshold another addition changes nothing, and would take a line that all CPUs read. Of net change it
        // does: what comes later may cancel it.
        if self.stops_when_due && self.is_above(count) {
            return;
        }
        let counter = shard.index() % self.counters;
        self.pending(count)[counter]
            .0
            .fetch_add_signed(counted, MemoryOrder::Relaxed);
    }

    #[inline]
    fn own(&self, shard: Shard, count: usize) -> &M::Word {
        let counts = self.pending.len() / self.counters;
        &self.own[shard.index() * counts + count].0
    }

    #[inline]
    fn pending(&self, count: usize) -> &[Padded<M::Word>] {
        &self.pending[count * self.counters..(count + 1) * self.counters]
    }

    /// Returns whether a reader of `group` must flush.
    #[doc(alias = "memcg_should_flush_stats")]
    #[inline]
    pub(super) fn is_due(&self, group: GroupIndex) -> bool {
        let count = match self.kind {
            Threshold::Global => 0,
            Threshold::PerGroup(_) => group,
        };
        self.gate == Gate::AlwaysDue || self.is_above(count)
    }

    /// Returns whether enough updates were counted for a flush.
    #[inline]
    fn is_above(&self, count: usize) -> bool {
        let pending = self.pending(count).iter();
        let sum = pending.fold(0_i64, |sum, counter| {
            sum.wrapping_add(counter.0.load_signed(MemoryOrder::Relaxed))
        });
        sum.unsigned_abs() > self.limit
    }

    /// Records that a flush folded `group` on `shard`.
    pub(super) fn folded(&self, shard: Shard, group: GroupIndex) {
        if let Threshold::PerGroup(_) = self.kind {
            self.own(shard, group).store(0, MemoryOrder::Relaxed);
            self.reset(group);
        }
    }

    /// Records that a flush of the whole tree ended.
    pub(super) fn flushed_root(&self) {
        if self.kind == Threshold::Global {
            self.reset(0);
        }
    }

    fn reset(&self, count: usize) {
        for Padded(pending) in self.pending(count) {
            // The look before the store spares a line that updaters read.
            if pending.load(MemoryOrder::Relaxed) != 0 {
                pending.store(0, MemoryOrder::Relaxed);
            }
        }
    }
}

#[cfg(test)]
#[path = "threshold_tests.rs"]
mod tests;
