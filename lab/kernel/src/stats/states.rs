//! Per-CPU states: updates add to them, and they are never reset.

use bursar_machine::{
    AtomicWord, FIRST_STATISTIC, Machine, MemoryOrder, OutOfMemory, STATE, Shard, Slot, State,
};

use super::GroupIndex;

/// The states of all groups on all CPUs.
pub(super) struct States<M: Machine> {
    slots: Vec<M::Slot>,
    statistics: usize,
}

impl<M: Machine> States<M> {
    pub(super) fn new(machine: &M, groups: usize, statistics: usize) -> Result<Self, OutOfMemory> {
        let mut slots = Vec::new();
        while slots.len() < groups {
            slots.extend(machine.slots(FIRST_STATISTIC + statistics)?);
        }
        slots.truncate(groups);
        for slot in &slots {
            for shard in 0..=machine.cpus() {
                // Bursar's own mark is not used here: set once, an addition is one section and nothing more, which is
                // what the kernel's per-CPU addition was. Relaxed: no task has the slot yet.
                slot.word(Shard(shard as u32), STATE)
                    .store(State::PUBLISHED, MemoryOrder::Relaxed);
            }
        }
        Ok(Self { slots, statistics })
    }

    pub(super) fn statistics(&self) -> usize {
        self.statistics
    }

    /// Adds to the state of the current CPU; returns that CPU.
    #[doc(alias = "__mod_memcg_state")]
    #[inline]
    pub(super) fn add(&self, group: GroupIndex, statistic: usize, delta: i64) -> Shard {
        assert!(
            statistic < self.statistics,
            "statistic {statistic} was not declared"
        );
        let (_, shard, _) = self.slots[group].add_fetch(FIRST_STATISTIC + statistic, delta);
        shard
    }

    /// Returns the state of a CPU.
    #[inline]
    pub(super) fn get(&self, shard: Shard, group: GroupIndex, statistic: usize) -> i64 {
        // Relaxed: a later value is as good.
        self.slots[group]
            .word(shard, FIRST_STATISTIC + statistic)
            .load_signed(MemoryOrder::Relaxed)
    }
}
