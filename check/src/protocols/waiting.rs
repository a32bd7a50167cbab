//! Charges that wait for limits at two levels, while others hold and return bytes, change limits and remove groups.
//!
//! All memory comes back in the end, and all waiting charges fit then: a charge that never ends was not woken.

use std::sync::Mutex;
use std::task::{Context, Poll, Waker};

use bursar::ChargeAsync;
use bursar_machine::{Event, Machine};
use bursar_rig::Watched;
use bursar_rig::bed::Bed;

use super::books::{Books, NO_LIMIT, run};
use super::charging::{Charging, Holding, some_bytes};
use super::executor::{self, Patience};
use super::locked::locked;
use crate::model::GroupIndex;
use crate::random::Random;

const MAX: u64 = 1000;
/// Greatest size that fits everywhere, alone.
const BYTES_MAX: u64 = MAX / 2;

/// One waiting charge, in moments of [`Turns`].
struct Wait {
    group: GroupIndex,
    /// The first poll began, and ended pending.
    came: usize,
    queued: Option<usize>,
    /// The last poll, or the drop, began.
    left: usize,
    granted: Option<usize>,
}

/// Arrivals and services, with their times. Not the machine's words: recording costs no step.
#[derive(Default)]
struct Turns(Mutex<(usize, Vec<Wait>)>);

impl Turns {
    fn note<R>(&self, note: impl FnOnce(usize, &mut Vec<Wait>) -> R) -> R {
        let mut turns = locked(&self.0);
        turns.0 += 1;
        let (now, waits) = &mut *turns;
        note(*now, waits)
    }

    fn comes(&self, group: GroupIndex) -> usize {
        self.note(|now, waits| {
            waits.push(Wait {
                group,
                came: now,
                queued: None,
                left: now,
                granted: None,
            });
            waits.len() - 1
        })
    }

    /// Checks that in one group no charge that waits is passed too often: by charges that came later, and were served before it
    /// was served or gave up.
    fn check(&self, times: u32) {
        self.note(|_, waits| {
            for early in waits.iter() {
                let Some(queued) = early.queued else {
                    continue;
                };
                let passes = |late: &&Wait| {
                    let is_before = late.granted.is_some_and(|granted| granted < early.left);
                    early.group == late.group && queued < late.came && is_before
                };
                let passed = waits.iter().filter(passes).count();
                assert!(
                    passed <= times as usize,
                    "a charge was passed {passed} times, of {times}"
                );
            }
        });
    }
}

/// A waiting charge, and its place among the turns.
struct Wanted<'a, M: Machine> {
    all: &'a Charging<M>,
    turns: &'a Turns,
    turn: usize,
    group: GroupIndex,
    bytes: u64,
    future: ChargeAsync<M>,
}

impl<'a, M: Machine> Wanted<'a, M> {
    fn new(all: &'a Charging<M>, turns: &'a Turns, (group, bytes): (GroupIndex, u64)) -> Self {
        Self {
            all,
            turns,
            turn: turns.comes(group),
            group,
            bytes,
            future: all.books.groups[group].charge_async(bytes),
        }
    }

    fn poll(&mut self, context: &mut Context<'_>) -> Poll<Option<Holding<M>>> {
        let (turns, turn) = (self.turns, self.turn);
        turns.note(|now, waits| waits[turn].left = now);
        let polled = self
            .all
            .poll(&mut self.future, self.group, self.bytes, context);
        turns.note(|now, waits| {
            let wait = &mut waits[turn];
            if polled.is_pending() {
                wait.queued.get_or_insert(now);
            } else {
                wait.granted = matches!(polled, Poll::Ready(Some(_))).then_some(now);
            }
        });
        polled
    }

    /// Charges as soon as it is its turn.
    fn charge(mut self, patience: Patience) -> Option<Holding<M>> {
        let charged = executor::wait::<M, _>(patience, |context| self.poll(context));
        if charged.is_none() {
            self.turns.note(|now, waits| waits[self.turn].left = now);
        }
        charged.flatten()
    }
}

/// Runs one task that waits and one that returns a little at a time: no other task wakes the first if the second does
/// not.
fn duel<M: Watched>(machine: &M, seed: u64, all: &Charging<M>, turns: &Turns) {
    const SMALL: u64 = 30;
    let kept = all.charge(1, MAX - BYTES_MAX - SMALL);
    let held: Vec<_> = (0..4).filter_map(|_| all.charge(2, SMALL)).collect();
    let wait = move |mut random: Random| {
        let wanted = (1 + random.below(3) as usize, BYTES_MAX);
        let charged = Wanted::new(all, turns, wanted).charge(Patience::Endless);
        all.uncharge_all(charged);
    };
    let give_back = move |_: Random| all.uncharge_all(held);
    run(machine, seed, all.check(), tasks![wait, give_back]);
    all.uncharge_all(kept);
}

