//! Limits: what holds them, what oversteps them, and what changes them.

use bursar::Limits;
use bursar_datafusion::{FairShare, GroupPool, Operators, PoolExt};
use datafusion_execution::memory_pool::{MemoryLimit, MemoryPool};

use crate::common::{MIB, child, exhausted, fixed, spiller, tenant, usage};

#[test]
fn requests_stay_within_the_limit() {
    let tenant = tenant(10 * MIB);
    let (one, other) = (child(&tenant, "one").pool(), child(&tenant, "other").pool());
    let (here, there) = (fixed(&one, "a"), fixed(&other, "a"));
    here.try_grow(6 * MIB).unwrap();
    exhausted(there.try_grow(4 * MIB + 1));
    there.try_grow(4 * MIB).unwrap();
    exhausted(here.try_grow(1));
    assert_eq!((one.reserved(), other.reserved()), (6 * MIB, 4 * MIB));
    assert_eq!(usage(&tenant), 10 * MIB);
    here.shrink(MIB);
    there.try_grow(MIB).unwrap();
    assert_eq!(here.free(), 5 * MIB);
    drop(there);
    assert_eq!(usage(&tenant), 0);
}

#[test]
fn overshooting_latches() {
    let tenant = tenant(10 * MIB);
    let pool = child(&tenant, "query").pool();
    let (one, other) = (fixed(&pool, "one"), spiller(&pool, "other"));
    one.grow(9 * MIB);
    assert_eq!(pool.report().overshot, 0);
    other.grow(3 * MIB);
    assert_eq!(usage(&tenant), 12 * MIB);
    assert_eq!(pool.report().overshot, 1);
    exhausted(one.try_grow(1));
    one.shrink(2 * MIB);
    exhausted(one.try_grow(1));
    one.shrink(MIB);
    one.try_grow(MIB).unwrap();
    exhausted(other.try_grow(1));
    assert_eq!(pool.report().overshot, 1);
}

#[test]
fn some_are_never_refused() {
    let tenant = tenant(10 * MIB);
    let query = child(&tenant, "query");
    let share = FairShare::new(&tenant);
    for with_share in [false, true] {
        let mut builder = GroupPool::builder(child(&query, "q")).never_refuse(["RepartitionExec"]);
        if with_share {
            builder = builder.share(&share);
        }
        let pool = builder.build();
        let sorter = spiller(&pool, "ExternalSorter[0]");
        let repartitions = [
            spiller(&pool, "RepartitionExec[0]"),
            fixed(&pool, "RepartitionExec[1]"),
        ];
        sorter.try_grow(2 * MIB).unwrap();
        for repartition in &repartitions {
            repartition.try_grow(6 * MIB).unwrap();
        }
        assert_eq!(usage(&tenant), 14 * MIB, "all of it counts");
        exhausted(sorter.try_grow(1));
        for repartition in &repartitions {
            repartition.try_grow(1).unwrap();
        }
        let report = pool.report();
        assert_eq!((report.refused, report.overshot), (1, 3), "{report}");
        // The sorter's, before there was a share. A request that succeeds is no refusal.
        assert_eq!(tenant.own_events().refused, 1);

        // A removed query ends.
        pool.remove().unwrap();
        for repartition in &repartitions {
            exhausted(repartition.try_grow(1));
        }
        drop((sorter, repartitions));
        assert_eq!(usage(&tenant), 0);
    }
}

/// Bytes of operators that are never refused are no spiller's, so they are not there to be shared.
#[test]
fn who_is_never_refused_shares_nothing() {
    let tenant = tenant(10 * MIB);
    let share = FairShare::new(&tenant);
    for operators in [Operators::ByName, Operators::Together, Operators::Each] {
        let pool = GroupPool::builder(child(&tenant, "query"))
            .operators(operators)
            .share(&share)
            .never_refuse(["RepartitionExec"])
            .build();
        let repartition = spiller(&pool, "RepartitionExec[0]");
        repartition.try_grow(6 * MIB).unwrap();
        let sorter = spiller(&pool, "ExternalSorter[0]");
        let refused = exhausted(sorter.try_grow(5 * MIB));
        assert!(refused.contains("share"), "{refused}");
        sorter.try_grow(MIB).unwrap();
        repartition.try_grow(4 * MIB).unwrap();
        // An entry that a spiller had does not make a spiller of the next.
        drop(sorter);
        let another = spiller(&pool, "RepartitionExec[1]");
        another.try_grow(MIB).unwrap();
        drop((repartition, another));
        assert_eq!(usage(&tenant), 0, "{operators:?}");
        pool.remove().unwrap();
    }
}

