//! Ends: of queries, groups and tasks.

use std::panic::{AssertUnwindSafe, catch_unwind};

use bursar::{Freshness, Limits, RemoveError};
use bursar_datafusion::{GroupPool, History, Operators, PoolExt};
use datafusion_execution::memory_pool::MemoryPool;

use crate::common::{KIB, MIB, child, exhausted, fixed, spiller, tenant, usage};

#[test]
fn finished_operators_stay_visible() {
    let tenant = tenant(10 * MIB);
    let pool = child(&tenant, "query").pool();
    let sorter = spiller(&pool, "ExternalSorter[0]");
    sorter.try_grow(8 * MIB).unwrap();
    exhausted(sorter.try_grow(8 * MIB));
    exhausted(sorter.try_grow(8 * MIB));
    // It spills.
    sorter.free();
    sorter.try_grow(4 * MIB).unwrap();
    sorter.free();
    drop(sorter);
    let report = pool.report();
    let [sort] = &report.operators[..] else {
        panic!("{report}")
    };
    assert_eq!(
        (sort.name.as_str(), sort.consumers, sort.can_spill),
        ("ExternalSorter", 1, true)
    );
    assert_eq!((sort.reserved, sort.refused, sort.spills), (0, 2, 1));
    assert!((8 << 20..=10 << 20).contains(&sort.peak), "{report}");
    assert_eq!(
        (report.path.as_str(), report.reserved),
        ("/tenant/query", 0)
    );
    assert_eq!((report.refused, report.spills, report.overshot), (2, 1, 0));
    assert!(report.peak >= sort.peak);
    let last = report.last_refusal.expect("two");
    assert_eq!((last.requested, &last.limited[..]), (8 << 20, "/tenant"));
    assert_eq!(last.report.largest[1].path, "/tenant/query/ExternalSorter");
}

#[test]
fn refusals_and_spills_are_counted_without_operators() {
    let query = child(&tenant(10 * MIB), "query");
    let pool = GroupPool::builder(query)
        .operators(Operators::Together)
        .build();
    let (sorter, join) = (
        spiller(&pool, "ExternalSorter[0]"),
        fixed(&pool, "HashJoinInput"),
    );
    sorter.try_grow(8 * MIB).unwrap();
    join.try_grow(MIB).unwrap();
    exhausted(join.try_grow(8 * MIB));
    // One cannot spill, the other had nothing to spill.
    join.free();
    let idle = spiller(&pool, "ExternalSorter[1]");
    exhausted(idle.try_grow(8 * MIB));
    idle.try_grow(1).unwrap();
    drop(idle);
    assert_eq!(pool.report().spills, 0);
    exhausted(sorter.try_grow(8 * MIB));
    sorter.shrink(1);
    sorter.shrink(1);
    let report = pool.report();
    assert_eq!((report.refused, report.spills), (3, 1));
}

#[test]
fn a_history_keeps_the_last_queries() {
    let tenant = tenant(10 * MIB);
    let history = History::new(3);
    for number in 0..5 {
        let query = child(&tenant, &format!("query-{number}"));
        let pool = GroupPool::builder(query).history(&history).build();
        let sorter = spiller(&pool, "ExternalSorter[0]");
        sorter.try_grow((number + 1) * MIB).unwrap();
        drop(pool);
        // A reservation keeps the pool, and so the query.
        let kept = history.finished();
        assert!(
            kept.iter()
                .all(|report| report.path != format!("/tenant/query-{number}"))
        );
        assert_eq!(tenant.children().len(), 1);
        drop(sorter);
        assert!(tenant.children().is_empty());
    }
    let finished = history.finished();
    let paths: Vec<_> = finished.iter().map(|report| report.path.as_str()).collect();
    assert_eq!(
        paths,
        ["/tenant/query-2", "/tenant/query-3", "/tenant/query-4"]
    );
    for (report, mib) in finished.iter().zip(3..) {
        assert_eq!(report.reserved, 0);
        assert!(
            report.peak >= mib << 20 && report.operators[0].peak >= mib << 20,
            "{report}"
        );
    }
    History::new(0);
}

#[test]
fn a_pool_outlives_its_group() {
    for operators in [Operators::Together, Operators::ByName] {
        let tenant = tenant(10 * MIB);
        let query = child(&tenant, "query");
        let pool = GroupPool::builder(query.clone())
            .operators(operators)
            .build();
        let sorter = spiller(&pool, "ExternalSorter[0]");
        sorter.try_grow(MIB).unwrap();
        pool.remove().unwrap();
        pool.remove().unwrap();
        assert!(query.is_removed() && tenant.find("query").is_none());
        exhausted(sorter.try_grow(1));
        sorter.try_grow(0).unwrap();
        sorter.grow(KIB);
        sorter.shrink(1);
        for operator in pool.report().operators {
            assert_eq!(operator.reserved, (MIB + KIB - 1) as u64);
        }
        // A consumer that comes now is not refused either.
        let late = fixed(&pool, "late");
        exhausted(late.try_grow(1));
        late.grow(5);
        assert_eq!(pool.reserved(), MIB + KIB + 4);
        assert_eq!(usage(&tenant), MIB + KIB + 4);
        drop((sorter, late));
        assert_eq!((pool.reserved(), usage(&tenant)), (0, 0));
    }
}

