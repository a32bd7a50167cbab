//! A record ends, and is born again, while other tasks are on their way to it: a drain of the group above the old one, a walk, or a
//! pass over idle slots.

use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

use bursar::{Counter, Freshness, Limits, Memory, Statistic};
use bursar_rig::Watched;

use super::books::run;
use super::locked::locked;
use crate::random::Random;

const STATISTICS: &[Statistic] = &[Statistic::counter("rows")];
const ROWS: Counter = Counter::from_name(STATISTICS, "rows");
const MAX: u64 = 1000;
const SMALL: u64 = 50;

pub(super) fn scenario<M: Watched>(machine: &M, seed: u64) {
    match Random::fork(seed, 0).below(3) {
        0 => walked(machine, seed),
        other => drained(machine, seed, other == 1),
    }
}

/// `has_ended`: the group whose record is born again has ended before the tasks begin, and only a byte keeps the record.
fn drained<M: Watched>(machine: &M, seed: u64, has_ended: bool) {
    let memory = &Memory::builder()
        .shards_per_slice(1)
        .build_on(machine.clone())
        .expect("a small memory");
    let parent = |name| memory.root().child(name, Limits::max(MAX));
    let (old, new) = (
        parent("old").expect("a name"),
        parent("new").expect("a name"),
    );
    let (old, new) = (&old, &new);
    let held = &AtomicU64::new(0);
    // One of each, so that there are few ways in which they can meet.
    let drain = |_: Random| old.set_max(MAX - 1);
    let live = move || {
        // It has stock, so the way to it is marked; it ends, and a byte keeps its record for a while.
        let query = old.child("query", Limits::none()).expect("a name");
        let mut charge = query.try_charge(SMALL).expect("there is room");
        let kept = charge.split(1).expect("it has more");
        drop((charge, query));
        kept
    };
    let kept = has_ended.then(live);
    let live_again = move |_: Random| {
        drop(kept.unwrap_or_else(live));
        let again = new.child("again", Limits::none()).expect("a name");
        let charge = again.try_charge(SMALL);
        // Relaxed, here and below: one thread of the host runs all tasks.
        held.fetch_add(SMALL, Ordering::Relaxed);
        let charge = charge.expect("there is room");
        held.fetch_sub(SMALL, Ordering::Relaxed);
        drop(charge);
    };
    let want_nearly_all = |_: Random| {
        let charge = new.try_charge(MAX - SMALL);
        drop(charge.unwrap_or_else(|refusal| panic!("false refusal: {refusal}")));
    };
    run(
        machine,
        seed,
        || {
            let (held, reserved) = (held.load(Ordering::Relaxed), new.reserved());
            assert!(held <= reserved, "{held} bytes held, {reserved} reserved");
        },
        tasks![drain, live_again, want_nearly_all],
    );
    if has_ended {
        let drained = old.own_events().drained_bytes;
        assert_eq!(drained, 0, "a drain of {old:?} took stock below another");
    }
    for group in [old, new] {
        group.set_max(0);
        assert_eq!(group.reserved(), 0, "bytes that no drain finds");
    }
    memory.tick();
    assert_eq!(memory.removed_groups(), 0, "a record that nothing ends");
}

/// Lets a record be born again while a walk or a pass over idle slots is on its way to the record's last group. If another record
/// has ended since, that one is born again, perhaps with the first one's ordinal.
fn walked<M: Watched>(machine: &M, seed: u64) {
    let memory = &Memory::builder()
        .statistics(STATISTICS)
        .build_on(machine.clone())
        .expect("a small memory");
    let root = &memory.root();
    let child = |name| root.child(name, Limits::none()).expect("a name");
    let parents = &[child("old"), child("new")];
    let [query, other] = parents.each_ref().map(|parent| {
        let query = parent.child("query", Limits::none()).expect("a name");
        query.add(ROWS, 1);
        query
    });
    // The first of two passes that find the slots unchanged.
    memory.tick();
    let look = |mut random: Random| match random.below(3) {
        0 => memory.tick(),
        1 => drop(root.read(Freshness::Exact)),
        _ => drop(parents[0].read(Freshness::Exact)),
    };
    let born = &Mutex::new(None);
    let live_again = move |mut random: Random| {
        drop(query);
        let other = (random.below(2) == 0).then_some(other);
        let at = random.below(2) as usize;
        let again = parents[at]
            .child("again", Limits::none())
            .expect("a name of its own");
        again.add(ROWS, 1);
        // No step of the machine while a lock of the host is held.
        *locked(born) = Some((at, again, other));
    };
    run(machine, seed, || (), tasks![look, live_again]);
    let (at, _again, _other) = locked(born).take().expect("it was born");
    let rows = |group: &bursar::Group<M>| {
        let reading = group.read(Freshness::Exact).expect("readers may flush");
        (reading.get(ROWS).value, reading.own(ROWS))
    };
    for (index, parent) in parents.iter().enumerate() {
        let all = 1 + i64::from(index == at);
        assert_eq!(rows(parent).0, all, "rows of {parent:?}");
    }
    assert_eq!(rows(root), (3, 0), "rows of all, and the root's own");
}
