//! *churn*: how long single operations take when the blocks in use go far beyond the caches of threads and processor.
//!
//! Each of two threads has many slots, half of them with a block. It picks a slot at random: a block in it is freed, else one
//! is allocated, and its first byte written, as its user would. Each operation is timed alone, from one reading of the clock
//! to the next; what that takes by itself is measured in the same way ([`clock`]) and not subtracted.

use std::sync::{Mutex, PoisonError};

use bursar_bench_peers::Pages;
use hdrhistogram::Histogram;

use crate::timing::{Spent, Stopwatch, on_cpus};

/// Times of the operations, nanoseconds.
pub struct Latencies {
    pub alloc_ns: Histogram<u64>,
    pub free_ns: Histogram<u64>,
}

impl Latencies {
    fn new() -> Self {
        let empty = || Histogram::new(3).expect("three digits are a valid precision");
        Self {
            alloc_ns: empty(),
            free_ns: empty(),
        }
    }

    fn add(&mut self, other: &Self) {
        let added = [
            self.alloc_ns.add(&other.alloc_ns),
            self.free_ns.add(&other.free_ns),
        ];
        assert!(added.iter().all(Result::is_ok), "histograms grow");
    }
}

fn record(histogram: &mut Histogram<u64>, ns: u64) {
    histogram.record(ns).expect("histograms grow");
}

/// Numbers without rhyme or reason, the same in each run (splitmix64, by Vigna).
pub struct Random(u64);

impl Random {
    /// Another sequence for each thread.
    pub fn of_thread(thread: usize) -> Self {
        Self(thread as u64 + 1)
    }

    /// Below `end`, which is a power of two.
    pub fn below(&mut self, end: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ self.0 >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        (mixed ^ mixed >> 31) as usize & (end - 1)
    }
}

/// Operations between two looks for the end of the turn.
const LOOK_EVERY: usize = 64;

/// Churns on each of `cpus` for `ns` nanoseconds, with so many slots each.
pub fn run<P: Pages>(pages: &P, cpus: &[usize], slots: usize, ns: u64) -> Latencies {
    let total = Mutex::new(Latencies::new());
    on_cpus(cpus, |thread, meeting| {
        let mut random = Random::of_thread(thread);
        let mut held: Vec<Option<P::Block>> = (0..slots)
            .map(|slot| slot.is_multiple_of(2).then(|| touched(pages)))
            .collect();
        let mut own = Latencies::new();
        meeting.join();
        let turn = Stopwatch::start();
        while turn.ns() < ns {
            for _ in 0..LOOK_EVERY {
                let slot = random.below(slots);
                match held[slot].take() {
                    Some(block) => {
                        let watch = Stopwatch::start();
                        pages.free(block);
                        record(&mut own.free_ns, watch.ns());
                    }
                    None => {
                        let watch = Stopwatch::start();
                        let block = pages.alloc();
                        record(&mut own.alloc_ns, watch.ns());
                        let mut block = block.expect("more memory than is asked for");
                        P::touch(&mut block);
                        held[slot] = Some(block);
                    }
                }
            }
        }
        held.into_iter()
            .flatten()
            .for_each(|block| pages.free(block));
        let mut total = total.lock().unwrap_or_else(PoisonError::into_inner);
        total.add(&own);
        Spent::default()
    });
    total.into_inner().unwrap_or_else(PoisonError::into_inner)
}

fn touched<P: Pages>(pages: &P) -> P::Block {
    let mut block = pages.alloc().expect("more memory than is asked for");
    P::touch(&mut block);
    block
}

/// The same with nothing between the readings of the clock.
pub fn clock(cpus: &[usize], ns: u64) -> Latencies {
    let total = Mutex::new(Latencies::new());
    on_cpus(cpus, |_, meeting| {
        let mut own = Latencies::new();
        meeting.join();
        let turn = Stopwatch::start();
        while turn.ns() < ns {
            for _ in 0..LOOK_EVERY {
                let watch = Stopwatch::start();
                let read_ns = watch.ns();
                record(&mut own.alloc_ns, read_ns);
                record(&mut own.free_ns, read_ns);
            }
        }
        let mut total = total.lock().unwrap_or_else(PoisonError::into_inner);
        total.add(&own);
        Spent::default()
    });
    total.into_inner().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_operations_are_not_cut_short() {
        let mut latencies = Latencies::new();
        record(&mut latencies.alloc_ns, 5_000_000);
        let mut total = Latencies::new();
        total.add(&latencies);
        assert!(total.alloc_ns.max() >= 5_000_000);
    }

    #[test]
    fn random_slots_are_within_bounds_and_spread() {
        let mut random = Random::of_thread(0);
        let mut seen = [0; 8];
        (0..800).for_each(|_| seen[random.below(8)] += 1);
        assert!(seen.iter().all(|&count| count > 50), "{seen:?}");
    }
}
