//! The arithmetic of thresholds, on a tree 0 - 1 - 2, 0 - 3.

use bursar_machine::Host;

use super::*;

const CPU: Shard = Shard(0);
const OTHER_CPU: Shard = Shard(1);

fn of(kind: Threshold) -> (UpdateCounts<Host>, u64) {
    let host = Host::start().unwrap();
    let parents = vec![None, Some(0), Some(1), Some(0)];
    (
        UpdateCounts::new(&host, kind, Gate::Threshold, parents),
        BATCH * host.cpus() as u64,
    )
}

fn per_group(change: impl FnOnce(&mut GroupThreshold)) -> (UpdateCounts<Host>, i64) {
    let mut how = GroupThreshold::PUBLISHED;
    change(&mut how);
    let (counts, limit) = of(Threshold::PerGroup(how));
    (counts, limit as i64)
}

/// Updates that were handed on.
fn pending(counts: &UpdateCounts<Host>, count: usize) -> Vec<i64> {
    let counters = counts.pending(count).iter();
    counters
        .map(|counter| counter.0.load_signed(MemoryOrder::Relaxed))
        .collect()
}

#[test]
fn the_threshold_is_64_updates_a_cpu() {
    let (counts, limit) = of(Threshold::Global);
    assert_eq!(limit, 64 * Host::start().unwrap().cpus() as u64);
    counts.count(CPU, 2, limit as i64);
    assert!(!counts.is_due(3), "the limit itself is not above it");
    counts.count(CPU, 2, -64);
    assert!(counts.is_due(3), "ups and downs count alike");
}

#[test]
fn one_count_serves_all_groups() {
    let (counts, limit) = of(Threshold::Global);
    counts.count(CPU, 2, limit as i64 + 1);
    assert!(counts.is_due(3));
    counts.folded(CPU, 0);
    assert!(counts.is_due(3), "only a flush of the whole tree resets it");
    counts.flushed_root();
    assert!(!counts.is_due(3));
}

#[test]
fn counts_of_a_group_reach_its_ancestors_alone() {
    let (counts, limit) = per_group(|_| ());
    counts.count(CPU, 2, limit + 1);
    assert!([0, 1, 2].iter().all(|&group| counts.is_due(group)));
    assert!(!counts.is_due(3));
    counts.folded(CPU, 2);
    assert!(counts.is_due(1) && !counts.is_due(2));
}

#[test]
fn a_batch_stays_with_its_cpu_until_it_is_full() {
    let (counts, _) = of(Threshold::Global);
    counts.count(CPU, 0, 63);
    assert_eq!(pending(&counts, 0), [0]);
    counts.count(CPU, 0, 1);
    assert_eq!(pending(&counts, 0), [64]);
}

#[test]
fn the_walk_stops_at_a_group_that_is_due() {
    let after = |marks| {
        let (counts, limit) = per_group(|how| how.marks = marks);
        counts.count(CPU, 1, limit + 64);
        // A flush resets the root alone: what the early stop assumes is no longer so.
        counts.folded(CPU, 0);
        counts.count(CPU, 2, limit + 64);
        [0, 1, 2].map(|group| counts.is_due(group))
    };
    assert_eq!(after(Marks::UntilDue), [false, true, true]);
    assert_eq!(after(Marks::AllAncestors), [true, true, true]);
}

#[test]
fn a_threshold_of_its_own_is_reset_with_all_that_a_flush_covers() {
    let (counts, limit) = per_group(|how| how.marks = Marks::GroupAlone);
    counts.count(CPU, 2, limit + 1);
    assert_eq!(
        [0, 1, 2].map(|group| counts.is_due(group)),
        [false, false, true]
    );
    // The work of a flush of the root, children first.
    for group in [2, 1, 0] {
        counts.folded(CPU, group);
    }
    assert!(!counts.is_due(2));
}

#[test]
fn ups_and_downs_cancel_in_the_net_change() {
    let (counts, limit) = per_group(|how| how.counted = Counted::NetChange);
    for _ in 0..limit {
        counts.count(CPU, 2, 64);
        counts.count(OTHER_CPU, 2, -64);
    }
    assert!(!counts.is_due(2) && !counts.is_due(0));
    counts.count(CPU, 2, -limit);
    assert_eq!(pending(&counts, 2), [-limit]);
    assert!(!counts.is_due(2));
    counts.count(CPU, 2, -64);
    assert!(counts.is_due(2) && counts.is_due(0), "downwards, too");
    let (counts, limit) = per_group(|_| ());
    counts.count(CPU, 2, limit);
    counts.count(CPU, 2, -limit);
    assert_eq!(pending(&counts, 2), [2 * limit], "absolute");
}

/// Reason for which the net change is counted all the way up.
#[test]
fn an_early_stop_misses_what_would_cancel() {
    let is_due_after = |marks| {
        let (counts, limit) = per_group(|how| {
            how.marks = marks;
            how.counted = Counted::NetChange;
        });
        counts.count(CPU, 2, limit + 64);
        counts.count(CPU, 2, -limit - 64);
        counts.is_due(2)
    };
    assert!(is_due_after(Marks::UntilDue));
    assert!(!is_due_after(Marks::AllAncestors));
}

#[test]
fn cpus_share_counters_in_turn_and_the_sum_decides() {
    let (counts, limit) = per_group(|how| how.counters = 2);
    // A limit of at least 64: no two of these are above it before they are counted.
    counts.count_one(Shard(1), 2, 64);
    assert_eq!(pending(&counts, 2), [0, 64]);
    counts.count_one(Shard(0), 2, limit);
    assert_eq!(pending(&counts, 2), [limit, 64]);
    counts.count_one(Shard(1), 2, 64);
    assert_eq!(
        pending(&counts, 2),
        [limit, 64],
        "it is due, and stands still"
    );
    let (counts, _) = per_group(|how| how.counters = 2);
    counts.count(CPU, 2, limit);
    assert!(!counts.is_due(2));
    counts.count(OTHER_CPU, 2, 64);
    assert_eq!(pending(&counts, 2), [limit, 64]);
    assert!(
        counts.is_due(2),
        "neither of the two is above, and their sum is"
    );
    counts.folded(CPU, 2);
    assert_eq!(pending(&counts, 2), [0, 0]);
}

#[test]
fn a_gate_that_is_open_asks_no_count() {
    let host = Host::start().unwrap();
    let counts = UpdateCounts::new(&host, Threshold::Global, Gate::AlwaysDue, vec![None]);
    assert!(counts.is_due(0));
}

#[test]
fn bytes_of_slab_are_updates_in_6_5_and_pages_since() {
    let (counts, limit) = of(Threshold::Global);
    let count_bytes = |counts: &UpdateCounts<_>, bytes| {
        counts.count(CPU, 2, counts.updates_of_bytes(bytes));
    };
    count_bytes(&counts, -(limit as i64) - 64);
    assert!(counts.is_due(2), "each byte is an update");
    let (counts, limit) = per_group(|_| ());
    count_bytes(&counts, -(limit + 64));
    assert_eq!(pending(&counts, 2), [0], "less than a batch of pages");
    count_bytes(&counts, (limit + 64) * 4096);
    assert!(counts.is_due(2));
    let (counts, _) = per_group(|_| ());
    (0..64).for_each(|_| count_bytes(&counts, 1));
    assert_eq!(pending(&counts, 2), [64], "a part of a page is one");
}
