//! Subscribers of pressure: at the end each was told the current level, one call at a time; futures wake.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use bursar::{Group, Level, Memory, Registration};
use bursar_machine::Machine;
use bursar_rig::Watched;

use super::books::{Books, run};
use super::charging::{Charging, some_bytes};
use super::executor::block_on;
use super::locked::locked;
use crate::random::Random;

const MAX: u64 = 1000;
/// Changes that one subscriber makes itself when it is called.
const NESTED_MAX: u64 = 2;

/// A subscriber of one group.
struct Watcher<M: Machine> {
    group: Group<M>,
    /// Last level that it was told; not the machine's word: recording costs no step.
    told: Mutex<Level>,
    /// Whether a task is calling the subscribers of this group.
    is_told: Arc<AtomicBool>,
    changes: AtomicU64,
    nests: bool,
}

/// Ends a call.
struct Told<'a>(&'a AtomicBool);

impl Drop for Told<'_> {
    fn drop(&mut self) {
        self.0.store(false, Ordering::Relaxed);
    }
}

impl<M: Machine> Watcher<M> {
    // Relaxed, here and below: one thread of the host runs all tasks.
    fn tell(&self, level: Level) {
        let is_second = self.is_told.swap(true, Ordering::Relaxed);
        assert!(
            !is_second,
            "two calls at once for the watchers of {:?}",
            self.group
        );
        // Also when it unwinds, since what is dropped then may come here again.
        let _told = Told(&self.is_told);
        // Takes a step, so that others come in between.
        let _ = self.group.reserved();
        *locked(&self.told) = level;
        if self.nests && self.changes.fetch_add(1, Ordering::Relaxed) < NESTED_MAX {
            drop(self.group.try_charge(MAX / 3));
            self.group.set_max(self.group.limits().max + 1);
        }
    }

    fn told(&self) -> Level {
        *locked(&self.told)
    }
}

fn watch<M: Machine>(group: &Group<M>, nests: [bool; 2]) -> Vec<(Arc<Watcher<M>>, Registration)> {
    let is_told = Arc::new(AtomicBool::new(false));
    let watch = |nests| {
        let watcher = Arc::new(Watcher {
            group: group.clone(),
            told: Mutex::new(Level::None),
            is_told: is_told.clone(),
            changes: AtomicU64::new(0),
            nests,
        });
        let called = watcher.clone();
        let registration = group.on_pressure(move |pressure| called.tell(pressure.level));
        (watcher, registration)
    };
    nests.map(watch).into()
}

/// Whether some charges notify no subscriber, so that the next tick does.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Nowait {
    Never,
    BeforeTick,
}

pub(super) fn scenario<M: Watched>(machine: &M, seed: u64) {
    let mut random = Random::fork(seed, 0);
    let books = Books::new(machine, 2 * MAX, &[(0, MAX), (1, MAX / 2), (1, 2 * MAX)]);
    let charging = Charging::new(books);
    let nowait = [Nowait::Never, Nowait::BeforeTick][random.below(2) as usize];
    // A task waits for the last change of all, which no other undoes.
    let has_future = random.below(3) == 0;
    let nests = !has_future && random.below(2) == 0;
    let watchers: Vec<_> = [1, 2, 3]
        .into_iter()
        .flat_map(|at| watch(&charging.books.groups[at], [nests, false]))
        .collect();
    let all = &charging;
    // Bytes held in the end: most levels are not the first one then.
    let kept = &Mutex::new(Vec::new());
    let charge = move |random: Random| {
        let held = all.churn_keeping(random, 4, |random, held| {
            let group = 1 + random.below(3) as usize;
            let bytes = some_bytes(random, MAX * 3 / 4);
            match nowait {
                Nowait::BeforeTick if random.below(3) == 0 => {
                    held.extend(all.charge_nowait(group, bytes));
                }
                Nowait::BeforeTick if random.below(3) == 0 => {
                    held.pop()
                        .into_iter()
                        .for_each(|one| all.uncharge_nowait(one));
                }
                _ => held.extend(all.charge(group, bytes)),
            }
        });
        locked(kept).extend(held);
    };
    let change = move |mut random: Random| {
        let groups = &all.books.groups;
        for _ in 0..random.below(3) {
            let group = &groups[1 + random.below(3) as usize];
            let limit = [MAX / 4, MAX / 2, MAX][random.below(3) as usize];
            match random.below(4) {
                0 => group.set_high(limit),
                1 => groups[3].remove().expect("it has no children"),
                _ => group.set_max(limit),
            }
        }
        if has_future {
            [1, 2, 3].iter().for_each(|&at| groups[at].set_max(0));
        }
    };
    let wait = move |mut random: Random| {
        let group = &all.books.groups[1 + random.below(3) as usize];
        let mut level = group.pressure().level;
        while has_future && level != Level::Critical {
            let next = block_on::<M, _>(group.pressure_changed(level));
            assert_ne!(next, level, "woken for no change");
            level = next;
        }
    };
    let mut checked = None;
    let check_held = || {
        if all.has_changed(&mut checked) {
            all.check_all_held();
        }
    };
    run(
        machine,
        seed,
        check_held,
        tasks![charge, charge, charge, change, wait],
    );
    if nowait == Nowait::BeforeTick {
        all.books.memory.tick();
    }
    check(&watchers);
    drop(watchers);
    let kept = std::mem::take(&mut *locked(kept));
    all.uncharge_all(kept);
    finish(all, &all.books.memory);
}

fn check<M: Machine>(watchers: &[(Arc<Watcher<M>>, Registration)]) {
    for (watcher, _) in watchers {
        let (told, level) = (watcher.told(), watcher.group.pressure().level);
        let group = &watcher.group;
        assert_eq!(
            told, level,
            "the last level that a watcher of {group:?} was told, and its level"
        );
    }
}

/// Finishes without judging the answers, because limits were changed past the log.
fn finish<M: Machine>(charging: &Charging<M>, memory: &Memory<M>) {
    memory.tick();
    let panicked = memory.root().events().panicked_callbacks;
    assert_eq!(panicked, 0, "a watcher that was told found a fault");
    charging.books.check_rows();
    charging.books.check_empty();
}