#[test]
fn others_groups_are_left() {
    let tenant = tenant(10 * MIB);
    let query = child(&tenant, "query");
    let limited = query
        .child("ExternalSorter", Limits::max(MIB as u64))
        .unwrap();
    let pools = [query.pool(), query.pool()];
    let _sorter = spiller(&pools[0], "ExternalSorter[0]");
    let both = [fixed(&pools[0], "a"), fixed(&pools[1], "a")];
    // It has neither made the sorter's nor, as the second of two, that of "a".
    let refused = pools[1].remove();
    assert_eq!(refused, Err(RemoveError::HasChildren { children: 2 }));
    both[0].try_grow(1).unwrap();
    // This one has made that of "a".
    let refused = pools[0].remove();
    assert_eq!(refused, Err(RemoveError::HasChildren { children: 1 }));
    assert!(!limited.is_removed());
    exhausted(both[1].try_grow(1));
    limited.remove().unwrap();
    pools[0].remove().unwrap();
    assert!(query.is_removed());
}

#[test]
fn a_group_removed_by_its_handle() {
    let query = child(&tenant(10 * MIB), "query");
    let pool = query.pool();
    let sorter = spiller(&pool, "ExternalSorter[0]");
    // With operators below it, only the pool can.
    assert_eq!(
        query.remove(),
        Err(RemoveError::HasChildren { children: 1 })
    );
    sorter.try_grow(1).unwrap();
    drop((sorter, pool));
    query.remove().unwrap();
    let pool = query.pool();
    let sorter = spiller(&pool, "ExternalSorter[0]");
    let text = exhausted(sorter.try_grow(1));
    assert!(text.contains("the query's group was removed"), "{text}");
    sorter.grow(1);
    assert_eq!(pool.reserved(), 1);
    drop(sorter);
    assert_eq!(pool.reserved(), 0);
}

#[test]
fn a_panic_returns_what_was_charged() {
    let tenant = tenant(10 * MIB);
    let history = History::new(1);
    let pool = GroupPool::builder(child(&tenant, "query"))
        .history(&history)
        .build();
    let unwound = catch_unwind(AssertUnwindSafe(|| {
        let sorter = spiller(&pool, "ExternalSorter[0]");
        sorter.try_grow(MIB).unwrap();
        let _split = sorter.split(KIB);
        // More than there is: DataFusion panics, having changed nothing.
        sorter.shrink(2 * MIB);
    }));
    assert!(unwound.is_err());
    assert_eq!(usage(&tenant), 0);
    drop(pool);
    assert_eq!(history.finished()[0].reserved, 0);
    assert_eq!(tenant.read(Freshness::Exact).unwrap().usage().value, 0);
}

#[test]
fn a_query_whose_pool_somebody_keeps_is_finished_when_it_is_removed() {
    let history = History::new(3);
    let pool = GroupPool::builder(child(&tenant(10 * MIB), "query"))
        .history(&history)
        .build();
    spiller(&pool, "ExternalSorter[0]").try_grow(MIB).unwrap();
    assert!(history.finished().is_empty());
    pool.remove().unwrap();
    let finished = history.finished();
    assert_eq!((finished.len(), finished[0].reserved), (1, 0));
    assert!(finished[0].peak >= MIB as u64);
    // Once.
    pool.remove().unwrap();
    drop(pool);
    assert_eq!(history.finished().len(), 1);
}

#[test]
fn a_query_that_ends_with_bytes_names_who_holds_them() {
    let tenant = tenant(10 * MIB);
    let history = History::new(3);
    let pool = GroupPool::builder(child(&tenant, "query"))
        .history(&history)
        .build();
    let sorters = ["ExternalSorter[0]", "ExternalSorter[1]"].map(|name| spiller(&pool, name));
    let join = fixed(&pool, "HashJoinInput");
    sorters[1].try_grow(MIB).unwrap();
    join.try_grow(KIB).unwrap();
    fixed(&pool, "Finished").try_grow(MIB).unwrap();
    assert!(pool.report().leftovers.is_empty(), "it runs");
    pool.remove().unwrap();
    let finished = history.finished();
    let [sort, joined] = &finished[0].leftovers[..] else {
        panic!("{}", finished[0])
    };
    assert_eq!(
        (&sort.operator[..], sort.bytes),
        ("ExternalSorter", MIB as u64)
    );
    let numbers = sorters.each_ref().map(|sorter| sorter.consumer().id());
    let names = [0, 1].map(|at| format!("ExternalSorter[{at}]#{}", numbers[at]));
    assert_eq!(sort.consumers, names);
    assert_eq!(
        (&joined.operator[..], joined.bytes),
        ("HashJoinInput", KIB as u64)
    );
    assert!(joined.consumers.len() == 1 && joined.age <= sort.age);
    // The memory has the same by groups, and the holders of the bytes return them.
    let left = tenant.memory().leftovers();
    let left: Vec<_> = left
        .iter()
        .map(|left| (&left.path[..], left.bytes))
        .collect();
    let expected = [
        ("/tenant/query/ExternalSorter", MIB as u64),
        ("/tenant/query/HashJoinInput", KIB as u64),
    ];
    assert_eq!(left, expected);
    drop((sorters, join));
    assert!(pool.report().leftovers.is_empty());
    assert!(tenant.memory().leftovers().is_empty());
}

#[test]
fn bytes_of_a_forgotten_reservation_have_no_consumer() {
    let tenant = tenant(10 * MIB);
    let pool = GroupPool::builder(child(&tenant, "query"))
        .operators(Operators::Together)
        .build();
    let [held, forgotten] = ["Sort", "Join"].map(|name| fixed(&pool, name));
    forgotten.try_grow(MIB).unwrap();
    drop(held);
    // Its consumer stays registered.
    std::mem::forget(forgotten);
    pool.remove().unwrap();
    let report = pool.report();
    let [left] = &report.leftovers[..] else {
        panic!("{report}")
    };
    assert_eq!(
        (&left.operator[..], left.bytes, left.consumers.len()),
        ("", MIB as u64, 1)
    );
}
