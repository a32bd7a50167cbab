//! Promises of the facade, one promise a test, single-threaded.

use crate::common::Short;
use std::future::Future;
use std::pin::pin;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use bursar::engine::{NowaitError, RemoveError};
use bursar::{
    Charge, ChargeError, Counter, CreateError, FlushPolicy, Freshness, Gauge, Group, Limits,
    Memory, MemoryError, MoveError, SplitError, Statistic,
};

const STATISTICS: &[Statistic] = &[
    Statistic::counter("rows"),
    Statistic::gauge("open").eager(),
    Statistic::gauge("spilled").batch(100),
    Statistic::counter("faults").per_node(),
];
const ROWS: Counter = Counter::of(STATISTICS, "rows");
const OPEN: Gauge = Gauge::of(STATISTICS, "open");
const SPILLED: Gauge = Gauge::of(STATISTICS, "spilled");
const FAULTS: Counter = Counter::of(STATISTICS, "faults");

fn memory() -> Memory {
    Memory::builder().statistics(STATISTICS).build().unwrap()
}

#[test]
fn a_charge_is_seen_up_to_the_root_and_returned_on_drop() {
    let memory = memory();
    let tenant = memory.make_max("tenant", 1 << 30);
    let query = tenant.make("query");
    let charge = query.try_charge(5000).unwrap();
    for group in [&query, &tenant, &memory.root()] {
        let reading = group.exact();
        assert_eq!(reading.usage().value, 5000, "{group:?}");
        assert_eq!((reading.usage().lo, reading.usage().hi), (5000, 5000));
        assert!(group.reserved() >= 5000);
    }
    drop(charge);
    for group in [&query, &tenant, &memory.root()] {
        assert_eq!(group.used(), 0);
    }
    assert!(query.engine().peak() >= 5000);
}

#[test]
fn statistics_add_up() {
    let memory = memory();
    let tenant = memory.make("tenant");
    let one = tenant.make("one");
    let two = tenant.make("two");
    one.add(ROWS, 3);
    two.add(ROWS, 4);
    tenant.add(ROWS, 5);
    one.add(OPEN, 2);
    tenant.add(OPEN, -1);
    one.add(SPILLED, -250);
    two.add(FAULTS, 9);
    assert_eq!(
        memory
            .root()
            .read(Freshness::Cached)
            .unwrap()
            .get(OPEN)
            .value,
        1,
        "eager"
    );
    let reading = tenant.exact();
    assert_eq!(reading.get(ROWS).value, 12);
    assert_eq!(reading.own(ROWS), 5);
    assert_eq!((reading.get(OPEN).value, reading.own(OPEN)), (1, -1));
    assert_eq!(reading.get(SPILLED).value, -250);
    assert_eq!(reading.per_node(FAULTS).unwrap().iter().sum::<i64>(), 9);
    assert_eq!(reading.per_node(ROWS), None);
    assert_eq!(two.rows(), 4);
    assert_eq!(memory.rows(), 12);
    assert_eq!(memory.exact().own(ROWS), 0);
    let names: Vec<_> = reading
        .iter()
        .map(|(name, value)| (name, value.value))
        .collect();
    assert_eq!(
        names,
        [("rows", 12), ("open", 1), ("spilled", -250), ("faults", 9)]
    );
}

