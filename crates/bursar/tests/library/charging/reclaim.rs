//! Reclaim: order and amounts of the requests; `reclaim_faults.rs` has reclaimers that misbehave.
//!
//! All charges are whole units, so there is no stock and each target is exact.

use std::sync::{Arc, Mutex};

use crate::common::{Pages, Short, UNIT, memory, memory_with_least_stock, refused, units};
use bursar::{Charge, Group, Limits, Protection, Registration};

/// Children with usage, `min` and `low` in units, below a tenant that they fill. Each has a reclaimer that notes how many units
/// it is asked for, and frees nothing.
struct Family {
    tenant: Group,
    children: Vec<(Group, Pages)>,
    asked: Arc<Mutex<Vec<(String, u64)>>>,
    _kept: Vec<Registration>,
}

fn family(rows: &[(&str, &str, u64, Limits)]) -> Family {
    let tenant = memory_with_least_stock().make("tenant");
    let asked = Arc::new(Mutex::new(Vec::new()));
    let reclaimer = |group: &Group| {
        let (asked, name) = (asked.clone(), group.name());
        group.add_reclaimer(0, move |request| {
            assert_eq!(request.target % UNIT, 0);
            let line = (name.clone(), request.target / UNIT);
            asked.lock().unwrap().push(line);
            0
        })
    };
    let mut kept = vec![reclaimer(&tenant)];
    let mut children = Vec::new();
    for (parent, name, usage, limits) in rows {
        let parent = tenant.find(parent).unwrap_or(tenant.clone());
        let (group, pages) = (parent.make_with(name, *limits), Pages::default());
        pages.fill(&group, *usage as usize);
        kept.extend((*usage > 0).then(|| reclaimer(&group)));
        children.push((group, pages));
    }
    tenant.set_max(tenant.reserved());
    Family {
        tenant,
        children,
        asked,
        _kept: kept,
    }
}

impl Family {
    fn assert_asked(&self, expected: &[(&str, u64)]) {
        let expected: Vec<_> = expected.iter().map(|(n, u)| (n.to_string(), *u)).collect();
        assert_eq!(std::mem::take(&mut *self.asked.lock().unwrap()), expected);
    }
}

fn protect(min: u64, low: u64) -> Limits {
    Limits::none().min(units(min)).low(units(low))
}

const FOUR: [(&str, &str, u64, Limits); 4] = [
    ("", "b", 30, Limits::none()),
    ("", "a", 40, Limits::none().low(5 << 20)),
    ("", "c", 20, Limits::none().min(15 << 20)),
    ("", "d", 10, Limits::none().min(20 << 20)),
];

#[test]
fn descendants_by_excess_and_never_within_min() {
    let family = family(&FOUR);
    let error = refused(family.tenant.try_charge(33 * UNIT));
    // Above low: a 35, b 30, c 5, d none. Above min: a 40, b 30, c 5.
    family.assert_asked(&[
        ("tenant", 33),
        ("a", 33),
        ("b", 30),
        ("c", 5),
        ("a", 33),
        ("b", 30),
        ("c", 5),
    ]);
    assert_eq!(error.limited, "/tenant");
    assert_eq!(
        (error.usage, error.max, error.requested),
        (units(100), units(100), units(33))
    );
    let largest: Vec<_> = error.largest.iter().map(|(n, u)| (&n[..], *u)).collect();
    let expected = [("a", 40), ("b", 30), ("c", 20), ("d", 10)];
    assert_eq!(largest, expected.map(|(name, used)| (name, units(used))));
    let events = family.tenant.events();
    assert_eq!((events.low, events.max, events.refused), (0, 2, 1));
}

#[test]
fn protection_is_shared_down_the_tree() {
    let rows = [
        ("", "dept", 0, protect(0, 20)),
        ("dept", "e", 40, protect(0, 30)),
        ("dept", "f", 20, protect(0, 10)),
    ];
    let family = family(&rows);
    // e and f claim 30 and 10 of 20: they get 15 and 5.
    refused(family.tenant.try_charge(50 * UNIT));
    let asked = [("tenant", 50), ("e", 25), ("f", 15), ("e", 40), ("f", 20)];
    family.assert_asked(&asked);
    let protected = |at: usize| family.children[at].0.protection();
    // As a part of what the root has, the tenant's protection is none, so that of all below is.
    assert_eq!([protected(0), protected(1)], [Protection::default(); 2]);
    family.tenant.set_low(units(60));
    assert_eq!([protected(0).low, protected(1).low], [units(60), units(40)]);
}

