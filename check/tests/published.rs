//! The explorer's verdicts on each published policy, on file, so that a change shows.

use bursar_check::protocols::published::{self, Asked, Case, Stale};
use bursar_check::protocols::published_pages;
use bursar_kernel::pages::{Counts, Release};
use bursar_kernel::stats::{Policy, Tunables};
use bursar_sim::{Explorer, Failure, Found, SectionKind, Sim, Topology};

/// Schedules of each case.
const SCHEDULES: u64 = 2_000;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Verdict {
    Fresh,
    Stale,
}
use Verdict::{Fresh as F, Stale as S};

/// Whether at least one flush has begun since a read began and has ended before it returned: with no threshold in the way,
/// with one that is not reached, and with one that each update exceeds.
#[rustfmt::skip]
const ON_FILE: [(&str, [Verdict; 3]); 19] = [
    // A reader that skips has no flush.
    ("unified",               [S, S, S]),
    // Everybody flushes; but the end of a flush of the root resets what was counted behind its back.
    ("direct",                [F, S, S]),
    ("direct-root",           [F, S, S]),
    // A reader that joins has a flush that had begun.
    ("coalesced",             [S, S, S]),
    ("coalesced-unbounded",   [S, S, S]),
    ("coalesced-flag",        [S, S, S]),
    // A reader beyond the bound skips; without a bound, as direct.
    ("mutex-bounded",         [S, S, S]),
    ("mutex-unbounded",       [F, S, S]),
    // A reader that runs out of time, or finds the root cheaper, joins.
    ("timed-lock",            [S, S, S]),
    ("adaptive",              [S, S, S]),
    // As direct, on each CPU where a group is folded; and an update that stops at a group which is due may find it so by
    // one that has not come to the ancestors yet.
    ("per-group",             [F, S, S]),
    ("per-group-lockless",    [F, S, S]),
    // And an update between the exchange and the push of another one's group; in the kernel, in an interrupt there.
    ("kernel-6.17",           [S, S, S]),
    ("per-group-multiplexed", [F, S, S]),
    // As direct, on each CPU where a group is folded.
    ("per-group-net",         [F, S, S]),
    ("per-group-early-stop",  [F, S, S]),
    // A reader of an ancestor never hears of what was updated below.
    ("own-threshold",         [F, S, S]),
    // Nothing has to be flushed.
    ("tree-walk",             [F, F, F]),
    ("eager",                 [F, F, F]),
];

fn explorer_of(cpus: usize, sections: SectionKind) -> Explorer {
    Explorer {
        topology: Topology::new(cpus, 1, 1000),
        sections,
        seed: 1,
    }
}

fn explorer(case: Case) -> Explorer {
    explorer_of(case.cpus(), SectionKind::Restartable)
}

fn first_stale(case: Case, schedules: u64) -> Option<Found> {
    let scenario = |machine: &Sim, variety| case.scenario(machine, variety);
    explorer(case)
        .explore(&scenario, 0, schedules, |_| ())
        .found
}

fn cases(asked: Asked) -> impl Iterator<Item = Case> {
    published::all()
        .into_iter()
        .filter(move |case| case.asked == asked)
}

/// The verdicts of one column, and that each stale read is shown again by its schedule.
fn verdicts_are_those_on_file(asked: Asked, column: usize) {
    let verdicts: Vec<(&str, Verdict)> = cases(asked)
        .map(|case| {
            let name = case.policy.name();
            let Some(found) = first_stale(case, SCHEDULES) else {
                return (name, Verdict::Fresh);
            };
            let is_stale = |message: &str| message.starts_with(Stale::PREFIX);
            match &found.failure {
                Failure::Panic(message) if is_stale(message) => {}
                failure => panic!("{name} does not only read old numbers: {failure}"),
            }
            let scenario = |machine: &Sim, variety| case.scenario(machine, variety);
            let again = explorer(case).replay(&scenario, found.schedule);
            assert_eq!(again, Err(found), "{name}");
            (name, Verdict::Stale)
        })
        .collect();
    let on_file = ON_FILE.map(|(name, verdicts)| (name, verdicts[column]));
    assert_eq!(verdicts, on_file);
}

#[test]
fn the_rule_by_which_readers_wait() {
    verdicts_are_those_on_file(Asked::Never, 0);
}

#[test]
fn the_threshold_where_updates_are_small() {
    verdicts_are_those_on_file(Asked::Small, 1);
}

#[test]
fn the_threshold_where_each_update_exceeds_it() {
    verdicts_are_those_on_file(Asked::Large, 2);
}

#[test]
fn each_policy_is_judged() {
    let all = Policy::all(Tunables::of_cpus(2));
    let names: Vec<_> = all.iter().map(|policy| policy.name()).collect();
    assert_eq!(names, ON_FILE.map(|(name, _)| name));
}

#[test]
fn the_count_of_stale_schedules_begins_with_the_first() {
    let case = cases(Asked::Never).find(|case| case.policy.name() == "coalesced-unbounded");
    let case = case.expect("it is there");
    let number = first_stale(case, SCHEDULES).expect("stale").schedule.number;
    let is_stale = |machine: &Sim, variety| case.first_stale(machine, variety).is_some();
    let count = |schedules| explorer(case).count(&is_stale, 0, schedules);
    for stale in [0, 1] {
        let count = count(number + stale);
        assert_eq!((count.happened, count.failed), (stale, 0));
    }
}

/// Policies on page lists run with every kind of sections, though they use none.
#[test]
fn page_lists_lose_no_page_under_any_policy() {
    for protocol in published_pages::all::<Sim>() {
        for sections in [SectionKind::Restartable, SectionKind::Atomic] {
            let explorer = explorer_of(protocol.cpus, sections);
            let explored = explorer.explore(&protocol.scenario, 0, 5 * SCHEDULES, |_| ());
            assert_eq!(explored.found, None, "{}, {sections:?}", protocol.name);
        }
    }
}

/// Rare steps happen in some of the schedules.
#[test]
fn page_lists_are_explored_where_locks_are_lost() {
    let explorer = explorer_of(3, SectionKind::Restartable);
    let happens = |release, what: fn(&Counts) -> u64| {
        let does = |machine: &Sim, variety| {
            what(&published_pages::run_once(machine, release, variety)) > 0
        };
        explorer.count(&does, 0, SCHEDULES).happened > 0
    };
    for release in Release::ALL {
        assert!(happens(release, |counts| counts.straight));
        assert!(happens(release, |counts| counts.list_waits));
        assert!(happens(release, |counts| counts.zone_waits));
        let is_batched = release == Release::Batched;
        assert_eq!(happens(release, |counts| counts.lost), is_batched);
        assert_eq!(happens(release, |counts| counts.moved), is_batched);
        let is_break = release == Release::ZoneBreak;
        assert_eq!(happens(release, |counts| counts.breaks), is_break);
    }
}
