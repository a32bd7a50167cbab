//! The policies as values.
//!
//! A policy chooses among mechanisms: [`Rule`] for flushing, waiting or skipping, [`Threshold`] for the place where
//! updates are counted. Two policies keep the statistics in a way that needs no flush at all.

use super::threshold::{Counted, GroupThreshold, Marks, Threshold};
use super::updated::Listing;

/// A bound on waiters that is never reached.
pub const UNBOUNDED: u64 = u64::MAX;

/// Way in which the statistics of a tree of groups are kept, and the tasks that flush them when they are read.
///
/// Policies that count towards one threshold for the tree are of the thread's first half, when the kernel did the same.
/// Those with a threshold for each group differ from [`Policy::PerGroup`] as their names say.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Policy {
    /// Always the whole tree; one flusher at a time, while all others skip and read old numbers. The kernel's policy
    /// when the thread began (6.5).
    Unified,
    /// Every reader takes the global lock and flushes the subtree that it reads.
    Direct,
    /// Every reader takes the global lock and flushes the whole tree.
    DirectRoot,
    /// The subtree that is read, if no other task flushes; else one flush of the whole tree that all others wait for.
    /// The thread's first version.
    Coalesced {
        /// Greatest number of waiters; a reader beyond that skips. The thread: the number of CPUs. [`UNBOUNDED`] is a
        /// policy of its own name.
        max_waiters: u64,
    },
    /// [`Policy::Coalesced`] with a flag that readers exchange instead of the mutex that they only try.
    CoalescedFlag {
        /// As in [`Policy::Coalesced`].
        max_waiters: u64,
    },
    /// The subtree that is read, under a mutex; no flush of the whole tree instead.
    MutexBounded {
        /// Greatest number of waiters for the mutex; a reader beyond that skips. [`UNBOUNDED`] is a policy of its own
        /// name.
        max_waiters: u64,
    },
    /// The subtree that is read, under a lock with a bounded wait. Readers that run out of time share one flush of the
    /// whole tree.
    TimedLock {
        /// Longest wait for the lock.
        timeout_ns: u64,
    },
    /// The subtree that is read, or one shared flush of the whole tree, whichever costs less for all readers that want
    /// a flush now (see `adaptive.rs`).
    Adaptive,
    /// The subtree that is read, if it had enough updates; under a mutex, with a second look at the threshold once it
    /// is held. The thread's last version.
    PerGroup,
    /// The same without the mutex and the second look: readers spin on the global lock. The merged version (6.8).
    PerGroupLockless,
    /// [`Policy::PerGroupLockless`] with the machinery of today's kernel (6.17, as repaired in December 2025): updates
    /// push their groups on per-CPU lists without locks, flushes make the tree and release the global lock after each CPU,
    /// and an update is counted up to the first ancestor that is due.
    Kernel617,
    /// [`Policy::PerGroup`], with a group's count in several counters.
    PerGroupMultiplexed {
        /// Counters of a group, at least one. CPUs share them in turn.
        counters: usize,
    },
    /// [`Policy::PerGroup`], counting the sum of the changes instead of their number. It cannot stop early: changes
    /// that take a due group back below its threshold must be counted.
    PerGroupNet,
    /// [`Policy::PerGroup`], but an update is counted only up to the first ancestor that is due: the kernel since 6.16.
    PerGroupEarlyStop,
    /// [`Policy::PerGroup`], but an update is counted at its own group only. A flush resets all groups that it covers.
    OwnThreshold,
    /// No rstat: a read sums all CPUs' states of all groups below. The predecessor of rstat.
    TreeWalk,
    /// Each update goes to the group and all its ancestors at once, atomically.
    Eager,
}

/// Numbers of the policies that have some.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tunables {
    /// See [`Policy::Coalesced`] and [`Policy::MutexBounded`].
    pub max_waiters: u64,
    /// See [`Policy::TimedLock`].
    pub timeout_ns: u64,
    /// See [`Policy::PerGroupMultiplexed`].
    pub counters: usize,
}

impl Tunables {
    /// Returns the thread's numbers, for a machine with so many CPUs.
    pub fn of_cpus(cpus: usize) -> Self {
        Self {
            // The thread's first version.
            max_waiters: cpus as u64,
            // The thread names no figure. Ten times what 98.8 % of its reads took (`experiments/memcg-flush.toml`, row
            // of 100 ms): a reader that waits as long is in a queue.
            timeout_ns: 1_000_000,
            // The thread names no figure. On its machine of 384 CPUs, 48 CPUs share one.
            counters: 8,
        }
    }
}

