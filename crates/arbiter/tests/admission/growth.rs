//! Queries that run and need more: who waits, who is asked, who is stopped.

use std::future::Future;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use bursar::{Charge, Group, Limits, Machine, Memory};
use bursar_arbiter::{
    Answer, Arbiter, Ask, DecisionKind, Engine, Grant, Grow, GrowError, NotWidened, Order, Policy,
    Room, Stop, VictimOrder,
};

use super::common::{MIB, Woken, arbiter, ask, granted, tenant, timeless, waits};

/// Policy in which each step may be taken at once, and each query has all time for it.
pub fn at_once() -> Policy {
    let mut policy = timeless();
    policy.yielding.ask_after = Duration::ZERO;
    policy.yielding.stop_after = Duration::ZERO;
    policy.yielding.ask_max = Duration::MAX;
    policy.yielding.stop_max = Duration::MAX;
    policy.yielding.passed_max = Duration::MAX;
    policy
}

/// The same, and no query has time for it.
pub fn impatient() -> Policy {
    let mut policy = at_once();
    policy.yielding.ask_max = Duration::ZERO;
    policy.yielding.stop_max = Duration::ZERO;
    policy
}

/// An engine whose answers the test gives.
#[derive(Default)]
pub struct Told {
    reclaimable: AtomicU64,
    asked: Mutex<Vec<(u64, Answer)>>,
    stopped: Mutex<Option<Arc<Stop>>>,
    panics: AtomicBool,
}

impl Told {
    pub fn new(reclaimable_mib: u64) -> Arc<Self> {
        Arc::new(Self {
            reclaimable: AtomicU64::new(reclaimable_mib * MIB),
            ..Self::default()
        })
    }

    fn panicking() -> Arc<Self> {
        let told = Self::new(10);
        told.panics.store(true, Ordering::SeqCst);
        told
    }

    /// The bytes of the only ask, and its answer.
    pub fn asked(&self) -> (u64, Answer) {
        let mut asked = self.asked.lock().unwrap();
        assert_eq!(asked.len(), 1, "asked once");
        asked.pop().unwrap()
    }

    pub fn is_idle(&self) -> bool {
        self.asked.lock().unwrap().is_empty() && self.stopped.lock().unwrap().is_none()
    }

    pub fn is_stopped(&self) -> bool {
        self.stopped.lock().unwrap().is_some()
    }
}

impl Engine for Told {
    fn reclaimable(&self) -> u64 {
        self.reclaimable.load(Ordering::SeqCst)
    }

    fn ask(&self, bytes: u64, answer: Answer) {
        assert!(!self.panics.load(Ordering::SeqCst), "by design");
        self.asked.lock().unwrap().push((bytes, answer));
    }

    fn stop(&self, stop: &Arc<Stop>) {
        assert!(!self.panics.load(Ordering::SeqCst), "by design");
        *self.stopped.lock().unwrap() = Some(stop.clone());
    }
}

pub fn poll_grow<M: Machine>(grow: &mut Grow<M>) -> Poll<Result<Charge<M>, GrowError>> {
    Pin::new(grow).poll(&mut Context::from_waker(Waker::noop()))
}

pub fn poll_room<M: Machine>(room: &mut Room<M>) -> Poll<Result<(), GrowError>> {
    Pin::new(room).poll(&mut Context::from_waker(Waker::noop()))
}

/// Polls a query that must wait.
pub fn grows_later<M: Machine>(mut grow: Grow<M>) -> Grow<M> {
    assert!(poll_grow(&mut grow).is_pending(), "{grow:?} must wait");
    grow
}

pub fn grown<M: Machine>(grow: &mut Grow<M>) -> Charge<M> {
    match poll_grow(grow) {
        Poll::Ready(Ok(charge)) => charge,
        other => panic!("{grow:?}: {other:?}"),
    }
}

pub fn denied<M: Machine>(grow: &mut Grow<M>) -> GrowError {
    match poll_grow(grow) {
        Poll::Ready(Err(error)) => error,
        other => panic!("{grow:?}: {other:?}"),
    }
}

/// A query that was admitted with so many MiB and has charged them.
pub fn running<M: Machine>(
    arbiter: &Arbiter<M>,
    name: &str,
    score: i32,
    mib: u64,
) -> (Grant<M>, Charge<M>) {
    let acme = arbiter.memory().root().children().into_iter().next();
    let acme = acme.unwrap_or_else(|| tenant(arbiter, "acme", u64::MAX));
    let ask = ask(&acme, name, mib).score(score);
    runs(arbiter, ask, mib)
}

/// A query that was admitted and has charged so many MiB.
pub fn runs<M: Machine>(arbiter: &Arbiter<M>, ask: Ask<M>, mib: u64) -> (Grant<M>, Charge<M>) {
    let grant = arbiter.try_admit(ask).unwrap();
    let charge = grant.try_charge(mib * MIB).unwrap();
    (grant, charge)
}

#[test]
fn who_needs_more_waits_until_another_ends() {
    let arbiter = arbiter(100, timeless());
    let (first, _held) = running(&arbiter, "first", 0, 50);
    let (second, bytes) = running(&arbiter, "second", 0, 50);
    let woken = Arc::new(Woken::default());
    let waker = Waker::from(woken.clone());
    let mut grow = first.grow(20 * MIB);
    let polled = Pin::new(&mut grow).poll(&mut Context::from_waker(&waker));
    assert!(polled.is_pending());
    drop(bytes);
    assert_eq!(woken.times(), 0, "they are promised to the other still");
    drop(second);
    assert_eq!(woken.times(), 1);
    assert_eq!(grown(&mut grow).bytes(), 20 * MIB);
    assert_eq!(arbiter.counts().growth_waits, 1);
}

#[test]
fn nobody_is_admitted_through_a_limit_that_one_who_runs_waits_for() {
    let arbiter = arbiter(100, timeless());
    let acme = tenant(&arbiter, "acme", u64::MAX);
    let (first, _held) = running(&arbiter, "first", 0, 50);
    let (second, bytes) = running(&arbiter, "second", 0, 40);
    let mut grow = grows_later(first.grow(20 * MIB));
    let mut small = waits(arbiter.admit(ask(&acme, "small", 5)));
    drop((bytes, second));
    let more = grown(&mut grow);
    let small = granted(&mut small);
    assert_eq!(arbiter.admissions().grants.len(), 2);
    drop((small, more));
}

#[test]
fn of_those_that_wait_the_higher_score_comes_first_and_then_who_began_first() {
    let arbiter = arbiter(100, timeless());
    let low = running(&arbiter, "low", 0, 20);
    let late = running(&arbiter, "late", 0, 20);
    let high = running(&arbiter, "high", 7, 20);
    let last = running(&arbiter, "last", 0, 40);
    let mut grows = [&late, &low, &high].map(|(grant, _)| grows_later(grant.grow(40 * MIB)));
    drop(last);
    assert!(poll_grow(&mut grows[0]).is_pending() && poll_grow(&mut grows[1]).is_pending());
    let more = grown(&mut grows[2]);
    drop((more, high));
    assert!(poll_grow(&mut grows[0]).is_pending());
    drop(grown(&mut grows[1]));
}

