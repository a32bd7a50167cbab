//! Changes that time makes, at the moment itself and one nanosecond before it.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use bursar::Group;
use bursar_arbiter::{AdmitError, Arbiter, Ask, Grant, GrowError, Policy};

use super::clock::{Clock, timed, timed_with_real};
use super::common::{MIB, ask, granted, poll, refused, tenant, timeless, waits};
use super::growth::{
    Told, at_once, denied, grown, grows_later, impatient, poll_grow, poll_room, running, runs,
};

const STEP: Duration = Duration::from_millis(100);
const NS: Duration = Duration::from_nanos(1);

#[test]
fn an_ask_may_be_narrow_from_narrow_after_on_and_times_and_counts_are_shown() {
    let mut policy = timeless();
    policy.narrow_after = STEP;
    let (arbiter, clock) = timed(100, policy);
    let acme = tenant(&arbiter, "acme", 40);
    drop(arbiter.try_admit(ask(&acme, "before", 40)).unwrap());
    let _held = arbiter.try_admit(ask(&acme, "held", 30)).unwrap();
    let narrow = Ask::new(&acme, "narrow").least(4 * MIB, 4 * MIB);
    let mut narrow = waits(arbiter.admit(narrow.width(1..=8)));
    assert_eq!(arbiter.counts().waiting, 1);
    clock.pass(STEP - NS);
    assert!(poll(&mut narrow).is_pending());
    clock.pass(NS);
    let narrow = granted(&mut narrow);
    assert_eq!((narrow.width(), narrow.waited()), (1, STEP));
    clock.pass(NS);
    let shown = arbiter.admissions();
    let times: Vec<_> = shown.grants.iter().map(|it| (it.waited, it.age)).collect();
    assert_eq!(times, [(Duration::ZERO, STEP + NS), (STEP, NS)]);
    let counts = &shown.counts;
    // The others did not wait.
    assert_eq!((counts.admitted, counts.waited, counts.narrowed), (3, 1, 1));
    assert_eq!((counts.running(), counts.ended, counts.waiting), (2, 1, 0));
    drop(narrow);
    assert_eq!((arbiter.counts().running(), arbiter.counts().ended), (1, 2));
}

#[test]
fn patience_ends_at_its_moment_and_says_by_the_ends_of_grants_when_to_ask_again() {
    let (arbiter, clock) = timed(100, timeless());
    let acme = tenant(&arbiter, "acme", 40);
    let _held = arbiter.try_admit(ask(&acme, "held", 39)).unwrap();
    let retry_after = || match arbiter.try_admit(ask(&acme, "all", 40)) {
        Err(AdmitError::TimedOut { retry_after, .. }) => retry_after,
        other => panic!("{other:?}"),
    };
    // No grant has ended as yet, so it is a second for each that waits.
    assert_eq!(retry_after(), Duration::from_secs(1));
    let late = ask(&acme, "late", 40).patience(STEP);
    let mut late = waits(arbiter.admit(late));
    assert_eq!(retry_after(), Duration::from_secs(2));
    clock.pass(STEP - NS);
    assert!(poll(&mut late).is_pending());
    clock.pass(NS);
    let error = refused(&mut late);
    assert!(
        matches!(error, AdmitError::TimedOut { waited, .. } if waited == STEP),
        "{error}"
    );
    // The mean of about the last eight times between ends, of which there is none before the second end.
    let ends_after = |millis| {
        let ends = arbiter.try_admit(ask(&acme, "ends", 1)).unwrap();
        clock.pass(Duration::from_millis(millis));
        drop(ends);
        retry_after()
    };
    assert_eq!(ends_after(700), Duration::from_secs(1));
    let means = [800, 1600, 100].map(ends_after);
    // An eighth less, and an eighth of the last one more.
    let expected = [800_000, 900_000, 800_000].map(Duration::from_micros);
    assert_eq!(means, expected);
    let shortest_and_longest = [0, 1_000_000].map(|millis| {
        (0..200).for_each(|_| _ = ends_after(millis));
        retry_after()
    });
    let expected = [Duration::from_millis(10), Duration::from_secs(60)];
    assert_eq!(shortest_and_longest, expected);
}