#[test]
fn cached_numbers_are_old_and_say_so() {
    let memory = memory();
    let tenant = memory.make("tenant");
    let query = tenant.make("query");
    query.add(SPILLED, 30);
    query.add(ROWS, 1);
    let charge = query.try_charge(1000).unwrap();
    let cached = tenant.read(Freshness::Cached).unwrap();
    assert_eq!(cached.get(SPILLED).value, 0);
    assert!(cached.get(SPILLED).hi >= 30 && cached.get(SPILLED).lo <= 0);
    assert_eq!(cached.get(ROWS).error(), u64::MAX, "not batched: no bound");
    assert!(cached.usage().lo <= 1000 && cached.usage().hi >= 1000);
    let error = cached.get(SPILLED).error();
    let wide = tenant
        .read(Freshness::Within(error.max(cached.usage().error())))
        .unwrap();
    assert_eq!(wide.get(SPILLED).value, 0, "within bounds without a flush");
    let narrow = tenant.read(Freshness::Within(10)).unwrap();
    assert_eq!(
        narrow.get(SPILLED).value,
        30,
        "flushed because the bound was too wide"
    );
    let fresh = tenant
        .read(Freshness::AtMost(Duration::from_secs(3600)))
        .unwrap();
    assert_eq!(fresh.get(ROWS).value, 1);
    query.add(ROWS, 1);
    let old_enough = tenant
        .read(Freshness::AtMost(Duration::from_secs(3600)))
        .unwrap();
    assert_eq!(old_enough.get(ROWS).value, 1);
    let now = tenant.read(Freshness::AtMost(Duration::ZERO)).unwrap();
    assert_eq!(now.get(ROWS).value, 2);
    assert!(now.age() < Duration::from_secs(3600));
    drop(charge);
}

#[test]
fn batched_reports_bound_the_error() {
    let memory = memory();
    let tenant = memory.make("tenant");
    let query = tenant.make("query");
    let mut truth = 0;
    for step in 1..2000_i64 {
        let delta = if step % 7 == 0 { -step } else { step % 90 };
        truth += delta;
        query.add(SPILLED, delta);
        let value = tenant.read(Freshness::Cached).unwrap().get(SPILLED);
        assert!(
            value.lo <= truth && truth <= value.hi,
            "{truth} is not in {value:?}"
        );
        if step % 50 == 0 {
            assert_eq!(tenant.exact().get(SPILLED).value, truth);
        }
    }
}

#[test]
fn periodic_only_never_flushes_for_a_reader() {
    let memory = Memory::builder()
        .statistics(STATISTICS)
        .policy(FlushPolicy::PeriodicOnly)
        .flush_period(Duration::ZERO)
        .build()
        .unwrap();
    let tenant = memory.make("tenant");
    tenant.add(ROWS, 7);
    let refused = tenant.read(Freshness::Exact).unwrap_err();
    assert_eq!(refused.cached.get(ROWS).value, 0);
    memory.tick();
    assert_eq!(tenant.read(Freshness::Cached).unwrap().get(ROWS).value, 7);
    assert_eq!(memory.flush_counts().root, 1);
}

#[test]
fn names_are_checked() {
    let memory = memory();
    let root = memory.root();
    let make = |name: &str| root.child(name, Limits::none());
    assert_eq!(make("").unwrap_err(), CreateError::EmptyName);
    assert_eq!(
        make(&"x".repeat(256)).unwrap_err(),
        CreateError::LongName { bytes: 256 }
    );
    assert!(matches!(
        make("a/b").unwrap_err(),
        CreateError::BadName { .. }
    ));
    assert!(matches!(
        make("a\0b").unwrap_err(),
        CreateError::BadName { .. }
    ));
    let longest = make(&"x".repeat(255)).unwrap();
    let group = make("a").unwrap();
    let again = make("a").unwrap_err();
    assert_eq!(
        again,
        CreateError::Exists {
            path: "/a".to_owned()
        }
    );
    assert!(again.to_string().contains("/a"));
    assert_eq!(root.children().len(), 2);
    assert_eq!(memory.find("/a").unwrap().path(), "/a");
    assert!(memory.find("a/none").is_none());
    drop((longest, group));
    assert_eq!(
        root.children().len(),
        0,
        "a group ends with its last handle"
    );
}

