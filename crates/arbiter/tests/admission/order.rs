//! The order of those that wait.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use bursar::Group;
use bursar_arbiter::{AdmitError, Arbiter, Ask, Grant, Order, Waiting};

use super::clock::timed;
use super::common::{MIB, arbiter, ask, granted, poll, refused, tenant, timeless, waits};

#[test]
fn in_a_tenant_the_first_comes_first_and_a_score_goes_before() {
    let arbiter = arbiter(100, timeless());
    let acme = tenant(&arbiter, "acme", 10);
    let held = arbiter.try_admit(ask(&acme, "held", 10)).unwrap();
    let mut first = waits(arbiter.admit(ask(&acme, "first", 10)));
    let mut second = waits(arbiter.admit(ask(&acme, "second", 10)));
    let mut scored = waits(arbiter.admit(ask(&acme, "scored", 10).score(3)));
    drop(held);
    let held = granted(&mut scored);
    assert!(poll(&mut first).is_pending() && poll(&mut second).is_pending());
    drop(held);
    let held = granted(&mut first);
    assert!(poll(&mut second).is_pending());
    drop(held);
    granted(&mut second);
}

#[test]
fn who_has_waited_long_comes_before_a_newcomer_with_a_score() {
    let mut policy = timeless();
    policy.ageing = Duration::ZERO;
    let arbiter = arbiter(100, policy);
    let acme = tenant(&arbiter, "acme", 10);
    let held = arbiter.try_admit(ask(&acme, "held", 10)).unwrap();
    // A score is worth no time at all.
    let mut old = waits(arbiter.admit(ask(&acme, "old", 10)));
    let mut young = waits(arbiter.admit(ask(&acme, "young", 10).score(i32::MAX)));
    drop(held);
    let _held = granted(&mut old);
    assert!(poll(&mut young).is_pending());
}

#[test]
fn a_waiter_that_cannot_be_served_stops_no_other_tenant() {
    let arbiter = arbiter(100, timeless());
    let [acme, umbrella] = ["acme", "umbrella"].map(|name| tenant(&arbiter, name, 50));
    let _held = arbiter.try_admit(ask(&acme, "held", 40)).unwrap();
    let _large = waits(arbiter.admit(ask(&acme, "large", 30)));
    arbiter.try_admit(ask(&umbrella, "small", 1)).unwrap();
    // Nor a smaller one of its own tenant.
    arbiter.try_admit(ask(&acme, "small", 1)).unwrap();
    assert_eq!(
        arbiter.admissions().counts.passes,
        1,
        "umbrella is not on its way"
    );
}

/// Lets small asks of `other` pass a large one of `acme` at the root, until room is kept. Returns how many passed.
fn passes(arbiter: &Arbiter, acme: &Group, other: &Group) -> u32 {
    let _held = arbiter.try_admit(ask(acme, "held", 60)).unwrap();
    let mut large = waits(arbiter.admit(ask(acme, "large", 80)));
    let mut passes = 0;
    while let Ok(small) = arbiter.try_admit(ask(other, "small", 1)) {
        drop(small);
        passes += 1;
    }
    let kept = &arbiter.admissions().waiting[0];
    assert!(kept.is_kept_room && kept.passed == passes, "{kept:?}");
    drop(_held);
    granted(&mut large);
    passes
}

#[test]
fn after_as_many_passes_as_the_policy_says_room_is_kept() {
    let mut policy = timeless();
    policy.passes_max = 7;
    let arbiter = arbiter(100, policy);
    let [acme, umbrella] = ["acme", "umbrella"].map(|name| tenant(&arbiter, name, u64::MAX));
    assert_eq!(passes(&arbiter, &acme, &umbrella), 7);
    // The same among waiters of one tenant.
    assert_eq!(passes(&arbiter, &umbrella, &umbrella), 7);
    // Whatever the operator prefers.
    let order = Order {
        precedence: 9,
        ..Order::default()
    };
    arbiter.set_order(&umbrella, order);
    assert_eq!(passes(&arbiter, &acme, &umbrella), 7);
}

