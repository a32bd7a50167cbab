//! Self-test of a backend: threads that are moved from CPU to CPU count, and no count may be lost.

use core::fmt;
use std::sync::atomic::{AtomicBool, Ordering};

use super::{slots, topology};
use crate::slot::{FIRST_STATISTIC, STATE};
use crate::{AtomicWord, MemoryOrder, OutOfMemory, Outcome, Shard, Slot, State};

const THREADS: usize = 3;
const MOVES: usize = 24;
const ADDS_PER_MOVE: usize = 200;

/// Reason why a backend must not be used.
#[derive(Debug)]
pub(super) enum Failure {
    Memory(OutOfMemory),
    Lost { expected: i64, counted: i64 },
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Memory(error) => error.fmt(f),
            Self::Lost { expected, counted } => {
                write!(f, "counted {counted} of {expected} additions")
            }
        }
    }
}

/// Counts on all CPUs that this thread may run on, in two words at once, and compares the sums.
///
/// Threads outnumber the words and are moved while others count, so that sections are interrupted for real.
pub(super) fn count_across_cpus() -> Result<String, Failure> {
    let slot = slots::chunk_of_slots(FIRST_STATISTIC + 2)
        .map_err(Failure::Memory)?
        .pop()
        .expect("a chunk has slots");
    let shards = (0..=slots::shards_max().0).map(Shard);
    for shard in shards.clone() {
        // Full: pairs with nothing. The threads are started later.
        slot.word(shard, STATE)
            .store(State::PUBLISHED, MemoryOrder::Full);
    }
    let cpus = topology::allowed_cpus();
    let moved = AtomicBool::new(cpus.len() > 1);
    let mut expected = 0;
    std::thread::scope(|scope| {
        for thread in 0..THREADS {
            let (slot, cpus, moved) = (&slot, &cpus, &moved);
            let count = move || {
                for round in 0..MOVES {
                    let cpu = cpus[(round + thread) % cpus.len()];
                    if topology::pin_to(cpu).is_err() {
                        moved.store(false, Ordering::Relaxed);
                    }
                    for _ in 0..ADDS_PER_MOVE {
                        let first = slot.add(FIRST_STATISTIC, 1);
                        let second = slot.add_fetch(FIRST_STATISTIC + 1, -1).0;
                        debug_assert_eq!((first, second), (Outcome::Done, Outcome::Done));
                    }
                }
            };
            // The process may have no threads left; the test then uses those that it has.
            let started = std::thread::Builder::new().spawn_scoped(scope, count);
            expected += i64::from(started.is_ok()) * (MOVES * ADDS_PER_MOVE) as i64;
        }
    });
    // Full: pairs with nothing. The threads have ended.
    let sum = |word| -> i64 {
        shards
            .clone()
            .map(|shard| slot.word(shard, word).load_signed(MemoryOrder::Full))
            .sum()
    };
    for counted in [sum(FIRST_STATISTIC), -sum(FIRST_STATISTIC + 1)] {
        if counted != expected {
            return Err(Failure::Lost { expected, counted });
        }
    }
    Ok(if moved.into_inner() {
        format!(
            "{expected} additions by threads moved across {} CPUs, none lost",
            cpus.len()
        )
    } else {
        format!("{expected} additions, none lost; threads could not be moved between CPUs")
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::host;

    #[test]
    fn failures_are_explained() {
        let lost = Failure::Lost {
            expected: 14_400,
            counted: 14_399,
        };
        assert_eq!(lost.to_string(), "counted 14399 of 14400 additions");
        let memory = Failure::Memory(OutOfMemory);
        assert_eq!(memory.to_string(), OutOfMemory.to_string());
    }

    #[test]
    fn the_result_tells_whether_threads_were_moved() {
        host::report();
        let count = || count_across_cpus().unwrap();
        let cpus = topology::allowed_cpus();
        let on_one_cpu = || (topology::pin_to(cpus[0]).is_ok(), count());
        let (can_move, on_one_cpu) =
            std::thread::scope(|scope| scope.spawn(on_one_cpu).join().unwrap());
        let stayed = "additions, none lost; threads could not be moved between CPUs";
        assert!(on_one_cpu.ends_with(stayed), "{on_one_cpu}");
        let moved = format!(
            "additions by threads moved across {} CPUs, none lost",
            cpus.len()
        );
        let expected = if can_move && cpus.len() > 1 {
            &*moved
        } else {
            stayed
        };
        let on_all = count();
        assert!(on_all.ends_with(expected), "{on_all}");
    }
}
