//! Verdicts: whether a machine has one of three problems, why, and what to do.

use serde::Serialize;

use crate::changes::{Change, changes};
pub use crate::event::Problem;
use crate::event::{LATENESS, PAGES, REQUESTS, RSTAT, TARGETS, WAITS, WORK};
use crate::figures::{Distribution, Figures};
use crate::seen::{BurstKind, LockKind, Missing, Seen};

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

/// A herd: a call meets so many times the CPUs that it would meet at a random tick.
const HERD: f64 = 1.25;
/// A herd: so many CPUs on one tick or slot, at least once. Judgement: fewer wait for each other for microseconds.
const HERD_CPUS: u64 = 4;
/// Calls of which a pattern can be told.
const CALLS: u64 = 8;
/// Waits that hurt: this long at the 99th percentile.
const WAIT_NS: u64 = 100_000;
/// Waits that hurt: this share of all CPUs' time.
const WAIT_SHARE: f64 = 0.001;
/// Flush waits that hurt a reader: this long at the 99th percentile.
const FLUSH_WAIT_NS: u64 = 1_000_000;

/// Verdicts on the three problems.
pub fn diagnose(seen: &Seen, figures: &Figures) -> [Verdict; 3] {
    [
        upkeep_herd(seen, figures),
        zone_lock(seen, figures),
        memcg_flush(seen, figures),
    ]
    .map(|verdict| Verdict {
        changes: changes(verdict.problem, seen),
        ..verdict
    })
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
        None => live.to_owned(),
        Some(_) if why.contains("--kallsyms") => {
            "Read the file with `--kallsyms FILE`: a copy of /proc/kallsyms of the same boot."
                .to_owned()
        }
        Some(writer) => format!("Record the events: `{}`.", writer.command(problem)),
    }
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
         ({} at most); at random ticks it would meet {:.1}. A call takes {}. All calls take {:.4} % of all CPUs' time.",
        herd.cpus_per_slot,
        herd.cpus_per_tick,
        herd.cpus_per_tick_max,
        herd.cpus_per_tick_random,
        high_end(&upkeep.duration_ns, us),
        upkeep.cpu_share * 100.0
    );
    if herd.cpus_per_slot < HERD * herd.cpus_per_tick_random
        && herd.cpus_per_tick < HERD * herd.cpus_per_tick_random
    {
        return say(Answer::Absent, why, "None.");
    }
    if herd.cpus_per_slot_max.max(herd.cpus_per_tick_max) < HERD_CPUS {
        let advice = "None on this machine. With more CPUs there would be a herd: record a run, and `bursar-observe replay` it with \
                      `-m sim:cpus=384`.";
        return say(Answer::Absent, why, advice);
    }
    let advice = match upkeep.duration_ns.p99 < WAIT_NS {
        true => {
            "None that is urgent: the calls are short. With more CPUs the herd grows. `bursar-lab run vmstat-spread` \
             compares ways to spread it."
        }
        false => {
            "Raise `vm.stat_interval` (sysctl) to have fewer calls. `bursar-lab run vmstat-spread` compares ways to spread them."
        }
    };
    say(Answer::Present, why, advice)
}

