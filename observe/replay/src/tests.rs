//! Replays of synthetic recordings.

use bursar_kernel::stats::Policy;
use bursar_rig::timer::tick_ns;
use bursar_sim::{Settings, Simulator, Topology};
use bursar_watch::recording::{self, NUMBER_MAX};
use bursar_watch::seen::{Seen, Upkeep};

use super::*;
use crate::clock::Clock;
use crate::measure::Call;
use crate::outcome::Outcome;
use crate::run::simulate;
use bursar_experiments::measure::{Distribution, Unit};

const OF_72: &[u8] = include_bytes!("../../watch/tests/recordings/synthetic-72-cpus.bursar");
const OF_2: &[u8] = include_bytes!("../../watch/tests/recordings/synthetic-2-cpus.bursar");

/// Recordings of a virtual machine that exists: 2 CPUs, Linux 6.18, nearly idle; in light mode for 20 s, in deep mode for 6 s.
const REAL: [&[u8]; 2] = [
    include_bytes!("../../watch/tests/recordings/real-2-cpus-light.bursar"),
    include_bytes!("../../watch/tests/recordings/real-2-cpus-deep.bursar"),
];

/// Recording of the same machine, while two processes write 1 GiB each; names are redacted.
const PAGES: &[u8] = include_bytes!("../../watch/tests/recordings/real-2-cpus-pages.bursar");

fn recording(bytes: &[u8]) -> Seen {
    recording::parse(bytes).expect("a recording")
}

fn load(bytes: &[u8]) -> Load {
    Load::of(&recording(bytes)).expect("a load")
}

fn replayed(load: &Load, cpus: usize, policies: Policies) -> Figures {
    let settings = Settings::new(Topology::new(cpus, 1, load.hz()), 1);
    let simulator = Simulator::new(settings);
    run(&simulator.machine(), load, policies, 1).expect("a run")
}

fn what_if(load: &Load, cpus: usize, name: &str) -> Figures {
    let all = what_ifs(load, cpus);
    let policies = all.into_iter().find(|policies| policies.name == name);
    replayed(load, cpus, policies.expect(name))
}

fn counts_agree(seen: &Figures, replayed: &Figures, names: &[&str]) {
    for name in names {
        let measure = MEASURES.iter().find(|it| it.name == *name).expect(name);
        let ruling = agreement(measure, false, seen.get(name).copied(), &[replayed[name]]);
        assert_eq!(
            ruling,
            Agreement::Agrees,
            "{name}: {:?} {}",
            seen.get(name),
            replayed[name]
        );
    }
}

const COUNTS: [&str; 6] = [
    "calls_per_cpu_second",
    "slot_herd_mean",
    "slot_herd_max",
    "herd_mean",
    "herd_max",
    "instants_per_second",
];

fn simulated(load: &Load) -> Outcome {
    let settings = Settings::new(Topology::new(load.cpus(), 1, load.hz()), 1);
    let simulator = Simulator::new(settings);
    simulate(&simulator.machine(), load, load.stock().policies, 1).expect("a run")
}

/// CPU and tick of each call, ticks counted from the recording's beginning.
fn ticks_of(load: &Load, calls: &[Call]) -> Vec<(u32, u64)> {
    let origin = load.origin_ns() / tick_ns(load.hz());
    let mut ticks: Vec<_> = calls
        .iter()
        .map(|call| (call.cpu, call.tick - origin))
        .collect();
    ticks.sort_unstable();
    ticks
}

/// CPU and tick of each recorded call, likewise.
fn ticks_seen(recording: &Seen) -> Vec<(u32, u64)> {
    let hz = recording.machine.hz.expect("known");
    let clock = Clock::of(&recording.upkeep, hz).expect("timers");
    let origin = clock.jiffy(recording.start_ns);
    let calls = recording.upkeep.iter();
    let mut ticks: Vec<_> = calls
        .map(|call| (call.cpu, call.expire_jiffy.expect("recorded") - origin))
        .collect();
    ticks.sort_unstable();
    ticks
}

