//! Waiters of one tenant: in their order, and by size.

use std::collections::{BTreeMap, BTreeSet};
use std::task::Waker;

use crate::ask::Least;

/// Place in a tenant's order: the time of arrival, less what the score is worth, and then the number. As both do not change while an ask
/// waits, neither does the order: all age alike.
pub(crate) type Place = (i128, u64);

/// A waiting ask.
#[derive(Debug)]
pub(crate) struct Waiter {
    pub(crate) number: u64,
    pub(crate) name: String,
    pub(crate) least: Least,
    /// Bytes; `u64::MAX` for all that there is.
    pub(crate) wanted: u64,
    /// Smallest and largest number of partitions.
    pub(crate) width: (u32, u32),
    pub(crate) is_alone: bool,
    /// `least` and `wanted` are estimates: a limit that is smaller counts instead.
    pub(crate) is_guess: bool,
    pub(crate) score: i32,
    pub(crate) place: Place,
    pub(crate) arrived_ns: u64,
    pub(crate) deadline_ns: u64,
    /// Number of times that it was passed while it was the first.
    pub(crate) passed: u32,
    pub(crate) first_passed_ns: Option<u64>,
    /// Time since which room is kept for it, with breaks.
    pub(crate) kept_since_ns: Option<u64>,
    pub(crate) waker: Option<Waker>,
}

impl Waiter {
    /// Bytes without which it cannot be served, where limits allow `cap` at most.
    pub(crate) fn least_at(&self, width: u32, cap: u64) -> u64 {
        let least = self.least.at(width);
        if self.is_guess { least.min(cap) } else { least }
    }

    fn size(&self) -> u16 {
        class_of(self.least.at(self.width.0))
    }
}

/// Class of a size: four for each power of two. A larger size has no smaller class.
fn class_of(bytes: u64) -> u16 {
    if bytes < 4 {
        return bytes as u16;
    }
    let log2 = bytes.ilog2();
    // The two bits below the highest.
    let quarter = (bytes >> (log2 - 2)) & 3;
    (log2 * 4) as u16 + quarter as u16
}

/// The waiters of one tenant.
#[derive(Debug, Default)]
pub(crate) struct Queue {
    waiters: BTreeMap<u64, Waiter>,
    order: BTreeSet<Place>,
    classes: BTreeMap<u16, BTreeSet<Place>>,
}

impl Queue {
    pub(crate) fn is_empty(&self) -> bool {
        self.order.is_empty()
    }

    pub(crate) fn len(&self) -> usize {
        self.order.len()
    }

    pub(crate) fn insert(&mut self, waiter: Waiter) {
        self.order.insert(waiter.place);
        let class = self.classes.entry(waiter.size()).or_default();
        class.insert(waiter.place);
        self.waiters.insert(waiter.number, waiter);
    }

    pub(crate) fn remove(&mut self, number: u64) -> Option<Waiter> {
        let waiter = self.waiters.remove(&number)?;
        self.order.remove(&waiter.place);
        let size = waiter.size();
        if let Some(class) = self.classes.get_mut(&size) {
            class.remove(&waiter.place);
            if class.is_empty() {
                self.classes.remove(&size);
            }
        }
        Some(waiter)
    }

    pub(crate) fn get(&self, number: u64) -> Option<&Waiter> {
        self.waiters.get(&number)
    }

    pub(crate) fn get_mut(&mut self, number: u64) -> Option<&mut Waiter> {
        self.waiters.get_mut(&number)
    }

    /// The first in the order.
    pub(crate) fn first(&self) -> Option<&Waiter> {
        let (_, number) = self.order.first()?;
        self.waiters.get(number)
    }

    pub(crate) fn first_mut(&mut self) -> Option<&mut Waiter> {
        let (_, number) = self.order.first()?;
        self.waiters.get_mut(number)
    }

    /// All in the order.
    pub(crate) fn in_order(&self) -> impl Iterator<Item = &Waiter> {
        let numbers = self.order.iter().map(|(_, number)| number);
        numbers.filter_map(|number| self.waiters.get(number))
    }

    /// The first `count` in the order, without the very first, whose least size is at most `room`; up to a quarter more, because sizes are
    /// compared by class.
    pub(crate) fn that_may_fit(&self, room: u64, count: usize) -> Vec<u64> {
        let first = self.order.first();
        let fitting = self.classes.range(..=class_of(room));
        let mut heads: BTreeMap<Place, _> = fitting
            .filter_map(|(_, places)| {
                let mut places = places.iter();
                Some((*places.next()?, places))
            })
            .collect();
        let mut found = Vec::new();
        while found.len() < count
            && let Some((place, mut rest)) = heads.pop_first()
        {
            if first != Some(&place) {
                found.push(place.1);
            }
            if let Some(next) = rest.next() {
                heads.insert(*next, rest);
            }
        }
        found
    }

    /// Those that need more than `cap`, however narrow they run.
    pub(crate) fn above(&self, cap: u64) -> Vec<u64> {
        let above = self.classes.range(class_of(cap)..);
        let numbers = above
            .flat_map(|(_, places)| places)
            .map(|(_, number)| *number);
        let is_above = |number: &u64| {
            let waiter = self.waiters.get(number);
            waiter.is_some_and(|waiter| waiter.least.at(waiter.width.0) > cap)
        };
        numbers.filter(is_above).collect()
    }

    /// Takes all out.
    pub(crate) fn take_all(&mut self) -> Vec<Waiter> {
        self.order.clear();
        self.classes.clear();
        std::mem::take(&mut self.waiters).into_values().collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_larger_size_has_no_smaller_class_and_at_most_a_quarter_more_is_in_one() {
        let mut sizes: Vec<u64> = (0..64)
            .flat_map(|bit| {
                [
                    1_u64 << bit,
                    (1_u64 << bit) + 1,
                    (1_u64 << bit) | (1_u64 << bit >> 1),
                ]
            })
            .collect();
        sizes.push(u64::MAX);
        sizes.sort_unstable();
        for pair in sizes.windows(2) {
            assert!(class_of(pair[0]) <= class_of(pair[1]), "{pair:?}");
            if class_of(pair[0]) == class_of(pair[1]) {
                assert!(pair[1] - pair[0] <= pair[0] / 4, "{pair:?}");
            }
        }
    }

    fn waiter(number: u64, bytes: u64) -> Waiter {
        Waiter {
            number,
            name: String::new(),
            least: Least {
                query: bytes,
                partition: 0,
            },
            wanted: bytes,
            width: (1, 1),
            is_alone: false,
            is_guess: false,
            score: 0,
            place: (0, number),
            arrived_ns: 0,
            deadline_ns: u64::MAX,
            passed: 0,
            first_passed_ns: None,
            kept_since_ns: None,
            waker: None,
        }
    }

    #[test]
    fn no_more_than_so_many_behind_the_first_are_found_in_their_order() {
        let mut queue = Queue::default();
        for number in 0..9 {
            queue.insert(waiter(number, [40, 100][number as usize % 2]));
        }
        assert_eq!(queue.that_may_fit(40, 3), [2, 4, 6]);
        assert_eq!(queue.that_may_fit(100, 5), [1, 2, 3, 4, 5]);
        assert_eq!(queue.that_may_fit(40, 9), [2, 4, 6, 8]);
        assert_eq!(queue.that_may_fit(39, 9), []);
        assert_eq!((queue.len(), queue.take_all().len()), (9, 9));
        assert!(queue.is_empty() && queue.that_may_fit(100, 9).is_empty());
    }
}