#[test]
fn who_gives_up_or_ends_is_in_nobodys_way() {
    let arbiter = arbiter(100, timeless());
    let (first, _first) = running(&arbiter, "first", 9, 30);
    let (second, _second) = running(&arbiter, "second", 0, 30);
    let (third, third_bytes) = running(&arbiter, "third", 9, 20);
    let _runs_on = running(&arbiter, "runs-on", 0, 20);
    let gives_up = grows_later(first.grow(60 * MIB));
    let mut ends = grows_later(third.grow(60 * MIB));
    let mut waits_on = grows_later(second.grow(10 * MIB));
    drop(gives_up);
    let widener = third.widener();
    drop((third_bytes, third));
    assert_eq!(denied(&mut ends), GrowError::Ended);
    assert_eq!(denied(&mut widener.grow(1)), GrowError::Ended);
    drop(grown(&mut waits_on));
}

#[test]
fn one_who_comes_later_in_the_order_is_asked_for_what_is_missing_and_what_it_gives_is_not_promised_to_it()
 {
    let arbiter = arbiter(100, at_once());
    let (first, _held) = running(&arbiter, "first", 0, 50);
    let (second, bytes) = running(&arbiter, "second", 0, 50);
    let engines = [Told::new(50), Told::new(30)];
    first.attach(engines[0].clone());
    second.attach(engines[1].clone());
    let mut grow = grows_later(first.grow(20 * MIB));
    assert!(engines[0].is_idle(), "it is the first in the order");
    let (asked, answer) = engines[1].asked();
    assert_eq!(asked, 20 * MIB);
    // Nobody else is asked while the answer is expected.
    arbiter.tick();
    assert!(engines[1].is_idle());
    drop(bytes);
    let _rest = second.try_charge(25 * MIB).unwrap();
    answer.freed(25 * MIB);
    drop(grown(&mut grow));
    assert!(second.bytes() < 50 * MIB);
    let decision = arbiter.decisions().pop().unwrap();
    assert_eq!(decision.kind, DecisionKind::Ask);
    assert_eq!(
        (&*decision.query, &*decision.needed_by, &*decision.limited),
        ("/acme/second", "/acme/first", "/")
    );
    assert_eq!((decision.missing, decision.charged), (20 * MIB, 50 * MIB));
    assert_eq!(
        (decision.said, decision.seen),
        (Some(25 * MIB), Some(25 * MIB))
    );
}

#[test]
fn who_cannot_or_lies_is_not_asked_again_before_it_has_grown() {
    for said in [0, 1 << 40] {
        let mut policy = at_once();
        policy.yielding.stop_after = Duration::MAX;
        let arbiter = arbiter(100, policy);
        let (first, _held) = running(&arbiter, "first", 0, 50);
        let (second, _bytes) = running(&arbiter, "second", 0, 40);
        let told = Told::new(40);
        second.attach(told.clone());
        let grow = grows_later(first.grow(20 * MIB));
        told.asked().1.freed(said);
        arbiter.tick();
        assert!(told.is_idle());
        let decision = arbiter.decisions().pop().unwrap();
        assert_eq!((decision.said, decision.seen), (Some(said), Some(0)));
        drop(grow);
        let _more = second.try_charge(10 * MIB).unwrap();
        let _grow = grows_later(first.grow(20 * MIB));
        told.asked().1.cannot();
        assert_eq!(arbiter.counts().asked_in_vain, 2);
    }
}

#[test]
fn silence_and_panics_are_time_outs_and_the_next_step_follows() {
    for told in [Told::new(50), Told::panicking()] {
        let arbiter = arbiter(100, impatient());
        let (first, _held) = running(&arbiter, "first", 0, 50);
        let (second, bytes) = running(&arbiter, "second", 0, 50);
        second.attach(told.clone());
        let mut grow = grows_later(first.grow(20 * MIB));
        arbiter.tick();
        assert_eq!(arbiter.counts().asked, 1);
        assert_eq!(arbiter.counts().stopped, 1);
        assert_eq!(told.is_stopped(), !told.panics.load(Ordering::SeqCst));
        drop((bytes, second));
        drop(grown(&mut grow));
    }
}

#[test]
fn a_second_victim_is_not_stopped_before_the_first_is_gone_or_its_time_is_over() {
    let [patient, hasty] = [at_once(), impatient()].map(|policy| {
        let arbiter = arbiter(100, policy);
        let (first, _held) = running(&arbiter, "first", 0, 40);
        let others = ["second", "third"].map(|name| running(&arbiter, name, 0, 30));
        let told = [Told::new(0), Told::new(0)];
        for ((grant, _), told) in others.iter().zip(&told) {
            grant.attach(told.clone());
        }
        let _grow = grows_later(first.grow(20 * MIB));
        assert!(told[1].is_stopped() && told[0].is_idle(), "the youngest");
        arbiter.tick();
        arbiter.tick();
        told[0].is_stopped()
    });
    assert!(!patient && hasty);
}

#[test]
fn a_victim_that_waits_itself_is_told_by_its_wait_and_the_error_names_the_decision() {
    let arbiter = arbiter(100, timeless());
    let (first, _held) = running(&arbiter, "first", 0, 60);
    let (second, bytes) = running(&arbiter, "second", 0, 40);
    // No engines: all that could end the shortage wait.
    let mut later = grows_later(second.grow(10 * MIB));
    let mut grow = grows_later(first.grow(10 * MIB));
    let stopped = denied(&mut later);
    let GrowError::Stopped(stop) = &stopped else {
        panic!("{stopped:?}");
    };
    let decision = arbiter.decisions().pop().unwrap();
    assert_eq!(
        (decision.kind, stop.decision),
        (DecisionKind::Stop, decision.number)
    );
    assert_eq!(
        stopped.to_string(),
        "/acme/second was stopped with 40.0 MiB, because /acme/first needed 10.0 MiB more below the limit of / (decision 1)"
    );
    // It does not come back, and it is too late to go first.
    assert_eq!(denied(&mut second.grow(1)), stopped);
    let too_late = second.grow_first().unwrap_err();
    assert_eq!(GrowError::Stopped(too_late), stopped);
    drop((bytes, second));
    drop(grown(&mut grow));
}

