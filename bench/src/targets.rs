//! Targets of Bursar, and whether a run reached them.

use crate::charge::Shape;
use crate::flush;
use crate::read::Target;
use crate::read_run::Entry;
#[cfg(feature = "datafusion")]
use crate::reservation;
use crate::series::{BURSAR, Run, Series, Summary};
use crate::sim::{LOCKS_ROW, SLEEPERS_ROW, WORD_ROWS};
use crate::sim_run;
use crate::tree::{COMMON_DEPTH, DEPTHS};

/// Peers that the targets name.
pub const GREEDY: &str = "DataFusion Greedy";
/// As above.
pub const ANCESTORS: &str = "atomics per ancestor";

/// One target and what was measured.
pub struct Verdict {
    pub target: String,
    /// The median, with its range over the rounds; `None` if the run did not measure it.
    pub measured: Option<Summary>,
    pub wanted: Wanted,
}

/// Bound on the median.
#[derive(Clone, Copy)]
pub enum Wanted {
    AtMost(f64),
    AtLeast(f64),
}

impl Verdict {
    fn met(&self) -> Option<bool> {
        let median = self.measured?.median;
        Some(match self.wanted {
            Wanted::AtMost(bound) => median <= bound,
            Wanted::AtLeast(bound) => median >= bound,
        })
    }

    /// One line for people.
    pub fn line(&self) -> String {
        let verdict = match self.met() {
            Some(true) => "met",
            Some(false) => "MISSED",
            None => "not measured",
        };
        let wanted = match self.wanted {
            Wanted::AtMost(bound) => format!("at most {bound}"),
            Wanted::AtLeast(bound) => format!("at least {bound}"),
        };
        let measured = self.measured.map_or_else(String::new, |summary| {
            let Summary { median, min, max } = summary;
            format!(": {median:.2} ({min:.2}-{max:.2})")
        });
        format!("- {verdict}: {}, {wanted}{measured}", self.target)
    }
}

/// The targets of `charge`.
pub fn of_charge(run: &Run) -> Vec<Verdict> {
    let mut verdicts = Vec::new();
    for shape in [Shape::Hot, Shape::Rotate] {
        verdicts.extend(near_bare(run, "charge or uncharge", shape.name()));
    }
    verdicts.push(cheaper(run, Shape::Hot.name(), GREEDY, 10.0));
    verdicts
}

/// The targets of `reservation`: near the floor of the API, with whatever does not need to know what each spiller holds; and batches
/// beside Greedy.
#[cfg(feature = "datafusion")]
pub fn of_reservation(run: &Run) -> Vec<Verdict> {
    let hot = reservation::Shape::Hot.name();
    let mut verdicts = Vec::new();
    for contender in reservation::NEAR_THE_FLOOR {
        verdicts.extend([1, 2].map(|threads| {
            let series = run.find(hot, reservation::DEPTH, contender, threads);
            Verdict {
                target: format!(
                    "{contender}, {hot}, threads: {threads}, x {}",
                    run.yardstick
                ),
                measured: series.and_then(|series| run.ratio_to_yardstick(series)),
                wanted: Wanted::AtMost(1.15),
            }
        }));
    }
    let share = |threads| run.find(hot, reservation::DEPTH, "bursar share", threads);
    verdicts.extend([1, 2].map(|threads| Verdict {
        target: format!(
            "bursar share, {hot}, threads: {threads}, x {}",
            run.yardstick
        ),
        measured: share(threads).and_then(|series| run.ratio_to_yardstick(series)),
        wanted: Wanted::AtMost(1.5),
    }));
    for (shape, threads, most) in reservation::OF_BATCHES {
        let of = |name| run.find(shape.name(), reservation::DEPTH, name, threads);
        verdicts.push(Verdict {
            target: format!("bursar, {}, threads: {threads}, x Greedy", shape.name()),
            measured: both(of(BURSAR), of("Greedy")),
            wanted: Wanted::AtMost(most),
        });
    }
    verdicts
}

/// The targets of `stat`.
pub fn of_stat(run: &Run) -> Vec<Verdict> {
    let mut verdicts = Vec::new();
    for scenario in [Shape::Hot, Shape::Rotate].map(Shape::name) {
        verdicts.extend(near_bare(run, "stat add", scenario));
    }
    verdicts.push(cheaper(run, Shape::Hot.name(), ANCESTORS, 100.0));
    verdicts
}

/// The target of `flush`.
pub fn of_flush(run: &Run) -> Vec<Verdict> {
    let series = |name: &str| run.find(flush::SCENARIO, 2, name, 1);
    let (largest, yardstick) = (flush::largest(), flush::yardstick());
    vec![Verdict {
        target: format!("flush among {largest}, x the flush among {yardstick}"),
        measured: both(series(&largest), series(&yardstick)),
        wanted: Wanted::AtMost(1.5),
    }]
}