#[test]
fn stock_upkeep_falls_on_the_recorded_ticks() {
    for bytes in [OF_72, OF_2] {
        let recording = recording(bytes);
        let load = Load::of(&recording).expect("a load");
        let replayed = ticks_of(&load, &simulated(&load).calls);
        let seen = ticks_seen(&recording);
        let same = seen
            .iter()
            .filter(|call| replayed.binary_search(call).is_ok())
            .count();
        // The first timers were set before the recording.
        assert!(same * 100 >= seen.len() * 97, "{same} of {}", seen.len());
    }
}

/// A CPU that works for two seconds, sleeps, and is found by the shepherd twice: once its counters are folded already.
#[test]
fn idle_cpus_have_the_calls_that_they_had() {
    let whole = recording(OF_2);
    let second_ns = 1_000_000_000;
    let from_ns = whole.start_ns - whole.start_ns % second_ns + 2 * second_ns;
    let hz = whole.machine.hz.expect("known");
    let clock = Clock::of(&whole.upkeep, hz).expect("timers");
    let call = |second: u64, has_timer: bool| {
        let start_ns = from_ns + second * second_ns;
        Upkeep {
            cpu: 1,
            target_jiffy: has_timer.then(|| clock.jiffy(start_ns)),
            start_ns,
            end_ns: start_ns + 5_000,
            ..Upkeep::default()
        }
    };
    let mut idle = whole.clone();
    idle.upkeep.retain(|call| call.cpu == 0);
    idle.upkeep.extend([
        call(1, false),
        call(2, true),
        call(3, true),
        // Found nothing: it has no successor.
        call(4, true),
        // By the shepherd.
        call(9, false),
        call(14, false),
    ]);
    let load = Load::of(&idle).expect("a load");
    let of_1 = &load.cpus[1];
    assert_eq!((of_1.active.len(), of_1.in_vain_ns.len()), (3, 2));
    let calls = simulated(&load).calls;
    let replayed = calls.iter().filter(|call| call.cpu == 1).count();
    assert!((5..=7).contains(&replayed), "{replayed}");
}

#[test]
fn due_pages_go_back_and_no_others() {
    let mut upkeep_alone = recording(OF_72);
    upkeep_alone.bursts.clear();
    let load = Load::of(&upkeep_alone).expect("a load");
    let due = |until_ns: i64| -> u64 {
        let due = load.cpus.iter().flat_map(|cpu| &cpu.due_pages);
        due.filter(|due| due.0 < until_ns)
            .map(|due| u64::from(due.1))
            .sum()
    };
    let holds = Distribution::of_histogram(Unit::Count, &simulated(&load).holds.given);
    let given: u64 = holds.values().map(|(pages, holds)| pages * holds).sum();
    let (least, most) = (due(load.duration_ns as i64 - 1_100_000_000), due(i64::MAX));
    let all_due = load.cpus.iter().flat_map(|cpu| &cpu.due_pages);
    let large_due = all_due.filter(|due| due.1 == 2_016).count() as u64;
    // The policy gives all that is due back under one hold.
    let large = holds.above(2_000);
    assert!(
        large > 0 && large * 10 >= large_due * 8,
        "{large} of {large_due}"
    );
    // Three digits of each hold are kept.
    assert!(
        given >= least * 99 / 100 && given <= most,
        "{least} {given} {most}"
    );
}

/// Ticks do not agree there: a CPU's timer may expire a tick after its slot, which no simulated CPU does.
#[test]
fn slots_of_a_real_kernel_agree() {
    for bytes in REAL {
        let load = load(bytes);
        let seen = seen(&load);
        let stock = replayed(&load, 2, load.stock().policies);
        let slots = ["calls_per_cpu_second", "slot_herd_mean", "slot_herd_max"];
        counts_agree(&seen, &stock, &slots);
        assert!(load.unknown().iter().any(|it| it.contains("compare slots")));
    }
}

#[test]
fn stock_counts_agree() {
    for bytes in [OF_72, OF_2] {
        let load = load(bytes);
        let seen = seen(&load);
        let stock = replayed(&load, load.cpus(), load.stock().policies);
        counts_agree(&seen, &stock, &COUNTS);
    }
}

