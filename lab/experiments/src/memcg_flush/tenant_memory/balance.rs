//! Number of pages of each kind that a round of reclaim scans (`prepare_scan_control`, `get_scan_count` and `inactive_is_low` of
//! `mm/vmscan.c`).
//!
//! Sizes come from the statistics, which may be old: a flush before reclaim is meant to refresh them.

use super::lists::Kind;

/// Pages that reclaim looks at under one hold of the lock (`SWAP_CLUSTER_MAX`).
pub(super) const SWAP_CLUSTER_MAX: u64 = 32;
/// Priority at which reclaim begins; its pressure is highest at 0 (`DEF_PRIORITY`).
pub(super) const DEF_PRIORITY: u32 = 12;
/// Preference for anonymous pages, of 200 (`vm_swappiness`).
const SWAPPINESS: u128 = 60;

/// Input of a round, by [`Kind`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Known {
    pub(super) inactive: [u64; 2],
    pub(super) active: [u64; 2],
    /// Whether pages came back since the round before.
    pub(super) has_refaulted: [bool; 2],
    /// Cost of taking pages of this kind so far.
    pub(super) cost: [u64; 2],
}

/// Decision of a round, by [`Kind`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Plan {
    pub(super) deactivates: [bool; 2],
    pub(super) scan: [u64; 2],
}

/// Returns whether the inactive list is short: below a part of the active one that shrinks with the amount of memory. A
/// list of less than a gigabyte should be as long as the active one, one of 10 GB a tenth as long.
fn inactive_is_low(inactive: u64, active: u64) -> bool {
    let gigabytes = (inactive + active) >> 18;
    inactive * (10 * gigabytes).isqrt().max(1) < active
}

/// Divides each [`SWAP_CLUSTER_MAX`] pages between the kinds.
pub(super) fn plan(known: &Known, priority: u32) -> Plan {
    let deactivates = Kind::BOTH.map(|kind| {
        let kind = kind as usize;
        // Reclaim that has lost patience deactivates without a check (`force_deactivate`).
        priority == 0
            || known.has_refaulted[kind]
            || inactive_is_low(known.inactive[kind], known.active[kind])
    });
    let file = Kind::File as usize;
    // Clean pages that are not used again, and plenty of them: nothing else is taken (`cache_trim_mode`).
    let trims = known.inactive[file] >> priority > 0 && !deactivates[file];
    let anon = if priority == 0 {
        SWAP_CLUSTER_MAX / 2
    } else if trims {
        0
    } else {
        share_of_anon(known)
    };
    Plan {
        deactivates,
        scan: [anon, SWAP_CLUSTER_MAX - anon],
    }
}

/// Computes the share of anonymous pages by size, and inversely by cost; the costs are levelled so that the ratio of
/// the pressures stays between a half and two.
fn share_of_anon(known: &Known) -> u64 {
    let [anon_cost, file_cost] = known.cost.map(u128::from);
    let sum = anon_cost + file_cost;
    let pressure = |willing: u128, cost: u128| willing * (3 * sum + 1) / (sum + cost + 1);
    let size = |kind: Kind| {
        let kind = kind as usize;
        u128::from(known.inactive[kind] + known.active[kind])
    };
    let anon = size(Kind::Anon) * pressure(SWAPPINESS, anon_cost);
    let file = size(Kind::File) * pressure(200 - SWAPPINESS, file_cost);
    let all = u128::from(SWAP_CLUSTER_MAX);
    let rounded = (anon * all + (anon + file) / 2).checked_div(anon + file);
    rounded.unwrap_or(all / 2) as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    const EVEN: Known = Known {
        inactive: [1000, 1000],
        active: [1000, 1000],
        has_refaulted: [false; 2],
        cost: [0; 2],
    };

    fn scan(known: Known, priority: u32) -> [u64; 2] {
        plan(&known, priority).scan
    }

    #[test]
    fn an_inactive_list_is_short_below_the_active_one_and_below_a_tenth_of_it_at_ten_gigabytes() {
        assert!(!inactive_is_low(100, 100));
        assert!(inactive_is_low(99, 100));
        let ten = 10 << 18;
        assert!(!inactive_is_low(ten / 11 + 1, ten * 10 / 11));
        assert!(inactive_is_low(ten / 12, ten * 11 / 12));
    }

    #[test]
    fn without_costs_the_kinds_are_taken_by_size_and_swappiness() {
        // 60 to 140, of 32.
        assert_eq!(scan(EVEN, 12), [10, 22]);
        let anon = Known {
            inactive: [7000, 1000],
            active: [7000, 1000],
            ..EVEN
        };
        // 7 * 60 to 140.
        assert_eq!(scan(anon, 12), [24, 8]);
    }

    #[test]
    fn what_costs_more_is_taken_less() {
        let anon = Known {
            cost: [1_000_000, 0],
            ..EVEN
        };
        // The pressure on anonymous pages is halved: 90 to 420.
        assert_eq!(scan(anon, 12), [6, 26]);
        let file = Known {
            cost: [0, 1_000_000],
            ..EVEN
        };
        // 180 to 210.
        assert_eq!(scan(file, 12), [15, 17]);
    }

    #[test]
    fn plenty_of_file_pages_that_nobody_wants_are_taken_alone() {
        let plenty = Known {
            inactive: [1000, 4096],
            ..EVEN
        };
        assert_eq!(scan(plenty, 12), [0, 32]);
        let wanted = Known {
            has_refaulted: [false, true],
            ..plenty
        };
        assert_ne!(scan(wanted, 12), [0, 32]);
        assert_eq!(plan(&wanted, 12).deactivates, [false, true]);
        assert_eq!(scan(EVEN, 9), [0, 32], "with less patience, less is plenty");
    }

    #[test]
    fn who_knows_nothing_or_has_lost_patience_takes_both_alike() {
        assert_eq!(scan(Known::default(), 12), [16, 16]);
        let stale = Known {
            inactive: [1000, 0],
            active: [1000, 0],
            ..EVEN
        };
        assert_eq!(scan(stale, 1), [32, 0]);
        assert_eq!(scan(stale, 0), [16, 16]);
        assert_eq!(plan(&EVEN, 0).deactivates, [true, true]);
        assert_eq!(plan(&EVEN, 1).deactivates, [false, false]);
    }
}
