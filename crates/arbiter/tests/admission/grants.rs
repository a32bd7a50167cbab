//! Grants: their groups, their sizes, their ends.

use std::collections::BTreeSet;
use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::task::{Context, Waker};
use std::time::Duration;

use bursar::{ChargeError, Limits};
use bursar_arbiter::{Admit, AdmitError, Ask, NotWidened};

use super::common::{MIB, Woken, arbiter, ask, granted, poll, tenant, timeless, waits};

#[test]
fn a_grant_is_a_group_with_its_bytes_as_limit_and_ends_with_its_handle() {
    let arbiter = arbiter(100, timeless());
    let acme = tenant(&arbiter, "acme", 40);
    let grant = arbiter.try_admit(ask(&acme, "query-7", 10)).unwrap();
    assert_eq!(grant.group().path(), "/acme/query-7");
    assert_eq!(grant.group().limits().max, 10 * MIB);
    let group = grant.group().clone();
    drop(grant);
    assert!(group.is_removed() && acme.children().is_empty());
    assert_eq!(arbiter.admissions().grants, []);
}

#[test]
fn bytes_that_outlive_the_handle_count_until_they_return_and_their_return_wakes() {
    let arbiter = arbiter(100, timeless());
    let acme = tenant(&arbiter, "acme", 40);
    let grant = arbiter.try_admit(ask(&acme, "query", 40)).unwrap();
    let charge = grant.group().try_charge(30 * MIB).unwrap();
    let mut next = arbiter.admit(ask(&acme, "next", 20));
    let woken = Arc::new(Woken::default());
    let waker = Waker::from(woken.clone());
    assert!(
        Pin::new(&mut next)
            .poll(&mut Context::from_waker(&waker))
            .is_pending()
    );
    drop(grant);
    assert_eq!(woken.times(), 0, "10 MiB are free");
    drop(charge);
    assert_eq!(woken.times(), 1);
    granted(&mut next);
}

#[test]
fn the_last_bytes_of_an_ended_grant_wake_once() {
    let arbiter = arbiter(100, timeless());
    let acme = tenant(&arbiter, "acme", 40);
    let grant = arbiter.try_admit(ask(&acme, "query", 40)).unwrap();
    let charges = [10, 20].map(|mib| grant.try_charge(mib * MIB).unwrap());
    let woken = Arc::new(Woken::default());
    let waker = Waker::from(woken.clone());
    let mut next = arbiter.admit(ask(&acme, "next", 40));
    let poll_next = |next: &mut Admit| Pin::new(next).poll(&mut Context::from_waker(&waker));
    assert!(poll_next(&mut next).is_pending());
    drop(grant);
    let [first, second] = charges;
    drop(first);
    assert_eq!(woken.times(), 0, "20 MiB are charged still");
    drop(second);
    assert_eq!(woken.times(), 1);
    // Nobody tells it again, though much else happens before it looks.
    arbiter.tick();
    assert!(arbiter.try_admit(ask(&acme, "other", 1)).is_err());
    arbiter.tick();
    assert_eq!(woken.times(), 1);
    granted(&mut next);
}

#[test]
fn what_is_promised_and_not_yet_charged_is_promised_to_nobody_else() {
    let arbiter = arbiter(100, timeless());
    let [acme, umbrella] = ["acme", "umbrella"].map(|name| tenant(&arbiter, name, u64::MAX));
    let first = arbiter.try_admit(ask(&acme, "first", 60)).unwrap();
    assert!(matches!(
        arbiter.try_admit(ask(&umbrella, "second", 41)),
        Err(AdmitError::TimedOut { .. })
    ));
    let second = arbiter.try_admit(ask(&umbrella, "second", 40)).unwrap();
    // Each has what it was promised, charged or not.
    let charged = [
        first.try_charge(60 * MIB).unwrap(),
        second.try_charge(40 * MIB).unwrap(),
    ];
    assert!(matches!(
        arbiter.try_admit(ask(&umbrella, "third", 1)),
        Err(AdmitError::TimedOut { .. })
    ));
    drop(charged);
}

