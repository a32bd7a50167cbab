//! Time that tasks lose because memory is short (`memory.pressure`).
//!
//! A task *stalls* while it waits for memory: it reclaims, or sleeps above `high`. *Some* is the time in which at least one
//! task of a group stalled. *Full* is the time in which at least one stalled and none worked. Both are kept as a total, and as
//! averages whose weight fades with age, over windows of 10, 60 and 300 s.
//!
//! After `kernel/sched/psi.c` of Linux 6.1 to 7.3: periods of 2 s, and at the end of each, of window `w`,
//! `average = average * e + share * (1 - e)` with `e = exp(-2 s / w)`. Three things differ:
//!
//! * No timer: each call brings the averages up to date. Nothing changes between two calls, so all whole periods between them
//!   have one share, 0 or 1, and are one step. (The kernel counts periods that its timer missed as idle, because it stops the
//!   timer only then.)
//! * Periods begin on a grid of 2 s from the first moment, not at the last reading.
//! * Floating point in place of 11 binary places.
//!
//! Averages are up to 2 s old, as the kernel's.

use std::time::Duration;

/// The length of a period (`PSI_FREQ`; the kernel adds a jiffy for its timers).
#[doc(alias = "PSI_FREQ")]
const PERIOD_NS: u64 = 2_000_000_000;

/// The weight that a period leaves to the averages over 10, 60 and 300 s: `exp(-2/10)`, `exp(-2/60)`, `exp(-2/300)`.
///
/// Written out, because `f64::exp` may give other bits on another machine, and a simulated run must not.
#[doc(alias = "EXP_10s")]
#[doc(alias = "EXP_60s")]
#[doc(alias = "EXP_300s")]
const KEPT: [f64; 3] = [
    0.818_730_753_077_981_8,
    0.967_216_100_482_005_9,
    0.993_355_506_255_034_4,
];

/// Time that a group's tasks lost because memory was short, as `/proc/pressure/memory` shows it for a system.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
#[non_exhaustive]
#[doc(alias = "memory.pressure")]
pub struct Stall {
    /// Share of the time in which at least one task stalled.
    pub some: StallShare,
    /// Share of the time in which at least one task stalled, and as many as were known to work. The same as `some` if no task was
    /// known to work.
    pub full: StallShare,
}

/// Shares of the time and a total, as in one line of `/proc/pressure/memory`.
///
/// Shares are ratios from 0 to 1 (the kernel prints percent). Each is an average that forgets exponentially, as in the kernel's
/// `kernel/sched/psi.c`. Every 2 s of the machine's time, `average = average * e + share * (1 - e)`, where `share` is that of
/// these 2 s, and `e = exp(-2 s / window)`. They are 0 in the first 2 s of a group.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
#[non_exhaustive]
pub struct StallShare {
    /// Share of the last 10 s, as a ratio.
    pub avg10: f64,
    /// Share of the last 60 s, as a ratio.
    pub avg60: f64,
    /// Share of the last 300 s, as a ratio.
    pub avg300: f64,
    /// All of the time since the group was created, up to the moment of reading (the kernel prints microseconds).
    pub total: Duration,
}

/// The stalls of one group. A plain value: the caller holds its lock.
///
/// Each call takes the machine's time in nanoseconds. Clocks of CPUs differ a little: a time before that of an earlier call
/// counts as that of the earlier call.
///
/// A task may stall that was not declared as working. It cannot be told from one that was. If one task works, and another,
/// undeclared, stalls, that counts as full. So declare all tasks that work for a group, or none.
#[derive(Clone, Debug)]
#[doc(alias = "psi_group")]
pub(crate) struct StallClock {
    /// Tasks known to work for the group, including those that stall.
    pub working: u32,
    /// Tasks that stall.
    pub stalled: u32,
    /// The latest time of any call.
    seen_ns: u64,
    /// The part of the current period that was over by then; less than `PERIOD_NS`.
    into_period_ns: u64,
    some: Tally,
    full: Tally,
}

