//! Rules of other systems, as pure functions: whom they ask to spill, and whom they stop.
//!
//! Written from what their documents and issues say, before Bursar's own rule was. Where an issue names a fault that has nothing to
//! do with the order of victims, such as a second victim before the first is gone, the rival here does not have it.

/// A query as a rule sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Seen {
    pub(super) id: u64,
    pub(super) score: u32,
    /// Place in the order in which queries began; a larger one is younger.
    pub(super) begun: u64,
    /// MiB.
    pub(super) held_mib: u64,
    /// Of these, MiB that it can write to disk.
    pub(super) spillable_mib: u64,
    /// Whether it was asked to spill, or told to stop, and has not done so yet.
    pub(super) is_leaving: bool,
}

/// Rule of another system.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rival {
    /// DataFusion's `GreedyMemoryPool`: the first query that asks gets memory. A query that is refused spills what it has, or fails.
    Greedy,
    /// A fixed part of the memory for each query, as many at once as there are parts (Ballista).
    FixedParts,
    /// Velox: a query that grows waits, in order. The largest that can spill does so, of those of the lowest score; if none can, the
    /// youngest of the lowest score is stopped.
    Velox,
    /// ClickHouse: queries are admitted by what they say they need. The largest that can spill does so; if none can, the largest of all is
    /// stopped.
    ClickHouse,
    /// Trino: once a query has waited for long enough, the one with the most bytes is stopped.
    LargestFirst,
    /// Once a query has waited for long enough, the one that began last is stopped.
    YoungestFirst,
}

impl Rival {
    /// Whether a query that is refused may wait.
    pub(super) fn waits(self) -> bool {
        !matches!(self, Self::Greedy | Self::FixedParts)
    }

    /// Whether nobody gets memory before the first that waits for it has.
    pub(super) fn is_in_order(self) -> bool {
        self == Self::Velox
    }

    /// Returns who is asked to spill next.
    pub(super) fn spiller(self, seen: &[Seen]) -> Option<u64> {
        let can = seen
            .iter()
            .filter(|query| query.spillable_mib > 0 && !query.is_leaving);
        let found = match self {
            Self::Velox => {
                can.max_by_key(|query| (u32::MAX - query.score, query.spillable_mib, query.id))
            }
            Self::ClickHouse => can.max_by_key(|query| (query.spillable_mib, query.id)),
            _ => None,
        };
        found.map(|query| query.id)
    }

    /// Returns who is stopped next.
    pub(super) fn victim(self, seen: &[Seen]) -> Option<u64> {
        let can = seen
            .iter()
            .filter(|query| query.held_mib > 0 && !query.is_leaving);
        let found = match self {
            Self::Greedy | Self::FixedParts => None,
            Self::Velox => can.max_by_key(|query| (u32::MAX - query.score, query.begun)),
            Self::ClickHouse | Self::LargestFirst => {
                can.max_by_key(|query| (query.held_mib, query.id))
            }
            Self::YoungestFirst => can.max_by_key(|query| query.begun),
        };
        found.map(|query| query.id)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const OLD_LARGE: Seen = Seen {
        id: 1,
        score: 10,
        begun: 1,
        held_mib: 100,
        spillable_mib: 90,
        is_leaving: false,
    };
    const YOUNG_SMALL: Seen = Seen {
        id: 2,
        score: 0,
        begun: 2,
        held_mib: 10,
        spillable_mib: 5,
        is_leaving: false,
    };

    #[test]
    fn each_has_its_order() {
        let both = [OLD_LARGE, YOUNG_SMALL];
        let orders = [
            (Rival::Greedy, None, None),
            (Rival::FixedParts, None, None),
            (Rival::Velox, Some(2), Some(2)),
            (Rival::ClickHouse, Some(1), Some(1)),
            (Rival::LargestFirst, None, Some(1)),
            (Rival::YoungestFirst, None, Some(2)),
        ];
        for (rival, spiller, victim) in orders {
            assert_eq!(rival.spiller(&both), spiller, "{rival:?}");
            assert_eq!(rival.victim(&both), victim, "{rival:?}");
        }
    }

    #[test]
    fn who_leaves_already_is_not_told_again_and_who_holds_nothing_is_of_no_use() {
        let leaving = Seen {
            is_leaving: true,
            ..OLD_LARGE
        };
        let empty = Seen {
            held_mib: 0,
            spillable_mib: 0,
            ..YOUNG_SMALL
        };
        for rival in [
            Rival::Velox,
            Rival::ClickHouse,
            Rival::LargestFirst,
            Rival::YoungestFirst,
        ] {
            assert_eq!(rival.spiller(&[leaving, empty]), None);
            assert_eq!(rival.victim(&[leaving, empty]), None);
        }
    }
}