#[test]
fn who_cannot_run_again_is_first_and_no_victim_and_who_never_fits_is_refused_at_once() {
    let arbiter = arbiter(100, timeless());
    let (first, _held) = running(&arbiter, "first", 9, 60);
    let (second, _bytes) = running(&arbiter, "second", 0, 40);
    let error = denied(&mut first.grow(50 * MIB));
    assert!(
        matches!(error, GrowError::NeverFits { max, .. } if max == 100 * MIB),
        "{error}"
    );
    second.grow_first().unwrap();
    let mut last_try = grows_later(second.grow(10 * MIB));
    assert!(matches!(
        denied(&mut first.grow(10 * MIB)),
        GrowError::Stopped(_)
    ));
    drop((_held, first));
    drop(grown(&mut last_try));
}

#[test]
fn waits_for_room_share_a_promise_that_the_grant_keeps_and_charge_nothing() {
    let arbiter = arbiter(100, timeless());
    let (first, _held) = running(&arbiter, "first", 0, 50);
    let (second, bytes) = running(&arbiter, "second", 0, 50);
    let mut rooms = [first.widener(), first.widener()].map(|it| it.wait_for_room(20 * MIB));
    for room in &mut rooms {
        assert!(poll_room(room).is_pending());
    }
    drop((bytes, second));
    for room in &mut rooms {
        assert_eq!(poll_room(room), Poll::Ready(Ok(())));
    }
    drop(rooms);
    assert_eq!(
        (
            first.bytes(),
            first.group().reserved(),
            first.group().peak()
        ),
        (70 * MIB, 50 * MIB, 50 * MIB)
    );
    // Somebody who waits does not get it.
    let acme = first.group().parent().unwrap();
    let _waits = waits(arbiter.admit(ask(&acme, "waits", 40)));
    arbiter.tick();
    assert_eq!(first.bytes(), 70 * MIB);
    drop(first.try_charge(20 * MIB).unwrap());
}

#[test]
fn a_wait_for_room_ends_when_its_time_is_over() {
    let mut policy = timeless();
    policy.yielding.room_max = Duration::ZERO;
    let arbiter = arbiter(100, policy);
    let (first, _held) = running(&arbiter, "first", 0, 50);
    let (_second, _bytes) = running(&arbiter, "second", 0, 50);
    let mut room = first.widener().wait_for_room(20 * MIB);
    assert_eq!(
        poll_room(&mut room),
        Poll::Ready(Err(GrowError::TimedOut { bytes: 20 * MIB }))
    );
}

#[test]
fn a_victim_that_does_not_stop_counts_as_one_that_does_not_end() {
    let arbiter = arbiter(100, impatient());
    let (first, _held) = running(&arbiter, "first", 0, 60);
    let (second, _bytes) = running(&arbiter, "second", 0, 40);
    let engine = Told::new(0);
    second.attach(engine.clone());
    let mut grow = grows_later(first.grow(10 * MIB));
    assert!(engine.is_stopped());
    // Its time is over, and nobody else can yield.
    arbiter.tick();
    let error = denied(&mut grow);
    assert!(matches!(error, GrowError::NobodyYields { .. }), "{error}");
}

#[test]
fn a_request_that_cannot_spill_takes_what_is_there_unless_one_before_it_waits_for_long() {
    for (passed_max, score, may) in [
        (Duration::MAX, 9, true),
        (Duration::ZERO, 9, false),
        (Duration::ZERO, -9, true),
    ] {
        let mut policy = timeless();
        policy.yielding.passed_max = passed_max;
        let arbiter = arbiter(100, policy);
        let (first, _held) = running(&arbiter, "first", 0, 40);
        let (second, _bytes) = running(&arbiter, "second", score, 30);
        let acme = first.group().parent().unwrap();
        let _waits = waits(arbiter.admit(ask(&acme, "waits", 60)));
        assert_eq!(first.widener().widen(5 * MIB), Err(NotWidened::OthersWait));
        let before_asks = first.widener().before_asks();
        assert_eq!(before_asks.widen(5 * MIB), Ok(45 * MIB));
        let _grows = grows_later(second.grow(40 * MIB));
        let more = before_asks.widen(10 * MIB);
        assert_eq!(more.is_ok(), may, "{more:?}");
    }
}

#[test]
fn alone_with_bytes_that_no_grant_has_it_is_refused() {
    let arbiter = arbiter(100, timeless());
    let acme = tenant(&arbiter, "acme", u64::MAX);
    let (first, _held) = running(&arbiter, "first", 0, 60);
    let _outside = acme.try_charge(40 * MIB).unwrap();
    let error = denied(&mut first.grow(10 * MIB));
    assert!(
        matches!(error, GrowError::NobodyYields { missing, .. } if missing == 10 * MIB),
        "{error}"
    );
    assert_eq!(arbiter.decisions()[0].kind, DecisionKind::Refuse);
}

#[test]
fn no_victim_is_within_its_min_and_precedence_comes_before_score() {
    let arbiter = arbiter(100, at_once());
    let [acme, globex, initech] =
        ["acme", "globex", "initech"].map(|name| tenant(&arbiter, name, u64::MAX));
    // It has more than its part.
    let order = Order {
        precedence: 1,
        ..Order::default()
    };
    arbiter.set_order(&acme, order);
    globex.set_limits(Limits {
        min: 30 * MIB,
        ..Limits::none()
    });
    let first = arbiter.try_admit(ask(&acme, "first", 40)).unwrap();
    let _first = first.try_charge(40 * MIB).unwrap();
    let mut told = Vec::new();
    let mut held = Vec::new();
    for group in [&initech, &globex] {
        let grant = arbiter
            .try_admit(ask(group, "query", 30).score(-5))
            .unwrap();
        let engine = Told::new(0);
        grant.attach(engine.clone());
        held.push((grant.try_charge(30 * MIB).unwrap(), grant));
        told.push(engine);
    }
    let _grow = grows_later(first.grow(20 * MIB));
    assert!(told[0].is_stopped() && told[1].is_idle());
}

#[test]
fn the_largest_goes_first_if_the_policy_says_so() {
    let mut policy = at_once();
    policy.yielding.victim = VictimOrder::Largest;
    let arbiter = arbiter(100, policy);
    let (first, _held) = running(&arbiter, "first", 0, 40);
    let others = [("large", 40), ("small", 20)].map(|(name, mib)| running(&arbiter, name, 0, mib));
    let told = [Told::new(0), Told::new(0)];
    for ((grant, _), told) in others.iter().zip(&told) {
        grant.attach(told.clone());
    }
    let _grow = grows_later(first.grow(20 * MIB));
    assert!(told[0].is_stopped() && told[1].is_idle());
}