#[test]
fn the_last_16_refusals_are_kept_with_their_ages() {
    let (arbiter, clock) = timed(100, timeless());
    let acme = tenant(&arbiter, "acme", 40);
    for number in 0..20 {
        let error = arbiter.try_admit(ask(&acme, &format!("{number}"), 41));
        assert!(error.is_err());
        clock.pass(NS);
        let shown = arbiter.admissions().refusals;
        let shown: Vec<_> = shown.into_iter().map(|it| (it.name, it.age)).collect();
        let first = (number + 1_u32).saturating_sub(16);
        let expected = (first..=number).map(|it| (format!("{it}"), NS * (number + 1 - it)));
        assert_eq!(shown, expected.collect::<Vec<_>>());
    }
}

#[test]
fn the_last_64_decisions_are_kept_with_their_ages() {
    let (arbiter, clock) = timed(100, timeless());
    let acme = tenant(&arbiter, "acme", u64::MAX);
    let (first, _held) = running(&arbiter, "first", 0, 60);
    let _outside = acme.try_charge(40 * MIB).unwrap();
    for number in 1..=70 {
        let error = denied(&mut first.grow(MIB));
        assert!(matches!(error, GrowError::NobodyYields { decision, .. } if decision == number));
        clock.pass(NS);
        let shown = arbiter.decisions();
        let shown: Vec<_> = shown.iter().map(|it| (it.number, it.age)).collect();
        let first = (number + 1).saturating_sub(64).max(1);
        let age = |it| Duration::from_nanos(number + 1 - it);
        let expected = (first..=number).map(|it| (it, age(it)));
        assert_eq!(shown, expected.collect::<Vec<_>>());
        assert_eq!(arbiter.counts().growth_refused, number);
    }
}

#[test]
fn memory_that_one_waits_for_goes_to_nobody_later_from_passed_max_on() {
    for (waited, may) in [(STEP - NS, true), (STEP, false)] {
        let mut policy = timeless();
        policy.yielding.passed_max = STEP;
        policy.yielding.ask_after = Duration::MAX;
        policy.yielding.stop_after = Duration::MAX;
        let (arbiter, clock) = timed(100, policy);
        let (first, _first) = running(&arbiter, "first", 0, 40);
        let (second, _second) = running(&arbiter, "second", 0, 30);
        let (_runs_on, mut charge) = running(&arbiter, "runs-on", 0, 30);
        let _large = grows_later(first.grow(40 * MIB));
        let mut small = grows_later(second.grow(10 * MIB));
        clock.pass(waited);
        drop(charge.split(20 * MIB).unwrap());
        _runs_on.resize(10 * MIB).unwrap();
        arbiter.tick();
        assert_eq!(poll_grow(&mut small).is_ready(), may);
        // Nor is it kept from the first by its own wait.
        drop(small);
        let before_asks = first.widener().before_asks();
        assert_eq!(before_asks.widen(10 * MIB), Ok(50 * MIB));
    }
}

/// Two queries, of which the second can give back 30 MiB, and the first needs 20.
struct Scene {
    arbiter: Arbiter<Clock>,
    clock: Clock,
    first: Grant<Clock>,
    second: Grant<Clock>,
    told: Arc<Told>,
    _charges: [bursar::Charge<Clock>; 2],
}

fn scene(policy: Policy, reclaimable: u64) -> Scene {
    let (arbiter, clock) = timed(100, policy);
    let (first, one) = running(&arbiter, "first", 0, 50);
    let (second, other) = running(&arbiter, "second", 0, 50);
    let told = Told::new(reclaimable);
    second.attach(told.clone());
    Scene {
        arbiter,
        clock,
        first,
        second,
        told,
        _charges: [one, other],
    }
}

