//! The end of groups, while others update, charge and read them, and new ones are born in their records.

use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use bursar::{
    Charge, ChargeError, Counter, CreateError, Freshness, Group, Limits, Memory, Reading, Statistic,
};
use bursar_rig::Watched;

use super::books::run;
use super::executor::block_on;
use super::locked::locked;
use crate::random::Random;

const STATISTICS: &[Statistic] = &[
    Statistic::counter("rows").batch(2),
    Statistic::counter("files").eager(),
];
const ROWS: Counter = Counter::from_name(STATISTICS, "rows");
const FILES: Counter = Counter::from_name(STATISTICS, "files");
const MAX: u64 = 1000;

/// Rows of all groups, living or removed, of which each is a file too, and bytes. Not the machine's words: recording costs no step.
#[derive(Default)]
struct Sums {
    begun: AtomicU64,
    returned: AtomicU64,
    held: AtomicU64,
}

impl Sums {
    fn add<M: Watched>(&self, group: &Group<M>) {
        // Relaxed, here and below: one thread of the host runs all tasks.
        self.begun.fetch_add(1, Ordering::Relaxed);
        group.add(ROWS, 1);
        group.add(FILES, 1);
        self.returned.fetch_add(1, Ordering::Relaxed);
    }

    /// Charges; `None` if the group was removed.
    fn charge<M: Watched>(&self, group: &Group<M>, bytes: u64) -> Option<Charge<M>> {
        match group.try_charge(bytes) {
            Ok(charge) => {
                self.held.fetch_add(bytes, Ordering::Relaxed);
                Some(charge)
            }
            Err(ChargeError::Removed { .. }) => None,
            Err(error) => panic!("refused for no reason: {error}"),
        }
    }

    fn uncharge<M: Watched>(&self, charge: Charge<M>) {
        self.held.fetch_sub(charge.bytes(), Ordering::Relaxed);
        drop(charge);
    }

    /// Reads a group from which nothing is ever lost.
    fn read<M: Watched>(&self, group: &Group<M>) {
        let read = || group.read(Freshness::Exact).expect("readers may flush");
        self.check(group, read);
    }

    /// [`Sums::read`] from a snapshot.
    fn read_snapshot<M: Watched>(&self, group: &Group<M>) {
        let read = || check_sums(group, Freshness::Exact);
        self.check(group, read);
    }

    /// Checks after each step that held bytes are reserved.
    fn check_held<M: Watched>(&self, root: &Group<M>) {
        let (held, reserved) = (self.held.load(Ordering::Relaxed), root.reserved());
        assert!(held <= reserved, "{held} bytes held, {reserved} reserved");
    }

    fn check<M: Watched>(&self, group: &Group<M>, read: impl FnOnce() -> Reading) {
        let returned = self.returned.load(Ordering::Relaxed) as i64;
        let reading = read();
        let begun = self.begun.load(Ordering::Relaxed) as i64;
        for (what, counter) in [("rows", ROWS), ("files", FILES)] {
            let read = reading.get(counter).value;
            assert!(
                (returned..=begun).contains(&read),
                "{group:?} reads {read} {what}, and {returned} to {begun} were added"
            );
        }
    }
}

fn memory<M: Watched>(machine: &M) -> Memory<M> {
    let builder = Memory::builder().statistics(STATISTICS).shards_per_slice(1);
    // Each read does a step of a pass over idle slots.
    let builder = builder.retire_period(Duration::ZERO);
    builder.build_on(machine.clone()).expect("a small memory")
}

