//! Early spills: between a high and a low watermark.

use std::sync::Arc;

use bursar::{Group, Level, Limits, Memory, PressurePolicy};
use bursar_datafusion::{GroupPool, Operators};

use crate::common::{MIB, child, exhausted, fixed, spiller};

/// A tenant of 100 MiB, pressed from 80 on until below 60.
fn tenant() -> Group {
    let policy = PressurePolicy::default()
        .usage_percent([70, 80, 95])
        .release_percent(20);
    let memory = Memory::builder().pressure_policy(policy).build().unwrap();
    memory
        .root()
        .child("tenant", Limits::max(100 << 20))
        .unwrap()
}

fn pool(tenant: &Group, operators: Operators) -> Arc<GroupPool> {
    let builder = GroupPool::builder(child(tenant, "query"));
    builder.operators(operators).spill_from(Level::High).build()
}

#[test]
fn spillers_are_asked_between_the_watermarks() {
    for operators in [Operators::Together, Operators::ByName, Operators::Each] {
        let tenant = tenant();
        let pool = pool(&tenant, operators);
        let (sorter, join) = (
            spiller(&pool, "ExternalSorter"),
            fixed(&pool, "HashJoinInput"),
        );
        join.try_grow(30 * MIB).unwrap();
        sorter.try_grow(45 * MIB).unwrap();
        sorter.try_grow(4 * MIB).unwrap();
        // Over the high watermark with this.
        sorter.try_grow(4 * MIB).unwrap();
        exhausted(sorter.try_grow(MIB));
        // A consumer that cannot spill goes on.
        join.try_grow(MIB).unwrap();
        // Once asked, it gets what it needs to spill.
        sorter.try_grow(MIB).unwrap();
        sorter.shrink(10 * MIB);
        // Not below the low watermark yet.
        exhausted(sorter.try_grow(MIB));
        sorter.free();
        sorter.try_grow(40 * MIB).unwrap();
        let report = pool.report();
        assert_eq!((report.refused, report.spills), (2, 2));
    }
}

#[test]
fn pressure_of_others_asks_too() {
    let tenant = tenant();
    let pool = pool(&tenant, Operators::ByName);
    let sorter = spiller(&pool, "ExternalSorter");
    sorter.try_grow(30 * MIB).unwrap();
    let other = child(&tenant, "other").try_charge(55 << 20).unwrap();
    let text = exhausted(sorter.try_grow(MIB));
    let said = "/tenant is under high pressure, so this consumer is asked to spill";
    assert!(text.contains(said), "{text}");
    drop(other);
    // It would be asked again now.
    sorter.shrink(1);
    sorter.try_grow(MIB).unwrap();
}

#[test]
fn who_holds_little_is_left_alone() {
    let tenant = tenant();
    let pool = pool(&tenant, Operators::ByName);
    let sorters = [(); 4].map(|()| spiller(&pool, "ExternalSorter"));
    let _other = child(&tenant, "other").try_charge(85 << 20).unwrap();
    // A quarter of an even share of 100 MiB among four.
    let worth = (100 * MIB) / 16;
    sorters[0].try_grow(1).unwrap();
    sorters[0].try_grow(worth - 2).unwrap();
    sorters[0].try_grow(1).unwrap();
    exhausted(sorters[0].try_grow(1));
}

#[test]
fn the_pool_is_not_kept_by_its_watch() {
    let tenant = tenant();
    let pool = pool(&tenant, Operators::ByName);
    let weak = Arc::downgrade(&pool);
    drop(pool);
    assert!(weak.upgrade().is_none() && tenant.children().is_empty());
}
