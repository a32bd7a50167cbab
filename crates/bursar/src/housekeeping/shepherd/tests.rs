use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use bursar_machine::Host;

use super::*;

const HOUR_NS: u64 = 3_600_000_000_000;

/// Upkeep of any CPU, with a record of the calls.
#[derive(Default)]
struct Recorded {
    diffs: AtomicU64,
    pages: AtomicU64,
    calls: Mutex<Vec<&'static str>>,
    panics: AtomicBool,
}

impl Recorded {
    fn note(&self, call: &'static str) {
        self.calls.lock().expect("no panic").push(call);
    }

    fn calls(&self) -> Vec<&'static str> {
        std::mem::take(&mut self.calls.lock().expect("no panic"))
    }
}

impl Upkeep for Recorded {
    fn needs(&self, _: Shard) -> bool {
        self.diffs.load(Ordering::Relaxed) > 0
    }

    fn run(&self, _: Shard) -> bool {
        self.note("run");
        assert!(!self.panics.load(Ordering::Relaxed), "as planned");
        let folded = self.diffs.swap(0, Ordering::Relaxed) > 0;
        let left = self.pages.load(Ordering::Relaxed);
        self.pages.store(left.saturating_sub(1), Ordering::Relaxed);
        folded || left > 1
    }
}

/// Upkeep at once, and again in an hour.
#[derive(Debug)]
struct AtOnce;

impl Timetable for AtOnce {
    fn interval_ns(&self) -> u64 {
        HOUR_NS
    }

    fn first(&self, _: Place, now_ns: u64) -> u64 {
        now_ns
    }

    fn next(&self, _: Place, now_ns: u64) -> u64 {
        now_ns + HOUR_NS
    }
}

fn housekeeping<T: Timetable>(
    options: Options<T>,
) -> Result<Housekeeping<Host, Recorded, T>, HousekeepingError> {
    let machine = Host::start().expect("a host");
    Housekeeping::new(&machine, Recorded::default(), options)
}

fn at_once() -> Housekeeping<Host, Recorded, AtOnce> {
    housekeeping(Options::new(AtOnce)).expect("options that make sense")
}

fn round<T: Timetable>(housekeeping: &Housekeeping<Host, Recorded, T>) -> Vec<(Shard, u64)> {
    let mut queued = Vec::new();
    housekeeping.shepherd(|shard, due_ns| queued.push((shard, due_ns)));
    queued
}

#[test]
fn ranks_are_among_those_that_take_part() {
    let places: Vec<_> = places(6, &[0, 3, 3]).collect();
    let place = |cpu, rank| Some(Place { cpu, rank, of: 4 });
    assert_eq!(
        places,
        [
            None,
            place(1, 0),
            place(2, 1),
            None,
            place(4, 2),
            place(5, 3)
        ]
    );
    assert_eq!(super::places(1, &[0]).collect::<Vec<_>>(), [None]);
}

#[test]
fn work_is_queued_once_and_comes_again_while_there_is_any() {
    let housekeeping = at_once();
    let upkeep = housekeeping.upkeep();
    assert_eq!(round(&housekeeping), [], "nothing to do");
    upkeep.diffs.store(5, Ordering::Relaxed);
    let queued = round(&housekeeping);
    assert_eq!(queued.len(), housekeeping.cpus.len());
    assert_eq!(round(&housekeeping), [], "all are queued");
    assert_eq!(housekeeping.due(Shard(0)), Some(queued[0].1));
    assert_eq!(upkeep.calls(), [""; 0], "the shepherd only looks");

    upkeep.pages.store(2, Ordering::Relaxed);
    let again = housekeeping.fire(Shard(0)).expect("it had work");
    assert_eq!(upkeep.calls(), ["run"]);
    assert!(again >= queued[0].1 + HOUR_NS);
    assert_eq!(housekeeping.due(Shard(0)), Some(again));
    // Its time has not come, so it stays queued.
    assert_eq!(housekeeping.fire(Shard(0)), Some(again));
    assert_eq!(upkeep.calls(), [""; 0]);
}

#[test]
fn upkeep_ends_when_it_finds_nothing_and_begins_when_the_shepherd_does() {
    let housekeeping = at_once();
    let upkeep = housekeeping.upkeep();
    upkeep.diffs.store(1, Ordering::Relaxed);
    round(&housekeeping);
    // Another CPU's call has folded it.
    upkeep.diffs.store(0, Ordering::Relaxed);
    assert_eq!(housekeeping.fire(Shard(0)), None);
    assert_eq!(housekeeping.due(Shard(0)), None);
    assert_eq!(upkeep.calls(), ["run"]);
    assert_eq!(housekeeping.fire(Shard(0)), None, "nobody queued it");
    assert_eq!(upkeep.calls(), [""; 0]);
    upkeep.diffs.store(1, Ordering::Relaxed);
    let queued = round(&housekeeping);
    assert_eq!(queued[0].0, Shard(0));
    // Pages alone keep it coming.
    upkeep.diffs.store(0, Ordering::Relaxed);
    upkeep.pages.store(2, Ordering::Relaxed);
    assert!(housekeeping.fire(Shard(0)).is_some());
}