/// Checks that the part that no living child accounts for is never more than the whole, and that of the statistic that all
/// groups have at once, a group read later has no less than one below it.
fn check_own<M: Watched>(group: &Group<M>, freshness: Freshness) {
    let below = group.find("group").map(|child| files(&child));
    let reading = group.read(freshness).expect("readers may flush");
    let (rows, own) = (reading.get(ROWS).value, reading.own(ROWS));
    assert!(
        own <= rows,
        "{group:?} has {rows} rows, {own} of them its own"
    );
    let (whole, own) = (reading.get(FILES).value, reading.own(FILES));
    assert!(
        (0..=whole).contains(&own),
        "{group:?} has {whole} files, {own} of them its own"
    );
    let above = group.parent().map_or(whole, |parent| files(&parent));
    let below = below.unwrap_or(0);
    assert!(
        below <= whole && whole <= above,
        "{below} files below {group:?}, then {whole} in it, then {above} above"
    );
}

fn files<M: Watched>(group: &Group<M>) -> i64 {
    let reading = group.read(Freshness::Cached);
    reading.expect("nobody flushes").get(FILES).value
}

/// In a snapshot the own part of a group and its children make the group, whatever runs. Returns the reading of the group.
fn check_sums<M: Watched>(group: &Group<M>, freshness: Freshness) -> Reading {
    let snapshot = group.snapshot(freshness).expect("readers may flush");
    let groups = snapshot.groups();
    for (at, group) in groups.iter().enumerate() {
        let below = groups[at + 1..].iter();
        let below = below.take_while(|below| below.depth > group.depth);
        let mut sums = (group.reading.own(ROWS), group.reading.own_usage());
        for child in below.filter(|below| below.depth == group.depth + 1) {
            sums.0 += child.reading.get(ROWS).value;
            sums.1 += child.reading.usage().value;
        }
        let reading = &group.reading;
        let whole = (reading.get(ROWS).value, reading.usage().value);
        assert_eq!(sums, whole, "{} in {snapshot}", group.path);
        let usage = reading.usage();
        assert!(
            0 <= usage.lo && usage.lo <= usage.value && usage.value <= usage.hi,
            "{} in {snapshot}",
            group.path
        );
    }
    groups[0].reading.clone()
}

/// Lets the last charge of a removed group become one of 0 bytes while others check whether the group's record may end.
/// From then on it keeps the record as a handle does.
fn nothing<M: Watched>(machine: &M, seed: u64) {
    let memory = &Memory::builder()
        .build_on(machine.clone())
        .expect("a small memory");
    let root = memory.root();
    let group = root.child("group", Limits::none()).expect("a name");
    let mut charge = group.try_charge(8).expect("there is room");
    let empty = &Mutex::new(None);
    let resize = move |_: Random| {
        charge.resize(0).expect("less always fits");
        *locked(empty) = Some(charge);
    };
    let end = move |mut random: Random| {
        if random.below(2) == 0 {
            group.remove().expect("it has no children");
        }
        drop(group);
        if random.below(2) == 0 {
            memory.tick();
        }
        let born = root.child("born", Limits::none()).expect("a name");
        // The charge of nothing goes: it must not refer to the newborn's record.
        let charge = locked(empty).take();
        drop(charge);
        assert!(!born.is_removed(), "a newborn group that lives no more");
        drop(born.try_charge(8).expect("there is room"));
    };
    run(machine, seed, || (), tasks![resize, end]);
    drop(locked(empty).take());
    memory.tick();
    assert_eq!(memory.removed_groups(), 0, "a record that nothing ends");
    assert_eq!(memory.reserved(), 0, "bytes that nobody holds");
}

pub(super) fn scenario<M: Watched>(machine: &M, seed: u64) {
    match Random::fork(seed, 0).below(8) {
        0 => nothing(machine, seed),
        1..3 => closing(machine, seed),
        _ => everything(machine, seed),
    }
}