#[test]
fn groups_nest_to_a_stated_depth() {
    let memory = memory();
    let mut groups = vec![memory.root()];
    loop {
        match groups.last().unwrap().child("deeper", Limits::none()) {
            Ok(child) => groups.push(child),
            Err(error) => {
                assert_eq!(error, CreateError::TooDeep);
                break;
            }
        }
    }
    assert_eq!(groups.len(), 65);
    let deepest = groups.last().unwrap();
    deepest.add(ROWS, 1);
    assert_eq!(memory.rows(), 1);
}

#[test]
fn odd_sizes_are_refused_and_nothing_is_lost() {
    let memory = memory();
    let group = memory.make_max("group", 1 << 20);
    let zero = group.try_charge(0).unwrap();
    assert_eq!(zero.bytes(), 0);
    assert_eq!(
        group.try_charge(u64::MAX).unwrap_err(),
        ChargeError::TooLarge {
            requested: u64::MAX
        }
    );
    assert_eq!(
        group.engine().try_charge_nowait(u64::MAX).unwrap_err(),
        NowaitError::TooLarge
    );
    assert!(matches!(
        group.try_charge(2 << 20),
        Err(ChargeError::LimitReached(_))
    ));
    assert_eq!(
        group.engine().try_charge_nowait(2 << 20).unwrap_err(),
        NowaitError::LimitReached
    );
    let huge: Vec<_> = (0..100).map(|_| group.charge(u64::MAX)).collect();
    let held: u64 = huge.iter().map(bursar::Charge::bytes).sum();
    assert_eq!(group.used(), held as i64);
    assert!(held <= 1 << 62);
    drop(huge);
    let mut none = group.charge(0);
    assert_eq!(none.bytes(), 0);
    none.resize(100).unwrap();
    assert!(none.resize(u64::MAX).is_err());
    assert_eq!(none.bytes(), 100);
    drop((zero, none));
    assert_eq!(group.used(), 0);
}

#[test]
fn a_refusal_names_the_ancestor_and_its_biggest_children() {
    let memory = memory();
    let tenant = memory.make_max("tenant", 1 << 20);
    let small = tenant.make("small");
    let big = tenant.make("big");
    let held = (
        small.try_charge(100 << 10).unwrap(),
        big.try_charge(800 << 10).unwrap(),
    );
    let ChargeError::LimitReached(reached) = small.try_charge(200 << 10).unwrap_err() else {
        panic!("a limit");
    };
    assert_eq!(reached.charged, "/tenant/small");
    assert_eq!(reached.limited, "/tenant");
    assert_eq!(reached.usage, 900 << 10, "stock was taken back");
    assert_eq!(reached.max, 1 << 20);
    assert_eq!(reached.largest[0], ("big".to_owned(), 800 << 10));
    let text = reached.to_string();
    for part in [
        "200 KiB",
        "/tenant/small",
        "/tenant uses 900 KiB of 1.00 MiB",
        "big 800 KiB",
    ] {
        assert!(text.contains(part), "{text}");
    }
    assert_eq!(tenant.engine().own_events().refused, 1);
    drop(held);
}

#[test]
fn an_infallible_charge_latches() {
    let memory = memory();
    let tenant = memory.make_max("tenant", 1 << 20);
    let query = tenant.make("query");
    let warm = query.try_charge(100).unwrap();
    let over = query.charge(2 << 20);
    assert!(tenant.engine().is_over_max());
    assert_eq!(tenant.engine().own_events().overshot, 1);
    assert_eq!(tenant.reserved(), (2 << 20) + 100, "no stock is left");
    assert!(query.try_charge(1).is_err());
    drop(warm);
    assert!(
        query.try_charge(1).is_err(),
        "what was returned does not become stock above the limit"
    );
    drop(over);
    assert!(query.try_charge(1).is_ok());
}

