//! Verdicts: whether a machine has one of three problems, why, and what to do.

use serde::Serialize;

use crate::changes::{Change, changes};
pub use crate::event::Problem;
use crate::event::{LATENESS, PAGES, REQUESTS, RSTAT, TARGETS, WAITS, WORK};
use crate::figures::{
    Distribution, Figures, FlushFigures, FreeFigures, WaitFigures, all_waits, flushes_for,
};
use crate::seen::{
    BurstKind, Context, Flush, FlushFor, ITEMS, LockKind, Missing, Mode, Path, Seen,
};

/// A problem, and whether this machine has it.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Verdict {
    /// The problem.
    pub problem: Problem,
    /// The answer.
    pub answer: Answer,
    /// Figures that the answer is based on, in sentences.
    pub why: String,
    /// Next step.
    pub advice: String,
    /// Changes of the kernel that address the problem.
    pub changes: Vec<Change>,
}

/// Whether a problem is there.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Answer {
    /// It is.
    Present,
    /// It is not, under the load of this run.
    Absent,
    /// This run does not show it.
    CannotTell,
}

/// A herd: a call meets so many times the CPUs that it would meet at random slots of the wheel.
const HERD: f64 = 1.25;
/// A herd: so many CPUs on one tick or slot, at least once. Judgement: fewer wait for each other for microseconds.
const HERD_CPUS: u64 = 4;
/// Calls of which a pattern can be told.
const CALLS: u64 = 8;
/// Waits that hurt: this long at the 99th percentile.
const WAIT_NS: u64 = 100_000;
/// Waits that hurt: this share of all CPUs' time.
const WAIT_SHARE: f64 = 0.001;
/// Share of all CPUs' time below which waits for a zone lock hurt nothing, however long the longest is (judgement).
pub(crate) const WAIT_SHARE_MIN: f64 = 0.000_1;
/// Waits for a zone lock of which a 99th percentile is more than the maximum.
const WAITS_MIN: u64 = 100;
/// Flushes and reads that hurt a reader: this long, if they are not rare.
const READ_NS: u64 = 1_000_000;
/// Flushes and reads are not rare from this number on, if they also are this share of all (judgement, both).
const RARE_MAX: u64 = 3;
/// One of so many.
const RARE_SHARE: u64 = 100;

/// Verdicts on the three problems.
pub fn diagnose(seen: &Seen, figures: &Figures) -> [Verdict; 3] {
    [
        upkeep_herd(seen, figures),
        zone_lock(seen, figures),
        memcg_flush(seen, figures),
    ]
    .map(|verdict| Verdict {
        changes: changes(verdict.problem, seen),
        ..rest_on_all(verdict, seen)
    })
}

/// No absence rests on a part of what happened: one of 100 events lost, or a list that was full. A flush that goes on across a loss has no
/// times, so for flushes any loss counts.
fn rest_on_all(verdict: Verdict, seen: &Seen) -> Verdict {
    if verdict.answer != Answer::Absent {
        return verdict;
    }
    let lost = seen.losses.events_lost;
    let all = seen.losses.events_read.saturating_add(lost);
    let is_rare = match verdict.problem {
        Problem::MemcgFlush => lost == 0,
        _ => lost == 0 || lost.saturating_mul(RARE_SHARE) < all,
    };
    let of_zones = || seen.waits.iter().filter(|it| it.lock == LockKind::Zone);
    let (items, are) = match verdict.problem {
        Problem::UpkeepHerd => (seen.upkeep.len(), "calls"),
        Problem::ZoneLock => (of_zones().count(), "waits"),
        Problem::MemcgFlush => (seen.flushes.len(), "flushes"),
    };
    let (said, advice) = if !is_rare {
        let advice = match (seen.recorded_by.is_some(), seen.mode(), verdict.problem) {
            (true, ..) => "Record again with larger buffers: `-b` of trace-cmd, `-m` of perf.",
            (_, Mode::Deep, Problem::ZoneLock) => "Observe with `--locks`, which traces less.",
            (_, Mode::Deep, _) => "Observe without `--deep`, which traces less.",
            _ => {
                "Observe with more priority (`nice -n -10`), so that the buffers are read in time."
            }
        };
        let said = format!("{lost} events were lost, so there may be more.");
        (said, advice)
    } else if items >= ITEMS {
        let said = format!("The list of {are} was full, and the others are not counted.");
        (said, "Observe for less time (`--seconds 10`).")
    } else {
        return verdict;
    };
    Verdict {
        answer: Answer::CannotTell,
        why: format!("{} {said}", verdict.why),
        advice: advice.to_owned(),
        ..verdict
    }
}

fn verdict(
    problem: Problem,
    answer: Answer,
    why: impl Into<String>,
    advice: impl Into<String>,
) -> Verdict {
    Verdict {
        problem,
        answer,
        why: why.into(),
        advice: advice.into(),
        changes: Vec::new(),
    }
}

/// The high end of numbers, as in `5.0 us at p99, 9.0 us at most`. Few numbers have a maximum only.
fn high_end(of: &Distribution, shown: fn(u64) -> String) -> String {
    let tail = of.tail().map(|p99| format!("{} at p99, ", shown(p99)));
    format!("{}{} at most", tail.unwrap_or_default(), shown(of.max))
}

fn us(ns: u64) -> String {
    match ns {
        ns if ns < 10_000 => format!("{:.1} us", ns as f64 / 1e3),
        ns if ns < 1_000_000 => format!("{:.0} us", ns as f64 / 1e3),
        ns => format!("{:.1} ms", ns as f64 / 1e6),
    }
}