#[test]
fn who_is_asked_has_ask_max_for_its_answer() {
    let mut policy = at_once();
    policy.yielding.ask_max = STEP;
    policy.yielding.stop_max = 2 * STEP;
    let scene = scene(policy, 30);
    let _grow = grows_later(scene.first.grow(20 * MIB));
    let (_, answer) = scene.told.asked();
    assert_eq!(answer.decision(), scene.arbiter.decisions()[0].number);
    scene.clock.pass(STEP - NS);
    scene.arbiter.tick();
    assert!(answer.is_expected() && scene.told.is_idle());
    assert_eq!(scene.arbiter.counts().unanswered, 0);
    scene.clock.pass(NS);
    assert!(!answer.is_expected());
    scene.arbiter.tick();
    assert!(scene.told.is_stopped());
    assert_eq!(scene.arbiter.counts().unanswered, 1);
    // That is another decision, so the answer is to nothing now.
    assert!(!answer.is_expected());
    answer.cannot();
    assert_eq!(scene.arbiter.decisions()[1].seen, None);
    scene.clock.pass(2 * STEP - NS);
    scene.arbiter.tick();
    assert_eq!(scene.arbiter.counts().unanswered, 1);
    scene.clock.pass(NS);
    scene.arbiter.tick();
    assert_eq!(scene.arbiter.counts().unanswered, 2);
}

#[test]
fn an_answer_to_an_earlier_ask_changes_nothing() {
    let mut policy = at_once();
    policy.yielding.ask_max = STEP;
    policy.yielding.stop_after = Duration::MAX;
    let mut scene = scene(policy, 30);
    let grow = grows_later(scene.first.grow(20 * MIB));
    let (_, late) = scene.told.asked();
    scene.clock.pass(STEP);
    scene.arbiter.tick();
    drop(grow);
    // It has grown, so it is asked once more.
    scene.arbiter.memory().root().set_max(110 * MIB);
    let _more = scene.second.try_charge(10 * MIB).unwrap();
    let bytes = scene.second.bytes();
    let _grow = grows_later(scene.first.grow(20 * MIB));
    let (_, answer) = scene.told.asked();
    assert!(late.decision() < answer.decision());
    drop(scene._charges[1].split(5 * MIB).unwrap());
    late.freed(5 * MIB);
    assert_eq!(scene.second.bytes(), bytes);
    assert!(answer.is_expected());
    answer.freed(5 * MIB);
    assert_eq!(scene.second.bytes(), bytes - 5 * MIB);
    let counts = scene.arbiter.counts();
    assert_eq!((counts.shrunk, counts.asked_in_vain), (1, 1));
    // It gave back something, so it is asked for the rest.
    scene.arbiter.tick();
    assert_eq!(scene.told.asked().0, 15 * MIB);
}

#[test]
fn bytes_that_a_victim_left_are_expected_until_stop_max_and_then_the_next_is_stopped() {
    let mut policy = at_once();
    policy.yielding.stop_max = STEP;
    let (arbiter, clock) = timed(100, policy);
    let (first, _first) = running(&arbiter, "first", 0, 40);
    let acme = first.group().parent().unwrap();
    let [(_second, kept), (third, left)] =
        ["second", "third"].map(|name| running(&arbiter, name, 0, 30));
    let told = [(); 2].map(|()| Told::new(0));
    _second.attach(told[0].clone());
    third.attach(told[1].clone());
    let _grow = grows_later(first.grow(20 * MIB));
    assert!(told[1].is_stopped());
    clock.pass(STEP / 2);
    drop(third);
    assert_eq!(arbiter.most(&acme), 100 * MIB);
    clock.pass(STEP - NS);
    arbiter.tick();
    assert!(told[0].is_idle());
    clock.pass(NS);
    arbiter.tick();
    assert!(told[0].is_stopped());
    drop((left, kept));
}

#[test]
fn bytes_that_were_left_at_another_limit_are_not_expected() {
    let (arbiter, _clock) = timed(100, at_once());
    let [acme, umbrella] = ["acme", "umbrella"].map(|name| tenant(&arbiter, name, 50));
    let run = |group: &Group<Clock>, name, mib| runs(&arbiter, ask(group, name, mib), mib);
    let (first, _first) = run(&acme, "first", 30);
    let (second, _second) = run(&acme, "second", 20);
    let told = Told::new(0);
    second.attach(told.clone());
    let (ended, _left) = run(&umbrella, "ended", 50);
    drop(ended);
    let _grow = grows_later(first.grow(20 * MIB));
    assert!(told.is_stopped());
}

