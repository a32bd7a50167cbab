//! Operators: what is charged where.

use std::sync::Arc;

use bursar::{Group, Limits};
use bursar_datafusion::{GroupPool, Operators, PoolExt};
use datafusion_common::Result;
use datafusion_execution::memory_pool::{MemoryConsumer, MemoryPool, MemoryReservation};

use crate::common::{KIB, MIB, child, exhausted, fixed, shared, spiller, tenant, usage};

fn names(group: &Group) -> Vec<String> {
    group.children().iter().map(Group::name).collect()
}

#[test]
fn partitions_are_together_by_name() {
    let query = child(&tenant(100 * MIB), "query");
    let pool = query.pool();
    let sorters = [0, 1].map(|partition| spiller(&pool, &format!("ExternalSorter[{partition}]")));
    let merge = fixed(&pool, "ExternalSorterMerge[0]");
    let slash = fixed(&pool, "of a/b");
    sorters[0].try_grow(MIB).unwrap();
    sorters[1].grow(2 * MIB);
    merge.try_grow(10 * KIB).unwrap();
    slash.try_grow(1).unwrap();
    let expected = ["ExternalSorter", "ExternalSorterMerge", "of a_b"];
    assert_eq!(names(&query), expected);
    let of = |name: &str| usage(&query.find(name).unwrap());
    assert_eq!(expected.map(of), [3 * MIB, 10 * KIB, 1]);
    // A second one of that name, and a reservation split off.
    let again = spiller(&pool, "ExternalSorter[0]");
    again.try_grow(5).unwrap();
    let split = sorters[0].split(KIB);
    assert_eq!(of("ExternalSorter"), 3 * MIB + 5);
    drop((sorters, again));
    assert_eq!(of("ExternalSorter"), KIB);
    drop(split);
    assert_eq!(of("ExternalSorter"), 0);
}

#[test]
fn together_there_are_none() {
    let query = child(&tenant(100 * MIB), "query");
    let together = GroupPool::builder(query.clone()).operators(Operators::Together);
    let pool = together.build();
    let sorter = spiller(&pool, "ExternalSorter[0]");
    sorter.try_grow(MIB).unwrap();
    assert!(names(&query).is_empty());
    assert!(pool.report().operators.is_empty());
    assert_eq!(usage(&query), MIB);
}

#[test]
fn each_has_its_own() {
    let query = child(&tenant(100 * MIB), "query");
    let pool = GroupPool::builder(query.clone())
        .operators(Operators::Each)
        .build();
    let sorters: Vec<_> = (0..100)
        .map(|_| spiller(&pool, "ExternalSorter[0]"))
        .collect();
    sorters
        .iter()
        .zip(1..)
        .for_each(|(sorter, bytes)| sorter.try_grow(bytes).unwrap());
    for (sorter, bytes) in sorters.iter().zip(1..) {
        let name = format!("ExternalSorter[0]#{}", sorter.consumer().id());
        assert_eq!(usage(&query.find(&name).unwrap()), bytes);
    }
    assert_eq!(names(&query).len(), 100);
    drop(sorters);
    let report = pool.report();
    assert_eq!(report.operators.len(), 100);
    assert!(
        report
            .operators
            .iter()
            .all(|one| one.reserved == 0 && one.consumers == 1)
    );
}

#[test]
fn an_operator_can_have_a_limit() {
    let query = child(&tenant(100 * MIB), "query");
    let limited = query.child("ExternalSorter", Limits::max(1 << 20)).unwrap();
    let pool = query.pool();
    let (sorter, join) = (
        spiller(&pool, "ExternalSorter[0]"),
        fixed(&pool, "HashJoinInput"),
    );
    join.try_grow(10 * MIB).unwrap();
    sorter.try_grow(MIB).unwrap();
    let text = exhausted(sorter.try_grow(1));
    assert!(
        text.contains("/tenant/query/ExternalSorter uses 1.00 MiB of at most 1.00 MiB"),
        "{text}"
    );
    assert_eq!(usage(&limited), MIB);
}

#[test]
fn without_room_for_a_group_the_query_is_charged() {
    // Groups nest 64 levels deep, and this is the last.
    let mut deepest = tenant(100 * MIB);
    for _ in 1..64 {
        deepest = child(&deepest, "x");
    }
    let pool = deepest.pool();
    let sorter = spiller(&pool, "ExternalSorter[0]");
    sorter.try_grow(MIB).unwrap();
    assert!(names(&deepest).is_empty());
    assert_eq!(usage(&deepest), MIB);
    drop(sorter);
    assert_eq!(pool.reserved(), 0);
}

/// A pool around another that forgets to pass registrations on.
#[derive(Debug)]
struct Forgetful(Arc<GroupPool>);

impl std::fmt::Display for Forgetful {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "forgetful({})", self.0)
    }
}

impl MemoryPool for Forgetful {
    fn name(&self) -> &str {
        "forgetful"
    }
    fn grow(&self, reservation: &MemoryReservation, bytes: usize) {
        self.0.grow(reservation, bytes);
    }
    fn shrink(&self, reservation: &MemoryReservation, bytes: usize) {
        self.0.shrink(reservation, bytes);
    }
    fn try_grow(&self, reservation: &MemoryReservation, bytes: usize) -> Result<()> {
        self.0.try_grow(reservation, bytes)
    }
    fn reserved(&self) -> usize {
        self.0.reserved()
    }
}

#[test]
fn who_never_registered_is_the_querys() {
    let query = child(&tenant(2 * MIB), "query");
    let pool: Arc<dyn MemoryPool> = Arc::new(Forgetful(query.pool()));
    let unknown = MemoryConsumer::new("unknown")
        .with_can_spill(true)
        .register(&pool);
    unknown.try_grow(MIB).unwrap();
    unknown.grow(KIB);
    exhausted(unknown.try_grow(MIB));
    assert!(names(&query).is_empty());
    assert_eq!(usage(&query), MIB + KIB);
    drop(unknown);
    assert_eq!(usage(&query), 0);
}

#[test]
fn two_pools_of_one_group_share_its_operators() {
    let query = child(&tenant(100 * MIB), "query");
    let pools = [query.pool(), query.pool()];
    let both = [fixed(&pools[0], "a[0]"), fixed(&pools[1], "a[0]")];
    both.iter().for_each(|one| one.try_grow(MIB).unwrap());
    assert_eq!(usage(&query.find("a").unwrap()), 2 * MIB);
    let [first, second] = pools;
    drop((first, both));
    assert_eq!(second.reserved(), 0);
    assert_eq!(shared(&second).reserved(), 0);
}