/// Says what is not there, of all that takes one of these parts with it. An answer must not rest on such a part.
fn lacks(seen: &Seen, parts: &[&str]) -> Option<String> {
    let missing = seen.missing.iter();
    let of: Vec<_> = missing
        .filter(|missing| parts.contains(&missing.removes.as_str()))
        .map(Missing::sentence)
        .collect();
    (!of.is_empty()).then(|| of.join(" "))
}

/// The next step: of a file, the command that would have recorded the events of a problem.
fn next(seen: &Seen, problem: Problem, why: &str, live: &str) -> String {
    match seen.recorded_by {
        None if seen.mode() == Mode::Locks && problem != Problem::ZoneLock => {
            "Run `bursar-observe watch` without `--locks`.".to_owned()
        }
        None => live.to_owned(),
        Some(_) if why.contains("--kallsyms") => {
            "Read the file with `--kallsyms FILE`: a copy of /proc/kallsyms of the same boot."
                .to_owned()
        }
        Some(writer) => format!("Record the events: `{}`.", writer.command(problem)),
    }
}

/// Says that the mode traces neither upkeep nor flushes.
fn untraced(seen: &Seen) -> Option<String> {
    let said = "The mode `--locks` traces waits for spin locks alone.";
    (seen.mode() == Mode::Locks).then(|| said.to_owned())
}

fn upkeep_herd(seen: &Seen, figures: &Figures) -> Verdict {
    let say = |answer, why: String, advice: &str| verdict(Problem::UpkeepHerd, answer, why, advice);
    let cannot = |why: String, live| {
        let advice = next(seen, Problem::UpkeepHerd, &why, live);
        say(Answer::CannotTell, why, &advice)
    };
    if seen.machine.cpus < 2 {
        return say(
            Answer::CannotTell,
            "This machine has one CPU.".to_owned(),
            "Observe a machine with many CPUs.",
        );
    }
    // Idle CPUs expire late, so without slots the ticks alone show no absence.
    let herd = figures.herd.filter(|herd| herd.slots_per_s > 0.0);
    let (Some(herd), Some(upkeep)) = (herd, &figures.upkeep) else {
        let why = lacks(seen, &[WORK, TARGETS, LATENESS])
            .or_else(|| untraced(seen))
            .unwrap_or_else(|| "No call of vmstat_update followed a timer in this run.".to_owned());
        return cannot(
            why,
            "Observe for longer (`--seconds 60`), under the load that hurts.",
        );
    };
    if herd.calls < CALLS {
        let why = format!(
            "Only {} calls of vmstat_update followed a timer in this run.",
            herd.calls
        );
        return cannot(
            why,
            "Observe for longer (`--seconds 60`), under the load that hurts.",
        );
    }
    let why = format!(
        "A call of vmstat_update shares its wheel slot with {:.1} CPUs on average, itself included, and its tick with {:.1} \
         ({} at most); at random slots it would meet {:.1}. A call takes {}. All calls take {:.4} % of all CPUs' time.",
        herd.cpus_per_slot,
        herd.cpus_per_tick,
        herd.cpus_per_tick_max,
        herd.cpus_per_slot_random,
        high_end(&upkeep.duration_ns, us),
        upkeep.cpu_share * 100.0
    );
    let meet = herd.cpus_per_slot_max.max(herd.cpus_per_tick_max);
    if herd.cpus_per_slot.max(herd.cpus_per_tick) < HERD * herd.cpus_per_slot_random {
        let advice = match meet >= HERD_CPUS && upkeep.duration_ns.p99 >= WAIT_NS {
            true => {
                "No other rule on the timer wheel keeps the CPUs much further apart. Raise `vm.stat_interval` (sysctl) to have fewer calls."
            }
            false => "None.",
        };
        return say(Answer::Absent, why, advice);
    }
    if meet < HERD_CPUS {
        let advice = "None on this machine: few CPUs meet. A larger one may have a herd: record a run, and `bursar-observe replay` it with \
                      `-m sim:cpus=72`.";
        return say(Answer::Absent, why, advice);
    }
    let advice = match upkeep.duration_ns.p99 < WAIT_NS {
        true => {
            "None that is urgent: the calls are short. With more CPUs more of them meet. `bursar-lab run vmstat-spread` \
             compares ways to spread it."
        }
        false => {
            "Raise `vm.stat_interval` (sysctl) to have fewer calls. `bursar-lab run vmstat-spread` compares ways to spread them."
        }
    };
    say(Answer::Present, why, advice)
}

/// Shares of the work in which pages are freed.
fn work(frees: &[FreeFigures]) -> String {
    let all: u64 = frees.iter().fold(0, |sum, it| sum.saturating_add(it.pages));
    let shown = frees.iter().map(|it| {
        let by = match it.context {
            Context::Upkeep => "upkeep",
            Context::Kswapd => "kswapd",
            Context::DirectReclaim => "direct reclaim",
            Context::Exit => "ends of processes",
            Context::Task => "other work of tasks",
        };
        let share = it.pages as f64 / all.max(1) as f64 * 100.0;
        let share = match share < 0.5 {
            true => "under 1".to_owned(),
            false => format!("{share:.0}"),
        };
        format!("{by} {share} % (at most {} at once)", it.pages_max)
    });
    let shown: Vec<_> = shown.collect();
    match shown.is_empty() {
        true => String::new(),
        false => format!("Work that freed these pages: {}. ", shown.join(", ")),
    }
}

