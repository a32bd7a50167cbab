//! Targets of Bursar's pages. The scale of nanoseconds is one on which the yardstick's pair takes 2.5: the middle of what
//! prototypes of it took (2.0 to 2.9) where the bounds in nanoseconds come from.

use crate::pages::contenders::MIMALLOC;
use crate::pages::hold;
use crate::pages::ours::{BARE_STACK, BURSAR, BURSAR_CHARGED};
use crate::pages::row::{Row, Size};
use crate::pages::scenario::Scenario;
use crate::series::{Run, Series, Summary};
use crate::targets::{Verdict, Wanted};

/// Time of the yardstick's pair on the scale of the targets, ns.
const SCALE_NS: f64 = 2.5;
/// The targets of `pages`, for blocks of 4 KiB.
pub fn of_pages(run: &Run) -> Vec<Verdict> {
    let find = |scenario, what: &str, contender: &str, threads| {
        let name = Row::series_name(scenario, Size::Small, what);
        run.find(&name, 0, contender, threads)
    };
    let by_bare_pair = |target: &str, scenario, contender, threads, bound| {
        let above = find(scenario, "", contender, threads);
        let below = find(Scenario::Pair, "", BARE_STACK, 1);
        Verdict {
            target: format!(
                "{contender}, {target}, threads: {threads}, x the pair of {BARE_STACK}"
            ),
            measured: ratio(above, below),
            wanted: Wanted::AtMost(bound),
        }
    };
    let by_mimalloc = |what: &str| {
        let of = |contender| find(Scenario::Churn, what, contender, 2);
        Verdict {
            target: format!("{BURSAR}, churn, {what}, x {MIMALLOC}"),
            measured: ratio(of(BURSAR), of(MIMALLOC)),
            wanted: Wanted::AtMost(2.0),
        }
    };
    let itself = |target: String, series: Option<&Series>, bound| Verdict {
        target,
        measured: series.and_then(|series| Summary::of(&series.samples)),
        wanted: Wanted::AtMost(bound),
    };
    let mut verdicts = vec![
        by_bare_pair("pair", Scenario::Pair, BURSAR, 1, 1.5),
        by_bare_pair("pair", Scenario::Pair, BURSAR_CHARGED, 1, 3.0),
        by_bare_pair("1,024 deep", Scenario::Deep, BURSAR, 1, 25.0 / SCALE_NS),
        by_bare_pair("remote free", Scenario::Remote, BURSAR, 2, 60.0 / SCALE_NS),
        by_mimalloc("alloc p99.9"),
        by_mimalloc("free p99.9"),
        itself(
            format!("{BURSAR}, kept when idle, MiB"),
            find(Scenario::Retained, "idle", BURSAR, 64),
            run.conditions.general.cpus as f64,
        ),
    ];
    verdicts.extend(hold::ZONES_GIB.iter().map(|&gib| {
        let what = hold::ran_too_long(gib);
        let target = format!(
            "{BURSAR}, holds of the zone lock above {} x the stated bound, {what}, %",
            hold::TOO_LONG
        );
        itself(target, find(Scenario::Hold, &what, BURSAR, 2), 0.1)
    }));
    verdicts
}

fn ratio(above: Option<&Series>, below: Option<&Series>) -> Option<Summary> {
    Run::ratio(above?, below?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::machine::Conditions;
    use crate::timing::Effort;

    fn run(series: Vec<Series>) -> Run {
        Run {
            schema: 1,
            kind: "pages".into(),
            yardstick: BARE_STACK.into(),
            conditions: Conditions::here(Effort::smoke()),
            series,
        }
    }

    fn series(scenario: &str, contender: &str, threads: usize, sample: f64) -> Series {
        Series {
            scenario: scenario.into(),
            depth: 0,
            contender: contender.into(),
            threads,
            unit: "ns/pair".into(),
            samples: vec![sample],
        }
    }

    #[test]
    fn without_bursar_nothing_is_claimed() {
        let run = run(vec![series("pair 4K", "glibc", 1, 44.0)]);
        let verdicts = of_pages(&run);
        assert!(
            verdicts
                .iter()
                .all(|one| one.line().starts_with("- not measured"))
        );
    }

    #[test]
    fn names_meet_those_of_the_rows() {
        let run = run(vec![
            series("pair 4K", BARE_STACK, 1, 2.0),
            series("deep 4K", BURSAR, 1, 20.0),
            series("remote 4K", BURSAR, 2, 61.0),
            series("churn 4K alloc p99.9", BURSAR, 2, 900.0),
            series("churn 4K alloc p99.9", MIMALLOC, 2, 1000.0),
            series("retained 4K idle", BURSAR, 64, 0.1),
        ]);
        let lines: Vec<String> = of_pages(&run).iter().map(Verdict::line).collect();
        let count = |word: &str| lines.iter().filter(|line| line.starts_with(word)).count();
        assert_eq!((count("- met"), count("- MISSED")), (3, 1), "{lines:#?}");
    }
}
