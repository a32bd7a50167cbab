//! Queries of two tasks each that wait for room before they charge, share it, drop waits, and are stopped while they wait.
//!
//! All waits end: one that does not was lost, not woken, or is of a query that was stopped. Bytes and promises never exceed the limit,
//! and a task that waited and got room can charge, unless the other task of its query did so first.

use std::pin::Pin;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use bursar::Charge;
use bursar_arbiter::{
    Answer, Arbiter, Ask, Engine, Grant, GrowError, Policy, Stop, VictimOrder, Widener,
};
use bursar_machine::Machine;
use bursar_rig::Watched;

use super::books::{Books, NO_LIMIT, run};
use super::executor::{self, Patience};
use super::locked::locked;
use crate::random::Random;

const MAX: u64 = 1000;
/// Bytes that each query begins with.
const FIRST: u64 = 400;
const STEP: u64 = 200;
/// Number of times that each task waits.
const ROUNDS: u32 = 2;

/// Whether its query was told to stop.
#[derive(Default)]
struct Told(AtomicBool);

impl Engine for Told {
    fn reclaimable(&self) -> u64 {
        0
    }

    fn ask(&self, _: u64, _: Answer) {
        unreachable!("it has nothing to give back");
    }

    fn stop(&self, _: &Arc<Stop>) {
        // Relaxed, as all below: one thread of the host runs all tasks.
        self.0.store(true, Ordering::Relaxed);
    }
}

struct Query<M: Machine> {
    grant: Grant<M>,
    told: Arc<Told>,
    first: Mutex<Option<Charge<M>>>,
    /// Charges that were begun so far, and those that have ended.
    begun: AtomicU64,
    ended: AtomicU64,
}

struct Waiting<M: Machine> {
    books: Books<M>,
    arbiter: Arbiter<M>,
    has_time: bool,
    // Not the machine's word: counting costs no step.
    held: AtomicU64,
}

impl<M: Machine> Waiting<M> {
    fn new(machine: &M, seed: u64) -> Self {
        let books = Books::new(machine, MAX, &[(0, NO_LIMIT), (0, NO_LIMIT)]);
        let mut policy = Policy::default();
        // An exploration has no time: a wait has no end, or ends at the first look that finds no room.
        let has_time = !seed.is_multiple_of(4);
        let yielding = &mut policy.yielding;
        (yielding.ask_after, yielding.stop_after) = (Duration::ZERO, Duration::ZERO);
        yielding.stop_max = Duration::ZERO;
        yielding.victim_min = 1;
        if !has_time {
            yielding.room_max = Duration::ZERO;
        }
        if seed.is_multiple_of(3) {
            yielding.passed_max = Duration::ZERO;
        }
        if seed.is_multiple_of(2) {
            yielding.victim = VictimOrder::Largest;
        }
        Self {
            arbiter: Arbiter::new(&books.memory, policy),
            books,
            has_time,
            held: AtomicU64::new(0),
        }
    }

    fn query(&self, tenant: usize, name: &str, is_told: bool) -> Arc<Query<M>> {
        let ask = Ask::new(&self.books.groups[tenant], name);
        let ask = ask.least(FIRST, 0).wanted(FIRST);
        let grant = self.arbiter.try_admit(ask).expect("there is room");
        let told = Arc::new(Told::default());
        if is_told {
            grant.attach(told.clone());
        }
        let first = grant.group().try_charge(FIRST).expect("it was promised");
        self.held.fetch_add(FIRST, Ordering::Relaxed);
        Arc::new(Query {
            grant,
            told,
            first: Mutex::new(Some(first)),
            begun: AtomicU64::new(0),
            ended: AtomicU64::new(0),
        })
    }

    fn release(&self, charge: Charge<M>) {
        self.held.fetch_sub(charge.bytes(), Ordering::Relaxed);
        drop(charge);
    }

