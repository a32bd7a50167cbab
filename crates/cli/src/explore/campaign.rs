//! Exploring all targets on all CPUs of the host. The result does not depend on how many there are.
//!
//! Threads take pieces of the numbers of a target's schedules in ascending order. When one fails, pieces that begin after
//! it are left out, and all before it are done, so the first failure is found whoever finds it.

use std::num::NonZero;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::thread;

use bursar_sim::Explored;

use super::document::{Document, Result};
use super::subject::Target;
use crate::progress::Progress;

/// Schedules that a thread takes at once: some tens of milliseconds.
const PIECE: u64 = 500;

/// Some schedules of one target.
#[derive(Clone, Copy, Debug)]
struct Piece {
    target: usize,
    first: u64,
    count: u64,
}

/// See the module.
pub struct Campaign {
    targets: Vec<Target>,
    seed: u64,
    /// Schedules of each target.
    each: u64,
}

impl Campaign {
    /// `schedules` are shared evenly by the targets, each of which gets at least one.
    pub fn new(targets: Vec<Target>, seed: u64, schedules: u64) -> Self {
        Self {
            each: schedules.div_ceil(targets.len() as u64),
            targets,
            seed,
        }
    }

    /// How many schedules run if nothing fails.
    pub fn schedules(&self) -> u64 {
        self.each * self.targets.len() as u64
    }

    /// The `nth` piece of all: those of the first target, then those of the next.
    fn piece(&self, nth: u64) -> Option<Piece> {
        let of_a_target = self.each.div_ceil(PIECE);
        let target = usize::try_from(nth / of_a_target).ok()?;
        let first = nth % of_a_target * PIECE;
        (target < self.targets.len()).then(|| Piece {
            target,
            first,
            count: PIECE.min(self.each - first),
        })
    }

    /// Explores until all is done or `stop` is set.
    pub fn run(&self, stop: &AtomicBool, progress: &Progress) -> Document {
        let found: Vec<AtomicU64> = self
            .targets
            .iter()
            .map(|_| AtomicU64::new(u64::MAX))
            .collect();
        let next = AtomicU64::new(0);
        let done: Mutex<Vec<(Piece, Explored)>> = Mutex::new(Vec::new());
        let work = || {
            // Relaxed, all of them: numbers are all that is shared; results go through the mutex.
            while !stop.load(Ordering::Relaxed)
                && let Some(piece) = self.piece(next.fetch_add(1, Ordering::Relaxed))
            {
                let found = &found[piece.target];
                if found.load(Ordering::Relaxed) > piece.first {
                    let explored = self.explore(piece);
                    if let Some(found_here) = &explored.found {
                        found.fetch_min(found_here.schedule.number, Ordering::Relaxed);
                    }
                    let mut done = done.lock().unwrap_or_else(PoisonError::into_inner);
                    done.push((piece, explored));
                }
                progress.advance(piece.count, self.targets[piece.target].subject.name);
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

    fn explore(&self, piece: Piece) -> Explored {
        let target = &self.targets[piece.target];
        let explorer = target.explorer(self.seed);
        explorer.explore(&target.scenario(), piece.first, piece.count, |_| ())
    }

    /// What a target's pieces gave, up to the first failure.
    fn result(&self, target: usize, done: &[(Piece, Explored)]) -> Result {
        let mut result = Result::new(&self.targets[target]);
        for (_, explored) in done.iter().filter(|(piece, _)| piece.target == target) {
            result.add(explored);
            if explored.found.is_some() {
                break;
            }
        }
        result
    }
}
