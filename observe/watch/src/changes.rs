//! Merged changes of the kernel that address the problems, and whether the observed kernel has them.
//!
//! Distributions carry changes back to older versions. So behaviour decides where the run shows it, and the version elsewhere.

use serde::Serialize;

use crate::event::Problem;
use crate::seen::{Flush, Seen};

/// A change of the kernel, and whether the observed kernel has it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Change {
    /// Effect of the change.
    pub what: &'static str,
    /// Version of Linux that has it first. `None`: posted, and not merged up to 7.3.
    pub merged: Option<&'static str>,
    /// Whether this kernel has it.
    pub has_it: Has,
    /// Basis of that.
    pub by: Basis,
    /// The basis in words.
    pub evidence: String,
}

/// Whether a kernel has a change.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Has {
    /// It does.
    Yes,
    /// It does not.
    No,
    /// Neither its behaviour nor its version shows it.
    Unknown,
}

/// Basis of an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Basis {
    /// Events of this run.
    Behaviour,
    /// The version in the kernel's release.
    Version,
}

type Version = (u32, u32);

/// Timers of which a pattern can be told.
const TIMERS: usize = 8;
/// Ticks by which the kernel moves the timers of successive CPUs apart.
const TICKS_APART: u64 = 3;

/// Changes that address a problem.
pub(crate) fn changes(problem: Problem, seen: &Seen) -> Vec<Change> {
    match problem {
        Problem::UpkeepHerd => vec![spread_upkeep(seen)],
        Problem::ZoneLock => vec![release_each_batch(seen)],
        Problem::MemcgFlush => vec![threshold_of_group(seen), release_each_cpu(seen)],
    }
}

/// Timers of upkeep: at full seconds less 3 ticks a CPU, or anywhere else.
fn spread_upkeep(seen: &Seen) -> Change {
    let change = |has_it, evidence: String| Change {
        what: "timers of upkeep are spread over the interval",
        merged: None,
        has_it,
        by: Basis::Behaviour,
        evidence,
    };
    let hz = u64::from(seen.machine.hz.unwrap_or(0));
    let targets = seen
        .upkeep
        .iter()
        .filter_map(|it| Some((it.cpu, it.target_jiffy?)));
    let at_second = |(cpu, target): &(u32, u64)| {
        target
            .wrapping_add(TICKS_APART * u64::from(*cpu))
            .is_multiple_of(hz)
    };
    let (all, rounded) = targets.fold((0, 0), |(all, rounded), target| {
        (all + 1, rounded + usize::from(hz > 0 && at_second(&target)))
    });
    if all < TIMERS || hz == 0 {
        let evidence = format!("only {all} timers were seen with their target and the tick rate");
        return change(Has::Unknown, evidence);
    }
    let evidence = format!(
        "{rounded} of {all} timers were set for a full second less {TICKS_APART} ticks a CPU"
    );
    let has_it = match rounded * 2 > all {
        true => Has::No,
        false => Has::Yes,
    };
    change(has_it, evidence)
}

fn release_each_batch(seen: &Seen) -> Change {
    let behaves = seen.releases_each_batch().map(|releases| {
        let evidence = match releases {
            true => "the lock is given up within bursts that are larger than a batch",
            false => "CPUs waited through whole bursts that are larger than a batch",
        };
        (releases, evidence.to_owned())
    });
    merged(
        "the zone lock is released after each batch of pages",
        ("6.19", (6, 19)),
        behaves,
        seen,
    )
}

fn threshold_of_group(seen: &Seen) -> Change {
    let skipped = seen.flushes.iter().filter(|it| it.skipped == Some(true));
    let behaves = match skipped.count() {
        0 => None,
        count => Some((true, format!("{count} requests were skipped"))),
    };
    merged(
        "a reader flushes only its own cgroup and those below, and only after many updates there",
        ("6.8", (6, 8)),
        behaves,
        seen,
    )
}

fn release_each_cpu(seen: &Seen) -> Change {
    let cpus = seen.machine.cpus;
    let flushes = || seen.flushes.iter().filter(|it| it.held_ns_max.is_some());
    let of_each_cpu = |it: &&Flush| it.holds as usize >= cpus;
    let behaves = (cpus > 1 && flushes().count() > 0).then(|| {
        let (all, released) = (flushes().count(), flushes().filter(of_each_cpu).count());
        let evidence = format!("{released} of {all} flushes took the lock once for each CPU");
        // A busy older kernel does so too, now and then.
        (released * 2 > all, evidence)
    });
    merged(
        "the lock of cgroup statistics is released after each CPU",
        ("6.15", (6, 15)),
        behaves,
        seen,
    )
}

