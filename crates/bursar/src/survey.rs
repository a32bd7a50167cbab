//! The biggest consumers of a subtree, and the group to end when nothing else frees memory.

use bursar_machine::{Host, Machine};

use crate::group::Group;
use crate::limit::{Events, Limits};
use crate::react::protection;
use crate::tree::{Freshness, NotFresh};

/// Quantity that ranks consumers in [`Group::top`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum By {
    /// Bytes reserved now, stock included.
    #[default]
    Reserved,
    /// The highest number of bytes ever reserved.
    Peak,
    /// Charges refused.
    Refused,
    /// Time throttled.
    Throttled,
    /// Bytes reclaimed.
    Reclaimed,
}

/// A group and the memory that it uses; see [`Group::top`].
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Consumer {
    /// The path from the root.
    pub path: String,
    /// Bytes reserved now for the group and all below it, stock included.
    pub reserved: u64,
    /// The highest number of bytes that were ever reserved.
    pub peak: u64,
    /// The group's limits, so that `reserved` can be shown beside its `max`.
    pub limits: Limits,
    /// Events at the group's own limits.
    pub events: Events,
}

impl Consumer {
    fn rank(&self, by: By) -> u128 {
        match by {
            By::Reserved => u128::from(self.reserved),
            By::Peak => u128::from(self.peak),
            By::Refused => u128::from(self.events.refused),
            By::Throttled => self.events.throttled.as_nanos(),
            By::Reclaimed => u128::from(self.events.reclaimed_bytes),
        }
    }
}

/// A group whose end would free memory, and the reason for the choice; see [`Group::choose_victim`].
#[derive(Debug)]
#[non_exhaustive]
pub struct Victim<M: Machine = Host> {
    /// The group. It has no children.
    pub group: Group<M>,
    /// Bytes charged to it, as fresh as an [`Freshness::Exact`] read.
    pub usage: u64,
    /// Its effective protection, bytes, against the group on which [`Group::choose_victim`] was called: `low`, or `min` if that
    /// is higher. Only `min` if no candidate exceeded its `low`.
    pub protected: u64,
    /// Bytes that it uses beyond its protection.
    pub excess: u64,
}

/// Bytes of a group that are protected from reclaim; see [`Group::protection`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Protection {
    /// Bytes that reclaim never takes.
    pub min: u64,
    /// Bytes that reclaim takes only if there is nothing else to take.
    pub low: u64,
}

/// # Consumers and victims
impl<M: Machine> Group<M> {
    /// All living groups below this one.
    fn descendants(&self) -> Vec<Self> {
        let mut found = self.children();
        let mut next = 0;
        while next < found.len() {
            let below = found[next].children();
            found.extend(below);
            next += 1;
        }
        found
    }

    /// The biggest of the groups below this one, at any depth, biggest first. Groups that rank 0 are left out. A group includes
    /// all that is below it, so it comes before its children.
    ///
    /// ```
    /// use bursar::{By, Bytes, Limits, Memory};
    ///
    /// let memory = Memory::host()?;
    /// let tenant = memory.root().child("tenant", Limits::max(256 << 20))?;
    /// let charge = tenant.try_charge(48 << 20)?;
    /// for one in memory.root().top(5, By::Reserved) {
    ///     let shown = format!("{} uses {} of {}", one.path, Bytes(one.reserved), Bytes::of_limit(one.limits.max));
    ///     assert_eq!(shown, "/tenant uses 48.0 MiB of 256 MiB");
    /// }
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn top(&self, count: usize, by: By) -> Vec<Consumer> {
        let mut consumers: Vec<Consumer> = self
            .descendants()
            .into_iter()
            .map(|group| Consumer {
                path: group.path(),
                // Relaxed: statistics, read at different moments.
                reserved: group.core().counters.usage(group.index()),
                peak: group.peak(),
                limits: group.limits(),
                events: group.own_events(),
            })
            .filter(|consumer| consumer.rank(by) > 0)
            .collect();
        // By path among equals, so that a parent comes first.
        consumers.sort_by(|one, other| {
            let rank = other.rank(by).cmp(&one.rank(by));
            rank.then_with(|| one.path.cmp(&other.path))
        });
        consumers.truncate(count);
        consumers
    }

