//! Charges that wait for one group's limit: by ticket, by size, and how often each was passed.
//!
//! A charge that is granted passes all with lower tickets. This is noted once, at the last of them, and counts for it and for all
//! before it. So the first waiter was passed the most, and its count alone tells whether room is kept.
//!
//! The first waiter that fits is found by the smallest sizes of runs of 64 tickets, of runs of 64 runs, and once more. A search
//! looks at no more than 64 entries of each and of the tickets, as long as the tickets of the waiters lie within 2^24.

use std::collections::BTreeMap;
use std::ops::RangeInclusive;
use std::sync::Arc;
use std::task::Waker;

use crate::limit::Limit;

/// Tickets of a run, as a power of two; and runs of a longer run.
const RUN_BITS: u32 = 6;
/// Lengths of runs.
const RUNS: usize = 3;

/// Bounds on how far a waiting charge is passed.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PassingRule {
    /// Number of times; 0 for charges in strict turn.
    pub(crate) times_max: u32,
    /// Time since its first poll.
    pub(crate) waited_max_ns: u64,
}

/// As the arbiter's, so that queries of 10 ms to 10 s pass each other.
impl Default for PassingRule {
    fn default() -> Self {
        Self {
            times_max: 32,
            waited_max_ns: 10_000_000_000,
        }
    }
}

/// A charge that waits for a group's limit.
pub(super) struct Waiter {
    pub(super) index: u32,
    pub(super) bytes: u64,
    /// Time of its first poll.
    pub(super) came_ns: u64,
    /// Shared, because cloning a waker runs the runtime's code, and this is cloned under the queue's lock.
    pub(super) waker: Arc<Waker>,
}

/// State of a limit when a task looks at its queue.
#[derive(Clone, Copy)]
pub(super) struct Now {
    pub(super) max: Limit,
    /// Bytes below the limit that no task uses.
    pub(super) left: u64,
    pub(super) ns: u64,
    pub(super) rule: PassingRule,
}

/// Place of a charge that looks whether it may try.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Place {
    /// Before all waiters.
    First,
    /// Behind some, all of which it may pass.
    Passing,
    /// Behind one that comes first.
    Behind,
}

/// Charges that wait for one group's limit.
#[derive(Default)]
pub(super) struct Queue {
    /// By ticket.
    waiters: BTreeMap<u64, Waiter>,
    /// Smallest size of each run, by the upper bits of its tickets.
    smallest: [BTreeMap<u64, u64>; RUNS],
    /// Passes, by the last ticket for which they count.
    passed: BTreeMap<u64, u32>,
    /// Sum of these: passes of the first waiter.
    passes: u32,
    /// Charges that try to pass now.
    passing: u32,
}

fn run_of(number: u64, run: usize) -> u64 {
    number >> (RUN_BITS * (run as u32 + 1))
}

/// Tickets or shorter runs of a run.
fn parts(run: u64) -> RangeInclusive<u64> {
    run << RUN_BITS..=((run << RUN_BITS) | ((1 << RUN_BITS) - 1))
}

impl Queue {
    pub(super) fn waiters(&self) -> impl Iterator<Item = &Waiter> {
        self.waiters.values()
    }

    pub(super) fn first(&self) -> Option<(u64, &Waiter)> {
        let first = self.waiters.first_key_value();
        first.map(|(&number, waiter)| (number, waiter))
    }

    /// Times that this waiter was passed.
    pub(super) fn passed(&self, number: u64) -> u32 {
        self.passed.range(number..).map(|(_, times)| times).sum()
    }

    /// Puts a waiter in that was passed elsewhere so many times. Returns the one that it replaces.
    pub(super) fn enter(&mut self, number: u64, waiter: Waiter, passed: u32) -> Option<Waiter> {
        let bytes = waiter.bytes;
        let replaced = self.waiters.insert(number, waiter);
        if replaced.is_none() {
            for (run, smallest) in self.smallest.iter_mut().enumerate() {
                let least = smallest.entry(run_of(number, run)).or_insert(bytes);
                *least = bytes.min(*least);
            }
            // Those before it count as passed so many times more, so that the first remains the one that was passed the most.
            let more = passed.saturating_sub(self.passed(number));
            if more > 0 {
                *self.passed.entry(number).or_insert(0) += more;
                self.passes = self.passes.saturating_add(more);
            }
        }
        replaced
    }

