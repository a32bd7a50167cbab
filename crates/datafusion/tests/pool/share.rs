//! Shares: among one query's spillers and among several queries'.

use bursar_datafusion::{FairShare, GroupPool, Operators};
use datafusion_execution::memory_pool::MemoryReservation;

use crate::common::{MIB, child, exhausted, fixed, sharing, spiller, tenant};

/// Grows to what it may have, at most, in steps of a MiB.
fn fill(reservation: &MemoryReservation) -> usize {
    while reservation.try_grow(MIB).is_ok() {}
    reservation.size() / MIB
}

#[test]
fn idle_spillers_cost_one_share() {
    for operators in [Operators::Together, Operators::ByName] {
        let tenant = tenant(80 * MIB);
        let share = FairShare::new(&tenant);
        let query = |name: &str| {
            let builder = GroupPool::builder(child(&tenant, name));
            builder.operators(operators).share(&share).build()
        };
        let pools = [query("one"), query("two")];
        let sorters: Vec<_> = (0..8)
            .map(|n| spiller(&pools[n % 2], "ExternalSorter"))
            .collect();
        // FairSpillPool gives 10.
        assert_eq!(fill(&sorters[0]), 40);
        // A third, of which the first leaves a sixth besides what is kept for the next.
        assert_eq!(fill(&sorters[1]), 13);
        // The first gives back what it has, as they do.
        sorters[0].free();
        assert_eq!(fill(&sorters[1]), 40);
        // Those that go no longer count.
        let mut sorters = sorters;
        sorters.truncate(2);
        assert_eq!(fill(&sorters[0]), 40);
        assert_eq!(fill(&sorters[1]), 40);
        sorters.truncate(1);
        assert_eq!(fill(&sorters[0]), 80);
    }
}

#[test]
#[should_panic(expected = "a pool of /tenant/query cannot take part in the share of /tenant/other")]
fn a_share_is_for_pools_below_it() {
    let tenant = tenant(MIB);
    let share = FairShare::new(&child(&tenant, "other"));
    GroupPool::builder(child(&tenant, "query"))
        .share(&share)
        .build();
}

/// It says that it can spill. If all of its groups are ordered, a refusal ends its query.
#[test]
fn an_ordered_aggregate_has_all_that_the_limit_leaves() {
    let tenant = tenant(80 * MIB);
    let pool = sharing(&tenant);
    let idle = spiller(&pool, "ExternalSorter");
    let aggregate = spiller(&pool, "OrderedFinalAggregateStream[0]");
    assert_eq!(fill(&aggregate), 80);
    aggregate.shrink(50 * MIB);
    assert_eq!(fill(&idle), 50);
    drop(aggregate);
    assert_eq!(fill(&idle), 80);
}

#[test]
fn a_newcomer_finds_room() {
    let tenant = tenant(120 * MIB);
    let pool = sharing(&tenant);
    let sorters: Vec<_> = (0..10).map(|_| spiller(&pool, "ExternalSorter")).collect();
    for (before, sorter) in sorters.iter().enumerate() {
        // FairSpillPool would give it as much.
        sorter
            .try_grow(12 * MIB)
            .unwrap_or_else(|error| panic!("{before} hold memory: {error}"));
        fill(sorter);
        sorter.shrink(sorter.size() - 12 * MIB);
    }
}

#[test]
fn what_cannot_be_spilled_is_not_shared() {
    let tenant = tenant(100 * MIB);
    let pool = sharing(&tenant);
    let (sorter, _idle) = (
        spiller(&pool, "ExternalSorter"),
        spiller(&pool, "ExternalSorter"),
    );
    let join = fixed(&pool, "HashJoinInput");
    join.try_grow(20 * MIB).unwrap();
    // Nor is what others charge to the tenant.
    let cache = child(&tenant, "cache").try_charge(20 << 20).unwrap();
    assert_eq!(fill(&sorter), 30);
    // It is not held by the share itself.
    join.try_grow(30 * MIB).unwrap();
    join.free();
    drop(cache);
    assert_eq!(fill(&sorter), 50);
}

/// Two sorts, with what they merge, and the merge of both.
#[test]
fn sorts_leave_a_part_for_the_last_merge() {
    let tenant = tenant(90 * MIB);
    let pool = sharing(&tenant);
    let last = fixed(&pool, "SortPreservingMergeExec[0]");
    let sorts = [0, 1].map(|partition| {
        let rows = spiller(&pool, &format!("ExternalSorter[{partition}]"));
        let merge = fixed(&pool, &format!("ExternalSorterMerge[{partition}]"));
        merge.try_grow(10 * MIB).unwrap();
        (rows, merge)
    });
    for (rows, merge) in &sorts {
        assert_eq!(fill(rows), 20);
        // To spill, with what the rows return, and beyond its share.
        rows.shrink(10 * MIB);
        merge.try_grow(15 * MIB).unwrap();
        merge.shrink(15 * MIB);
        rows.try_grow(5 * MIB).unwrap();
    }
    let [(first, merge), (second, _)] = sorts;
    // The first reads its files: as many as its share allows.
    drop(first);
    assert_eq!(fill(&merge), 30);
    // That is nothing that the other could have.
    second.free();
    assert_eq!(fill(&second), 20);
    assert_eq!(fill(&last), 30);
    drop((merge, last));
    assert_eq!(fill(&second), 80);
    drop(second);
}

#[test]
fn the_limit_is_the_one_of_now() {
    let tenant = tenant(100 * MIB);
    let pool = sharing(&tenant);
    let (sorter, _idle) = (spiller(&pool, "a"), spiller(&pool, "b"));
    assert_eq!(fill(&sorter), 50);
    tenant.set_max(200 << 20);
    assert_eq!(fill(&sorter), 100);
    tenant.parent().unwrap().set_max(20 << 20);
    exhausted(sorter.try_grow(1));
    sorter.free();
    assert_eq!(fill(&sorter), 10);
    tenant.parent().unwrap().set_max(u64::MAX);
    tenant.set_max(u64::MAX);
    sorter.try_grow(1000 * MIB).unwrap();
}
