//! Charging on one CPU and uncharging on another.
//!
//! The charging thread puts its tokens, usually 256 at a time, on a short belt from which the other takes them. The cost is what
//! both threads spent, waiting for each other included, divided by the charges and uncharges they did. The belt costs
//! all contenders the same (a lock that nobody contends and two shared counts per batch) and is not subtracted.

use std::hint::black_box;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};

use crate::account::Account;
use crate::timing::{Meeting, Slice, Spent, Stopwatch, on_cpus, spin_until};

/// Tokens that change hands at once.
pub const BATCH: usize = 256;
/// Batches under way at most.
const PLACES: usize = 8;

/// A bounded queue of batches from one thread to one other.
pub struct Belt<T> {
    places: [Mutex<Vec<T>>; PLACES],
    put: AtomicUsize,
    taken: AtomicUsize,
    closed: AtomicBool,
}

impl<T> Belt<T> {
    /// An empty one.
    pub fn new() -> Self {
        Self {
            places: std::array::from_fn(|_| Mutex::new(Vec::with_capacity(BATCH))),
            put: AtomicUsize::new(0),
            taken: AtomicUsize::new(0),
            closed: AtomicBool::new(false),
        }
    }

    /// Exchanges `batch` with what is in a place: full for empty when putting, empty for full when taking.
    fn exchange(&self, place: usize, batch: &mut Vec<T>) {
        let place = &self.places[place % PLACES];
        let mut place = place.lock().unwrap_or_else(PoisonError::into_inner);
        std::mem::swap(&mut *place, batch);
    }

    /// Puts a full batch and leaves an empty one; waits while the belt is full.
    pub fn put(&self, batch: &mut Vec<T>) {
        let put = self.put.load(Ordering::Relaxed);
        // Acquire: pairs with the Release in `take`; the place was emptied.
        spin_until(|| put - self.taken.load(Ordering::Acquire) < PLACES);
        self.exchange(put, batch);
        self.put.store(put + 1, Ordering::Release);
    }

    /// Takes a full batch for an empty one; waits while the belt is empty. Returns whether there was one.
    pub fn take(&self, batch: &mut Vec<T>) -> bool {
        let taken = self.taken.load(Ordering::Relaxed);
        // Acquire, both: pair with the Releases in `put` and `close`. Items that were put before closing are
        // seen after it.
        let more = || self.put.load(Ordering::Acquire) > taken;
        spin_until(|| more() || self.closed.load(Ordering::Acquire));
        if !more() {
            return false;
        }
        self.exchange(taken, batch);
        self.taken.store(taken + 1, Ordering::Release);
        true
    }

    /// Says that nothing more will be put.
    pub fn close(&self) {
        self.closed.store(true, Ordering::Release);
    }
}

/// One turn: the first CPU makes `batch` charges of `bytes`, the second returns them.
pub fn race<A: Account>(
    account: &A,
    (bytes, batch): (usize, usize),
    cpus: &[usize],
    slice: Slice,
) -> Spent {
    let belt = Belt::new();
    on_cpus(cpus, |thread, meeting| {
        let spent = match thread {
            0 => charge_all(account, (bytes, batch), &belt, meeting, slice),
            _ => uncharge_all(account, &belt, meeting),
        };
        account.thread_done();
        spent
    })
}

fn charge_all<A: Account>(
    account: &A,
    (bytes, count): (usize, usize),
    belt: &Belt<A::Token>,
    meeting: &Meeting,
    slice: Slice,
) -> Spent {
    let mut batch = Vec::with_capacity(count);
    let spent = slice.run(
        || meeting.join(),
        || {
            let bytes = black_box(bytes);
            for _ in 0..count {
                batch.push(account.charge(bytes));
            }
            belt.put(&mut batch);
            count as u64
        },
    );
    belt.close();
    spent
}

fn uncharge_all<A: Account>(account: &A, belt: &Belt<A::Token>, meeting: &Meeting) -> Spent {
    let mut batch = Vec::with_capacity(BATCH);
    let mut operations = 0;
    meeting.join();
    let watch = Stopwatch::start();
    while belt.take(&mut batch) {
        operations += batch.len() as u64;
        for token in batch.drain(..) {
            account.uncharge(token);
        }
    }
    Spent {
        ns: watch.ns(),
        operations,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_belt_loses_nothing_and_keeps_order() {
        const BATCHES: usize = 3 * PLACES;
        let belt = Belt::new();
        std::thread::scope(|scope| {
            scope.spawn(|| {
                for number in 0..BATCHES {
                    belt.put(&mut vec![number]);
                }
                belt.close();
            });
            let mut seen = Vec::new();
            let mut batch = Vec::new();
            while belt.take(&mut batch) {
                seen.append(&mut batch);
            }
            assert_eq!(seen, (0..BATCHES).collect::<Vec<_>>());
        });
    }
}
