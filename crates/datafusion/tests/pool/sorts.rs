//! Bytes that are kept for a sort while it merges, and while a limit is exceeded.

use std::sync::{Arc, Barrier};

use bursar::Group;
use bursar_datafusion::{GroupPool, Operators};
use datafusion_execution::memory_pool::{MemoryPool, MemoryReservation};

use crate::common::{MIB, child, exhausted, fixed, spiller, tenant, usage};

/// A sort's consumers, registered as DataFusion does: rows, and the merge.
fn sort(pool: &Arc<GroupPool>, partition: usize) -> (MemoryReservation, MemoryReservation) {
    (
        spiller(pool, &format!("ExternalSorter[{partition}]")),
        fixed(pool, &format!("ExternalSorterMerge[{partition}]")),
    )
}

fn pool(tenant: &Group, operators: Operators) -> Arc<GroupPool> {
    let builder = GroupPool::builder(child(tenant, "query"));
    builder.operators(operators).build()
}

fn kept(pool: &GroupPool) -> usize {
    pool.report().kept as usize
}

#[test]
fn what_a_sort_returns_above_a_limit_is_for_its_merge() {
    for operators in [Operators::Together, Operators::ByName, Operators::Each] {
        let tenant = tenant(100 * MIB);
        let pool = pool(&tenant, operators);
        let (rows, merge) = sort(&pool, 0);
        let other = fixed(&pool, "HashJoinInput");
        merge.try_grow(10 * MIB).unwrap();
        rows.try_grow(80 * MIB).unwrap();
        tenant.set_max(40 << 20);
        exhausted(rows.try_grow(2 * MIB));
        merge.free();
        assert_eq!((kept(&pool), usage(&tenant)), (10 * MIB, 90 * MIB));
        // It is that sort's alone.
        exhausted(other.try_grow(1));
        exhausted(rows.try_grow(11 * MIB));
        // Sorted rows need half of what was reserved.
        rows.shrink(40 * MIB);
        assert_eq!((kept(&pool), usage(&tenant)), (50 * MIB, 90 * MIB));
        for _ in 0..20 {
            // A batch leaves the rows; the merge needs a cursor and the batch.
            rows.shrink(2 * MIB);
            merge.try_grow(2 * MIB).unwrap();
            merge.try_grow(2 * MIB).unwrap();
            // Rows get none of it meanwhile.
            assert_eq!(rows.try_grow(MIB).is_ok(), merge.size() <= 10 * MIB);
            if merge.size() <= 10 * MIB {
                rows.shrink(MIB);
            }
        }
        assert_eq!((rows.size(), merge.size()), (0, 80 * MIB));
        // Rows that are written are returned.
        merge.shrink(30 * MIB);
        assert_eq!(usage(&tenant), 50 * MIB + kept(&pool));
        assert!(usage(&tenant) <= 90 * MIB);
        merge.shrink(20 * MIB);
        exhausted(other.try_grow(20 * MIB));
        // Within the limit nothing is kept.
        merge.free();
        merge.try_grow(10 * MIB).unwrap();
        rows.try_grow(2 * MIB).unwrap();
        assert_eq!((kept(&pool), usage(&tenant)), (0, 12 * MIB));
        other.try_grow(28 * MIB).unwrap();
    }
}

/// A sort that has spilled goes on, although the others still exceed the limit.
#[test]
fn a_sort_that_spilled_has_what_it_needs_next() {
    let tenant = tenant(100 * MIB);
    let pool = pool(&tenant, Operators::ByName);
    let (rows, merge) = sort(&pool, 0);
    let _other = fixed(&pool, "HashJoinInput");
    _other.try_grow(50 * MIB).unwrap();
    merge.try_grow(10 * MIB).unwrap();
    rows.try_grow(30 * MIB).unwrap();
    tenant.set_max(40 << 20);
    exhausted(rows.try_grow(3 * MIB));
    merge.free();
    // The merge has not requested them yet.
    rows.free();
    assert_eq!((kept(&pool), usage(&tenant)), (40 * MIB, 90 * MIB));
    merge.try_grow(10 * MIB).unwrap();
    rows.try_grow(3 * MIB).unwrap();
    assert_eq!((kept(&pool), usage(&tenant)), (0, 63 * MIB));
    exhausted(rows.try_grow(1));
}

