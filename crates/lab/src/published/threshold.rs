//! When a flush is worth it: updates are counted per CPU, handed on in batches, and compared with a threshold.
//!
//! The per-CPU counts are plain loads and stores, not atomic additions, as they were: an update that is preempted between
//! the two may lose counts of others. They decide when to flush and enter no statistic.

use bursar_machine::{AtomicWord, Machine, Order, Shard};

use super::{GroupIndex, Padded, Threshold};

/// Updates that a CPU counts on its own before it hands them on.
#[doc(alias = "MEMCG_CHARGE_BATCH")]
pub(super) const BATCH: u64 = 64;

/// Counts of updates that no flush has seen.
#[derive(Debug)]
pub(super) struct UpdateCounts<M: Machine> {
    kind: Threshold,
    parents: Vec<Option<GroupIndex>>,
    /// Flushing is worth it above this many updates.
    limit: u64,
    /// Per counter: the updates handed on. One counter with a global threshold, else one per group.
    pending: Vec<Padded<M::Word>>,
    /// Per shard and counter: the updates not handed on.
    own: Vec<Padded<M::Word>>,
}

impl<M: Machine> UpdateCounts<M> {
    pub(super) fn new(kind: Threshold, parents: Vec<Option<GroupIndex>>, machine: &M) -> Self {
        let counters = match kind {
            Threshold::Global => 1,
            Threshold::PerGroup => parents.len(),
        };
        let words = |number: usize| (0..number).map(|_| Padded(M::Word::new(0))).collect();
        Self {
            kind,
            limit: BATCH * machine.cpus() as u64,
            pending: words(counters),
            own: words(counters * (machine.cpus() + 1)),
            parents,
        }
    }

    /// Counts `updates` of `group` on `shard`.
    #[doc(alias = "memcg_rstat_updated")]
    #[inline]
    pub(super) fn count(&self, shard: Shard, group: GroupIndex, updates: u64) {
        match self.kind {
            Threshold::Global => {
                self.count_one(shard, 0, updates);
            }
            Threshold::PerGroup => {
                let mut next = Some(group);
                while let Some(group) = next {
                    // Whoever is worth a flush has ancestors that are, or so the early stop assumes; a flush that runs
                    // meanwhile can reset an ancestor alone.
                    if self.is_due(group) {
                        return;
                    }
                    self.count_one(shard, group, updates);
                    next = self.parents[group];
                }
            }
        }
    }

    #[inline]
    fn count_one(&self, shard: Shard, counter: usize, updates: u64) {
        let own = self.own(shard, counter);
        // Relaxed throughout this file: counts that only decide when to flush.
        let counted = own.load(Order::Relaxed) + updates;
        if counted < BATCH {
            own.store(counted, Order::Relaxed);
            return;
        }
        own.store(0, Order::Relaxed);
        self.pending[counter].0.fetch_add(counted, Order::Relaxed);
    }

    #[inline]
    fn own(&self, shard: Shard, counter: usize) -> &M::Word {
        &self.own[shard.index() * self.pending.len() + counter].0
    }

    /// Whether enough was updated for a flush of `group` to be worth it.
    #[doc(alias = "memcg_should_flush_stats")]
    #[inline]
    pub(super) fn is_due(&self, group: GroupIndex) -> bool {
        let counter = match self.kind {
            Threshold::Global => 0,
            Threshold::PerGroup => group,
        };
        self.pending[counter].0.load(Order::Relaxed) > self.limit
    }

    /// Told by a flush that it folded `group` on `shard`.
    pub(super) fn folded(&self, shard: Shard, group: GroupIndex) {
        if self.kind == Threshold::PerGroup {
            self.own(shard, group).store(0, Order::Relaxed);
            self.reset(group);
        }
    }

    /// Told by a flush of the whole tree that it ended.
    pub(super) fn flushed_root(&self) {
        if self.kind == Threshold::Global {
            self.reset(0);
        }
    }

    fn reset(&self, counter: usize) {
        let pending = &self.pending[counter].0;
        // The look before the store spares a line that updaters read.
        if pending.load(Order::Relaxed) != 0 {
            pending.store(0, Order::Relaxed);
        }
    }
}

#[cfg(test)]
mod tests {
    use bursar_machine::Host;

    use super::*;

    const CPU: Shard = Shard(0);

    fn counts(kind: Threshold) -> (UpdateCounts<Host>, u64) {
        let host = Host::start().unwrap();
        let parents = vec![None, Some(0), Some(1), Some(0)];
        (
            UpdateCounts::new(kind, parents, &host),
            BATCH * host.cpus() as u64,
        )
    }

    #[test]
    fn one_count_serves_all_groups() {
        let (counts, limit) = counts(Threshold::Global);
        counts.count(CPU, 2, limit);
        assert!(!counts.is_due(3), "the limit itself is not above it");
        counts.count(CPU, 1, BATCH);
        assert!(counts.is_due(3));
        counts.folded(CPU, 0);
        assert!(counts.is_due(3), "only a flush of the whole tree resets it");
        counts.flushed_root();
        assert!(!counts.is_due(3));
    }

    #[test]
    fn counts_of_a_group_reach_its_ancestors_alone() {
        let (counts, limit) = counts(Threshold::PerGroup);
        counts.count(CPU, 2, limit + 1);
        assert!([0, 1, 2].iter().all(|&group| counts.is_due(group)));
        assert!(!counts.is_due(3));
        counts.folded(CPU, 2);
        assert!(counts.is_due(1) && !counts.is_due(2));
    }

    #[test]
    fn a_batch_stays_with_its_cpu_until_it_is_full() {
        let (counts, _) = counts(Threshold::Global);
        counts.count(CPU, 0, BATCH - 1);
        assert_eq!(counts.pending[0].0.load(Order::Relaxed), 0);
        counts.count(CPU, 0, 1);
        assert_eq!(counts.pending[0].0.load(Order::Relaxed), BATCH);
    }
}