#[test]
fn a_charge_outside_of_grants_may_take_what_is_promised_and_counts_afterwards() {
    let arbiter = arbiter(100, timeless());
    let [acme, cache] = ["acme", "cache"].map(|name| tenant(&arbiter, name, u64::MAX));
    let grant = arbiter.try_admit(ask(&acme, "query", 60)).unwrap();
    let taken = cache
        .try_charge(100 * MIB)
        .expect("nothing is charged ahead");
    let Err(ChargeError::LimitReached(reached)) = grant.try_charge(MIB) else {
        panic!("the memory is not there");
    };
    assert_eq!(reached.limited, "/");
    drop(grant);
    let mut waiting = waits(arbiter.admit(ask(&acme, "next", 1)));
    // Such a return tells nobody, so a tick must.
    drop(taken);
    arbiter.tick();
    granted(&mut waiting);
}

#[test]
fn a_grant_that_is_exceeded_by_a_charge_that_cannot_fail_counts_whole() {
    let arbiter = arbiter(100, timeless());
    let acme = tenant(&arbiter, "acme", u64::MAX);
    let grant = arbiter.try_admit(ask(&acme, "query", 10)).unwrap();
    let beyond = grant.group().charge(95 * MIB);
    assert!(matches!(
        arbiter.try_admit(ask(&acme, "next", 6)),
        Err(AdmitError::TimedOut { .. })
    ));
    arbiter.try_admit(ask(&acme, "next", 5)).unwrap();
    drop(beyond);
}

#[test]
fn a_grant_widens_in_the_charge_that_needs_it_while_nobody_waits() {
    let arbiter = arbiter(100, timeless());
    let acme = tenant(&arbiter, "acme", 40);
    let grant = arbiter.try_admit(ask(&acme, "query", 4)).unwrap();
    let charges: Vec<_> = (0..40).map(|_| grant.try_charge(MIB).unwrap()).collect();
    assert_eq!(grant.bytes(), 40 * MIB);
    let Err(ChargeError::LimitReached(reached)) = grant.try_charge(1) else {
        panic!("the tenant has no more");
    };
    assert_eq!(reached.limited, "/acme/query");
    drop(charges);
    // Larger than the grant, which the memory refuses without a look at others.
    drop(grant);
    let grant = arbiter.try_admit(ask(&acme, "query", 4)).unwrap();
    drop(grant.try_charge(20 * MIB).unwrap());
    assert!(arbiter.admissions().counts.widened > 1);
}

#[test]
fn a_grant_does_not_widen_while_others_wait_and_gives_back_what_it_does_not_use() {
    let arbiter = arbiter(100, timeless());
    let acme = tenant(&arbiter, "acme", 40);
    let roomy = Ask::new(&acme, "roomy").least(4 * MIB, 0).wanted(40 * MIB);
    let grant = arbiter.try_admit(roomy).unwrap();
    assert_eq!(grant.bytes(), 40 * MIB, "nobody else wants it");
    let held = grant.try_charge(10 * MIB).unwrap();
    // Bytes above the least and above the peak so far go to those that wait.
    let other = arbiter.try_admit(ask(&acme, "other", 24));
    assert!(other.is_err(), "an ask without patience takes nothing away");
    let mut other = waits(arbiter.admit(ask(&acme, "other", 24)));
    let other = granted(&mut other);
    assert_eq!(grant.bytes(), 10 * MIB + held_stock(&grant));
    let _waiting = waits(arbiter.admit(ask(&acme, "waiting", 20)));
    assert_eq!(grant.widener().widen(12 * MIB), Err(NotWidened::OthersWait));
    drop((held, other));
}

/// Stock beyond the charges, bytes: part of the peak.
fn held_stock(grant: &bursar_arbiter::Grant) -> u64 {
    grant.bytes() - 10 * MIB
}