/// Runs a charge that must not wait. The upper limit refuses it, and it hides for a moment that memory came back below
/// the lower limit, where another charge waits. It notifies no task, so the next charge must, in any group.
fn undone<M: Watched>(machine: &M, seed: u64) {
    // Far from the lower limit to the upper one, so that there is time in between.
    const UPPER: GroupIndex = 1;
    const LOWER: GroupIndex = 5;
    const BESIDE: GroupIndex = 6;
    const ELSEWHERE: GroupIndex = 7;
    let below = [
        (0, MAX),
        (UPPER, NO_LIMIT),
        (2, NO_LIMIT),
        (3, NO_LIMIT),
        (4, MAX * 6 / 10),
        (UPPER, NO_LIMIT),
        (0, NO_LIMIT),
    ];
    let charging = Charging::new(Books::new(machine, NO_LIMIT, &below));
    let turns = Turns::default();
    let (all, turns) = (&charging, &turns);
    let held = all.charge(LOWER, 100);
    let mut waiting = Wanted::new(all, turns, (LOWER, 550));
    let bed = Bed::<M>::new();
    let waker = Waker::from(bed.clone());
    let polled = waiting.poll(&mut Context::from_waker(&waker));
    assert!(polled.is_pending(), "above the lower limit");
    let wait = move |_: Random| {
        bed.wait();
        let charged = waiting.charge(Patience::Endless);
        all.uncharge_all(charged);
    };
    let give_up = move |_: Random| match all.charge_nowait(LOWER, 450) {
        Some(holding) => all.uncharge(holding),
        // The first one there, so no stock covers it.
        None => all
            .charge(ELSEWHERE, 1)
            .into_iter()
            .for_each(|one| all.uncharge(one)),
    };
    let give_back = move |_: Random| {
        // Leaves no room for the one that may not wait, whatever is returned below.
        let room = all.charge(BESIDE, 700);
        all.uncharge_all(held);
        all.uncharge_all(room);
    };
    run(machine, seed, all.check(), tasks![wait, give_up, give_back]);
    charging.finish();
}

/// Runs a charge that must not wait. A limit far below refuses it. For a moment its claim at the upper limit hides memory that came back,
/// for which another charge waits there. It notifies no task when it gives the claim up.
fn hidden<M: Watched>(machine: &M, seed: u64) {
    // Far from the upper limit to the lower one, so that there is time in between.
    const UPPER: GroupIndex = 1;
    const LOWER: GroupIndex = 5;
    const BESIDE: GroupIndex = 6;
    let below = [
        (0, MAX),
        (UPPER, NO_LIMIT),
        (2, NO_LIMIT),
        (3, NO_LIMIT),
        (4, MAX / 2),
        (UPPER, NO_LIMIT),
    ];
    let charging = Charging::new(Books::new(machine, NO_LIMIT, &below));
    let turns = Turns::default();
    let (all, turns) = (&charging, &turns);
    let held = all.charge(BESIDE, 400);
    let mut waiting = Wanted::new(all, turns, (BESIDE, 650));
    let bed = Bed::<M>::new();
    let waker = Waker::from(bed.clone());
    let polled = waiting.poll(&mut Context::from_waker(&waker));
    assert!(polled.is_pending(), "above the upper limit");
    let wait = move |_: Random| {
        bed.wait();
        let charged = waiting.charge(Patience::Endless);
        all.uncharge_all(charged);
    };
    let give_up = move |_: Random| all.uncharge_all(all.charge_nowait(LOWER, 450));
    let kept = &Mutex::new(None);
    let give_back = move |_: Random| {
        // Perhaps after the other has found room at the lower limit.
        let some = all.charge_nowait(LOWER, 100);
        *locked(kept) = some;
        all.uncharge_all(held);
    };
    run(machine, seed, all.check(), tasks![wait, give_up, give_back]);
    let kept = locked(kept).take();
    all.uncharge_all(kept);
    charging.finish();
}

/// Moves a charge that waits for the upper limit to the lower one, while another comes that would fit below both.
fn passing<M: Watched>(machine: &M, seed: u64) {
    let below = [(0, MAX), (1, MAX * 6 / 10), (1, NO_LIMIT)];
    let charging = Charging::new(Books::passing(machine, 0, &below));
    let turns = Turns::default();
    let (all, turns) = (&charging, &turns);
    let above = all.charge(3, 700);
    let mut first = Wanted::new(all, turns, (2, 500));
    let polled = first.poll(&mut Context::from_waker(Waker::noop()));
    assert!(polled.is_pending(), "above the upper limit");
    // From now on it is above the lower one, too.
    let below = all.charge(2, 200);
    let has_come = &M::Event::new();
    let wait = move |_: Random| {
        let charged = first.charge(Patience::Endless);
        all.uncharge_all(charged);
    };
    let come = move |_: Random| {
        let mut second = Wanted::new(all, turns, (2, 50));
        let charged = executor::wait::<M, _>(Patience::Endless, |context| {
            let polled = second.poll(context);
            has_come.set();
            polled
        });
        all.uncharge_all(charged.flatten());
    };
    let give_back = move |_: Random| {
        all.uncharge_all(above);
        has_come.wait();
        all.uncharge_all(below);
    };
    run(machine, seed, all.check(), tasks![wait, come, give_back]);
    turns.check(0);
    charging.finish();
}

