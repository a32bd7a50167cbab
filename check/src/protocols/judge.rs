//! Judgement of answers, by a log of the bytes really charged.
//!
//! Operations take time, so in between bytes may be charged or not. *At most* counts all bytes that may be charged, *at
//! least* all that must be. A charge that was refused in the end never happened.
//!
//! * A refusal is false if at every moment of the call the bytes of others, at most, left room for it.
//! * A grant is false if at every moment of the call the bytes of others, at least, left no room for it.

use std::ops::RangeInclusive;

use super::books::{GroupIndex, Shape};
use super::truth::{Answer, Charged, Log, State, Truth};

/// Judges all answers. Call it after all tasks have ended.
pub(super) fn judge(truth: &Truth) {
    let (log, shape) = (&*truth.log(), &truth.shape);
    for (began, ended, answer) in &log.answers {
        let mut span = *began..=*ended;
        match answer {
            Answer::Granted { charge, groups } => {
                let bytes = log.charges[*charge].bytes;
                let others = |other: usize| other != *charge;
                for &group in groups {
                    let fits = |time| {
                        let others = at_least(log, shape, group, time, others);
                        others + bytes <= log.limit(group, time).most
                    };
                    assert!(
                        span.clone().any(fits),
                        "above the limit: {bytes} bytes were charged, and {} had no room for them",
                        shape.paths[group]
                    );
                }
            }
            Answer::Refused { bytes, by } => {
                let is_short = |time| {
                    let others = at_most(log, shape, *by, time);
                    others + bytes > log.limit(*by, time).least
                };
                assert!(
                    span.any(is_short),
                    "false refusal: {} refused {bytes} bytes, and had room for them all the time",
                    shape.paths[*by]
                );
            }
            Answer::Read { group, usage } => {
                let charges = log.charges.iter();
                let parts = charges.map(|charge| part(charge, shape, *group, &span));
                let (least, most) =
                    parts.fold((0, 0), |sum, part| (sum.0 + part.0, sum.1 + part.1));
                assert!(
                    (least.max(0)..=most.max(0)).contains(usage),
                    "usage: {} reads {usage} bytes, and had {least} to {most}",
                    shape.paths[*group]
                );
            }
        }
    }
}

/// Returns the bytes of some charges at and below `scope` at `time`, at least.
fn at_least(
    log: &Log,
    shape: &Shape,
    scope: GroupIndex,
    time: u64,
    some: impl Fn(usize) -> bool,
) -> u64 {
    let is_in = |charge: &Charged| match charge.at(time) {
        State::Held(group) => shape.contains(scope, group),
        State::Moving(from, to) => shape.contains(scope, from) && shape.contains(scope, to),
        _ => false,
    };
    let charges = log.charges.iter().enumerate();
    charges
        .filter(|(id, charge)| some(*id) && is_in(charge))
        .map(|(_, charge)| charge.bytes)
        .sum()
}

/// Returns the bytes at and below `scope` at `time`, at most.
fn at_most(log: &Log, shape: &Shape, scope: GroupIndex, time: u64) -> u64 {
    let charges = log.charges.iter();
    charges
        .filter(|charge| touches(shape, scope, charge.at(time)))
        .map(|charge| charge.bytes)
        .sum()
}

/// Returns whether some of the bytes may be at or below `scope`.
fn touches(shape: &Shape, scope: GroupIndex, state: State) -> bool {
    match state {
        State::Charging(group) | State::Held(group) | State::Returning(group) => {
            shape.contains(scope, group)
        }
        State::Moving(from, to) => shape.contains(scope, from) || shape.contains(scope, to),
        State::Gone => false,
    }
}

/// Returns the contribution of one charge to a read: at least, at most. The shards are read one after the other. So a
/// change during the read may be in or not, a return may be in without its charge, and moved bytes may be in twice.
fn part(
    charge: &Charged,
    shape: &Shape,
    scope: GroupIndex,
    span: &RangeInclusive<u64>,
) -> (i64, i64) {
    let bytes = charge.bytes as i64;
    let begun = charge.at(*span.start());
    let is_inside = |&&(from, _): &&(u64, State)| from > *span.start() && from <= *span.end();
    let changes = charge.states.iter().filter(is_inside);
    let count = changes.clone().count() as i64;
    let mut states = changes.map(|&(_, state)| state).chain([begun]);
    if !states.any(|state| touches(shape, scope, state)) {
        return (0, 0);
    }
    match (count, begun) {
        (0, State::Held(_)) => (bytes, bytes),
        (_, State::Moving(..)) => (-bytes * count, bytes * (count + 2)),
        _ => (-bytes * count, bytes * (count + 1)),
    }
}