#[test]
fn a_grant_whose_client_is_idle_keeps_what_it_has_charged() {
    let mut policy = timeless();
    policy.idle_after = Duration::ZERO;
    let arbiter = arbiter(100, policy);
    let acme = tenant(&arbiter, "acme", 40);
    let grant = arbiter.try_admit(ask(&acme, "query", 40)).unwrap();
    let held = grant.try_charge(30 * MIB).unwrap();
    let mut next = waits(arbiter.admit(ask(&acme, "next", 8)));
    assert!(poll(&mut next).is_pending(), "it was promised 40 MiB");
    grant.set_idle(true);
    arbiter.tick();
    granted(&mut next);
    assert!(grant.bytes() >= 30 * MIB && grant.bytes() <= 32 * MIB);
    drop(held);
}

#[test]
fn a_grant_that_grows_first_is_not_made_smaller_for_a_waiter() {
    let arbiter = arbiter(100, timeless());
    let acme = tenant(&arbiter, "acme", 40);
    let roomy = Ask::new(&acme, "roomy").least(4 * MIB, 0).wanted(40 * MIB);
    let grant = arbiter.try_admit(roomy).unwrap();
    grant.grow_first().unwrap();
    let mut next = waits(arbiter.admit(ask(&acme, "next", 8)));
    arbiter.tick();
    assert!(poll(&mut next).is_pending());
    assert_eq!(grant.bytes(), 40 * MIB);
    // It gives up bytes of its own will, and takes them before the waiter does.
    assert_eq!(grant.resize(33 * MIB), Ok(33 * MIB));
    let held = grant.try_charge(40 * MIB).unwrap();
    assert!(poll(&mut next).is_pending());
    drop((grant, held));
    granted(&mut next);
}

#[test]
fn a_grant_can_be_resized_but_not_below_what_is_charged() {
    let arbiter = arbiter(100, timeless());
    let acme = tenant(&arbiter, "acme", 40);
    let grant = arbiter.try_admit(ask(&acme, "query", 30)).unwrap();
    let held = grant.try_charge(10 * MIB).unwrap();
    assert_eq!(grant.resize(20 * MIB), Ok(20 * MIB));
    let _other = arbiter.try_admit(ask(&acme, "other", 20)).unwrap();
    assert_eq!(grant.resize(21 * MIB), Err(NotWidened::NoRoom));
    let left = grant.resize(MIB).unwrap();
    assert!((10 * MIB..12 * MIB).contains(&left), "{left}");
    drop(held);
}

#[test]
fn the_last_try_has_its_tenant_alone() {
    let arbiter = arbiter(100, timeless());
    let acme = tenant(&arbiter, "acme", 40);
    let first = arbiter.try_admit(ask(&acme, "first", 10)).unwrap();
    let mut alone = waits(arbiter.admit(ask(&acme, "alone", 20).alone()));
    let mut after = waits(arbiter.admit(ask(&acme, "after", 31)));
    drop(first);
    let alone = granted(&mut alone);
    assert_eq!(alone.bytes(), 40 * MIB);
    assert!(poll(&mut after).is_pending());
    drop(alone);
    granted(&mut after);
}

#[test]
fn room_is_kept_for_one_that_is_alone_behind_a_grant_of_no_bytes() {
    let mut policy = timeless();
    policy.passes_max = 1;
    let arbiter = arbiter(100, policy);
    let acme = tenant(&arbiter, "acme", 40);
    let empty = arbiter.try_admit(ask(&acme, "empty", 10)).unwrap();
    assert_eq!(empty.resize(0), Ok(0));
    let mut alone = waits(arbiter.admit(ask(&acme, "alone", 20).alone()));
    drop(arbiter.try_admit(ask(&acme, "once", 1)).unwrap());
    assert!(arbiter.try_admit(ask(&acme, "twice", 1)).is_err());
    drop(empty);
    granted(&mut alone);
}

