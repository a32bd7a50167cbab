//! Who uses the memory: the biggest consumers of a subtree, and whom to end when nothing else helps.

use bursar_machine::{AtomicWord, Host, Machine, Order};

use crate::charge::{Events, Limits};
use crate::group::Group;
use crate::stats::{Freshness, NotFresh};

/// What consumers are ranked by.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum By {
    /// Bytes reserved now.
    #[default]
    Reserved,
    /// The most bytes ever reserved.
    Peak,
    /// Charges refused.
    Refused,
    /// Time throttled.
    Throttled,
    /// Bytes reclaimed.
    Reclaimed,
}

/// A group and what it consumes.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Consumer {
    /// The path from the root.
    pub path: String,
    /// Bytes reserved for it and all below it now, stock included.
    pub reserved: u64,
    /// The most bytes that were ever reserved.
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

/// A group that could be ended to get memory back, and why it; see [`Group::choose_victim`].
#[derive(Debug)]
#[non_exhaustive]
pub struct Victim<M: Machine = Host> {
    /// The group. It has no children.
    pub group: Group<M>,
    /// Bytes charged to it, from an [`Freshness::Exact`] read.
    pub usage: u64,
    /// Its effective protection against the group that the victim was wanted for: `low` (or `min` if that is higher), and
    /// only `min` if no candidate exceeded its `low`.
    pub protected: u64,
    /// What it uses beyond that.
    pub excess: u64,
}

/// How much of a group is protected, bytes; see [`Group::protection`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Protection {
    /// What reclaim never takes.
    pub min: u64,
    /// What reclaim takes only if there is nothing else to take.
    pub low: u64,
}

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

    /// The biggest of the groups below this one, at any depth, biggest first; those that rank 0 are left out. A group counts
    /// what is below it, so it comes before its children.
    pub fn top(&self, count: usize, by: By) -> Vec<Consumer> {
        let mut consumers: Vec<Consumer> = self
            .descendants()
            .into_iter()
            .map(|group| Consumer {
                path: group.path(),
                // Relaxed: numbers for people, from different moments.
                reserved: group
                    .books()
                    .counter(group.index())
                    .usage
                    .load(Order::Relaxed),
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

    /// The group below this one to be ended when nothing else brings memory back: of those without children, the one whose
    /// usage exceeds its effective `low` most, or if none does, its effective `min`. `None` if no usage exceeds that.
    ///
    /// Goes by what was charged when it looked, not by what a flush left some time ago: each candidate is read `Exact`.
    /// What others charge meanwhile may make another the biggest.
    ///
    /// It only chooses. To end the victim is the caller's: cancel its work, so that it drops its charges.
    /// [`Group::remove`] returns no bytes.
    ///
    /// # Errors
    /// [`NotFresh`] if the memory's policy forbids readers to flush.
    #[doc(alias = "oom_badness")]
    pub fn choose_victim(&self) -> Result<Option<Victim<M>>, NotFresh> {
        self.choose_victim_where(|_| true)
    }

    /// [`Group::choose_victim`] among the groups that `may_end` allows: not those that are being ended already, say. It
    /// is asked once of each candidate, without a lock.
    ///
    /// # Errors
    /// [`NotFresh`] if the memory's policy forbids readers to flush.
    pub fn choose_victim_where(
        &self,
        may_end: impl Fn(&Self) -> bool,
    ) -> Result<Option<Victim<M>>, NotFresh> {
        let mut candidates = Vec::new();
        self.books().walk_protected(
            self.index(),
            |_| true,
            |index, _, standing| {
                self.books().refer(index);
                let group = Self::new(self.books().clone(), index);
                candidates.push((group, standing));
            },
        );
        let mut best: Option<(bool, u64, Victim<M>)> = None;
        for (group, standing) in candidates {
            let may_be_victim = self.books().counter(group.index()).may_be_victim();
            if !may_be_victim || !group.children().is_empty() || !may_end(&group) {
                continue;
            }
            let usage = group.read(Freshness::Exact)?.usage().value;
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
    /// one that pays for all that no tenant does. Groups below it are not excluded.
    #[doc(alias = "oom_score_adj")]
    pub fn exclude_from_victims(&self) {
        self.books().counter(self.index()).exclude_from_victims();
    }

    /// The group's effective `min` and `low`, bytes: how much of it is protected when this group's root runs short. Shares of
    /// what its ancestors protect, by the kernel's formula; at most its usage.
    #[doc(alias = "page_counter_calculate_protection")]
    pub fn protection(&self) -> Protection {
        let standing = self.books().standing(crate::stats::ROOT, self.index());
        let usage = self.reserved();
        Protection {
            min: standing.min.min(usage),
            low: standing.low.min(usage),
        }
    }
}