    fn check(&self) -> impl FnMut() + use<'_, M> {
        || {
            let held = self.held.load(Ordering::Relaxed);
            assert!(held <= MAX, "{held} bytes are held of {MAX}");
        }
    }

    /// Checks that the arbiter promises no more than there is.
    fn look(&self) {
        let grants = self.arbiter.admissions().grants;
        let promised: u64 = grants.iter().map(|grant| grant.bytes).sum();
        assert!(promised <= MAX, "{promised} bytes are promised of {MAX}");
    }

    /// Waits for room and charges it. Returns nothing if it got none, and an error if its query must end.
    fn grow(&self, query: &Query<M>, patience: Patience) -> Result<Option<Charge<M>>, GrowError> {
        let widener: Widener<M> = query.grant.widener();
        let was_stopped = query.told.0.load(Ordering::Relaxed);
        let before = query.ended.load(Ordering::Relaxed);
        let mut room = widener.wait_for_room(STEP);
        if was_stopped {
            return match Pin::new(&mut room).poll(&mut Context::from_waker(Waker::noop())) {
                Poll::Ready(Err(error @ GrowError::Stopped(_))) => Err(error),
                // It needs no wait.
                Poll::Ready(Ok(())) => Ok(None),
                polled => panic!("a query that was stopped waits: {polled:?}"),
            };
        }
        let mut polls = 0;
        let waited = executor::wait::<M, _>(patience, |context| {
            polls += 1;
            Pin::new(&mut room).poll(context)
        });
        match waited {
            None => Ok(None),
            Some(Ok(())) => {
                query.begun.fetch_add(1, Ordering::Relaxed);
                let charged = query.grant.group().try_charge(STEP);
                query.ended.fetch_add(1, Ordering::Relaxed);
                // Then the other task has charged nothing since the wait began.
                let is_alone = query.begun.load(Ordering::Relaxed) == before + 1;
                if let Ok(charge) = &charged {
                    self.held.fetch_add(charge.bytes(), Ordering::Relaxed);
                }
                // One that found room at once has no promise: others may take it.
                let is_promised = is_alone && polls > 1;
                assert!(charged.is_ok() || !is_promised, "no room: {charged:?}");
                Ok(charged.ok())
            }
            Some(Err(GrowError::TimedOut { bytes })) => {
                assert!(!self.has_time && bytes == STEP, "it had time");
                Ok(None)
            }
            Some(Err(error)) => Err(error),
        }
    }

    /// One of the tasks of a query. The last one ends the grant.
    fn run_part(&self, query: Arc<Query<M>>, mut random: Random) {
        let mut charges = Vec::new();
        for _ in 0..ROUNDS {
            let patience = match random.below(6) {
                0 => Patience::None,
                1 => Patience::UntilWoken,
                _ => Patience::Endless,
            };
            match self.grow(&query, patience) {
                Ok(charge) => charges.extend(charge),
                Err(
                    GrowError::Stopped(_)
                    | GrowError::NobodyYields { .. }
                    | GrowError::NeverFits { .. },
                ) => break,
                Err(error) => panic!("{error}"),
            }
        }
        charges.extend(locked(&query.first).take());
        for charge in charges {
            self.release(charge);
        }
    }
}

pub(super) fn scenario<M: Watched>(machine: &M, seed: u64) {
    let waiting = Waiting::new(machine, seed);
    let all = &waiting;
    let mut random = Random::fork(seed, 0);
    let queries = ["one", "two"].map(|name| {
        let tenant = 1 + random.below(2) as usize;
        all.query(tenant, name, random.below(3) > 0)
    });
    let [one, two] = queries;
    let part = |query: Arc<Query<M>>| move |random: Random| all.run_part(query, random);
    let (first, second) = (part(one.clone()), part(one));
    let (third, fourth) = (part(two.clone()), part(two));
    let look = move |mut random: Random| {
        for _ in 0..1 + random.below(2) {
            all.arbiter.tick();
            all.look();
        }
        // It begins when others have ended, and promises that nobody uses are in its way.
        let ask = Ask::new(&all.books.groups[1], "last").least(MAX - STEP, 0);
        let admitted = executor::block_on::<M, _>(all.arbiter.admit(ask));
        drop(admitted.expect("it fits when others end"));
    };
    run(
        machine,
        seed,
        all.check(),
        tasks![first, second, third, fourth, look],
    );
    let shown = waiting.arbiter.admissions();
    let is_empty = shown.grants.is_empty() && shown.waiting.is_empty();
    assert!(is_empty, "{shown:?}");
    waiting.books.check_empty();
}
