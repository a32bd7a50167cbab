//! Figures of the holds of the zone's lock.
//!
//! They are recorded after the lock is released, in memory that is not the simulated machine's. So recording costs no
//! time there, and on real threads it is not under the lock.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use hdrhistogram::Histogram;

use super::policy::{Cause, Measured};
use crate::Padded;

/// Pages above which a hold counts as long, as in the thread.
pub const LONG_PAGES: u64 = 1_000;

/// Number of places in which samples are collected, so that threads seldom meet there.
const PLACES: usize = 8;

/// One hold.
#[derive(Clone, Copy, Debug)]
pub(super) struct Held {
    pub(super) cause: Cause,
    /// Pages taken out or put in.
    pub(super) pages: u64,
    pub(super) waited_ns: u64,
    pub(super) held_ns: u64,
}

/// Holds of one cause.
#[derive(Clone, Debug, PartialEq)]
pub struct HoldsOfCause {
    /// Pages that each hold moved.
    pub pages: Histogram<u64>,
    /// Length of the wait for each hold; 0 where the lock was free.
    pub waited_ns: Histogram<u64>,
}

/// All holds so far.
#[derive(Clone, Debug, PartialEq)]
pub struct HoldFigures {
    /// Number of holds.
    pub holds: u64,
    /// Number of holds that moved more than [`LONG_PAGES`].
    pub long: u64,
    /// Most pages moved by one hold.
    pub longest_pages: u64,
    /// Number of holds that put in more than [`LONG_PAGES`].
    pub long_frees: u64,
    /// Holds by [`Cause`]. Empty, as all that follow, unless [`Measured::Holds`] was requested.
    pub by_cause: [HoldsOfCause; 4],
    /// Pages that each hold moved.
    pub pages: Histogram<u64>,
    /// Pages put in by each hold that puts pages in.
    pub given: Histogram<u64>,
    /// Length of each of those holds.
    pub given_held_ns: Histogram<u64>,
    /// Length of each hold.
    pub held_ns: Histogram<u64>,
    /// Length of the wait for each hold.
    pub waited_ns: Histogram<u64>,
    /// The same of holds that were neither for decay nor for a drain.
    pub traffic_waited_ns: Histogram<u64>,
}

pub(super) struct Holds {
    holds: AtomicU64,
    long: AtomicU64,
    long_frees: AtomicU64,
    longest_pages: AtomicU64,
    places: Vec<Padded<Mutex<Place>>>,
}

struct Place {
    by_cause: [HoldsOfCause; 4],
    given_held_ns: Histogram<u64>,
    held_ns: Histogram<u64>,
}

impl HoldsOfCause {
    fn new() -> Self {
        Self {
            pages: values(),
            waited_ns: values(),
        }
    }
}

impl Place {
    fn new() -> Self {
        Self {
            by_cause: std::array::from_fn(|_| HoldsOfCause::new()),
            given_held_ns: values(),
            held_ns: values(),
        }
    }
}

/// Greatest recorded value (an hour of nanoseconds); greater ones count as this.
const LARGEST: u64 = 3_600_000_000_000;

/// Makes an empty collection of values with three significant digits.
fn values() -> Histogram<u64> {
    Histogram::new_with_bounds(1, LARGEST, 3).expect("a range that is supported")
}

fn record(values: &mut Histogram<u64>, value: u64) {
    values.saturating_record(value.min(LARGEST));
}

impl Holds {
    pub(super) fn new(measured: Measured, shards: usize) -> Self {
        let places = match measured {
            Measured::Holds => shards.min(PLACES),
            Measured::Counts => 0,
        };
        let zero = || AtomicU64::new(0);
        Self {
            holds: zero(),
            long: zero(),
            long_frees: zero(),
            longest_pages: zero(),
            places: (0..places)
                .map(|_| Padded(Mutex::new(Place::new())))
                .collect(),
        }
    }

    /// Returns whether times are recorded.
    pub(super) fn are_timed(&self) -> bool {
        !self.places.is_empty()
    }

    pub(super) fn note(&self, shard: usize, held: Held) {
        // Relaxed: tallies order nothing.
        self.holds.fetch_add(1, Ordering::Relaxed);
        self.longest_pages.fetch_max(held.pages, Ordering::Relaxed);
        if held.pages > LONG_PAGES {
            self.long.fetch_add(1, Ordering::Relaxed);
        }
        let gives = held.cause != Cause::Take;
        if gives && held.pages > LONG_PAGES {
            self.long_frees.fetch_add(1, Ordering::Relaxed);
        }
        if self.are_timed() {
            let mut place = lock(&self.places[shard % self.places.len()]);
            let of_cause = &mut place.by_cause[held.cause as usize];
            record(&mut of_cause.pages, held.pages);
            record(&mut of_cause.waited_ns, held.waited_ns);
            record(&mut place.held_ns, held.held_ns);
            if gives {
                record(&mut place.given_held_ns, held.held_ns);
            }
        }
    }

    pub(super) fn forget(&self) {
        // Relaxed: tallies order nothing.
        let tallies = [
            &self.holds,
            &self.long,
            &self.longest_pages,
            &self.long_frees,
        ];
        for tally in tallies {
            tally.store(0, Ordering::Relaxed);
        }
        for place in &self.places {
            *lock(place) = Place::new();
        }
    }

    pub(super) fn figures(&self) -> HoldFigures {
        let mut all = HoldFigures {
            holds: self.holds.load(Ordering::Relaxed),
            long: self.long.load(Ordering::Relaxed),
            long_frees: self.long_frees.load(Ordering::Relaxed),
            longest_pages: self.longest_pages.load(Ordering::Relaxed),
            by_cause: std::array::from_fn(|_| HoldsOfCause::new()),
            given: values(),
            given_held_ns: values(),
            pages: values(),
            held_ns: values(),
            waited_ns: values(),
            traffic_waited_ns: values(),
        };
        for place in &self.places {
            let place = lock(place);
            add(&mut all.given_held_ns, &place.given_held_ns);
            add(&mut all.held_ns, &place.held_ns);
            for (sum, part) in all.by_cause.iter_mut().zip(&place.by_cause) {
                add(&mut sum.pages, &part.pages);
                add(&mut sum.waited_ns, &part.waited_ns);
            }
        }
        for (cause, part) in Cause::ALL.into_iter().zip(&all.by_cause) {
            add(&mut all.pages, &part.pages);
            add(&mut all.waited_ns, &part.waited_ns);
            if cause != Cause::Take {
                add(&mut all.given, &part.pages);
            }
            if matches!(cause, Cause::Take | Cause::Free) {
                add(&mut all.traffic_waited_ns, &part.waited_ns);
            }
        }
        all
    }
}

fn add(sum: &mut Histogram<u64>, part: &Histogram<u64>) {
    sum.add(part).expect("the same bounds");
}

fn lock(place: &Padded<Mutex<Place>>) -> MutexGuard<'_, Place> {
    place.0.lock().unwrap_or_else(PoisonError::into_inner)
}