/// A subtree is closed while tasks charge there, wait for its limit, and make groups in it; others wait until it is empty.
fn closing<M: Watched>(machine: &M, seed: u64) {
    let memory = &memory(machine);
    let root = &memory.root();
    let tenant = &root.child("tenant", Limits::max(MAX)).expect("a name");
    let query = &tenant.child("query", Limits::none()).expect("a name");
    let sums = &Sums::default();
    // Somebody has closed the tenant. Not the machine's word, as those of `Sums`.
    let is_closed = &AtomicBool::new(false);
    let made = &Mutex::new(Vec::new());
    let work = move |mut random: Random| {
        let mut held = Vec::new();
        for name in ["one", "two"] {
            let was_closed = is_closed.load(Ordering::Relaxed);
            let parent = [tenant, query][random.below(2) as usize];
            let group = match random.below(2) {
                0 => parent.clone(),
                _ => match parent.child(name, Limits::none()) {
                    Ok(group) => {
                        assert!(!was_closed, "a group below one that is closed");
                        // No step of the machine while a lock of the host is held.
                        let kept = group.clone();
                        locked(made).push(kept);
                        group
                    }
                    Err(CreateError::Exists { .. } | CreateError::ParentRemoved { .. }) => continue,
                    Err(error) => panic!("no child for no reason: {error}"),
                },
            };
            sums.add(&group);
            let was_closed = is_closed.load(Ordering::Relaxed);
            let charge = sums.charge(&group, 8);
            assert!(
                charge.is_none() || !was_closed,
                "a charge to a closed group"
            );
            held.extend(charge);
        }
        held.into_iter().for_each(|charge| sums.uncharge(charge));
    };
    // More than there is beside what the first one holds, for which nobody makes room but by closing. Held elsewhere, so that
    // the query may be empty before it has ended.
    let other = tenant.child("other", Limits::none()).expect("a name");
    let first = other.try_charge(MAX / 2).expect("there is room");
    let wait = move |_: Random| {
        let charged = block_on::<M, _>(query.charge_async(MAX / 2 + 1));
        assert!(
            matches!(charged, Err(ChargeError::Removed { .. })),
            "a charge waits in a closed group"
        );
    };
    let close = move |random: &mut Random| {
        // Perhaps from below, while another closes all of it.
        if random.below(3) == 0 {
            query.close().expect("not the root");
        }
        tenant.close().expect("not the root");
        is_closed.store(true, Ordering::Relaxed);
        let made = std::mem::take(&mut *locked(made));
        for group in made.iter().chain([tenant, query]) {
            assert!(group.is_removed(), "{group:?} was made and not closed");
            assert!(group.try_charge(8).is_err(), "a charge to {group:?}");
            let child = group.child("late", Limits::none());
            assert!(child.is_err(), "a child of {group:?}");
        }
    };
    let first_closer = move |mut random: Random| {
        close(&mut random);
        assert!(other.is_removed(), "{other:?} is left");
        drop((first, other));
        let again = root.child("tenant", Limits::none());
        drop(again.expect("its name is free"));
        if random.below(2) == 0 {
            sums.read_snapshot(root);
        }
    };
    let second_closer = move |mut random: Random| {
        if random.below(2) == 0 {
            close(&mut random);
        }
        let group = [tenant, query][random.below(2) as usize];
        block_on::<M, _>(group.emptied());
        assert!(group.is_removed(), "the end of a group that lives");
        assert_eq!(group.reserved(), 0, "the end before the last byte");
    };
    run(
        machine,
        seed,
        || sums.check_held(root),
        tasks![work, wait, first_closer, second_closer],
    );
    locked(made).clear();
    sums.read(root);
    assert_eq!(memory.reserved(), 0, "bytes that nobody holds");
}

