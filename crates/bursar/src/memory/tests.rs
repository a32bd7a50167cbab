//! Tests of what returning too much does in builds without debug assertions: the public call would panic in this one.

use bursar_machine::{Outcome, Slot};

use super::Memory;
use crate::group::Group;
use crate::limit::Limits;
use crate::react::{ChargeError, nowait, slow_charge};
use crate::tree::Freshness;

const GIB: u64 = 1 << 30;
const MIB: u64 = 1 << 20;

/// Returns bytes as [`Engine::uncharge`](crate::engine::Engine::uncharge) does without debug assertions.
fn return_unchecked(group: &Group, bytes: u64) {
    slow_charge::uncharge(group.core(), group.index(), bytes, Outcome::Short);
}

fn usage(group: &Group) -> (i64, i64, i64) {
    let usage = group.read(Freshness::Exact).unwrap().usage();
    (usage.value, usage.lo, usage.hi)
}

/// No counter's usage is off for good.
fn usages_are_what_is_reserved(groups: &[&Group]) {
    for group in groups {
        let usage = group.core().counters.usage_now(group.index());
        assert_eq!(usage, group.reserved(), "{group}");
    }
}

fn tenants() -> (Memory, Group, Group) {
    let memory = Memory::builder().max(GIB).build().unwrap();
    let tenant = |name| memory.root().child(name, Limits::max(MIB)).unwrap();
    let (a, b) = (tenant("a"), tenant("b"));
    (memory, a, b)
}

#[test]
fn one_byte_too_many_is_the_groups_own_and_counted() {
    let (memory, a, b) = tenants();
    return_unchecked(&a, 1);
    // A drain is where it used to show.
    a.set_max(MIB / 2);
    assert_eq!((a.reserved(), memory.reserved()), (0, 0));
    drop(b.try_charge(1000).unwrap());
    drop(a.try_charge(MIB / 2).unwrap());
    memory.root().set_max(GIB - 1);
    assert_eq!((a.reserved(), b.reserved(), memory.reserved()), (0, 0, 0));
    assert_eq!(a.own_events().over_returned_bytes, 1);
    assert_eq!(memory.root().events().over_returned_bytes, 1);
    assert_eq!(b.events().over_returned_bytes, 0);
    let reading = a.read(Freshness::Exact).unwrap();
    assert_eq!(reading.over_returned(), 1);
    assert_eq!(usage(&a), (0, 0, 0), "what is left is right again");
    assert_eq!(usage(&b), (0, 0, 0));
    let cached = memory.root().read(Freshness::Cached).unwrap();
    assert_eq!(cached.over_returned(), 1);
}

#[test]
fn bytes_that_stock_took_show_when_the_stock_is_taken_back() {
    let (memory, a, b) = tenants();
    let held = b.try_charge(5000).unwrap();
    // Arms this CPU, so that the return stays on it, if the thread does.
    drop(a.try_charge(1000).unwrap());
    return_unchecked(&a, 700);
    let before = a.read(Freshness::Exact).unwrap();
    assert!(
        before.usage().hi >= 700 || before.over_returned() == 700,
        "{before:?}"
    );
    a.set_max(MIB / 2);
    b.set_max(MIB / 2);
    assert_eq!(
        (a.reserved(), b.reserved(), memory.reserved()),
        (0, 5000, 5000)
    );
    assert_eq!(a.own_events().over_returned_bytes, 700);
    assert_eq!(usage(&a), (0, 0, 0));
    assert_eq!(usage(&memory.root()), (5000, 5000, 5000));
    drop(held);
    memory.root().set_max(GIB - 1);
    assert_eq!(memory.reserved(), 0);
    assert_eq!(usage(&memory.root()), (0, 0, 0));
}

/// A CPU's stock would cover the request.
#[test]
fn a_return_of_more_than_a_group_has_shows_at_once() {
    let memory = Memory::builder().build().unwrap();
    let group = memory.root().child("group", Limits::none()).unwrap();
    group.try_charge(MIB).unwrap().forget();
    return_unchecked(&group, 2 * MIB);
    let reading = group.read(Freshness::Exact).unwrap();
    assert_eq!(reading.over_returned(), MIB);
    assert_eq!(usage(&group), (0, 0, 0));
    assert_eq!((group.reserved(), memory.reserved()), (0, 0));
}

#[test]
fn others_keep_what_is_theirs_whatever_one_returns() {
    let (memory, a, b) = tenants();
    let mut held = Vec::new();
    for round in 0..2000_u64 {
        held.push(b.try_charge(100).unwrap());
        let own = a.try_charge(1 + round % 300).unwrap();
        return_unchecked(&a, [1, 5000, 1 << 40, u64::MAX >> 8][round as usize % 4]);
        drop(own);
        if round % 64 == 0 {
            a.set_max(MIB - round);
        }
        let bytes = held.len() as u64 * 100;
        assert!(b.reserved() >= bytes && memory.reserved() >= b.reserved().min(bytes));
    }
    let bytes = held.len() as i64 * 100;
    assert_eq!(usage(&b), (bytes, bytes, bytes));
    a.set_max(0);
    b.set_max(MIB / 2);
    assert_eq!((a.reserved(), memory.reserved()), (0, bytes as u64));
    held.clear();
    memory.root().set_max(GIB - 1);
    assert_eq!(memory.reserved(), 0);
    let whole = memory.root().try_charge(GIB - 1);
    drop(whole.expect("nobody holds anything"));
    assert!(a.own_events().over_returned_bytes > 0);
    assert_eq!(b.own_events().over_returned_bytes, 0);
}

