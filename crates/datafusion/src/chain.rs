//! A group and all above it, and what their limits leave.

use bursar::{Freshness, Group};

/// A group and all above it, the root last. The handles keep nothing that the first would not.
#[derive(Debug)]
pub(crate) struct Chain(Box<[Group]>);

impl Chain {
    pub(crate) fn of(group: &Group) -> Self {
        let mut groups = vec![group.clone()];
        while let Some(parent) = groups.last().and_then(Group::parent) {
            groups.push(parent);
        }
        Self(groups.into())
    }

    pub(crate) fn groups(&self) -> &[Group] {
        &self.0
    }

    /// The smallest `max`, bytes; `u64::MAX` for none. Read anew at each call.
    pub(crate) fn max(&self) -> u64 {
        self.0.iter().map(Group::max).min().unwrap_or(u64::MAX)
    }

    /// The smallest `max` or `high`, bytes; `u64::MAX` for none.
    pub(crate) fn lowest(&self) -> u64 {
        let limits = self.0.iter().map(Group::limits);
        let lowest = limits.map(|limits| limits.max.min(limits.high)).min();
        lowest.unwrap_or(u64::MAX)
    }

    /// Whether the usage of one is above its `max`.
    pub(crate) fn is_over(&self) -> bool {
        self.0.iter().any(Group::is_over_max)
    }
}

/// Bytes charged to the group and below, stock left out: exact, or, if the memory's policy forbids readers to flush, as of the
/// last flush.
pub(crate) fn usage(group: &Group) -> u64 {
    let reading = group.read(Freshness::Exact);
    let value = reading.map_or_else(|stale| stale.cached.usage().value, |now| now.usage().value);
    u64::try_from(value).unwrap_or(0)
}
