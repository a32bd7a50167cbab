use std::collections::BTreeSet;

use bursar_rig::random::Random;
use bursar_rig::timer::wheel_expiry;

use super::*;

const SECOND_NS: u64 = 1_000_000_000;
const ALL: [Firing; 7] = [
    Firing::RoundJiffies { skew: 3 },
    Firing::RoundJiffies { skew: 13 },
    Firing::Stretched { rounded: false },
    Firing::Stretched { rounded: true },
    Firing::Spread,
    Firing::PhaseGrid { exact: false },
    Firing::PhaseGrid { exact: true },
];

fn second(hz: u32) -> Period {
    Period::new(SECOND_NS, hz).expect("a period")
}

fn place(cpu: u32, of: u32) -> Place {
    Place { cpu, rank: cpu, of }
}

/// Time at which the machine's timer expires if it is set at `now_ns`.
fn expiry_ns(period: Period, timer: Timer, now_ns: u64) -> u64 {
    if timer.kind == TimerKind::Exact || timer.deadline_ns <= now_ns {
        return timer.deadline_ns.max(now_ns);
    }
    let aim = timer.deadline_ns.div_ceil(period.tick_ns());
    period.at(wheel_expiry(period.jiffies(now_ns), aim))
}

/// Beginnings of a CPU's calls, each late by the result of `late_ns`.
fn calls(
    firing: Firing,
    period: Period,
    place: Place,
    start_ns: u64,
    count: usize,
    mut late_ns: impl FnMut() -> u64,
) -> Vec<u64> {
    let mut timer = firing.first(period, place, start_ns);
    let mut now_ns = start_ns;
    let each = (0..count).map(|_| {
        now_ns = expiry_ns(period, timer, now_ns) + late_ns();
        timer = firing.next(period, place, now_ns);
        now_ns
    });
    each.collect()
}

/// Ticks of a second at which any of `cpus` CPUs is called, in the steady state.
fn instants(firing: Firing, hz: u32, cpus: u32) -> BTreeSet<u64> {
    let period = second(hz);
    let settled = |cpu| calls(firing, period, place(cpu, cpus), 5_000, 20, || 0)[18];
    let ticks = (0..cpus).map(|cpu| period.jiffies(settled(cpu)));
    // Each as a distance from the first CPU's, in one second.
    let ticks: Vec<u64> = ticks.collect();
    let hz = u64::from(hz);
    let from = ticks[0];
    ticks.iter().map(|at| (at + 64 * hz - from) % hz).collect()
}

#[test]
fn rounding_follows_the_kernels_formula_on_worked_cases() {
    // 12,345 + 1,000 ticks at HZ=1000. CPU 0 is rounded up; CPU 250, moved by 750, down.
    let cases = [
        (13_345, 12_345, 0, 1_000, 3, 14_000),
        (13_249, 12_249, 0, 1_000, 3, 13_000),
        (13_250, 12_250, 0, 1_000, 3, 14_000),
        // 13,345 + 3 * 71 = 13,558; up to 14,000; less 213.
        (13_345, 12_345, 71, 1_000, 3, 13_787),
        // 13,345 + 13 * 71 = 14,268; up to 15,000; less 923.
        (13_345, 12_345, 71, 1_000, 13, 14_077),
        // 13,345 + 13 * 70 = 14,255; up. 69: 14,242; down to 14,000; less 897.
        (13_345, 12_345, 69, 1_000, 13, 13_103),
        // HZ=250: 62 is below a quarter, 63 is not (250 / 4 is 62 in whole numbers).
        (1_061, 800, 0, 250, 3, 1_000),
        (1_062, 800, 0, 250, 3, 1_250),
        (524, 424, 0, 100, 3, 500),
        (525, 425, 0, 100, 3, 600),
    ];
    for (at, now, cpu, hz, skew, expected) in cases {
        let rounded = round_jiffies(at, now, cpu, hz, skew);
        assert_eq!(
            rounded, expected,
            "{at} at {now} on CPU {cpu}, {hz}, {skew}"
        );
    }
}

#[test]
fn what_would_not_be_in_the_future_is_not_rounded() {
    assert_eq!(
        round_jiffies(13_100, 13_050, 0, 1_000, 3),
        13_100,
        "13,000 is over"
    );
    assert_eq!(
        round_jiffies(13_000, 13_000, 0, 1_000, 3),
        13_000,
        "it is now"
    );
    // CPU 71 is so early that its second began before the machine did.
    assert_eq!(round_jiffies(10, 5, 71, 1_000, 3), 10);
}