#[test]
fn limits_change_while_in_use() {
    let memory = memory();
    let tenant = memory.make_max("tenant", 1 << 20);
    let query = tenant.make("query");
    let held = query.try_charge(500 << 10).unwrap();
    tenant.set_max(100 << 10);
    assert_eq!(tenant.limits().max, 100 << 10);
    assert!(tenant.engine().is_over_max());
    assert!(query.try_charge(1).is_err());
    tenant.set_max(600 << 10);
    let more = query.try_charge(100 << 10).unwrap();
    assert!(query.try_charge(1).is_err());
    drop((held, more));
    assert!(query.try_charge(600 << 10).is_ok());
    memory.root().set_max(50);
    assert!(query.try_charge(51).is_err());
    assert!(query.try_charge(50).is_ok());
}

#[test]
fn charges_resize_split_merge_and_move() {
    let memory = memory();
    let tenant = memory.make_max("tenant", 1000);
    let one = tenant.make("one");
    let two = tenant.make_max("two", 500);
    let usage = |group: &bursar::Group| group.used();
    let mut charge = one.try_charge(900).unwrap();
    let part = charge.split(400).unwrap();
    assert_eq!((charge.bytes(), part.bytes(), usage(&one)), (500, 400, 900));
    let refused = charge.split(501).unwrap_err();
    assert_eq!(
        refused,
        SplitError {
            requested: 501,
            held: 500
        }
    );
    charge.merge(part).unwrap();
    assert_eq!(charge.bytes(), 900);
    assert!(matches!(
        charge.move_to(&two),
        Err(MoveError::Refused(ChargeError::LimitReached(_)))
    ));
    assert_eq!(
        (charge.group_path(), usage(&one)),
        ("/tenant/one".to_owned(), 900)
    );
    charge.resize(450).unwrap();
    charge.move_to(&two).unwrap();
    assert_eq!((usage(&one), usage(&two), usage(&tenant)), (0, 450, 450));
    // The tenant is nearly full: a move below it needs no room of its own there.
    let rest = one.try_charge(550).unwrap();
    charge.move_to(&one).unwrap();
    charge.move_to(&tenant).unwrap();
    assert_eq!((usage(&one), usage(&tenant)), (550, 1000));
    let other = memory.make("other");
    charge.move_to(&other).unwrap();
    assert_eq!(
        (usage(&tenant), usage(&other), usage(&memory.root())),
        (550, 450, 1000)
    );
    let mut rest = rest;
    let other = rest.merge(charge).unwrap_err();
    assert_eq!(other.bytes(), 450);
    let mut empty = rest.split(0).unwrap();
    empty.merge(rest).unwrap();
    assert_eq!(empty.bytes(), 550);
    empty.resize(0).unwrap();
    empty.move_to(&two).unwrap();
    assert_eq!(empty.group_path(), "/tenant/two");
    empty.resize(10).unwrap();
    assert_eq!(usage(&two), 10);
    let foreign = Memory::host().unwrap();
    assert_eq!(
        empty.move_to(&foreign.root()).unwrap_err(),
        MoveError::OtherMemory
    );
    drop((empty, other));
    assert_eq!(usage(&memory.root()), 0);
}

