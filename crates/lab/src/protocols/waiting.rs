//! Charges that wait for limits at two levels, while others hold and return bytes, change limits and remove groups.
//!
//! All memory comes back in the end, and all that is asked for fits then: who waits for ever was not woken.

use std::sync::Mutex;

use bursar_machine::Watched;

use super::Protocol;
use super::books::{Books, GroupIndex, NO_LIMIT, run};
use super::charging::{Charging, Holding, some_bytes};
use super::executor::{self, Patience};
use crate::random::Random;

pub(super) fn protocol<M: Watched>() -> Protocol<M> {
    Protocol {
        name: "waiting",
        summary: "charges wait for limits while memory returns, limits change and groups end: in turn, and none for ever",
        cpus: 2,
        scenario,
    }
}

const MAX: u64 = 1000;
/// Fits everywhere, by itself.
const BYTES_MAX: u64 = MAX / 2;

/// One charge that waits, in moments of [`Turns`].
struct Wait {
    group: GroupIndex,
    /// The first poll began, and ended pending.
    came: usize,
    queued: Option<usize>,
    /// The last poll, or the drop, began.
    left: usize,
    granted: Option<usize>,
}

/// Who came when, and who was served when. Not the machine's words: noting costs no step.
#[derive(Default)]
struct Turns(Mutex<(usize, Vec<Wait>)>);

impl Turns {
    fn note<R>(&self, note: impl FnOnce(usize, &mut Vec<Wait>) -> R) -> R {
        let mut turns = self.0.lock().expect("nobody panics while noting");
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

    /// In one group nobody is served before those who waited when he came, unless they were served or gave up.
    fn check(&self) {
        self.note(|_, waits| {
            for late in waits.iter() {
                let Some(granted) = late.granted else {
                    continue;
                };
                let passed = waits.iter().any(|early| {
                    let came_first = early.queued.is_some_and(|queued| queued < late.came);
                    early.group == late.group && came_first && early.left > granted
                });
                assert!(
                    !passed,
                    "a charge was granted before one that had waited for longer"
                );
            }
        });
    }
}

/// Charges as soon as it is its turn.
fn charge<M: Watched>(
    all: &Charging<M>,
    turns: &Turns,
    (group, bytes): (GroupIndex, u64),
    patience: Patience,
) -> Option<Holding<M>> {
    let mut future = all.books.groups[group].charge_async(bytes as usize);
    let turn = turns.comes(group);
    let charged = executor::wait::<M, _>(patience, |context| {
        turns.note(|now, waits| waits[turn].left = now);
        let polled = all.poll(&mut future, group, bytes, context);
        turns.note(|now, waits| {
            let wait = &mut waits[turn];
            if polled.is_pending() {
                wait.queued.get_or_insert(now);
            } else {
                wait.granted = matches!(polled, std::task::Poll::Ready(Some(_))).then_some(now);
            }
        });
        polled
    });
    if charged.is_none() {
        turns.note(|now, waits| waits[turn].left = now);
    }
    drop(future);
    charged.flatten()
}

/// One who waits and one who returns a little at a time: nobody else wakes who was not woken.
fn duel<M: Watched>(machine: &M, seed: u64, all: &Charging<M>, turns: &Turns) {
    const SMALL: u64 = 30;
    let kept = all.charge(1, MAX - BYTES_MAX - SMALL);
    let held: Vec<_> = (0..4).filter_map(|_| all.charge(2, SMALL)).collect();
    let wait = move |mut random: Random| {
        let wanted = (1 + random.below(3) as usize, BYTES_MAX);
        let charged = charge(all, turns, wanted, Patience::Endless);
        charged.into_iter().for_each(|one| all.uncharge(one));
    };
    let give_back = move |_: Random| held.into_iter().for_each(|one| all.uncharge(one));
    run(
        machine,
        seed,
        all.check(),
        vec![Box::new(wait), Box::new(give_back)],
    );
    kept.into_iter().for_each(|one| all.uncharge(one));
}

fn scenario<M: Watched>(machine: &M, seed: u64) {
    let mut random = Random::fork(seed, 0);
    let child_max = [NO_LIMIT, MAX * 6 / 10][random.below(2) as usize];
    let books = Books::new(
        machine,
        NO_LIMIT,
        &[(0, MAX), (1, child_max), (1, NO_LIMIT)],
    );
    let charging = Charging::new(books);
    let turns = Turns::default();
    let (all, turns) = (&charging, &turns);
    if random.below(4) == 0 {
        duel(machine, seed, all, turns);
        return charging.finish();
    }
    // Returned with all that follows, or by somebody who tells nobody and leaves that to the next.
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
            if let Some(holding) = charge(all, turns, (group, bytes), patience) {
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
        vec![
            Box::new(wait),
            Box::new(wait),
            Box::new(wait),
            Box::new(hold),
            Box::new(hold),
            Box::new(change),
        ],
    );
    turns.check();
    charging.finish();
}
