//! Charges beyond a limit, while reclaimers hold memory of the group and its children, and drop it when asked.
//!
//! The claim while several tasks charge is weak: others may take memory that was freed for one task, and hold memory
//! that they are about to free for another. So a charge may be refused when a whole round of reclaim found nothing to
//! free, or after the greatest number of rounds. With one task that charges, and caches that give all they have, it
//! must not be refused at all.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex};

use bursar::{ReclaimRequest, Registration};
use bursar_machine::Machine;
use bursar_rig::Watched;

use super::books::{Books, NO_LIMIT, run};
use super::charging::{Charging, Holding};
use super::locked::locked;
use crate::model::GroupIndex;
use crate::random::Random;

const MAX: u64 = 1000;
/// The same as in the library.
const ROUNDS_MAX: u32 = 16;
/// Group with the limit, whose own reclaimer begins each round.
const LIMITED: GroupIndex = 1;
const PROTECTED: GroupIndex = 3;
const TASKS_MAX: u64 = 4;
const MIN: u64 = MAX / 5;

/// Behaviour of a reclaimer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Manner {
    /// Drops as much as it is asked for.
    Obeys,
    /// Drops all it has.
    Overdoes,
    /// Keeps it.
    Refuses,
    /// Charges, which must fit or be refused, then obeys.
    Charges,
    /// Takes from the emergency reserve, then obeys.
    Spills,
    /// Removes its group, then obeys.
    Removes,
    /// Ends its registration, then obeys.
    Leaves,
}

/// Charge of one task that is under way.
#[derive(Default)]
struct Asking {
    began: u64,
    rounds: u32,
    freed_last: u64,
}

#[derive(Default)]
struct Notes {
    /// Steps of all tasks so far, and the last step at which the protected group used more than its protection.
    steps: u64,
    unprotected: u64,
    asking: BTreeMap<u64, Asking>,
    /// Tasks in a reclaimer.
    inside: BTreeSet<u64>,
}

struct Cache<M: Machine> {
    group: GroupIndex,
    manner: Manner,
    /// Neither these nor the notes are the machine's: they cost no step, and nothing happens while they are locked.
    held: Mutex<Vec<Holding<M>>>,
    registration: Mutex<Option<Registration>>,
}

struct Caches<M: Machine> {
    machine: M,
    charging: Charging<M>,
    /// Protection of the protected group.
    min: u64,
    reserve: Mutex<Option<bursar::EmergencyReserve<M>>>,
    notes: Mutex<Notes>,
}

impl<M: Machine> Caches<M> {
    fn asked(&self, cache: &Cache<M>, request: &ReclaimRequest) -> u64 {
        let task = self.machine.task();
        {
            let mut notes = locked(&self.notes);
            assert!(
                notes.inside.insert(task),
                "a reclaimer is asked by what it does itself"
            );
            let unprotected = notes.unprotected;
            let asking = notes.asking.entry(task).or_default();
            if cache.group == LIMITED {
                asking.rounds += 1;
                asking.freed_last = 0;
            }
            assert!(
                cache.group != PROTECTED || unprotected >= asking.began,
                "a group is asked for memory that was protected all the time"
            );
        }
        assert!(request.target > 0, "asked for nothing");
        let freed = self.free(cache, request.target);
        let mut notes = locked(&self.notes);
        notes.inside.remove(&task);
        notes.asking.entry(task).or_default().freed_last += freed;
        freed
    }

    fn free(&self, cache: &Cache<M>, target: u64) -> u64 {
        match cache.manner {
            Manner::Refuses => return 0,
            Manner::Charges => {
                let charged = self.charging.charge(cache.group, MAX / 3);
                self.charging.uncharge_all(charged);
            }
            Manner::Spills => {
                let reserve = locked(&self.reserve).clone();
                drop(reserve.map(|reserve| reserve.take(10).expect("ten for each task")));
            }
            Manner::Removes => self.charging.books.groups[cache.group]
                .remove()
                .expect("it has no children"),
            Manner::Leaves => {
                let registration = locked(&cache.registration).take();
                drop(registration);
            }
            Manner::Obeys | Manner::Overdoes => (),
        }
        let mut freed = 0;
        while freed < target || cache.manner == Manner::Overdoes {
            let Some(one) = locked(&cache.held).pop() else {
                break;
            };
            freed += one.bytes();
            self.charging.uncharge(one);
        }
        freed
    }

    /// Charges, and checks what happened before a refusal.
    fn charge(&self, group: GroupIndex, bytes: u64) -> Option<Holding<M>> {
        let task = self.machine.task();
        // The limit is never raised: what is larger than it now never fits.
        let is_larger = || bytes > self.charging.books.groups[LIMITED].limits().max;
        let never_fits = is_larger();
        {
            let mut notes = locked(&self.notes);
            let began = notes.steps;
            notes.asking.insert(
                task,
                Asking {
                    began,
                    ..Asking::default()
                },
            );
        }
        let charged = self.charging.charge(group, bytes);
        let asking = locked(&self.notes)
            .asking
            .remove(&task)
            .expect("inserted before");
        let is_removed = self.charging.books.groups[group].is_removed();
        if charged.is_none() && !is_removed {
            let Asking {
                rounds, freed_last, ..
            } = asking;
            assert!(rounds > 0 || is_larger(), "refused, and nobody was asked");
            assert!(rounds == 0 || !never_fits, "asked for what never fits");
            assert!(
                freed_last == 0 || rounds >= ROUNDS_MAX || is_larger(),
                "refused after {rounds} rounds, of which the last freed {freed_last} bytes"
            );
        }
        assert!(
            asking.rounds <= ROUNDS_MAX,
            "asked in {} rounds",
            asking.rounds
        );
        charged
    }