/// Judges waits for a lock by their number, their share of all CPUs' time and their tail, and gives the reason.
///
/// The 99th percentile of a few waits is their maximum, which one pause of a virtual CPU can set. So few waits are not enough.
fn judge_waits(lock: &str, waits: &WaitFigures) -> (Answer, String) {
    let WaitFigures {
        wait_ns, cpu_share, ..
    } = waits;
    let (cpu_share, count) = (*cpu_share, wait_ns.samples);
    let said = format!(
        "{count} waits for {lock}: {}, {:.3} % of all CPUs' time",
        high_end(wait_ns, us),
        cpu_share * 100.0
    );
    if cpu_share < WAIT_SHARE_MIN {
        let limit = WAIT_SHARE_MIN * 100.0;
        return (
            Answer::Absent,
            format!("{said}, which is less than {limit} % and too little to matter."),
        );
    }
    let hurts = wait_ns.p99 >= WAIT_NS || cpu_share >= WAIT_SHARE;
    match (hurts, count >= WAITS_MIN) {
        (true, true) => (Answer::Present, format!("{said}.")),
        (true, false) => (
            Answer::CannotTell,
            format!("{said}. They are too few to judge: fewer than {WAITS_MIN}."),
        ),
        (false, _) => (Answer::Absent, format!("{said}.")),
    }
}

/// End of a sentence on waits for all spin locks.
const AMONG: &str = " Zone locks are among them, so waits for these matter even less.";

/// Judges waits for all spin locks, which are no fewer than those for zone locks. Lost events would make them fewer.
fn bound(seen: &Seen) -> Option<(Answer, String)> {
    let all = all_waits(seen).filter(|_| seen.losses.events_lost == 0)?;
    Some(judge_waits("spin locks of all kinds", &all))
}

fn zone_lock(seen: &Seen, figures: &Figures) -> Verdict {
    let say = |answer, why: String, advice: &str| verdict(Problem::ZoneLock, answer, why, advice);
    let cannot = |why: String, live| {
        let advice = next(seen, Problem::ZoneLock, &why, live);
        say(Answer::CannotTell, why, &advice)
    };
    if seen.mode() == Mode::Light {
        let unknown = lacks(seen, &[WAITS]);
        return cannot(
            unknown.unwrap_or_else(|| "The light mode does not trace waits for locks.".to_owned()),
            "Run `bursar-observe watch --locks` under the load that hurts. It traces waits alone.",
        );
    }
    let zone = figures
        .waits
        .iter()
        .find(|wait| wait.lock == LockKind::Zone);
    if seen.deep && figures.bursts.is_empty() && zone.is_none() {
        let why = lacks(seen, &[PAGES, WAITS])
            .unwrap_or_else(|| "No pages moved under a zone lock in this run.".to_owned());
        return cannot(why, "Observe under the load that hurts.");
    }
    let largest = figures
        .bursts
        .iter()
        .map(|burst| burst.pages.max)
        .max()
        .unwrap_or(0);
    let drains = figures
        .bursts
        .iter()
        .find(|burst| burst.kind == BurstKind::Drain);
    let mut why = match drains {
        Some(drains) => format!(
            "A burst of freed pages has {} and takes {}; the largest burst of all has {largest} pages. ",
            high_end(&drains.pages, |pages| format!("{pages} pages")),
            high_end(&drains.duration_ns, us)
        ),
        None if largest > 0 => format!("The largest burst has {largest} pages. "),
        None => String::new(),
    };
    why.push_str(&work(&figures.frees));
    why.push_str(match seen.releases_each_batch(Path::Free) {
        _ if figures.bursts.is_empty() => "",
        Some(true) => "This kernel releases the lock within large bursts. ",
        Some(false) => "Other CPUs waited through whole bursts of more than a batch: not all paths of this kernel release the lock \
             after each batch. ",
        None => "No burst shows whether the lock is released after each batch. ",
    });
    match zone {
        Some(zone) => {
            let (answer, said) = judge_waits("a zone lock", zone);
            why.push_str(&said);
            match answer {
                Answer::Present => {
                    let advice = match seen.releases_each_batch(Path::Free) {
                        Some(true) => {
                            "The lock is released within bursts already. Free memory in smaller parts. `bursar-lab run \
                             pcp-batch-free` compares policies."
                        }
                        _ => {
                            "Use a kernel that releases the lock after each batch (6.19 and later). `bursar-lab run \
                             pcp-batch-free` shows what that changes."
                        }
                    };
                    let confirm = match seen.deep {
                        true => "Tracing each page makes waits longer: confirm with `--locks`. ",
                        false => "`--deep` shows how many pages a CPU moves at once. ",
                    };
                    say(answer, why, &format!("{confirm}{advice}"))
                }
                Answer::Absent => {
                    let Some(lacks) = lacks(seen, &[WAITS]) else {
                        return say(answer, why, "None.");
                    };
                    // Waits without a stack may be for zones, too.
                    match bound(seen) {
                        Some((Answer::Absent, said)) => {
                            say(answer, format!("{why} {said}{AMONG}"), "None.")
                        }
                        bound => {
                            let said = bound.map_or(String::new(), |(_, said)| said + " ");
                            let advice = "Observe for longer, or at another time. Stacks are taken of the first 4,000 waits.";
                            cannot(format!("{why} {said}{lacks}"), advice)
                        }
                    }
                }
                Answer::CannotTell => say(
                    answer,
                    why,
                    "Observe for longer (`--seconds 60`), under the load that hurts.",
                ),
            }
        }
        None => {
            if let Some(lacks) = lacks(seen, &[WAITS]) {
                if let Some((answer, said)) = bound(seen) {
                    why.push_str(&said);
                    if answer == Answer::Absent {
                        why.push_str(AMONG);
                        return say(answer, why, "None.");
                    }
                    why.push(' ');
                }
                why.push_str(&lacks);
                return cannot(
                    why,
                    "Observe with a kernel that has lock:contention_begin (5.19 and later).",
                );
            }
            if figures.waits.is_empty() && seen.machine.virtualized != Some(false) {
                why.push_str(
                    "No wait for any spin lock was seen. The kernel of a guest without paravirtual spin locks does not report waits.",
                );
                let advice = "Observe on the host, or compare the burst durations above with the latency that hurts.";
                return say(Answer::CannotTell, why, advice);
            }
            why.push_str("No wait for a zone lock was seen. (A single waiter may go unseen: the kernel reports queues.)");
            say(Answer::Absent, why, "None.")
        }
    }
}

