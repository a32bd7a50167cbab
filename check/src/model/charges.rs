//! The truth about charges: a log of all operations on bytes. `judge.rs` compares answers with it.
//!
//! Tasks record when an operation begins and when it has ended. Recording costs no step of the machine.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use super::shape::{GroupIndex, Shape};

/// Number of a charge.
pub type ChargeId = usize;

/// Place of the bytes of a charge.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum State {
    /// On the way into a group.
    Charging(GroupIndex),
    Held(GroupIndex),
    Moving(GroupIndex, GroupIndex),
    Returning(GroupIndex),
    Gone,
}

/// Limits that a charge must respect.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Respects all limits.
    Fallible,
    /// Charges regardless of limits.
    Infallible,
}

/// One charge, in time.
#[derive(Debug)]
pub(super) struct Charged {
    pub(super) bytes: u64,
    kind: Kind,
    /// States by their begin, ascending.
    pub(super) states: Vec<(u64, State)>,
}

impl Charged {
    pub(super) fn at(&self, time: u64) -> State {
        let passed = self.states.iter().take_while(|(from, _)| *from <= time);
        passed.last().map_or(State::Gone, |(_, state)| *state)
    }
}

/// A limit, which may be either of two while it changes.
#[derive(Clone, Copy, Debug)]
pub(super) struct Limit {
    from: u64,
    pub(super) least: u64,
    pub(super) most: u64,
}

/// Answer of a call, and its time.
#[derive(Debug)]
pub(super) enum Answer {
    Granted {
        charge: ChargeId,
        /// Groups whose limits it had to respect.
        groups: Vec<GroupIndex>,
    },
    Refused {
        bytes: u64,
        by: GroupIndex,
    },
    Read {
        group: GroupIndex,
        usage: i64,
    },
}

/// The whole log.
#[derive(Debug, Default)]
pub(super) struct Log {
    now: u64,
    pub(super) charges: Vec<Charged>,
    limits: Vec<Vec<Limit>>,
    /// By group: calls under way that change its limit.
    limiting: Vec<u32>,
    /// Begin and end of the call.
    pub(super) answers: Vec<(u64, u64, Answer)>,
}

impl Log {
    /// Records the next state of a charge. Returns when the one before began, and the bytes.
    fn enter(&mut self, charge: ChargeId, state: State) -> (u64, i64) {
        let charged = &mut self.charges[charge];
        let began = charged.states.last().map_or(self.now, |(from, _)| *from);
        charged.states.push((self.now, state));
        (began, charged.bytes as i64)
    }

    fn answer(&mut self, began: u64, answer: Answer) {
        self.answers.push((began, self.now, answer));
    }

    /// Returns a group's limit at a moment.
    pub(super) fn limit(&self, group: GroupIndex, time: u64) -> Limit {
        let passed = self.limits[group]
            .iter()
            .take_while(|limit| limit.from <= time);
        *passed.last().expect("the first is from the beginning")
    }
}

/// See the module.
#[derive(Debug)]
pub struct Truth {
    pub(super) shape: Shape,
    log: Mutex<Log>,
    /// By group: bytes held at and below it now, at least.
    held: Vec<AtomicU64>,
    /// The same, at most: with bytes on the way in or out.
    present: Vec<AtomicU64>,
    /// By group: charges on the way into it.
    under_way: Vec<AtomicU64>,
}

impl Truth {
    /// Makes the log of groups with these limits.
    pub fn new(shape: &Shape, maxima: impl Iterator<Item = u64>) -> Self {
        let limit = |max| {
            vec![Limit {
                from: 0,
                least: max,
                most: max,
            }]
        };
        let zeros = || (0..shape.len()).map(|_| AtomicU64::new(0)).collect();
        Self {
            shape: shape.clone(),
            log: Mutex::new(Log {
                limits: maxima.map(limit).collect(),
                limiting: vec![0; shape.len()],
                ..Log::default()
            }),
            held: zeros(),
            present: zeros(),
            under_way: zeros(),
        }
    }