#[test]
fn after_the_time_that_the_policy_says_one_pass_is_enough() {
    let mut policy = timeless();
    policy.passed_max = Duration::ZERO;
    let arbiter = arbiter(100, policy);
    let [acme, umbrella] = ["acme", "umbrella"].map(|name| tenant(&arbiter, name, u64::MAX));
    assert_eq!(passes(&arbiter, &acme, &umbrella), 1);
}

#[test]
fn room_is_kept_at_the_limit_that_is_in_the_way_and_nowhere_else() {
    let mut policy = timeless();
    policy.passes_max = 0;
    let arbiter = arbiter(100, policy);
    let [acme, umbrella] = ["acme", "umbrella"].map(|name| tenant(&arbiter, name, 50));
    let _held = arbiter.try_admit(ask(&acme, "held", 40)).unwrap();
    let _large = waits(arbiter.admit(ask(&acme, "large", 30)));
    assert!(matches!(
        arbiter.try_admit(ask(&acme, "small", 1)),
        Err(AdmitError::TimedOut { .. })
    ));
    arbiter
        .try_admit(ask(&umbrella, "small", 1))
        .expect("another limit");
}

#[test]
fn tenants_come_by_precedence_and_then_by_bytes_for_their_weight() {
    let arbiter = arbiter(120, timeless());
    let [acme, umbrella, stark] =
        ["acme", "umbrella", "stark"].map(|name| tenant(&arbiter, name, u64::MAX));
    arbiter.set_order(
        &stark,
        Order {
            precedence: 1,
            ..Order::default()
        },
    );
    arbiter.set_order(
        &umbrella,
        Order {
            weight: 300,
            ..Order::default()
        },
    );
    let mut held: Vec<Grant> = Vec::new();
    for (group, mib) in [(&acme, 20), (&umbrella, 30), (&stark, 50), (&acme, 20)] {
        let name = format!("held-{}", held.len());
        held.push(arbiter.try_admit(ask(group, &name, mib)).unwrap());
    }
    // 40 MiB for a weight of 100, 30 for 300, and 50 with precedence.
    let mut waiting =
        [&acme, &umbrella, &stark].map(|group| waits(arbiter.admit(ask(group, "next", 20))));
    let [acme, umbrella, stark] = &mut waiting;
    held.remove(0);
    held.push(granted(stark));
    assert!(poll(umbrella).is_pending());
    held.remove(0);
    // 20 MiB for a weight of 100 are more than 0 for 300.
    held.push(granted(umbrella));
    assert!(poll(acme).is_pending());
}

#[test]
fn an_ask_runs_narrower_rather_than_waits_but_not_below_half_its_wish_at_first() {
    let arbiter = arbiter(100, timeless());
    let acme = tenant(&arbiter, "acme", 40);
    let wide = |name: &str| Ask::new(&acme, name).least(4 * MIB, 4 * MIB).width(1..=8);
    // 4 + 8 * 4 = 36 of 40 MiB.
    let first = arbiter.try_admit(wide("first")).unwrap();
    assert_eq!((first.width(), first.bytes()), (8, 36 * MIB));
    let second = waits(arbiter.admit(wide("second")));
    drop((first, second));
    let _held = arbiter.try_admit(ask(&acme, "held", 16)).unwrap();
    let second = arbiter.try_admit(wide("second")).unwrap();
    assert_eq!(
        (second.width(), second.bytes()),
        (5, 24 * MIB),
        "of 24 MiB: 4 + 5 * 4"
    );
    assert_eq!(arbiter.admissions().counts.narrowed, 1);
    drop(second);
    let more = arbiter.try_admit(ask(&acme, "more", 8)).unwrap();
    let mut third = waits(arbiter.admit(wide("third")));
    drop(more);
    assert_eq!(granted(&mut third).width(), 5);
}