#[test]
fn below_a_limit_that_was_lowered_queries_spill_and_stop_until_it_holds() {
    let arbiter = arbiter(100, at_once());
    let (first, _held) = running(&arbiter, "first", 0, 50);
    let (second, bytes) = running(&arbiter, "second", 0, 50);
    let engines = [Told::new(0), Told::new(20)];
    first.attach(engines[0].clone());
    second.attach(engines[1].clone());
    arbiter.memory().root().set_max(60 * MIB);
    arbiter.tick();
    let (asked, answer) = engines[1].asked();
    assert_eq!(asked, 20 * MIB);
    answer.cannot();
    arbiter.tick();
    assert!(engines[1].is_stopped() && engines[0].is_idle());
    drop((bytes, second));
    arbiter.tick();
    assert!(engines[0].is_idle());
    assert_eq!(arbiter.decisions()[0].needed_by, "");
}

#[test]
fn an_answer_after_the_end_is_of_no_harm() {
    let arbiter = arbiter(100, at_once());
    let (first, _held) = running(&arbiter, "first", 0, 50);
    let (second, bytes) = running(&arbiter, "second", 0, 50);
    let told = Told::new(50);
    second.attach(told.clone());
    let mut grow = grows_later(first.grow(20 * MIB));
    let (_, answer) = told.asked();
    drop((bytes, second));
    drop(grown(&mut grow));
    answer.freed(50 * MIB);
    drop(arbiter);
    assert_eq!(
        Arc::strong_count(&told),
        1,
        "the arbiter keeps no engine of an ended grant"
    );
}

#[test]
fn a_charge_that_fits_never_waits_and_limits_on_the_way_refuse() {
    let arbiter = arbiter(100, timeless());
    let globex = tenant(&arbiter, "globex", 5);
    let inner = arbiter.try_admit(ask(&globex, "query", 5)).unwrap();
    let acme = tenant(&arbiter, "acme", u64::MAX);
    let first = arbiter.try_admit(ask(&acme, "first", 50)).unwrap();
    drop(grown(&mut first.grow(95 * MIB)));
    let error = denied(&mut inner.grow(6 * MIB));
    assert!(
        matches!(error, GrowError::NeverFits { ref limited, .. } if limited == "/globex"),
        "{error}"
    );
}

#[test]
fn a_query_inside_of_a_grant_never_waits() {
    let arbiter = arbiter(100, timeless());
    let (outer, _held) = running(&arbiter, "outer", 0, 60);
    let (_other, _bytes) = running(&arbiter, "other", 0, 40);
    drop(_held);
    let inner = arbiter.try_admit(ask(outer.group(), "inner", 20)).unwrap();
    let all = grown(&mut inner.grow(60 * MIB));
    let error = denied(&mut inner.grow(MIB));
    assert!(
        matches!(error, GrowError::Nested { ref grant, left: 0 } if grant == "/acme/outer"),
        "{error}"
    );
    drop(all);
}

#[test]
fn the_promise_of_a_victim_is_of_use_too() {
    let arbiter = arbiter(100, timeless());
    let (first, _held) = running(&arbiter, "first", 0, 40);
    let acme = first.group().parent().unwrap();
    let second = arbiter.try_admit(ask(&acme, "second", 60)).unwrap();
    let bytes = second.try_charge(10 * MIB).unwrap();
    let mut later = grows_later(second.grow(55 * MIB));
    let mut grow = grows_later(first.grow(30 * MIB));
    assert!(matches!(denied(&mut later), GrowError::Stopped(_)));
    drop((bytes, second));
    drop(grown(&mut grow));
}

#[test]
fn bytes_that_are_promised_but_not_there_are_waited_for_too() {
    let arbiter = arbiter(100, at_once());
    let acme = tenant(&arbiter, "acme", u64::MAX);
    let first = arbiter.try_admit(ask(&acme, "first", 50)).unwrap();
    let _first = first.try_charge(20 * MIB).unwrap();
    let second = arbiter.try_admit(ask(&acme, "second", 50)).unwrap();
    let bytes = second.try_charge(40 * MIB).unwrap();
    let told = Told::new(40);
    second.attach(told.clone());
    arbiter.memory().root().set_max(60 * MIB);
    let mut grow = grows_later(first.grow(20 * MIB));
    let (asked, answer) = told.asked();
    assert_eq!(asked, 20 * MIB);
    drop(bytes);
    answer.freed(40 * MIB);
    drop(grown(&mut grow));
}

#[test]
fn an_answer_costs_no_promise_that_a_wait_rests_on() {
    // Bytes that were freed, and those that the engine says it gave back.
    for (freed, said) in [(0, 0), (5 * MIB, 5 * MIB), (5 * MIB, 0), (0, 5 * MIB)] {
        let arbiter = arbiter(100, at_once());
        let (first, _held) = running(&arbiter, "first", 0, 40);
        let acme = first.group().parent().unwrap();
        let second = arbiter.try_admit(ask(&acme, "second", 60)).unwrap();
        let mut bytes = second.try_charge(10 * MIB).unwrap();
        let told = Told::new(10);
        second.attach(told.clone());
        let _grow = grows_later(first.grow(20 * MIB));
        let (_, answer) = told.asked();
        let mut room = second.widener().wait_for_room(40 * MIB);
        assert!(matches!(poll_room(&mut room), Poll::Ready(Ok(()))));
        drop(bytes.split(freed).unwrap());
        answer.freed(said);
        let promised = match freed.min(said) {
            0 => 60 * MIB - freed,
            _ => 50 * MIB,
        };
        assert_eq!(second.bytes(), promised);
        let is_smaller = promised < 60 * MIB;
        assert_eq!(arbiter.counts().shrunk, u64::from(is_smaller));
        let charge = second.try_charge(40 * MIB);
        drop(charge.expect("there was room for it"));
    }
}

#[test]
fn room_that_was_used_and_given_back_is_for_who_waits() {
    let arbiter = arbiter(100, at_once());
    let (first, _held) = running(&arbiter, "first", 0, 40);
    let acme = first.group().parent().unwrap();
    let second = arbiter.try_admit(ask(&acme, "second", 60)).unwrap();
    let _used = second.try_charge(10 * MIB).unwrap();
    let mut room = second.widener().wait_for_room(40 * MIB);
    assert!(matches!(poll_room(&mut room), Poll::Ready(Ok(()))));
    let told = Told::new(50);
    second.attach(told.clone());
    let bytes = second.try_charge(50 * MIB).unwrap();
    let mut grow = grows_later(first.grow(20 * MIB));
    let (_, answer) = told.asked();
    drop(bytes);
    answer.freed(50 * MIB);
    assert_eq!(second.bytes(), 10 * MIB);
    drop(grown(&mut grow));
}

#[test]
fn room_that_is_promised_while_a_grant_is_lowered_is_kept() {
    let arbiter = arbiter(100, timeless());
    let acme = tenant(&arbiter, "acme", u64::MAX);
    let grant = arbiter.try_admit(ask(&acme, "query", 60)).unwrap();
    let _used = grant.try_charge(20 * MIB).unwrap();
    let widener = grant.widener();
    // Runs after the lower limit is set, and before the grant is lowered.
    let _reclaimer = grant.group().add_reclaimer(0, move |_| {
        let mut room = widener.wait_for_room(30 * MIB);
        assert!(matches!(poll_room(&mut room), Poll::Ready(Ok(()))));
        0
    });
    assert_eq!(grant.resize(10 * MIB), Ok(50 * MIB));
    drop(grant.try_charge(30 * MIB).unwrap());
}

