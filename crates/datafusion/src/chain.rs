//! A group and its ancestors, and the room that their limits leave.

use bursar::{Freshness, Group, NotFresh, Reading};

/// A group and its ancestors, the root last. The ancestors' handles keep no more than the first does.
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

    /// Returns the smallest `max`, bytes; `u64::MAX` for none. Read anew at each call.
    #[inline(always)]
    pub(crate) fn max(&self) -> u64 {
        self.0
            .iter()
            .map(|group| group.limits().max)
            .min()
            .unwrap_or(u64::MAX)
    }

    /// Returns the smallest `max` or `high`, bytes; `u64::MAX` for none.
    pub(crate) fn lowest(&self) -> u64 {
        let limits = self.0.iter().map(Group::limits);
        let lowest = limits.map(|limits| limits.max.min(limits.high)).min();
        lowest.unwrap_or(u64::MAX)
    }

    /// Returns whether each limit leaves room for so many bytes more, stock counted as used.
    #[cfg(feature = "sql")]
    pub(crate) fn has_room(&self, bytes: u64) -> bool {
        self.0
            .iter()
            .all(|group| group.limits().max.saturating_sub(group.reserved()) >= bytes)
    }

    /// Returns whether the usage of one of the groups is above its `max`.
    pub(crate) fn is_over(&self) -> bool {
        self.0.iter().any(|group| group.is_over_max())
    }
}

/// Returns the bytes charged to the group and below, without stock. Exact, or as of the last flush if the memory's
/// policy forbids readers to flush.
pub(crate) fn usage(group: &Group) -> u64 {
    bytes_of(group.flush())
}

/// Returns the bytes charged to a group whose parent has just been read by [`usage`]: that flush folded this group too.
pub(crate) fn usage_below(group: &Group) -> u64 {
    bytes_of(group.read(Freshness::Cached))
}

fn bytes_of(reading: Result<Reading, NotFresh>) -> u64 {
    let value = reading.map_or_else(|stale| stale.cached.usage().value, |now| now.usage().value);
    u64::try_from(value).unwrap_or(0)
}
