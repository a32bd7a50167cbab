//! Tasks that charge in all ways, under six settings.
//!
//! | setting | tasks | checked |
//! |---|---|---|
//! | `charge-refuse` | charges near limits at two levels, returns, drains | nothing above a limit; nothing refused while memory is free |
//! | `set-limit` | limits that change while others charge | a lowered limit from the return of its call on, also against stock |
//! | `move-charge` | charges that move between groups | the target's limits; groups above both neither gain nor lose |
//! | `nowait-and-overshoot` | charges that must not wait, and charges that must not fail | limits; no fallible charge after an overshoot until usage is within the limit |
//! | `overshoot-and-refill` | charges that must not fail nor wait, beside refills and charges from their stock | held bytes are reserved at once |
//! | `count-anywhere` | charges that neither wait nor fail, with drains, limits and reads | nothing lost, however often others drain |
//!
//! Operations that must not wait finish without the help of others, in few steps (`own_steps.rs`).

use std::sync::{Mutex, MutexGuard};

use bursar_machine::Machine;
use bursar_rig::Watched;

use super::books::{Books, NO_LIMIT, run};
use super::charging::{Charging, some_bytes};
use super::locked::locked;
use super::own_steps::OwnSteps;
use super::protocol::Protocol;
use crate::model::GroupIndex;
use crate::random::Random;

const MAX: u64 = 1000;

/// Work of a task.
#[derive(Clone, Copy)]
enum Work {
    /// Charges, mostly refused near a limit.
    NearLimits,
    /// Charges of half the limit at most.
    BelowLimits,
    /// Sets the limit of a group.
    SetMax(GroupIndex),
    /// Charges, and moves what it charged.
    Move,
    /// Charges that may fail; some of them may not wait.
    Fallible,
    /// Charges that do not fail.
    Anyway,
    /// Charges that neither wait nor fail.
    Count,
    /// Whatever takes back stock, or needs it taken back.
    Drain,
    /// Exact reads of the first groups, so many of them.
    Read(u64),
}

/// Limits of the root and of the groups: parent and `max` of each.
type Limits = (u64, Vec<(GroupIndex, u64)>);

/// Limits, tasks, and the checks after each step.
struct Setting {
    name: &'static str,
    summary: &'static str,
    /// Limits and tasks, which may differ from schedule to schedule.
    draw: fn(&mut Random) -> (Limits, Vec<Work>),
    /// Charges that do not fail are among them, so only held bytes are checked after each step, with the steps of operations
    /// that must not wait; with `true`, also the latch after an overshoot.
    overshoots: Option<bool>,
}

const SETTINGS: [Setting; 6] = [
    Setting {
        name: "charge-refuse",
        summary: "charges near limits at two levels, returns, drains: nothing above a limit, no false refusal",
        draw: |random| {
            // Now the parent refuses, now a child does, now the root does what a child would grant.
            let root_max = [NO_LIMIT, MAX - 100][random.below(2) as usize];
            let child_max = [NO_LIMIT, MAX / 2][random.below(2) as usize];
            let limits = (root_max, vec![(0, MAX), (1, child_max), (1, NO_LIMIT)]);
            let charge = Work::NearLimits;
            (limits, vec![charge, charge, charge, Work::Read(4)])
        },
        overshoots: None,
    },
    Setting {
        name: "set-limit",
        summary: "limits go up and down while others charge: a lowered one holds from the return on",
        draw: |random| {
            // Two tasks that set one limit at once, or two limits.
            let other = 1 + random.below(2) as usize;
            let limits = (NO_LIMIT, vec![(0, MAX), (1, MAX)]);
            let charge = Work::BelowLimits;
            (
                limits,
                vec![charge, charge, Work::SetMax(1), Work::SetMax(other)],
            )
        },
        overshoots: None,
    },
    Setting {
        name: "move-charge",
        summary: "charges move between groups with limits while others charge there",
        draw: |_| {
            let groups = vec![(0, MAX), (0, MAX), (1, NO_LIMIT), (1, MAX / 2)];
            let tasks = vec![Work::Move, Work::Move, Work::Move, Work::Read(2)];
            ((NO_LIMIT, groups), tasks)
        },
        overshoots: None,
    },
    Setting {
        name: "nowait-and-overshoot",
        summary: "charges that never wait and charges that never fail: limits, the latch after an overshoot, few steps",
        draw: |_| {
            let groups = vec![(0, MAX), (1, NO_LIMIT), (1, MAX / 2)];
            let may_fail = Work::Fallible;
            let tasks = vec![may_fail, may_fail, Work::Anyway, may_fail];
            ((NO_LIMIT, groups), tasks)
        },
        overshoots: Some(true),
    },
    Setting {
        name: "count-anywhere",
        summary: "charges that neither wait nor fail, with drains, limits and exact reads: few steps, nothing lost",
        // Nobody charges within limits here, and what limits leave is not checked: an overshoot that may not wait leaves
        // stock for others to drain.
        draw: |_| {
            let groups = vec![(0, MAX), (1, MAX / 2), (1, NO_LIMIT)];
            let tasks = vec![Work::Count, Work::Count, Work::Drain];
            ((NO_LIMIT, groups), tasks)
        },
        overshoots: Some(false),
    },
    Setting {
        name: "overshoot-and-refill",
        summary: "charges above a limit that do not wait for refills under way: what is held is reserved at once",
        draw: |_| {
            let groups = vec![(0, MAX), (1, NO_LIMIT), (1, NO_LIMIT)];
            let charge = Work::Anyway;
            ((NO_LIMIT, groups), vec![charge, Work::Count, charge])
        },
        overshoots: Some(false),
    },
];