#[test]
fn an_idle_query_loses_its_tenant_when_others_wait() {
    let mut policy = timeless();
    policy.idle_after = Duration::ZERO;
    let arbiter = arbiter(100, policy);
    let acme = tenant(&arbiter, "acme", 40);
    let alone = arbiter.try_admit(ask(&acme, "alone", 20).alone()).unwrap();
    // All of it is charged, so that it has nothing else to lose.
    let held = alone.try_charge(40 * MIB).unwrap();
    let mut next = waits(arbiter.admit(ask(&acme, "next", 8)));
    alone.set_idle(true);
    arbiter.tick();
    // Beside it, as soon as there is room.
    acme.set_max(48 * MIB);
    arbiter.tick();
    granted(&mut next);
    drop(held);
}

#[test]
fn an_ask_inside_a_grant_is_served_from_it_or_refused_but_never_waits() {
    let arbiter = arbiter(100, timeless());
    let acme = tenant(&arbiter, "acme", 40);
    let grant = arbiter.try_admit(ask(&acme, "query", 30)).unwrap();
    let below = grant.group().child("operator", Limits::none()).unwrap();
    let inner = arbiter.try_admit(ask(&below, "inner", 20)).unwrap();
    assert_eq!(inner.group().path(), "/acme/query/operator/inner");
    let error = arbiter.admit(ask(grant.group(), "more", 11));
    let mut error = error;
    assert_eq!(
        super::common::refused(&mut error).to_string(),
        "the query needs at least 11.0 MiB, and the grant /acme/query that it runs in has 10.0 MiB left"
    );
    arbiter
        .try_admit(ask(&acme, "beside", 10))
        .expect("the inner one takes nothing of the tenant's");
    drop(inner);
    arbiter.try_admit(ask(grant.group(), "more", 30)).unwrap();
}

#[test]
fn a_grant_inside_of_another_can_be_lowered() {
    let arbiter = arbiter(100, timeless());
    let acme = tenant(&arbiter, "acme", 40);
    let grant = arbiter.try_admit(ask(&acme, "query", 30)).unwrap();
    let inner = arbiter.try_admit(ask(grant.group(), "inner", 30)).unwrap();
    let charge = inner.try_charge(4 * MIB).unwrap();
    assert_eq!(inner.resize(10 * MIB), Ok(10 * MIB));
    assert_eq!(inner.resize(MIB), Ok(4 * MIB));
    assert_eq!(inner.group().limits().max, 4 * MIB);
    let next = arbiter.try_admit(ask(grant.group(), "next", 26));
    assert_eq!(next.unwrap().bytes(), 26 * MIB);
    assert_eq!(grant.bytes(), 30 * MIB);
    drop(charge);
}

#[test]
fn without_limits_a_grant_has_none_and_nobody_waits() {
    let memory = bursar::Memory::builder().build().unwrap();
    let arbiter = bursar_arbiter::Arbiter::new(&memory, timeless());
    let acme = memory.root().child("acme", Limits::none()).unwrap();
    let grants: Vec<_> = (0..100)
        .map(|number| {
            arbiter
                .try_admit(Ask::new(&acme, format!("query-{number}")))
                .unwrap()
        })
        .collect();
    assert!(grants.iter().all(|grant| grant.bytes() == u64::MAX));
}

#[test]
fn grants_inside_of_one_without_a_limit_may_add_up_to_any_number() {
    let memory = bursar::Memory::builder().build().unwrap();
    let arbiter = bursar_arbiter::Arbiter::new(&memory, timeless());
    let query = arbiter.try_admit(Ask::new(&memory.root(), "query"));
    let query = query.unwrap();
    let limited = query
        .group()
        .child("limited", Limits::max(u64::MAX - 1))
        .unwrap();
    let inside = |name| arbiter.try_admit(Ask::new(&limited, name).least(1 << 63, 0));
    let inner = ["one", "two", "three"].map(|name| inside(name).unwrap());
    assert!(inner.iter().all(|inner| inner.bytes() >= 1 << 63));
    drop(inner);
    drop(query);
}