impl StallClock {
    pub(crate) fn new(now_ns: u64) -> Self {
        Self {
            working: 0,
            stalled: 0,
            seen_ns: now_ns,
            into_period_ns: 0,
            some: Tally::default(),
            full: Tally::default(),
        }
    }

    #[doc(alias = "psi_memstall_enter")]
    pub(crate) fn stall_begins(&mut self, now_ns: u64) {
        self.pass(now_ns);
        self.stalled += 1;
    }

    #[doc(alias = "psi_memstall_leave")]
    pub(crate) fn stall_ends(&mut self, now_ns: u64) {
        self.pass(now_ns);
        debug_assert!(self.stalled > 0, "a stall ends that did not begin");
        self.stalled = self.stalled.saturating_sub(1);
    }

    /// Puts the clock right in a forked child, where the tasks that stalled do not exist.
    pub(crate) fn forget_stalls(&mut self, now_ns: u64) {
        self.pass(now_ns);
        self.stalled = 0;
    }

    pub(crate) fn work_begins(&mut self, now_ns: u64) {
        self.pass(now_ns);
        self.working += 1;
    }

    pub(crate) fn work_ends(&mut self, now_ns: u64) {
        self.pass(now_ns);
        debug_assert!(self.working > 0, "work ends that did not begin");
        self.working = self.working.saturating_sub(1);
    }

    /// Totals up to now, including stalls that have not ended. Averages up to the end of the last period.
    #[doc(alias = "psi_show")]
    pub(crate) fn snapshot(&mut self, now_ns: u64) -> Stall {
        self.pass(now_ns);
        Stall {
            some: self.some.share(),
            full: self.full.share(),
        }
    }

    /// Books the time since the last call, in which the numbers of tasks did not change.
    fn pass(&mut self, now_ns: u64) {
        let spent_ns = now_ns.saturating_sub(self.seen_ns);
        let some = self.stalled > 0;
        let full = some && self.stalled >= self.working;
        self.some.pass(some, self.into_period_ns, spent_ns);
        self.full.pass(full, self.into_period_ns, spent_ns);
        self.into_period_ns = (self.into_period_ns + spent_ns % PERIOD_NS) % PERIOD_NS;
        self.seen_ns += spent_ns;
    }
}

/// One of `some` and `full`.
#[derive(Clone, Debug, Default)]
struct Tally {
    total_ns: u64,
    /// Time of the current period.
    sample_ns: u64,
    averages: [f64; 3],
}

impl Tally {
    fn pass(&mut self, stalled: bool, into_period_ns: u64, spent_ns: u64) {
        let of = |time_ns| if stalled { time_ns } else { 0 };
        self.total_ns += of(spent_ns);
        let left_ns = PERIOD_NS - into_period_ns;
        let Some(beyond_ns) = spent_ns.checked_sub(left_ns) else {
            self.sample_ns += of(spent_ns);
            return;
        };
        self.average((self.sample_ns + of(left_ns)) as f64 / PERIOD_NS as f64, 1);
        self.average(f64::from(u8::from(stalled)), beyond_ns / PERIOD_NS);
        self.sample_ns = of(beyond_ns % PERIOD_NS);
    }

    /// Adds a number of periods of the same share.
    #[doc(alias = "calc_avgs")]
    #[doc(alias = "calc_load_n")]
    fn average(&mut self, share: f64, periods: u64) {
        for (average, kept) in self.averages.iter_mut().zip(KEPT) {
            // In this form it stays between the two, so from 0 to 1, however it is rounded.
            *average = share + (*average - share) * power(kept, periods);
        }
    }

    fn share(&self) -> StallShare {
        let [avg10, avg60, avg300] = self.averages;
        StallShare {
            avg10,
            avg60,
            avg300,
            total: Duration::from_nanos(self.total_ns),
        }
    }
}