#[test]
fn two_sorts_that_begin_at_the_same_moment_keep_apart() {
    let tenant = tenant(100 * MIB);
    let pool = pool(&tenant, Operators::ByName);
    let one = spiller(&pool, "ExternalSorter[0]");
    let (between, ended) = (&Barrier::new(2), &Barrier::new(2));
    let pool = &pool;
    std::thread::scope(|scope| {
        scope.spawn(move || {
            let _two = spiller(pool, "ExternalSorter[0]");
            between.wait();
            ended.wait();
            let _merge = fixed(pool, "ExternalSorterMerge[0]");
        });
        between.wait();
        let merge = fixed(pool, "ExternalSorterMerge[0]");
        ended.wait();
        merge.try_grow(10 * MIB).unwrap();
        one.try_grow(30 * MIB).unwrap();
        merge.free();
        assert_eq!((kept(pool), usage(&tenant)), (10 * MIB, 40 * MIB));
    });
}

#[test]
fn sorts_of_one_name_keep_apart_and_leave_nothing() {
    let tenant = tenant(100 * MIB);
    let pool = pool(&tenant, Operators::ByName);
    let [one, two] = [sort(&pool, 0), sort(&pool, 0)];
    for (rows, merge) in [&one, &two] {
        merge.try_grow(10 * MIB).unwrap();
        rows.try_grow(30 * MIB).unwrap();
    }
    tenant.set_max(20 << 20);
    one.1.free();
    exhausted(two.1.try_grow(1));
    two.0.shrink(MIB);
    two.1.try_grow(MIB).unwrap();
    exhausted(two.1.try_grow(1));
    assert_eq!((kept(&pool), usage(&tenant)), (10 * MIB, 80 * MIB));
    // The merge goes on after the end of the rows' consumer, with what that returned.
    drop(one.0);
    assert_eq!((kept(&pool), usage(&tenant)), (30 * MIB, 70 * MIB));
    two.1.shrink(5 * MIB);
    assert_eq!((kept(&pool), usage(&tenant)), (35 * MIB, 70 * MIB));
    drop(two.1);
    two.0.shrink(MIB);
    assert_eq!((kept(&pool), usage(&tenant)), (30 * MIB, 58 * MIB));
    drop((one.1, two.0));
    assert_eq!((pool.reserved(), usage(&tenant)), (0, 0));
}

/// A sort whose rows fit merges them for its output. It keeps what they return, and lends it to others until a limit is lowered.
#[test]
fn a_merge_in_memory_has_what_its_rows_return() {
    for operators in [Operators::Together, Operators::ByName, Operators::Each] {
        let tenant = tenant(100 * MIB);
        let pool = pool(&tenant, operators);
        let (rows, merge) = sort(&pool, 0);
        let other = fixed(&pool, "HashJoinInput");
        merge.try_grow(10 * MIB).unwrap();
        rows.try_grow(40 * MIB).unwrap();
        // Other threads sort all rows, and end, before the merge asks.
        merge.free();
        rows.shrink(20 * MIB);
        drop(rows);
        assert_eq!((kept(&pool), usage(&tenant)), (40 * MIB, 40 * MIB));
        other.try_grow(65 * MIB).unwrap();
        assert_eq!((kept(&pool), usage(&tenant)), (35 * MIB, 100 * MIB));
        tenant.set_max(20 << 20);
        exhausted(other.try_grow(1));
        merge.try_grow(30 * MIB).unwrap();
        exhausted(merge.try_grow(6 * MIB));
        merge.try_grow(5 * MIB).unwrap();
        assert_eq!((kept(&pool), usage(&tenant)), (0, 100 * MIB));
        // Rows that it puts out are returned.
        merge.shrink(10 * MIB);
        assert_eq!((kept(&pool), usage(&tenant)), (10 * MIB, 100 * MIB));
        merge.shrink(15 * MIB);
        assert_eq!((kept(&pool), usage(&tenant)), (10 * MIB, 85 * MIB));
        drop(merge);
        assert_eq!((kept(&pool), usage(&tenant)), (0, 65 * MIB));
    }
}

/// An operator's own limit holds for bytes that were kept.
#[test]
fn an_operators_own_limit_holds() {
    let tenant = tenant(100 * MIB);
    let query = child(&tenant, "query");
    let merges = child(&query, "ExternalSorterMerge");
    let pool = GroupPool::new(query);
    let (rows, merge) = sort(&pool, 0);
    rows.try_grow(50 * MIB).unwrap();
    tenant.set_max(20 << 20);
    merges.set_max(5 << 20);
    rows.shrink(20 * MIB);
    exhausted(merge.try_grow(6 * MIB));
    merge.try_grow(5 * MIB).unwrap();
    assert_eq!((kept(&pool), usage(&tenant)), (15 * MIB, 50 * MIB));
}
