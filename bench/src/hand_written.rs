//! The fast paths once more, written by hand against the host alone: no [`Machine`](bursar_machine::Machine) anywhere,
//! nothing generic. `golden` holds the library's code against these (see `same_code.rs`).
//!
//! Each is what one would write who needs charges and counters on this host and nothing else: records of the same
//! content, the same section, the same reasons to take the slow way. The sections themselves are the host's: they are
//! written in assembler, and `unsafe` has its place there. What lies beyond the fast path only notes that it was called.

use std::hint::black_box;
use std::sync::atomic::{AtomicU64, Ordering};

use bursar::ChargeError;
use bursar_machine::host::HostSlot;
use bursar_machine::{FIRST_STATISTIC, Outcome, Slot};

/// Identifies the declaration of the statistics.
const FINGERPRINT: u32 = 0x5eed_cafe;

/// What all groups share.
#[derive(Debug)]
pub struct Books {
    fingerprint: u32,
    /// Calls of the slow ways.
    slow: AtomicU64,
}

/// A group.
#[derive(Debug)]
pub struct Record {
    slot: HostSlot,
    index: u32,
    books: &'static Books,
}

/// A charge.
#[derive(Debug)]
pub struct Held {
    books: &'static Books,
    slot: HostSlot,
    index: u32,
    bytes: u64,
}

impl Record {
    /// Counts in the first statistic.
    #[inline(always)]
    pub fn add(&self, number: u64) {
        if self.books.fingerprint != FINGERPRINT {
            foreign_handle();
        }
        // Loaded before the section as the library does, for which it is an argument: nothing moves across a section.
        let (index, delta) = (self.index, number as i64);
        let outcome = self.slot.add(FIRST_STATISTIC, delta);
        if outcome != Outcome::Done {
            add_slowly(self.books, index, FIRST_STATISTIC as u16, delta, outcome);
        }
    }

    /// Charges `bytes`.
    #[inline(always)]
    pub fn try_charge(&self, bytes: u64) -> Result<Held, ChargeError> {
        let outcome = self.slot.charge(bytes);
        if outcome != Outcome::Done {
            charge_slowly(self, bytes, outcome)?;
        }
        Ok(Held {
            books: self.books,
            slot: self.slot,
            index: self.index,
            bytes,
        })
    }
}

impl Drop for Held {
    #[inline(always)]
    fn drop(&mut self) {
        if self.bytes == 0 {
            return forget(self.books, self.index);
        }
        let outcome = self.slot.uncharge(self.bytes);
        if outcome != Outcome::Done {
            uncharge_slowly(self.books, self.index, self.bytes, outcome);
        }
    }
}

/// Notes the call. Whatever a slow way is given, it might use.
fn note(books: &Books, given: impl Copy) {
    black_box(given);
    // Relaxed: a count that nothing depends on.
    books.slow.fetch_add(1, Ordering::Relaxed);
}

#[cold]
#[inline(never)]
fn foreign_handle() -> ! {
    panic!("this handle belongs to another declaration of statistics");
}

#[cold]
#[inline(never)]
fn add_slowly(books: &Books, index: u32, word: u16, delta: i64, outcome: Outcome) {
    note(books, (index, word, delta, outcome));
}

#[cold]
#[inline(never)]
fn charge_slowly(record: &Record, bytes: u64, outcome: Outcome) -> Result<(), ChargeError> {
    note(record.books, (record.index, bytes, outcome));
    if bytes > 1 << 56 {
        return Err(ChargeError::TooLarge { requested: bytes });
    }
    Ok(())
}

#[cold]
#[inline(never)]
fn uncharge_slowly(books: &Books, index: u32, bytes: u64, outcome: Outcome) {
    note(books, (index, bytes, outcome));
}

#[cold]
#[inline(never)]
fn forget(books: &Books, index: u32) {
    note(books, index);
}

#[cfg(test)]
mod tests {
    use super::*;
    use bursar_machine::{
        AtomicWord, CAP, CEILING, CHARGED, Host, Machine, MemoryOrder, STATE, State,
    };

    static BOOKS: Books = Books {
        fingerprint: FINGERPRINT,
        slow: AtomicU64::new(0),
    };

    #[test]
    fn they_count_and_charge() {
        let host = Host::start().unwrap();
        let slot = host.slots(FIRST_STATISTIC + 1).unwrap().remove(0);
        let shards = (0..=host.cpus() as u32).map(bursar_machine::Shard);
        for shard in shards.clone() {
            slot.word(shard, CAP).store(1 << 20, MemoryOrder::Full);
            slot.word(shard, CEILING).store(1 << 20, MemoryOrder::Full);
            slot.word(shard, STATE)
                .store(State::PUBLISHED, MemoryOrder::Full);
        }
        let record = Record {
            slot,
            index: 1,
            books: &BOOKS,
        };
        let sum = |word: usize| -> i64 {
            let values = shards.clone().map(|shard| slot.word(shard, word));
            values
                .map(|value| value.load_signed(MemoryOrder::Full))
                .sum()
        };
        record.add(5);
        assert_eq!(sum(FIRST_STATISTIC), 5);
        let held = record.try_charge(4096).unwrap();
        assert_eq!(sum(CHARGED), 4096);
        drop(held);
        assert_eq!(sum(CHARGED), 0);
        assert_eq!(BOOKS.slow.load(Ordering::Relaxed), 0, "all of it was fast");
        record.try_charge((1 << 56) + 1).unwrap_err();
        assert_eq!(BOOKS.slow.load(Ordering::Relaxed), 1);
    }
}