/// The protocol of the setting with this number.
pub(super) fn protocol<M: Watched, const SETTING: usize>() -> Protocol<M> {
    let Setting { name, summary, .. } = &SETTINGS[SETTING];
    let run = |machine: &M, seed| scenario(machine, seed, &SETTINGS[SETTING]);
    Protocol::of(2, name, run, summary)
}

fn scenario<M: Watched>(machine: &M, seed: u64, setting: &Setting) {
    let ((root_max, groups), tasks) = (setting.draw)(&mut Random::fork(seed, 0));
    let charging = Charging::new(Books::new(machine, root_max, &groups));
    let tasks_of = Tasks {
        all: &charging,
        steps: OwnSteps::new(machine),
        latch: Latch::new(&charging.books),
    };
    let this = &tasks_of;
    let tasks = tasks
        .into_iter()
        .map(|work| -> Box<dyn FnOnce(Random) + Send + '_> {
            Box::new(move |random| this.perform(work, random))
        });
    let tasks = tasks.collect();
    match setting.overshoots {
        None => run(machine, seed, charging.check(), tasks),
        Some(latches) => {
            let mut checked = None;
            let check = || {
                if charging.has_changed(&mut checked) {
                    charging.check_all_held();
                    if latches {
                        this.latch.check();
                    }
                }
                this.steps.check();
            };
            run(machine, seed, check, tasks);
        }
    }
    charging.finish();
}

struct Tasks<'a, M: Watched> {
    all: &'a Charging<M>,
    steps: OwnSteps<M>,
    latch: Latch<'a, M>,
}

impl<M: Watched> Tasks<'_, M> {
    fn perform(&self, work: Work, mut random: Random) {
        let all = self.all;
        match work {
            Work::NearLimits => all.churn(random, 3, |random, held| {
                let group = 1 + random.below(3) as usize;
                held.extend(all.charge(group, some_bytes(random, MAX)));
                if random.below(8) == 0 {
                    all.books.add(group);
                }
            }),
            Work::BelowLimits => all.churn(random, 4, |random, held| {
                let group = 1 + random.below(2) as usize;
                held.extend(all.charge(group, some_bytes(random, MAX / 2)));
            }),
            Work::SetMax(group) => {
                for _ in 0..1 + random.below(2) {
                    let some = random.below(2 * MAX);
                    let max = [0, 10, some, MAX][random.below(4) as usize];
                    all.set_max(group, max);
                }
            }
            Work::Move => all.churn(random, 3, |random, held| {
                let group = 1 + random.below(4) as usize;
                match held.last_mut() {
                    Some(holding) if random.below(2) == 0 => all.move_to(holding, group),
                    _ => held.extend(all.charge(group, some_bytes(random, MAX))),
                }
            }),
            Work::Fallible => self.charge_fallibly(random),
            Work::Anyway => all.churn(random, 3, |random, held| {
                let group = 1 + random.below(3) as usize;
                let bytes = some_bytes(random, MAX);
                held.push(self.latch.overshoot(|| all.charge_anyway(group, bytes)));
            }),
            Work::Count => self.count(random),
            Work::Drain => self.drain(random),
            Work::Read(groups) => {
                for _ in 0..random.below(2) {
                    all.read(random.below(groups) as usize);
                }
            }
        }
    }

    fn charge_fallibly(&self, random: Random) {
        let Self { all, steps, latch } = self;
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
    }

    fn count(&self, random: Random) {
        let Self { all, steps, .. } = self;
        all.churn(random, 5, |random, held| {
            let group = 1 + random.below(3) as usize;
            match random.below(3) {
                0 if !held.is_empty() => {
                    let holding = held.swap_remove(random.below(held.len() as u64) as usize);
                    steps.of("a return that tells nobody", || {
                        all.uncharge_nowait(holding)
                    });
                }
                _ => {
                    let bytes = some_bytes(random, MAX / 2);
                    let charge = || all.charge_anyway_nowait(group, bytes);
                    held.push(steps.of("a charge that neither waits nor fails", charge));
                }
            }
        });
    }

    fn drain(&self, mut random: Random) {
        let all = self.all;
        for _ in 0..3 {
            let group = 1 + random.below(3) as usize;
            match random.below(4) {
                0 => {
                    all.read(random.below(4) as usize);
                    all.books.memory.tick();
                }
                1 => {
                    let holding = all.charge_anyway(group, some_bytes(&mut random, MAX));
                    all.uncharge(holding);
                }
                _ => {
                    let max = [0, MAX / 4, MAX][random.below(3) as usize];
                    all.books.groups[group].set_max(max);
                }
            }
        }
    }
}

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
        locked(&self.noted)
    }

    /// Checks the latches, after each step.
    fn check(&self) {
        let noted = &mut *self.noted();
        for (at, group) in self.books.groups.iter().enumerate() {
            noted.is_above[at] = group.reserved() > group.limits().max;
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