/// Scope of a flush.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scope {
    /// The whole tree.
    Root,
    /// The group that is read and everything below it.
    Subtree,
}

/// Rule for flushing, waiting or skipping, among readers that found a flush worth it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Rule {
    /// One reader flushes the whole tree; others skip.
    OneOrSkip,
    /// Each reader flushes by itself when it gets the global lock.
    Each(Scope),
    /// The first reader flushes its subtree, the next the whole tree, and others wait for that.
    Coalesce { max_waiters: u64, claim: Claim },
    /// Readers flush their subtrees one after the other, under a mutex.
    InTurn { max_waiters: u64, look: Look },
    /// The same, but a reader that waits too long takes part in a flush of the whole tree.
    InTime { timeout_ns: u64 },
    /// Each by itself or all together, whichever measured costs favour.
    Cheapest,
}

/// Way in which one reader at a time takes the turn to flush its subtree.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Claim {
    /// By a mutex that is only tried.
    Mutex,
    /// By an exchange.
    Flag,
}

/// Whether a reader that waited checks the threshold again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Look {
    Once,
    Again,
}

/// Way in which statistics are kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Keeping {
    /// Per CPU, and brought into totals by flushes.
    Flushed(Rule, Threshold, Listing),
    /// Per CPU, and summed by reads.
    Walked,
    /// In totals.
    Eager,
}

impl Policy {
    /// Returns all policies.
    pub fn all(tunables: Tunables) -> Vec<Self> {
        let Tunables {
            max_waiters,
            timeout_ns,
            counters,
        } = tunables;
        vec![
            Policy::Unified,
            Policy::Direct,
            Policy::DirectRoot,
            Policy::Coalesced { max_waiters },
            Policy::Coalesced {
                max_waiters: UNBOUNDED,
            },
            Policy::CoalescedFlag { max_waiters },
            Policy::MutexBounded { max_waiters },
            Policy::MutexBounded {
                max_waiters: UNBOUNDED,
            },
            Policy::TimedLock { timeout_ns },
            Policy::Adaptive,
            Policy::PerGroup,
            Policy::PerGroupLockless,
            Policy::Kernel617,
            Policy::PerGroupMultiplexed { counters },
            Policy::PerGroupNet,
            Policy::PerGroupEarlyStop,
            Policy::OwnThreshold,
            Policy::TreeWalk,
            Policy::Eager,
        ]
    }

    /// Returns the policy of that name, if there is one.
    pub fn named(name: &str, tunables: Tunables) -> Option<Self> {
        let mut all = Self::all(tunables).into_iter();
        all.find(|policy| policy.name() == name)
    }