/// Whether so many of all hurt. A few that hurt are no answer, because a pause of the machine makes them, too.
fn judge_count(hurting: u64, all: u64) -> Answer {
    match hurting {
        0 => Answer::Absent,
        _ if hurting.saturating_mul(RARE_SHARE) < all => Answer::Absent,
        _ if hurting < RARE_MAX => Answer::CannotTell,
        _ => Answer::Present,
    }
}

/// Judges the flushes for readers, and says what to do about long ones.
fn long_flushes(seen: &Seen) -> (Answer, &'static str) {
    let all = || flushes_for(&seen.flushes, FlushFor::Reader);
    let long = || all().filter(|it| it.time_ns() >= READ_NS);
    let answer = judge_count(long().count() as u64, all().count() as u64);
    let sum = |of: fn(&Flush) -> u64| long().map(of).fold(0, u64::saturating_add);
    let advice = match sum(|it| it.wait_ns) > sum(|it| it.held_ns) {
        true => {
            "Readers wait for each other. Read memory.stat less often, and of fewer cgroups (see the readers below). Kernels \
             from 6.8 on skip flushes of groups with few updates. `bursar-lab run memcg-flush` compares policies."
        }
        false => {
            "The flush itself is long: it folds every changed cgroup below the one that is read. Read cgroups with fewer cgroups \
             below them, or read memory.current, which needs no flush. `bursar-lab run memcg-flush` compares policies."
        }
    };
    (answer, advice)
}

fn memcg_flush(seen: &Seen, figures: &Figures) -> Verdict {
    let say = |answer, why: String, advice: &str| verdict(Problem::MemcgFlush, answer, why, advice);
    let cannot = |why: String, live| {
        let advice = next(seen, Problem::MemcgFlush, &why, live);
        say(Answer::CannotTell, why, &advice)
    };
    let mut why = Vec::new();
    let mut answers = Vec::new();
    if let Some(reads) = &figures.reads {
        why.push(format!(
            "A read of memory.stat takes {}; its CPU time is {}.",
            high_end(&reads.duration_ns, us),
            high_end(&reads.cpu_ns, us)
        ));
        let all = reads.cpu_ns.samples;
        if reads.stale > 0 {
            why.push(format!(
                "{} of {all} reads gave an old answer: unchanged for {} at most, while the usage moved by {} MiB at most.",
                reads.stale,
                us(reads.unchanged_ns_max),
                reads.moved_bytes_max >> 20
            ));
        }
        let long = seen.reads.iter().filter(|it| it.cpu_ns >= READ_NS).count();
        answers.push((
            judge_count(long as u64, all),
            "Reads are long. Read memory.stat of cgroups with fewer cgroups below them, or read memory.current, which needs no \
             flush. `bursar-lab run memcg-flush` compares policies.",
        ));
        answers.push((
            judge_count(reads.stale, all),
            "Answers are old. For decisions read memory.current, which is never old, or memory.pressure. `bursar-lab run memcg-flush` \
             compares policies.",
        ));
    }
    if let Some(flushes) = &figures.flushes {
        why.push(counts(flushes));
        if let Some(times) = &flushes.reader_ns {
            let times = high_end(times, us);
            why.push(format!("A flush for a reader takes {times}."));
        }
        if let Some(wait) = &flushes.wait_ns {
            let (count, waits) = (wait.samples, high_end(wait, us));
            why.push(format!("{count} flushes waited for the lock: {waits}."));
        } else if !seen.loses(RSTAT) {
            why.push("No flush waited for the lock.".to_owned());
        }
        // The cause comes first.
        answers.insert(0, long_flushes(seen));
    }
    if answers.is_empty() {
        let why = lacks(seen, &[REQUESTS, RSTAT])
            .or_else(|| untraced(seen))
            .unwrap_or_else(|| "No task asked for statistics of a cgroup in this run.".to_owned());
        return cannot(
            why,
            "Observe while monitoring reads memory.stat, for 10 s at least.",
        );
    }
    let first = |answer| answers.iter().find(|it| it.0 == answer);
    if let Some((answer, advice)) = first(Answer::Present) {
        return say(*answer, why.join(" "), advice);
    }
    if let Some(lacks) = lacks(seen, &[RSTAT]) {
        why.push(lacks);
        return cannot(
            why.join(" "),
            "Observe with kernel 6.10 or later, which reports waits.",
        );
    }
    if first(Answer::CannotTell).is_some() {
        let few = format!("Fewer than {RARE_MAX} took that long, or were old: too few to judge.");
        why.push(few);
        let advice = "Observe for longer (`--seconds 60`), while monitoring reads memory.stat.";
        return say(Answer::CannotTell, why.join(" "), advice);
    }
    say(Answer::Absent, why.join(" "), "None.")
}

