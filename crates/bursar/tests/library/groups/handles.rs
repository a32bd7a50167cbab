//! Handles: comparison with each other, and their text.

use std::collections::BTreeSet;
use std::hash::{BuildHasher, BuildHasherDefault, DefaultHasher};
use std::time::Duration;

use crate::common::{Short, UNIT, memory, units};
use bursar::{By, ChargeError, Debt, Group, Level, Limits, Memory};

fn hash(group: &Group) -> u64 {
    BuildHasherDefault::<DefaultHasher>::default().hash_one(group)
}

#[test]
fn the_same_group_of_the_same_memory() {
    let (memory, other) = (memory(), Memory::host().unwrap());
    let tenant = memory.make("tenant");
    let found = memory.find("tenant").unwrap();
    assert_eq!((&found, hash(&found)), (&tenant, hash(&tenant)));
    assert_eq!(tenant.parent(), Some(memory.root()));
    assert_ne!(tenant, memory.root());
    assert_ne!(memory.root(), other.root());
    assert_ne!(hash(&memory.root()), hash(&other.root()));
    assert_eq!(memory.clone().root(), memory.root());
    assert_eq!(
        (tenant.to_string(), memory.root().to_string()),
        ("/tenant".into(), "/".into())
    );
    // Another of the same name, while a handle keeps the first.
    tenant.engine().remove().unwrap();
    let again = memory.make("tenant");
    assert_ne!(again, tenant);
    let all: BTreeSet<u64> = [&tenant, &again, &found].map(hash).into();
    assert_eq!(all.len(), 2);
}

/// While all limits change, a charge that neither the old nor the new ones let in is refused, and one that neither
/// throttles is not. A reclaimer looks on from within the change.
#[test]
fn limits_change_in_order() {
    let group = memory().make("group");
    let _held = group.try_charge(30 * UNIT).unwrap();
    let seen = std::sync::Arc::new(std::sync::Mutex::new(Vec::new()));
    let (noted, watched) = (seen.clone(), group.clone());
    let _looks = group.add_reclaimer(0, move |_| {
        noted.lock().unwrap().push(watched.limits());
        0
    });
    let lower = Limits::max(units(20)).high(units(10)).low(2).min(1);
    group.set_limits(lower);
    let half = lower.high(u64::MAX);
    assert_eq!(std::mem::take(&mut *seen.lock().unwrap()), [half, lower]);
    let higher = Limits::max(units(25)).high(units(15)).low(4).min(3);
    group.set_limits(higher);
    let half = Limits::max(lower.max)
        .high(higher.high)
        .low(higher.low)
        .min(higher.min);
    assert_eq!(*seen.lock().unwrap(), [half]);
    assert_eq!(group.limits(), higher);
}

#[test]
fn some_charges_never_fit() {
    let group = memory().make_max("group", units(10));
    let _held = group.try_charge(UNIT).unwrap();
    for (count, never) in [(10, false), (11, true)] {
        let Err(ChargeError::LimitReached(reached)) = group.try_charge(count * UNIT) else {
            panic!("{count} fit");
        };
        assert_eq!(reached.never_fits(), never, "{count}");
    }
}

#[test]
fn victims_that_may_be_ended() {
    let memory = memory();
    let child = |name| memory.make(name);
    let (big, small) = (child("big"), child("small"));
    let _held = (big.try_charge(2 * UNIT), small.try_charge(UNIT));
    let chosen = |may_end: &dyn Fn(&Group) -> bool| {
        let victim = memory.root().engine().choose_victim_where(may_end).unwrap();
        victim.map(|(group, _)| group)
    };
    assert_eq!(chosen(&|_| true), Some(big.clone()));
    assert_eq!(chosen(&|group| *group != big), Some(small));
    assert_eq!(chosen(&|_| false), None);
}

#[test]
fn groups_that_cannot_be_ended_are_no_victims() {
    let memory = memory();
    let child = |name| memory.make(name);
    let (rest, tenant) = (child("rest"), child("tenant"));
    let _held = (rest.try_charge(9 * UNIT), tenant.try_charge(UNIT));
    let chosen = || memory.root().choose_victim().unwrap().unwrap().0;
    assert_eq!(chosen(), rest);
    rest.engine().exclude_from_victims();
    assert_eq!(chosen(), tenant);
    // Those below it can be.
    let cache = rest.make("cache");
    let _more = cache.try_charge(2 * UNIT).unwrap();
    assert_eq!(chosen(), cache);
    // A later group in the same record is another group.
    for round in 0..3 {
        let gone = child("gone");
        gone.engine().exclude_from_victims();
        drop(gone);
        let later = child("later");
        let _held = later.try_charge((10 + round) * UNIT).unwrap();
        assert_eq!(chosen(), later, "{round}");
    }
}

#[test]
fn consumers_show_their_limits() {
    let memory = memory();
    let limits = Limits::max(8 << 20).high(6 << 20);
    let tenant = memory.make_with("tenant", limits);
    let query = tenant.make("query");
    let _held = query.try_charge(2 * UNIT).unwrap();
    let top = memory.root().top(2, By::Reserved);
    assert_eq!([top[0].limits, top[1].limits], [limits, Limits::none()]);
}

#[test]
fn they_read_well() {
    assert_eq!(format!("{:>9}", Level::Critical), " critical");
    let mut debt = Debt::default();
    debt.bytes = 3 << 20;
    debt.delay = Duration::from_micros(2500);
    assert_eq!(debt.to_string(), "3.00 MiB owe 2 ms");
}
