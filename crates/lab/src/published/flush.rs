//! The call sites: who flushes what, who waits and who skips.

use std::sync::Arc;

use bursar_machine::{AtomicWord, Event, Lock, Machine, Order, OutOfMemory};

use super::rstat::Rstat;
use super::{GroupIndex, Padded, Policy, Scope};

const ROOT: GroupIndex = 0;

/// A tree of groups whose statistics are kept and flushed as a published policy did it.
pub struct Published<M: Machine> {
    policy: Policy,
    rstat: Rstat<M>,
    /// 1 while a flush of the whole tree runs that others skip (`unified`).
    ongoing: Padded<M::Word>,
    /// The flush of the whole tree that others may wait for (`coalesced`).
    shared: M::Spin<Option<Arc<M::Event>>>,
    /// How many wait for it.
    waiting: Padded<M::Word>,
    /// Held by the flusher of a subtree (`coalesced`, `per-group`).
    flushing: M::Mutex<()>,
    tally: Tally<M>,
}

/// How often what happened.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Flushes of the whole tree, periodic ones included.
    pub root: u64,
    /// Flushes of a subtree.
    pub subtree: u64,
    /// Reads, or periodic flushes, that found a flush worth it and went without one.
    pub skips: u64,
    /// Reads that waited for a flush that another reader ran.
    pub waits: u64,
    /// Acquisitions of a flush lock that found it taken.
    pub lock_waits: u64,
}

struct Tally<M: Machine> {
    root: M::Word,
    subtree: M::Word,
    skips: M::Word,
    waits: M::Word,
}

/// Relaxed: a tally orders nothing.
fn count<W: AtomicWord>(word: &W) {
    word.fetch_add(1, Order::Relaxed);
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
        Ok(Self {
            policy,
            rstat: Rstat::new(machine, policy.threshold(), parents.to_vec(), statistics)?,
            ongoing: Padded(M::Word::new(0)),
            shared: M::Spin::new(None),
            waiting: Padded(M::Word::new(0)),
            flushing: M::Mutex::new(()),
            tally: Tally {
                root: M::Word::new(0),
                subtree: M::Word::new(0),
                skips: M::Word::new(0),
                waits: M::Word::new(0),
            },
        })
    }

    /// The policy.
    pub fn policy(&self) -> Policy {
        self.policy
    }

    /// The number of groups.
    pub fn groups(&self) -> usize {
        self.rstat.groups()
    }

    /// Adds `delta` to a statistic of `group`. Takes the current CPU's list lock on the first update after a flush, and
    /// no lock else.
    #[inline]
    pub fn add(&self, group: GroupIndex, statistic: usize, delta: i64) {
        self.rstat.add(group, statistic, delta);
    }

    /// A statistic of `group` and everything below it, as of the last flush.
    #[inline]
    pub fn total(&self, group: GroupIndex, statistic: usize) -> i64 {
        self.rstat.total(group, statistic)
    }

    /// What a reader of `group` calls before it looks at the totals: flushes, waits or skips, as the policy says.
    #[doc(alias = "mem_cgroup_flush_stats")]
    pub fn flush(&self, group: GroupIndex) {
        if !self.rstat.counts.is_due(group) {
            return;
        }
        match self.policy {
            Policy::Unified => self.flush_or_skip(),
            Policy::Direct => self.run(group),
            Policy::Coalesced { max_waiters } => self.flush_coalesced(group, max_waiters),
            Policy::PerGroup => self.flush_rechecked(group),
        }
    }

    /// The periodic flush of the whole tree, whatever the threshold says.
    #[doc(alias = "flush_memcg_stats_dwork")]
    pub fn flush_periodic(&self) {
        if self.policy.periodic_skips() {
            self.flush_or_skip();
        } else {
            self.run(ROOT);
        }
    }

    /// What happened so far.
    pub fn counts(&self) -> Counts {
        let read = |word: &M::Word| word.load(Order::Relaxed);
        Counts {
            root: read(&self.tally.root),
            subtree: read(&self.tally.subtree),
            skips: read(&self.tally.skips),
            waits: read(&self.tally.waits),
            lock_waits: self.rstat.lock_waits() + self.flushing.waits(),
        }
    }

    /// Flushes the whole tree, unless somebody is at it.
    fn flush_or_skip(&self) {
        // Full: as the kernel's exchange; one of those who come at once finds 0. Pairs with the store below.
        if self.ongoing.0.swap(1, Order::Full) == 1 {
            count(&self.tally.skips);
            return;
        }
        self.run(ROOT);
        // Release: pairs with the swap above; the next flusher sees the totals of this one.
        self.ongoing.0.store(0, Order::Release);
    }

    /// Flushes the group if nobody else does; else takes part in one flush of the whole tree.
    fn flush_coalesced(&self, group: GroupIndex, max_waiters: u64) {
        if let Some(_alone) = self.flushing.try_lock() {
            self.run(group);
            return;
        }
        let mut shared = self.shared.lock();
        if let Some(running) = shared.clone() {
            drop(shared);
            self.wait_for(&running, max_waiters);
            return;
        }
        let mine = Arc::new(M::Event::new());
        *shared = Some(mine.clone());
        drop(shared);
        self.run(ROOT);
        *self.shared.lock() = None;
        mine.set();
    }

    /// Waits for a flush that is under way. It may be past the CPU where the caller's own update was made: whoever joins
    /// may return without it.
    fn wait_for(&self, running: &M::Event, max_waiters: u64) {
        // Relaxed: a bound on the number of waiters, and nothing that they read.
        if self.waiting.0.fetch_add(1, Order::Relaxed) >= max_waiters {
            count(&self.tally.skips);
        } else {
            count(&self.tally.waits);
            running.wait();
        }
        self.waiting.0.fetch_sub(1, Order::Relaxed);
    }

    /// Flushes the group under the mutex, unless those who held it before did what was needed.
    fn flush_rechecked(&self, group: GroupIndex) {
        let _one_at_a_time = self.flushing.lock();
        if self.rstat.counts.is_due(group) {
            self.run(group);
        } else {
            count(&self.tally.skips);
        }
    }

    fn run(&self, group: GroupIndex) {
        count(match scope_of(group) {
            Scope::Root => &self.tally.root,
            Scope::Subtree => &self.tally.subtree,
        });
        self.rstat.flush(group);
    }
}

fn scope_of(group: GroupIndex) -> Scope {
    if group == ROOT {
        Scope::Root
    } else {
        Scope::Subtree
    }
}

#[cfg(test)]
#[path = "tests.rs"]
mod tests;
