//! Streams of queries that take what TPC-H's queries took, with estimates that are right, wrong, or missing.

use std::task::Poll;

use bursar::{Charge, Group};
use bursar_arbiter::{Admit, Arbiter, Ask, Grant, Seen, Shapes};
use bursar_rig::random::Random;

use super::common::{arbiter, poll, tenant, timeless};

/// Peaks of the 22 queries, KiB: `tpch held --scale 0.1 --partitions 4`, which has no limit. Those below 1 MiB are 1 MiB.
const PEAKS: [u64; 22] = [
    10_854, 9_134, 3_052, 15_155, 13_210, 1_024, 36_966, 16_384, 19_149, 9_789, 11_981, 11_059,
    11_571, 2_980, 12_493, 13_414, 7_424, 66_253, 1_536, 13_312, 24_781, 13_107,
];
/// The tenant's limit, MiB: a quarter more than the largest query needs.
const MAX: u64 = 81;
const STREAMS: usize = 8;
/// Queries of each stream.
const QUERIES: usize = 66;
/// Steps in which a query reaches its peak, and ends.
const STEPS: u64 = 8;
const TRIES_MAX: u32 = 3;

#[derive(Debug, Default)]
struct Outcome {
    done: usize,
    failed: usize,
    /// Steps of queries that were done, and of tries that were refused.
    work: u64,
    thrown_away: u64,
    steps: u64,
}

struct Stream {
    order: Vec<usize>,
    tries: u32,
    state: State,
}

enum State {
    Waiting(Admit),
    Running(Grant, Vec<Charge>, u64),
    Ended,
}

struct Replay<E> {
    arbiter: Arbiter,
    group: Group,
    shapes: Shapes,
    estimate: E,
    names: u64,
    outcome: Outcome,
}

impl<E: Fn(Option<u64>) -> Option<u64>> Replay<E> {
    fn ask(&mut self, query: usize, tries: u32, needed: u64) -> Admit {
        self.names += 1;
        let ask = Ask::new(&self.group, format!("query-{}", self.names)).estimated();
        let seen = self.shapes.seen(query as u64, 90).map(|seen| seen.peak);
        let ask = match (tries, (self.estimate)(seen)) {
            (TRIES_MAX, _) => ask.alone(),
            (1, Some(peak)) => ask.like(Seen { peak, width: 1 }),
            (1, None) => ask,
            _ => ask.least(needed, 0),
        };
        self.arbiter.admit(ask)
    }

    /// The next query of a stream, or the same one again.
    fn begin(&mut self, stream: &mut Stream, needed: u64) {
        stream.state = match stream.order.last() {
            Some(&query) => State::Waiting(self.ask(query, stream.tries, needed)),
            None => State::Ended,
        };
    }

    fn step(&mut self, stream: &mut Stream) {
        match std::mem::replace(&mut stream.state, State::Ended) {
            State::Waiting(mut admit) => {
                stream.state = match poll(&mut admit) {
                    Poll::Ready(grant) => {
                        let grant = grant.expect("an estimate makes no query fail");
                        if stream.tries == TRIES_MAX {
                            grant.grow_first().unwrap();
                        }
                        State::Running(grant, Vec::new(), 0)
                    }
                    Poll::Pending => State::Waiting(admit),
                };
            }
            State::Running(grant, mut charges, step) => {
                let query = *stream.order.last().expect("it runs");
                let at = |step| PEAKS[query] * 1024 * step / STEPS;
                match grant.try_charge(at(step + 1) - at(step)) {
                    Ok(charge) if step + 1 < STEPS => {
                        charges.push(charge);
                        stream.state = State::Running(grant, charges, step + 1);
                    }
                    Ok(charge) => {
                        drop(charge);
                        let key = query as u64;
                        self.shapes.record(key, grant.group().peak(), 1);
                        self.outcome.work += STEPS;
                        self.outcome.done += 1;
                        self.next(stream);
                    }
                    Err(_) => {
                        self.outcome.thrown_away += step + 1;
                        let needed = at(step + 1).max(2 * grant.bytes());
                        drop((charges, grant));
                        stream.tries += 1;
                        if stream.tries <= TRIES_MAX {
                            self.begin(stream, needed);
                        } else {
                            self.outcome.failed += 1;
                            self.next(stream);
                        }
                    }
                }
            }
            State::Ended => (),
        }
    }

    fn next(&mut self, stream: &mut Stream) {
        stream.order.pop();
        stream.tries = 1;
        self.begin(stream, 0);
    }
}

/// Runs all streams, with estimates made from the largest of the last peaks of a query's shape, if there is one.
fn replay(estimate: impl Fn(Option<u64>) -> Option<u64>) -> Outcome {
    let arbiter = arbiter(2 * MAX, timeless());
    let mut replay = Replay {
        group: tenant(&arbiter, "acme", MAX),
        arbiter,
        shapes: Shapes::new(100),
        estimate,
        names: 0,
        outcome: Outcome::default(),
    };
    let mut random = Random::new(1);
    let mut streams: Vec<Stream> = (0..STREAMS)
        .map(|_| Stream {
            order: (0..QUERIES)
                .map(|_| random.below(PEAKS.len() as u64) as usize)
                .collect(),
            tries: 1,
            state: State::Ended,
        })
        .collect();
    for stream in &mut streams {
        replay.begin(stream, 0);
    }
    let serial = (STREAMS * QUERIES) as u64 * STEPS;
    while !streams.iter().all(|it| matches!(it.state, State::Ended)) {
        for stream in &mut streams {
            replay.step(stream);
        }
        replay.arbiter.tick();
        replay.outcome.steps += 1;
        assert!(
            replay.outcome.steps < 3 * serial,
            "somebody starves: {:?}",
            replay.outcome
        );
    }
    assert_eq!(replay.group.reserved(), 0);
    replay.outcome
}

/// Work that may be thrown away with estimates that were learnt, per cent.
const THROWN_AWAY_MAX: u64 = 5;

#[test]
fn right_estimates_throw_little_work_away_and_none_throws_more() {
    let learnt = replay(|seen| seen);
    assert_eq!((learnt.done, learnt.failed), (STREAMS * QUERIES, 0));
    assert!(
        learnt.thrown_away * 100 <= learnt.work * THROWN_AWAY_MAX,
        "{learnt:?}"
    );
    let none = replay(|_| None);
    assert_eq!((none.done, none.failed), (STREAMS * QUERIES, 0));
    assert!(
        none.thrown_away * 100 > none.work * THROWN_AWAY_MAX,
        "a table that knows nothing would pass: {none:?}"
    );
}

#[test]
fn estimates_that_are_wrong_by_a_hundred_times_fail_and_starve_nobody() {
    for (times, over) in [(1, 100), (100, 1)] {
        let wrong = replay(|seen| seen.map(|peak| (peak * times / over).max(1)));
        assert_eq!(
            (wrong.done, wrong.failed),
            (STREAMS * QUERIES, 0),
            "{times} / {over}: {wrong:?}"
        );
    }
}
