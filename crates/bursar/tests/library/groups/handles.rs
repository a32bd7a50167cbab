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
    tenant.remove().unwrap();
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
        let victim = memory.root().choose_victim_where(may_end).unwrap();
        victim.map(|(group, _)| group)
    };
    assert_eq!(chosen(&|_| true), Some(big.clone()));
    assert_eq!(chosen(&|group| *group != big), Some(small));
    assert_eq!(chosen(&|_| false), None);
}

/// The ranks of 10,000 groups, beside a list that is sorted. One walk finds them all.
#[test]
fn the_largest_of_many_in_one_walk() {
    const GROUPS: u64 = 10_000;
    let memory = memory();
    let tenants = memory.make("tenants");
    let (mut kept, mut victims, mut leaves) = (Vec::new(), Vec::new(), Vec::new());
    for number in 0..GROUPS {
        let (kind, protected) = (number % 5, 1 << 17);
        // Each excess is a number of its own. All are above the largest batch, so that no CPU holds stock.
        let bytes = (1 << 18) + 16 * (number * 7919 % 10_007) + kind;
        let limits = match kind {
            0 | 1 => Limits::none(),
            2 => Limits::none().low(protected),
            3 => Limits::none().low(1 << 40).min(protected),
            _ => Limits::none().min(1 << 40),
        };
        let mut group = tenants.make_with(format!("g{number}"), limits);
        if kind == 1 {
            let child = group.make("child");
            kept.push((std::mem::replace(&mut group, child), None));
        }
        let charge = group.try_charge(bytes).unwrap();
        let excess = if kind < 2 { bytes } else { bytes - protected };
        if kind < 4 {
            victims.push((kind < 3, excess, group.path()));
        }
        leaves.push((bytes, group.path()));
        kept.push((group, Some(charge)));
    }
    victims.sort_by(|one, other| other.cmp(one));
    leaves.sort_by(|one, other| other.cmp(one));
    let walks = || {
        let counts = memory.flush_counts();
        counts.root + counts.subtree
    };
    for count in [0, 1, 50, 7_000, usize::MAX] {
        let before = walks();
        let chosen = tenants.choose_victims(count).unwrap();
        assert_eq!(walks() - before, 1, "{count}");
        let expected: Vec<_> = victims
            .iter()
            .take(count)
            .map(|one| (&one.2, one.1))
            .collect();
        let chosen: Vec<_> = chosen
            .iter()
            .map(|(group, victim)| (group.path(), victim.excess))
            .collect();
        let chosen: Vec<_> = chosen.iter().map(|one| (&one.0, one.1)).collect();
        assert!(chosen == expected, "{count}");
        let top = tenants.top_leaves(count, By::Reserved);
        let top: Vec<_> = top
            .iter()
            .map(|one| (one.reserved, one.path.clone()))
            .collect();
        assert!(top == leaves[..count.min(leaves.len())], "{count}");
    }
    let (best, _) = tenants.choose_victim().unwrap().unwrap();
    assert_eq!(best.path(), victims[0].2);
}

#[test]
fn groups_that_cannot_be_ended_are_no_victims() {
    let memory = memory();
    let child = |name| memory.make(name);
    let (rest, tenant) = (child("rest"), child("tenant"));
    let _held = (rest.try_charge(9 * UNIT), tenant.try_charge(UNIT));
    let chosen = || memory.root().choose_victim().unwrap().unwrap().0;
    assert_eq!(chosen(), rest);
    rest.exclude_from_victims();
    assert_eq!(chosen(), tenant);
    // Those below it can be.
    let cache = rest.make("cache");
    let _more = cache.try_charge(2 * UNIT).unwrap();
    assert_eq!(chosen(), cache);
    // A memory for a forked child has the same settings.
    let (fresh, groups) = memory.reset_after_fork().unwrap();
    let [rest_copy, tenant_copy, _] = &groups[..] else {
        panic!("{groups:?}");
    };
    let _copied = (rest_copy.charge(9 * UNIT), tenant_copy.charge(UNIT));
    fresh.find("rest/cache").unwrap().remove().unwrap();
    assert_eq!(
        fresh.root().choose_victim().unwrap().unwrap().0,
        *tenant_copy
    );
    // A later group in the same record is another group.
    for round in 0..3 {
        let gone = child("gone");
        gone.exclude_from_victims();
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
