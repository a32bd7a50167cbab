//! Queries that run and grow beyond what there is: each spills when it is asked, is stopped and runs again, or waits for others that do the
//! same.
//!
//! All queries are done in the end: one that is not was lost, not woken, or waits for one that waits for it. Bytes never exceed the limit.

use std::pin::Pin;
use std::sync::Arc;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Poll, Waker};
use std::time::Duration;

use bursar::Charge;
use bursar_arbiter::{Answer, Arbiter, Ask, Engine, Grant, GrowError, Policy, Stop, VictimOrder};
use bursar_machine::Machine;
use bursar_rig::Watched;

use super::books::{Books, NO_LIMIT, run};
use super::executor::{self, Patience};
use super::locked::locked;
use crate::random::Random;

const MAX: u64 = 1000;
/// Bytes that a query begins with, and that it has in the end.
const FIRST: u64 = 300;
const STEP: u64 = 200;
const ALL: u64 = 700;

/// Behaviour of an engine that is asked.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    /// It was not attached.
    None,
    Spills,
    /// It says that it gave back more than it had, and gave nothing.
    Lies,
    /// It never answers, and ends only when it waits.
    Silent,
}

struct Told {
    kind: Kind,
    spillable: AtomicU64,
    asked: Mutex<Vec<Answer>>,
    /// Wakes the query's task.
    waker: Mutex<Option<Waker>>,
}

impl Told {
    fn wake(&self) {
        let waker = locked(&self.waker).take();
        if let Some(waker) = waker {
            waker.wake();
        }
    }
}

impl Engine for Told {
    fn reclaimable(&self) -> u64 {
        // Relaxed: one thread of the host runs all tasks.
        self.spillable.load(Ordering::Relaxed)
    }

    fn ask(&self, _: u64, answer: Answer) {
        match self.kind {
            Kind::Lies => answer.freed(u64::MAX),
            _ => locked(&self.asked).push(answer),
        }
        self.wake();
    }

    fn stop(&self, _: &Arc<Stop>) {
        self.wake();
    }
}

/// A memory, and the bytes that its tasks hold.
struct Arbitrating<M: Machine> {
    books: Books<M>,
    arbiter: Arbiter<M>,
    // Not the machine's word: counting costs no step.
    held: AtomicU64,
}

impl<M: Machine> Arbitrating<M> {
    fn new(machine: &M, seed: u64) -> Self {
        let books = Books::new(machine, MAX, &[(0, NO_LIMIT), (0, NO_LIMIT)]);
        let mut policy = Policy::default();
        policy.passes_max = 2;
        policy.narrow_after = Duration::ZERO;
        let yielding = &mut policy.yielding;
        (yielding.ask_after, yielding.stop_after) = (Duration::ZERO, Duration::ZERO);
        (yielding.ask_max, yielding.stop_max) = (Duration::ZERO, Duration::ZERO);
        yielding.victim_min = 1;
        if seed.is_multiple_of(2) {
            yielding.victim = VictimOrder::Largest;
        }
        if seed.is_multiple_of(3) {
            yielding.passed_max = Duration::ZERO;
        }
        Self {
            arbiter: Arbiter::new(&books.memory, policy),
            books,
            held: AtomicU64::new(0),
        }
    }