fn zone_lock(seen: &Seen, figures: &Figures) -> Verdict {
    let say = |answer, why: String, advice: &str| verdict(Problem::ZoneLock, answer, why, advice);
    let cannot = |why: String, live| {
        let advice = next(seen, Problem::ZoneLock, &why, live);
        say(Answer::CannotTell, why, &advice)
    };
    let unknown = lacks(seen, &[PAGES, WAITS]);
    if !seen.deep {
        return cannot(
            unknown.unwrap_or_else(|| "The light mode does not trace pages and locks.".to_owned()),
            "Run `bursar-observe watch --deep` under the load that hurts. It slows page frees while it runs.",
        );
    }
    let zone = figures
        .waits
        .iter()
        .find(|wait| wait.lock == LockKind::Zone);
    if figures.bursts.is_empty() && zone.is_none() {
        let why =
            unknown.unwrap_or_else(|| "No pages moved under a zone lock in this run.".to_owned());
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
    why.push_str(match seen.releases_each_batch() {
        Some(true) => "This kernel releases the lock within large bursts. ",
        Some(false) => "Other CPUs waited through whole bursts of more than a batch: not all paths of this kernel release the lock \
             after each batch. ",
        None => "No burst shows whether the lock is released after each batch. ",
    });
    match zone {
        Some(zone) => {
            why.push_str(&format!(
                "{} waits for a zone lock: {}, {:.3} % of all CPUs' time.",
                zone.wait_ns.samples,
                high_end(&zone.wait_ns, us),
                zone.cpu_share * 100.0
            ));
            if zone.wait_ns.p99 >= WAIT_NS || zone.cpu_share >= WAIT_SHARE {
                let advice = match seen.releases_each_batch() {
                    Some(true) => {
                        "The lock is released within bursts already. Free memory in smaller parts. `bursar-lab run \
                         pcp-batch-free` compares policies."
                    }
                    _ => {
                        "Use a kernel that releases the lock after each batch (6.19 and later). `bursar-lab run pcp-batch-free` \
                         shows what that changes."
                    }
                };
                return say(Answer::Present, why, advice);
            }
            say(Answer::Absent, why, "None.")
        }
        None => {
            if let Some(lacks) = lacks(seen, &[WAITS]) {
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

fn memcg_flush(seen: &Seen, figures: &Figures) -> Verdict {
    let say = |answer, why: String, advice: &str| verdict(Problem::MemcgFlush, answer, why, advice);
    let cannot = |why: String, live| {
        let advice = next(seen, Problem::MemcgFlush, &why, live);
        say(Answer::CannotTell, why, &advice)
    };
    let Some(flushes) = &figures.flushes else {
        let why = lacks(seen, &[REQUESTS, RSTAT])
            .unwrap_or_else(|| "No task asked for statistics of a cgroup in this run.".to_owned());
        return cannot(
            why,
            "Observe while monitoring reads memory.stat, for 10 s at least.",
        );
    };
    let mut why = format!(
        "{} requests for and flushes of statistics of cgroups. ",
        flushes.seen
    );
    if let Some(duration) = &flushes.duration_ns {
        why.push_str(&format!("A flush takes {}. ", high_end(duration, us)));
    }
    if let (Some(skipped), Some(forced)) = (flushes.skipped, flushes.forced) {
        why.push_str(&format!(
            "{forced} are periodic or forced; {skipped} were skipped"
        ));
        match flushes.skipped_pending {
            Some(pending) => why.push_str(&format!(
                ", with up to {} updates that the answer lacks. ",
                pending.max
            )),
            None => why.push_str(". "),
        }
    }
    match &flushes.wait_ns {
        Some(wait) => {
            why.push_str(&format!(
                "{} waited for the lock: {}.",
                wait.samples,
                high_end(wait, us)
            ));
            if wait.p99 >= FLUSH_WAIT_NS {
                let advice = "Read memory.stat less often, and of fewer cgroups (see the readers below). Kernels from 6.8 on skip \
                              flushes of groups with few updates. `bursar-lab run memcg-flush` compares policies.";
                return say(Answer::Present, why, advice);
            }
        }
        None => match lacks(seen, &[RSTAT]) {
            Some(lacks) => {
                why.push_str(&lacks);
                return cannot(
                    why,
                    "Observe with kernel 6.10 or later, which reports waits.",
                );
            }
            None => why.push_str("No request waited for the lock."),
        },
    }
    say(Answer::Absent, why, "None.")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::seen::Hold;
    use crate::seen::{Burst, Flush, Machine, Missing, Release, Upkeep, Wait};

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
        assert_eq!(answers(&with_wait(1_000))[1], Answer::Absent);
        assert_eq!(answers(&with_wait(1_000_000))[1], Answer::Present);
        let mut guest = with_wait(1_000);
        guest.waits.clear();
        assert_eq!(answers(&guest)[1], Answer::Absent);
        guest.machine.virtualized = Some(true);
        assert_eq!(answers(&guest)[1], Answer::CannotTell);
        guest.deep = false;
        assert_eq!(answers(&guest)[1], Answer::CannotTell);
    }

    #[test]
    fn waits_decide_on_flushes() {
        let with = |wait_ns| Seen {
            flushes: vec![Flush {
                wait_ns,
                holds: 1,
                ..Flush::default()
            }],
            ..seen()
        };
        assert_eq!(answers(&with(5_000_000))[2], Answer::Present);
        assert_eq!(answers(&with(5_000))[2], Answer::Absent);
        let mut unseen = with(0);
        assert_eq!(answers(&unseen)[2], Answer::Absent);
        unseen.missing = vec![Missing {
            what: "event cgroup:cgroup_rstat_locked".to_owned(),
            removes: RSTAT.to_owned(),
        }];
        assert_eq!(answers(&unseen)[2], Answer::CannotTell);
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
            Seen::releases_each_batch(&Seen {
                bursts: holds.iter().map(burst).collect(),
                release,
                ..seen()
            })
        };
        assert_eq!(with(50, 500, &[Hold::Unknown]), Some(true));
        assert_eq!(with(50, 120, &[Hold::Unknown]), None);
        assert_eq!(with(5, 500, &[]), None);
        assert_eq!(with(50, 120, &[Hold::Refuted]), Some(true));
        assert_eq!(with(50, 500, &[Hold::Proven, Hold::Unknown]), Some(false));
    }
}
