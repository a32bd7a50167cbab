//! Earliest of many keys, one for each CPU: a winner tree.
//!
//! A CPU's key changes with nearly each of its steps. Then only its own path to the root is played again: nine
//! comparisons for 384 CPUs, on a few cache lines. That is about half of the cost of a binary heap.

use std::cell::Cell;

use crate::topology::MOST_CPUS;

/// Key of a leaf that takes no part.
pub(crate) const NEVER: u64 = u64::MAX;

/// Number of places: the leaves of the largest machine, one more, and all subtrees. A fixed number, so that no step of a
/// path checks its place.
const PLACES: usize = 4 * MOST_CPUS;

/// Winner tree; see the module.
pub(crate) struct Tournament {
    /// Place of leaf 0; a power of two.
    first: usize,
    /// Key of the winning leaf of each subtree; the root is 1, leaves follow from `first`.
    keys: Box<[Cell<u64>; PLACES]>,
}

impl Tournament {
    /// Makes a tree of `leaves` leaves that take no part yet.
    pub(crate) fn new(leaves: usize) -> Self {
        let first = leaves.next_power_of_two();
        assert!(2 * first <= PLACES, "at most {MOST_CPUS} CPUs");
        let keys = vec![Cell::new(NEVER); PLACES].into_boxed_slice();
        Self {
            first,
            keys: keys.try_into().expect("as many as there are places"),
        }
    }

    /// Place of a leaf.
    #[inline]
    fn place(&self, leaf: usize) -> usize {
        (self.first + leaf) % PLACES
    }

    /// Changes the key of a leaf. Keys that take part differ from each other.
    #[inline]
    pub(crate) fn set(&self, leaf: usize, key: u64) {
        let mut at = self.place(leaf);
        let mut winner = key;
        self.keys[at].set(key);
        while at > 1 {
            winner = winner.min(self.keys[at ^ 1].get());
            at >>= 1;
            self.keys[at].set(winner);
        }
    }

    /// Key of a leaf.
    #[inline]
    pub(crate) fn get(&self, leaf: usize) -> u64 {
        self.keys[self.place(leaf)].get()
    }

    /// Earliest key.
    #[inline]
    pub(crate) fn earliest(&self) -> u64 {
        self.keys[1].get()
    }

    /// Leaf with the earliest key.
    #[inline]
    pub(crate) fn winner(&self) -> Option<usize> {
        let key = self.earliest();
        if key == NEVER {
            return None;
        }
        let mut at = 1;
        while at < self.first {
            at *= 2;
            at += usize::from(self.keys[at].get() != key);
        }
        Some(at - self.first)
    }

    /// Earliest key of all leaves but one.
    #[inline]
    pub(crate) fn earliest_but(&self, leaf: usize) -> u64 {
        let mut at = self.place(leaf);
        let mut earliest = NEVER;
        while at > 1 {
            earliest = earliest.min(self.keys[at ^ 1].get());
            at >>= 1;
        }
        earliest
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_earliest_of_any_number_of_leaves_wins() {
        let mut state = 1_u64;
        let mut random = move || {
            state = state.wrapping_mul(6364136223846793005).wrapping_add(1);
            state >> 33
        };
        for leaves in [1, 2, 3, 7, 64, 385] {
            let tree = Tournament::new(leaves);
            let mut keys = vec![NEVER; leaves];
            assert_eq!(tree.winner(), None);
            for round in 0..2_000 {
                let leaf = random() as usize % leaves;
                let key = if random() % 5 == 0 {
                    NEVER
                } else {
                    random() << 16 | round
                };
                keys[leaf] = key;
                tree.set(leaf, key);
                let least = *keys.iter().min().unwrap();
                assert_eq!(tree.earliest(), least);
                let winner = keys.iter().position(|&key| key == least).unwrap();
                if least != NEVER {
                    assert_eq!(tree.winner(), Some(winner));
                }
                let others = keys.iter().enumerate().filter(|(at, _)| *at != leaf);
                let others = others.map(|(_, &key)| key).min().unwrap_or(NEVER);
                assert_eq!(tree.earliest_but(leaf), others);
            }
        }
    }
}
