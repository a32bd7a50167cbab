//! *worst*: the longest of all operations when 32 threads share two CPUs.
//!
//! With so many threads each is off its CPU most of the time, and now and then in the midst of an operation: that shows in
//! the longest time by the clock, whatever the allocator. So there are two figures: by the clock, and without the time that
//! the thread stood in the queue for a CPU, by the kernel's own account (`/proc/thread-self/schedstat`). In the second
//! remains what the operation did, and for what it slept or spun: for a lock, above all, whose holder was off its CPU.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::sync::{Mutex, PoisonError};

use bursar_bench_peers::Pages;

use crate::pages::churn::Random;
use crate::timing::{Spent, Stopwatch, on_cpus};

/// Slots of a thread, half of them with a block.
const SLOTS: usize = 64;
/// Operations before the clock runs: caches and first touches are not the question.
const WARM_OPERATIONS: usize = 1024;
/// Time above which an operation may have been in the queue for a CPU, ns.
const SLOW_NS: u64 = 20_000;
/// Operations between two looks at the kernel's account, though nothing was slow, and for the end of the turn.
const LOOK_EVERY: usize = 64;

/// The longest operation.
#[derive(Clone, Copy, Debug, Default)]
pub struct Longest {
    /// By the clock.
    pub wall_ns: u64,
    /// Without the time in the queue for a CPU; `None` where the kernel keeps no such account.
    pub own_ns: Option<u64>,
}

/// Time for which the calling thread was ready to run, but did not.
struct Queue(Option<File>);

impl Queue {
    fn of_this_thread() -> Self {
        Self(File::open("/proc/thread-self/schedstat").ok())
    }

    fn waited_ns(&self) -> Option<u64> {
        let mut text = [0; 128];
        let length = self.0.as_ref()?.read_at(&mut text, 0).ok()?;
        waited(std::str::from_utf8(&text[..length]).ok()?)
    }
}

/// The second number of the three.
fn waited(schedstat: &str) -> Option<u64> {
    schedstat.split_whitespace().nth(1)?.parse().ok()
}

/// Runs `threads` threads on two of `cpus` for `ns` nanoseconds.
pub fn run<P: Pages>(pages: &P, cpus: &[usize], threads: usize, ns: u64) -> Longest {
    let cpus = &cpus[..cpus.len().min(2)];
    let places: Vec<usize> = cpus.iter().copied().cycle().take(threads).collect();
    let total = Mutex::new(Vec::new());
    on_cpus(&places, |thread, meeting| {
        let mut worker = Worker {
            pages,
            random: Random::of_thread(thread),
            held: (0..SLOTS).map(|_| None).collect(),
        };
        for _ in 0..WARM_OPERATIONS {
            worker.operate();
        }
        meeting.join();
        let own = worker.longest(ns);
        worker
            .held
            .into_iter()
            .flatten()
            .for_each(|block| pages.free(block));
        let mut total = total.lock().unwrap_or_else(PoisonError::into_inner);
        total.push(own);
        Spent::default()
    });
    let total = total.into_inner().unwrap_or_else(PoisonError::into_inner);
    Longest {
        wall_ns: total.iter().map(|own| own.wall_ns).max().unwrap_or(0),
        own_ns: total.iter().filter_map(|own| own.own_ns).max(),
    }
}

struct Worker<'a, P: Pages> {
    pages: &'a P,
    random: Random,
    held: Vec<Option<P::Block>>,
}

impl<P: Pages> Worker<'_, P> {
    /// Frees the block of some slot, or allocates one. Returns when that began and how long it took.
    fn operate(&mut self) -> Stopwatch {
        let slot = &mut self.held[self.random.below(SLOTS)];
        match slot.take() {
            Some(block) => {
                let watch = Stopwatch::start();
                self.pages.free(block);
                watch
            }
            None => {
                let watch = Stopwatch::start();
                *slot = self.pages.alloc();
                assert!(slot.is_some(), "more memory than is asked for");
                watch
            }
        }
    }

    fn longest(&mut self, ns: u64) -> Longest {
        let queue = Queue::of_this_thread();
        let mut longest = Longest::default();
        // Time that the thread had waited by the end of the last operation, as far as that is known.
        let mut waited = queue.waited_ns();
        let mut before = Stopwatch::start();
        let turn = Stopwatch::start();
        while turn.ns() < ns {
            for _ in 0..LOOK_EVERY {
                // A wait between two operations is neither's.
                if before.ns() > SLOW_NS {
                    waited = queue.waited_ns();
                }
                let watch = self.operate();
                let wall_ns = watch.ns();
                longest.wall_ns = longest.wall_ns.max(wall_ns);
                if wall_ns > SLOW_NS {
                    let now = queue.waited_ns();
                    let own_ns = now
                        .zip(waited)
                        .map(|(now, then)| wall_ns.saturating_sub(now - then));
                    longest.own_ns = longest.own_ns.max(own_ns);
                    waited = now;
                } else if waited.is_some() {
                    longest.own_ns = longest.own_ns.max(Some(wall_ns));
                }
                before = Stopwatch::start();
            }
            waited = queue.waited_ns();
        }
        longest
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_second_number_is_the_time_in_the_queue() {
        assert_eq!(waited("493934 17 1\n"), Some(17));
        assert_eq!(waited(""), None);
    }
}