#[test]
fn promises_to_the_waits_of_a_query_add_up_to_no_more_than_its_limit() {
    // The largest charge. 256 of them are more than a number holds.
    const LARGEST: u64 = 1 << 56;
    let max = u64::MAX - 1;
    let memory = Memory::builder().build().unwrap();
    let arbiter = Arbiter::new(&memory, timeless());
    let acme = memory.root().child("acme", Limits::max(max)).unwrap();
    let rest = Ask::new(&acme, "rest").least(max - MIB, 0);
    let rest = arbiter.try_admit(rest.wanted(max - MIB)).unwrap();
    let query = arbiter.try_admit(ask(&acme, "query", 1)).unwrap();
    let wait = |_| grows_later(query.grow(LARGEST));
    let mut waits: Vec<_> = (0..256).map(wait).collect();
    drop(rest);
    let _first = grown(&mut waits[0]);
    assert_eq!(query.bytes(), 255 * LARGEST);
    let error = denied(&mut waits[255]);
    assert!(matches!(error, GrowError::NobodyYields { .. }), "{error}");
}

/// An engine that answers while it is asked.
struct Cannot(Told);

impl Engine for Cannot {
    fn reclaimable(&self) -> u64 {
        self.0.reclaimable()
    }

    fn ask(&self, _: u64, answer: Answer) {
        answer.cannot();
    }

    fn stop(&self, stop: &Arc<Stop>) {
        self.0.stop(stop);
    }
}

#[test]
fn answers_while_they_are_asked_and_ends_wake_the_first_without_a_tick() {
    let arbiter = arbiter(100, at_once());
    let (first, _held) = running(&arbiter, "first", 0, 40);
    let others = ["second", "third"].map(|name| running(&arbiter, name, 0, 30));
    let engines = [(); 2].map(|()| {
        let told = Told::new(30);
        Arc::new(Cannot(Arc::into_inner(told).unwrap()))
    });
    for ((grant, _), engine) in others.iter().zip(&engines) {
        grant.attach(engine.clone());
    }
    let woken = Arc::new(Woken::default());
    let waker = Waker::from(woken.clone());
    let mut grow = first.grow(50 * MIB);
    let mut polls = 0;
    while polls <= woken.times() {
        polls += 1;
        let polled = Pin::new(&mut grow).poll(&mut Context::from_waker(&waker));
        assert!(polled.is_pending());
    }
    assert!(engines[1].0.is_stopped(), "after {polls} polls");
    let [second, third] = others;
    let times = woken.times();
    drop(third);
    assert!(woken.times() > times);
    assert!(poll_grow(&mut grow).is_pending());
    assert!(engines[0].0.is_stopped());
    drop(second);
    drop(grown(&mut grow));
}

#[test]
fn the_end_of_the_last_that_runs_lets_those_that_wait_decide() {
    let arbiter = arbiter(100, timeless());
    let (first, _first) = running(&arbiter, "first", 0, 40);
    let (second, second_bytes) = running(&arbiter, "second", 0, 40);
    let third = running(&arbiter, "third", 0, 20);
    let mut later = grows_later(second.grow(30 * MIB));
    let woken = Arc::new(Woken::default());
    let waker = Waker::from(woken.clone());
    let mut grow = first.grow(50 * MIB);
    let mut context = Context::from_waker(&waker);
    assert!(Pin::new(&mut grow).poll(&mut context).is_pending());
    drop(third);
    assert_eq!(woken.times(), 1);
    assert!(Pin::new(&mut grow).poll(&mut context).is_pending());
    assert!(matches!(denied(&mut later), GrowError::Stopped(_)));
    drop((second_bytes, second));
    drop(grown(&mut grow));
}

#[test]
fn one_that_waits_does_not_hide_that_a_limit_was_lowered() {
    let arbiter = arbiter(100, at_once());
    let (first, _first) = running(&arbiter, "first", 0, 50);
    let (last, _last) = running(&arbiter, "last", 0, 50);
    let told = Told::new(50);
    first.attach(told.clone());
    arbiter.memory().root().set_max(60 * MIB);
    let _grow = grows_later(last.grow(5 * MIB));
    arbiter.tick();
    assert_eq!(told.asked().0, 40 * MIB);
}

#[test]
fn a_wait_that_has_become_vain_ends() {
    let arbiter = arbiter(100, timeless());
    let (first, _first) = running(&arbiter, "first", 0, 60);
    let (second, _second) = running(&arbiter, "second", 0, 10);
    let _runs_on = running(&arbiter, "runs-on", 0, 30);
    let mut grow = grows_later(first.grow(30 * MIB));
    let mut closed = grows_later(second.grow(30 * MIB));
    arbiter.memory().root().set_max(80 * MIB);
    arbiter.tick();
    assert!(matches!(denied(&mut grow), GrowError::NeverFits { .. }));
    second.group().close().unwrap();
    arbiter.tick();
    assert!(matches!(denied(&mut closed), GrowError::Ended));
}

#[test]
fn tasks_of_one_query_are_promised_bytes_of_their_own() {
    let arbiter = arbiter(100, timeless());
    let (first, _first) = running(&arbiter, "first", 0, 40);
    let last = running(&arbiter, "last", 0, 60);
    let mut grows: Vec<Grow> = (0..6).map(|_| grows_later(first.grow(10 * MIB))).collect();
    drop(last);
    // Before any of them sees it.
    let promised = arbiter.admissions().grants[0].bytes;
    assert_eq!(promised, 100 * MIB);
    let charges: Vec<Charge> = grows.iter_mut().map(grown).collect();
    assert_eq!(first.bytes(), 100 * MIB);
    assert_eq!(arbiter.counts().widened, 6);
    drop(charges);
}

/// A query that has charged 50 MiB of 100, and another that has the rest.
fn beside_another() -> (Arbiter, [(Grant, Charge); 2]) {
    let arbiter = arbiter(100, at_once());
    let group = tenant(&arbiter, "t", u64::MAX);
    let both = ["first", "second"].map(|name| {
        let grant = arbiter.try_admit(ask(&group, name, 50)).unwrap();
        let charge = grant.try_charge(50 * MIB).unwrap();
        (grant, charge)
    });
    (arbiter, both)
}