fn everything<M: Watched>(machine: &M, seed: u64) {
    let memory = &memory(machine);
    let root = &memory.root();
    let parent = root.child("parent", Limits::none()).expect("a name");
    let group = parent.child("group", Limits::max(MAX)).expect("a name");
    let sums = &Sums::default();

    let work = |group: Group<M>| {
        move |mut random: Random| {
            for _ in 0..random.below(2) {
                sums.add(&group);
                if let Some(charge) = sums.charge(&group, 8) {
                    sums.uncharge(charge);
                }
            }
            let bytes = [8, MAX / 3][random.below(2) as usize];
            let charge = sums.charge(&group, bytes);
            if random.below(2) == 0 {
                sums.add(&group);
            }
            // Perhaps the last handle; perhaps only bytes keep the record then, or a charge of none.
            drop(group);
            if let Some(mut charge) = charge {
                if random.below(3) == 0 {
                    // By way of the bytes there is a handle for a while, and more bytes that outlive both.
                    let again = charge.group();
                    let more = again.charge(8);
                    sums.held.fetch_add(8, Ordering::Relaxed);
                    drop(again);
                    sums.uncharge(charge);
                    charge = more;
                }
                let bytes = charge.bytes();
                if random.below(3) == 0 {
                    // As an allocator does whose block grows.
                    charge.grow_nowait(8);
                    sums.held.fetch_add(8, Ordering::Relaxed);
                    if random.below(2) == 0 {
                        sums.uncharge(charge.split(bytes).expect("it had as many"));
                    }
                } else if random.below(3) == 0 {
                    sums.held.fetch_sub(bytes, Ordering::Relaxed);
                    charge.resize(0).expect("less always fits");
                }
                sums.uncharge(charge);
            }
        }
    };
    let workers = [work(group.clone()), work(group.clone())];
    let kept = parent.clone();
    let end = move |mut random: Random| {
        if random.below(2) == 0 {
            group.remove().expect("it has no children");
            assert!(group.is_removed());
            assert!(
                group.try_charge(8).is_err(),
                "a charge after the removal returned"
            );
            sums.add(&group);
        }
        drop(group);
        if random.below(2) == 0 {
            memory.tick();
        }
        // Perhaps in the record that has just ended, perhaps elsewhere in the tree.
        let born = match random.below(2) {
            0 => parent.child("born", Limits::max(MAX)),
            _ => root.child("born", Limits::max(MAX)),
        };
        let born = born.expect("a name of its own");
        let numbers = || {
            let reading = born.read(Freshness::Exact).expect("readers may flush");
            (reading.get(ROWS).value, reading.usage().value)
        };
        assert_eq!(numbers(), (0, 0), "a newborn group with numbers");
        sums.add(&born);
        let charge = sums.charge(&born, MAX);
        assert_eq!(numbers(), (1, MAX as i64), "numbers of a young group");
        sums.read(root);
        sums.uncharge(charge.expect("nobody removes it"));
    };
    let read = move |mut random: Random| {
        for _ in 0..random.below(4) {
            match random.below(6) {
                5 => match random.below(3) {
                    0 => drop(check_sums(root, Freshness::Cached)),
                    _ => sums.read_snapshot(root),
                },
                0 => sums.read(root),
                1 => check_own(&kept, Freshness::Exact),
                // Perhaps a handle of a group that has lost its last one, and dies with this.
                2 => {
                    if let Some(group) = kept.find("group") {
                        sums.add(&group);
                    }
                }
                _ => check_own(&kept, Freshness::Cached),
            }
        }
        drop(kept);
    };
    let [first, second] = workers;
    run(
        machine,
        seed,
        || sums.check_held(root),
        tasks![first, second, end, read],
    );

    // All handles but the root's are gone, and all bytes.
    memory.tick();
    assert_eq!(memory.removed_groups(), 0, "a record that nothing ends");
    assert_eq!(root.reserved(), 0, "bytes that nobody holds");
    let reading = root.read(Freshness::Exact).expect("readers may flush");
    let added = sums.returned.load(Ordering::Relaxed) as i64;
    for (what, counter) in [("rows", ROWS), ("files", FILES)] {
        assert_eq!(
            (reading.get(counter).value, reading.own(counter)),
            (added, added),
            "{what} in the end, and those of no living child"
        );
    }
    assert_eq!((reading.usage().value, reading.own_usage()), (0, 0));
}