#[test]
fn what_a_grant_and_those_inside_of_it_have_is_never_more_than_its_bytes() {
    let arbiter = arbiter(100, timeless());
    let acme = tenant(&arbiter, "acme", 40);
    let grant = arbiter.try_admit(ask(&acme, "query", 30)).unwrap();
    let charge = grant.try_charge(20 * MIB).unwrap();
    let inner = arbiter.try_admit(ask(grant.group(), "inner", 9)).unwrap();
    let second = arbiter.try_admit(ask(grant.group(), "second", 2));
    assert!(
        matches!(second, Err(AdmitError::Nested { left, .. }) if left <= MIB),
        "{second:?}"
    );
    // A limit between the two counts.
    let narrow = grant.group().child("narrow", Limits::max(MIB / 4)).unwrap();
    let third = arbiter.try_admit(Ask::new(&narrow, "third").least(MIB / 2, 0));
    assert!(third.is_err(), "{third:?}");
    assert!(grant.resize(MIB).unwrap() >= 29 * MIB);
    drop((charge, inner));
}

#[test]
fn a_grant_that_nobody_takes_goes_to_who_waits_and_its_future_asks_anew() {
    let mut policy = timeless();
    policy.idle_after = Duration::ZERO;
    let arbiter = arbiter(100, policy);
    let acme = tenant(&arbiter, "acme", 40);
    let held = arbiter.try_admit(ask(&acme, "held", 40)).unwrap();
    let mut lazy = waits(arbiter.admit(ask(&acme, "lazy", 40)));
    let mut eager = waits(arbiter.admit(ask(&acme, "eager", 40)));
    drop(held);
    arbiter.tick();
    let eager = granted(&mut eager);
    assert!(poll(&mut lazy).is_pending());
    drop(eager);
    granted(&mut lazy);
}

#[test]
fn a_grant_may_lose_all_limits_on_its_way_and_get_them_again() {
    let arbiter = arbiter(100, timeless());
    let acme = tenant(&arbiter, "acme", 40);
    let grant = arbiter.try_admit(ask(&acme, "query", 30)).unwrap();
    for limited in [&acme, &arbiter.memory().root()] {
        limited.set_max(u64::MAX);
    }
    assert_eq!(grant.resize(u64::MAX), Ok(u64::MAX));
    drop(grant);
    acme.set_max(40 * MIB);
    arbiter.try_admit(ask(&acme, "query", 40)).unwrap();
}

#[test]
fn a_reclaimer_that_panics_does_not_end_who_asks_for_what_its_grant_does_not_use() {
    let arbiter = arbiter(100, timeless());
    let acme = tenant(&arbiter, "acme", 40);
    let roomy = Ask::new(&acme, "roomy").least(4 * MIB, 0).wanted(40 * MIB);
    let grant = arbiter.try_admit(roomy).unwrap();
    let held = grant.group().charge(10 * MIB);
    let _reclaimer = grant
        .group()
        .add_reclaimer(0, |_| panic!("a reclaimer of a user"));
    grant.set_idle(true);
    let mut other = waits(arbiter.admit(ask(&acme, "other", 28)));
    granted(&mut other);
    drop(held);
}

#[test]
fn an_ask_without_numbers_gets_its_part_of_the_lowest_limit() {
    for (percent, mib) in [(25, 10), (50, 20), (100, 40), (1000, 40)] {
        let mut policy = timeless();
        policy.default_percent = percent;
        let arbiter = arbiter(100, policy);
        let acme = tenant(&arbiter, "acme", 40);
        let grant = arbiter.try_admit(Ask::new(&acme, "query")).unwrap();
        assert_eq!(grant.bytes(), mib * MIB, "{percent} %");
    }
}

