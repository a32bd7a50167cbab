//! The biggest consumers of a subtree, their protection, and the group to end when nothing else frees memory.

use std::cmp::Reverse;

use bursar_machine::{AtomicWord, Machine, MemoryOrder};

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

/// The reason to choose a group whose end would free memory; see [`Group::choose_victim`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Victim {
    /// Bytes charged to it, as fresh as an [`Freshness::Exact`] read.
    pub usage: u64,
    /// Its effective protection, bytes, against the group on which [`Group::choose_victim`] was called: `low`, or `min` if that
    /// is higher. Only `min` if its usage does not exceed that.
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

/// The groups that a list has.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Ranked {
    All,
    /// Groups without children.
    Leaves,
}

/// The living groups below a group.
fn descendants<M: Machine>(group: &Group<M>, ranked: Ranked) -> Vec<Group<M>> {
    let (mut found, mut next) = (Vec::new(), group.children());
    while let Some(group) = next.pop() {
        let below = group.children();
        if ranked == Ranked::All || below.is_empty() {
            found.push(group);
        }
        next.extend(below);
    }
    found
}

/// The biggest of the groups below a group.
pub(crate) fn top<M: Machine>(
    group: &Group<M>,
    count: usize,
    by: By,
    ranked: Ranked,
) -> Vec<Consumer> {
    let mut consumers: Vec<Consumer> = descendants(group, ranked)
        .into_iter()
        .map(|group| {
            let (core, index) = (group.core(), group.index());
            let counter = core.counters.counter(index);
            Consumer {
                path: group.path(),
                // Relaxed: statistics, read at different moments.
                reserved: counter.reserved(),
                peak: counter.peak.load(MemoryOrder::Relaxed),
                limits: core.counters.limits(index),
                events: counter.events.own(),
            }
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

/// The groups to end when nothing else frees memory, the best first. One flush brings all candidates up to date.
pub(crate) fn choose_victims<M: Machine>(
    group: &Group<M>,
    count: usize,
    may_end: impl Fn(&Group<M>) -> bool,
) -> Result<Vec<(Group<M>, Victim)>, NotFresh> {
    let mut candidates = Vec::new();
    protection::walk(
        group.core(),
        group.index(),
        |_| true,
        |index, _, standing| {
            group.core().counters.refer(index);
            let group = Group::new(group.core().clone(), index);
            candidates.push((group, standing));
        },
    );
    candidates.retain(|(group, _): &(Group<M>, _)| {
        let may_be_victim = group.core().counters.counter(group.index()).may_be_victim();
        may_be_victim && group.children().is_empty() && may_end(group)
    });
    if candidates.is_empty() {
        return Ok(Vec::new());
    }
    group.flush()?;
    let mut ranked = Vec::new();
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
        if excess > 0 {
            let victim = Victim {
                usage,
                protected,
                excess,
            };
            ranked.push(((above_low, excess), (group, victim)));
        }
    }
    // Stable: among equals the first of the walk is the first.
    ranked.sort_by_key(|&(rank, _)| Reverse(rank));
    Ok(ranked
        .into_iter()
        .take(count)
        .map(|(_, chosen)| chosen)
        .collect())
}

/// The effective protection of a group.
pub(crate) fn protection<M: Machine>(group: &Group<M>) -> Protection {
    let standing = protection::of(group.core(), crate::tree::ROOT, group.index());
    let usage = group.core().counters.usage_now(group.index());
    Protection {
        min: standing.min.min(usage),
        low: standing.low.min(usage),
    }
}
