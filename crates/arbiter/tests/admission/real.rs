//! Decisions by what the process really takes.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use bursar::{Charge, Group, Memory};
use bursar_arbiter::{Arbiter, DecisionKind, Grant, Policy, Real};

use super::common::{MIB, ask, granted, tenant, waits};
use super::growth::{Told, at_once, impatient};

/// Memory of the process, MiB; unknown at `u64::MAX`. Panics at one less.
type Taken = Arc<AtomicU64>;

/// An arbiter of 100 MiB that looks at what the process takes, and a tenant.
fn scene(policy: Policy) -> (Arbiter, Group, Taken) {
    let taken = Taken::default();
    let memory = Memory::builder().max(100 * MIB).build().unwrap();
    let seen = taken.clone();
    let arbiter = Arbiter::with_real(&memory, policy, move || match seen.load(Ordering::SeqCst) {
        u64::MAX => None,
        mib => Some(Real {
            bytes: mib.checked_mul(MIB).expect("by design"),
            stall_percent: 0.0,
        }),
    });
    let group = tenant(&arbiter, "t", u64::MAX);
    (arbiter, group, taken)
}

fn takes(arbiter: &Arbiter, taken: &Taken, mib: u64) {
    taken.store(mib, Ordering::SeqCst);
    arbiter.tick();
}

#[test]
fn from_70_percent_on_asks_get_their_smallest_width() {
    let (arbiter, group, taken) = scene(at_once());
    let width = || {
        let ask = ask(&group, "q", 1).least(MIB, MIB).wanted(8 * MIB);
        arbiter.try_admit(ask.width(1..=4)).unwrap().width()
    };
    assert_eq!(width(), 4);
    takes(&arbiter, &taken, 70);
    assert_eq!(width(), 1);
    takes(&arbiter, &taken, 69);
    assert_eq!(width(), 4);
}

#[test]
fn from_85_percent_on_nobody_is_admitted_beside_others() {
    let (arbiter, group, taken) = scene(at_once());
    takes(&arbiter, &taken, 85);
    let first = arbiter.try_admit(ask(&group, "first", 1)).unwrap();
    let mut second = waits(arbiter.admit(ask(&group, "second", 1)));
    // If nobody runs, nothing would change by waiting.
    drop(first);
    let _second = granted(&mut second);
    let mut third = waits(arbiter.admit(ask(&group, "third", 1)));
    takes(&arbiter, &taken, 84);
    drop(granted(&mut third));
    // Unknown, and a gauge that panics: reservations alone count.
    for unknown in [u64::MAX, u64::MAX - 1] {
        takes(&arbiter, &taken, 85);
        let mut one = waits(arbiter.admit(ask(&group, "one", 1)));
        takes(&arbiter, &taken, unknown);
        drop(granted(&mut one));
    }
}

/// Two queries that have charged 10 MiB each, and their engines.
fn running(arbiter: &Arbiter, group: &Group, reclaimable: u64) -> [(Grant, Arc<Told>, Charge); 2] {
    ["old", "young"].map(|name| {
        let grant = arbiter.try_admit(ask(group, name, 10)).unwrap();
        let charge = grant.try_charge(10 * MIB).unwrap();
        let told = Told::new(reclaimable);
        grant.attach(told.clone());
        (grant, told, charge)
    })
}

#[test]
fn above_85_percent_queries_are_asked_for_the_rest_and_not_stopped() {
    let (arbiter, group, taken) = scene(at_once());
    let [(_first, old, _held), (_second, young, mut held)] = running(&arbiter, &group, 8);
    takes(&arbiter, &taken, 90);
    let (bytes, answer) = young.asked();
    assert_eq!(bytes, 5 * MIB);
    assert!(old.is_idle());
    // Bytes that are on their way are not asked for again.
    takes(&arbiter, &taken, 90);
    drop(held.split(5 * MIB).unwrap());
    answer.freed(5 * MIB);
    takes(&arbiter, &taken, 85);
    assert!(old.is_idle() && young.is_idle());
    let [decision] = &arbiter.decisions()[..] else {
        panic!("one decision");
    };
    assert_eq!(
        (decision.kind, decision.seen),
        (DecisionKind::Ask, Some(5 * MIB))
    );
    assert_eq!((&*decision.needed_by, &*decision.limited), ("", "/"));
}

#[test]
fn from_95_percent_on_a_query_is_stopped_if_none_can_give_back() {
    let (arbiter, group, taken) = scene(at_once());
    let [(_first, old, _), (_second, young, _held)] = running(&arbiter, &group, 0);
    takes(&arbiter, &taken, 94);
    assert!(old.is_idle() && young.is_idle());
    takes(&arbiter, &taken, 95);
    assert!(old.is_idle() && young.is_stopped());
    // One at a time. Memory that a query freed may return to the system later.
    drop((_second, _held));
    takes(&arbiter, &taken, 99);
    assert!(old.is_idle());
}

#[test]
fn a_query_that_is_idle_keeps_nobody_out() {
    let mut policy = impatient();
    policy.idle_after = Duration::ZERO;
    let (arbiter, group, taken) = scene(policy);
    let cursor = arbiter.try_admit(ask(&group, "cursor", 1)).unwrap();
    takes(&arbiter, &taken, 90);
    let mut next = waits(arbiter.admit(ask(&group, "next", 1)));
    cursor.set_idle(true);
    arbiter.tick();
    drop(granted(&mut next));
}

#[test]
fn nobody_is_stopped_for_bytes_that_no_query_has() {
    let (arbiter, group, taken) = scene(at_once());
    let [(_first, old, _held), (_second, young, _more)] = running(&arbiter, &group, 0);
    // All of them hold 20 MiB, and 25 are too many.
    takes(&arbiter, &taken, 110);
    assert!(old.is_idle() && young.is_idle());
}