/// Otherwise agreement would mean nothing.
#[test]
fn a_policy_that_was_not_recorded_does_not_agree() {
    let load = load(OF_72);
    let seen = seen(&load);
    for name in ["skew-13", "spread", "phase-exact"] {
        let other = what_if(&load, 72, name);
        for measure in MEASURES.iter().filter(|it| it.name.starts_with("herd_")) {
            let seen = seen.get(measure.name).copied();
            let ruling = agreement(measure, false, seen, &[other[measure.name]]);
            assert_eq!(ruling, Agreement::SeenAbove, "{name} {}", measure.name);
        }
    }
}

#[test]
fn exact_phases_end_the_herds() {
    let load = load(OF_72);
    let stock = replayed(&load, 72, load.stock().policies);
    let exact = what_if(&load, 72, "phase-exact");
    assert!(stock["herd_max"] > 15.0, "{stock:?}");
    assert_eq!(exact["herd_max"], 1.0);
    assert!(exact["upkeep_p99_ns"] < stock["upkeep_p99_ns"]);
}

#[test]
fn batches_shorten_holds_and_whole_keeps_them() {
    let load = load(OF_72);
    let stock = replayed(&load, 72, load.stock().policies);
    let batched = what_if(&load, 72, "batched");
    assert_eq!(load.stock().policies.release.name(), "whole");
    assert_eq!(stock["free_hold_pages_max"], 2_016.0);
    assert_eq!(batched["free_hold_pages_max"], 63.0);
    assert!(batched["free_hold_max_ns"] < stock["free_hold_max_ns"] / 2.0);
    for name in ["free_bursts_per_second", "take_bursts_per_second"] {
        assert_eq!(batched[name], stock[name], "{name}");
    }
    // A refill takes more than a batch under one hold, with this policy too.
    for figures in [&stock, &batched] {
        assert_eq!(figures["take_hold_pages_max"], 252.0);
    }
}

/// Linux 6.18.7 and 6.12.67 have half of the change of 6.19.
#[test]
fn a_kernel_may_release_the_lock_in_upkeep_alone() {
    for (kernel, policy) in [("6.18.6", "whole"), ("6.18.7", "batched-decay")] {
        let mut recording = recording(OF_72);
        recording.machine.kernel = kernel.to_owned();
        recording.bursts.clear();
        let load = Load::of(&recording).expect("a load");
        let stock = load.stock();
        assert_eq!(stock.policies.release.name(), policy);
        let reasons: Vec<_> = stock.reasons.iter().map(|(_, reason)| &**reason).collect();
        let said = reasons.concat().contains("its upkeep releases");
        assert_eq!(said, policy != "whole", "{reasons:?}");
    }
}

#[test]
fn all_pages_of_upkeep_are_replayed() {
    let recording = recording(OF_72);
    let load = Load::of(&recording).expect("a load");
    let due: u64 = load
        .cpus
        .iter()
        .flat_map(|cpu| &cpu.due_pages)
        .map(|(_, pages)| u64::from(*pages))
        .sum();
    let recorded: u64 = recording.upkeep.iter().filter_map(|it| it.pages).sum();
    assert_eq!(due, recorded);
}

#[test]
fn skipped_requests_are_skipped_again() {
    let load = load(OF_72);
    let seen = seen(&load);
    for flush in [Policy::PerGroupLockless, Policy::Kernel617] {
        let mut policies = load.stock().policies;
        policies.flush = flush;
        let stock = replayed(&load, 72, policies);
        counts_agree(
            &seen,
            &stock,
            &["flush_requests_per_second", "flush_skipped"],
        );
    }
}

/// 6.6.117 took the thresholds of 6.8. Skipped requests show them in any version.
#[test]
fn flushes_are_those_of_the_version() {
    let stock = |kernel: &str, is_seen: bool| {
        let mut recording = recording(OF_72);
        recording.machine.kernel = kernel.to_owned();
        if !is_seen {
            recording
                .flushes
                .iter_mut()
                .for_each(|it| it.skipped = None);
        }
        let load = Load::of(&recording).expect("a load");
        // A replay calls this what a kernel gets that lacks the thresholds.
        let gets_thresholds = what_ifs(&load, 72)
            .iter()
            .any(|it| it.name == "per-group-lockless");
        (load.stock().policies.flush.name(), gets_thresholds)
    };
    for (kernel, policy, gets_thresholds) in [
        ("6.6.116", "unified", true),
        ("6.6.117", "per-group-lockless", false),
        ("6.7.12", "unified", true),
        ("6.8.0", "per-group-lockless", false),
        ("6.16.9", "per-group-lockless", false),
        ("6.17.0", "kernel-6.17", false),
        ("6.18.44", "kernel-6.17", false),
        ("", "kernel-6.17", false),
    ] {
        let found = stock(kernel, false);
        assert_eq!(found, (policy, gets_thresholds), "{kernel}");
    }
    assert_eq!(stock("6.6.5-acme", true).0, "per-group-lockless");
}

