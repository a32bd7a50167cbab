//! Promises of the facade, one promise a test, single-threaded.

use crate::common::{BATCHED, ROWS, STATISTICS, Short, Task, memory, refused};
use std::task::Poll;
use std::time::Duration;

use bursar::engine::NowaitError;
use bursar::{
    Charge, ChargeError, CreateError, FlushPolicy, Freshness, Gauge, Group, Limits, Memory,
    MemoryError, MoveError, RemoveError, SplitError, Statistic,
};

#[test]
fn cached_numbers_are_old_and_say_so() {
    let tenant = memory().make("tenant");
    let query = tenant.make("query");
    query.add(BATCHED, 30);
    query.add(ROWS, 1);
    let _charge = query.try_charge(1000).unwrap();
    let read = |freshness| tenant.read(freshness).unwrap();
    let cached = read(Freshness::Cached);
    let batched = cached.get(BATCHED);
    assert!(batched.value == 0 && batched.lo <= 0 && batched.hi >= 30);
    assert_eq!(cached.get(ROWS).error(), u64::MAX, "not batched: no bound");
    assert!(cached.usage().lo <= 1000 && cached.usage().hi >= 1000);
    let (usage, batched) = (cached.usage().error(), batched.error());
    for (freshness, value) in [
        (Freshness::UsageWithin(usage), 0),
        (Freshness::GaugeWithin(BATCHED, batched), 0),
        (Freshness::GaugeWithin(BATCHED, 10), 30),
    ] {
        let within = read(freshness).get(BATCHED);
        assert_eq!(within.value, value, "{freshness:?}");
    }
    let hour = Duration::from_secs(3600);
    assert_eq!(read(Freshness::AtMost(hour)).get(ROWS).value, 1);
    query.add(ROWS, 1);
    assert_eq!(read(Freshness::AtMost(hour)).get(ROWS).value, 1);
    let now = read(Freshness::AtMost(Duration::ZERO));
    assert!(now.get(ROWS).value == 2 && now.age() < hour);
    query.add(ROWS, 1);
    // Not batched, so no other bound is known.
    let within = read(Freshness::CounterWithin(ROWS, 1 << 40));
    assert_eq!(within.get(ROWS).value, 3);
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
fn groups_nest_to_a_stated_depth() {
    let memory = memory();
    let mut deepest = memory.root();
    for _ in 0..64 {
        deepest = deepest.make("deeper");
    }
    let error = deepest.child("deeper", Limits::none()).unwrap_err();
    assert_eq!(error, CreateError::TooDeep);
    deepest.add(ROWS, 1);
    assert_eq!(memory.rows(), 1);
}

#[test]
fn odd_sizes_are_refused_and_nothing_is_lost() {
    let group = memory().make_max("group", 1 << 20);
    let engine = group.engine();
    let requested = u64::MAX;
    let too_large = group.try_charge(requested).unwrap_err();
    assert_eq!(too_large, ChargeError::TooLarge { requested });
    refused(group.try_charge(2 << 20));
    for (bytes, error) in [
        (u64::MAX, NowaitError::TooLarge),
        (2 << 20, NowaitError::LimitReached),
    ] {
        assert_eq!(engine.try_charge_nowait(bytes).unwrap_err(), error);
    }
    let mut none = group.charge(0);
    none.resize(100).unwrap();
    assert!(none.resize(u64::MAX).is_err());
    assert_eq!(none.bytes(), 100);
    drop(none);
    assert_eq!(group.used(), 0);
}

#[test]
fn a_refusal_names_the_ancestor_and_its_biggest_children() {
    let tenant = memory().make_max("tenant", 1 << 20);
    let [small, big] = ["small", "big"].map(|name| tenant.make(name));
    let _held = [small.charge(100 << 10), big.charge(800 << 10)];
    let reached = refused(small.try_charge(200 << 10));
    assert_eq!(reached.usage, 900 << 10, "stock was taken back");
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
}

#[test]
fn charges_resize_split_merge_and_move() {
    let memory = memory();
    let tenant = memory.make_max("tenant", 1000);
    let (one, two) = (tenant.make("one"), tenant.make_max("two", 500));
    let used = || [&one, &two, &tenant].map(Short::used);
    let mut charge = one.try_charge(900).unwrap();
    let part = charge.split(400).unwrap();
    assert_eq!((charge.bytes(), part.bytes(), one.used()), (500, 400, 900));
    let (requested, held) = (501, 500);
    let error = charge.split(requested).unwrap_err();
    assert_eq!(error, SplitError { requested, held });
    charge.merge(part).unwrap();
    assert_eq!(charge.bytes(), 900);
    let moved = charge.move_to(&two);
    assert!(matches!(
        moved,
        Err(MoveError::Refused(ChargeError::LimitReached(_)))
    ));
    assert_eq!(
        (charge.group_path(), used()),
        ("/tenant/one".to_owned(), [900, 0, 900])
    );
    charge.resize(450).unwrap();
    charge.move_to(&two).unwrap();
    assert_eq!(used(), [0, 450, 450]);
    // The tenant is nearly full: a move below it needs no room of its own there.
    let mut rest = one.try_charge(550).unwrap();
    charge.move_to(&one).unwrap();
    charge.move_to(&tenant).unwrap();
    assert_eq!(used(), [550, 0, 1000]);
    let other = memory.make("other");
    charge.move_to(&other).unwrap();
    assert_eq!(
        (used(), other.used(), memory.used()),
        ([550, 0, 550], 450, 1000)
    );
    let other = rest.merge(charge).unwrap_err();
    assert_eq!(other.bytes(), 450);
    let mut empty = rest.split(0).unwrap();
    empty.merge(rest).unwrap();
    assert_eq!(empty.bytes(), 550);
    empty.resize(0).unwrap();
    empty.move_to(&two).unwrap();
    empty.resize(10).unwrap();
    assert_eq!(
        (empty.group_path(), two.used()),
        ("/tenant/two".to_owned(), 10)
    );
    let foreign = Memory::host().unwrap().root();
    assert_eq!(empty.move_to(&foreign).unwrap_err(), MoveError::OtherMemory);
    drop((empty, other));
    assert_eq!(memory.used(), 0);
}

#[test]
fn removal_folds_into_the_parent() {
    let memory = memory();
    let tenant = memory.make("tenant");
    let query = tenant.make("query");
    let children = 1;
    for (group, error) in [
        (tenant.clone(), RemoveError::HasChildren { children }),
        (memory.root(), RemoveError::Root),
    ] {
        assert_eq!(group.remove(), Err(error));
    }
    let charge = query.try_charge(1000).unwrap();
    query.add(ROWS, 5);
    query.remove().unwrap();
    query.remove().unwrap();
    assert_eq!((tenant.used(), tenant.exact().own_usage()), (1000, 1000));
    // The name is free, the old group is readable, and its late updates count as the parent's own.
    let again = tenant.make("query");
    query.add(ROWS, 1);
    again.add(ROWS, 10);
    let reading = tenant.exact();
    assert_eq!((reading.get(ROWS).value, reading.own(ROWS)), (16, 6));
    assert!(query.rows() == 6 && query.peak() >= 1000);
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
fn declarations_are_checked() {
    const TWICE: &[Statistic] = &[Statistic::counter("a"), Statistic::gauge("a")];
    const UNNAMED: &[Statistic] = &[Statistic::counter("")];
    let many = (0..260).map(|index| Statistic::counter(format!("s{index}").leak()));
    let many = many.collect::<Vec<_>>().leak();
    for (statistics, error) in [
        (TWICE, MemoryError::DuplicateStatistic { name: "a" }),
        (UNNAMED, MemoryError::UnnamedStatistic),
        (many, MemoryError::TooManyStatistics),
    ] {
        let built = Memory::builder().statistics(statistics).build();
        assert_eq!(built.unwrap_err(), error);
    }
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
        |group| match Task::new(group.charge_async(0)).poll() {
            Poll::Ready(charged) => charged.ok(),
            Poll::Pending => None,
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
    group.remove().unwrap();
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
    let leaf = memory().make("leaf");
    leaf.add(ROWS, 1);
    leaf.add(BATCHED, 1);
    assert_eq!(leaf.rows(), 1);
    leaf.add(ROWS, 5);
    leaf.add(BATCHED, 1000);
    let held = leaf.try_charge(1 << 30).unwrap();
    let cached = leaf.read(Freshness::Cached).unwrap();
    assert_eq!(cached.get(ROWS).error(), u64::MAX);
    assert!(cached.get(BATCHED).hi >= 1001);
    assert!(cached.usage().hi >= 1 << 30);
    let within = leaf.read(Freshness::UsageWithin(0)).unwrap();
    assert_eq!(within.get(BATCHED).value, 1001);
    assert_eq!(within.usage().value, 1 << 30);
    drop(held);
}

#[test]
fn a_removed_parent_of_late_updates_does_not_claim_to_be_fresh() {
    let query = memory().make("query");
    let scan = query.make("scan");
    let held = scan.try_charge(1 << 20).unwrap();
    assert_eq!(query.used(), 1 << 20);
    scan.remove().unwrap();
    drop(held);
    query.remove().unwrap();
    let reading = query.read(Freshness::Cached).unwrap();
    assert!(reading.usage().lo <= 0, "{:?}", reading.usage());
    assert_eq!(query.used(), 0);
}

#[test]
fn sums_of_huge_charges_do_not_wrap() {
    let group = memory().make("group");
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
    group.add(Gauge::from_name(HUGE, "huge"), 1000);
    let value = memory
        .root()
        .read(Freshness::Cached)
        .unwrap()
        .get(Gauge::from_name(HUGE, "huge"));
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
        (old.path(), old.is_removed()),
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
