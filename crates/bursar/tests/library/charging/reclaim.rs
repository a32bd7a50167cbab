//! Reclaim: order and amounts of the requests; `reclaim_faults.rs` has reclaimers that misbehave.
//!
//! All charges are whole units, so there is no stock and each target is exact.

use std::sync::{Arc, Mutex};

use crate::common::{Pages, Short, UNIT, memory, refused, units};
use bursar::engine::Protection;
use bursar::{Charge, Group, Limits, Memory, Reason, Registration};

/// Who was asked for how many units.
#[derive(Clone, Default)]
struct Log(Arc<Mutex<Vec<(String, u64)>>>);

impl Log {
    /// A reclaimer that notes what it is asked for, and gives `pages`.
    fn reclaimer(&self, group: &Group, order: i32, name: &str, pages: &Pages) -> Registration {
        let (log, name, pages) = (self.clone(), name.to_owned(), pages.clone());
        group.add_reclaimer(order, move |request| {
            assert_eq!(request.target % UNIT, 0);
            let asked = (name.clone(), request.target / UNIT);
            log.0.lock().unwrap().push(asked);
            pages.evict(request.target)
        })
    }

    fn take(&self) -> Vec<(String, u64)> {
        std::mem::take(&mut self.0.lock().unwrap())
    }

    fn assert(&self, expected: &[(&str, u64)]) {
        let expected: Vec<_> = expected.iter().map(|(n, u)| (n.to_string(), *u)).collect();
        assert_eq!(self.take(), expected);
    }
}

#[test]
fn own_reclaimers_in_their_order() {
    let group = memory().make_max("group", units(10));
    let (log, pages) = (Log::default(), [(); 4].map(|()| Pages::default()));
    let kept: Vec<_> = [(5, "5a"), (-1, "-1"), (5, "5b"), (0, "0")]
        .iter()
        .zip(&pages)
        .map(|((order, name), pages)| log.reclaimer(&group, *order, name, pages))
        .collect();
    pages[1].fill(&group, 1);
    pages[0].fill(&group, 6);
    let rest = group.try_charge(3 * UNIT).unwrap();
    // 1 of 4, none of 3, 3 of 3; the last is not needed.
    let more = group.try_charge(4 * UNIT).unwrap();
    log.assert(&[("-1", 4), ("0", 3), ("5a", 3)]);
    drop((rest, more));
    drop(kept);
    let _all = group.try_charge(7 * UNIT).unwrap();
    refused(group.try_charge(UNIT));
    log.assert(&[]);
}

/// Children with usage, `min` and `low` in units, below a tenant that they fill; each with a reclaimer.
struct Family {
    tenant: Group,
    children: Vec<(Group, Pages)>,
    log: Log,
    _kept: Vec<Registration>,
}