#[test]
fn larger_machines_have_the_load_of_each_cpu_more_often() {
    let load = load(OF_72);
    let larger = replayed(&load, 144, load.stock().policies);
    let stock = replayed(&load, 72, load.stock().policies);
    assert!(
        (larger["free_bursts_per_second"] / stock["free_bursts_per_second"] - 2.0).abs() < 0.01
    );
    assert!((larger["calls_per_cpu_second"] - stock["calls_per_cpu_second"]).abs() < 0.1);
    assert!(larger["zone_waits_per_second"] > stock["zone_waits_per_second"]);
}

#[test]
fn copies_of_a_load_have_other_moments() {
    let load = load(OF_72);
    let simulator = Simulator::new(Settings::new(Topology::new(144, 1, load.hz()), 1));
    let machine = simulator.machine();
    let policies = load.stock().policies;
    let books = books::Books::new(&machine, &load, policies, 1).expect("room");
    let [one, copy] = [5, 77].map(|cpu| books.moves(cpu));
    assert_eq!(one.len(), copy.len());
    assert!(
        !one.is_empty()
            && one
                .iter()
                .zip(&copy)
                .all(|(one, copy)| one.at_ns != copy.at_ns)
    );
}

#[test]
fn equal_seeds_give_equal_figures() {
    let load = load(OF_72);
    let [one, other] = [(); 2].map(|()| what_if(&load, 72, "spread"));
    assert_eq!(one, other);
}

#[test]
fn light_recordings_say_what_they_cannot_tell() {
    let load = load(OF_2);
    assert!(!load.has_pages() && !load.has_bursts() && !load.has_flushes());
    let unknown = load.unknown().join("\n");
    assert!(unknown.contains("light mode"), "{unknown}");
    let names: Vec<&str> = what_ifs(&load, 2).iter().map(|it| it.name).collect();
    assert!(
        names.contains(&"phase-exact") && !names.contains(&"batched"),
        "{names:?}"
    );
    let deep = self::load(OF_72);
    assert!(deep.has_pages() && deep.has_bursts() && deep.has_flushes());
}

/// Refills that come later than they did must not leave the drains without pages.
#[test]
fn drains_find_their_pages_in_whatever_order_cpus_come() {
    let load = load(PAGES);
    for policies in [load.stock().policies]
        .into_iter()
        .chain(what_ifs(&load, 2))
    {
        for cpus in [2, 4] {
            let figures = replayed(&load, cpus, policies);
            assert!(figures["free_hold_pages_max"] > 0.0, "{}", policies.name);
        }
    }
}

#[test]
fn recordings_that_cannot_be_replayed_say_why() {
    let whole = recording(OF_2);
    let mut empty = whole.clone();
    empty.upkeep.clear();
    assert_eq!(Load::of(&empty).expect_err("empty"), LoadError::Empty);
    let mut no_hz = whole.clone();
    no_hz.machine.hz = None;
    assert_eq!(Load::of(&no_hz).expect_err("no HZ"), LoadError::UnknownHz);
    let mut large = whole.clone();
    large.machine.cpus = 5_000;
    assert!(matches!(
        Load::of(&large),
        Err(LoadError::TooManyCpus { cpus: 5_000 })
    ));
    let mut slow = whole.clone();
    slow.machine.interval_s = Some(86_400);
    assert!(matches!(
        Load::of(&slow),
        Err(LoadError::LongInterval { .. })
    ));
    let other = Simulator::new(Settings::new(Topology::new(2, 1, 1000), 1));
    let load = Load::of(&whole).expect("a load");
    let error = run(&other.machine(), &load, load.stock().policies, 1).expect_err("other ticks");
    assert!(error.contains("250"), "{error}");
}

