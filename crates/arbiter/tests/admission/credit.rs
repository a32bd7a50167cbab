//! Bytes that are kept for queries that are asked to give back memory.

use std::sync::Arc;
use std::time::Duration;

use bursar::{Charge, Limits, Memory};
use bursar_arbiter::{AdmitError, Answer, Arbiter, DrawError, Grant, Policy};

use super::clock::timed;
use super::common::{MIB, arbiter, ask, granted, refused, tenant, waits};
use super::growth::{Told, at_once, grown, grows_later, runs};

/// The policy of the tests of growth, with 10 MiB below each limit.
fn policy() -> Policy {
    let mut policy = at_once();
    policy.yielding.spill_credit = 10 * MIB;
    policy
}

/// A query that needs 20 MiB, one that came later and is asked for them, and what the second has charged.
struct Scene {
    arbiter: Arbiter,
    needy: Grant,
    asked: Grant,
    told: Arc<Told>,
    _used: Charge,
    held: Charge,
}

fn scene() -> Scene {
    let arbiter = arbiter(100, policy());
    let group = tenant(&arbiter, "t", u64::MAX);
    let needy = arbiter.try_admit(ask(&group, "needy", 40)).unwrap();
    arbiter.tick();
    let asked = arbiter.try_admit(ask(&group, "asked", 50)).unwrap();
    let told = Told::new(50);
    asked.attach(told.clone());
    let (used, held) = (needy.try_charge(40 * MIB), asked.try_charge(50 * MIB));
    Scene {
        _used: used.unwrap(),
        held: held.unwrap(),
        arbiter,
        needy,
        asked,
        told,
    }
}

#[test]
fn so_many_bytes_less_are_granted() {
    let arbiter = arbiter(100, policy());
    let group = tenant(&arbiter, "t", u64::MAX);
    assert_eq!(arbiter.most(&group), 90 * MIB);
    let error = refused(&mut arbiter.admit(ask(&group, "q", 91)));
    assert!(
        matches!(error, AdmitError::NeverFits { max, .. } if max == 90 * MIB),
        "{error}"
    );
    // Before the first tick as well as after it.
    for _ in 0..2 {
        drop(arbiter.try_admit(ask(&group, "q", 90)).unwrap());
        let _small = arbiter.try_admit(ask(&group, "small", 1)).unwrap();
        arbiter.tick();
        assert_eq!(arbiter.memory().root().reserved(), 10 * MIB);
        assert_eq!(arbiter.most(&group), 90 * MIB);
        let mut large = waits(arbiter.admit(ask(&group, "large", 90)));
        drop(_small);
        drop(granted(&mut large));
    }
}

#[test]
fn a_query_that_is_asked_draws_what_is_kept_and_no_more() {
    let Scene {
        arbiter,
        needy,
        asked,
        told,
        held,
        _used,
    } = scene();
    let root = arbiter.memory().root();
    let widener = asked.widener();
    assert_eq!(widener.draw(MIB).unwrap_err(), DrawError::NotAsked);
    // A look at a limit that is full takes nothing of them.
    arbiter.tick();
    assert_eq!(root.reserved(), 100 * MIB);
    let mut more = grows_later(needy.grow(20 * MIB));
    let (bytes, answer) = told.asked();
    assert_eq!(bytes, 20 * MIB);
    assert_eq!(needy.widener().draw(MIB).unwrap_err(), DrawError::NotAsked);
    let error = widener.draw(11 * MIB).unwrap_err();
    assert_eq!(error, DrawError::Exhausted { left: 10 * MIB });
    let first = widener.draw(6 * MIB).unwrap();
    let error = widener.draw(5 * MIB).unwrap_err();
    assert_eq!(error, DrawError::Exhausted { left: 4 * MIB });
    let second = widener.draw(4 * MIB).unwrap();
    assert_eq!(
        (asked.group().reserved(), root.reserved()),
        (60 * MIB, 100 * MIB)
    );
    drop((first, second));
    drop(held);
    give_back(answer, 50);
    assert_eq!(widener.draw(MIB).unwrap_err(), DrawError::NotAsked);
    let more = grown(&mut more);
    arbiter.tick();
    // Those that are kept, and both charges of the other.
    assert_eq!((more.bytes(), root.reserved()), (20 * MIB, 70 * MIB));
}

#[test]
fn a_draw_that_returns_leaves_no_promise() {
    let scene = scene();
    let _more = grows_later(scene.needy.grow(20 * MIB));
    let (_, answer) = scene.told.asked();
    drop(scene.asked.widener().draw(10 * MIB).unwrap());
    answer.cannot();
    scene.arbiter.tick();
    assert_eq!(scene.asked.bytes(), 50 * MIB);
    assert_eq!(scene.arbiter.memory().root().reserved(), 100 * MIB);
}

fn give_back(answer: Answer, mib: u64) {
    answer.freed(mib * MIB);
}

#[test]
fn what_returns_is_kept_first() {
    let Scene {
        arbiter,
        needy,
        asked,
        told,
        mut held,
        _used,
    } = scene();
    let mut more = grows_later(needy.grow(20 * MIB));
    let (_, answer) = told.asked();
    let drawn = asked.widener().draw(10 * MIB).unwrap();
    // It returns what the other waits for, and keeps the draw.
    drop(held.split(20 * MIB).unwrap());
    give_back(answer, 20);
    more = grows_later(more);
    arbiter.tick();
    more = grows_later(more);
    assert_eq!(arbiter.memory().root().reserved(), 90 * MIB);
    // It is asked for the bytes of the draw.
    let (bytes, answer) = told.asked();
    assert_eq!(bytes, 10 * MIB);
    drop(drawn);
    give_back(answer, 10);
    assert_eq!(grown(&mut more).bytes(), 20 * MIB);
    drop((asked, held));
}