    fn check(&self) {
        let mut notes = locked(&self.notes);
        notes.steps += 1;
        if self.charging.books.groups[PROTECTED].reserved() > self.min {
            notes.unprotected = notes.steps;
        }
    }
}

impl<M: Machine> Cache<M> {
    /// Registers a reclaimer of `group` that holds some of its memory.
    fn register(
        all: &Arc<Caches<M>>,
        group: GroupIndex,
        manner: Manner,
        sizes: &[u64],
    ) -> Arc<Self> {
        let held = sizes
            .iter()
            .filter_map(|&bytes| all.charging.charge(group, bytes));
        let cache = Arc::new(Self {
            group,
            manner,
            held: Mutex::new(held.collect()),
            registration: Mutex::default(),
        });
        let (asked, caches) = (cache.clone(), all.clone());
        let reclaim = move |request: &ReclaimRequest| caches.asked(&asked, request);
        let registration = all.charging.books.groups[group].add_reclaimer(0, reclaim);
        *locked(&cache.registration) = Some(registration);
        cache
    }

    /// Drops everything, including the reclaimer, which refers to this.
    fn end(&self, charging: &Charging<M>) {
        drop(locked(&self.registration).take());
        let held = std::mem::take(&mut *locked(&self.held));
        held.into_iter().for_each(|one| charging.uncharge(one));
    }
}

pub(super) fn scenario<M: Watched>(machine: &M, seed: u64) {
    let mut random = Random::fork(seed, 0);
    let below = [(0, MAX), (LIMITED, NO_LIMIT), (LIMITED, NO_LIMIT)];
    let books = Books::new(machine, NO_LIMIT, &below);
    // One task that charges, and all that it needs is available.
    let is_alone = random.below(3) == 0;
    let min = match is_alone {
        false if random.below(2) == 0 => MIN,
        _ => 0,
    };
    books.groups[PROTECTED].set_min(min);
    let low = [0, MAX / 4][random.below(2) as usize];
    books.groups[2].set_low(low);
    let all = Arc::new(Caches {
        machine: machine.clone(),
        charging: Charging::new(books),
        min,
        reserve: Mutex::default(),
        notes: Mutex::default(),
    });
    let groups = &all.charging.books.groups;
    let spare = all.charging.reserve(LIMITED, 10 * TASKS_MAX);
    *locked(&all.reserve) = Some(spare.reserve.clone());
    let mut some_manner = |group| match random.below(if is_alone { 3 } else { 9 }) {
        0 => Manner::Overdoes,
        1 => Manner::Spills,
        3 => Manner::Charges,
        4 => Manner::Refuses,
        // The reclaimer that begins each round stays.
        5 if group != LIMITED => Manner::Leaves,
        6 if group != LIMITED => Manner::Removes,
        _ => Manner::Obeys,
    };
    let caches: Vec<_> = [LIMITED, 2, PROTECTED]
        .map(|group| (group, some_manner(group)))
        .map(|(group, manner)| Cache::register(&all, group, manner, &[150, 50, 100]))
        .into();
    let (caches, all) = (&caches, &all);
    let charge = move |mut random: Random| {
        for _ in 0..2 {
            let group = 1 + random.below(3) as usize;
            let bytes = 1 + random.below(MAX * 9 / 10);
            let charged = all.charge(group, bytes);
            assert!(
                charged.is_some() || !is_alone,
                "refused, and reclaimers had all that it took"
            );
            let Some(one) = charged else { continue };
            match random.below(3) {
                0 => locked(&caches[group - 1].held).push(one),
                _ => all.charging.uncharge(one),
            }
        }
    };
    let change = move |mut random: Random| {
        match random.below(6) {
            // These free memory that the others want, and have it in hand for a moment.
            0 if !is_alone => {
                groups[LIMITED].set_high([MAX / 4, NO_LIMIT][random.below(2) as usize])
            }
            1 if !is_alone => drop(groups[LIMITED].reclaim(random.below(MAX))),
            2 => groups[2].set_low(random.below(MAX)),
            // Nothing is taken back below what is charged, so no answer of others is judged by it.
            3 if !is_alone => all.charging.set_max(LIMITED, MAX / 2),
            4 => all.charging.books.memory.tick(),
            _ => (),
        };
    };
    let mut tasks: Vec<Box<dyn FnOnce(Random) + Send>> = tasks![charge, change];
    if !is_alone {
        tasks.push(Box::new(charge));
        tasks.push(Box::new(charge));
    }
    let mut check = all.charging.check();
    let check = move || {
        check();
        all.check();
    };
    run(machine, seed, check, tasks);

    caches.iter().for_each(|cache| cache.end(&all.charging));
    *locked(&all.reserve) = None;
    all.charging.unreserve(spare);
    for at in [LIMITED, 2, PROTECTED] {
        assert_eq!(
            groups[at].reclaim(MAX),
            0,
            "a reclaimer that nobody registered"
        );
    }
    all.charging.finish();
}