#[test]
fn a_shortage_is_as_old_as_the_limit_is_exceeded() {
    let mut policy = timeless();
    policy.yielding.ask_after = STEP;
    policy.yielding.stop_after = Duration::MAX;
    let scene = scene(policy, 50);
    let root = scene.arbiter.memory().root();
    let tick = || {
        scene.arbiter.tick();
        !scene.told.is_idle()
    };
    // Exactly full is not too much, however long.
    assert!(!tick());
    scene.clock.pass(STEP);
    assert!(!tick());
    root.set_max(90 * MIB);
    assert!(!tick());
    scene.clock.pass(STEP - NS);
    assert!(!tick());
    // It holds for a moment, and somebody waits there.
    root.set_max(100 * MIB);
    let _grow = grows_later(scene.first.grow(20 * MIB));
    assert!(!tick());
    root.set_max(90 * MIB);
    scene.clock.pass(NS);
    assert!(!tick());
    drop(_grow);
    scene.clock.pass(STEP - NS);
    assert!(!tick());
    scene.clock.pass(NS);
    assert!(tick());
    assert_eq!(scene.told.asked().0, 10 * MIB);
}

#[test]
fn for_real_bytes_nobody_else_is_asked_before_stop_max_whatever_queries_wait_for() {
    let mut policy = at_once();
    policy.yielding.stop_max = STEP;
    policy.yielding.stop_after = Duration::MAX;
    let (arbiter, clock, taken) = timed_with_real(policy);
    let (first, _first) = running(&arbiter, "first", 0, 50);
    let (second, mut bytes) = running(&arbiter, "second", 0, 50);
    let told = Told::new(50);
    second.attach(told.clone());
    // An ask for a query is none for real bytes.
    let grow = grows_later(first.grow(20 * MIB));
    let (_, answer) = told.asked();
    drop(grow);
    drop(bytes.split(10 * MIB).unwrap());
    answer.freed(10 * MIB);
    taken.store(90, Ordering::SeqCst);
    arbiter.tick();
    let (asked, answer) = told.asked();
    assert_eq!(asked, 5 * MIB);
    drop(bytes.split(5 * MIB).unwrap());
    answer.freed(5 * MIB);
    // The system has it still.
    clock.pass(STEP - NS);
    arbiter.tick();
    assert!(told.is_idle());
    clock.pass(NS);
    arbiter.tick();
    assert_eq!(told.asked().0, 5 * MIB);
}

#[test]
fn a_limit_that_was_lowered_elsewhere_gives_real_bytes_no_rest() {
    let mut policy = at_once();
    policy.yielding.stop_after = Duration::MAX;
    let (arbiter, _clock, taken) = timed_with_real(policy);
    let acme = tenant(&arbiter, "acme", 50);
    let (second, mut bytes) = running(&arbiter, "second", 0, 50);
    let told = Told::new(50);
    second.attach(told.clone());
    acme.set_max(40 * MIB);
    arbiter.tick();
    let (_, answer) = told.asked();
    drop(bytes.split(10 * MIB).unwrap());
    answer.freed(10 * MIB);
    taken.store(90, Ordering::SeqCst);
    arbiter.tick();
    assert_eq!(told.asked().0, 5 * MIB);
}