#[test]
fn the_lowest_limit_of_each_way_keeps_them_as_long_as_its_tenant_runs() {
    let arbiter = arbiter(100, policy());
    let root = arbiter.memory().root();
    let group = tenant(&arbiter, "t", 50);
    let query = arbiter.try_admit(ask(&group, "q", 1)).unwrap();
    let kept = || {
        arbiter.tick();
        (group.reserved() / MIB, root.reserved() / MIB)
    };
    assert_eq!(kept(), (10, 10));
    // A quarter of a limit at most.
    group.set_max(16 * MIB);
    assert_eq!(kept(), (4, 4));
    group.set_max(u64::MAX);
    assert_eq!(kept(), (0, 10));
    group.set_max(50 * MIB);
    assert_eq!(kept(), (10, 10));
    drop(query);
    assert_eq!(root.reserved(), 0);
}

#[test]
fn what_is_kept_is_not_taken_from_promises() {
    let arbiter = arbiter(100, policy());
    let (one, other) = (tenant(&arbiter, "one", 100), tenant(&arbiter, "other", 100));
    let large = arbiter.try_admit(ask(&one, "large", 90)).unwrap();
    // Nothing is left for what the other's limit is to keep, before and after the first tick.
    let mut small = waits(arbiter.admit(ask(&other, "small", 1)));
    arbiter.tick();
    drop(large.try_charge(90 * MIB).unwrap());
    drop(large);
    drop(granted(&mut small));
    assert_eq!(arbiter.most(&one), 90 * MIB);
    let _all = arbiter.try_admit(ask(&one, "all", 90)).unwrap();
}

#[test]
fn what_is_kept_does_not_count_against_a_min() {
    let arbiter = arbiter(100, policy());
    let group = tenant(&arbiter, "t", 60);
    group.set_min(50 * MIB);
    let other = tenant(&arbiter, "other", u64::MAX);
    let needy = arbiter.try_admit(ask(&other, "needy", 30)).unwrap();
    let query = arbiter.try_admit(ask(&group, "q", 45)).unwrap();
    arbiter.tick();
    let told = Told::new(0);
    query.attach(told.clone());
    let _held = (
        needy.try_charge(30 * MIB).unwrap(),
        query.try_charge(45 * MIB).unwrap(),
    );
    assert_eq!(group.reserved(), 55 * MIB);
    let _more = grows_later(needy.grow(20 * MIB));
    arbiter.tick();
    assert!(told.is_idle());
}

#[test]
fn a_draw_that_the_group_refuses_changes_nothing() {
    let scene = scene();
    let _more = grows_later(scene.needy.grow(20 * MIB));
    let (_, answer) = scene.told.asked();
    let shown = || {
        let bytes = scene.arbiter.admissions().grants[1].bytes;
        (bytes, scene.arbiter.memory().root().reserved())
    };
    scene.asked.group().close().unwrap();
    let error = scene.asked.widener().draw(5 * MIB).unwrap_err();
    assert!(matches!(error, DrawError::Move(_)), "{error}");
    assert_eq!(shown(), (50 * MIB, 100 * MIB));
    answer.cannot();
}

#[test]
fn who_is_stopped_or_late_draws_nothing() {
    let mut policy = policy();
    policy.yielding.ask_max = Duration::from_millis(10);
    for reclaimable in [0, 50] {
        let (arbiter, clock) = timed(100, policy.clone());
        let group = tenant(&arbiter, "t", u64::MAX);
        let (needy, _used) = runs(&arbiter, ask(&group, "needy", 40), 40);
        arbiter.tick();
        let (asked, _held) = runs(&arbiter, ask(&group, "asked", 50), 50);
        let told = Told::new(reclaimable);
        asked.attach(told.clone());
        let _more = grows_later(needy.grow(20 * MIB));
        assert_eq!(told.is_stopped(), reclaimable == 0);
        let draw = || asked.widener().draw(MIB);
        clock.pass(Duration::from_nanos(9_999_999));
        match reclaimable {
            0 => assert_eq!(draw().unwrap_err(), DrawError::NotAsked),
            _ => drop(draw().unwrap()),
        }
        clock.pass(Duration::from_nanos(1));
        assert_eq!(draw().unwrap_err(), DrawError::NotAsked);
    }
}

/// Each limit is to keep a quarter of itself, which nobody can charge. Five quarters are more than a number holds.
#[test]
fn what_limits_are_to_keep_may_add_up_to_any_number() {
    let mut policy = policy();
    policy.yielding.spill_credit = u64::MAX;
    let memory = Memory::builder().build().unwrap();
    let arbiter = Arbiter::new(&memory, policy);
    let admitted = |name| {
        let group = memory
            .root()
            .child(name, Limits::max(u64::MAX - 1))
            .unwrap();
        arbiter.try_admit(ask(&group, "query", 1)).unwrap()
    };
    let five = ["one", "two", "three", "four", "five"].map(admitted);
    arbiter.tick();
    assert_eq!(admitted("six").bytes(), MIB);
    drop(five);
}
