//! Explores all targets on all CPUs of the host. The result does not depend on how many there are.
//!
//! Threads take pieces of the numbers of a target's schedules in ascending order. When one fails, pieces that begin after
//! it are left out, and all before it are done, so the same first failure is found by any number of threads. Where stale reads are
//! counted, no piece is left out.
//!
//! A piece of a protocol whose tasks fork runs in a process of its own, because what it leaves is only freed by the end of a process.

use std::num::NonZero;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::thread;

use crate::protocols::published::Case;
use bursar_sim::{Explored, Explorer, ScheduleId, Sim};

use super::document::{Document, Result};
use super::subject::{Scenario, Target};

/// Schedules that a thread takes at once: some tens of milliseconds.
const PIECE: u64 = 500;
/// Schedules of a process of its own: some tens of MiB.
const PIECE_OF_A_PROCESS: u64 = 200;

/// Some schedules of one target.
#[derive(Clone, Copy, Debug)]
struct Piece {
    target: usize,
    first: u64,
    count: u64,
}

/// Result of a piece that another process explored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Told {
    /// Schedules that ran.
    pub schedules: u64,
    /// Number of steps of all of them.
    pub steps: u64,
    /// The first that failed.
    pub failed: Option<ScheduleId>,
}

/// Explores schedules of a target, from a first one and so many, in another process. `None` if that process ended early.
pub type InAProcess<'a> = dyn Fn(&Target, u64, u64) -> Option<Told> + Sync + 'a;

/// Results of a piece.
struct Found {
    explored: Explored,
    /// Schedules with a read that was stale, where that is counted.
    stale: Option<u64>,
}

/// See the module.
pub struct Campaign {
    targets: Vec<Target>,
    seed: u64,
    /// First schedule of each target.
    from: u64,
    /// Schedules of each target.
    each: u64,
}

impl Campaign {
    /// `schedules` are shared evenly by the targets, each of which gets at least one, from number `from` on.
    pub fn new(targets: Vec<Target>, seed: u64, from: u64, schedules: u64) -> Self {
        Self {
            each: schedules.div_ceil(targets.len() as u64),
            targets,
            seed,
            from,
        }
    }

    /// The same, as a campaign for each target.
    pub fn apart(&self) -> impl Iterator<Item = Self> {
        self.targets.iter().map(|target| Self {
            targets: vec![target.clone()],
            ..*self
        })
    }

    /// Number of schedules that run if nothing fails.
    pub fn schedules(&self) -> u64 {
        self.each * self.targets.len() as u64
    }

    /// The `nth` piece of all: those of the first target, then those of the next.
    fn piece(&self, mut nth: u64) -> Option<Piece> {
        for (target, Target { subject, .. }) in self.targets.iter().enumerate() {
            let size = if subject.forks {
                PIECE_OF_A_PROCESS
            } else {
                PIECE
            };
            let pieces = self.each.div_ceil(size);
            if nth < pieces {
                let done = nth * size;
                return Some(Piece {
                    target,
                    first: self.from + done,
                    count: size.min(self.each - done),
                });
            }
            nth -= pieces;
        }
        None
    }

    /// Explores until all is done or `stop` is set. `progress` is told how many schedules of a subject have ended.
    ///
    /// A piece that is all there is of its target runs here, also where others run `in_a_process`.
    pub fn run(
        &self,
        stop: &AtomicBool,
        in_a_process: &InAProcess<'_>,
        progress: &(dyn Fn(u64, &str) + Sync),
    ) -> Document {
        let found: Vec<AtomicU64> = self
            .targets
            .iter()
            .map(|_| AtomicU64::new(u64::MAX))
            .collect();
        let next = AtomicU64::new(0);
        let done: Mutex<Vec<(Piece, Found)>> = Mutex::new(Vec::new());
        let work = || {
            // Relaxed, all of them: numbers are all that is shared; results go through the mutex.
            while !stop.load(Ordering::Relaxed)
                && let Some(piece) = self.piece(next.fetch_add(1, Ordering::Relaxed))
            {
                let first = &found[piece.target];
                let is_elsewhere =
                    self.targets[piece.target].subject.forks && piece.count < self.each;
                let explored = match is_elsewhere {
                    true => self.send(piece, first.load(Ordering::Relaxed), in_a_process, stop),
                    false => self.explore(piece, first.load(Ordering::Relaxed)),
                };
                if let Some(found) = explored {
                    if let Some(found) = &found.explored.found {
                        first.fetch_min(found.schedule.number, Ordering::Relaxed);
                    }
                    let mut done = done.lock().unwrap_or_else(PoisonError::into_inner);
                    done.push((piece, found));
                }
                progress(piece.count, &self.targets[piece.target].subject.name);
            }
        };
        let threads = thread::available_parallelism().map_or(1, NonZero::get);
        thread::scope(|scope| {
            for _ in 0..threads {
                scope.spawn(work);
            }
        });
        let mut done = done.into_inner().unwrap_or_else(PoisonError::into_inner);
        done.sort_by_key(|(piece, _)| (piece.target, piece.first));
        let results = (0..self.targets.len()).map(|target| self.result(target, &done));
        Document::new(self.seed, stop.load(Ordering::Relaxed), results.collect())
    }