    /// Takes the log, and advances to the next moment.
    pub(super) fn log(&self) -> MutexGuard<'_, Log> {
        let mut log = self.log.lock().unwrap_or_else(PoisonError::into_inner);
        log.now += 1;
        log
    }

    /// Returns the number of records so far. For the check after each step.
    pub fn now(&self) -> u64 {
        self.log.lock().unwrap_or_else(PoisonError::into_inner).now
    }

    /// Returns the bytes held at and below a group, at least. For the check after each step.
    pub fn held(&self, group: GroupIndex) -> u64 {
        self.held[group].load(Ordering::Relaxed)
    }

    /// Returns the bytes held at and below a group, at most. For the check after each step.
    pub fn present(&self, group: GroupIndex) -> u64 {
        self.present[group].load(Ordering::Relaxed)
    }

    /// Returns the charges and returns of a group that are under way now. For the check after each step.
    pub fn under_way_at(&self, group: GroupIndex) -> u64 {
        self.under_way[group].load(Ordering::Relaxed)
    }

    fn change_held(&self, group: GroupIndex, end: Option<GroupIndex>, by: i64) {
        self.change(&self.held, group, end, by);
    }

    fn change_present(&self, group: GroupIndex, end: Option<GroupIndex>, by: i64) {
        self.change(&self.present, group, end, by);
    }

    fn change(&self, sums: &[AtomicU64], group: GroupIndex, end: Option<GroupIndex>, by: i64) {
        let way = self.shape.chain(group).take_while(|&at| Some(at) != end);
        way.for_each(|at| {
            sums[at].fetch_add(by as u64, Ordering::Relaxed);
        });
    }

    fn common(&self, one: GroupIndex, other: GroupIndex) -> Option<GroupIndex> {
        self.shape
            .chain(one)
            .find(|&at| self.shape.contains(at, other))
    }

    /// Records that a charge begins.
    pub fn charging(&self, group: GroupIndex, bytes: u64, kind: Kind) -> ChargeId {
        let mut log = self.log();
        let states = vec![(log.now, State::Charging(group))];
        log.charges.push(Charged {
            bytes,
            kind,
            states,
        });
        self.change_present(group, None, bytes as i64);
        self.under_way[group].fetch_add(1, Ordering::Relaxed);
        log.charges.len() - 1
    }

    /// Records that it was granted.
    pub fn charged(&self, charge: ChargeId, group: GroupIndex) {
        let mut log = self.log();
        let (began, bytes) = log.enter(charge, State::Held(group));
        if log.charges[charge].kind == Kind::Fallible {
            let groups = self.shape.chain(group).collect();
            log.answer(began, Answer::Granted { charge, groups });
        }
        self.change_held(group, None, bytes);
        self.under_way[group].fetch_sub(1, Ordering::Relaxed);
    }

    /// Records that it was refused, and `by` which group, if the refusal must be right.
    pub fn refused(&self, charge: ChargeId, by: Option<GroupIndex>) {
        let mut log = self.log();
        let charged = &mut log.charges[charge];
        let (began, state) = charged.states[0];
        let bytes = charged.bytes;
        charged.states.clear();
        if let State::Charging(group) = state {
            self.under_way[group].fetch_sub(1, Ordering::Relaxed);
            self.change_present(group, None, -(bytes as i64));
        }
        if let Some(by) = by {
            log.answer(began, Answer::Refused { bytes, by });
        }
    }

    /// Records that a charge is about to move.
    pub fn moving(&self, charge: ChargeId, from: GroupIndex, to: GroupIndex) {
        let bytes = self.log().enter(charge, State::Moving(from, to)).1;
        let common = self.common(from, to);
        self.change_held(from, common, -bytes);
        self.change_present(to, common, bytes);
    }

    /// Records that it has moved.
    pub fn moved(&self, charge: ChargeId, from: GroupIndex, to: GroupIndex) {
        let mut log = self.log();
        let (began, bytes) = log.enter(charge, State::Held(to));
        let common = self.common(from, to);
        let way = self.shape.chain(to).take_while(|&at| Some(at) != common);
        let groups = way.collect();
        log.answer(began, Answer::Granted { charge, groups });
        self.change_held(to, common, bytes);
        self.change_present(from, common, -bytes);
    }

    /// Records that it must not move.
    pub fn stays(
        &self,
        charge: ChargeId,
        from: GroupIndex,
        to: GroupIndex,
        by: Option<GroupIndex>,
    ) {
        let mut log = self.log();
        let charged = &mut log.charges[charge];
        let bytes = charged.bytes;
        // It was where it was all the time.
        let began = charged.states.pop().expect("it was moving").0;
        if let Some(by) = by {
            log.answer(began, Answer::Refused { bytes, by });
        }
        let common = self.common(from, to);
        self.change_held(from, common, bytes as i64);
        self.change_present(to, common, -(bytes as i64));
    }

    /// Records that a charge is about to be returned.
    pub fn returning(&self, charge: ChargeId, group: GroupIndex) {
        let bytes = self.log().enter(charge, State::Returning(group)).1;
        self.under_way[group].fetch_add(1, Ordering::Relaxed);
        self.change_held(group, None, -bytes);
    }

    /// Records that it is gone.
    pub fn returned(&self, charge: ChargeId) {
        let mut log = self.log();
        let now = log.now;
        let charged = &mut log.charges[charge];
        let (_, state) = *charged.states.last().expect("it was returning");
        charged.states.push((now, State::Gone));
        if let State::Returning(group) = state {
            self.under_way[group].fetch_sub(1, Ordering::Relaxed);
            let bytes = charged.bytes as i64;
            self.change_present(group, None, -bytes);
        }
    }

    /// Records that a limit is about to change.
    pub fn limiting(&self, group: GroupIndex, max: u64) {
        let mut log = self.log();
        let from = log.now;
        log.limiting[group] += 1;
        let limits = &mut log.limits[group];
        let before = *limits.last().expect("there is a first");
        limits.push(Limit {
            from,
            least: before.least.min(max),
            most: before.most.max(max),
        });
    }

    /// Records that it has changed to `max`. While another task changes it too, it may still be any of the possible
    /// values.
    pub fn limited(&self, group: GroupIndex, max: u64) {
        let mut log = self.log();
        let from = log.now;
        log.limiting[group] -= 1;
        let before = *log.limits[group].last().expect("there is a first");
        assert!(
            (before.least..=before.most).contains(&max),
            "the limit of {} is {max}, which nobody set",
            self.shape.paths[group]
        );
        if log.limiting[group] == 0 {
            log.limits[group].push(Limit {
                from,
                least: max,
                most: max,
            });
        }
    }

    /// Returns the highest value that a group's limit may have now.
    pub fn max_at_most(&self, group: GroupIndex) -> u64 {
        let log = self.log();
        log.limit(group, log.now).most
    }

    /// Records that a read begins.
    pub fn reading(&self) -> u64 {
        self.log().now
    }

    /// Records that it has ended.
    pub fn read(&self, began: u64, group: GroupIndex, usage: i64) {
        let mut log = self.log();
        log.answer(began, Answer::Read { group, usage });
    }
}
