//! A tree of groups whose statistics are kept by a policy.

use bursar_machine::{Machine, OutOfMemory};

use super::eager::Eager;
use super::flush::Flushed;
use super::policy::Keeping;
use super::tree_walk::TreeWalk;
use super::{Counts, GroupIndex, Policy, ROOT, Substrate};

/// A tree of groups whose statistics are kept and flushed by a published policy.
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
    /// Makes a tree where group `i` has the parent `parents[i]`. Group 0 is the root, the only group without a parent.
    /// Parents come before their children.
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
            Keeping::Flushed(rule, threshold, listing) => Kept::Flushed(Box::new(Flushed::new(
                machine, rule, threshold, listing, substrate, parents, statistics,
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

    /// Returns the policy.
    pub fn policy(&self) -> Policy {
        self.policy
    }

    /// Returns the number of groups.
    pub fn groups(&self) -> usize {
        self.groups
    }

    /// Adds `delta` to a statistic of `group`. With rstat, takes the current CPU's list lock on the first update after
    /// a flush, and no lock otherwise.
    #[inline]
    pub fn add(&self, group: GroupIndex, statistic: usize, delta: i64) {
        match &self.kept {
            Kept::Flushed(flushed) => flushed.rstat.add(group, statistic, delta),
            Kept::Walked(walked) => walked.add(group, statistic, delta),
            Kept::Eager(eager) => eager.add(group, statistic, delta),
        }
    }

    /// Adds `delta` bytes to a statistic of `group` that counts bytes. Thresholds count them as the policy's kernel did.
    #[inline]
    pub fn add_bytes(&self, group: GroupIndex, statistic: usize, delta: i64) {
        match &self.kept {
            Kept::Flushed(flushed) => flushed.rstat.add_bytes(group, statistic, delta),
            Kept::Walked(_) | Kept::Eager(_) => self.add(group, statistic, delta),
        }
    }

    /// Returns a statistic of `group` and everything below it: with rstat as of the last flush, else as of now.
    #[inline]
    pub fn total(&self, group: GroupIndex, statistic: usize) -> i64 {
        match &self.kept {
            Kept::Flushed(flushed) => flushed.rstat.total(group, statistic),
            Kept::Walked(walked) => walked.total(group, statistic),
            Kept::Eager(eager) => eager.total(group, statistic),
        }
    }

    /// Flushes, waits or skips by the policy, if a flush is worth it. A reader of `group` calls it before it looks at
    /// the totals.
    #[doc(alias = "mem_cgroup_flush_stats")]
    pub fn flush(&self, group: GroupIndex) {
        if let Some(flushed) = self.flushed() {
            flushed.flush(group);
        }
    }

    /// Flushes likewise, but only if the last flush of the whole tree began more than two periods ago, so that the
    /// periodic flush is late. For callers that read often and prefer old numbers to a flush.
    #[doc(alias = "mem_cgroup_flush_stats_ratelimited")]
    pub fn flush_ratelimited(&self, group: GroupIndex) {
        if let Some(flushed) = self.flushed() {
            flushed.flush_ratelimited(group);
        }
    }

    /// Flushes `group` under the global lock, regardless of threshold and policy. For callers that decide by the
    /// numbers.
    #[doc(alias = "__mem_cgroup_flush_stats")]
    pub fn flush_forced(&self, group: GroupIndex) {
        if let Some(flushed) = self.flushed() {
            flushed.flush_forced(group);
        }
    }

    /// Flushes the whole tree, regardless of the threshold: the periodic flush.
    #[doc(alias = "flush_memcg_stats_dwork")]
    pub fn flush_periodic(&self) {
        if let Some(flushed) = self.flushed() {
            flushed.flush_periodic();
        }
    }

    /// Returns the counts so far.
    pub fn counts(&self) -> Counts {
        self.flushed()
            .map_or_else(Counts::default, |flushed| flushed.counts())
    }

    /// Returns the machinery of flushes, if there is one.
    pub(super) fn flushed(&self) -> Option<&Flushed<M>> {
        match &self.kept {
            Kept::Flushed(flushed) => Some(flushed),
            Kept::Walked(_) | Kept::Eager(_) => None,
        }
    }
}
