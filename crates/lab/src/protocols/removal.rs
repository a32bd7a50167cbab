//! The end of groups, while others update, charge and read them, and new ones are born in their records.

use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

use bursar::{Charge, ChargeError, Counter, Freshness, Group, Limits, Memory, Statistic};
use bursar_machine::Watched;

use super::Protocol;
use super::books::run;
use crate::random::Random;

pub(super) fn protocol<M: Watched>() -> Protocol<M> {
    Protocol {
        name: "removal",
        summary: "groups end while others update, charge and read them, and are born again in the same records",
        cpus: 2,
        scenario,
    }
}

const STATISTICS: &[Statistic] = &[Statistic::counter("rows")];
const ROWS: Counter = Counter::of(STATISTICS, "rows");
const MAX: u64 = 1000;

/// Rows of all groups, living or removed, and bytes. Not the machine's words: recording costs no step.
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
        self.returned.fetch_add(1, Ordering::Relaxed);
    }

    /// Charges; `None` if the group was removed.
    fn charge<M: Watched>(&self, group: &Group<M>, bytes: u64) -> Option<Charge<M>> {
        match group.try_charge(bytes as usize) {
            Ok(charge) => {
                self.held.fetch_add(bytes, Ordering::Relaxed);
                Some(charge)
            }
            Err(ChargeError::Removed { .. }) => None,
            Err(error) => panic!("refused for no reason: {error}"),
        }
    }

    fn uncharge<M: Watched>(&self, charge: Charge<M>) {
        self.held
            .fetch_sub(charge.bytes() as u64, Ordering::Relaxed);
        drop(charge);
    }

    /// Reads a group from which nothing is ever lost.
    fn read<M: Watched>(&self, group: &Group<M>) {
        let returned = self.returned.load(Ordering::Relaxed) as i64;
        let reading = group.read(Freshness::Exact).expect("readers may flush");
        let begun = self.begun.load(Ordering::Relaxed) as i64;
        let rows = reading.get(ROWS).value;
        assert!(
            (returned..=begun).contains(&rows),
            "{group:?} reads {rows} rows, and {returned} to {begun} were added"
        );
    }
}

/// Checks that the part that no living child accounts for is never more than the whole.
fn check_own<M: Watched>(group: &Group<M>, freshness: Freshness) {
    let reading = group.read(freshness).expect("readers may flush");
    let (rows, own) = (reading.get(ROWS).value, reading.own(ROWS));
    assert!(
        own <= rows,
        "{group:?} has {rows} rows, {own} of them its own"
    );
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
        *empty.lock().expect("nobody panics here") = Some(charge);
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
        let charge = empty.lock().expect("nobody panics here").take();
        drop(charge);
        assert!(!born.is_removed(), "a newborn group that lives no more");
        drop(born.try_charge(8).expect("there is room"));
    };
    run(machine, seed, || (), vec![Box::new(resize), Box::new(end)]);
    drop(empty.lock().expect("nobody panics here").take());
    memory.tick();
    assert_eq!(memory.removed_groups(), 0, "a record that nothing ends");
    assert_eq!(memory.reserved(), 0, "bytes that nobody holds");
}

fn scenario<M: Watched>(machine: &M, seed: u64) {
    match Random::fork(seed, 0).below(8) {
        0 => nothing(machine, seed),
        _ => everything(machine, seed),
    }
}

fn everything<M: Watched>(machine: &M, seed: u64) {
    let memory = &Memory::builder()
        .statistics(STATISTICS)
        .shards_per_slice(1)
        .build_on(machine.clone())
        .expect("a small memory");
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
                let bytes = charge.bytes() as u64;
                if random.below(3) == 0 {
                    // As an allocator does whose block grows.
                    charge.grow_nowait(8);
                    sums.held.fetch_add(8, Ordering::Relaxed);
                    if random.below(2) == 0 {
                        sums.uncharge(charge.split(bytes as usize).expect("it had as many"));
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
            match random.below(5) {
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
        || {
            let (held, reserved) = (sums.held.load(Ordering::Relaxed), root.reserved());
            assert!(held <= reserved, "{held} bytes held, {reserved} reserved");
        },
        vec![
            Box::new(first),
            Box::new(second),
            Box::new(end),
            Box::new(read),
        ],
    );

    // All handles but the root's are gone, and all bytes.
    memory.tick();
    assert_eq!(memory.removed_groups(), 0, "a record that nothing ends");
    assert_eq!(root.reserved(), 0, "bytes that nobody holds");
    let reading = root.read(Freshness::Exact).expect("readers may flush");
    let added = sums.returned.load(Ordering::Relaxed) as i64;
    assert_eq!(
        (reading.get(ROWS).value, reading.own(ROWS)),
        (added, added),
        "rows in the end, and those of living children"
    );
    assert_eq!((reading.usage().value, reading.own_usage()), (0, 0));
}