#[test]
fn removal_folds_into_the_parent() {
    let memory = memory();
    let tenant = memory.make("tenant");
    let query = tenant.make("query");
    assert_eq!(
        tenant.engine().remove().unwrap_err(),
        RemoveError::HasChildren { children: 1 }
    );
    assert_eq!(
        memory.root().engine().remove().unwrap_err(),
        RemoveError::Root
    );
    let charge = query.try_charge(1000).unwrap();
    query.add(ROWS, 5);
    query.engine().remove().unwrap();
    query.engine().remove().unwrap();
    assert!(query.engine().is_removed());
    assert!(matches!(
        query.try_charge(1),
        Err(ChargeError::Removed { .. })
    ));
    assert!(matches!(
        query.try_charge(0),
        Err(ChargeError::Removed { .. })
    ));
    assert_eq!(
        query.engine().try_charge_nowait(1).unwrap_err(),
        NowaitError::Removed
    );
    assert!(matches!(
        query.child("x", Limits::none()),
        Err(CreateError::ParentRemoved { .. })
    ));
    let reading = tenant.exact();
    assert_eq!((reading.get(ROWS).value, reading.own(ROWS)), (5, 5));
    assert_eq!((reading.usage().value, reading.own_usage()), (1000, 1000));
    // The name is free, the old group is readable, and its late updates count as the parent's own.
    let again = tenant.make("query");
    query.add(ROWS, 1);
    again.add(ROWS, 10);
    let reading = tenant.exact();
    assert_eq!((reading.get(ROWS).value, reading.own(ROWS)), (16, 6));
    assert_eq!(query.rows(), 6);
    assert!(query.engine().peak() >= 1000);
    let forced = query.charge(50);
    assert_eq!(tenant.used(), 1050);
    drop((query, forced));
    assert_eq!(memory.removed_groups(), 1, "its charge keeps the record");
    drop(charge);
    memory.tick();
    assert_eq!(memory.removed_groups(), 0);
    let reading = tenant.exact();
    assert_eq!((reading.usage().value, reading.own(ROWS)), (0, 6));
}

#[test]
fn records_are_used_again_and_start_at_zero() {
    let memory = memory();
    let tenant = memory.make("tenant");
    for round in 1..2000_u64 {
        let query = tenant.make_max("query", round);
        assert_eq!(query.rows(), 0);
        assert_eq!((query.engine().peak(), query.limits().max), (0, round));
        query.add(ROWS, 1);
        query.add(OPEN, 1);
        let charge = query.try_charge(1).unwrap();
        assert_eq!(query.used(), 1);
        drop((query, charge));
        memory.tick();
    }
    assert_eq!(memory.removed_groups(), 0);
    let reading = tenant.exact();
    assert_eq!((reading.get(ROWS).value, reading.own(ROWS)), (1999, 1999));
    assert_eq!(reading.get(OPEN).value, 1999);
}

#[test]
fn declarations_are_checked() {
    const TWICE: &[Statistic] = &[Statistic::counter("a"), Statistic::gauge("a")];
    const UNNAMED: &[Statistic] = &[Statistic::counter("")];
    const MANY: &[Statistic] = &[Statistic::counter("a"); 1];
    let build = |statistics| Memory::builder().statistics(statistics).build();
    assert_eq!(
        build(TWICE).unwrap_err(),
        MemoryError::DuplicateStatistic { name: "a" }
    );
    assert_eq!(build(UNNAMED).unwrap_err(), MemoryError::UnnamedStatistic);
    assert!(build(MANY).is_ok());
    let many: Vec<Statistic> = (0..260)
        .map(|index| Statistic::counter(Box::leak(format!("s{index}").into_boxed_str())))
        .collect();
    let many: &'static [Statistic] = Box::leak(many.into_boxed_slice());
    assert_eq!(build(many).unwrap_err(), MemoryError::TooManyStatistics);
}

#[test]
fn foreign_handles_are_named() {
    let memory = Memory::host().unwrap();
    let group = memory.make("tenant\n");
    let told = |foreign: &dyn Fn()| {
        let thrown = std::panic::catch_unwind(std::panic::AssertUnwindSafe(foreign)).unwrap_err();
        thrown.downcast_ref::<String>().unwrap().clone()
    };
    assert_eq!(
        told(&|| group.add(ROWS, 1)),
        "cannot add statistic \"rows\" to /tenant\\n: its handle belongs to another declaration of statistics than the memory's"
    );
    let reading = group.exact();
    let reads: [&dyn Fn(); 3] = [
        &|| _ = reading.get(ROWS),
        &|| _ = reading.own(ROWS),
        &|| _ = reading.per_node(ROWS),
    ];
    for read in reads {
        let told = told(read);
        assert!(told.contains("cannot read statistic \"rows\": "), "{told}");
    }
}