    /// Explores a piece of a target, of which schedule `found` is known to fail. Nothing if that makes it idle.
    fn explore(&self, piece: Piece, found: u64) -> Option<Found> {
        let target = &self.targets[piece.target];
        let explorer = target.explorer(self.seed);
        match target.scenario() {
            Scenario::Judged(case) => Some(judge(&explorer, case, piece, found)),
            Scenario::Checked(_) if found <= piece.first => None,
            Scenario::Checked(scenario) => Some(Found {
                explored: explorer.explore(&scenario, piece.first, piece.count, |_| ()),
                stale: None,
            }),
        }
    }

    /// Lets another process explore a piece; as [`Campaign::explore`]. Sets `stop` if it ends early.
    fn send(
        &self,
        piece: Piece,
        found: u64,
        in_a_process: &InAProcess<'_>,
        stop: &AtomicBool,
    ) -> Option<Found> {
        let target = &self.targets[piece.target];
        if found <= piece.first {
            return None;
        }
        let Some(told) = in_a_process(target, piece.first, piece.count) else {
            // Relaxed: nothing else is passed with it.
            stop.store(true, Ordering::Relaxed);
            return None;
        };
        let scenario = target.scenario();
        let again = |machine: &Sim, variety| scenario.run(machine, variety);
        let explorer = target.explorer(self.seed);
        let found = told.failed.map(|schedule| {
            let replayed = explorer.replay(&again, schedule);
            replayed.expect_err("a schedule fails in each process or in none")
        });
        Some(Found {
            explored: Explored {
                schedules: told.schedules,
                steps: told.steps,
                found,
            },
            stale: None,
        })
    }

    /// Results of a target's pieces, up to the first failure. Behind a piece that an interruption left out nothing is counted, because
    /// a ledger names the first schedules. A failure there is a finding all the same.
    fn result(&self, target: usize, done: &[(Piece, Found)]) -> Result {
        let mut result = Result::new(&self.targets[target]);
        let mut next = self.from;
        for (piece, found) in done.iter().filter(|(piece, _)| piece.target == target) {
            if piece.first == next {
                next += piece.count;
                result.add(&found.explored, found.stale);
            } else {
                result.add_finding(&found.explored);
            }
            if found.stale.is_none() && found.explored.found.is_some() {
                break;
            }
        }
        result
    }
}

/// Counts the stale schedules of a piece. Looks for the first if none is known before; for one that fails in another way
/// first of all, because that is no finding but a bug.
fn judge(explorer: &Explorer, case: Case, piece: Piece, found: u64) -> Found {
    let is_stale = |machine: &Sim, variety| case.first_stale(machine, variety).is_some();
    let counted = explorer.count(&is_stale, piece.first, piece.count);
    let look = |scenario: &dyn Fn(&Sim, u64)| {
        let explored = explorer.explore(scenario, piece.first, piece.count, |_| ());
        explored.found
    };
    let found = if counted.failed > 0 {
        look(&|machine, variety| {
            case.first_stale(machine, variety);
        })
    } else if counted.happened > 0 && found > piece.first {
        look(&|machine, variety| case.scenario(machine, variety))
    } else {
        None
    };
    Found {
        explored: Explored {
            schedules: piece.count,
            steps: counted.steps,
            found,
        },
        stale: Some(counted.happened),
    }
}

#[cfg(test)]
mod tests {
    use bursar_sim::{Failure, SectionKind};

    use super::super::{Group, targets};
    use super::*;

    /// A ledger names the first schedules of a seed. So those that ran behind a gap must not count, and their failure must not be lost.
    #[test]
    fn schedules_behind_a_gap_are_not_counted_and_a_failure_there_is_told() {
        let names = ["quiesce".to_owned()];
        let targets = targets(Group::Protocols, &names, &[SectionKind::Atomic]);
        let campaign = Campaign::new(targets.expect("a protocol"), 1, 40, 3 * PIECE);
        let result = |pieces: &[u64], fails: bool| {
            let ran = |&nth: &u64| {
                let piece = campaign.piece(nth).expect("one of three");
                let schedule = ScheduleId {
                    seed: 1,
                    number: piece.first,
                    length: None,
                };
                let found = bursar_sim::Found {
                    schedule,
                    failure: Failure::TooLong { steps: 7 },
                    choices: Vec::new(),
                };
                let explored = Explored {
                    schedules: piece.count,
                    steps: 2 * piece.count,
                    found: (fails && nth == 2).then_some(found),
                };
                let stale = None;
                (piece, Found { explored, stale })
            };
            let done: Vec<_> = pieces.iter().map(ran).collect();
            let result = campaign.result(0, &done);
            assert_eq!(result.steps, 2 * result.schedules);
            let schedule = result.failure.map(|failure| failure.schedule);
            (result.schedules / PIECE, schedule)
        };
        assert_eq!(result(&[0, 1, 2], false), (3, None));
        assert_eq!(result(&[0, 2], false), (1, None));
        assert_eq!(result(&[1, 2], false), (0, None));
        let failed = Some("1:1040".to_owned());
        assert_eq!(result(&[0, 1, 2], true), (3, failed.clone()));
        assert_eq!(result(&[0, 2], true), (1, failed));
    }
}
