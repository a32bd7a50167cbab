//! Who goes on next, when time does not say.

use std::sync::Arc;

use crate::engine::TaskId;
use bursar_machine::random::Random;

/// How an exploration chooses.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Strategy {
    /// Any task that can run, each as likely as another, after each step.
    RandomWalk,
    /// Probabilistic concurrency testing (Burckhardt and others, ASPLOS 2010): tasks have random priorities, the highest
    /// runs, and at `depth - 1` random steps the one that runs becomes the lowest. Finds a bug that takes `depth` ordered
    /// events with a probability of at least 1 in `tasks * steps^(depth-1)`.
    Pct {
        /// How many events must come in order.
        depth: u32,
        /// About how many steps a schedule has.
        steps: u64,
    },
    /// The decisions of an earlier run, and beyond them whoever runs goes on until it waits.
    Replay(Arc<[Decision]>),
}

/// Who goes on (low byte), and the CPU, plus one, to which whoever stops is moved (high byte, 0: it stays).
pub type Decision = u16;

/// More tasks do not fit in a [`Decision`], and not as many CPUs.
pub(crate) const DECISIONS_MAX: usize = 1 << 8;

/// One switch in so many also moves a task to another CPU.
const MOVE_ONE_IN: u64 = 32;

/// A strategy at work.
#[derive(Debug)]
pub(crate) enum Chooser {
    RandomWalk,
    Pct {
        /// By task; the highest runs.
        priorities: Vec<u64>,
        /// Steps at which the one that runs becomes lower: to `LATER_PRIORITY`, less its place here. They are in no
        /// order, so one that comes later does not go below one that came before, as likely as it does.
        change_at: Vec<u64>,
        /// Below all of them, who gave way.
        lowest: u64,
    },
    Replay {
        decisions: Arc<[Decision]>,
        next: usize,
    },
}

/// First priorities are above this.
const FIRST_PRIORITY: u64 = 1 << 32;
/// Priorities that change points give are at or below this.
const LATER_PRIORITY: u64 = FIRST_PRIORITY - 1;

impl Chooser {
    pub(crate) fn new(strategy: &Strategy, random: &mut Random) -> Self {
        match strategy {
            Strategy::RandomWalk => Self::RandomWalk,
            Strategy::Pct { depth, steps } => Self::Pct {
                priorities: (0..DECISIONS_MAX)
                    .map(|_| FIRST_PRIORITY + random.below(FIRST_PRIORITY))
                    .collect(),
                change_at: (1..*depth)
                    .map(|_| 1 + random.below((*steps).max(1)))
                    .collect(),
                lowest: LATER_PRIORITY - u64::from(*depth),
            },
            Strategy::Replay(decisions) => Self::Replay {
                decisions: decisions.clone(),
                next: 0,
            },
        }
    }

    /// A step of `current` has ended, after which it perhaps gives way (`is_polite`).
    pub(crate) fn pass(&mut self, current: TaskId, step: u64, is_polite: bool) {
        let Self::Pct {
            priorities,
            change_at,
            lowest,
        } = self
        else {
            return;
        };
        let Some(priority) = priorities.get_mut(current as usize) else {
            return;
        };
        if let Some(change) = change_at.iter().position(|&at| at == step) {
            *priority = LATER_PRIORITY - change as u64;
        }
        if is_polite {
            *lowest -= 1;
            *priority = *lowest;
        }
    }

    /// The next task of `candidates` (at least one, ascending). `current` gives way if `is_polite`, where that is
    /// possible.
    pub(crate) fn choose(
        &mut self,
        candidates: &[TaskId],
        current: TaskId,
        is_polite: bool,
        cpus: u64,
        random: &mut Random,
    ) -> Decision {
        let with_move = |task: TaskId, random: &mut Random| {
            let moves = task != current && cpus > 1 && random.happens(MOVE_ONE_IN);
            let to = if moves {
                random.below(cpus) as u16 + 1
            } else {
                0
            };
            task as u16 | to << 8
        };
        match self {
            Self::RandomWalk => {
                let others = candidates
                    .iter()
                    .filter(|&&task| !is_polite || task != current);
                let at = random.below(others.clone().count().max(1) as u64) as usize;
                let task = others.into_iter().nth(at).copied().unwrap_or(current);
                with_move(task, random)
            }
            Self::Pct { priorities, .. } => {
                let highest = candidates
                    .iter()
                    .max_by_key(|&&task| (priorities[task as usize], task));
                with_move(*highest.expect("at least one"), random)
            }
            Self::Replay { decisions, next } => {
                let decision = decisions.get(*next).copied();
                *next += 1;
                let planned =
                    decision.filter(|decision| candidates.contains(&TaskId::from(decision & 0xff)));
                planned.unwrap_or_else(|| {
                    let stays = candidates.contains(&current) && !is_polite;
                    let after = candidates.iter().find(|&&task| task > current);
                    let task = if stays {
                        current
                    } else {
                        *after.unwrap_or(&candidates[0])
                    };
                    task as u16
                })
            }
        }
    }
}
