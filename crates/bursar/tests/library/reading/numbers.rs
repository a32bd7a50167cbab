//! Returns of bytes by number, charges that neither wait nor fail, and statistics at the ends of their range.

use std::time::Duration;

use crate::common::Short;
use bursar::{Charge, Counter, Gauge, Group, Memory, Statistic};

#[test]
fn what_is_forgotten_stays_charged_until_it_is_returned() {
    let tenant = Memory::host().unwrap().make_max("tenant", 1 << 20);
    let query = tenant.make("query");
    let bytes = query.try_charge(1 << 19).unwrap().forget();
    assert_eq!(
        (bytes, query.used(), tenant.used()),
        (1 << 19, 1 << 19, 1 << 19)
    );
    assert!(tenant.try_charge((1 << 19) + 1).is_err());
    // In parts, and by any handle of the group.
    let other = tenant.find("query").unwrap();
    std::thread::scope(|scope| {
        scope.spawn(|| other.engine().uncharge(bytes / 4));
        scope.spawn(|| query.engine().uncharge(bytes / 4));
    });
    assert_eq!(tenant.used(), 1 << 18);
    query.engine().uncharge(0);
    query.engine().uncharge(bytes / 2);
    assert_eq!(query.used(), 0);
    drop(tenant.try_charge(1 << 20).unwrap());
}

#[test]
fn forgetting_nothing_keeps_nothing() {
    let memory = Memory::host().unwrap();
    let group = memory.make("group");
    assert_eq!(group.try_charge(0).unwrap().forget(), 0);
    drop(group);
    memory.tick();
    assert_eq!(memory.removed_groups(), 0);
    assert!(memory.find("group").is_none());
}

#[test]
fn what_may_not_wait_oversteps_and_the_next_that_may_refuses() {
    let tenant = Memory::host().unwrap().make_max("tenant", 8 << 20);
    let groups: Vec<Group> = (0..4).map(|k| tenant.make(k.to_string())).collect();
    // Stock below, on whatever CPUs there are.
    std::thread::scope(|scope| {
        for group in &groups {
            scope.spawn(|| drop(group.try_charge(5000).unwrap()));
        }
    });
    let over = groups[0].engine().charge_nowait(9 << 20);
    assert!(tenant.is_over_max());
    assert_eq!(tenant.own_events().overshot, 1);
    // Looks for stock, and takes it all back: from now on not a byte passes.
    assert!(groups[1].try_charge(1 << 20).is_err());
    for group in &groups {
        assert!(group.try_charge(1).is_err(), "{group}");
        assert!(group.engine().try_charge_nowait(1).is_err(), "{group}");
    }
    assert_eq!(tenant.reserved(), 9 << 20);
    drop(over);
    drop(groups[2].try_charge(1 << 20).unwrap());
    assert_eq!(tenant.used(), 0);
}

#[test]
fn ticks_take_back_what_a_full_group_or_an_overshoot_left() {
    for overshot in [0, 1] {
        // Each tick is due.
        let memory = Memory::builder().flush_period(Duration::ZERO).build();
        let memory = memory.unwrap();
        let tenant = memory.make_max("tenant", 8 << 20);
        let group = tenant.make("group");
        drop(group.try_charge(5000).unwrap());
        let stock = tenant.reserved();
        assert!(stock > 0);
        memory.tick();
        assert_eq!(tenant.reserved(), stock, "there is room enough");
        // Just what there is room for beside the stock, or more.
        let full = group.engine().charge_nowait((8 << 20) - stock + overshot);
        assert_eq!(tenant.own_events().overshot, overshot);
        memory.tick();
        memory.tick();
        assert_eq!(tenant.reserved(), full.bytes(), "stock is left");
    }
}

/// Whether stock that a return has just left pays for a charge of the same size.
fn pays_from_stock(group: &Group, bytes: u64) -> bool {
    // The thread may move to a CPU without stock in between, but not each time.
    (0..1000).any(|_| {
        drop(group.try_charge(bytes).unwrap());
        group.engine().charge_from_stock(bytes)
    })
}

fn has_sections() -> bool {
    bursar_machine::host::report().backend == bursar_machine::host::Backend::Rseq
}

#[test]
fn stock_alone_pays_or_nobody() {
    let group = Memory::host().unwrap().make("group");
    assert!(
        !group.engine().charge_from_stock(1),
        "there was never any stock"
    );
    let paid = pays_from_stock(&group, 3000);
    assert_eq!(paid, has_sections());
    assert_eq!(group.used(), if paid { 3000 } else { 0 });
    let usage_before = group.used();
    assert!(!group.engine().charge_from_stock(0));
    assert!(
        !group.engine().charge_from_stock(1 << 40),
        "more than any stock"
    );
    assert!(!group.engine().charge_from_stock(u64::MAX));
    assert_eq!(group.used(), usage_before);
    if paid {
        group.engine().uncharge(3000);
    }
    assert_eq!(group.used(), 0);
}

