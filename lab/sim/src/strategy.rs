//! Choice of the next task, when there is no time.

use std::sync::Arc;

use bursar_rig::random::Random;

use crate::task::TaskId;

/// Strategy of an exploration.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Strategy {
    /// After each step any task that can run, each as likely as another.
    RandomWalk,
    /// Probabilistic concurrency testing (Burckhardt and others, ASPLOS 2010). Tasks have random priorities, and the
    /// highest runs. At `depth - 1` random steps the running task gets a priority below all first ones. Finds a bug that takes
    /// `depth` ordered events with a probability of at least 1 in `tasks * steps^(depth-1)`, if a schedule has at most `steps`.
    Pct {
        /// Number of events that must come in order.
        depth: u32,
        /// Approximate number of steps of a schedule.
        steps: u64,
    },
    /// Decisions of an earlier run. Beyond them, the running task goes on until it waits.
    Replay(Arc<[Decision]>),
}

/// Task that goes on (low byte), and the CPU, plus one, to which the task that stops is moved (high byte, 0: it stays).
pub type Decision = u16;

/// Maximum number of tasks that fit in a [`Decision`]; the number of CPUs must be below it.
pub(crate) const DECISIONS_MAX: usize = 1 << 8;

/// Number of switches of which one also draws a CPU for the task that stops, its own among them.
const MOVE_ONE_IN: u64 = 32;

/// Strategy at work.
#[derive(Debug)]
pub(crate) enum Chooser {
    RandomWalk,
    Pct {
        /// Priorities by task; the highest runs.
        priorities: Vec<u64>,
        /// Steps at which the running task gets the priority `LATER_PRIORITY`, less the step's index here. The steps
        /// are in no order, so a later one is as likely to give a higher priority as a lower one.
        change_at: Vec<u64>,
        /// Priority below all of them, for a task that gave way.
        lowest: u64,
    },
    Replay {
        decisions: Arc<[Decision]>,
        next: usize,
    },
}

/// Lower bound of first priorities.
const FIRST_PRIORITY: u64 = 1 << 32;
/// Upper bound of the priorities that change points give.
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

    /// Ends a step of `current`, after which it gives way if `is_polite`.
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

    /// Chooses the next task of `candidates` (at least one, ascending). If `is_polite`, `current` gives way where that
    /// is possible.
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
