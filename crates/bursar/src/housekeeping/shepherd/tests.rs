use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use bursar_machine::Host;

use super::super::{Period, PeriodError};
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

    fn fold(&self, _: Shard) -> bool {
        self.note("fold");
        assert!(!self.panics.load(Ordering::Relaxed), "as planned");
        self.diffs.swap(0, Ordering::Relaxed) > 0
    }

    fn pages(&self, _: Shard) -> bool {
        self.note("pages");
        let left = self.pages.load(Ordering::Relaxed);
        self.pages.store(left.saturating_sub(1), Ordering::Relaxed);
        left > 1
    }
}

fn options(firing: Firing, interval_ns: u64) -> Options {
    let period = Period::new(interval_ns, 1_000).expect("a period");
    Options {
        firing,
        ..Options::new(period)
    }
}

fn housekeeping(options: Options) -> Result<Housekeeping<Host, Recorded>, HousekeepingError> {
    let machine = Host::start().expect("a host");
    Housekeeping::new(&machine, Recorded::default(), options)
}

/// Housekeeping that fires at once, and again in an hour.
fn at_once() -> Housekeeping<Host, Recorded> {
    let options = options(Firing::RoundJiffies { skew: 3 }, HOUR_NS);
    housekeeping(options).expect("options that make sense")
}

fn round(housekeeping: &Housekeeping<Host, Recorded>) -> Vec<(Shard, Timer)> {
    let mut queued = Vec::new();
    housekeeping.shepherd(|shard, timer| queued.push((shard, timer)));
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
    let again = housekeeping.fire(Shard(0)).expect("it folded");
    assert_eq!(upkeep.calls(), ["fold", "pages"]);
    assert!(again.deadline_ns > queued[0].1.deadline_ns + HOUR_NS / 2);
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
    assert_eq!(upkeep.calls(), ["fold", "pages"]);
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
fn quiet_folds_and_leaves_pages_and_timers_alone() {
    let housekeeping = at_once();
    let upkeep = housekeeping.upkeep();
    assert!(!housekeeping.quiet(Shard(0)));
    assert_eq!(upkeep.calls(), [""; 0]);
    upkeep.diffs.store(1, Ordering::Relaxed);
    let queued = round(&housekeeping);
    assert!(housekeeping.quiet(Shard(0)));
    assert_eq!(upkeep.calls(), ["fold"]);
    assert_eq!(housekeeping.due(Shard(0)), Some(queued[0].1));
}

#[test]
fn isolated_cpus_are_left_alone() {
    let mut options = options(Firing::RoundJiffies { skew: 3 }, HOUR_NS);
    options.isolated = vec![0];
    options.slack_ns = HOUR_NS - 1;
    let housekeeping = housekeeping(options).expect("options that make sense");
    let upkeep = housekeeping.upkeep();
    upkeep.diffs.store(1, Ordering::Relaxed);
    let queued = round(&housekeeping);
    assert!(queued.iter().all(|(shard, _)| *shard != Shard(0)));
    let extra = Shard(housekeeping.cpus.len() as u32);
    for shard in [Shard(0), extra, Shard(u32::MAX)] {
        assert_eq!(housekeeping.place(shard), None);
        assert_eq!(housekeeping.fire(shard), None);
        assert!(!housekeeping.quiet(shard) && !housekeeping.awake(shard));
    }
    assert_eq!(upkeep.calls(), [""; 0]);
}

#[test]
fn what_is_done_early_keeps_its_phase() {
    let mut options = options(Firing::PhaseGrid { exact: true }, HOUR_NS);
    options.slack_ns = HOUR_NS - 1;
    let housekeeping = housekeeping(options).expect("options that make sense");
    let upkeep = housekeeping.upkeep();
    assert!(!housekeeping.awake(Shard(0)), "nothing is queued");
    upkeep.diffs.store(1, Ordering::Relaxed);
    let queued = round(&housekeeping);
    let first_ns = queued[0].1.deadline_ns;
    assert_eq!(first_ns % HOUR_NS, 0);
    assert!(housekeeping.awake(Shard(0)));
    assert_eq!(upkeep.calls(), ["fold", "pages"]);
    let due = housekeeping.due(Shard(0)).expect("it is queued still");
    assert_eq!(due.deadline_ns, first_ns + HOUR_NS);
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
    let of = |firing| {
        let housekeeping = housekeeping(options(firing, second_ns)).expect("sense");
        housekeeping.shepherd_timer(7_400_000_123)
    };
    let grid = of(Firing::PhaseGrid { exact: true });
    assert_eq!(
        (grid.kind, grid.deadline_ns),
        (TimerKind::Exact, 8 * second_ns)
    );
    let rounded = of(Firing::RoundJiffies { skew: 0 });
    assert_eq!(
        (rounded.kind, rounded.deadline_ns),
        (TimerKind::Deferrable, 9 * second_ns)
    );
}

#[test]
fn settings_that_make_no_sense_are_refused() {
    let firing = Firing::default();
    let machine = Host::start().expect("a host");
    let cpus = machine.cpus();
    let cpu = cpus as u32;
    let mut isolated = options(firing, HOUR_NS);
    isolated.isolated = vec![cpu];
    let error = housekeeping(isolated).expect_err("no such CPU");
    assert_eq!(error, HousekeepingError::NoSuchCpu { cpu, cpus });
    let mut slack = options(firing, HOUR_NS);
    slack.slack_ns = HOUR_NS;
    assert!(matches!(
        housekeeping(slack),
        Err(HousekeepingError::SlackTooLong { .. })
    ));
    let mut period = options(firing, HOUR_NS);
    period.period.interval_ns = 0;
    let error = housekeeping(period).expect_err("no interval");
    assert_eq!(error, HousekeepingError::BadPeriod(PeriodError::NoInterval));
}