#[test]
fn the_shepherds_first_is_at_once_or_at_its_place() {
    let period = second(1_000);
    let now_ns = 7 * SECOND_NS + 300_500_000;
    let at = |firing: Firing| firing.first(period, place(18, 72), now_ns).deadline_ns;
    assert_eq!(at(Firing::RoundJiffies { skew: 3 }), now_ns);
    assert_eq!(at(Firing::Stretched { rounded: true }), now_ns);
    assert_eq!(at(Firing::Spread), 7 * SECOND_NS + 550_000_000);
    assert_eq!(
        at(Firing::PhaseGrid { exact: false }),
        8 * SECOND_NS + 250_000_000
    );
    assert_eq!(
        at(Firing::PhaseGrid { exact: true }),
        8 * SECOND_NS + 250_000_000
    );
}

#[test]
fn stretched_intervals_grow_with_the_rank() {
    let period = second(1_000);
    let now_ns = 10 * SECOND_NS;
    let after = |cpu, rounded| {
        let firing = Firing::Stretched { rounded };
        firing.next(period, place(cpu, 4), now_ns).deadline_ns - now_ns
    };
    let plain: Vec<u64> = (0..4).map(|cpu| after(cpu, false) / 1_000_000).collect();
    assert_eq!(plain, [1_000, 1_250, 1_500, 1_750]);
    // 11,250 + 3 is up to 12,000 - 3; 11,500 + 6 likewise; 11,750 + 9.
    let rounded: Vec<u64> = (0..4).map(|cpu| after(cpu, true) / 1_000_000).collect();
    assert_eq!(rounded, [1_000, 1_997, 1_994, 1_991]);
}

#[test]
fn the_wheel_makes_few_instants_of_many_aims() {
    let aims = |skew, cpus: u32| {
        let each = (0..cpus).map(|cpu| round_jiffies(13_345, 12_345, cpu, 1_000, skew));
        each.collect::<BTreeSet<u64>>()
    };
    let of_today = aims(3, 72);
    assert_eq!(of_today.len(), 72);
    let width = of_today.last().unwrap() - of_today.first().unwrap();
    assert_eq!(width, 213);
    let count = |firing, hz| instants(firing, hz, 72).len();
    let today = Firing::RoundJiffies { skew: 3 };
    let thirteen = Firing::RoundJiffies { skew: 13 };
    assert!((4..=5).contains(&count(today, 1_000)));
    assert!((14..=16).contains(&count(thirteen, 1_000)));
    // 213 ticks in grains of 8.
    assert!((27..=28).contains(&count(today, 250)));
    // 213 ticks are more than two seconds at HZ=100: 100 ticks in grains of 8.
    assert!((12..=25).contains(&count(today, 100)));
    // With exact timers all are apart.
    assert_eq!(count(Firing::PhaseGrid { exact: true }, 1_000), 72);
    assert!((14..=17).contains(&count(Firing::PhaseGrid { exact: false }, 1_000)));
}

#[test]
fn sharing_counts_the_instants_that_the_wheel_has() {
    let instants = |firing: Firing, hz, cpus| {
        let sharing = firing.sharing(second(hz), cpus);
        sharing.map(|sharing| (sharing.instants, sharing.cpus))
    };
    assert_eq!(
        instants(Firing::RoundJiffies { skew: 3 }, 1_000, 72),
        Some((4, 18))
    );
    assert_eq!(
        instants(Firing::RoundJiffies { skew: 13 }, 1_000, 72),
        Some((15, 5))
    );
    assert_eq!(
        instants(Firing::RoundJiffies { skew: 0 }, 1_000, 8),
        Some((1, 8))
    );
    let wheel = Firing::PhaseGrid { exact: false };
    assert_eq!(instants(wheel, 1_000, 15), None);
    assert_eq!(instants(wheel, 1_000, 1_024), Some((15, 69)));
    assert_eq!(instants(wheel, 250, 1_024), Some((31, 34)));
    assert_eq!(instants(wheel, 100, 1_024), Some((12, 86)));
    assert_eq!(
        instants(Firing::PhaseGrid { exact: true }, 100, 1_024),
        None
    );
    assert_eq!(
        instants(Firing::Stretched { rounded: false }, 100, 1_024),
        None
    );
    // Ten ticks for 25 CPUs: each tick has two or three of them.
    let short = Period::new(100_000_000, 100).expect("ten ticks");
    let mut on_tick = [0; 10];
    for cpu in 0..25 {
        let timer = wheel.next(short, place(cpu, 25), SECOND_NS);
        on_tick[(timer.deadline_ns / short.tick_ns() % 10) as usize] += 1;
    }
    assert!(
        on_tick.iter().all(|cpus| (2..=3).contains(cpus)),
        "{on_tick:?}"
    );
    assert_eq!(
        wheel.sharing(short, 25).map(|sharing| sharing.cpus),
        Some(3)
    );
}