#[test]
fn limits_change_meanwhile() {
    let tenant = tenant(10 * MIB);
    let query = tenant.child("query", Limits::max(8 << 20)).unwrap();
    let pool = GroupPool::new(query.clone());
    let limit = || match pool.memory_limit() {
        MemoryLimit::Finite(bytes) => bytes,
        _ => usize::MAX,
    };
    let reservation = fixed(&pool, "a");
    assert_eq!(limit(), 8 * MIB);
    reservation.try_grow(8 * MIB).unwrap();
    exhausted(reservation.try_grow(1));
    query.set_max(20 << 20);
    assert_eq!(limit(), 10 * MIB);
    reservation.try_grow(2 * MIB).unwrap();
    exhausted(reservation.try_grow(1));
    tenant.set_max(4 << 20);
    assert_eq!(limit(), 4 * MIB);
    reservation.shrink(5 * MIB);
    exhausted(reservation.try_grow(1));
    reservation.shrink(2 * MIB);
    reservation.try_grow(MIB).unwrap();
    tenant.set_max(u64::MAX);
    query.set_max(u64::MAX);
    assert_eq!(limit(), usize::MAX);
    reservation.try_grow(100 * MIB).unwrap();
}

#[test]
fn requests_for_nothing_change_nothing() {
    for operators in [Operators::Together, Operators::ByName] {
        let tenant = tenant(MIB);
        let query = child(&tenant, "query");
        let pool = GroupPool::builder(query).operators(operators).build();
        let reservation = spiller(&pool, "a");
        reservation.try_grow(MIB).unwrap();
        // There is no room, and none is needed.
        reservation.try_grow(0).unwrap();
        reservation.grow(0);
        reservation.shrink(0);
        reservation.try_resize(MIB).unwrap();
        reservation.grow(1);
        reservation.try_grow(0).unwrap();
        let report = pool.report();
        assert_eq!((report.refused, report.overshot, report.spills), (0, 1, 0));
        drop(reservation);
        assert_eq!(pool.reserved(), 0);
    }
}

#[test]
fn absurd_requests_are_cut() {
    let tenant = tenant(MIB);
    let pool = child(&tenant, "query").pool();
    let (absurd, usual) = (fixed(&pool, "absurd"), fixed(&pool, "usual"));
    usual.try_grow(10).unwrap();
    exhausted(absurd.try_grow(usize::MAX));
    absurd.grow(usize::MAX / 2);
    assert!(pool.reserved() > 1 << 50);
    assert_eq!(absurd.free(), usize::MAX / 2);
    assert_eq!(pool.reserved(), 10);
    usual.try_grow(MIB - 10).unwrap();
}

#[test]
fn what_was_cut_is_returned_in_pieces() {
    for operators in [Operators::Together, Operators::ByName] {
        let query = child(&tenant(MIB), "query");
        let pool = GroupPool::builder(query).operators(operators).build();
        let (absurd, usual) = (fixed(&pool, "absurd"), fixed(&pool, "usual"));
        usual.grow(30);
        absurd.grow(1 << 60);
        // Twice, by two requests.
        absurd.grow(1 << 60);
        let parts = absurd.split(1 << 59);
        for _ in 0..16 {
            parts.shrink(1 << 55);
            // Bytes that other consumers return are theirs.
            usual.shrink(1);
        }
        assert!(pool.reserved() > 1 << 50);
        drop(absurd);
        if operators == Operators::ByName {
            assert_eq!(pool.reserved(), 14);
        }
        drop(usual);
        assert_eq!(pool.reserved(), 0);
        let usual = fixed(&pool, "usual");
        usual.try_grow(MIB).unwrap();
        exhausted(usual.try_grow(1));
        usual.shrink(1);
        assert_eq!(pool.reserved(), MIB - 1);
    }
}

#[test]
fn without_a_limit_there_is_none() {
    let tenant = tenant(MIB);
    tenant.set_max(u64::MAX);
    let pool = tenant.pool();
    assert!(matches!(pool.memory_limit(), MemoryLimit::Infinite));
    assert_eq!(pool.to_string(), "bursar(/tenant, used: 0 B)");
    tenant.set_max(1 << 20);
    let reservation = fixed(&pool, "a");
    reservation.grow(512);
    let shown = "bursar(/tenant, used: 512 B, limit: 1.00 MiB)";
    assert_eq!(pool.to_string(), shown);
    assert_eq!(pool.name(), "bursar");
}