#[test]
fn after_a_time_an_ask_may_be_as_narrow_as_its_range() {
    let mut policy = timeless();
    policy.narrow_after = Duration::ZERO;
    let arbiter = arbiter(100, policy);
    let acme = tenant(&arbiter, "acme", 40);
    let _held = arbiter.try_admit(ask(&acme, "held", 30)).unwrap();
    let narrow = arbiter
        .try_admit(
            Ask::new(&acme, "narrow")
                .least(4 * MIB, 4 * MIB)
                .width(1..=8),
        )
        .unwrap();
    assert_eq!(
        (narrow.width(), narrow.bytes()),
        (1, 10 * MIB),
        "nobody waits, so it has all that is left of its wish"
    );
}

#[test]
fn what_never_fits_is_refused_at_once_and_later_lowered_limits_count() {
    let arbiter = arbiter(100, timeless());
    let acme = tenant(&arbiter, "acme", 40);
    let error = refused(&mut arbiter.admit(ask(&acme, "query", 41)));
    assert_eq!(
        error.to_string(),
        "the query needs at least 41.0 MiB, and /acme may have at most 40.0 MiB"
    );
    let held = arbiter.try_admit(ask(&acme, "held", 20)).unwrap();
    let mut waiting = waits(arbiter.admit(ask(&acme, "waiting", 30)));
    acme.set_max(25 * MIB);
    assert!(matches!(refused(&mut waiting), AdmitError::NeverFits { max, .. } if max == 25 * MIB));
    // An estimate is lowered instead.
    let mut waiting = waits(arbiter.admit(ask(&acme, "estimated", 30).estimated()));
    drop(held);
    assert_eq!(granted(&mut waiting).bytes(), 25 * MIB);
}

#[test]
fn patience_ends_with_the_limit_in_the_way_and_a_time_to_ask_again() {
    let arbiter = arbiter(100, timeless());
    let acme = tenant(&arbiter, "acme", 40);
    let _held = arbiter.try_admit(ask(&acme, "held", 40)).unwrap();
    let mut waiting =
        waits(arbiter.admit(ask(&acme, "waiting", 1).patience(Duration::from_nanos(1))));
    arbiter.tick();
    let Poll::Ready(Err(AdmitError::TimedOut {
        limited,
        retry_after,
        ..
    })) = poll(&mut waiting)
    else {
        panic!("its time is over");
    };
    assert_eq!(limited, "/acme");
    assert!(retry_after >= Duration::from_millis(10));
}

#[test]
fn no_room_is_kept_where_nothing_will_return() {
    let mut policy = timeless();
    policy.passes_max = 3;
    let arbiter = arbiter(100, policy);
    let [acme, umbrella, cache] =
        ["acme", "umbrella", "cache"].map(|name| tenant(&arbiter, name, u64::MAX));
    let held = arbiter.try_admit(ask(&umbrella, "held", 50)).unwrap();
    let _cached = cache.try_charge(20 * MIB).unwrap();
    let mut exact = waits(arbiter.admit(ask(&acme, "exact", 90)));
    let mut estimated = waits(arbiter.admit(ask(&acme, "estimated", 85).estimated().score(1)));
    while arbiter.try_admit(ask(&umbrella, "small", 1)).is_ok() {}
    // Both wait for what the cache has, and nothing else runs.
    drop(held);
    let grant = granted(&mut estimated);
    assert!(grant.bytes() <= 80 * MIB, "all that there is");
    drop(grant);
    arbiter
        .try_admit(ask(&umbrella, "small", 1))
        .expect("nobody else can be served");
    assert!(poll(&mut exact).is_pending());
    cache.set_max(0);
    drop(_cached);
    arbiter.tick();
    granted(&mut exact);
}

#[test]
fn an_ask_for_next_to_nothing_waits_for_its_byte() {
    let arbiter = arbiter(100, timeless());
    let acme = tenant(&arbiter, "acme", 40);
    let closed = tenant(&arbiter, "closed", 0);
    assert!(matches!(
        arbiter.try_admit(Ask::new(&closed, "query")),
        Err(AdmitError::NeverFits { max: 0, .. })
    ));
    let held = arbiter.try_admit(ask(&acme, "held", 40)).unwrap();
    let mut small = waits(arbiter.admit(Ask::new(&acme, "small").least(0, 0).wanted(MIB)));
    drop(held);
    granted(&mut small);
}