/// By squaring: at most 64 steps, and multiplications have the same bits everywhere, unlike `f64::powf`.
fn power(mut base: f64, mut exponent: u64) -> f64 {
    let mut power = 1.0;
    while exponent > 0 {
        if exponent & 1 == 1 {
            power *= base;
        }
        base *= base;
        exponent >>= 1;
    }
    power
}

#[cfg(test)]
mod tests {
    use bursar_rig::random::Random;

    use super::*;

    const MS: u64 = 1_000_000;
    const NONE: [f64; 3] = [0.0; 3];

    /// `exp(-seconds / window)` for each window.
    fn left(seconds: f64) -> [f64; 3] {
        [10.0, 60.0, 300.0].map(|window| (-seconds / window).exp())
    }

    /// The averages of a group that stalled all of so many seconds.
    fn all(seconds: f64) -> [f64; 3] {
        left(seconds).map(|left| 1.0 - left)
    }

    /// The averages after periods of these shares, walked one by one.
    fn walked(shares: &[f64]) -> [f64; 3] {
        left(2.0).map(|kept| {
            (shares.iter()).fold(0.0, |average, share| average * kept + share * (1.0 - kept))
        })
    }

    fn assert_line(found: StallShare, total_ms: u64, averages: [f64; 3], seen: &str) {
        assert_eq!(found.total, Duration::from_millis(total_ms), "{seen}");
        for (found, expected) in [found.avg10, found.avg60, found.avg300]
            .iter()
            .zip(averages)
        {
            assert!((0.0..=1.0).contains(found), "{seen}: {found}");
            assert!(
                (found - expected).abs() < 1e-9,
                "{seen}: {found} {expected}"
            );
        }
    }

    fn play(clock: &mut StallClock, event: &str, at_ns: u64) {
        match event {
            "(" => clock.stall_begins(at_ns),
            ")" => clock.stall_ends(at_ns),
            "w" => clock.work_begins(at_ns),
            "x" => clock.work_ends(at_ns),
            _ => unreachable!("{event}"),
        }
    }

    #[test]
    fn decays_are_exponentials() {
        for (kept, exact) in KEPT.iter().zip(left(2.0)) {
            assert!((kept - exact).abs() < 1e-15, "{kept} {exact}");
        }
        for periods in [0, 1, 2, 3, 7, 64, 1000] {
            let exact = (-0.2 * periods as f64).exp();
            assert!((power(KEPT[0], periods) - exact).abs() < 1e-12);
        }
        assert_eq!(power(KEPT[2], u64::MAX), 0.0);
    }

    /// Runs a script: `800(` is a stall that begins at 800 ms, `)` one that ends; `w` and `x`, work.
    fn read(script: &str, read_ms: u64) -> Stall {
        // A first moment that is no multiple of a period.
        let at_ns = |at_ms| 777 + at_ms * MS;
        let mut clock = StallClock::new(at_ns(0));
        for event in script.split_whitespace() {
            let (at_ms, kind) = event.split_at(event.len() - 1);
            play(&mut clock, kind, at_ns(at_ms.parse().unwrap()));
        }
        clock.snapshot(at_ns(read_ms))
    }