fn family(memory: &Memory, rows: &[(&str, &str, u64, Limits)], can_free: bool) -> Family {
    let tenant = memory.make("tenant");
    let log = Log::default();
    let none = Pages::default();
    let mut kept = vec![log.reclaimer(&tenant, 0, "tenant", &none)];
    let mut children: Vec<(Group, Pages)> = Vec::new();
    for (parent, name, usage, limits) in rows {
        let parent = match *parent {
            "" => tenant.clone(),
            other => tenant.find(other).expect("made before"),
        };
        let group = parent.make_with(name, *limits);
        let pages = Pages::default();
        pages.fill(&group, *usage as usize);
        if *usage > 0 {
            let gives = if can_free { &pages } else { &none };
            kept.push(log.reclaimer(&group, 0, name, gives));
        }
        children.push((group, pages));
    }
    tenant.set_max(tenant.reserved());
    Family {
        tenant,
        children,
        log,
        _kept: kept,
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
    let memory = memory();
    let family = family(&memory, &FOUR, false);
    let error = refused(family.tenant.try_charge(33 * UNIT));
    // Above low: a 35, b 30, c 5, d none. Above min: a 40, b 30, c 5.
    family.log.assert(&[
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
fn low_is_taken_only_if_there_is_nothing_else() {
    let memory = memory();
    let rows = [
        ("", "a", 40, protect(0, 40)),
        ("", "b", 30, protect(0, 30)),
        ("", "c", 20, protect(15, 0)),
        ("", "d", 10, protect(20, 0)),
    ];
    let family = family(&memory, &rows, true);
    let charge = family.tenant.try_charge(30 * UNIT).unwrap();
    family.log.assert(&[("tenant", 30), ("c", 5), ("a", 25)]);
    let lows = |at: usize| family.children[at].0.engine().own_events().low;
    assert_eq!([lows(0), lows(1), lows(2), lows(3)], [1, 0, 0, 0]);
    assert_eq!(family.tenant.events().low, 1);
    assert_eq!(family.tenant.engine().own_events().low, 0);
    // All that is left is d within its min, c within its own, and a and b.
    let more = family.tenant.try_charge(45 * UNIT).unwrap();
    family.log.assert(&[("tenant", 45), ("b", 30), ("a", 15)]);
    assert_eq!([lows(0), lows(1)], [2, 1]);
    refused(family.tenant.try_charge(UNIT));
    family.log.assert(&[("tenant", 1)]);
    drop((charge, more));
}

#[test]
fn protection_is_shared_down_the_tree() {
    let memory = memory();
    let rows = [
        ("", "dept", 0, protect(0, 20)),
        ("dept", "e", 40, protect(0, 30)),
        ("dept", "f", 20, protect(0, 10)),
    ];
    let family = family(&memory, &rows, false);
    // e and f claim 30 and 10 of 20: they get 15 and 5.
    refused(family.tenant.try_charge(50 * UNIT));
    let asked = [("tenant", 50), ("e", 25), ("f", 15), ("e", 40), ("f", 20)];
    family.log.assert(&asked);
    let protected = |at: usize| family.children[at].0.engine().protection();
    // As a part of what the root has, the tenant's protection is none, so that of all below is.
    assert_eq!([protected(0), protected(1)], [Protection::default(); 2]);
    family.tenant.engine().set_low(units(60));
    assert_eq!([protected(0).low, protected(1).low], [units(60), units(40)]);
}

#[test]
fn too_much_is_fine_and_requests_say_why() {
    let memory = memory();
    let tenant = memory.make("tenant");
    let cache = tenant.make("cache");
    let (pages, seen) = (Pages::default(), Arc::new(Mutex::new(Vec::new())));
    let (evicted, noted) = (pages.clone(), seen.clone());
    let _kept = cache.add_reclaimer(0, move |request| {
        let line = (request.target, request.reason, request.scope.clone());
        noted.lock().unwrap().push(line);
        evicted.evict(u64::MAX)
    });
    let expect = |target, reason, scope: &str| {
        let line = (units(target), reason, scope.to_owned());
        assert_eq!(std::mem::take(&mut *seen.lock().unwrap()), [line]);
        assert_eq!(tenant.reserved(), 0);
    };
    pages.fill(&cache, 10);
    assert_eq!(tenant.engine().reclaim(units(3)), units(10));
    expect(3, Reason::Asked, "/tenant");
    pages.fill(&cache, 10);
    tenant.set_max(units(7));
    expect(3, Reason::Max, "/tenant");
    pages.fill(&cache, 7);
    cache.engine().set_high(units(2));
    expect(5, Reason::High, "/tenant/cache");
    pages.fill(&cache, 2);
    cache.set_max(0);
    expect(2, Reason::Max, "/tenant/cache");
    assert_eq!(
        (
            tenant.engine().reclaim(units(1)),
            tenant.engine().reclaim(0)
        ),
        (0, 0)
    );
    assert_eq!(memory.root().events().reclaimed_bytes, units(29));
    assert_eq!(seen.lock().unwrap().len(), 0, "nothing to ask for");
}

/// One unit at a time: lowering a limit goes on as long as that helps, 16 times at most.
#[test]
fn a_lowered_limit_asks_again_while_it_helps() {
    let high = |group: &Group, bytes| group.engine().set_high(bytes);
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

#[test]
fn infallible_charges_reclaim_before_they_overshoot() {
    let group = memory().make_max("group", units(4));
    let pages = Pages::default();
    pages.fill(&group, 4);
    let _kept = pages.evict_for(&group);
    let forced = group.charge(3 * UNIT);
    assert_eq!((pages.bytes(), group.events().overshot), (units(1), 0));
    let over = group.charge(3 * UNIT);
    assert_eq!((pages.bytes(), group.events().overshot), (0, 1));
    assert!(group.engine().is_over_max());
    assert_eq!(group.reserved(), units(6));
    drop((forced, over));
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
    let failed = cache.engine().own_events().reclaim_failed;
    assert_eq!((failed, root.events().reclaim_failed), (12, 12));
    let page = cache.try_charge(UNIT).expect("without the lock it evicts");
    pages.lock().unwrap().push(page);
    assert_eq!(cache.engine().own_events().reclaim_failed, failed);
    assert_eq!(root.engine().own_events().reclaim_failed, 0);
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
    group.engine().set_high(1000);
    assert_eq!(group.reserved(), 100);
    drop(held);
    group.engine().set_high(u64::MAX);
    let _held = group.try_charge(900).unwrap();
    assert!(group.reserved() > 1000);
    group.set_max(1000);
}