#[test]
fn room_of_a_wait_that_was_dropped_goes_to_others() {
    let (arbiter, [first, second]) = beside_another();
    let group = first.0.group().parent().unwrap();
    let mut room = first.0.widener().wait_for_room(20 * MIB);
    assert!(poll_room(&mut room).is_pending());
    drop(second);
    drop(room);
    let mut next = arbiter.admit(ask(&group, "next", 40));
    let _ = Pin::new(&mut next).poll(&mut Context::from_waker(Waker::noop()));
    arbiter.tick();
    drop(granted(&mut next));
}

#[test]
fn the_largest_wait_for_room_of_a_query_counts() {
    let (arbiter, [first, second]) = beside_another();
    let group = first.0.group().parent().unwrap();
    let mut rooms = [20, 5].map(|mib| first.0.widener().wait_for_room(mib * MIB));
    assert!(rooms.iter_mut().all(|room| poll_room(room).is_pending()));
    drop(second);
    let _next = waits(arbiter.admit(ask(&group, "next", 40)));
    arbiter.tick();
    assert!(rooms.iter_mut().all(|room| poll_room(room).is_ready()));
    arbiter.tick();
    drop(first.0.try_charge(20 * MIB).unwrap());
}

#[test]
fn room_that_is_there_at_once_is_kept() {
    let arbiter = arbiter(100, at_once());
    let group = tenant(&arbiter, "t", u64::MAX);
    let first = arbiter
        .try_admit(ask(&group, "first", 50).wanted(70 * MIB))
        .unwrap();
    let _held = first.try_charge(50 * MIB).unwrap();
    let mut room = first.widener().wait_for_room(20 * MIB);
    assert!(poll_room(&mut room).is_ready());
    let _next = waits(arbiter.admit(ask(&group, "next", 45)));
    arbiter.tick();
    drop(first.try_charge(20 * MIB).unwrap());
}

/// Returns which of two queries gets the next bytes. They are of different tenants below a limit of 128 MiB. The old one holds so many bytes, and the
/// young one 20 MiB.
fn served_first(root: u64, weights: [u32; 2], held: u64) -> &'static str {
    let arbiter = arbiter(1, timeless());
    arbiter.memory().root().set_max(root);
    let all = tenant(&arbiter, "all", 128);
    let tenants = ["old", "young"].map(|name| all.child(name, Limits::none()).unwrap());
    for (group, weight) in tenants.iter().zip(weights) {
        let order = Order {
            weight,
            ..Order::default()
        };
        arbiter.set_order(group, order);
    }
    let sizes = [held, 20 * MIB];
    let queries: Vec<(Grant, Charge)> = tenants
        .iter()
        .zip(sizes)
        .map(|(group, bytes)| {
            let ask = Ask::new(group, "query").least(bytes, 0).wanted(bytes);
            let grant = arbiter.try_admit(ask).unwrap();
            let charge = grant.try_charge(bytes).unwrap();
            (grant, charge)
        })
        .collect();
    let rest = 108 * MIB - held;
    let runs_on = Ask::new(&all, "runs-on").least(rest, 0).wanted(rest);
    let runs_on = arbiter.try_admit(runs_on).unwrap();
    let charge = runs_on.try_charge(rest).unwrap();
    // Room for one, and a tenant that only waits has no part.
    let more = rest - rest / 4;
    let mut grows = [0, 1].map(|at: usize| grows_later(queries[at].0.grow(more)));
    let asks = tenant(&arbiter, "asks", u64::MAX);
    let huge = Order {
        weight: 1_000_000,
        ..Order::default()
    };
    arbiter.set_order(&asks, huge);
    let mut asks = arbiter.admit(ask(&asks, "asks", 1));
    let _ = Pin::new(&mut asks).poll(&mut Context::from_waker(Waker::noop()));
    drop((charge, runs_on));
    let [old, young] = grows.each_mut().map(|grow| poll_grow(grow).is_ready());
    assert!(old != young, "room for one");
    if old { "old" } else { "young" }
}

#[test]
fn a_tenant_far_above_its_part_comes_later_in_steps_of_a_64th() {
    let root = 128 * MIB;
    for (root, weights, held, expected) in [
        // A part of 64 MiB and less than a step of 2 MiB.
        (root, [100, 100], 66 * MIB - 1, "old"),
        (root, [100, 100], 66 * MIB, "young"),
        // Parts of 96 and of 32 MiB.
        (root, [300, 100], 98 * MIB - 1, "old"),
        (root, [300, 100], 98 * MIB, "young"),
        (root, [100, 300], 34 * MIB - 1, "old"),
        (root, [100, 300], 34 * MIB, "young"),
        // Without a limit at the root, who has twice as much for its weight.
        (u64::MAX, [100, 100], 32 * MIB - 1, "old"),
        (u64::MAX, [100, 100], 32 * MIB, "young"),
        (u64::MAX, [200, 100], 63 * MIB, "old"),
        (u64::MAX, [200, 100], 64 * MIB, "young"),
    ] {
        let first = served_first(root, weights, held);
        assert_eq!(first, expected, "{root} {weights:?} {held}");
    }
}

#[test]
fn a_query_sees_whether_others_wait_for_a_limit_on_its_way() {
    let arbiter = arbiter(200, timeless());
    let [acme, umbrella] = ["acme", "umbrella"].map(|name| tenant(&arbiter, name, 50));
    let (first, _first) = runs(&arbiter, ask(&acme, "first", 30), 30);
    let (second, _second) = runs(&arbiter, ask(&acme, "second", 20), 20);
    let (beside, _beside) = runs(&arbiter, ask(&umbrella, "beside", 20), 20);
    let others_wait = || [&second, &beside].map(|grant| grant.widener().others_wait());
    assert_eq!(others_wait(), [false, false]);
    let waiting = waits(arbiter.admit(ask(&acme, "waiting", 10)));
    assert!(arbiter.try_admit(ask(&acme, "hasty", 1)).is_err());
    assert_eq!(others_wait(), [true, false]);
    assert_eq!(second.widener().widen(MIB), Err(NotWidened::OthersWait));
    drop(waiting);
    assert_eq!(others_wait(), [false, false]);
    assert_eq!(second.widener().widen(MIB), Err(NotWidened::NoRoom));
    assert_eq!(arbiter.counts().not_widened, 2);
    let _grow = grows_later(first.grow(10 * MIB));
    assert_eq!(others_wait(), [true, false]);
    assert_eq!(second.widener().widen(MIB), Err(NotWidened::OthersWait));
}

#[test]
fn a_limit_that_others_took_from_lets_a_query_go_on_when_exactly_enough_is_back() {
    let arbiter = arbiter(100, timeless());
    let cache = tenant(&arbiter, "cache", u64::MAX);
    let group = tenant(&arbiter, "t", u64::MAX);
    let (first, _held) = runs(&arbiter, ask(&group, "first", 60), 40);
    let _runs_on = arbiter.try_admit(ask(&group, "runs-on", 10)).unwrap();
    let mut taken = cache.try_charge(60 * MIB).unwrap();
    let mut grow = grows_later(first.grow(20 * MIB));
    // It has the promise, so bytes must be there.
    drop(taken.split(19 * MIB).unwrap());
    arbiter.tick();
    assert!(poll_grow(&mut grow).is_pending());
    drop(taken.split(MIB).unwrap());
    arbiter.tick();
    drop(grown(&mut grow));
    assert_eq!((first.bytes(), arbiter.counts().widened), (60 * MIB, 0));
}

