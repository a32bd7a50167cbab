//! Merged changes of the kernel that address the problems, and whether the observed kernel has them.
//!
//! Distributions carry changes back to older versions. So behaviour decides where the run shows it, and the version elsewhere.

use serde::Serialize;

use crate::event::Problem;
use crate::seen::{Flush, Path, Seen};

/// A change of the kernel, and whether the observed kernel has it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Change {
    /// Effect of the change.
    pub what: &'static str,
    /// Versions of Linux that have it first. `None`: posted, and not merged up to 7.3.
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

/// Three numbers. The third counts: stable versions take parts of a change.
type Version = (u32, u32, u32);

/// Versions that have a change.
struct Since {
    text: &'static str,
    mainline: Version,
    /// First version of each stable branch that took it.
    stable: &'static [Version],
}

impl Since {
    fn has(&self, version: Version) -> bool {
        let is_branch = |it: &Version| (it.0, it.1) == (version.0, version.1);
        let mut stable = self.stable.iter();
        version >= self.mainline || stable.any(|it| is_branch(it) && version >= *it)
    }
}

const fn mainline(text: &'static str, major: u32, minor: u32) -> Since {
    Since {
        text,
        mainline: (major, minor, 0),
        stable: &[],
    }
}

/// Announcements of 6.18.7 and 6.12.67, of 23 January 2026, list the change of decay, and not that of frees.
const DECAY: Since = Since {
    text: "6.19, 6.18.7 and 6.12.67",
    mainline: (6, 19, 0),
    stable: &[(6, 18, 7), (6, 12, 67)],
};
const FREE: Since = mainline("6.19", 6, 19);
/// The announcement of 6.6.117, of 24 November 2025, lists the change.
const THRESHOLD: Since = Since {
    text: "6.8 and 6.6.117",
    mainline: (6, 8, 0),
    stable: &[(6, 6, 117)],
};
/// The announcement of 6.14.9, of 29 May 2025, lists the change, and so does the review of 6.12.31.
const EACH_CPU: Since = Since {
    text: "6.15, 6.14.9 and 6.12.31",
    mainline: (6, 15, 0),
    stable: &[(6, 14, 9), (6, 12, 31)],
};

/// Timers of which a pattern can be told.
const TIMERS: usize = 8;
/// Ticks by which the kernel moves the timers of successive CPUs apart.
const TICKS_APART: u64 = 3;