#[test]
fn a_usage_stops_at_zero() {
    let (_memory, a, _b) = tenants();
    let counter = a.core().counters.counter(a.index());
    assert_eq!(counter.take_claim(5), 0);
    assert!(counter.add_claim(100));
    assert_eq!(counter.take_claim(250), 100);
    assert!(counter.add_claim(MIB), "nothing stays claimed");
    assert_eq!(counter.take_claim(MIB), MIB);
    assert_eq!(counter.reserved(), 0);
}

/// A wrapped difference of two numbers.
#[test]
fn numbers_beyond_all_bytes_give_nobody_room() {
    for bytes in [u64::MAX, u64::MAX - 4095, i64::MAX as u64, 1 << 63, 1 << 62] {
        let (memory, a, b) = tenants();
        let held = b.try_charge(5000).unwrap();
        drop(a.try_charge(1000).unwrap());
        // As `Engine::uncharge` after its check.
        if !a.slot().uncharge_at_once(bytes) {
            return_unchecked(&a, bytes.min(crate::limit::USAGE_MAX));
        }
        assert!(a.try_charge(MIB + 1).is_err(), "{bytes}");
        memory.root().set_max(GIB - 1);
        assert_eq!((a.reserved(), memory.reserved()), (0, 5000));
        drop(held);
    }
}

/// Returns that move the words of a CPU beyond the signed range, beside charges and returns that are right.
#[test]
fn numbers_beyond_all_bytes_leave_right_returns_right() {
    bursar_machine::host::pin_to(bursar_machine::host::allowed_cpus()[0]).unwrap();
    let (memory, a, b) = tenants();
    let held = b.try_charge(5000).unwrap();
    for bytes in [crate::limit::USAGE_MAX, crate::limit::USAGE_MAX, MIB / 2] {
        return_unchecked(&a, bytes);
    }
    for _ in 0..10 {
        // Its stock is beyond one end of the range, and what is charged beyond the other.
        let small = a.try_charge(4096).unwrap();
        // Past the stock.
        drop(a.try_charge(MIB / 2).unwrap());
        drop(small);
        assert_eq!(usage(&a).0, 0);
    }
    assert_eq!(usage(&memory.root()).0, 5000);
    drop(held);
    memory.root().set_max(GIB - 1);
    assert_eq!((a.reserved(), memory.reserved()), (0, 0));
}

/// Two groups below a parent whose limit is 8 MiB.
fn siblings() -> (Memory, Group, [Group; 2]) {
    bursar_machine::host::pin_to(bursar_machine::host::allowed_cpus()[0]).unwrap();
    let memory = Memory::host().unwrap();
    let parent = memory.root().child("parent", Limits::max(8 * MIB)).unwrap();
    let [a, b] = ["a", "b"].map(|name| parent.child(name, Limits::none()).unwrap());
    (memory, parent, [a, b])
}

/// A CPU's stock is reserved, or it is gone, however the bytes come back.
#[test]
fn stock_of_a_group_that_returned_too_much_pays_for_nothing() {
    let nowait = |group: &Group, bytes| {
        nowait::uncharge(group.core(), group.index(), bytes, Outcome::Short);
    };
    for return_bytes in [return_unchecked as fn(&Group, u64), nowait] {
        let (_memory, parent, [a, b]) = siblings();
        let held = a.try_charge(4096).unwrap();
        return_bytes(&a, MIB);
        // All that the limit has, without a drain.
        let of_b = b.try_charge(8 * MIB).unwrap();
        let more = std::iter::from_fn(|| a.try_charge(1000).ok());
        let of_a: Vec<_> = more.take(1000).collect();
        let live = of_b.bytes() + of_a.len() as u64 * 1000;
        assert!(live <= 8 * MIB, "{live} bytes live");
        assert_eq!(parent.reserved(), live);
        let over = a.own_events().over_returned_bytes;
        assert_eq!(over, MIB - 4096);
        usages_are_what_is_reserved(&[&a, &b, &parent]);
        drop((held, of_a, of_b));
        assert_eq!(usage(&parent).0, 0);
        parent.set_max(MIB);
        assert_eq!((a.reserved(), parent.reserved()), (0, 0));
    }
}