/// One unit at a time: lowering a limit goes on as long as that helps, 16 times at most.
#[test]
fn a_lowered_limit_asks_again_while_it_helps() {
    let high = |group: &Group, bytes| group.set_high(bytes);
    for limit in [Group::set_max, high] {
        let group = memory().make("group");
        let (pages, log) = (Pages::default(), Arc::new(Mutex::new(Vec::new())));
        pages.fill(&group, 25);
        let (evicted, noted) = (pages.clone(), log.clone());
        let _kept = group.add_reclaimer(0, move |request| {
            noted.lock().unwrap().push(request.target / UNIT);
            evicted.evict(1)
        });
        limit(&group, units(20));
        assert_eq!(*log.lock().unwrap(), [5, 4, 3, 2, 1]);
        log.lock().unwrap().clear();
        limit(&group, 0);
        assert_eq!(*log.lock().unwrap(), (5..=20).rev().collect::<Vec<_>>());
        assert_eq!(group.reserved(), units(4));
    }
}

/// A cache that charges under the lock that its reclaimer tries frees nothing, and the events show it.
#[test]
fn reclaimers_that_free_nothing_are_counted() {
    let root = memory().root();
    let tenant = root.make_max("tenant", units(4));
    let cache = tenant.make("cache");
    let pages = Arc::new(Mutex::new(Vec::<Charge>::new()));
    let evicted = pages.clone();
    let _reclaimer = cache.add_reclaimer(0, move |request| {
        let Ok(mut pages) = evicted.try_lock() else {
            return 0;
        };
        let mut freed = 0;
        while freed < request.target
            && let Some(page) = pages.pop()
        {
            freed += page.bytes();
        }
        freed
    });
    for _ in 0..10 {
        let mut pages = pages.lock().unwrap();
        pages.extend(cache.try_charge(UNIT).ok());
    }
    assert_eq!(pages.lock().unwrap().len(), 4);
    assert_eq!(tenant.events().refused, 6);
    // A charge asks once for each kind of protection.
    let failed = cache.own_events().reclaim_failed;
    assert_eq!((failed, root.events().reclaim_failed), (12, 12));
    let page = cache.try_charge(UNIT).expect("without the lock it evicts");
    pages.lock().unwrap().push(page);
    assert_eq!(cache.own_events().reclaim_failed, failed);
    assert_eq!(root.own_events().reclaim_failed, 0);
}

/// Stock is taken back first: nobody is asked to free what nobody uses.
#[test]
fn nobody_is_asked_for_stock() {
    let group = memory().make("group");
    let _reclaimer = group.add_reclaimer(0, |request| panic!("{request:?}"));
    let held = group.try_charge(100).unwrap();
    assert!(
        group.reserved() > 1000,
        "stock is held, or this shows nothing"
    );
    group.set_high(1000);
    assert_eq!(group.reserved(), 100);
    drop(held);
    group.set_high(u64::MAX);
    let _held = group.try_charge(900).unwrap();
    assert!(group.reserved() > 1000);
    group.set_max(1000);
}

#[test]
fn nobody_is_asked_for_nothing() {
    let group = memory().make("group");
    let held = group.charge(UNIT);
    let _reclaimer = group.add_reclaimer(0, |request| panic!("{request:?}"));
    assert_eq!(group.reclaim(0), 0);
    drop(held);
}

/// A reclaimer may charge what its own work needs. That asks nobody, and leaves no debt.
#[test]
fn what_a_reclaimer_charges_is_not_owed() {
    let group = memory().make("group");
    let kept = Arc::new(Mutex::new(Vec::new()));
    let (of, own) = (group.clone(), kept.clone());
    let _reclaimer = group.add_reclaimer(0, move |_| {
        own.lock().unwrap().push(of.try_charge(UNIT).unwrap());
        0
    });
    group.set_high(UNIT);
    let _held = group.try_charge(units(3)).unwrap();
    let more = kept.lock().unwrap().len() as u64;
    assert!(more > 0, "the reclaimer was asked");
    assert_eq!(group.reserved(), units(3 + more));
    assert_eq!(group.take_debt().bytes, units(3));
}
