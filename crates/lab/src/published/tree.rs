//! A tree of groups whose statistics are kept as a policy says.

use bursar_machine::{Machine, OutOfMemory};

use super::eager::Eager;
use super::flush::Flushed;
use super::policy::Keeping;
use super::tree_walk::TreeWalk;
use super::{Counts, GroupIndex, Policy, ROOT, Substrate};

/// A tree of groups whose statistics are kept and flushed as a published policy did it.
pub struct Published<M: Machine> {
    policy: Policy,
    groups: usize,
    kept: Kept<M>,
}

enum Kept<M: Machine> {
    Flushed(Box<Flushed<M>>),
    Walked(TreeWalk<M>),
    Eager(Eager<M>),
}

impl<M: Machine> Published<M> {
    /// A tree where group `i` has the parent `parents[i]`. Group 0 is the root and alone has none; parents come before
    /// their children.
    ///
    /// # Errors
    /// [`OutOfMemory`] if the machine has no room for the groups' per-CPU words.
    ///
    /// # Panics
    /// If `parents` is no such tree.
    pub fn new(
        machine: &M,
        policy: Policy,
        substrate: Substrate,
        parents: &[Option<GroupIndex>],
        statistics: usize,
    ) -> Result<Self, OutOfMemory> {
        let ordered = |(group, parent): (GroupIndex, &Option<GroupIndex>)| match parent {
            None => group == ROOT,
            Some(parent) => *parent < group,
        };
        assert!(
            !parents.is_empty() && parents.iter().enumerate().all(ordered),
            "the root comes first, parents before their children"
        );
        let kept = match policy.keeping() {
            Keeping::Flushed(rule, threshold) => Kept::Flushed(Box::new(Flushed::new(
                machine, rule, threshold, substrate, parents, statistics,
            )?)),
            Keeping::Walked => Kept::Walked(TreeWalk::new(machine, parents, statistics)?),
            Keeping::Eager => Kept::Eager(Eager::new(parents, statistics)),
        };
        Ok(Self {
            policy,
            groups: parents.len(),
            kept,
        })
    }

    /// The policy.
    pub fn policy(&self) -> Policy {
        self.policy
    }

    /// The number of groups.
    pub fn groups(&self) -> usize {
        self.groups
    }

    /// Adds `delta` to a statistic of `group`. With rstat, takes the current CPU's list lock on the first update after a
    /// flush, and no lock else.
    #[inline]
    pub fn add(&self, group: GroupIndex, statistic: usize, delta: i64) {
        match &self.kept {
            Kept::Flushed(flushed) => flushed.rstat.add(group, statistic, delta),
            Kept::Walked(walked) => walked.add(group, statistic, delta),
            Kept::Eager(eager) => eager.add(group, statistic, delta),
        }
    }

    /// A statistic of `group` and everything below it: with rstat as of the last flush, else as of now.
    #[inline]
    pub fn total(&self, group: GroupIndex, statistic: usize) -> i64 {
        match &self.kept {
            Kept::Flushed(flushed) => flushed.rstat.total(group, statistic),
            Kept::Walked(walked) => walked.total(group, statistic),
            Kept::Eager(eager) => eager.total(group, statistic),
        }
    }

    /// What a reader of `group` calls before it looks at the totals: if a flush is worth it, flushes, waits or skips, as
    /// the policy says.
    #[doc(alias = "mem_cgroup_flush_stats")]
    pub fn flush(&self, group: GroupIndex) {
        if let Some(flushed) = self.flushed() {
            flushed.flush(group);
        }
    }

    /// What paths call that read often and would rather have old numbers than flush: the same, but only if the last flush
    /// of the whole tree began more than two periods ago, so that the periodic flush is late.
    #[doc(alias = "mem_cgroup_flush_stats_ratelimited")]
    pub fn flush_ratelimited(&self, group: GroupIndex) {
        if let Some(flushed) = self.flushed() {
            flushed.flush_ratelimited(group);
        }
    }

    /// What paths call that decide by the numbers: flushes `group` under the global lock, whatever threshold and policy
    /// say.
    #[doc(alias = "__mem_cgroup_flush_stats")]
    pub fn flush_forced(&self, group: GroupIndex) {
        if let Some(flushed) = self.flushed() {
            flushed.flush_forced(group);
        }
    }

    /// The periodic flush of the whole tree, whatever the threshold says.
    #[doc(alias = "flush_memcg_stats_dwork")]
    pub fn flush_periodic(&self) {
        if let Some(flushed) = self.flushed() {
            flushed.flush_periodic();
        }
    }

    /// What happened so far.
    pub fn counts(&self) -> Counts {
        self.flushed()
            .map_or_else(Counts::default, |flushed| flushed.counts())
    }

    /// The machinery of flushes, where there is one.
    pub(super) fn flushed(&self) -> Option<&Flushed<M>> {
        match &self.kept {
            Kept::Flushed(flushed) => Some(flushed),
            Kept::Walked(_) | Kept::Eager(_) => None,
        }
    }
}