#[test]
fn one_cpu_comes_once_an_interval() {
    for firing in ALL {
        for hz in [100, 250, 300, 1_000] {
            let calls = calls(firing, second(hz), place(0, 1), 12_345, 50, || 0);
            let last = calls[49] - calls[39];
            let most = 10 * (SECOND_NS + 64 * SECOND_NS / u64::from(hz));
            assert!((9_900_000_000..=most).contains(&last), "{firing:?} {hz}");
        }
    }
}

/// A day of calls, each late by up to 90 ms.
fn a_day(firing: Firing, hz: u32, place: Place) -> Vec<u64> {
    let mut random = Random::new(u64::from(place.rank));
    let late = || random.below(90_000_000);
    calls(firing, second(hz), place, 987_654_321, 86_400, late)
}

#[test]
fn a_grid_does_not_drift_in_a_day_of_late_calls() {
    for hz in [100, 250, 300, 1_000] {
        for (rank, of) in [(0, 1), (0, 5), (3, 5), (1_023, 1_024)] {
            let place = place(rank, of);
            for exact in [true, false] {
                let firing = Firing::PhaseGrid { exact };
                let phase_ns = place.share_of(SECOND_NS);
                let calls = a_day(firing, hz, place);
                // Maximum that the wheel adds in either direction: two grains of its own, and a tick for rounding.
                let grain = wheel_granularity(0, u64::from(hz));
                let wheel_ns = if exact {
                    0
                } else {
                    (grain + 1) * SECOND_NS / u64::from(hz)
                };
                let bound_ns = 90_000_000 + wheel_ns;
                for (number, at_ns) in calls.iter().enumerate() {
                    let off_ns =
                        (at_ns + SECOND_NS - phase_ns + SECOND_NS / u64::from(hz)) % SECOND_NS;
                    let off_ns = off_ns.saturating_sub(SECOND_NS / u64::from(hz));
                    assert!(
                        off_ns <= bound_ns,
                        "{firing:?} {hz} {place:?} call {number}: {off_ns}"
                    );
                }
                let seconds = (calls[86_399] - calls[0]).div_ceil(SECOND_NS);
                assert!((86_399..=86_400).contains(&seconds), "none left out");
            }
        }
    }
}

#[test]
fn others_drift_by_the_lateness_of_their_calls() {
    let place = place(3, 5);
    let total_s = |firing| {
        let calls = a_day(firing, 1_000, place);
        (calls[86_399] - calls[0]) / SECOND_NS
    };
    // 45 ms late on average, and half a grain of the wheel; at most 90 ms, a grain and a tick each.
    let spread_s = total_s(Firing::Spread);
    assert!(
        (86_400 + 86_400 * 60 / 1_000..=86_400 + 86_400 * 155 / 1_000).contains(&spread_s),
        "{spread_s}"
    );
    let stretched_s = total_s(Firing::Stretched { rounded: false });
    assert!(
        stretched_s > 86_400 * 16 / 10 && stretched_s < 86_400 * 18 / 10,
        "{stretched_s}"
    );
    // Rounded anew each time.
    let rounded_s = total_s(Firing::RoundJiffies { skew: 3 });
    assert!((86_398..=86_400).contains(&rounded_s), "{rounded_s}");
}