    #[test]
    fn scripts() {
        let halves: String = (0..30_000)
            .map(|period| format!("{}( {}) ", 2_000 * period, 2_000 * period + 1_000))
            .collect();
        let mut faded = all(10.0);
        (faded.iter_mut().zip(left(120.0))).for_each(|(average, left)| *average *= left);
        // No task is declared as working, so full equals some. Script, read at ms, total ms, averages.
        let cases = [
            ("", 100_000, 0, NONE),
            // No averages before the first period is over.
            ("0(", 1_999, 1_999, NONE),
            // Stalled all the time: it converges to 1. The time after the last period is in no average yet.
            ("0(", 20_000, 20_000, all(20.0)),
            ("0(", 20_500, 20_500, all(20.0)),
            ("0(", 20_000_000, 20_000_000, [1.0; 3]),
            // Half of each period: it converges to a half.
            (&halves, 60_000_000, 30_000_000, [0.5; 3]),
            // Ten seconds, then two minutes without: each window forgets at its own pace; and a day.
            ("0( 10000)", 130_000, 10_000, faded),
            ("0( 10000)", 86_400_000, 10_000, NONE),
            // Half of the first period, the second, a quarter of the third.
            ("1000( 4500)", 6_000, 3_500, walked(&[0.5, 1.0, 0.25])),
            // Two stalls that overlap count once.
            ("0( 1000( 2000) 3000)", 4_000, 3_000, walked(&[1.0, 0.5])),
        ];
        for (script, read_ms, total_ms, averages) in cases {
            let stall = read(script, read_ms);
            assert_line(stall.some, total_ms, averages, script);
            assert_eq!(stall.some, stall.full, "{script}");
        }
        // Two tasks known to work, one of which stalls for 10 s. Script, seconds of full, the last ones.
        let cases = [
            ("0w 0w 0(", 0),
            ("0w 0w 0( 4000(", 6),
            ("0w 0w 0( 4000x", 6),
        ];
        for (script, full_s) in cases {
            let stall = read(script, 10_000);
            assert_line(stall.some, 10_000, all(10.0), script);
            assert_line(stall.full, 1_000 * full_s, all(full_s as f64), script);
        }
    }

    #[test]
    fn time_that_goes_backwards_stands_still() {
        let mut clock = StallClock::new(5_000 * MS);
        clock.stall_begins(4_999 * MS);
        clock.work_begins(0);
        clock.stall_ends(5_010 * MS);
        clock.stall_begins(5_005 * MS);
        let total = |stall: Stall| stall.some.total.as_millis();
        assert_eq!(total(clock.snapshot(5_009 * MS)), 10);
        assert_eq!(total(clock.snapshot(5_020 * MS)), 20);
        let end = clock.snapshot(u64::MAX);
        assert_eq!(end.some.total.as_nanos(), u128::from(u64::MAX - 5_000 * MS));
        assert_eq!((end.some.avg10, end.full.avg300), (1.0, 1.0));
        assert_eq!(clock.snapshot(0), end);
    }

    #[test]
    fn random_scripts_agree_with_a_walk_of_each_ms() {
        let mut random = Random::new(0x0597_a115);
        for _ in 0..100 {
            let (mut clock, mut read_often) = (StallClock::new(0), StallClock::new(0));
            let (mut some, mut full) = (Vec::new(), Vec::new());
            // Some scripts are busy, some leave out whole periods.
            let one_in = [50, 3_000, 20_000][random.below(3) as usize];
            let end_ms = 60_000 + random.below(2_000);
            for now_ms in 0..end_ms {
                if random.happens(one_in) {
                    let event = match random.below(4) {
                        0 if clock.stalled > 0 => ")",
                        1 if clock.working > 0 => "x",
                        0 | 2 => "(",
                        _ => "w",
                    };
                    play(&mut clock, event, now_ms * MS);
                    play(&mut read_often, event, now_ms * MS);
                }
                if random.happens(700) {
                    read_often.snapshot(now_ms * MS);
                }
                some.push(clock.stalled > 0);
                full.push(clock.stalled > 0 && clock.stalled >= clock.working);
            }
            for clock in [&mut clock, &mut read_often] {
                let stall = clock.snapshot(end_ms * MS);
                for (line, stalled) in [(stall.some, &some), (stall.full, &full)] {
                    let count = |ms: &[bool]| ms.iter().filter(|stalled| **stalled).count();
                    let shares: Vec<f64> = (stalled.chunks_exact(2_000))
                        .map(|period| count(period) as f64 / 2_000.0)
                        .collect();
                    assert_line(line, count(stalled) as u64, walked(&shares), "random");
                }
            }
        }
    }
}