#[test]
fn room_that_others_charged_is_waited_for_and_so_is_room_that_they_were_promised() {
    // Either the group has room and a limit above has none, or the other way round.
    for (promised, elsewhere) in [(60, 60), (40, 0)] {
        let arbiter = arbiter(100, timeless());
        let cache = tenant(&arbiter, "cache", u64::MAX);
        let group = tenant(&arbiter, "t", u64::MAX);
        let (first, _held) = runs(&arbiter, ask(&group, "first", promised), 40);
        let rest = arbiter.try_admit(ask(&group, "rest", 100 - promised));
        let _rest = rest.unwrap();
        let _taken = cache.try_charge(elsewhere * MIB).unwrap();
        let mut room = first.widener().wait_for_room(20 * MIB);
        assert!(poll_room(&mut room).is_pending());
    }
}

#[test]
fn a_query_without_a_limit_grows_and_stays_without_one() {
    let arbiter = arbiter(100, timeless());
    arbiter.memory().root().set_max(u64::MAX);
    let acme = tenant(&arbiter, "acme", u64::MAX);
    let (first, _held) = runs(&arbiter, ask(&acme, "first", 40), 40);
    let _runs_on = arbiter.try_admit(ask(&acme, "runs-on", 1)).unwrap();
    let outside = acme.try_charge(20 * MIB).unwrap();
    acme.set_max(80 * MIB);
    let mut grow = grows_later(first.grow(30 * MIB));
    drop(outside);
    arbiter.tick();
    drop(grown(&mut grow));
    assert_eq!((first.bytes(), arbiter.counts().widened), (u64::MAX, 0));
}

#[test]
fn who_runs_elsewhere_keeps_no_shortage_waiting_and_is_not_expected_to_mend_it() {
    let mut policy = timeless();
    policy.yielding.ask_max = Duration::MAX;
    policy.yielding.stop_max = Duration::MAX;
    policy.yielding.ask_after = Duration::from_secs(3600);
    policy.yielding.stop_after = Duration::from_secs(3600);
    let arbiter = arbiter(200, policy);
    let [acme, umbrella] = ["acme", "umbrella"].map(|name| tenant(&arbiter, name, 50));
    let run = |group: &Group, name, mib| runs(&arbiter, ask(group, name, mib), mib);
    // A query of the other tenant is told to stop.
    let (_other, _o) = run(&umbrella, "other", 30);
    let (victim, _v) = run(&umbrella, "victim", 20);
    let mut victims = grows_later(victim.grow(10 * MIB));
    let _others = grows_later(_other.grow(10 * MIB));
    assert!(matches!(denied(&mut victims), GrowError::Stopped(_)));
    let _runs_on = run(&umbrella.parent().unwrap(), "runs-on", 40);
    let (first, _f) = run(&acme, "first", 30);
    let (second, _s) = run(&acme, "second", 20);
    let mut later = grows_later(second.grow(10 * MIB));
    let _grow = grows_later(first.grow(10 * MIB));
    assert!(matches!(denied(&mut later), GrowError::Stopped(_)));
    let needs: Vec<_> = arbiter
        .decisions()
        .into_iter()
        .map(|one| (one.needed_by, one.limited, one.query))
        .collect();
    let of = |tenant: &str, first: &str, second: &str| {
        (
            format!("/{tenant}/{first}"),
            format!("/{tenant}"),
            format!("/{tenant}/{second}"),
        )
    };
    let expected = [
        of("umbrella", "other", "victim"),
        of("acme", "first", "second"),
    ];
    assert_eq!(needs, expected);
}

#[test]
fn each_limit_has_the_needs_of_its_own_queries() {
    let arbiter = arbiter(200, at_once());
    let tenants = ["acme", "umbrella"].map(|name| tenant(&arbiter, name, 50));
    let run = |group: &Group, name, mib| runs(&arbiter, ask(group, name, mib), mib);
    let queries = tenants.each_ref().map(|group| {
        let [first, second] =
            [("first", 30), ("second", 20)].map(|(name, mib)| run(group, name, mib));
        let told = Told::new(0);
        second.0.attach(told.clone());
        (first, second, told)
    });
    let missing = [5, 7];
    let mut grows = Vec::new();
    for (((first, _), ..), mib) in queries.iter().zip(missing) {
        // Nothing is decided before both wait.
        let mut grow = first.grow(mib * MIB);
        assert!(poll_grow(&mut grow).is_pending());
        grows.push(grow);
    }
    let shown: Vec<_> = arbiter
        .decisions()
        .into_iter()
        .map(|one| (one.needed_by, one.missing / MIB))
        .collect();
    let expected = ["acme", "umbrella"].map(|name| format!("/{name}/first"));
    assert_eq!(shown, expected.into_iter().zip(missing).collect::<Vec<_>>());
}

#[test]
fn exactly_its_min_protects_a_tenant_and_a_byte_more_does_not() {
    for (min, charged, is_stopped) in [
        (30 * MIB, 30 * MIB, false),
        (30 * MIB - 1, 30 * MIB, true),
        (0, 30 * MIB, true),
        // It holds its promise.
        (0, 0, true),
    ] {
        let arbiter = arbiter(100, at_once());
        let globex = tenant(&arbiter, "globex", u64::MAX);
        let acme = tenant(&arbiter, "acme", u64::MAX);
        globex.set_min(min);
        let (first, _first) = runs(&arbiter, ask(&acme, "first", 20).score(1), 20);
        let (_rest, _held) = runs(&arbiter, ask(&acme, "rest", 50), 50);
        _rest.grow_first().unwrap();
        let order = Order {
            precedence: 1,
            ..Order::default()
        };
        arbiter.set_order(&acme, order);
        let victim = arbiter.try_admit(ask(&globex, "victim", 30)).unwrap();
        let _charge = victim.try_charge(charged).unwrap();
        let told = Told::new(0);
        victim.attach(told.clone());
        let _grow = grows_later(first.grow(20 * MIB));
        assert_eq!(told.is_stopped(), is_stopped, "{min} {charged}");
    }
}