#[test]
fn a_call_that_unwinds_is_not_the_last() {
    let housekeeping = at_once();
    let upkeep = housekeeping.upkeep();
    upkeep.diffs.store(1, Ordering::Relaxed);
    upkeep.panics.store(true, Ordering::Relaxed);
    round(&housekeeping);
    let call = std::panic::AssertUnwindSafe(|| housekeeping.fire(Shard(0)));
    std::panic::catch_unwind(call).expect_err("as planned");
    upkeep.panics.store(false, Ordering::Relaxed);
    assert_eq!(round(&housekeeping)[0].0, Shard(0));
}

#[test]
fn isolated_cpus_are_left_alone() {
    let options = Options {
        timetable: AtOnce,
        isolated: vec![0],
        slack_ns: HOUR_NS - 1,
    };
    let housekeeping = housekeeping(options).expect("options that make sense");
    let upkeep = housekeeping.upkeep();
    upkeep.diffs.store(1, Ordering::Relaxed);
    let queued = round(&housekeeping);
    assert!(queued.iter().all(|(shard, _)| *shard != Shard(0)));
    let extra = Shard(housekeeping.cpus.len() as u32);
    for shard in [Shard(0), extra, Shard(u32::MAX)] {
        assert_eq!(housekeeping.fire(shard), None);
        assert_eq!(housekeeping.is_running(shard), None);
        assert!(!housekeeping.awake(shard));
    }
    assert_eq!(upkeep.calls(), [""; 0]);
}

#[test]
fn what_is_done_early_keeps_its_phase() {
    let mut options = Options::every(Duration::from_nanos(HOUR_NS));
    options.slack_ns = HOUR_NS - 1;
    let housekeeping = housekeeping(options).expect("options that make sense");
    let upkeep = housekeeping.upkeep();
    assert!(!housekeeping.awake(Shard(0)), "nothing is queued");
    upkeep.diffs.store(1, Ordering::Relaxed);
    let queued = round(&housekeeping);
    let first_ns = queued[0].1;
    assert_eq!(first_ns % HOUR_NS, 0);
    assert!(housekeeping.awake(Shard(0)));
    assert_eq!(upkeep.calls(), ["run"]);
    let due = housekeeping.due(Shard(0)).expect("it is queued still");
    assert_eq!(due, first_ns + HOUR_NS);
    assert!(!housekeeping.awake(Shard(0)), "more than the slack ahead");
    // The timer that was set for the first time.
    assert_eq!(housekeeping.fire(Shard(0)), Some(due));
    assert_eq!(upkeep.calls(), [""; 0]);
}

#[test]
fn without_slack_nothing_is_early() {
    let housekeeping = at_once();
    housekeeping.upkeep().diffs.store(1, Ordering::Relaxed);
    round(&housekeeping);
    assert!(!housekeeping.awake(Shard(0)));
}

#[test]
fn the_shepherd_comes_once_an_interval() {
    let second_ns = 1_000_000_000;
    let options = Options::every(Duration::from_secs(1));
    let housekeeping = housekeeping(options).expect("options that make sense");
    assert_eq!(housekeeping.shepherd_due(7_400_000_123), 8 * second_ns);
}

#[test]
fn settings_that_make_no_sense_are_refused() {
    let machine = Host::start().expect("a host");
    let cpus = machine.cpus();
    let cpu = cpus as u32;
    let hour = || Options::every(Duration::from_nanos(HOUR_NS));
    let mut isolated = hour();
    isolated.isolated = vec![cpu];
    let error = housekeeping(isolated).expect_err("no such CPU");
    assert_eq!(error, HousekeepingError::NoSuchCpu { cpu, cpus });
    let text = format!("CPU {cpu} cannot be isolated: there are {cpus} CPUs");
    assert_eq!(error.to_string(), text);
    let mut slack = hour();
    slack.slack_ns = HOUR_NS;
    assert!(matches!(
        housekeeping(slack),
        Err(HousekeepingError::SlackTooLong { .. })
    ));
    let none = Options::every(Duration::ZERO);
    let error = housekeeping(none).expect_err("no interval");
    assert_eq!(error, HousekeepingError::NoInterval);
}