#[test]
fn the_limit_in_the_way_is_named_and_counted_once_for_a_lone_waiter_too() {
    let arbiter = arbiter(100, timeless());
    let acme = tenant(&arbiter, "acme", u64::MAX);
    let umbrella = tenant(&arbiter, "umbrella", u64::MAX);
    let _held = arbiter.try_admit(ask(&umbrella, "held", 100)).unwrap();
    let error = arbiter.try_admit(ask(&acme, "query", 1)).unwrap_err();
    assert!(matches!(error, AdmitError::TimedOut { limited, .. } if limited == "/"));
    assert_eq!(arbiter.admissions().counts.timed_out, 1);
    assert_eq!(arbiter.most(&acme), 100 * MIB);
}

fn names_that_wait(arbiter: &Arbiter) -> Vec<String> {
    let waiting = arbiter.admissions().waiting;
    waiting.into_iter().map(|one| one.name).collect()
}

#[test]
fn while_others_wait_an_ask_gets_no_more_than_it_needs_and_the_last_gets_its_wish() {
    for same_tenant in [true, false] {
        let arbiter = arbiter(100, timeless());
        let [acme, umbrella] = ["acme", "umbrella"].map(|name| tenant(&arbiter, name, u64::MAX));
        let other = if same_tenant { &acme } else { &umbrella };
        let held = arbiter.try_admit(ask(&acme, "held", 100)).unwrap();
        let roomy = |group, name: &str| {
            let ask = ask(group, name, 20).wanted(30 * MIB);
            waits(arbiter.admit(ask))
        };
        let mut waiting = [roomy(&acme, "one"), roomy(other, "two")];
        let shown = arbiter.admissions();
        assert_eq!((shown.waiting.len(), arbiter.counts().waiting), (2, 2));
        assert!(shown.waiting.iter().all(|one| !one.is_kept_room));
        drop(held);
        let grants = waiting.each_mut().map(granted);
        let sizes = grants.each_ref().map(|grant| grant.bytes() / MIB);
        // The other tenant was granted nothing so far.
        let expected = if same_tenant { [20, 30] } else { [30, 20] };
        assert_eq!(sizes, expected);
    }
}

#[test]
fn who_has_most_for_its_weight_comes_last_to_a_byte_for_its_weight() {
    // The first to come is served first, if both have as much for their weight.
    for (bytes, is_first) in [(30 * MIB, true), (30 * MIB + 3, false)] {
        let arbiter = arbiter(100, timeless());
        let [heavy, light] = ["heavy", "light"].map(|name| tenant(&arbiter, name, u64::MAX));
        let order = Order {
            weight: 300,
            ..Order::default()
        };
        arbiter.set_order(&heavy, order);
        let exact = |group, name: &str, bytes| {
            let ask = Ask::new(group, name).least(bytes, 0).wanted(bytes);
            arbiter.try_admit(ask).unwrap()
        };
        let _heavy = exact(&heavy, "held", bytes);
        let _light = exact(&light, "held", 10 * MIB);
        let rest = tenant(&arbiter, "rest", u64::MAX);
        let left = 90 * MIB - bytes;
        let rest = exact(&rest, "held", left);
        let waiting = [(&heavy, "heavy"), (&light, "light")]
            .map(|(group, name)| waits(arbiter.admit(ask(group, name, 40))));
        drop(rest);
        let later = if is_first { "light" } else { "heavy" };
        assert_eq!(names_that_wait(&arbiter), [later], "{bytes}");
        drop(waiting);
    }
}