    /// Chooses the group to end when nothing else frees memory. Candidates are the groups below this one that have no children. The
    /// choice is the group whose usage exceeds its effective `low` most ([`Group::protection`]). If no group exceeds its `low`, it is
    /// the group that exceeds its effective `min` most. `None` if no group exceeds that either.
    ///
    /// Groups excluded by [`Group::exclude_from_victims`] are never chosen.
    ///
    /// One [`Group::flush`] of this group brings all candidates up to date. Charges of other tasks meanwhile may make
    /// another group the biggest.
    ///
    /// This only chooses. To end the victim, cancel its work, so that it drops its charges. [`Group::remove`] returns no bytes.
    ///
    /// # Errors
    /// [`NotFresh`] if the memory's policy forbids readers to flush.
    #[doc(alias = "oom_badness")]
    pub fn choose_victim(&self) -> Result<Option<Victim<M>>, NotFresh> {
        self.choose_victim_where(|_| true)
    }

    /// Chooses as [`Group::choose_victim`] does, among the groups for which `may_end` returns `true`. Return `false` for
    /// groups that are ending already. `may_end` is called once for each candidate, without a lock.
    ///
    /// # Errors
    /// [`NotFresh`] if the memory's policy forbids readers to flush.
    pub fn choose_victim_where(
        &self,
        may_end: impl Fn(&Self) -> bool,
    ) -> Result<Option<Victim<M>>, NotFresh> {
        let mut candidates = Vec::new();
        protection::walk(
            self.core(),
            self.index(),
            |_| true,
            |index, _, standing| {
                self.core().counters.refer(index);
                let group = Self::new(self.core().clone(), index);
                candidates.push((group, standing));
            },
        );
        candidates.retain(|(group, _)| {
            let may_be_victim = self.core().counters.counter(group.index()).may_be_victim();
            may_be_victim && group.children().is_empty() && may_end(group)
        });
        if candidates.is_empty() {
            return Ok(None);
        }
        self.flush()?;
        let mut best: Option<(bool, u64, Victim<M>)> = None;
        for (group, standing) in candidates {
            let usage = group.read(Freshness::Cached)?.usage().value;
            let usage = u64::try_from(usage).unwrap_or(0);
            let above_low = usage > standing.low.max(standing.min);
            let protected = if above_low {
                standing.low.max(standing.min)
            } else {
                standing.min
            };
            let excess = usage.saturating_sub(protected);
            let is_better = excess > 0
                && best.as_ref().is_none_or(|(best_above, best_excess, _)| {
                    (above_low, excess) > (*best_above, *best_excess)
                });
            if is_better {
                let victim = Victim {
                    group,
                    usage,
                    protected,
                    excess,
                };
                best = Some((above_low, excess, victim));
            }
        }
        Ok(best.map(|(_, _, victim)| victim))
    }

    /// Excludes the group from [`Group::choose_victim`] for good. For a group whose memory no caller can free, such as the
    /// group that pays for allocations of no tenant. Groups below it are not excluded.
    #[doc(alias = "oom_score_adj")]
    pub fn exclude_from_victims(&self) {
        self.core()
            .counters
            .counter(self.index())
            .exclude_from_victims();
    }

    /// The group's effective `min` and `low`: bytes that are protected when reclaim is for the root. They are shares of its
    /// ancestors' protection by the kernel's formula, and at most its usage.
    #[doc(alias = "page_counter_calculate_protection")]
    pub fn protection(&self) -> Protection {
        let standing = protection::of(self.core(), crate::tree::ROOT, self.index());
        let usage = self.reserved();
        Protection {
            min: standing.min.min(usage),
            low: standing.low.min(usage),
        }
    }
}