#[test]
fn a_grant_that_lacks_a_byte_grows_by_a_quarter_if_that_is_there() {
    for (max, bytes) in [(100, 50), (45, 45)] {
        let arbiter = arbiter(max, timeless());
        let acme = tenant(&arbiter, "acme", u64::MAX);
        let grant = arbiter.try_admit(ask(&acme, "query", 40)).unwrap();
        let widener = grant.widener();
        assert_eq!(widener.widen(40 * MIB), Ok(40 * MIB));
        assert_eq!(widener.widen(40 * MIB + 1), Ok(bytes * MIB));
        let counts = arbiter.counts();
        assert_eq!((counts.widened, counts.not_widened), (1, 0));
    }
}

#[test]
fn a_limit_inside_of_the_grant_makes_it_no_larger() {
    let arbiter = arbiter(100, timeless());
    let acme = tenant(&arbiter, "acme", u64::MAX);
    let grant = arbiter.try_admit(ask(&acme, "query", 10)).unwrap();
    let _held = grant.try_charge(9 * MIB).unwrap();
    let inside = grant.group().child("inside", Limits::max(MIB)).unwrap();
    let widener = grant.widener();
    assert!(widener.try_charge(&inside, 2 * MIB).is_err());
    assert_eq!((grant.bytes(), arbiter.counts().widened), (10 * MIB, 0));
}

#[test]
fn a_grant_inside_of_another_gets_all_that_is_left_and_no_more() {
    let arbiter = arbiter(100, timeless());
    let acme = tenant(&arbiter, "acme", 40);
    let grant = arbiter.try_admit(ask(&acme, "query", 30)).unwrap();
    let inner = arbiter.try_admit(ask(grant.group(), "inner", 20)).unwrap();
    assert_eq!(inner.resize(30 * MIB), Ok(30 * MIB));
    assert_eq!(inner.resize(30 * MIB + 1), Err(NotWidened::NoRoom));
    // A charge at a limit between the two counts.
    assert_eq!(inner.resize(10 * MIB), Ok(10 * MIB));
    let between = grant
        .group()
        .child("between", Limits::max(8 * MIB))
        .unwrap();
    let _charge = between.try_charge(6 * MIB).unwrap();
    for (mib, left) in [(3, Some(2 * MIB)), (2, None)] {
        let found = match arbiter.try_admit(ask(&between, "found", mib)) {
            Err(AdmitError::Nested { left, .. }) => Some(left),
            other => other.map(|_| None).unwrap(),
        };
        assert_eq!(found, left);
    }
    let counts = arbiter.counts();
    assert_eq!((counts.nested, counts.nested_refused), (2, 1));
}

#[test]
fn those_that_wait_take_from_no_grant_inside_of_another_and_from_none_beside_their_way() {
    let arbiter = arbiter(200, timeless());
    let [acme, umbrella] = ["acme", "umbrella"].map(|name| tenant(&arbiter, name, 40));
    let roomy =
        |group, name: &str| arbiter.try_admit(Ask::new(group, name).least(MIB, 0).wanted(40 * MIB));
    let grant = arbiter.try_admit(ask(&acme, "query", 40)).unwrap();
    let inner = roomy(grant.group(), "inner").unwrap();
    let beside = roomy(&umbrella, "beside").unwrap();
    let _next = waits(arbiter.admit(ask(&acme, "next", 10)));
    arbiter.tick();
    assert_eq!([inner, beside].map(|it| it.bytes()), [40 * MIB; 2]);
    assert_eq!(arbiter.counts().shrunk, 0);
}

#[test]
fn one_look_lowers_64_grants_and_those_that_use_all_do_not_count() {
    const ROOMY: u64 = 66;
    let arbiter = arbiter(64 + 2 * ROOMY, timeless());
    let acme = tenant(&arbiter, "acme", u64::MAX);
    let run = |name: String, wanted: u64| {
        let ask = ask(&acme, &name, 1).wanted(wanted * MIB);
        let grant = arbiter.try_admit(ask).unwrap();
        let charge = grant.try_charge(MIB).unwrap();
        (grant, charge)
    };
    let _full: Vec<_> = (0..64).map(|it| run(format!("full-{it}"), 1)).collect();
    let roomy: Vec<_> = (0..ROOMY).map(|it| run(format!("roomy-{it}"), 2)).collect();
    let mut next = waits(arbiter.admit(ask(&acme, "next", ROOMY)));
    let lowered = || roomy.iter().filter(|(it, _)| it.bytes() == MIB).count();
    assert_eq!((lowered(), arbiter.counts().shrunk), (64, 64));
    arbiter.tick();
    assert_eq!(lowered() as u64, ROOMY);
    drop(granted(&mut next));
}