/// Values at the ends of their ranges: a load is made, and a short run ends.
#[test]
fn hostile_records_are_bounded() {
    let mut recording = recording(OF_2);
    recording.missing.clear();
    recording.deep = true;
    recording.machine.zones[0].pcp_batch = u32::MAX;
    recording.machine.zones[0].managed_pages = NUMBER_MAX;
    let mut upkeep = recording.upkeep[5];
    upkeep.pages = Some(NUMBER_MAX);
    upkeep.end_ns = NUMBER_MAX;
    upkeep.expire_jiffy = Some(NUMBER_MAX);
    upkeep.expire_ns = Some(0);
    recording.upkeep.push(upkeep);
    recording.upkeep[7].slot_jiffy = Some(0);
    recording.end_ns = NUMBER_MAX;
    let load = Load::of(&recording).expect("a load");
    assert!(load.seconds() <= 300.0);
    let figures = replayed(&load, 2, load.stock().policies);
    assert!(figures["calls_per_cpu_second"] > 0.0);
    assert!(!seen(&load).is_empty());
}

/// Numbers at the ends of their ranges in any record: a load is made, or refused. Every fiftieth is replayed.
#[test]
fn random_records_make_loads() {
    use bursar_experiments::random::Random;
    use bursar_watch::seen::BurstKind;
    let mut random = Random::new(1);
    let whole = [OF_2, OF_72, REAL[1]].map(recording);
    for case in 0..400 {
        let mut changed = whole[case % whole.len()].clone();
        // All CPUs of few, so that a replay is short.
        changed.upkeep.retain(|it| it.cpu < 8);
        changed.bursts.truncate(300);
        changed.bursts.retain(|it| it.cpu < 8);
        changed.flushes.retain(|it| it.cpu < 8);
        changed.machine.cpus = changed.machine.cpus.min(8);
        let mut any = |near: u64| match random.below(6) {
            0 => 0,
            1 => NUMBER_MAX,
            2 => random.below(NUMBER_MAX),
            3 => near.saturating_add(random.below(5_000_000_000)),
            _ => near,
        };
        for upkeep in changed.upkeep.iter_mut().step_by(3) {
            upkeep.start_ns = any(upkeep.start_ns);
            upkeep.end_ns = any(upkeep.end_ns).max(upkeep.start_ns);
            upkeep.expire_ns = upkeep.expire_ns.map(&mut any);
            upkeep.slot_jiffy = upkeep.slot_jiffy.map(&mut any);
            upkeep.expire_jiffy = upkeep.expire_jiffy.map(&mut any);
            upkeep.pages = upkeep.pages.map(&mut any);
        }
        for burst in changed.bursts.iter_mut().step_by(5) {
            burst.start_ns = any(burst.start_ns);
            burst.end_ns = any(burst.end_ns).max(burst.start_ns);
            burst.pages = any(burst.pages);
            burst.kind = [BurstKind::Drain, BurstKind::Refill][any(1) as usize % 2];
        }
        for flush in changed.flushes.iter_mut().step_by(5) {
            flush.start_ns = any(flush.start_ns);
            flush.end_ns = any(flush.end_ns).max(flush.start_ns);
            flush.pending = flush.pending.map(|it| any(it as u64) as i64);
        }
        changed.machine.interval_s = Some(any(1).clamp(1, 86_400) as u32);
        changed.end_ns = any(changed.end_ns).max(changed.start_ns);
        let Ok(load) = Load::of(&changed) else {
            continue;
        };
        assert!(load.seconds() <= 300.0);
        seen(&load);
        if case % 50 == 0 {
            let simulator =
                Simulator::new(Settings::new(Topology::new(load.cpus(), 1, load.hz()), 1));
            // An error is fine; a panic is not.
            let one = || run(&simulator.machine(), &load, load.stock().policies, 1);
            let ran = std::panic::catch_unwind(std::panic::AssertUnwindSafe(one));
            if let Err(panic) = ran {
                let failure = panic.downcast_ref::<bursar_sim::Failure>();
                panic!("case {case}: {:?}", failure.map(ToString::to_string));
            }
        }
    }
}