/// Changes that address a problem.
pub(crate) fn changes(problem: Problem, seen: &Seen) -> Vec<Change> {
    match problem {
        Problem::UpkeepHerd => vec![spread_upkeep(seen)],
        Problem::ZoneLock => Path::ALL.map(|it| release_each_batch(seen, it)).into(),
        Problem::MemcgFlush => vec![
            threshold_of_group(seen),
            release_each_cpu(seen),
            // No event shows these two.
            merged(
                "each subsystem has a lock of statistics of its own",
                mainline("6.16", 6, 16),
                None,
                seen,
            ),
            merged(
                "an update takes no lock: the tree of changed cgroups is built by the flush (repaired in December 2025)",
                mainline("6.17", 6, 17),
                None,
                seen,
            ),
        ],
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
        let evidence = match (all, hz) {
            (0, _) => "no timer was seen with its target".to_owned(),
            (_, 0) => "the tick rate is not known".to_owned(),
            _ => format!("only {all} timers were seen with their target"),
        };
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

/// Whether a kernel gives the zone lock up after each batch on this path: three states of kernels, because some have the change of
/// decay alone.
pub fn release_each_batch(seen: &Seen, path: Path) -> Change {
    let behaves = seen.releases_each_batch(path).map(|releases| {
        let evidence = match releases {
            true => "the lock is given up within bursts that are larger than a batch",
            false => "CPUs waited through whole bursts that are larger than a batch",
        };
        (releases, evidence.to_owned())
    });
    let (what, since) = match path {
        Path::Decay => (
            "upkeep releases the zone lock after each batch of a list that decays",
            DECAY,
        ),
        Path::Free => (
            "a task that frees pages releases the zone lock after each batch",
            FREE,
        ),
    };
    merged(what, since, behaves, seen)
}

/// Whether a kernel has a threshold for each cgroup, and flushes what is read alone.
pub fn threshold_of_group(seen: &Seen) -> Change {
    let skipped = seen.flushes.iter().filter(|it| it.skipped == Some(true));
    let behaves = match skipped.count() {
        0 => None,
        count => Some((true, format!("{count} requests were skipped"))),
    };
    merged(
        "a reader flushes only its own cgroup and those below, and only after many updates there",
        THRESHOLD,
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
        EACH_CPU,
        behaves,
        seen,
    )
}

/// A change that is merged. `behaves` says whether the events show it, and by what.
fn merged(
    what: &'static str,
    since: Since,
    behaves: Option<(bool, String)>,
    seen: &Seen,
) -> Change {
    let by_version = version(&seen.machine.kernel).map(|version| since.has(version));
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
        merged: Some(since.text),
        has_it,
        by,
        evidence,
    }
}

/// Version in a release such as `6.12.117+deb12`. A candidate such as `6.19-rc3` has no third number.
pub fn version(release: &str) -> Option<Version> {
    let end = release.find(|it: char| !it.is_ascii_digit() && it != '.');
    let mut parts = release[..end.unwrap_or(release.len())].split('.');
    let (major, minor) = (parts.next()?.parse().ok()?, parts.next()?.parse().ok()?);
    let third = parts.next().and_then(|it| it.parse().ok());
    Some((major, minor, third.unwrap_or(0)))
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
    use crate::seen::{Burst, BurstKind, Context, Hold, Machine, Upkeep};

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
        assert_eq!(answers(Problem::ZoneLock, &old), [(Has::No, Version); 2]);
        for (release, merged) in [
            ("6.1.0-acme", 0),
            ("6.8.12", 1),
            ("6.15", 2),
            ("6.16.1", 3),
            ("6.17", 4),
        ] {
            let of_memcg = answers(Problem::MemcgFlush, &of(release));
            let has: Vec<_> = of_memcg.iter().map(|it| it.0 == Has::Yes).collect();
            let expected: Vec<_> = (0..4).map(|nth| nth < merged).collect();
            assert_eq!(has, expected, "{release}");
        }
        let new = of("7.2.0-rc1");
        assert_eq!(answers(Problem::ZoneLock, &new), [(Has::Yes, Version); 2]);
        let hidden = of("");
        let unknown = [(Has::Unknown, Version); 2];
        assert_eq!(answers(Problem::ZoneLock, &hidden), unknown);
    }

    /// Neither path, decay alone, or both.
    #[test]
    fn the_third_number_of_a_version_counts() {
        for (release, decay, free) in [
            ("6.18.6", Has::No, Has::No),
            ("6.18.7", Has::Yes, Has::No),
            ("6.18.44-acme", Has::Yes, Has::No),
            ("6.12.66+deb12", Has::No, Has::No),
            ("6.12.117+deb12-cloud-amd64", Has::Yes, Has::No),
            ("6.17.80", Has::No, Has::No),
            ("6.19-rc1", Has::Yes, Has::Yes),
            ("6.19.0", Has::Yes, Has::Yes),
        ] {
            let answers = answers(Problem::ZoneLock, &of(release));
            let has: Vec<_> = answers.iter().map(|it| it.0).collect();
            assert_eq!(has, [decay, free], "{release}");
        }
    }

    /// Stable branches took changes of statistics: 6.6.y that of 6.8, and 6.12.y and 6.14.y that of 6.15.
    #[test]
    fn stable_branches_have_changes_of_statistics() {
        for (release, threshold, each_cpu) in [
            ("6.6.116", Has::No, Has::No),
            ("6.6.117", Has::Yes, Has::No),
            ("6.6.130-acme", Has::Yes, Has::No),
            ("6.7.12", Has::No, Has::No),
            ("6.12.30", Has::Yes, Has::No),
            ("6.12.31", Has::Yes, Has::Yes),
            ("6.12.117+deb12-cloud-amd64", Has::Yes, Has::Yes),
            ("6.13.12", Has::Yes, Has::No),
            ("6.14.8", Has::Yes, Has::No),
            ("6.14.9", Has::Yes, Has::Yes),
        ] {
            let answers = answers(Problem::MemcgFlush, &of(release));
            let has: Vec<_> = answers[..2].iter().map(|it| it.0).collect();
            assert_eq!(has, [threshold, each_cpu], "{release}");
        }
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
            context: Some(Context::Task),
        };
        let backport = Seen {
            bursts: vec![burst],
            ..of("6.12.3")
        };
        let [decay, free] = &changes(Problem::ZoneLock, &backport)[..] else {
            panic!("two changes");
        };
        assert_eq!((free.has_it, free.by), (Has::Yes, Basis::Behaviour));
        assert!(
            free.sentence().contains("version does not suggest"),
            "{free:?}"
        );
        // A burst of a task shows nothing of upkeep.
        assert_eq!((decay.has_it, decay.by), (Has::No, Basis::Version));
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