#[test]
fn a_resize_counts_if_the_grant_is_smaller_then() {
    let arbiter = arbiter(100, timeless());
    let acme = tenant(&arbiter, "acme", 40);
    let grant = arbiter.try_admit(ask(&acme, "query", 30)).unwrap();
    let _held = grant.try_charge(20 * MIB).unwrap();
    for (mib, bytes, shrunk) in [(25, 25, 1), (10, 20, 2), (5, 20, 2)] {
        assert_eq!(grant.resize(mib * MIB), Ok(bytes * MIB));
        assert_eq!(arbiter.counts().shrunk, shrunk);
    }
}

#[test]
fn a_grant_without_a_limit_is_not_lowered_nor_is_one_that_loses_bytes_at_this_moment() {
    for is_limited in [true, false] {
        let arbiter = arbiter(100, timeless());
        if !is_limited {
            arbiter.memory().root().set_max(u64::MAX);
        }
        let acme = tenant(&arbiter, "acme", u64::MAX);
        let grant = Arc::new(arbiter.try_admit(ask(&acme, "query", 30)).unwrap());
        let _held = grant.try_charge(20 * MIB).unwrap();
        let (weak, seen) = (Arc::downgrade(&grant), Arc::new(Mutex::new(Vec::new())));
        let told = seen.clone();
        let _reclaimer = grant.group().add_reclaimer(0, move |_| {
            let again = weak.upgrade().expect("it runs").resize(2 * MIB);
            told.lock().unwrap().push(again);
            0
        });
        let bytes = grant.resize(10 * MIB).unwrap();
        let (expected, calls) = match is_limited {
            true => (20 * MIB, 1),
            false => (u64::MAX, 0),
        };
        assert_eq!(bytes, expected);
        let seen = seen.lock().unwrap();
        assert!(seen.len() >= calls && (calls > 0 || seen.is_empty()));
        // The limit that is being set.
        assert!(seen.iter().all(|again| *again == Ok(10 * MIB)), "{seen:?}");
    }
}

#[test]
fn no_group_of_an_ended_grant_is_kept() {
    const GRANTS: usize = 1000;
    let arbiter = arbiter(100, timeless());
    let acme = tenant(&arbiter, "acme", 40);
    // No other group has the number of one that somebody keeps.
    let numbers: BTreeSet<u32> = (0..GRANTS)
        .map(|_| {
            let grant = arbiter.try_admit(ask(&acme, "query", 40)).unwrap();
            grant.group().engine().number()
        })
        .collect();
    assert!(numbers.len() < GRANTS / 2, "{}", numbers.len());
}

#[test]
fn bytes_that_a_grant_inside_of_another_left_count_once() {
    let arbiter = arbiter(100, timeless());
    let acme = tenant(&arbiter, "acme", u64::MAX);
    let _outside = arbiter.memory().root().try_charge(30 * MIB).unwrap();
    let outer = arbiter.try_admit(ask(&acme, "outer", 60)).unwrap();
    let inside = arbiter.try_admit(ask(outer.group(), "inside", 20)).unwrap();
    let left = inside.try_charge(20 * MIB).unwrap();
    let most = || arbiter.most(&acme) / MIB;
    assert_eq!(most(), 70);
    drop(inside);
    assert_eq!(most(), 70);
    drop(outer);
    assert_eq!(most(), 70);
    drop(left);
    assert_eq!(most(), 70);
}
