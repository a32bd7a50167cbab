//! Bytes that groups leave behind when they end with bytes charged.

use std::collections::BTreeMap;
use std::{hint, mem};

use bursar::diagnosis::Leftover;
use bursar::{Charge, Group, Limits, Memory};

use crate::common::{Random, UNIT, panics, seed, units};

/// Whether this build follows charges.
const FOLLOWS: bool = cfg!(any(debug_assertions, feature = "call-sites"));

fn child(of: &Group, name: &str) -> Group {
    of.child(name, Limits::none()).unwrap()
}

/// Paths and bytes, biggest first.
fn left(memory: &Memory) -> Vec<(String, u64)> {
    let leftovers = memory.leftovers().into_iter();
    leftovers
        .map(|Leftover { path, bytes, .. }| (path, bytes))
        .collect()
}

#[test]
fn each_group_shows_its_own_bytes_until_they_return() {
    let memory = Memory::builder().build().unwrap();
    let tenant = child(&memory.root(), "tenant");
    let [one, two] = ["one\n", "two"].map(|name| child(&tenant, name));
    let held = [(&tenant, 1), (&one, 2), (&two, 4)]
        .map(|(group, count)| group.try_charge(units(count)).unwrap());
    let empty = one.try_charge(0).unwrap();
    assert_eq!(left(&memory), []);
    tenant.close().unwrap();
    let all = [("/tenant/two", 4), ("/tenant/one\n", 2), ("/tenant", 1)];
    assert_eq!(
        left(&memory),
        all.map(|(path, count)| (path.to_owned(), units(count)))
    );
    let shown = memory.leftovers()[1].to_string();
    assert!(
        shown.starts_with("/tenant/one\\n has 2.00 MiB charged, ")
            && shown.ends_with(" after its end"),
        "{shown}"
    );
    let [own, of_one, mut last] = held;
    drop((own, of_one, empty));
    assert_eq!(
        left(&memory),
        [("/tenant/two".to_owned(), units(4))],
        "of one, the charge went with it"
    );
    last.resize(UNIT).unwrap();
    assert_eq!(left(&memory), [("/tenant/two".to_owned(), UNIT)]);
    // The name is free, and the one that took it has left nothing.
    let again = child(&memory.root(), "tenant");
    drop((last, child(&again, "two").try_charge(UNIT)));
    assert_eq!(left(&memory), []);
}

/// More than the notes that are looked at at once, and than are listed. Each has one below.
#[test]
fn the_biggest_of_many_are_listed() {
    const GROUPS: u64 = 200;
    let memory = Memory::builder().build().unwrap();
    let tenant = child(&memory.root(), "tenant");
    let charged = |group: &Group, bytes| group.try_charge(bytes).unwrap();
    let held = (1..=GROUPS).map(|bytes| {
        let group = child(&tenant, &bytes.to_string());
        let below = child(&group, "below");
        [charged(&group, 1000 + bytes), charged(&below, bytes)]
    });
    let held: Vec<[Charge; 2]> = held.collect();
    tenant.close().unwrap();
    let biggest = |bytes| (format!("/tenant/{bytes}"), 1000 + bytes);
    let listed: Vec<_> = (1..=GROUPS).rev().map(biggest).take(64).collect();
    assert_eq!(left(&memory), listed);
    drop(held);
    assert_eq!(left(&memory), []);
}

/// Random groups and charges beside a plain list of what should be left.
#[test]
fn leftovers_are_those_of_a_model() {
    let mut random = Random(seed());
    let memory = Memory::builder().build().unwrap();
    let mut living: Vec<(u64, Group)> = Vec::new();
    let mut held: Vec<(u64, Charge)> = Vec::new();
    let mut ended = Vec::new();
    for id in 0..600 {
        match random.below(6) {
            0 | 1 => living.push((id, child(&memory.root(), &format!("g{id}")))),
            2 if !living.is_empty() => {
                let (id, group) = living.swap_remove(random.below(living.len()));
                match random.below(3) {
                    0 => group.close().unwrap(),
                    1 => group.remove().unwrap(),
                    _ => drop(group),
                }
                ended.push(id);
            }
            3 if !held.is_empty() => drop(held.swap_remove(random.below(held.len()))),
            _ if !living.is_empty() => {
                let (id, group) = &living[random.below(living.len())];
                held.push((
                    *id,
                    group.try_charge(1 + random.below(1 << 20) as u64).unwrap(),
                ));
            }
            _ => {}
        }
        let mut expected = BTreeMap::new();
        for (id, charge) in held.iter().filter(|(id, _)| ended.contains(id)) {
            *expected.entry(format!("/g{id}")).or_insert(0) += charge.bytes();
        }
        let found: BTreeMap<_, _> = left(&memory).into_iter().collect();
        if expected.len() < 64 {
            assert_eq!(found, expected);
        }
    }
    drop((living, held));
    assert_eq!(left(&memory), []);
}

#[inline(never)]
fn load_cache(group: &Group) -> Charge {
    // Not the last call of the function, which would take its frame over.
    hint::black_box(group.try_charge(units(2)).unwrap())
}

#[inline(never)]
fn sort_rows(group: &Group) -> Charge {
    hint::black_box(group.charge(UNIT))
}

