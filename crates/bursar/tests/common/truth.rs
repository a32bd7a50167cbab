//! Bytes that threads charged and returned, in counts that only grow, so that a reading taken meanwhile has bounds.

use std::sync::atomic::{AtomicI64, Ordering};

use bursar::{Charge, Group, MoveError};

/// Bytes charged to one group and returned. Each is counted once before the call and once after it.
#[derive(Default)]
pub struct Truth {
    charge_begun: AtomicI64,
    charge_done: AtomicI64,
    return_begun: AtomicI64,
    return_done: AtomicI64,
}

fn count(word: &AtomicI64, bytes: u64) {
    word.fetch_add(bytes as i64, Ordering::SeqCst);
}

fn sum<'a>(words: impl Iterator<Item = &'a AtomicI64>) -> i64 {
    words.map(|word| word.load(Ordering::SeqCst)).sum()
}

impl Truth {
    /// Notes around a charge, which may fail. Async-signal-safe if `charge` is.
    pub fn charge<E>(
        &self,
        bytes: u64,
        charge: impl FnOnce(u64) -> Result<Charge, E>,
    ) -> Result<Charge, E> {
        count(&self.charge_begun, bytes);
        let charged = charge(bytes);
        if charged.is_err() {
            // Counts as charged and returned.
            count(&self.return_begun, bytes);
        }
        count(&self.charge_done, bytes);
        if charged.is_err() {
            count(&self.return_done, bytes);
        }
        charged
    }

    /// Notes around a return.
    pub fn give_back(&self, bytes: u64, give_back: impl FnOnce()) {
        count(&self.return_begun, bytes);
        give_back();
        count(&self.return_done, bytes);
    }

    /// Notes around a move from this group to another.
    pub fn move_to(
        &self,
        charge: &mut Charge,
        target: &Group,
        other: &Self,
    ) -> Result<(), MoveError> {
        let bytes = charge.bytes();
        count(&other.charge_begun, bytes);
        count(&self.return_begun, bytes);
        let moved = charge.move_to(target);
        if moved.is_err() {
            // Counts as moved, and as moved back.
            count(&other.return_begun, bytes);
            count(&self.charge_begun, bytes);
        }
        count(&other.charge_done, bytes);
        count(&self.return_done, bytes);
        if moved.is_err() {
            count(&other.return_done, bytes);
            count(&self.charge_done, bytes);
        }
        moved
    }

    /// Bytes charged now. Right while no thread charges or returns.
    pub fn bytes(&self) -> i64 {
        sum([&self.charge_done].into_iter()) - sum([&self.return_done].into_iter())
    }
}

/// What had been charged and returned when a reading began.
pub struct Before {
    charged: i64,
    returned: i64,
}

impl Before {
    /// Call before the reading, with the truths of all groups that it covers.
    pub fn of<'a>(truths: impl Iterator<Item = &'a Truth> + Clone) -> Self {
        Self {
            charged: sum(truths.clone().map(|truth| &truth.charge_done)),
            returned: sum(truths.map(|truth| &truth.return_done)),
        }
    }

    /// Bounds of any right reading. Call after the reading, with the same truths.
    pub fn bounds<'a>(&self, truths: impl Iterator<Item = &'a Truth> + Clone) -> (i64, i64) {
        let begun = sum(truths.clone().map(|truth| &truth.charge_begun));
        let given_up = sum(truths.map(|truth| &truth.return_begun));
        (self.charged - given_up, begun - self.returned)
    }
}