/// Runs a large waiter that small ones pass, within the bound: they stay, give up at any step, or hold memory that the large one
/// needs, while the limit changes.
fn large<M: Watched>(machine: &M, seed: u64, mut random: Random) {
    const GROUP: GroupIndex = 2;
    const LARGE: u64 = 800;
    const SMALL: u64 = 60;
    let holds_and_waits = random.below(2) == 0;
    // For each small one that stays: otherwise the one that holds memory may wait behind room that is kept, and none goes on.
    let times = match holds_and_waits {
        true => 3,
        false => 1 + random.below(2) as u32,
    };
    let books = Books::passing(machine, times, &[(0, MAX), (1, NO_LIMIT)]);
    let charging = Charging::new(books);
    let turns = Turns::default();
    let (all, turns) = (&charging, &turns);
    let held = all.charge(GROUP, MAX - LARGE + 100);
    let wait = move |bytes, patience| Wanted::new(all, turns, (GROUP, bytes)).charge(patience);
    let large = move |mut random: Random| {
        let patience = match random.below(4) {
            0 => Patience::UntilWoken,
            _ => Patience::Endless,
        };
        all.uncharge_all(wait(LARGE, patience));
    };
    let small = move |mut random: Random| {
        for _ in 0..if holds_and_waits { 1 } else { 2 } {
            let patience = match random.below(5) {
                0 => Patience::None,
                1 => Patience::UntilWoken,
                _ => Patience::Endless,
            };
            all.uncharge_all(wait(SMALL + random.below(SMALL), patience));
        }
    };
    let hold = move |_: Random| {
        let more = holds_and_waits.then(|| wait(SMALL, Patience::Endless));
        all.uncharge_all(more.flatten());
        all.uncharge_all(held);
    };
    let change = move |mut random: Random| {
        if random.below(2) == 0 {
            // Enough for each alone, and for the small ones beside what is held.
            all.set_max(1, LARGE + random.below(SMALL));
            all.set_max(1, MAX);
        }
    };
    run(
        machine,
        seed,
        all.check(),
        tasks![large, small, small, hold, change],
    );
    turns.check(times);
    charging.finish();
}

pub(super) fn scenario<M: Watched>(machine: &M, seed: u64) {
    let mut random = Random::fork(seed, 0);
    match random.below(9) {
        0 => undone(machine, seed),
        1 => passing(machine, seed),
        2 => hidden(machine, seed),
        3 | 4 => large(machine, seed, random),
        _ => crowd(machine, seed, random),
    }
}

fn crowd<M: Watched>(machine: &M, seed: u64, mut random: Random) {
    let child_max = [NO_LIMIT, MAX * 6 / 10][random.below(2) as usize];
    let times = [0, 1, u32::MAX][random.below(3) as usize];
    let below = [(0, MAX), (1, child_max), (1, NO_LIMIT)];
    let books = Books::passing(machine, times, &below);
    let charging = Charging::new(books);
    let turns = Turns::default();
    let (all, turns) = (&charging, &turns);
    if random.below(4) == 0 {
        duel(machine, seed, all, turns);
        return charging.finish();
    }
    // Returned with all notifications, or by a task that notifies no other and leaves that to the next.
    let give_back = move |random: &mut Random, holding: Holding<M>, group: GroupIndex| {
        if random.below(3) > 0 {
            return all.uncharge(holding);
        }
        all.uncharge_nowait(holding);
        match random.below(2) {
            0 => all.books.memory.tick(),
            _ => all
                .charge(group, 1)
                .into_iter()
                .for_each(|one| all.uncharge(one)),
        }
    };
    let wait = move |mut random: Random| {
        for _ in 0..1 + random.below(2) {
            let group = 1 + random.below(3) as usize;
            let patience = match random.below(6) {
                0 => Patience::None,
                1 => Patience::UntilWoken,
                _ => Patience::Endless,
            };
            let bytes = BYTES_MAX / 2 + random.below(BYTES_MAX / 2);
            // Holds nothing while it waits.
            let wanted = Wanted::new(all, turns, (group, bytes));
            if let Some(holding) = wanted.charge(patience) {
                give_back(&mut random, holding, group);
            }
        }
    };
    let hold = move |mut random: Random| {
        let mut held = Vec::new();
        for _ in 0..2 {
            let group = 1 + random.below(3) as usize;
            let bytes = some_bytes(&mut random, BYTES_MAX);
            let charged = match random.below(4) {
                0 => all.charge_nowait(group, bytes),
                _ => all.charge(group, bytes),
            };
            held.extend(charged.map(|holding| (holding, group)));
        }
        for (holding, group) in held {
            give_back(&mut random, holding, group);
        }
    };
    let change = move |mut random: Random| match random.below(4) {
        0 => all.books.groups[3].remove().expect("it has no children"),
        1 => {
            all.set_max(1, [BYTES_MAX, 10][random.below(2) as usize]);
            all.set_max(1, MAX);
        }
        2 => {
            all.set_max(2, BYTES_MAX);
            all.set_max(2, child_max);
        }
        _ => (),
    };
    run(
        machine,
        seed,
        all.check(),
        tasks![wait, wait, wait, hold, hold, change],
    );
    turns.check(times);
    charging.finish();
}