/// Numbers of requests and flushes, by their beneficiaries.
fn counts(flushes: &FlushFigures) -> String {
    let count = |of: &Option<Distribution>| of.map_or(0, |it| it.samples);
    let mut said = format!(
        "{} requests for and flushes of statistics of cgroups: {} flushes for readers, {} of removed cgroups, {} periodic or forced",
        flushes.seen,
        count(&flushes.reader_ns),
        count(&flushes.removal_ns),
        count(&flushes.period_ns)
    );
    if let Some(skipped) = flushes.skipped {
        said.push_str(&format!("; {skipped} requests were skipped"));
    }
    if let Some(pending) = &flushes.skipped_pending {
        let most = pending.max;
        said.push_str(&format!(
            ", with up to {most} updates that the answer lacks"
        ));
    }
    said + "."
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::seen::Hold;
    use crate::seen::{Burst, Machine, Release, Stale, StatRead, Upkeep, Wait};

    #[test]
    fn few_numbers_have_no_p99() {
        let of = |samples: u64| Distribution::of(1_000..1_000 + samples).expect("numbers");
        assert_eq!(high_end(&of(10), us), "1.0 us at most");
        assert_eq!(high_end(&of(99), us), "1.1 us at most");
        let many = "1099 at p99, 1100 at most";
        assert_eq!(high_end(&of(101), |it| it.to_string()), many);
    }

    fn seen() -> Seen {
        Seen {
            machine: Machine {
                cpus: 2,
                hz: Some(250),
                interval_s: Some(1),
                virtualized: Some(false),
                ..Machine::default()
            },
            deep: true,
            end_ns: 10_000_000_000,
            ..Seen::default()
        }
    }

    fn answers(seen: &Seen) -> [Answer; 3] {
        diagnose(seen, &Figures::of(seen)).map(|verdict| verdict.answer)
    }

    fn upkeep(second: u64, cpu: u32, tick: u64) -> Upkeep {
        let tick = second * 250 + tick;
        Upkeep {
            cpu,
            target_jiffy: Some(tick),
            slot_jiffy: Some(tick),
            expire_jiffy: Some(tick),
            expire_ns: Some(tick),
            start_ns: tick,
            end_ns: tick + 1000,
            pages: None,
        }
    }

    #[test]
    fn nothing_seen_is_nothing_known() {
        assert_eq!(answers(&seen()), [Answer::CannotTell; 3]);
        assert_eq!(answers(&Seen::default()), [Answer::CannotTell; 3]);
    }

    #[test]
    fn a_herd_is_present_where_cpus_meet_and_absent_where_not() {
        let with = |cpus: u32, apart: u64| Seen {
            upkeep: (0..10)
                .flat_map(|second| {
                    (0..cpus).map(move |cpu| upkeep(second, cpu, apart * u64::from(cpu)))
                })
                .collect(),
            ..seen()
        };
        assert_eq!(answers(&with(4, 0))[0], Answer::Present);
        assert_eq!(answers(&with(4, 8))[0], Answer::Absent);
        let mut no_slots = with(4, 8);
        no_slots
            .upkeep
            .iter_mut()
            .for_each(|it| it.slot_jiffy = None);
        assert_eq!(answers(&no_slots)[0], Answer::CannotTell);
        // Three CPUs are no herd.
        assert_eq!(answers(&with(3, 0))[0], Answer::Absent);
    }

    /// The wheel rounds timers a second ahead up to 64 ticks at 1,000 a second, and to 8 at 250. No rule on it does better, so a
    /// kernel whose timers are spread has no herd. The means are those of the lab.
    #[test]
    fn spread_timers_on_the_wheel_are_no_herd() {
        // Of 72 CPUs so many are awake.
        let herd = |awake: u32, hz: u32, grain: u64, target: fn(u64, u64, u64) -> u64| {
            let call = |second, cpu: u32| {
                let hz = u64::from(hz);
                let slot = target(second * hz, hz, u64::from(cpu)).next_multiple_of(grain);
                Upkeep {
                    cpu,
                    slot_jiffy: Some(slot),
                    end_ns: 200_000,
                    start_ns: 0,
                    ..upkeep(0, 0, slot)
                }
            };
            let mut seen = seen();
            (seen.machine.cpus, seen.machine.hz) = (72, Some(hz));
            seen.upkeep = (1..=10)
                .flat_map(|second| (0..awake).map(move |cpu| call(second, cpu)))
                .collect();
            let figures = Figures::of(&seen);
            let [verdict, ..] = diagnose(&seen, &figures);
            (figures.herd.expect("calls").cpus_per_slot, verdict)
        };
        let upstream = |second: u64, _: u64, cpu: u64| second - 3 * cpu;
        let spread = |second: u64, hz: u64, cpu: u64| second + hz * cpu / 72;
        let (mean, verdict) = herd(72, 1000, 64, upstream);
        assert!((18.0..20.0).contains(&mean), "{mean}");
        assert_eq!(verdict.answer, Answer::Present, "{}", verdict.why);
        let (mean, verdict) = herd(72, 1000, 64, spread);
        assert!((4.3..4.9).contains(&mean), "{mean}");
        assert_eq!(verdict.answer, Answer::Absent, "{}", verdict.why);
        assert!(verdict.why.contains("at random slots"), "{}", verdict.why);
        assert!(verdict.advice.contains("wheel"), "{}", verdict.advice);
        for rule in [upstream, spread] {
            let (mean, verdict) = herd(72, 250, 8, rule);
            assert!((2.2..2.9).contains(&mean), "{mean}");
            assert_eq!(verdict.answer, Answer::Absent, "{}", verdict.why);
        }
        // While the other CPUs sleep, few that call at once are a herd.
        let (mean, verdict) = herd(5, 1000, 64, upstream);
        assert!((4.0..5.0).contains(&mean), "{mean}");
        assert_eq!(verdict.answer, Answer::Present, "{}", verdict.why);
    }

    /// So many waits of this length for a zone's lock, after a burst of pages.
    fn with_waits(count: u64, wait_ns: u64) -> Seen {
        let one = with_wait(wait_ns);
        let waits = (0..count).map(|nth| Wait {
            start_ns: nth * wait_ns,
            end_ns: (nth + 1) * wait_ns,
            ..one.waits[0]
        });
        Seen {
            waits: waits.collect(),
            ..one
        }
    }

    fn with_wait(wait_ns: u64) -> Seen {
        let burst = Burst {
            cpu: 0,
            pid: 1,
            zone: None,
            kind: BurstKind::Drain,
            start_ns: 0,
            end_ns: 500,
            pages: 63,
            hold: Hold::Unknown,
            context: None,
        };
        let wait = Wait {
            cpu: 1,
            pid: 2,
            lock: LockKind::Zone,
            address: 1,
            start_ns: 100,
            end_ns: 100 + wait_ns,
        };
        Seen {
            bursts: vec![burst],
            waits: vec![wait],
            ..seen()
        }
    }

    #[test]
    fn waits_decide_on_the_zone_lock() {
        assert_eq!(answers(&with_waits(100, 1_000))[1], Answer::Absent);
        // 20 CPU seconds: 1 % of them, and 0.1 %.
        assert_eq!(answers(&with_waits(200, 1_000_000))[1], Answer::Present);
        assert_eq!(answers(&with_waits(2_000, 10_000))[1], Answer::Present);
        assert_eq!(answers(&with_waits(1_900, 10_000))[1], Answer::Absent);
        let mut guest = with_wait(1_000);
        guest.waits.clear();
        assert_eq!(answers(&guest)[1], Answer::Absent);
        guest.machine.virtualized = Some(true);
        assert_eq!(answers(&guest)[1], Answer::CannotTell);
        guest.deep = false;
        assert_eq!(answers(&guest)[1], Answer::CannotTell);
    }

    /// A starved machine of 2 CPUs had 12 waits in 19 s, of 1.0 ms in all. Their 99th percentile is their maximum.
    #[test]
    fn few_short_waits_are_no_contention() {
        let mut starved = with_waits(12, 40_000);
        starved.end_ns = 19_000_000_000;
        starved.waits[11].end_ns += 520_000;
        let figures = Figures::of(&starved);
        let zone = &figures.waits[0];
        assert_eq!(zone.wait_ns.sum, 1_000_000);
        assert!(zone.wait_ns.p99 > WAIT_NS);
        let verdict = &diagnose(&starved, &figures)[1];
        assert_eq!(verdict.answer, Answer::Absent, "{}", verdict.why);
        assert!(
            verdict
                .why
                .contains("12 waits for a zone lock: 560 us at most, 0.003 %"),
            "{}",
            verdict.why
        );
        assert_eq!(verdict.advice, "None.");
    }

    /// Waits alone, without pages: the mode `--locks`, and files of `perf record -e 'lock:*'`.
    #[test]
    fn waits_alone_are_an_answer() {
        let alone = |count, wait_ns| Seen {
            deep: false,
            locks: true,
            bursts: Vec::new(),
            ..with_waits(count, wait_ns)
        };
        let found = diagnose_zone(&alone(200, 1_000_000));
        assert_eq!(found.answer, Answer::Present);
        assert!(
            found.why.starts_with("200 waits for a zone lock"),
            "{}",
            found.why
        );
        assert!(found.advice.contains("`--deep`"), "{}", found.advice);
        assert_eq!(diagnose_zone(&alone(200, 1_000)).answer, Answer::Absent);
        let [herd, _, memcg] = diagnose(&alone(9, 9), &Figures::of(&alone(9, 9)));
        for other in [herd, memcg] {
            assert_eq!(other.answer, Answer::CannotTell);
            assert!(
                other.why.contains("waits for spin locks alone"),
                "{}",
                other.why
            );
            let step = "without `--locks`";
            assert!(other.advice.contains(step), "{}", other.advice);
        }
        // No stack names the lock. Short waits for all spin locks show that those for a zone's are no problem.
        let unnamed = |count, wait_ns, events_lost| {
            let mut seen = alone(count, wait_ns);
            seen.losses.events_lost = events_lost;
            seen.waits
                .iter_mut()
                .for_each(|it| it.lock = LockKind::Other);
            seen.missing = vec![Missing {
                what: "stacks of waiters".to_owned(),
                removes: WAITS.to_owned(),
            }];
            diagnose_zone(&seen)
        };
        let bound = unnamed(200, 1_000, 0);
        assert_eq!(bound.answer, Answer::Absent, "{}", bound.why);
        assert!(
            bound.why.contains("spin locks of all kinds"),
            "{}",
            bound.why
        );
        assert_eq!(unnamed(200, 1_000_000, 0).answer, Answer::CannotTell);
        assert_eq!(unnamed(200, 1_000, 1).answer, Answer::CannotTell);
    }

    #[test]
    fn the_work_that_frees_pages_is_beside_the_verdict() {
        let with = |contexts: &[(Context, u64)]| {
            let of = |&(context, pages): &(Context, u64)| Burst {
                context: Some(context),
                pages,
                ..with_wait(1).bursts[0]
            };
            diagnose_zone(&Seen {
                bursts: contexts.iter().map(of).collect(),
                ..with_wait(1)
            })
        };
        let all = [
            (Context::Kswapd, 60),
            (Context::Exit, 2_016),
            (Context::Exit, 924),
            (Context::Upkeep, 1),
        ];
        let why = with(&all).why;
        let said = "Work that freed these pages: ends of processes 98 % (at most 2016 at once), kswapd 2 % (at most 60 at once), upkeep under 1 % (at most 1 at once).";
        assert!(why.contains(said), "{why}");
        let unknown = diagnose_zone(&with_wait(1)).why;
        assert!(!unknown.contains("Work that freed"), "{unknown}");
    }

    #[test]
    fn absence_needs_all_that_happened() {
        let with = |lost, read| {
            let mut seen = with_waits(100, 1_000);
            seen.losses.events_lost = lost;
            seen.losses.events_read = read;
            diagnose_zone(&seen)
        };
        assert_eq!(with(0, 0).answer, Answer::Absent);
        assert_eq!(with(9, 1_000).answer, Answer::Absent);
        let lossy = with(10, 900);
        assert_eq!(lossy.answer, Answer::CannotTell);
        assert!(lossy.why.contains("10 events were lost"), "{}", lossy.why);
        let mut flushed = seen();
        flushed.flushes = vec![Flush::default()];
        assert_eq!(memcg(&flushed).answer, Answer::Absent);
        (flushed.losses.events_lost, flushed.losses.events_read) = (1, 1_000_000);
        let verdict = memcg(&flushed);
        assert_eq!(verdict.answer, Answer::CannotTell);
        assert!(
            verdict.advice.contains("without `--deep`"),
            "{}",
            verdict.advice
        );
        let mut full = with_waits(ITEMS as u64, 1);
        full.end_ns = u64::MAX;
        let verdict = diagnose_zone(&full);
        assert_eq!(verdict.answer, Answer::CannotTell, "{}", verdict.why);
        // Other waits had no room. These do not matter.
        let mut others = with_waits(100, 1_000);
        others.losses.items_left_out = 1_000_000;
        assert_eq!(diagnose_zone(&others).answer, Answer::Absent);
        // Waits for locks without a name may be for zones. If all together are short, that is no matter.
        let mut unnamed = with_waits(100, 1_000);
        unnamed.missing = vec![Missing {
            what: "stack of 200 of 300 waits".to_owned(),
            removes: WAITS.to_owned(),
        }];
        assert_eq!(diagnose_zone(&unnamed).answer, Answer::Absent);
        let other = |wait| Wait {
            lock: LockKind::Other,
            ..wait
        };
        let others = with_waits(200, 500_000).waits;
        unnamed.waits.extend(others.into_iter().map(other));
        assert_eq!(diagnose_zone(&unnamed).answer, Answer::CannotTell);
        unnamed.waits = with_waits(200, 500_000).waits;
        assert_eq!(diagnose_zone(&unnamed).answer, Answer::Present);
    }

    /// A few long waits may be a problem, or a pause of the machine. Their number decides.
    #[test]
    fn few_long_waits_are_no_answer() {
        let verdict = |count| diagnose_zone(&with_waits(count, 500_000));
        let few = verdict(99);
        assert_eq!(few.answer, Answer::CannotTell);
        assert!(few.why.ends_with("fewer than 100."), "{}", few.why);
        assert!(few.advice.contains("longer"), "{}", few.advice);
        assert_eq!(verdict(100).answer, Answer::Present);
    }

    fn diagnose_zone(seen: &Seen) -> Verdict {
        let [_, zone, _] = diagnose(seen, &Figures::of(seen));
        zone
    }

    fn memcg(seen: &Seen) -> Verdict {
        let [.., memcg] = diagnose(seen, &Figures::of(seen));
        memcg
    }

    fn flushes(count: u64, each: Flush) -> Vec<Flush> {
        vec![Flush { holds: 1, ..each }; count as usize]
    }

    #[test]
    fn times_of_readers_flushes_decide() {
        let with = |count, wait_ns| Seen {
            flushes: flushes(
                count,
                Flush {
                    wait_ns,
                    skipped: Some(false),
                    forced: Some(false),
                    ..Flush::default()
                },
            ),
            ..seen()
        };
        assert_eq!(memcg(&with(3, 5_000_000)).answer, Answer::Present);
        assert_eq!(memcg(&with(2, 5_000_000)).answer, Answer::CannotTell);
        assert_eq!(memcg(&with(3, 5_000)).answer, Answer::Absent);
        let mut rare = with(3, 5_000_000);
        rare.flushes.extend(with(298, 5_000).flushes);
        assert_eq!(memcg(&rare).answer, Answer::Absent);
        let mut unseen = with(1, 0);
        assert_eq!(memcg(&unseen).answer, Answer::Absent);
        unseen.missing = vec![Missing {
            what: "event cgroup:cgroup_rstat_locked".to_owned(),
            removes: RSTAT.to_owned(),
        }];
        assert_eq!(memcg(&unseen).answer, Answer::CannotTell);
        let waiting = memcg(&with(3, 5_000_000)).advice;
        assert!(
            waiting.starts_with("Readers wait for each other"),
            "{waiting}"
        );
    }

    /// One reader of a cgroup with 600 dirty ones below it: nobody waits for the lock. 2,410 of 2,423 flushes are removals, so the
    /// 99th percentile of all is 23 us.
    #[test]
    fn one_reader_above_many_dirty_cgroups_is_a_problem_without_any_wait() {
        let flush = |pid, cgroup, held_ns| Flush {
            pid,
            cgroup,
            held_ns,
            held_ns_max: Some(held_ns),
            by_worker: pid == 7,
            ..Flush::default()
        };
        let asked = Flush {
            skipped: Some(false),
            forced: Some(false),
            ..flush(9, 5, 7_100_000)
        };
        let mut seen = Seen {
            flushes: [flushes(2_410, flush(7, 6, 23_000)), flushes(13, asked)].concat(),
            ..seen()
        };
        let figures = Figures::of(&seen).flushes.expect("flushes");
        let times = |of: Option<Distribution>| of.map(|it| (it.samples, it.max));
        assert_eq!(times(figures.removal_ns), Some((2_410, 23_000)));
        assert_eq!(times(figures.reader_ns), Some((13, 7_100_000)));
        let verdict = memcg(&seen);
        assert_eq!(verdict.answer, Answer::Present, "{}", verdict.why);
        assert!(
            verdict.why.contains("takes 7.1 ms at most"),
            "{}",
            verdict.why
        );
        let step = "memory.current, which needs no flush";
        assert!(verdict.advice.contains(step), "{}", verdict.advice);
        // The reads alone, of a kernel that shows no flush.
        seen.flushes.clear();
        seen.reads = (0..93)
            .map(|nth| read(if nth % 10 == 0 { 23_000_000 } else { 700_000 }))
            .collect();
        let verdict = memcg(&seen);
        assert_eq!(verdict.answer, Answer::Present, "{}", verdict.why);
        assert!(verdict.advice.contains(step), "{}", verdict.advice);
        // A reader that waits for a CPU says nothing of the kernel's statistics.
        seen.reads.iter_mut().for_each(|it| it.cpu_ns = 50_000);
        assert_eq!(memcg(&seen).answer, Answer::Absent);
    }

    fn read(cpu_ns: u64) -> StatRead {
        StatRead {
            end_ns: cpu_ns,
            cpu_ns,
            ..StatRead::default()
        }
    }

    #[test]
    fn old_answers_are_a_problem_if_they_are_not_rare() {
        let with = |stale: usize, reads: usize| {
            let old = Stale {
                unchanged_ns: 500_000_000,
                moved_bytes: 3 << 20,
            };
            let of = |nth| StatRead {
                stale: (nth < stale).then_some(old),
                ..read(99_000)
            };
            memcg(&Seen {
                reads: (0..reads).map(of).collect(),
                ..seen()
            })
        };
        let verdict = with(6, 93);
        assert_eq!(verdict.answer, Answer::Present);
        let said = "6 of 93 reads gave an old answer: unchanged for 500.0 ms at most, while the usage moved by 3 MiB at most.";
        assert!(verdict.why.contains(said), "{}", verdict.why);
        assert!(
            verdict.advice.starts_with("Answers are old"),
            "{}",
            verdict.advice
        );
        assert_eq!(with(2, 93).answer, Answer::CannotTell);
        assert_eq!(with(6, 601).answer, Answer::Absent);
        assert_eq!(with(0, 93).answer, Answer::Absent);
    }

    /// A live run that saw no wait, on a kernel whose events could not all be enabled.
    #[test]
    fn what_could_not_be_enabled_is_not_absent() {
        let mut all = with_wait(1_000);
        all.waits.clear();
        all.flushes = vec![Flush::default()];
        assert_eq!(answers(&all)[1..], [Answer::Absent; 2]);
        for virtualized in [Some(false), Some(true), None] {
            for (part, of) in [(WAITS, 1), (RSTAT, 2)] {
                let mut seen = all.clone();
                seen.machine.virtualized = virtualized;
                seen.missing = vec![Missing {
                    what: "event a:b (permission denied)".to_owned(),
                    removes: part.to_owned(),
                }];
                let verdict = &diagnose(&seen, &Figures::of(&seen))[of];
                assert_eq!(verdict.answer, Answer::CannotTell, "{part}");
                let said = "No event a:b (permission denied).";
                assert!(verdict.why.ends_with(said), "{}", verdict.why);
            }
        }
        // Nor did nobody ask if requests could not be seen.
        let mut none = seen();
        none.missing = vec![Missing {
            what: "event memcg:memcg_flush_stats".to_owned(),
            removes: REQUESTS.to_owned(),
        }];
        let why = &diagnose(&none, &Figures::of(&none))[2].why;
        assert_eq!(why, "No event memcg:memcg_flush_stats.");
    }

    #[test]
    fn a_release_is_told_by_gaps_and_by_other_cpus() {
        let with = |bursts, gap_at_batch_ns, holds: &[Hold]| {
            let burst = |hold: &Hold| Burst {
                hold: *hold,
                ..with_wait(1).bursts[0]
            };
            let release = Release {
                bursts,
                gap_at_batch_ns: Some(gap_at_batch_ns),
                gap_elsewhere_ns: Some(100),
            };
            let seen = Seen {
                bursts: holds.iter().map(burst).collect(),
                release,
                ..seen()
            };
            assert_eq!(seen.releases_each_batch(Path::Decay), None);
            seen.releases_each_batch(Path::Free)
        };
        assert_eq!(with(50, 500, &[Hold::Unknown]), Some(true));
        assert_eq!(with(50, 120, &[Hold::Unknown]), None);
        assert_eq!(with(5, 500, &[]), None);
        assert_eq!(with(50, 120, &[Hold::Refuted]), Some(true));
        assert_eq!(with(50, 500, &[Hold::Proven, Hold::Unknown]), Some(false));
    }
}
