//! One measurement: what the benchmark starts a process for.

use std::time::Duration;

use bursar_bench_peers::{Absent, Pages};
use bursar_machine::host;
use hdrhistogram::Histogram;
use serde::{Deserialize, Serialize};

use crate::pages::contenders::{self, CLOCK};
use crate::pages::row::{Row, Size};
use crate::pages::scenario::{LARGE_BYTES, SMALL_BYTES, Scenario};
use crate::pages::worst::Longest;
use crate::pages::{churn, hold, retained, scenario, speed, worst};
use crate::timing::{Effort, Slice};

/// Report of such a process.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum Report {
    Measured(Vec<Figure>),
    /// Reason for which the allocator cannot take part here.
    Absent(String),
}

/// One figure of a measurement.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Figure {
    /// Name of the figure, such as `alloc p99.9`; empty where there is one.
    pub what: String,
    pub unit: String,
    pub value: f64,
}

/// Length of a turn, and the periods of idle time.
#[derive(Clone, Copy)]
struct Length {
    slice: Slice,
    period: Duration,
}

impl Length {
    fn full() -> Self {
        Self {
            slice: Effort::full(1).slice,
            period: Duration::from_secs(1),
        }
    }

    fn quick() -> Self {
        Self {
            slice: Effort::quick(1).slice,
            period: Duration::from_millis(10),
        }
    }

    /// Returns the length of a turn for the tails of distributions.
    fn long_ns(self) -> u64 {
        self.slice.ns * 50
    }
}

/// Work of such a process. Returns what it prints.
///
/// # Errors
/// If there is no such row or something failed.
pub fn job(name: &str, quick: bool) -> Result<String, String> {
    let length = match quick {
        true => Length::quick(),
        false => Length::full(),
    };
    let report = measure(name.parse()?, length)?;
    serde_json::to_string(&report).map_err(|error| error.to_string())
}

fn measure(row: Row, length: Length) -> Result<Report, String> {
    let cpus = host::allowed_cpus();
    let turn = Turn { row, length, cpus };
    if row.contender == CLOCK {
        let clock = churn::clock(turn.parallel()?, length.long_ns());
        return Ok(Report::Measured(latencies(&clock)));
    }
    if row.scenario == Scenario::Hold {
        let mut figures = Vec::new();
        for gib in hold::ZONES_GIB {
            let holds = hold::run(gib, turn.parallel()?, length.long_ns())?;
            let of_zone = holds.figures(gib);
            figures.extend(of_zone.map(|(name, unit, value)| figure(&name, unit, value)));
        }
        return Ok(Report::Measured(figures));
    }
    let outcome = match row.size {
        Size::Small => contenders::with::<SMALL_BYTES, _>(row.contender, turn),
        Size::Large => contenders::with::<LARGE_BYTES, _>(row.contender, turn),
    };
    match outcome {
        Ok(measured) => Ok(Report::Measured(measured?)),
        Err(Absent(why)) => Ok(Report::Absent(why)),
    }
}

struct Turn {
    row: Row,
    length: Length,
    cpus: Vec<usize>,
}

impl Turn {
    /// A CPU for each thread.
    fn parallel(&self) -> Result<&[usize], String> {
        let threads = self.row.threads;
        let cpus = self.cpus.get(..threads);
        cpus.ok_or_else(|| format!("{threads} threads need as many CPUs"))
    }
}

impl scenario::Job for Turn {
    type Output = Result<Vec<Figure>, String>;

    fn run<P: Pages>(self, pages: &P) -> Self::Output {
        let (threads, slice) = (self.row.threads, self.length.slice);
        let bytes = match self.row.size {
            Size::Small => SMALL_BYTES,
            Size::Large => LARGE_BYTES,
        };
        let speed =
            |spent: crate::timing::Spent| vec![figure("", "ns/pair", spent.ns_per_operation())];
        Ok(match self.row.scenario {
            Scenario::Pair => speed(speed::pair(pages, self.parallel()?, slice)),
            Scenario::Deep => speed(speed::deep(pages, self.parallel()?, slice)),
            Scenario::Remote => speed(speed::remote(pages, self.parallel()?, slice)),
            Scenario::Churn => {
                let (slots, ns) = (contenders::slots(bytes), self.length.long_ns());
                latencies(&churn::run(pages, self.parallel()?, slots, ns))
            }
            Scenario::Worst => longest(worst::run(
                pages,
                &self.cpus,
                threads,
                self.length.long_ns(),
            )),
            Scenario::Hold => Vec::new(),
            Scenario::Retained => {
                let kept = retained::run(pages, bytes, threads, self.length.period)?;
                let mib = |what, bytes: u64| figure(what, "MiB", bytes as f64 / f64::from(1 << 20));
                vec![
                    mib("at once", kept.at_once_bytes),
                    mib("idle", kept.idle_bytes),
                    mib("busy", kept.busy_bytes),
                ]
            }
        })
    }
}

fn figure(what: &str, unit: &str, value: f64) -> Figure {
    Figure {
        what: what.to_owned(),
        unit: unit.to_owned(),
        value,
    }
}

fn latencies(latencies: &churn::Latencies) -> Vec<Figure> {
    let of = |operation: &str, histogram: &Histogram<u64>| {
        let at = |name: &str, ns: u64| figure(&format!("{operation} {name}"), "ns", ns as f64);
        [
            at("p50", histogram.value_at_quantile(0.5)),
            at("p99", histogram.value_at_quantile(0.99)),
            at("p99.9", histogram.value_at_quantile(0.999)),
            at("max", histogram.max()),
        ]
    };
    let mut figures = of("alloc", &latencies.alloc_ns).to_vec();
    figures.extend(of("free", &latencies.free_ns));
    figures
}

fn longest(longest: Longest) -> Vec<Figure> {
    let us = |what, ns: u64| figure(what, "us", ns as f64 / 1e3);
    let mut figures = vec![us("by the clock", longest.wall_ns)];
    figures.extend(longest.own_ns.map(|ns| us("on a CPU or asleep", ns)));
    figures
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pages::row;

    /// Every measurement once, as short as it gets.
    #[test]
    fn everybody_does_everything() {
        let length = Length {
            slice: Slice { ns: 0 },
            period: Duration::ZERO,
        };
        for row in row::rows(host::allowed_cpus().len()) {
            match measure(row, length).unwrap() {
                Report::Measured(figures) => {
                    assert!(!figures.is_empty(), "{row}");
                    assert!(figures.iter().all(|figure| figure.value >= 0.0), "{row}");
                }
                Report::Absent(why) => println!("{row}: {why}"),
            }
        }
    }

    #[test]
    fn a_process_says_what_another_reads() {
        let said = job("pair 4K 1 glibc", true).unwrap();
        let report: Report = serde_json::from_str(&said).unwrap();
        let Report::Measured(figures) = report else {
            panic!("glibc is always there");
        };
        assert_eq!(figures.len(), 1);
        assert!(figures[0].value > 0.0);
        assert_eq!(job("pair", true).unwrap_err(), "no row is called pair");
    }
}