/// All ways to charge nothing give an empty charge, which keeps the group like a handle.
#[test]
fn nothing_can_be_charged() {
    let memory = memory();
    let root = memory.root();
    let child = || root.make_max(String::from("group"), 0);
    let ways: [fn(&Group) -> Option<Charge>; 5] = [
        |group| group.try_charge(0).ok(),
        |group| group.engine().try_charge_nowait(0).ok(),
        |group| Some(group.charge(0)),
        |group| Some(group.engine().charge_nowait(0)),
        |group| {
            let mut context = Context::from_waker(Waker::noop());
            match pin!(group.charge_async(0)).poll(&mut context) {
                Poll::Ready(charged) => charged.ok(),
                Poll::Pending => None,
            }
        },
    ];
    for charge in ways {
        let group = child();
        let empty = charge(&group).unwrap();
        assert_eq!((empty.bytes(), empty.group()), (0, group.clone()));
        drop(group);
        assert!(root.find("group").is_some(), "the charge keeps it");
        drop(empty);
        assert!(root.find("group").is_none());
    }
    let group = child();
    group.engine().remove().unwrap();
    let removed = group.engine().try_charge_nowait(0).unwrap_err();
    assert_eq!(removed, NowaitError::Removed);
    let removed = group.try_charge(0).unwrap_err();
    assert!(matches!(removed, ChargeError::Removed { .. }));
    drop(group);
    memory.tick();
    assert_eq!(memory.removed_groups(), 0);
}

#[test]
fn a_cached_read_after_an_exact_one_does_not_claim_to_be_exact() {
    let memory = memory();
    let leaf = memory.make("leaf");
    leaf.add(ROWS, 1);
    leaf.add(SPILLED, 1);
    assert_eq!(leaf.rows(), 1);
    leaf.add(ROWS, 5);
    leaf.add(SPILLED, 1000);
    let held = leaf.try_charge(1 << 30).unwrap();
    let cached = leaf.read(Freshness::Cached).unwrap();
    assert_eq!(cached.get(ROWS).error(), u64::MAX);
    assert!(cached.get(SPILLED).hi >= 1001);
    assert!(cached.usage().hi >= 1 << 30);
    let within = leaf.read(Freshness::Within(0)).unwrap();
    assert_eq!(within.get(SPILLED).value, 1001);
    assert_eq!(within.usage().value, 1 << 30);
    drop(held);
}

#[test]
fn a_removed_parent_of_late_updates_does_not_claim_to_be_fresh() {
    let memory = memory();
    let query = memory.make("query");
    let scan = query.make("scan");
    let held = scan.try_charge(1 << 20).unwrap();
    assert_eq!(query.used(), 1 << 20);
    scan.engine().remove().unwrap();
    drop(held);
    query.engine().remove().unwrap();
    let reading = query.read(Freshness::Cached).unwrap();
    assert!(reading.usage().lo <= 0, "{:?}", reading.usage());
    assert_eq!(query.used(), 0);
}

#[test]
fn sums_of_huge_charges_do_not_wrap() {
    let memory = memory();
    let group = memory.make("group");
    let mut held = Vec::new();
    let refusal = loop {
        match group.try_charge(1 << 56) {
            Ok(charge) => held.push(charge),
            Err(refusal) => break refusal,
        }
    };
    assert!(matches!(refusal, ChargeError::LimitReached(_)));
    assert_eq!(held.len(), 64, "2^62 bytes in all");
    let mut all = held.pop().unwrap();
    held.into_iter()
        .for_each(|charge| all.merge(charge).unwrap());
    drop(all);
    group.set_max(1000);
    assert_eq!(group.reserved(), 0);
    assert!(group.try_charge(1001).is_err());
}