/// A group returns too much while a group below it holds bytes. These are gone from its own usage, and it alone loses them.
#[test]
fn what_a_group_takes_from_those_below_is_missing_from_it_alone() {
    for too_much in [MIB, 64 * MIB] {
        let (_memory, parent, [a, b]) = siblings();
        let below = a.child("below", Limits::none()).unwrap();
        let kept = b.try_charge(MIB).unwrap();
        let held = below.try_charge(2 * MIB).unwrap();
        return_unchecked(&a, too_much);
        a.set_max(16 * MIB);
        let left = 2 * MIB - too_much.min(2 * MIB);
        assert_eq!((a.reserved(), parent.reserved()), (left, MIB + left));
        usages_are_what_is_reserved(&[&below, &a, &b, &parent]);
        drop(held);
        parent.set_max(8 * MIB - 1);
        let reserved = [&below, &a, &b, &parent].map(Group::reserved);
        assert_eq!(reserved, [0, 0, MIB, MIB]);
        let usages = [&below, &a, &b, &parent].map(|group| usage(group).0 as u64);
        assert_eq!(usages, reserved);
        usages_are_what_is_reserved(&[&below, &a, &b, &parent]);
        assert_eq!(a.own_events().over_returned_bytes, too_much);
        // All is as before.
        drop(a.try_charge(7 * MIB - 1).unwrap());
        drop(kept);
        assert_eq!((a.reserved(), usage(&parent).0), (0, 0));
    }
}

/// One group's bytes move to another while it has returned as many too often.
#[test]
fn what_moves_counts_above_whatever_was_returned_before() {
    // Charges are larger than any stock, so each number is what is charged.
    let memory = Memory::builder().stock_max(256 << 10).build().unwrap();
    let parent = memory.root().child("parent", Limits::none()).unwrap();
    let [from, to, other] =
        ["from", "to", "other"].map(|name| parent.child(name, Limits::none()).unwrap());
    let unit = 1 << 20;
    let kept = other.try_charge(10 * unit).unwrap();
    let mut moved = from.try_charge(unit).unwrap();
    return_unchecked(&from, unit);
    moved.move_to(&to).unwrap();
    let groups = [&from, &to, &other, &parent];
    let reserved = || groups.map(|group| group.reserved() / unit);
    assert_eq!(reserved(), [0, 1, 10, 11]);
    usages_are_what_is_reserved(&groups);
    drop(moved);
    assert_eq!(reserved(), [0, 0, 10, 10]);
    usages_are_what_is_reserved(&groups);
    assert_eq!(memory.reserved(), 10 * unit);
    drop(kept);
}

/// Over-returns beside honest charges and returns of the same group and of its sibling.
#[test]
fn honest_tasks_beside_one_with_the_bug_end_at_zero() {
    let memory = Memory::host().unwrap();
    let parent = memory.root().child("parent", Limits::none()).unwrap();
    let [a, b] = ["a", "b"].map(|name| parent.child(name, Limits::none()).unwrap());
    let unit = 1 << 20;
    std::thread::scope(|scope| {
        for group in [&a, &b, &b] {
            scope.spawn(move || {
                for _ in 0..5_000 {
                    drop(group.try_charge(unit).unwrap());
                }
            });
        }
        scope.spawn(|| (0..5_000).for_each(|_| return_unchecked(&a, 100)));
    });
    memory.root().set_max(GIB);
    assert_eq!(b.reserved(), 0);
    assert_eq!(memory.reserved(), a.reserved(), "no more above than below");
    assert_eq!(parent.reserved(), a.reserved());
    assert_eq!(usage(&a).0 as u64, a.reserved());
}

#[test]
fn a_removed_group_that_returned_too_much_does_not_stay() {
    let (memory, a, _b) = tenants();
    let query = a.child("query", Limits::none()).unwrap();
    return_unchecked(&query, 12_345);
    drop(query);
    memory.tick();
    assert_eq!(memory.removed_groups(), 0);
    let query = a.child("query", Limits::none()).unwrap();
    assert_eq!(usage(&query), (0, 0, 0));
    assert!(matches!(
        query.try_charge(2 << 20),
        Err(ChargeError::LimitReached(reached)) if reached.usage == 0
    ));
}

/// In a child process, whose stderr is looked at.
#[test]
fn the_first_case_is_told_once_with_the_groups_path() {
    const CHILD: &str = "BURSAR_TEST_TELLS_OVER_RETURN";
    if std::env::var_os(CHILD).is_some() {
        let (memory, a, b) = tenants();
        // By calls that may not print; the next call that may prints.
        for group in [&a, &b] {
            nowait::uncharge(group.core(), group.index(), 4096, Outcome::Short);
        }
        a.set_max(MIB / 2);
        return_unchecked(&b, 1);
        memory.tick();
        return;
    }
    let child = std::process::Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "--nocapture"])
        .arg("memory::tests::the_first_case_is_told_once_with_the_groups_path")
        .env(CHILD, "1")
        .output()
        .unwrap();
    let said = String::from_utf8(child.stderr).unwrap();
    assert!(child.status.success(), "{said}");
    let told: Vec<&str> = said
        .lines()
        .filter(|line| line.starts_with("bursar:"))
        .collect();
    let [told] = told[..] else { panic!("{said}") };
    assert!(
        told.contains("4.00 KiB more returned than charged in /a."),
        "{told}"
    );
}