#[test]
fn asks_of_one_look_share_what_is_charged_to_nobody() {
    let arbiter = arbiter(100, timeless());
    let acme = tenant(&arbiter, "acme", u64::MAX);
    let _outside = acme.try_charge(30 * MIB).unwrap();
    let full = arbiter.try_admit(ask(&acme, "full", 20)).unwrap();
    let _full = full.try_charge(20 * MIB).unwrap();
    let held = arbiter.try_admit(ask(&acme, "held", 50)).unwrap();
    let mut both =
        [("one", 40), ("two", 30)].map(|(name, mib)| waits(arbiter.admit(ask(&acme, name, mib))));
    drop(held);
    assert_eq!(names_that_wait(&arbiter), ["two"]);
    drop(granted(&mut both[0]));
}

#[test]
fn a_floor_that_fits_exactly_is_granted_and_a_byte_less_is_waited_for() {
    let half = 20 * MIB;
    for (free, width) in [
        (half - 1, None),
        (half, Some(4)),
        (24 * MIB - 1, Some(4)),
        (24 * MIB, Some(5)),
    ] {
        let arbiter = arbiter(100, timeless());
        let acme = tenant(&arbiter, "acme", 40);
        let held = 40 * MIB - free;
        let _held = arbiter.try_admit(Ask::new(&acme, "held").least(held, 0).wanted(held));
        let ask = Ask::new(&acme, "wide").least(4 * MIB, 4 * MIB).width(1..=8);
        let found = arbiter.try_admit(ask).ok().map(|grant| grant.width());
        assert_eq!(found, width, "{free}");
    }
}

#[test]
fn an_estimate_takes_what_there_is_if_none_will_return_and_runs_as_narrow_as_it_may() {
    let arbiter = arbiter(100, timeless());
    let [acme, cache] = ["acme", "cache"].map(|name| tenant(&arbiter, name, u64::MAX));
    let estimate = |name: &str| {
        let ask = Ask::new(&acme, name)
            .least(40 * MIB, 10 * MIB)
            .wanted(80 * MIB);
        arbiter.admit(ask.width(2..=4).estimated())
    };
    let mut cached = cache.try_charge(100 * MIB).unwrap();
    // Nothing is no memory to run with.
    let mut none = waits(estimate("none"));
    drop(cached.split(30 * MIB).unwrap());
    arbiter.tick();
    let grant = granted(&mut none);
    assert_eq!((grant.width(), grant.bytes()), (2, 30 * MIB));
    // The bytes of a grant that has ended will return.
    let left = grant.try_charge(20 * MIB).unwrap();
    drop(grant);
    let mut next = waits(estimate("next"));
    drop(left);
    assert_eq!(granted(&mut next).bytes(), 30 * MIB);
    drop(cached);
    // Those of one elsewhere do not help, nor do those that have returned though nobody was told.
    let [here, there] = ["here", "there"].map(|name| tenant(&arbiter, name, 20));
    let elsewhere = arbiter.try_admit(ask(&there, "query", 10)).unwrap();
    let _left = elsewhere.try_charge(10 * MIB).unwrap();
    drop(elsewhere);
    let back = arbiter.try_admit(ask(&here, "back", 10)).unwrap();
    let charge = back.try_charge(10 * MIB).unwrap();
    drop(back);
    let _outside = here.try_charge(10 * MIB).unwrap();
    charge.release_nowait();
    let ask = ask(&here, "query", 20).estimated();
    assert_eq!(arbiter.try_admit(ask).unwrap().bytes(), 10 * MIB);
}

#[test]
fn an_estimate_above_its_limit_counts_again_once_the_limit_is_raised() {
    let arbiter = arbiter(200, timeless());
    let acme = tenant(&arbiter, "acme", 40);
    let held = arbiter.try_admit(ask(&acme, "held", 40)).unwrap();
    let mut estimated = waits(arbiter.admit(ask(&acme, "estimated", 60).estimated()));
    arbiter.tick();
    assert_eq!(arbiter.admissions().waiting[0].least, 60 * MIB);
    acme.set_max(90 * MIB);
    arbiter.tick();
    assert!(poll(&mut estimated).is_pending(), "50 MiB are free");
    drop(held);
    assert_eq!(granted(&mut estimated).bytes(), 60 * MIB);
}