    fn check(&self) -> impl FnMut() + use<'_, M> {
        || {
            let held = self.held.load(Ordering::Relaxed);
            assert!(held <= MAX, "{held} bytes are held of {MAX}");
        }
    }

    fn hold(&self, charges: &mut Vec<Charge<M>>, charge: Charge<M>) {
        self.held.fetch_add(charge.bytes(), Ordering::Relaxed);
        charges.push(charge);
    }

    fn release(&self, charge: Charge<M>) {
        self.held.fetch_sub(charge.bytes(), Ordering::Relaxed);
        drop(charge);
    }

    /// Gives back all but the first bytes, if the query was asked to.
    fn spill(&self, told: &Told, charges: &mut Vec<Charge<M>>) {
        if told.kind == Kind::Silent {
            return;
        }
        let asked = std::mem::take(&mut *locked(&told.asked));
        if asked.is_empty() {
            return;
        }
        let mut freed = 0;
        while charges.len() > 1
            && let Some(charge) = charges.pop()
        {
            freed += charge.bytes();
            self.release(charge);
        }
        told.spillable.store(0, Ordering::Relaxed);
        for answer in asked {
            match freed {
                0 => answer.cannot(),
                freed => answer.freed(freed),
            }
        }
    }

    /// Grows by a step. `None` if the query was asked to spill meanwhile.
    fn grow(&self, grant: &Grant<M>, told: &Told) -> Option<Result<Charge<M>, GrowError>> {
        let mut grow = grant.grow(STEP);
        loop {
            let polled = executor::wait::<M, _>(Patience::UntilWoken, |context| {
                *locked(&told.waker) = Some(context.waker().clone());
                if told.kind == Kind::Spills && !locked(&told.asked).is_empty() {
                    return Poll::Ready(None);
                }
                Future::poll(Pin::new(&mut grow), context).map(Some)
            });
            if let Some(answer) = polled {
                return answer;
            }
        }
    }

    /// Runs a query once. Returns whether it is done.
    fn attempt(&self, tenant: usize, name: String, nth: u32, kind: Kind, score: i32) -> bool {
        // It knows what it needs once it has failed.
        let asked = if nth == 1 { FIRST } else { ALL };
        let ask = Ask::new(&self.books.groups[tenant], name);
        let ask = ask.least(asked, 0).wanted(asked).score(score);
        let grant =
            executor::block_on::<M, _>(self.arbiter.admit(ask)).expect("it fits when others end");
        let told = Arc::new(Told {
            kind,
            spillable: AtomicU64::new(0),
            asked: Mutex::new(Vec::new()),
            waker: Mutex::new(None),
        });
        if kind != Kind::None {
            grant.attach(told.clone());
        }
        let mut charges = Vec::new();
        let mut is_done = false;
        let first = grant.group().try_charge(FIRST).expect("it was promised");
        self.hold(&mut charges, first);
        while !is_done {
            match self.grow(&grant, &told) {
                Some(Ok(charge)) => {
                    self.hold(&mut charges, charge);
                    told.spillable.store(STEP, Ordering::Relaxed);
                }
                None => {}
                Some(Err(GrowError::Stopped(_) | GrowError::NobodyYields { .. })) => break,
                Some(Err(error)) => panic!("{error}"),
            }
            let held: u64 = charges.iter().map(Charge::bytes).sum();
            is_done = held == ALL;
            self.spill(&told, &mut charges);
        }
        for charge in charges {
            self.release(charge);
        }
        drop(grant);
        is_done
    }
}

pub(super) fn scenario<M: Watched>(machine: &M, seed: u64) {
    /// A query that failed twice had what it needs the second time.
    const TRIES_MAX: u32 = 2;
    let arbitrating = Arbitrating::new(machine, seed);
    let all = &arbitrating;
    let query = move |mut random: Random| {
        let tenant = 1 + random.below(2) as usize;
        let kind = match random.below(5) {
            0 => Kind::None,
            1 => Kind::Lies,
            2 => Kind::Silent,
            _ => Kind::Spills,
        };
        let score = random.below(2) as i32;
        let name = random.number();
        let is_done = (1..=TRIES_MAX)
            .any(|nth| all.attempt(tenant, format!("q{name}-{nth}"), nth, kind, score));
        assert!(is_done, "it fits alone, and asked for all that it needs");
    };
    let tick = move |mut random: Random| {
        for _ in 0..random.below(3) {
            all.arbiter.tick();
        }
    };
    run(
        machine,
        seed,
        all.check(),
        tasks![query, query, query, tick],
    );
    let shown = arbitrating.arbiter.admissions();
    assert!(
        shown.grants.is_empty() && shown.waiting.is_empty(),
        "{shown:?}"
    );
    for decision in arbitrating.arbiter.decisions() {
        assert!(!decision.query.is_empty(), "{decision:?}");
    }
    arbitrating.books.check_empty();
}
