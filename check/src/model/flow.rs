//! A number that several tasks change, in counts that only grow, so that a reading taken meanwhile has bounds.

use std::sync::atomic::{AtomicI64, Ordering};

/// Amounts that were added to a number and taken from it. Each is counted once before the call and once after it.
///
/// Counting is no step of a simulated machine, and async-signal-safe. Sequentially consistent: a copy of the memory (a fork) at any
/// moment has right bounds.
#[derive(Debug, Default)]
pub struct Flow {
    add_begun: AtomicI64,
    add_done: AtomicI64,
    take_begun: AtomicI64,
    take_done: AtomicI64,
}

fn count(word: &AtomicI64, amount: i64) {
    word.fetch_add(amount, Ordering::SeqCst);
}

fn sum<'a>(words: impl Iterator<Item = &'a AtomicI64>) -> i64 {
    words.map(|word| word.load(Ordering::SeqCst)).sum()
}

impl Flow {
    /// Counts around work that adds `delta`, or takes what it is below zero.
    pub fn change<R>(&self, delta: i64, work: impl FnOnce() -> R) -> R {
        let (begun, done) = match delta < 0 {
            true => (&self.take_begun, &self.take_done),
            false => (&self.add_begun, &self.add_done),
        };
        count(begun, delta.abs());
        let result = work();
        count(done, delta.abs());
        result
    }

    /// Counts around work that adds bytes, and may fail.
    pub fn attempt<T, E>(
        &self,
        bytes: u64,
        work: impl FnOnce(u64) -> Result<T, E>,
    ) -> Result<T, E> {
        let amount = bytes as i64;
        count(&self.add_begun, amount);
        let result = work(bytes);
        if result.is_err() {
            // Counts as added and taken.
            count(&self.take_begun, amount);
        }
        count(&self.add_done, amount);
        if result.is_err() {
            count(&self.take_done, amount);
        }
        result
    }

    /// Counts around a return of bytes.
    pub fn give_back<R>(&self, bytes: u64, work: impl FnOnce() -> R) -> R {
        self.change(-(bytes as i64), work)
    }

    /// Counts around work that takes bytes from here and adds them to `other`, and may fail.
    pub fn move_to<T, E>(
        &self,
        other: &Self,
        bytes: u64,
        work: impl FnOnce() -> Result<T, E>,
    ) -> Result<T, E> {
        // A failure counts as moved, and as moved back.
        other.attempt(bytes, |_| {
            let amount = bytes as i64;
            count(&self.take_begun, amount);
            let moved = work();
            if moved.is_err() {
                count(&self.add_begun, amount);
            }
            count(&self.take_done, amount);
            if moved.is_err() {
                count(&self.add_done, amount);
            }
            moved
        })
    }

    /// Returns what is certainly there, and what may be there.
    pub fn bounds(&self) -> (i64, i64) {
        Before::of([self].into_iter()).bounds([self].into_iter())
    }

    /// Returns the sum of what was added, by calls that have ended and by all.
    pub fn added(&self) -> (i64, i64) {
        let done = self.add_done.load(Ordering::SeqCst);
        (done, self.add_begun.load(Ordering::SeqCst))
    }

    /// Returns the number. Right while no task changes it.
    pub fn value(&self) -> i64 {
        sum([&self.add_done].into_iter()) - sum([&self.take_done].into_iter())
    }
}

/// Changes that had ended when a reading began.
pub struct Before {
    added: i64,
    taken: i64,
}

impl Before {
    /// Looks before a reading, at all numbers that it covers.
    pub fn of<'a>(flows: impl Iterator<Item = &'a Flow> + Clone) -> Self {
        Self {
            added: sum(flows.clone().map(|flow| &flow.add_done)),
            taken: sum(flows.map(|flow| &flow.take_done)),
        }
    }

    /// Returns the bounds of any right reading. Call it after the reading, with the same numbers.
    pub fn bounds<'a>(&self, flows: impl Iterator<Item = &'a Flow> + Clone) -> (i64, i64) {
        let added = sum(flows.clone().map(|flow| &flow.add_begun));
        let taken = sum(flows.map(|flow| &flow.take_begun));
        (self.added - taken, added - self.taken)
    }
}