#[test]
fn what_is_promised_above_a_lowered_limit_is_missing_too() {
    let arbiter = arbiter(100, at_once());
    let (first, _first) = running(&arbiter, "first", 0, 50);
    let acme = first.group().parent().unwrap();
    let (second, _second) = runs(&arbiter, ask(&acme, "second", 50), 30);
    let told = Told::new(30);
    second.attach(told.clone());
    // 80 MiB are charged, and 100 are promised.
    arbiter.memory().root().set_max(90 * MIB);
    let _grow = grows_later(first.grow(5 * MIB));
    assert_eq!(told.asked().0, 15 * MIB);
}

#[test]
fn a_query_that_was_stopped_and_does_not_end_is_not_asked() {
    let arbiter = arbiter(100, impatient());
    let (first, _held) = running(&arbiter, "first", 0, 50);
    let (second, _bytes) = running(&arbiter, "second", 0, 50);
    let told = Told::new(0);
    second.attach(told.clone());
    let _grow = grows_later(first.grow(20 * MIB));
    assert!(told.is_stopped());
    told.reclaimable.store(50 * MIB, Ordering::SeqCst);
    arbiter.tick();
    assert_eq!((arbiter.counts().asked, arbiter.counts().stopped), (0, 1));
}

/// An engine that lets the arbiter look while it is asked what it could give back.
struct Looks(Arc<Told>, Arbiter, AtomicBool);

impl Engine for Looks {
    fn reclaimable(&self) -> u64 {
        if !self.2.swap(true, Ordering::SeqCst) {
            self.1.tick();
            for (_, answer) in self.0.asked.lock().unwrap().drain(..) {
                answer.cannot();
            }
        }
        self.0.reclaimable()
    }

    fn ask(&self, bytes: u64, answer: Answer) {
        self.0.ask(bytes, answer);
    }

    fn stop(&self, stop: &Arc<Stop>) {
        self.0.stop(stop);
    }
}

#[test]
fn a_query_that_cannot_while_others_are_asked_what_they_could_is_not_asked_again() {
    let mut policy = at_once();
    policy.yielding.stop_after = Duration::MAX;
    let arbiter = arbiter(100, policy);
    let (first, _held) = running(&arbiter, "first", 0, 50);
    let (second, _bytes) = running(&arbiter, "second", 0, 50);
    let told = Told::new(50);
    let looks = Looks(told.clone(), arbiter.clone(), AtomicBool::new(false));
    second.attach(Arc::new(looks));
    let _grow = grows_later(first.grow(20 * MIB));
    assert!(told.is_idle());
    assert_eq!(
        (arbiter.counts().asked, arbiter.counts().asked_in_vain),
        (1, 1)
    );
}

#[test]
fn room_of_an_idle_query_that_it_has_not_seen_yet_is_kept() {
    let mut policy = at_once();
    policy.idle_after = Duration::ZERO;
    let arbiter = arbiter(100, policy);
    let (first, _held) = running(&arbiter, "first", 0, 50);
    let second = running(&arbiter, "second", 0, 50);
    let acme = first.group().parent().unwrap();
    let mut room = first.widener().wait_for_room(20 * MIB);
    assert!(poll_room(&mut room).is_pending());
    first.set_idle(true);
    drop(second);
    let _next = waits(arbiter.admit(ask(&acme, "next", 40)));
    assert_eq!(arbiter.admissions().grants[0].bytes, 70 * MIB);
    assert_eq!(poll_room(&mut room), Poll::Ready(Ok(())));
    drop(first.group().try_charge(20 * MIB).unwrap());
}

#[test]
fn room_stays_while_another_wait_of_its_query_is_dropped_and_goes_when_less_is_kept_anew() {
    let (arbiter, [first, second]) = beside_another();
    let group = first.0.group().parent().unwrap();
    drop(second);
    let mut room = first.0.widener().wait_for_room(20 * MIB);
    assert!(poll_room(&mut room).is_ready());
    // Nobody sees the end of any of these waits.
    let (_rest, rest) = runs(&arbiter, ask(&group, "rest", 30), 30);
    let mut large = first.0.widener().wait_for_room(40 * MIB);
    assert!(poll_room(&mut large).is_pending());
    drop(large);
    let grow = grows_later(first.0.grow(40 * MIB));
    drop(rest);
    _rest.resize(0).unwrap();
    arbiter.tick();
    assert_eq!(arbiter.admissions().grants[0].bytes, 90 * MIB);
    let mut next = waits(arbiter.admit(ask(&group, "next", 30)));
    drop(grow);
    arbiter.tick();
    assert_eq!(first.0.bytes(), 70 * MIB);
    drop(granted(&mut next));
    // The next room takes the place of the one before.
    let mut room = first.0.widener().wait_for_room(5 * MIB);
    assert!(poll_room(&mut room).is_ready());
    let mut next = waits(arbiter.admit(ask(&group, "next", 45)));
    arbiter.tick();
    assert_eq!(first.0.bytes(), 55 * MIB);
    drop(granted(&mut next));
}

#[test]
fn while_a_query_waits_others_lose_what_they_do_not_use() {
    let arbiter = arbiter(100, at_once());
    let (first, _held) = running(&arbiter, "first", 0, 50);
    let acme = first.group().parent().unwrap();
    let roomy = ask(&acme, "roomy", 10).wanted(50 * MIB);
    let (roomy, _used) = runs(&arbiter, roomy, 20);
    drop(grown(&mut first.grow(20 * MIB)));
    assert_eq!((roomy.bytes(), arbiter.counts().shrunk), (20 * MIB, 1));
}

#[test]
fn less_room_takes_the_place_of_more_though_another_wait_has_none_yet() {
    let (arbiter, [first, second]) = beside_another();
    let group = first.0.group().parent().unwrap();
    drop(second);
    let widener = first.0.widener();
    assert!(poll_room(&mut widener.wait_for_room(20 * MIB)).is_ready());
    let _rest = runs(&arbiter, ask(&group, "rest", 30), 30);
    let mut large = widener.wait_for_room(40 * MIB);
    assert!(poll_room(&mut large).is_pending());
    assert!(poll_room(&mut widener.wait_for_room(5 * MIB)).is_ready());
    arbiter.tick();
    assert_eq!(first.0.bytes(), 55 * MIB);
}

/// They return to the grant around it.
#[test]
fn bytes_that_a_grant_inside_of_another_left_are_not_expected_at_the_limits() {
    let arbiter = arbiter(100, at_once());
    let (first, _first) = running(&arbiter, "first", 0, 40);
    let second = ask(&first.group().parent().unwrap(), "second", 60);
    let second = arbiter.try_admit(second).unwrap();
    let told = Told::new(20);
    second.attach(told.clone());
    let inside = arbiter
        .try_admit(ask(second.group(), "inside", 20))
        .unwrap();
    let _left = inside.try_charge(20 * MIB).unwrap();
    drop(inside);
    let _second = second.try_charge(40 * MIB).unwrap();
    let _grow = grows_later(first.grow(20 * MIB));
    assert_eq!(told.asked().0, 20 * MIB);
}
