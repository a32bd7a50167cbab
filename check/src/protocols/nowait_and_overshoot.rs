//! Charges that must not wait, and charges that must not fail. The former keep to the limits. After the latter, no
//! fallible charge succeeds until the usage is back within the limit. A charge that must not wait finishes without the
//! help of others.

use std::sync::{Mutex, MutexGuard, PoisonError};

use bursar_machine::{Machine, Watched};

use super::Protocol;
use super::books::{Books, GroupIndex, NO_LIMIT, run};
use super::charging::{Charging, some_bytes};
use super::own_steps::OwnSteps;
use crate::random::Random;

pub(super) fn protocol<M: Watched>() -> Protocol<M> {
    Protocol {
        name: "nowait-and-overshoot",
        summary: "charges that never wait and charges that never fail: limits, the latch after an overshoot, few steps",
        cpus: 2,
        scenario,
    }
}

const MAX: u64 = 1000;

/// Groups whose usage is above their limit, by charges that have returned. The usage is checked after each step, with
/// the stock in it: a group is latched until it is within its limit again, however briefly. Recording costs no step.
struct Latch<'a, M: Machine> {
    books: &'a Books<M>,
    noted: Mutex<Noted>,
}

#[derive(Default)]
struct Noted {
    /// Infallible charges that have not returned.
    under_way: u32,
    latches: u64,
    /// By group.
    is_above: Vec<bool>,
    /// By group: the number of its latch.
    latch: Vec<Option<u64>>,
}

impl<'a, M: Machine> Latch<'a, M> {
    fn new(books: &'a Books<M>) -> Self {
        let noted = Noted {
            is_above: vec![false; books.groups.len()],
            latch: vec![None; books.groups.len()],
            ..Noted::default()
        };
        Self {
            books,
            noted: Mutex::new(noted),
        }
    }

    fn noted(&self) -> MutexGuard<'_, Noted> {
        self.noted.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Checks the latches, after each step.
    fn check(&self) {
        let noted = &mut *self.noted();
        for (at, group) in self.books.groups.iter().enumerate() {
            noted.is_above[at] = group.reserved() > group.max();
            if !noted.is_above[at] {
                noted.latch[at] = None;
            }
        }
    }

    /// Makes an infallible charge.
    fn overshoot<R>(&self, charge: impl FnOnce() -> R) -> R {
        self.noted().under_way += 1;
        let charged = charge();
        let noted = &mut *self.noted();
        noted.under_way -= 1;
        // One that has not returned has perhaps not taken the stock back yet.
        if noted.under_way == 0 {
            noted.latches += 1;
            for (latch, _) in noted
                .latch
                .iter_mut()
                .zip(&noted.is_above)
                .filter(|it| *it.1)
            {
                latch.get_or_insert(noted.latches);
            }
        }
        charged
    }

    /// Makes a fallible charge.
    fn keep<R>(&self, group: GroupIndex, charge: impl FnOnce() -> Option<R>) -> Option<R> {
        let before = self.noted().latch.clone();
        let charged = charge();
        if charged.is_some() {
            let noted = self.noted();
            let shape = &self.books.shape;
            let is_latched =
                |&at: &GroupIndex| before[at].is_some() && noted.latch[at] == before[at];
            if let Some(at) = shape.chain(group).find(is_latched) {
                panic!(
                    "a charge was granted while {} was above its limit",
                    shape.paths[at]
                );
            }
        }
        charged
    }
}

fn scenario<M: Watched>(machine: &M, seed: u64) {
    let books = Books::new(machine, NO_LIMIT, &[(0, MAX), (1, NO_LIMIT), (1, MAX / 2)]);
    let charging = Charging::new(books);
    let steps = OwnSteps::new(machine);
    let latch = Latch::new(&charging.books);
    let (all, steps, latch) = (&charging, &steps, &latch);
    let fallibly = move |random: Random| {
        all.churn(random, 4, |random, held| {
            let group = 1 + random.below(3) as usize;
            let bytes = some_bytes(random, MAX);
            match random.below(6) {
                0 | 1 => {
                    let nowait = || all.charge_nowait(group, bytes);
                    let nowait = || steps.of("a charge that may not wait", nowait);
                    held.extend(latch.keep(group, nowait));
                }
                2 => {
                    if let Some(holding) = held.pop() {
                        let nowait = || all.uncharge_nowait(holding);
                        steps.of("a return that tells nobody", nowait);
                    }
                }
                3 => steps.of("an update", || all.books.add(group)),
                _ => held.extend(latch.keep(group, || all.charge(group, bytes))),
            }
        });
    };
    let anyway = move |random: Random| {
        all.churn(random, 3, |random, held| {
            let group = 1 + random.below(3) as usize;
            let bytes = some_bytes(random, MAX);
            held.push(latch.overshoot(|| all.charge_anyway(group, bytes)));
        });
    };
    run(
        machine,
        seed,
        || {
            all.check_all_held();
            steps.check();
            latch.check();
        },
        vec![
            Box::new(fallibly),
            Box::new(fallibly),
            Box::new(anyway),
            Box::new(fallibly),
        ],
    );
    charging.finish();
}