    /// Takes a waiter out.
    pub(super) fn leave(&mut self, number: u64) -> Option<Waiter> {
        let waiter = self.waiters.remove(&number)?;
        for run in 0..RUNS {
            let at = run_of(number, run);
            let least = match run {
                0 => {
                    let part = self.waiters.range(parts(at));
                    part.map(|(_, waiter)| waiter.bytes).min()
                }
                _ => {
                    let part = self.smallest[run - 1].range(parts(at));
                    part.map(|(_, &bytes)| bytes).min()
                }
            };
            match least {
                Some(least) => self.smallest[run].insert(at, least),
                None => self.smallest[run].remove(&at),
            };
        }
        if let Some(times) = self.passed.remove(&number) {
            match self.before(number) {
                Some(before) => *self.passed.entry(before).or_insert(0) += times,
                None => self.passes -= times,
            }
        }
        Some(waiter)
    }

    fn before(&self, number: u64) -> Option<u64> {
        let before = self.waiters.range(..number).next_back();
        before.map(|(&before, _)| before)
    }

    /// Whether room is kept for the first waiter: no other is served.
    fn keeps_room(&self, first: &Waiter, now: Now) -> bool {
        self.passes.saturating_add(self.passing) >= now.rule.times_max
            || now.ns.saturating_sub(first.came_ns) >= now.rule.waited_max_ns
    }

    /// The waiter that may try now: the first that fits, or the first of all if it never will. No other than the first if room is
    /// kept for it.
    pub(super) fn next(&self, now: Now) -> Option<(u64, &Waiter)> {
        let (number, first) = self.first()?;
        if first.bytes > now.max || first.bytes <= now.left {
            return Some((number, first));
        }
        if self.keeps_room(first, now) {
            return None;
        }
        let mut among = 0..=u64::MAX;
        for smallest in self.smallest.iter().rev() {
            let (&run, _) = smallest
                .range(among)
                .find(|&(_, &least)| least <= now.left)?;
            among = parts(run);
        }
        let mut among = self.waiters.range(among);
        let fits = among.find(|(_, waiter)| waiter.bytes <= now.left);
        fits.map(|(&number, waiter)| (number, waiter))
    }

    /// Looks whether a charge may try. If it passes others, [`Queue::end_pass`] follows.
    pub(super) fn begin_pass(&mut self, number: u64, now: Now) -> Place {
        let first = self.first().filter(|&(first, _)| first < number);
        let Some((_, first)) = first else {
            return Place::First;
        };
        let next = self.next(now);
        if self.keeps_room(first, now) || next.is_some_and(|(next, _)| next < number) {
            return Place::Behind;
        }
        self.passing += 1;
        Place::Passing
    }

    /// Counts the pass of a charge that was granted. Returns whether others were kept from passing by it, and are so no more.
    pub(super) fn end_pass(&mut self, number: u64, is_granted: bool, rule: PassingRule) -> bool {
        let was_last = self.passes.saturating_add(self.passing) >= rule.times_max;
        // A forked child has forgotten it.
        self.passing = self.passing.saturating_sub(1);
        match self.before(number).filter(|_| is_granted) {
            Some(before) => {
                *self.passed.entry(before).or_insert(0) += 1;
                self.passes = self.passes.saturating_add(1);
                false
            }
            None => was_last,
        }
    }
}

#[cfg(test)]
mod tests {
    use bursar_rig::random::Random;

    use super::*;

    /// A waiter of the model: ticket, bytes, passes, time of its first poll.
    type Plain = (u64, u64, u32, u64);

    const RULE: PassingRule = PassingRule {
        times_max: 5,
        waited_max_ns: 400,
    };

    fn waiter(bytes: u64, came_ns: u64) -> Waiter {
        Waiter {
            index: 0,
            bytes,
            came_ns,
            waker: Arc::new(Waker::noop().clone()),
        }
    }

    /// The promise, word by word, on a list.
    fn next_of(model: &[Plain], now: Now) -> Option<u64> {
        let &(number, bytes, ..) = model.first()?;
        if bytes > now.max || bytes <= now.left {
            return Some(number);
        }
        let is_kept = |&(_, _, passed, came_ns): &Plain| {
            passed >= now.rule.times_max || now.ns - came_ns >= now.rule.waited_max_ns
        };
        if model.iter().any(is_kept) {
            return None;
        }
        let fits = model.iter().find(|&&(_, bytes, ..)| bytes <= now.left);
        fits.map(|&(number, ..)| number)
    }