    /// Returns the name in files, tables and JSON.
    pub fn name(self) -> &'static str {
        self.entry().0
    }

    /// Describes the policy in one line, for people who have not read the thread.
    pub fn summary(self) -> &'static str {
        self.entry().1
    }

    pub(super) fn keeping(self) -> Keeping {
        self.entry().2
    }

    /// Name, description, and how statistics are kept.
    #[rustfmt::skip]
    fn entry(self) -> (&'static str, &'static str, Keeping) {
        let per_group = GroupThreshold::PUBLISHED;
        let global = |rule| Keeping::Flushed(rule, Threshold::Global, Listing::Locked);
        let grouped = |rule, threshold| Keeping::Flushed(rule, Threshold::PerGroup(threshold), Listing::Locked);
        let coalesce = |max_waiters, claim| global(Rule::Coalesce { max_waiters, claim });
        let once = |max_waiters| Rule::InTurn { max_waiters, look: Look::Once };
        let again = Rule::InTurn { max_waiters: UNBOUNDED, look: Look::Again };
        match self {
            Policy::Unified => ("unified", "one flusher does the whole tree, other readers skip and take old numbers",
                global(Rule::OneOrSkip)),
            Policy::Direct => ("direct", "every reader takes one global lock and flushes what it reads",
                global(Rule::Each(Scope::Subtree))),
            Policy::DirectRoot => ("direct-root", "every reader takes one global lock and flushes the whole tree",
                global(Rule::Each(Scope::Root))),
            Policy::Coalesced { max_waiters: UNBOUNDED } => ("coalesced-unbounded", "as coalesced, and any number may wait",
                coalesce(UNBOUNDED, Claim::Mutex)),
            Policy::Coalesced { max_waiters } => ("coalesced",
                "first reader flushes what it reads, others wait for one flush of the whole tree",
                coalesce(max_waiters, Claim::Mutex)),
            Policy::CoalescedFlag { max_waiters } => ("coalesced-flag", "as coalesced, with a flag in place of the mutex that is only tried",
                coalesce(max_waiters, Claim::Flag)),
            Policy::MutexBounded { max_waiters: UNBOUNDED } => ("mutex-unbounded", "readers flush what they read, one after the other",
                global(once(UNBOUNDED))),
            Policy::MutexBounded { max_waiters } => ("mutex-bounded",
                "readers flush what they read, one after the other; where too many wait, the next skip",
                global(once(max_waiters))),
            Policy::TimedLock { timeout_ns } => ("timed-lock",
                "readers flush what they read in turn; who waits too long shares a flush of the whole tree",
                global(Rule::InTime { timeout_ns })),
            Policy::Adaptive => ("adaptive",
                "readers flush what they read, or share a flush of the whole tree where that costs less in sum",
                global(Rule::Cheapest)),
            Policy::PerGroup => ("per-group", "readers flush what they read, but only after enough updates in it",
                grouped(again, per_group)),
            Policy::PerGroupLockless => ("per-group-lockless",
                "as per-group, but readers spin on the global lock instead of sleeping in turn (merged in 6.8)",
                grouped(Rule::Each(Scope::Subtree), per_group)),
            Policy::Kernel617 => ("kernel-6.17",
                "readers flush what they read after enough updates in it; lists without locks, tree made by the flush (Linux 6.17)",
                Keeping::Flushed(Rule::Each(Scope::Subtree),
                    Threshold::PerGroup(GroupThreshold { marks: Marks::UntilDue, ..per_group }), Listing::Pushed)),
            Policy::PerGroupMultiplexed { counters } => ("per-group-multiplexed",
                "as per-group, but CPUs count a group's updates in several counters, not in one",
                grouped(again, GroupThreshold { counters, ..per_group })),
            Policy::PerGroupNet => ("per-group-net", "as per-group, but ups and downs that cancel are not worth a flush",
                grouped(again, GroupThreshold { counted: Counted::NetChange, ..per_group })),
            Policy::PerGroupEarlyStop => ("per-group-early-stop",
                "as per-group, but an update is counted only up to the first group that is due already",
                grouped(again, GroupThreshold { marks: Marks::UntilDue, ..per_group })),
            Policy::OwnThreshold => ("own-threshold", "as per-group, but updates of the groups below are not worth a flush",
                grouped(again, GroupThreshold { marks: Marks::GroupAlone, ..per_group })),
            Policy::TreeWalk => ("tree-walk", "nobody flushes: each read sums up all CPUs' numbers of all groups below", Keeping::Walked),
            Policy::Eager => ("eager", "nobody flushes: each update changes its group and all above it at once", Keeping::Eager),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_policy_is_found_by_a_name_of_its_own() {
        let tunables = Tunables::of_cpus(4);
        let all = Policy::all(tunables);
        for policy in &all {
            assert_eq!(Policy::named(policy.name(), tunables), Some(*policy));
            let same = all.iter().filter(|other| other.name() == policy.name());
            assert_eq!(same.count(), 1, "{}", policy.name());
            let summary = policy.summary();
            assert!(
                !summary.is_empty() && !summary.contains('\n'),
                "one line of {}",
                policy.name()
            );
        }
        assert_eq!(Policy::named("combining", tunables), None);
    }

    #[test]
    fn tunables_go_where_they_belong() {
        let tunables = Tunables {
            max_waiters: 3,
            timeout_ns: 5,
            counters: 7,
        };
        let named = |name| Policy::named(name, tunables).expect(name);
        assert_eq!(named("coalesced"), Policy::Coalesced { max_waiters: 3 });
        let unbounded = Policy::Coalesced {
            max_waiters: UNBOUNDED,
        };
        assert_eq!(named("coalesced-unbounded"), unbounded);
        let bounded = Policy::MutexBounded { max_waiters: 3 };
        assert_eq!(named("mutex-bounded"), bounded);
        assert_eq!(named("timed-lock"), Policy::TimedLock { timeout_ns: 5 });
        let multiplexed = Policy::PerGroupMultiplexed { counters: 7 };
        assert_eq!(named("per-group-multiplexed"), multiplexed);
    }
}