#[test]
fn next_to_nothing_passes_nobody_that_room_is_kept_for() {
    let mut policy = timeless();
    policy.passes_max = 3;
    let arbiter = arbiter(100, policy);
    let acme = tenant(&arbiter, "acme", u64::MAX);
    let held = arbiter.try_admit(ask(&acme, "held", 60)).unwrap();
    let mut large = waits(arbiter.admit(ask(&acme, "large", 80)));
    let small = || arbiter.try_admit(Ask::new(&acme, "small").least(0, 0).wanted(MIB));
    let passes = std::iter::from_fn(|| small().ok()).map(drop).count();
    assert_eq!(passes, 3);
    let shown = arbiter.admissions();
    let _second = waits(arbiter.admit(ask(&acme, "second", 80)));
    let kept = |one: &Waiting| one.is_kept_room;
    assert!(shown.waiting.iter().all(kept));
    let shown = arbiter.admissions().waiting;
    assert_eq!(shown.iter().map(kept).collect::<Vec<_>>(), [true, false]);
    drop(held);
    drop(granted(&mut large));
}

#[test]
fn room_is_kept_for_nobody_who_waits_for_what_no_grant_has() {
    // Whether the bytes are at the root, whether a grant of 0 bytes runs beside, and whether the first must be alone.
    for (at_root, has_empty, is_alone) in [
        (true, true, false),
        (true, false, true),
        (false, false, true),
    ] {
        let mut policy = timeless();
        policy.passes_max = 1;
        let arbiter = arbiter(100, policy);
        let acme = tenant(&arbiter, "acme", 90);
        let cache = tenant(&arbiter, "cache", u64::MAX);
        let group = if at_root { &cache } else { &acme };
        let _outside = group.try_charge(60 * MIB).unwrap();
        let _empty = has_empty.then(|| {
            let empty = arbiter.try_admit(ask(&acme, "empty", 1)).unwrap();
            assert_eq!(empty.resize(0), Ok(0));
            empty
        });
        let first = ask(&acme, "first", 80);
        let first = if is_alone { first.alone() } else { first };
        let _first = waits(arbiter.admit(first));
        for number in 0..3 {
            let small = arbiter.try_admit(ask(&acme, "small", 1));
            assert!(
                small.is_ok(),
                "{number}: {at_root} {has_empty} {is_alone}: {small:?}"
            );
        }
    }
}

/// Room is kept for one that waits, but for a time without a break, and the breaks become longer.
#[test]
fn a_query_without_end_does_not_keep_all_others_waiting_without_end() {
    let mut policy = timeless();
    policy.passes_max = 3;
    policy.kept_max = Duration::from_secs(60);
    // Whether it waits for memory as a query that runs, for bytes, or to be alone.
    for (grows, is_alone) in [(true, false), (false, false), (false, true)] {
        let (arbiter, clock) = timed(100, policy.clone());
        let acme = tenant(&arbiter, "acme", 100);
        let without_end = arbiter.try_admit(ask(&acme, "without end", 30)).unwrap();
        without_end.grow_first().unwrap();
        let _used = without_end.try_charge(30 * MIB).unwrap();
        let small = || arbiter.try_admit(ask(&acme, "small", 1)).is_ok();
        let mut large = ask(&acme, "large", if is_alone { 1 } else { 80 });
        if is_alone {
            large = large.alone();
        }
        let running = grows.then(|| {
            let running = arbiter.try_admit(ask(&acme, "running", 50)).unwrap();
            let used = running.try_charge(50 * MIB).unwrap();
            (running, used)
        });
        let mut grow = running.as_ref().map(|(running, _)| running.grow(30 * MIB));
        let mut waiting = (!grows).then(|| waits(arbiter.admit(large)));
        if let Some(grow) = &mut grow {
            let mut context = Context::from_waker(Waker::noop());
            assert!(Pin::new(grow).poll(&mut context).is_pending());
        } else {
            assert_eq!((0..5).filter(|_| small()).count(), 3);
        }
        let mut served = String::new();
        for _half_minute in 0..32 {
            arbiter.tick();
            served += if small() { "." } else { "K" };
            clock.pass(Duration::from_secs(30));
        }
        assert_eq!(
            served, "KK..KK......KK..............KK..",
            "{grows} {is_alone}"
        );
        drop(without_end);
        if let Some(waiting) = &mut waiting {
            drop(_used);
            granted(waiting);
        }
    }
}