#[test]
fn followed_charges_show_the_code_that_made_them() {
    let memory = Memory::builder().sample_call_sites(1).build().unwrap();
    let query = child(&memory.root(), "query");
    let other = child(&memory.root(), "other");
    let mut cached = [load_cache(&query), load_cache(&query), load_cache(&other)];
    let mut sorted = sort_rows(&query);
    let returned = sort_rows(&query);
    drop(query);
    drop(returned);
    let [leftover] = &memory.leftovers()[..] else {
        panic!("one group has ended")
    };
    if !FOLLOWS {
        assert_eq!(leftover.call_sites, []);
        return;
    }
    let sites = |leftover: &Leftover| {
        let name = |frames: &[String]| {
            let known = ["load_cache", "sort_rows"].into_iter();
            known
                .filter(|name| frames[0].contains(name))
                .collect::<String>()
        };
        let site =
            |site: &bursar::diagnosis::CallSite| (name(&site.frames), site.charges, site.bytes);
        leftover.call_sites.iter().map(site).collect::<Vec<_>>()
    };
    // Two calls from one line have one backtrace each, because their places in that line differ.
    let expected = [
        ("load_cache", 1, units(2)),
        ("load_cache", 1, units(2)),
        ("sort_rows", 1, UNIT),
    ];
    assert_eq!(
        sites(leftover),
        expected.map(|(name, charges, bytes)| (name.to_owned(), charges, bytes))
    );
    assert!(
        leftover
            .to_string()
            .contains("\n  1.00 MiB by one sampled charge, "),
        "{leftover}"
    );
    // Bytes keep their place whatever their charge does.
    cached[0].resize(UNIT / 2).unwrap();
    let mut part = sorted.split(UNIT / 4).unwrap();
    part.move_to(&other).unwrap();
    let [_, second, _] = cached;
    second.release_nowait();
    let [leftover] = &memory.leftovers()[..] else {
        panic!("one group has ended")
    };
    let expected = [("sort_rows", 1, UNIT / 4 * 3)];
    assert_eq!(
        sites(leftover)[0],
        ("sort_rows".to_owned(), expected[0].1, expected[0].2)
    );
    drop(other);
    let moved = &memory.leftovers()[0];
    assert_eq!(
        (&moved.path[..], &sites(moved)[..]),
        (
            "/other",
            &[
                ("load_cache".to_owned(), 1, units(2)),
                ("sort_rows".to_owned(), 1, UNIT / 4)
            ][..]
        )
    );
}

#[test]
fn one_charge_in_so_many_is_followed() {
    let memory = Memory::builder().sample_call_sites(4).build().unwrap();
    let query = child(&memory.root(), "query");
    let held: Vec<Charge> = (0..16).map(|_| query.try_charge(UNIT).unwrap()).collect();
    // A number has no place.
    let number = query.try_charge(UNIT).unwrap().forget();
    query.engine().uncharge(number);
    drop(query);
    let leftover = &memory.leftovers()[0];
    let charges: u64 = leftover.call_sites.iter().map(|site| site.charges).sum();
    assert_eq!(charges, if FOLLOWS { 4 } else { 0 });
    drop(held);
}

/// One of two charges is followed. Both together have its place.
#[test]
fn merged_bytes_have_the_place_of_the_charge_that_is_followed() {
    for is_first in [true, false] {
        let memory = Memory::builder().sample_call_sites(2).build().unwrap();
        let query = child(&memory.root(), "query");
        let [mut first, mut second] = [load_cache(&query), sort_rows(&query)];
        let merged = if is_first {
            first.merge(second).unwrap();
            first
        } else {
            second.merge(first).unwrap();
            second
        };
        drop(query);
        let leftover = &memory.leftovers()[0];
        let sites = leftover.call_sites.iter();
        let sites: Vec<_> = sites.map(|site| (site.charges, site.bytes)).collect();
        let expected = [(1, units(3))];
        assert_eq!(sites, expected[..usize::from(FOLLOWS)]);
        drop(merged);
    }
}

/// A memory whose groups must leave nothing.
fn strict() -> Memory {
    Memory::builder()
        .panic_on_leftovers(true)
        .sample_call_sites(1)
        .build()
        .unwrap()
}

#[test]
fn strict_memories_panic_at_each_end_with_bytes() {
    let memory = strict();
    let group = |name: &str| child(&memory.root(), name);
    let ends: [fn(Group); 3] = [
        drop,
        |group| group.close().unwrap(),
        |group| group.remove().unwrap(),
    ];
    for end in ends {
        let ending = group("g");
        let held = load_cache(&ending);
        assert!(panics(|| end(ending)), "a byte was left");
        assert_eq!(left(&memory), [("/g".to_owned(), units(2))], "it has ended");
        drop(held);
        let ending = group("g");
        drop(load_cache(&ending));
        end(ending);
    }
    assert_eq!(memory.reserved(), 0);
}

/// An empty charge keeps its group. The group ends when the charge gets bytes, or goes to another group.
#[test]
fn a_strict_end_by_an_empty_charge_leaves_it_whole() {
    let memory = strict();
    let group = child(&memory.root(), "g");
    let mut empty = group.charge(0);
    drop(group);
    assert!(panics(|| empty.grow_nowait(100)));
    assert_eq!((empty.bytes(), memory.reserved() > 0), (100, true));
    drop(empty);
    assert_eq!(memory.reserved(), 0);

    let (group, other) = (child(&memory.root(), "g"), child(&memory.root(), "h"));
    let mut empty = group.charge(0);
    let held = load_cache(&group);
    drop(group);
    assert!(panics(|| empty.move_to(&other).unwrap()));
    assert_eq!(empty.group().path(), "/h");
    drop((empty, held));
    assert_eq!(memory.reserved(), 0);
    other.remove().unwrap();
}

#[test]
fn a_thread_that_unwinds_panics_once() {
    let memory = strict();
    let unwound = panics(|| {
        let group = child(&memory.root(), "g");
        mem::forget(load_cache(&group));
        panic!("for a reason of its own");
    });
    assert!(unwound);
    assert_eq!(left(&memory), [("/g".to_owned(), units(2))]);
}