#[test]
fn the_range_of_usage_holds_after_a_limit_was_raised() {
    let memory = memory();
    let group = memory.make_max("group", 20_000);
    let first = group.try_charge(10_000).unwrap();
    group.set_max(1 << 30);
    let mut held = vec![first];
    for _ in 0..50 {
        held.push(group.try_charge(200_000).unwrap());
        let usage = group.read(Freshness::Cached).unwrap().usage();
        let truth: i64 = held.iter().map(|charge| charge.bytes() as i64).sum();
        assert!(
            usage.lo <= truth && truth <= usage.hi,
            "{truth} is not in {usage:?}"
        );
    }
    assert!(
        group.reserved() <= 10_000 + 50 * 200_000 + (512 << 10),
        "stock does not pile up"
    );
}

#[test]
fn a_group_looked_up_while_its_last_handle_goes_is_usable_or_gone() {
    let memory = memory();
    let tenant = memory.make("tenant");
    std::thread::scope(|scope| {
        let finder = scope.spawn(|| {
            for _ in 0..3000 {
                if let Some(group) = tenant.find("query") {
                    let _ = group.child("scan", Limits::none());
                }
            }
        });
        while !finder.is_finished() {
            drop(tenant.child("query", Limits::none()));
        }
    });
    memory.tick();
    memory.tick();
    assert_eq!((tenant.children().len(), memory.removed_groups()), (0, 0));
}

#[test]
fn units_of_any_size_are_fine() {
    const HUGE: &[Statistic] = &[Statistic::gauge("huge").batch(1 << 63)];
    let memory = Memory::builder().statistics(HUGE).build().unwrap();
    let group = memory.make("group");
    group.add(Gauge::of(HUGE, "huge"), 1000);
    let value = memory
        .root()
        .read(Freshness::Cached)
        .unwrap()
        .get(Gauge::of(HUGE, "huge"));
    assert!(value.hi >= 1000);
}

/// The name is free when the last handle goes, whatever removed groups below still have.
#[test]
fn a_name_is_free_while_a_removed_child_holds_a_charge() {
    let memory = memory();
    let root = memory.root();
    let tenant = root.make("tenant");
    let query = tenant.make("query");
    let scan = query.make("scan");
    let charge = scan.try_charge(1000).unwrap();
    scan.add(ROWS, 3);
    drop((query, tenant));
    assert!(memory.find("/tenant/query/scan").is_some(), "it lives");
    drop(scan);
    assert!(memory.find("/tenant").is_none());
    assert_eq!(memory.removed_groups(), 3);
    // A tenant of the same name, and the old one's charge goes on counting above.
    let again = root.make_max("tenant", 5000);
    assert_eq!(again.used(), 0);
    let reading = root.exact();
    assert_eq!((reading.usage().value, reading.own_usage()), (1000, 1000));
    assert_eq!((reading.get(ROWS).value, reading.own(ROWS)), (3, 3));
    // By way of the charge a handle comes back, and goes.
    let old = charge.group();
    assert_eq!(
        (old.path(), old.engine().is_removed()),
        ("/tenant/query/scan".to_owned(), true)
    );
    drop(old);
    drop(charge);
    memory.tick();
    assert_eq!(memory.removed_groups(), 0);
    assert_eq!(root.used(), 0);
    drop(again);
    assert!(memory.find("/tenant").is_none());
}

#[test]
fn a_parent_stays_while_a_handle_or_a_living_child_refers_to_it() {
    let memory = memory();
    let tenant = memory.make("tenant");
    let kept = tenant.make("kept");
    let query = tenant.make("query");
    let charge = query.try_charge(1000).unwrap();
    drop(query);
    drop(tenant);
    let found = memory.find("/tenant").expect("its child lives");
    drop(kept);
    assert!(memory.find("/tenant").is_some(), "a handle is there");
    let pin = found.try_charge(0).unwrap();
    drop(found);
    assert!(
        memory.find("/tenant").is_some(),
        "a charge of nothing refers to it"
    );
    drop(pin);
    assert!(memory.find("/tenant").is_none());
    drop(charge);
    memory.tick();
    assert_eq!(memory.removed_groups(), 0);
}