/// A change that is merged. `behaves` says whether the events show it, and by what.
fn merged(
    what: &'static str,
    (merged, since): (&'static str, Version),
    behaves: Option<(bool, String)>,
    seen: &Seen,
) -> Change {
    let by_version = version(&seen.machine.kernel).map(|version| version >= since);
    let of = |has| match has {
        true => Has::Yes,
        false => Has::No,
    };
    let (has_it, by, evidence) = match (behaves, by_version) {
        (Some((behaves, mut evidence)), by_version) => {
            if by_version.is_some_and(|has| has != behaves) {
                evidence.push_str(", which its version does not suggest");
            }
            (of(behaves), Basis::Behaviour, evidence)
        }
        (None, Some(has)) => {
            let evidence = "this run does not show it".to_owned();
            (of(has), Basis::Version, evidence)
        }
        (None, None) => {
            let evidence = "neither this run nor the release shows it".to_owned();
            (Has::Unknown, Basis::Version, evidence)
        }
    };
    Change {
        what,
        merged: Some(merged),
        has_it,
        by,
        evidence,
    }
}

/// Major and minor version in a release such as `6.12.0-rc3`.
pub fn version(release: &str) -> Option<Version> {
    let mut parts = release.split(|letter: char| !letter.is_ascii_digit());
    Some((parts.next()?.parse().ok()?, parts.next()?.parse().ok()?))
}

impl Change {
    /// One sentence or two.
    pub fn sentence(&self) -> String {
        let Self { what, evidence, .. } = self;
        let merged = match self.merged {
            Some(merged) => format!("Merged in Linux {merged}"),
            None => "Posted, and not merged up to Linux 7.3".to_owned(),
        };
        let has = match self.has_it {
            Has::Yes => "This kernel has it",
            Has::No => "This kernel lacks it",
            Has::Unknown => "Not known of this kernel",
        };
        let by = match (self.has_it, self.by) {
            (Has::Unknown, _) => "",
            (_, Basis::Behaviour) => ", by its behaviour",
            (_, Basis::Version) => ", by its version",
        };
        format!("{merged}: {what}. {has}{by}: {evidence}.")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::seen::{Burst, BurstKind, Hold, Machine, Upkeep};

    fn of(kernel: &str) -> Seen {
        Seen {
            machine: Machine {
                kernel: kernel.to_owned(),
                cpus: 4,
                hz: Some(250),
                ..Machine::default()
            },
            ..Seen::default()
        }
    }

    fn answers(problem: Problem, seen: &Seen) -> Vec<(Has, Basis)> {
        let changes = changes(problem, seen);
        changes.iter().map(|it| (it.has_it, it.by)).collect()
    }

    #[test]
    fn versions_decide_where_nothing_was_seen() {
        use Basis::Version;
        let old = of("6.1.0-acme");
        assert_eq!(answers(Problem::ZoneLock, &old), [(Has::No, Version)]);
        assert_eq!(
            answers(Problem::MemcgFlush, &old),
            [(Has::No, Version), (Has::No, Version)]
        );
        let between = of("6.8.12");
        assert_eq!(
            answers(Problem::MemcgFlush, &between),
            [(Has::Yes, Version), (Has::No, Version)]
        );
        let new = of("7.2.0-rc1");
        assert_eq!(answers(Problem::ZoneLock, &new), [(Has::Yes, Version)]);
        let hidden = of("");
        assert_eq!(
            answers(Problem::ZoneLock, &hidden),
            [(Has::Unknown, Version)]
        );
    }

    #[test]
    fn behaviour_comes_before_the_version() {
        let burst = Burst {
            cpu: 0,
            pid: 1,
            zone: Some(0),
            kind: BurstKind::Drain,
            start_ns: 0,
            end_ns: 9,
            pages: 400,
            hold: Hold::Refuted,
        };
        let backport = Seen {
            bursts: vec![burst],
            ..of("6.12.3")
        };
        let [change] = &changes(Problem::ZoneLock, &backport)[..] else {
            panic!("one change");
        };
        assert_eq!((change.has_it, change.by), (Has::Yes, Basis::Behaviour));
        assert!(
            change.sentence().contains("version does not suggest"),
            "{change:?}"
        );
    }

    #[test]
    fn holds_show_whether_each_cpu_is_a_hold_of_its_own() {
        let with = |holds| Seen {
            flushes: vec![Flush {
                holds,
                held_ns_max: (holds > 0).then_some(1),
                ..Flush::default()
            }],
            ..of("6.12.3")
        };
        let second = |seen: &Seen| answers(Problem::MemcgFlush, seen)[1];
        assert_eq!(second(&with(4)), (Has::Yes, Basis::Behaviour));
        assert_eq!(second(&with(3)), (Has::No, Basis::Behaviour));
        assert_eq!(second(&with(0)), (Has::No, Basis::Version));
    }

    #[test]
    fn targets_show_whether_upkeep_is_spread() {
        let with = |apart: u64| Seen {
            upkeep: (1..=10_u64)
                .map(|second| Upkeep {
                    cpu: (second % 4) as u32,
                    target_jiffy: Some(second * 250 - apart * (second % 4)),
                    ..Upkeep::default()
                })
                .collect(),
            ..of("6.12.3")
        };
        let answer = |seen: &Seen| answers(Problem::UpkeepHerd, seen)[0].0;
        assert_eq!(answer(&with(3)), Has::No);
        assert_eq!(answer(&with(60)), Has::Yes);
        assert_eq!(answer(&of("6.12.3")), Has::Unknown);
    }
}
