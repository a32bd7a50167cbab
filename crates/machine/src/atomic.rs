//! Atomic words, with the orderings in which Bursar's protocols are written.

use core::fmt::Debug;

/// Ordering of one access to an [`AtomicWord`].
///
/// `Full` is the kernel's full barrier. Between `Full` accesses of all threads there is one total order that agrees
/// with each thread's program order, also across different words. Weaker accesses of the same thread stay on their side of a
/// `Full` one, but for one case: on x86-64 a `Full` read may pass a weaker write before it. Each machine spells it in its own way:
/// locked instructions on x86-64, explicit fences around the access elsewhere and where a checker needs them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MemoryOrder {
    /// Atomicity only.
    Relaxed,
    /// Later accesses stay behind this load.
    Acquire,
    /// Earlier accesses stay before this store.
    Release,
    /// A full barrier.
    Full,
}

/// A 64-bit word that several CPUs may access at once.
///
/// Arithmetic wraps. Signed quantities are stored in two's complement (see [`AtomicWord::load_signed`]).
pub trait AtomicWord: Debug + Send + Sync + Sized + 'static {
    /// Makes a word that holds `value`.
    fn new(value: u64) -> Self;
    /// Reads the word (`Relaxed`, `Acquire` or `Full`; `Release` reads as `Full`).
    fn load(&self, order: MemoryOrder) -> u64;
    /// Writes the word (`Relaxed`, `Release` or `Full`; `Acquire` writes as `Full`).
    fn store(&self, value: u64, order: MemoryOrder);
    /// Writes the word and returns the value before.
    fn swap(&self, value: u64, order: MemoryOrder) -> u64;
    /// Adds and returns the value before.
    fn fetch_add(&self, value: u64, order: MemoryOrder) -> u64;
    /// Sets bits and returns the value before.
    fn fetch_or(&self, bits: u64, order: MemoryOrder) -> u64;
    /// Keeps only `bits` and returns the value before.
    fn fetch_and(&self, bits: u64, order: MemoryOrder) -> u64;
    /// Replaces `current` by `new`; on failure returns the value found.
    ///
    /// # Errors
    /// The value found, if it was not `current`. A failure orders as an `Acquire` load at least.
    fn compare_exchange(&self, current: u64, new: u64, order: MemoryOrder) -> Result<u64, u64>;

    /// Begins to bring the word's line here for a load that follows, and does not wait for it. Changes nothing but time.
    #[inline]
    fn prefetch(&self) {}

    /// Subtracts and returns the value before.
    #[inline]
    fn fetch_sub(&self, value: u64, order: MemoryOrder) -> u64 {
        self.fetch_add(value.wrapping_neg(), order)
    }

    /// Reads the word as a signed number.
    #[inline]
    fn load_signed(&self, order: MemoryOrder) -> i64 {
        self.load(order) as i64
    }

    /// Adds a signed number and returns the signed value before.
    #[inline]
    fn fetch_add_signed(&self, value: i64, order: MemoryOrder) -> i64 {
        self.fetch_add(value as u64, order) as i64
    }

    /// Raises the word to `value` if it holds less.
    fn fetch_max(&self, value: u64, order: MemoryOrder) -> u64 {
        let mut seen = self.load(MemoryOrder::Relaxed);
        while seen < value {
            match self.compare_exchange(seen, value, order) {
                Ok(old) => return old,
                Err(now) => seen = now,
            }
        }
        seen
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::host::HostWord;

    const ORDERS: [MemoryOrder; 4] = [
        MemoryOrder::Relaxed,
        MemoryOrder::Acquire,
        MemoryOrder::Release,
        MemoryOrder::Full,
    ];

    #[test]
    fn subtractions_wrap_and_return_the_value_before() {
        for order in ORDERS {
            let word = HostWord::new(5);
            assert_eq!([3, 4].map(|by| word.fetch_sub(by, order)), [5, 2]);
            assert_eq!(word.load(MemoryOrder::Full), u64::MAX - 1);
            assert_eq!(word.fetch_add_signed(-3, order), -2);
            assert_eq!(word.load_signed(MemoryOrder::Full), -5);
        }
    }

    #[test]
    fn a_maximum_only_rises() {
        for order in ORDERS {
            let word = HostWord::new(5);
            assert_eq!(
                [7, 6, 7, 9].map(|value| word.fetch_max(value, order)),
                [5, 7, 7, 7]
            );
            assert_eq!(word.load(MemoryOrder::Full), 9);
        }
    }
}