/// The targets of `read`.
pub fn of_read(entries: &[Entry]) -> Vec<Verdict> {
    let single = |value: f64| Summary {
        median: value,
        min: value,
        max: value,
    };
    let broken: u64 = entries.iter().map(Entry::broken).sum();
    let mut verdicts = vec![Verdict {
        target: "broken Exact reads".to_owned(),
        measured: Some(single(broken as f64)),
        wanted: Wanted::AtMost(0.0),
    }];
    for entry in entries.iter().filter(|entry| entry.target == Target::Leaf) {
        let kernel = entries
            .iter()
            .find(|other| other.target == Target::Kernel && other.load == entry.load);
        verdicts.push(Verdict {
            target: format!("p99 of one leaf, {}, x the kernel's", entry.load),
            measured: kernel.map(|kernel| single(entry.p99_ns() as f64 / kernel.p99_ns() as f64)),
            wanted: Wanted::AtMost(1.0),
        });
    }
    for entry in entries
        .iter()
        .filter(|entry| entry.target == Target::Tenant)
    {
        verdicts.push(Verdict {
            target: format!(
                "p50 of the tenant, {}, ns a slot without the first 2 us",
                entry.load
            ),
            measured: Some(single(entry.p50_ns_a_slot())),
            wanted: Wanted::AtMost(40.0),
        });
    }
    verdicts
}

/// The targets of `sim`: speed, memory, and that a word that all CPUs add to is a queue.
pub fn of_sim(entries: &[sim_run::Entry]) -> Vec<Verdict> {
    let usual = |name: &str| {
        let mut usual = entries.iter().filter(|entry| entry.is_usual());
        usual.find(|entry| entry.row.name == name)
    };
    let speed = |name: &str, bound: f64| {
        let millions = |entry: &sim_run::Entry| {
            let samples = entry.per_second();
            Summary::of(
                &samples
                    .iter()
                    .map(|sample| sample / 1e6)
                    .collect::<Vec<_>>(),
            )
        };
        Verdict {
            target: format!("{name}, million lock events a second"),
            measured: usual(name).and_then(millions),
            wanted: Wanted::AtLeast(bound),
        }
    };
    let growth = |few: &str, many: &str, bound: f64| Verdict {
        target: format!("virtual ns an addition, {many} x {few}"),
        measured: usual(few).zip(usual(many)).and_then(|(few, many)| {
            let pairs = many.virtual_ns().into_iter().zip(few.virtual_ns());
            Summary::of(&pairs.map(|(many, few)| many / few).collect::<Vec<_>>())
        }),
        wanted: Wanted::AtLeast(bound),
    };
    let [few, some, many] = WORD_ROWS;
    vec![
        speed(LOCKS_ROW, 8.0),
        speed(SLEEPERS_ROW, 4.0),
        Verdict {
            target: format!("{SLEEPERS_ROW}, peak of memory, MiB"),
            measured: usual(SLEEPERS_ROW).and_then(|entry| Summary::of(&entry.peak_mib())),
            wanted: Wanted::AtMost(256.0),
        },
        // Nine times as many, and a bit more than five times.
        growth(few, some, 5.0),
        growth(some, many, 4.0),
    ]
}

/// Target of at most 1.2 times the bare add, at the depth that does worst.
fn near_bare(run: &Run, what: &str, scenario: &str) -> Vec<Verdict> {
    let verdict = |threads: usize| {
        let at = |depth| {
            let series = run.find(scenario, depth, BURSAR, threads)?;
            Some((depth, run.ratio_to_yardstick(series)?))
        };
        let worst = DEPTHS
            .into_iter()
            .filter_map(at)
            .max_by(|(_, one), (_, other)| one.median.total_cmp(&other.median));
        let depth = worst.map_or_else(String::new, |(depth, _)| {
            format!(", worst at depth {depth}")
        });
        Verdict {
            target: format!(
                "{what}, {scenario}, threads: {threads}{depth}, x {}",
                run.yardstick
            ),
            measured: worst.map(|(_, ratio)| ratio),
            wanted: Wanted::AtMost(1.2),
        }
    };
    [1, 2].map(verdict).into()
}

/// Ratio of a peer's cost to ours, with two threads at the common depth.
fn cheaper(run: &Run, scenario: &str, peer: &str, bound: f64) -> Verdict {
    let series = |name: &str| run.find(scenario, COMMON_DEPTH, name, 2);
    Verdict {
        target: format!("{peer} x {BURSAR}, {scenario}, depth {COMMON_DEPTH}, threads: 2"),
        measured: both(series(peer), series(BURSAR)),
        wanted: Wanted::AtLeast(bound),
    }
}

fn both(above: Option<&Series>, below: Option<&Series>) -> Option<Summary> {
    Run::ratio(above?, below?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_bound_itself_still_counts() {
        let verdict = |median: f64, wanted| Verdict {
            target: "t".into(),
            measured: Some(Summary {
                median,
                min: 0.0,
                max: 9.0,
            }),
            wanted,
        };
        assert_eq!(verdict(1.2, Wanted::AtMost(1.2)).met(), Some(true));
        assert_eq!(verdict(1.3, Wanted::AtMost(1.2)).met(), Some(false));
        assert_eq!(verdict(99.0, Wanted::AtLeast(100.0)).met(), Some(false));
        let line = verdict(1.3, Wanted::AtMost(1.2)).line();
        assert_eq!(line, "- MISSED: t, at most 1.2: 1.30 (0.00-9.00)");
    }
}
