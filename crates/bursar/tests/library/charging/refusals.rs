//! The tree that a refusal shows, and the one at a peak.

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use bursar::diagnosis::TreeReport;
use bursar::{Group, Limits, Memory};

use crate::common::{Random, UNIT, refused, seed, units};

#[test]
fn a_refusal_shows_the_tree_around_the_limit() {
    let memory = Memory::builder().max(units(100)).build().unwrap();
    let acme = memory.root().child("acme", Limits::max(units(8))).unwrap();
    let report = acme.child("report", Limits::none()).unwrap();
    let scan = report.child("scan\n", Limits::none()).unwrap();
    let other = memory.root().child("other", Limits::none()).unwrap();
    let _held = [
        scan.try_charge(units(5)),
        report.try_charge(UNIT),
        other.try_charge(UNIT),
    ];
    let error = report.try_charge(units(3)).unwrap_err();
    let lines = "cannot charge 3.00 MiB to /acme/report: /acme uses 6.00 MiB of 8.00 MiB; largest below it: report 6.00 MiB";
    assert_eq!(error.to_string(), lines);
    let tree = "
/             7.00 MiB of 100 MiB
  acme        6.00 MiB of 8.00 MiB, refused 1, pressure low
    report    6.00 MiB
      scan\\n  5.00 MiB";
    assert_eq!(format!("{error:#}"), format!("{lines}{tree}"));
    // As `main` and `unwrap` print it; the structure is there on request.
    let from_main: Box<dyn std::error::Error> = error.clone().into();
    assert_eq!(format!("{from_main:?}"), lines);
    let structure = "LimitReached(\n    LimitReached {\n        charged: \"/acme/report\",";
    assert!(format!("{error:#?}").starts_with(structure), "{error:#?}");
    let (age, kept) = memory.refusals().pop().unwrap();
    assert_eq!(format!("{kept:?}"), lines);
    assert!(!age.is_zero());
    assert_eq!(kept, refused(Err(error)));
    assert_eq!(kept.report.path(), "/acme");
    assert_eq!(kept.report.largest[1].path, "/acme/report/scan\n");
}

/// Sizes of the biggest groups below one, by looking at all of them.
fn biggest(group: &Group) -> Vec<u64> {
    let mut sizes = Vec::new();
    let mut groups = group.children();
    while let Some(group) = groups.pop() {
        sizes.push(group.reserved());
        groups.extend(group.children());
    }
    sizes.retain(|&bytes| bytes > 0);
    sizes.sort_unstable_by(|one, other| other.cmp(one));
    sizes.truncate(16);
    sizes
}

fn check(report: &TreeReport, limited: &Group) {
    assert_eq!(report.path(), limited.path());
    let below = format!("{}/", limited.path());
    let paths: Vec<&str> = report.largest.iter().map(|group| &group.path[..]).collect();
    for (position, path) in paths.iter().enumerate() {
        assert!(path.starts_with(&below), "{path} is not below {below}");
        let (parent, _) = path.rsplit_once('/').unwrap();
        let is_after = parent == limited.path() || paths[..position].contains(&parent);
        assert!(is_after, "{path} is not after its parent: {paths:?}");
    }
}

#[test]
fn the_biggest_groups_at_any_depth_are_shown() {
    let random = &mut Random(seed());
    for _ in 0..30 {
        let memory = Memory::builder().build().unwrap();
        let top = memory.root().child("top", Limits::none()).unwrap();
        let mut groups = vec![top.clone()];
        for number in 0..60 {
            let parent = &groups[random.below(groups.len())];
            groups.push(parent.child(format!("g{number}"), Limits::none()).unwrap());
        }
        let charge =
            |group: &Group, random: &mut Random| group.try_charge(units(random.below(20) as u64));
        let charges: Vec<_> = groups
            .iter()
            .map(|group| charge(group, random).unwrap())
            .collect();
        top.set_max(top.reserved());
        let asker = &groups[random.below(groups.len())];
        let report = refused(asker.try_charge(UNIT)).report;
        check(&report, &top);
        let mut sizes: Vec<u64> = report.largest.iter().map(|group| group.reserved).collect();
        sizes.sort_unstable_by(|one, other| other.cmp(one));
        assert_eq!(sizes, biggest(&top));
        drop(charges);
    }
}

#[test]
fn the_last_refusals_are_kept() {
    let memory = Memory::builder().build().unwrap();
    let tenants: Vec<Group> = (0..20)
        .map(|number| {
            memory
                .root()
                .child(number.to_string(), Limits::max(UNIT))
                .unwrap()
        })
        .collect();
    for tenant in &tenants {
        refused(tenant.try_charge(units(2)));
    }
    let kept: Vec<String> = memory
        .refusals()
        .into_iter()
        .map(|(_, refusal)| refusal.limited)
        .collect();
    assert_eq!(
        kept,
        (4..20)
            .map(|number| format!("/{number}"))
            .collect::<Vec<_>>()
    );
}

/// Groups come and go below a limit that refuses. The groups that a refusal shows are below that limit.
#[test]
fn groups_may_come_and_go_meanwhile() {
    let memory = Memory::builder().build().unwrap();
    let tenants: Vec<Group> = (0..40)
        .map(|number| {
            memory
                .root()
                .child(format!("t{number}"), Limits::max(UNIT))
                .unwrap()
        })
        .collect();
    let (tenants, done) = (&tenants, &AtomicBool::new(false));
    thread::scope(|scope| {
        for worker in 0..2 {
            scope.spawn(move || {
                // Relaxed, here and below: it only ends the loop.
                while !done.load(Ordering::Relaxed) {
                    for tenant in tenants {
                        let query = tenant.child(format!("q{worker}"), Limits::none()).unwrap();
                        let part = query.child("part", Limits::none()).unwrap();
                        drop(part.try_charge(UNIT / 4));
                    }
                }
            });
        }
        let reports: Vec<_> = (0..50)
            .flat_map(|_| {
                tenants
                    .iter()
                    .map(|tenant| refused(tenant.try_charge(units(2))).report)
            })
            .collect();
        done.store(true, Ordering::Relaxed);
        for (report, tenant) in reports.iter().zip(tenants.iter().cycle()) {
            check(report, tenant);
        }
    });
}

#[test]
fn a_group_keeps_the_tree_at_its_peak_when_asked() {
    let memory = Memory::builder().build().unwrap();
    let tenant = memory.root().child("tenant", Limits::none()).unwrap();
    let query = tenant.child("query", Limits::none()).unwrap();
    drop(query.try_charge(units(9)).unwrap());
    assert_eq!(tenant.peak_report(), None);
    let kept = tenant.keep_peak();
    let peak = query.try_charge(units(5)).unwrap();
    drop(peak);
    drop(query);
    let report = tenant.peak_report().unwrap();
    check(&report, &tenant);
    assert!(report.way[1].reserved >= units(5));
    assert!(report.largest[0].reserved >= units(5));
    assert_eq!(report.largest[0].path, "/tenant/query");
    assert_eq!(memory.root().peak_report(), None);
    // The peak that was seen stays after the end of the registration, and no other is added.
    drop(kept);
    let _more = tenant.try_charge(units(50)).unwrap();
    memory.tick();
    assert_eq!(tenant.peak_report(), Some(report));
}