#[test]
fn stock_is_as_large_as_it_is_set() {
    let group_of = |stock_max: u64| {
        let memory = Memory::builder().stock_max(stock_max).build().unwrap();
        memory.make("group")
    };
    let large = group_of(8 << 20);
    assert_eq!(pays_from_stock(&large, 1 << 20), has_sections());
    let usual = group_of(256 << 10);
    assert!(!pays_from_stock(&usual, 1 << 20));

    let none = group_of(0);
    for _ in 0..100 {
        let held = none.try_charge(5000).unwrap();
        assert_eq!(none.reserved(), 5000);
        drop(held);
        assert_eq!(none.reserved(), 0);
    }

    // Too much is cut, so that what is counted stays far from what can be.
    let most = group_of(u64::MAX);
    drop(most.try_charge(5000).unwrap());
    assert!(
        (1..=4 << 30).contains(&most.reserved()),
        "{}",
        most.reserved()
    );
}

#[test]
fn requests_beyond_all_numbers_are_cut() {
    let group = Memory::host().unwrap().make("group");
    let held: Vec<Charge> = (0..70)
        .map(|_| group.engine().charge_nowait(u64::MAX))
        .collect();
    assert_eq!(held[0].bytes(), 1 << 56);
    assert!(held[69].bytes() < 1 << 56);
    let sum: u64 = held.iter().map(|charge| charge.bytes()).sum();
    assert!(sum <= 1 << 62);
    assert_eq!(group.used(), sum as i64);
    drop(held);
    assert_eq!(group.used(), 0);
}

#[test]
fn accounts_charge_their_group() {
    let memory = Memory::host().unwrap();
    let group = memory.make("group");
    let other = memory.make("other");
    let account = group.engine().account();
    assert!(account == group.clone().engine().account() && account != other.engine().account());
    assert_ne!(account.key(), other.engine().account().key());
    account.charge_nowait(5000);
    account.charge_nowait(5 << 20);
    assert_eq!((group.used(), other.used()), (5000 + (5 << 20), 0));
    // Any thread's: it is two words and a number.
    std::thread::spawn(move || account.uncharge_nowait(5 << 20))
        .join()
        .unwrap();
    account.uncharge_nowait(5000);
    assert_eq!(group.used(), 0);
}

#[test]
fn a_group_knows_its_memory() {
    let memory = Memory::host().unwrap();
    let group = memory.make("group");
    assert!(group.memory().root() == memory.root());
    assert!(group.memory().root() != Memory::host().unwrap().root());
}

#[test]
#[cfg(debug_assertions)]
fn returning_too_much_panics_at_the_call_at_fault_and_changes_nothing() {
    let group = Memory::host().unwrap().make("tenant");
    let held = group.try_charge(10_000).unwrap();
    let bytes = group.try_charge(1000).unwrap().forget();
    let panic = std::panic::catch_unwind(|| group.engine().uncharge(bytes + 1)).unwrap_err();
    assert_eq!(
        panic.downcast_ref::<String>().unwrap(),
        "1001 bytes returned to /tenant, where 1000 are charged and forgotten"
    );
    let used = || group.used();
    assert_eq!(used(), 11_000);
    group.engine().uncharge(bytes);
    assert!(
        std::panic::catch_unwind(|| group.engine().uncharge(1)).is_err(),
        "the rest is held by a charge"
    );
    drop(held);
    assert_eq!(used(), 0);
    assert_eq!(group.events().over_returned_bytes, 0);
}

/// All kinds of statistics are sums modulo 2^64, read as signed numbers.
#[test]
fn statistics_wrap() {
    const STATISTICS: &[Statistic] = &[
        Statistic::counter("lazy"),
        Statistic::counter("eager").eager(),
        Statistic::counter("batched").batch(64),
        Statistic::gauge("gauge"),
    ];
    const LAZY: Counter = Counter::from_name(STATISTICS, "lazy");
    const EAGER: Counter = Counter::from_name(STATISTICS, "eager");
    const BATCHED: Counter = Counter::from_name(STATISTICS, "batched");
    const GAUGE: Gauge = Gauge::from_name(STATISTICS, "gauge");
    let memory = Memory::builder().statistics(STATISTICS).build().unwrap();
    let group = memory.make("group");
    for counter in [LAZY, EAGER, BATCHED] {
        group.add(counter, i64::MAX as u64);
        group.add(counter, 5);
    }
    group.add(GAUGE, i64::MIN);
    group.add(GAUGE, -1);
    for read in [&group, &memory.root()] {
        let reading = read.exact();
        for counter in [LAZY, EAGER, BATCHED] {
            assert_eq!(reading.get(counter).value, i64::MIN + 4);
        }
        assert_eq!(reading.get(GAUGE).value, i64::MAX);
    }
    // A value that no counter is meant to grow by: mostly a difference that came out negative.
    for counter in [LAZY, EAGER, BATCHED] {
        let added = std::panic::catch_unwind(|| group.add(counter, 0_u64.wrapping_sub(1)));
        assert_eq!(added.is_err(), cfg!(debug_assertions));
        let reading = group.exact();
        let lost = i64::from(!cfg!(debug_assertions));
        assert_eq!(reading.get(counter).value, i64::MIN + 4 - lost);
    }
}