/// An idle client may never come back. One that waits for its bytes is passed meanwhile, and keeps its place.
#[test]
fn room_is_kept_for_nobody_who_waits_for_idle_queries_alone() {
    let mut policy = timeless();
    policy.passes_max = 1;
    let (idle_after, moment) = (Duration::from_secs(10), Duration::from_millis(1));
    policy.idle_after = idle_after;
    // Whether it waits for bytes that run already, as an ask that is alone, or as any other ask.
    for (grows, is_alone) in [(true, false), (false, true), (false, false)] {
        let (arbiter, clock) = timed(100, policy.clone());
        let acme = tenant(&arbiter, "acme", u64::MAX);
        let idle = arbiter.try_admit(ask(&acme, "idle", 30)).unwrap();
        let _held = idle.try_charge(30 * MIB).unwrap();
        // Nobody says of this one that it is idle.
        let inside = Ask::new(idle.group(), "inside").least(0, 0);
        let _inside = arbiter.try_admit(inside).unwrap();
        let running = arbiter.try_admit(ask(&acme, "running", 40)).unwrap();
        let used = running.try_charge(40 * MIB).unwrap();
        let mut grow = grows.then(|| running.grow(50 * MIB));
        let mut first = None;
        if let Some(grow) = &mut grow {
            let mut context = Context::from_waker(Waker::noop());
            assert!(Pin::new(grow).poll(&mut context).is_pending());
        } else {
            drop((used, running));
            let ask = ask(&acme, "first", 80);
            first = Some(waits(arbiter.admit(if is_alone {
                ask.alone()
            } else {
                ask
            })));
        }
        let small = || arbiter.try_admit(ask(&acme, "small", 1)).is_ok();
        let served = |times: usize| (0..times).filter(|_| small()).count();
        served(1);
        assert_eq!(served(5), 0, "the client may read on at any moment");
        idle.set_idle(true);
        clock.pass(idle_after - moment);
        arbiter.tick();
        assert_eq!(served(5), 0, "{grows} {is_alone}");
        clock.pass(moment);
        arbiter.tick();
        assert_eq!(served(5), 5, "{grows} {is_alone}");
        let shown = arbiter.admissions().waiting;
        assert!(shown.iter().all(|one| !one.is_kept_room), "{shown:?}");
        drop((first, grow));
    }
}

#[test]
fn each_pass_of_a_look_is_counted() {
    let arbiter = arbiter(100, timeless());
    let [acme, umbrella, most] =
        ["acme", "umbrella", "most"].map(|name| tenant(&arbiter, name, u64::MAX));
    // After its small one, acme has more than umbrella.
    let _held = arbiter.try_admit(ask(&acme, "held", 20)).unwrap();
    let _beside = arbiter.try_admit(ask(&umbrella, "beside", 25)).unwrap();
    let most = arbiter.try_admit(ask(&most, "most", 55)).unwrap();
    let _first = waits(arbiter.admit(ask(&acme, "first", 90)));
    let _small = [&acme, &umbrella].map(|group| waits(arbiter.admit(ask(group, "small", 10))));
    drop(most);
    let shown = arbiter.admissions();
    let [first] = &shown.waiting[..] else {
        panic!("one waits");
    };
    assert_eq!((&*first.name, &*first.blocked_by), ("first", "/"));
    // The small one of umbrella was passed by the other before.
    assert_eq!((first.passed, shown.counts.passes), (2, 3));
}