/// The policies again, in the simplest form: a look at each tick or each point in turn.
fn naive(firing: Firing, period: Period, place: Place, now_ns: u64) -> u64 {
    let Place { cpu, rank, of } = place;
    let tick_ns = SECOND_NS / u64::from(period.hz);
    let now = now_ns / tick_ns;
    let interval = period.interval_ns / tick_ns;
    let rounded = |at: u64, skew: u64| {
        let hz = u64::from(period.hz);
        let apart = (skew * u64::from(cpu)) as i64;
        let is_whole = |tick: i64| (tick + apart).rem_euclid(hz as i64) == 0;
        // The last whole second at or before `at`, if that is less than a quarter away; otherwise the next.
        let at = at as i64;
        let before = (0..(hz / 4) as i64)
            .map(|back| at - back)
            .find(|&tick| is_whole(tick));
        let found = before
            .or_else(|| (at..).find(|&tick| is_whole(tick)))
            .unwrap();
        if found > now as i64 { found } else { at }
    };
    let tick = match firing {
        Firing::RoundJiffies { skew } => rounded(now + interval, skew),
        Firing::Stretched { rounded: is } => {
            let aim = now + interval + interval * u64::from(rank) / u64::from(of);
            if is { rounded(aim, 3) } else { aim as i64 }
        }
        Firing::Spread => (now + interval) as i64,
        Firing::PhaseGrid { exact: true } => {
            let phase_ns = u64::from(rank) * period.interval_ns / u64::from(of);
            let mut points = (0..).map(|k| phase_ns + k * period.interval_ns);
            return points.find(|&at_ns| at_ns > now_ns).unwrap();
        }
        Firing::PhaseGrid { exact: false } => {
            let phase_ns = u64::from(rank) * interval / u64::from(of) * tick_ns;
            let points = (0..).map(|k| phase_ns + k * period.interval_ns);
            let mut rounded = points.map(|at_ns| at_ns.div_ceil(tick_ns) * tick_ns);
            return rounded.find(|&at_ns| at_ns > now_ns).unwrap();
        }
    };
    tick as u64 * tick_ns
}

#[test]
fn random_moments_agree_with_a_naive_statement() {
    let mut random = Random::new(71);
    for round in 0..20_000 {
        let hz = [100, 250, 300, 1_000, 1_024][random.below(5) as usize];
        let tick_ns = SECOND_NS / u64::from(hz);
        let interval_ns = tick_ns + random.below(3 * SECOND_NS);
        let period = Period::new(interval_ns, hz).expect("a tick at least");
        let of = 1 + random.below(1_024) as u32;
        let rank = random.below(u64::from(of)) as u32;
        let cpu = rank + random.below(8) as u32;
        let place = Place { cpu, rank, of };
        let now_ns = if random.happens(3) {
            // At a point, or beside one.
            let at = naive(
                ALL[random.below(7) as usize],
                period,
                place,
                random.below(9 * SECOND_NS),
            );
            (at + random.below(3)).saturating_sub(1)
        } else {
            random.below(60 * SECOND_NS)
        };
        for firing in ALL {
            let timer = firing.next(period, place, now_ns);
            let expected_ns = naive(firing, period, place, now_ns);
            assert_eq!(
                timer.deadline_ns, expected_ns,
                "round {round}: {firing:?} {period:?} {place:?} at {now_ns}"
            );
        }
    }
}

#[test]
fn the_end_of_time_is_reached_without_harm() {
    let period = Period::new(u64::MAX, 1_000).expect("long");
    for firing in ALL {
        for now_ns in [0, SECOND_NS, u64::MAX - 1, u64::MAX] {
            let place = place(u32::MAX, u32::MAX);
            firing.first(period, place, now_ns);
            firing.next(period, place, now_ns);
            firing.sharing(period, u32::MAX);
        }
    }
}

#[test]
fn the_shepherds_delay_is_a_setting_of_its_own() {
    let (period, now_ns) = (second(1_000), 7_000_000_123);
    let delay_ns = |firing, shepherd_delay| {
        let clocked = Clocked {
            shepherd_delay,
            ..Clocked::new(firing, period)
        };
        clocked.first(place(36, 72), now_ns).saturating_sub(now_ns)
    };
    let upstream = Firing::RoundJiffies { skew: 3 };
    assert_eq!(delay_ns(upstream, ShepherdDelay::OfPolicy), 0);
    let half = 499_000_000..=500_000_000;
    assert!(half.contains(&delay_ns(Firing::Spread, ShepherdDelay::OfPolicy)));
    assert_eq!(delay_ns(Firing::Spread, ShepherdDelay::Zero), 0);
    assert!(half.contains(&delay_ns(upstream, ShepherdDelay::Spread)));
}
