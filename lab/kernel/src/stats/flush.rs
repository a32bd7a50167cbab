//! The call sites: they flush, wait or skip.

use bursar_machine::{AtomicWord, Lock, Machine, MemoryOrder, OutOfMemory};

use super::adaptive::Costs;
use super::coalesced::{Shared, SharedFlush};
use super::policy::{Claim, Look, Rule, Scope, UNBOUNDED};
use super::rstat::Rstat;
use super::substrate::Substrate;
use super::tally::{Counts, Tally, count};
use super::threshold::Threshold;
use super::timed::Turn;
use super::updated::Listing;
use super::{GroupIndex, Padded, ROOT};

/// Periods after which the periodic flush is late, and a rate-limited one flushes (kernel: `2 * FLUSH_TIME`).
const LATE_PERIODS: u64 = 2;

/// Statistics that flushes bring up to date.
pub(super) struct Flushed<M: Machine> {
    machine: M,
    rule: Rule,
    pub(super) rstat: Rstat<M>,
    /// 1 while a task flushes by [`Flushed::run_flagged`].
    ongoing: Padded<M::Word>,
    /// The flush of the whole tree that others may join.
    pub(super) shared: SharedFlush<M>,
    /// Turn to flush a subtree.
    pub(super) turn: Turn<M>,
    pub(super) costs: Costs<M>,
    /// Begin of the last flush of the whole tree.
    root_began_ns: Padded<M::Word>,
    late_ns: u64,
    tally: Tally<M>,
}

impl<M: Machine> Flushed<M> {
    pub(super) fn new(
        machine: &M,
        rule: Rule,
        threshold: Threshold,
        listing: Listing,
        substrate: Substrate,
        parents: &[Option<GroupIndex>],
        statistics: usize,
    ) -> Result<Self, OutOfMemory> {
        let parents = parents.to_vec();
        Ok(Self {
            rule,
            rstat: Rstat::new(machine, threshold, listing, substrate, parents, statistics)?,
            ongoing: Padded(M::Word::new(0)),
            shared: SharedFlush::new(),
            turn: Turn::new(),
            costs: Costs::new(),
            root_began_ns: Padded(M::Word::new(machine.now_ns())),
            late_ns: substrate.flush_period_ns.saturating_mul(LATE_PERIODS),
            tally: Tally::new(),
            machine: machine.clone(),
        })
    }

    /// See [`super::Published::flush`].
    pub(super) fn flush(&self, group: GroupIndex) {
        if !self.rstat.counts.is_due(group) {
            return;
        }
        match self.rule {
            Rule::OneOrSkip => self.flush_or_skip(),
            Rule::Each(Scope::Root) => self.run(ROOT),
            Rule::Each(Scope::Subtree) => self.run(group),
            Rule::Coalesce { max_waiters, claim } => {
                // A reader of the root, or one that comes while a flush of the whole tree runs, has no use for a flush
                // of its own.
                let may_flush_alone = group != ROOT && !self.shared.is_running();
                if !may_flush_alone || !self.flush_alone(group, claim) {
                    self.share(max_waiters);
                }
            }
            Rule::InTurn { max_waiters, look } => self.flush_in_turn(group, max_waiters, look),
            Rule::InTime { timeout_ns } => {
                if let Some(_turn) = self.turn.take_in_time(&self.machine, timeout_ns) {
                    self.run(group);
                } else {
                    self.share(UNBOUNDED);
                }
            }
            Rule::Cheapest => self.costs.choose(|scope| match scope {
                Scope::Root => self.share(UNBOUNDED),
                Scope::Subtree => self.run(group),
            }),
        }
    }