    /// Against a list, with tickets so far apart that each length of run has several.
    #[test]
    fn a_list_says_the_same() {
        for seed in 1..=40 {
            let mut random = Random::new(seed);
            let (mut queue, mut model) = (Queue::default(), Vec::<Plain>::new());
            let (mut number, mut ns) = (0, 0);
            let spread = [1, 60, 4000, 300_000][seed as usize % 4];
            for _ in 0..2_000 {
                ns += random.below(3);
                let left = random.below(120);
                let now = Now {
                    max: 150,
                    left,
                    ns,
                    rule: RULE,
                };
                match random.below(5) {
                    0 | 1 if model.len() < 100 => {
                        number += 1 + random.below(spread);
                        let most = [200, 100][usize::from(random.below(20) > 0)];
                        let bytes = 1 + random.below(most);
                        assert!(queue.enter(number, waiter(bytes, ns), 0).is_none());
                        model.push((number, bytes, 0, ns));
                    }
                    2 if !model.is_empty() => {
                        let at = random.below(model.len() as u64) as usize;
                        let left = queue.leave(model.remove(at).0);
                        assert!(left.is_some());
                    }
                    _ => {
                        // One that waits, or one that comes.
                        let at = random.below(model.len() as u64 + 1) as usize;
                        let by = model.get(at).map_or(number + 1, |waiter| waiter.0);
                        let ahead = &mut model[..at];
                        let bars = |&(_, bytes, passed, came_ns): &Plain| {
                            let is_kept =
                                passed >= RULE.times_max || ns - came_ns >= RULE.waited_max_ns;
                            is_kept || bytes <= left
                        };
                        let is_behind =
                            ahead.iter().any(bars) || ahead.first().is_some_and(|one| one.1 > 150);
                        let place = queue.begin_pass(by, now);
                        let expected = match (ahead.is_empty(), is_behind) {
                            (true, _) => Place::First,
                            (_, true) => Place::Behind,
                            _ => Place::Passing,
                        };
                        assert_eq!(place, expected, "seed {seed}");
                        if place == Place::Passing {
                            let is_granted = random.below(3) > 0;
                            queue.end_pass(by, is_granted, RULE);
                            let passed = u32::from(is_granted);
                            ahead.iter_mut().for_each(|waiter| waiter.2 += passed);
                        }
                    }
                }
                assert_eq!(queue.next(now).map(|(next, _)| next), next_of(&model, now));
                for &(number, _, passed, _) in &model {
                    assert_eq!(queue.passed(number), passed, "seed {seed}");
                    assert!(passed <= RULE.times_max);
                }
            }
            model
                .iter()
                .for_each(|waiter| assert!(queue.leave(waiter.0).is_some()));
            assert_eq!(queue.passes, 0);
            assert!(queue.passed.is_empty() && queue.smallest.iter().all(BTreeMap::is_empty));
        }
    }

    fn tight(left: u64) -> Now {
        Now {
            max: 100,
            left,
            ns: 0,
            rule: PassingRule {
                times_max: 2,
                ..RULE
            },
        }
    }

    /// Tries under way count as passes, so together they do not exceed the bound.
    #[test]
    fn tries_at_once_stay_within_the_bound() {
        let mut queue = Queue::default();
        queue.enter(1, waiter(50, 0), 0);
        let now = tight(10);
        assert_eq!(queue.begin_pass(2, now), Place::Passing);
        assert_eq!(queue.begin_pass(3, now), Place::Passing);
        queue.enter(4, waiter(5, 0), 0);
        assert_eq!(queue.begin_pass(4, now), Place::Behind);
        assert!(queue.next(now).is_none());
        assert!(queue.end_pass(2, false, now.rule), "others may pass again");
        assert_eq!(queue.next(now).map(|(next, _)| next), Some(4));
        assert!(!queue.end_pass(3, true, now.rule));
        assert_eq!((queue.passed(1), queue.passed(4)), (1, 0));
    }

    /// A waiter keeps its passes when another limit gets in its way, and those before it there are passed no more than it.
    #[test]
    fn passes_go_with_a_waiter() {
        let mut queue = Queue::default();
        for number in [1, 9] {
            queue.enter(number, waiter(50, 0), 0);
        }
        queue.enter(5, waiter(50, 0), 2);
        assert_eq!([1, 5, 9].map(|number| queue.passed(number)), [2, 2, 0]);
        assert_eq!(queue.begin_pass(10, tight(10)), Place::Behind);
        queue.leave(5);
        assert_eq!([1, 9].map(|number| queue.passed(number)), [2, 0]);
        queue.leave(1);
        assert_eq!(queue.begin_pass(10, tight(10)), Place::Passing);
    }
}