#[test]
fn while_the_process_takes_too_much_a_query_that_runs_or_its_bytes_keep_others_out() {
    let mut policy = impatient();
    policy.idle_after = STEP;
    policy.yielding.stop_max = STEP;
    let (arbiter, clock, taken) = timed_with_real(policy);
    let group = tenant(&arbiter, "t", u64::MAX);
    taken.store(90, Ordering::SeqCst);
    arbiter.tick();
    let cursor = arbiter.try_admit(ask(&group, "cursor", 1)).unwrap();
    let mut next = waits(arbiter.admit(ask(&group, "next", 1)));
    cursor.set_idle(true);
    clock.pass(STEP - NS);
    arbiter.tick();
    assert!(poll(&mut next).is_pending());
    clock.pass(NS);
    arbiter.tick();
    let next = granted(&mut next);
    let bytes = next.try_charge(MIB).unwrap();
    drop((cursor, next));
    let mut last = waits(arbiter.admit(ask(&group, "last", 1)));
    drop(bytes);
    let last = granted(&mut last);
    let bytes = last.try_charge(MIB).unwrap();
    drop(last);
    // Tells nobody that it returns.
    bytes.release_nowait();
    let more = arbiter.try_admit(ask(&group, "more", 1)).unwrap();
    // A client may keep a row of a query that has ended.
    let _row = more.try_charge(1).unwrap();
    drop(more);
    let mut after = waits(arbiter.admit(ask(&group, "after", 1)));
    clock.pass(STEP);
    arbiter.tick();
    drop(granted(&mut after));
}

#[test]
fn a_grant_that_nobody_has_taken_stays_while_nobody_waits() {
    let mut policy = timeless();
    policy.idle_after = STEP;
    let (arbiter, clock) = timed(100, policy);
    let acme = tenant(&arbiter, "acme", 40);
    let held = arbiter.try_admit(ask(&acme, "held", 40)).unwrap();
    let mut lazy = waits(arbiter.admit(ask(&acme, "lazy", 40)));
    drop(held);
    clock.pass(STEP);
    arbiter.tick();
    assert_eq!(arbiter.counts().ended, 1);
    drop(granted(&mut lazy));
    // Somebody waits: from that moment on it goes back.
    let held = arbiter.try_admit(ask(&acme, "held", 40)).unwrap();
    let mut both = ["lazy", "eager"].map(|name| waits(arbiter.admit(ask(&acme, name, 40))));
    drop(held);
    clock.pass(STEP - NS);
    arbiter.tick();
    assert!(poll(&mut both[1]).is_pending());
    clock.pass(NS);
    arbiter.tick();
    drop(granted(&mut both[1]));
}

#[test]
fn a_forked_child_forgets_all_that_waits_and_their_futures_ask_anew() {
    let mut policy = at_once();
    policy.yielding.stop_after = Duration::MAX;
    let scene = scene(policy, 0);
    let (arbiter, clock) = (&scene.arbiter, &scene.clock);
    let acme = scene.first.group().parent().unwrap();
    let ask = |name: &str, mib| ask(&acme, name, mib).patience(STEP);
    let mut asks = ["one", "two"].map(|name| waits(arbiter.admit(ask(name, 10))));
    let mut grow = grows_later(scene.first.grow(20 * MIB));
    let mut room = scene.first.widener().wait_for_room(20 * MIB);
    assert!(poll_room(&mut room).is_pending());
    clock.fork();
    let shown = arbiter.admissions();
    assert_eq!((shown.waiting, shown.counts.waiting), (vec![], 0));
    assert!(!scene.first.widener().others_wait());
    // Their patience ends in the parent.
    clock.pass(2 * STEP);
    arbiter.tick();
    assert_eq!(arbiter.counts().timed_out, 0);
    assert!(asks.iter_mut().all(|ask| poll(ask).is_pending()));
    assert_eq!(arbiter.counts().waiting, 2);
    assert!(poll_grow(&mut grow).is_pending() && poll_room(&mut room).is_pending());
    assert!(scene.first.widener().others_wait());
    // Both grants are in the child as well, and end there.
    let Scene {
        second, _charges, ..
    } = scene;
    drop((second, _charges));
    drop(grown(&mut grow));
}

#[test]
fn a_grant_that_no_child_has_taken_ends() {
    let (arbiter, clock) = timed(100, timeless());
    let acme = tenant(&arbiter, "acme", 40);
    let held = arbiter.try_admit(ask(&acme, "held", 40)).unwrap();
    let mut first = waits(arbiter.admit(ask(&acme, "first", 40)));
    drop(held);
    clock.fork();
    assert_eq!(arbiter.admissions().grants, []);
    drop(granted(&mut first));
}