    /// See [`super::Published::flush_ratelimited`].
    pub(super) fn flush_ratelimited(&self, group: GroupIndex) {
        // Relaxed: a moment, and nothing that was done at it.
        let began_ns = self.root_began_ns.0.load(MemoryOrder::Relaxed);
        if self.machine.now_ns().saturating_sub(began_ns) > self.late_ns {
            self.flush(match self.rule {
                Rule::Coalesce { .. } => ROOT,
                _ => group,
            });
        } else {
            count(&self.tally.ratelimited_skips);
        }
    }

    /// See [`super::Published::flush_forced`].
    pub(super) fn flush_forced(&self, group: GroupIndex) {
        self.run(group);
    }

    /// See [`super::Published::flush_periodic`].
    pub(super) fn flush_periodic(&self) {
        match self.rule {
            Rule::OneOrSkip => self.flush_or_skip(),
            // Its flush is the one that others join, and it joins none.
            Rule::Coalesce { .. } => self.share(0),
            Rule::Each(_) | Rule::InTurn { .. } | Rule::InTime { .. } | Rule::Cheapest => {
                self.run(ROOT);
            }
        }
    }

    pub(super) fn counts(&self) -> Counts {
        Counts {
            lock_waits: self.rstat.lock_waits() + self.turn.waits(),
            lock_drops: self.rstat.lock_drops(),
            ..self.tally.counts()
        }
    }

    /// Flushes the group if no other task flushes one; returns whether it did.
    fn flush_alone(&self, group: GroupIndex, claim: Claim) -> bool {
        match claim {
            Claim::Mutex => {
                let turn = self.turn.mutex.try_lock();
                turn.is_some() && {
                    self.run(group);
                    true
                }
            }
            Claim::Flag => self.run_flagged(group),
        }
    }

    /// Flushes the whole tree, unless another task is doing so.
    fn flush_or_skip(&self) {
        // Relaxed: the look spares the line to readers that skip.
        if self.ongoing.0.load(MemoryOrder::Relaxed) == 1 || !self.run_flagged(ROOT) {
            count(&self.tally.skips);
        }
    }

    /// Flushes the group, unless another task has the flag; returns whether it did.
    fn run_flagged(&self, group: GroupIndex) -> bool {
        // Full: as the kernel's exchange; one of the readers that come at once finds 0. Pairs with the store below.
        if self.ongoing.0.swap(1, MemoryOrder::Full) == 1 {
            return false;
        }
        self.run(group);
        // Release: pairs with the swap above; the next flusher sees the totals of this one.
        self.ongoing.0.store(0, MemoryOrder::Release);
        true
    }

    /// Flushes the group under the mutex, unless too many wait for it, or an earlier holder has made the flush
    /// unnecessary.
    fn flush_in_turn(&self, group: GroupIndex, max_waiters: u64, look: Look) {
        let turn = self.turn.take_within(max_waiters);
        if turn.is_some() && (look == Look::Once || self.rstat.counts.is_due(group)) {
            self.run(group);
        } else {
            count(&self.tally.skips);
        }
    }

    /// Takes part in a flush of the whole tree.
    fn share(&self, max_waiters: u64) {
        let note = |shared| match shared {
            // It is counted where it runs.
            Shared::Ran => {}
            Shared::Joined => count(&self.tally.waits),
            Shared::Skipped => count(&self.tally.skips),
        };
        self.shared.share(max_waiters, || self.run(ROOT), note);
    }

    /// Flushes the group.
    #[doc(alias = "do_flush_stats")]
    fn run(&self, group: GroupIndex) {
        let scope = if group == ROOT {
            // Relaxed: see `flush_ratelimited`.
            let now_ns = self.machine.now_ns();
            self.root_began_ns.0.store(now_ns, MemoryOrder::Relaxed);
            count(&self.tally.root);
            Scope::Root
        } else {
            count(&self.tally.subtree);
            Scope::Subtree
        };
        if self.rule == Rule::Cheapest {
            let cost_ns = self.rstat.flush_clocked(group, || self.machine.now_ns());
            self.costs.note(scope, cost_ns);
        } else {
            self.rstat.flush(group);
        }
    }
}
