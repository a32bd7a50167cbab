//! The rounds and the table of `read`.

use std::time::Duration;

use comfy_table::{Table, presets};

use crate::read::{Load, Outcome, Stage, Target};
use crate::rounds;
use crate::series::Series;
use crate::timing::Effort;

/// Leaves below the tenant.
const LEAVES: usize = 1_000;
/// Threads that read.
const READERS: usize = 64;
/// The two loads: readers without pause, and each with a pause of 10 ms.
const LOADS: [(&str, Duration); 2] = [
    ("flat out", Duration::ZERO),
    ("paced", Duration::from_millis(10)),
];

/// Observations of all rounds of one target under one load.
pub struct Entry {
    pub load: &'static str,
    pub target: Target,
    total: Outcome,
    /// Figures of each round: median, 99th percentile and maximum, nanoseconds.
    rounds: Vec<[f64; 3]>,
}

impl Entry {
    /// Reads that were stale.
    pub fn broken(&self) -> u64 {
        self.total.broken
    }

    /// The 99th percentile of all reads, nanoseconds.
    pub fn p99_ns(&self) -> u64 {
        self.total.latency_ns.value_at_quantile(0.99)
    }

    /// Slots that a read looked at, in the mean of those that looked at any.
    fn slots(&self) -> u64 {
        self.total.slots / self.total.looks.max(1)
    }

    /// The median without 2 us, by the number of slots looked at, nanoseconds.
    pub fn p50_ns_a_slot(&self) -> f64 {
        let ns = self.total.latency_ns.value_at_quantile(0.5) as f64 - 2e3;
        ns.max(0.0) / self.slots().max(1) as f64
    }
}

/// Runs all rounds. A turn takes five slices of the other benchmarks: a percentile needs some reads.
///
/// # Errors
/// If what was written and what was read do not agree at the end.
pub fn run(effort: Effort) -> Result<Vec<Entry>, String> {
    let stage = Stage::new(LEAVES);
    let mut entries: Vec<Entry> = Vec::new();
    for (load, _) in LOADS {
        let targets = Target::ALL
            .into_iter()
            .filter(|&target| stage.offers(target));
        entries.extend(targets.map(|target| Entry {
            load,
            target,
            total: Outcome::new(),
            rounds: Vec::new(),
        }));
    }
    let turn = Duration::from_nanos(effort.slice.ns * 5);
    for round in 0..effort.rounds {
        rounds::progress(round, effort.rounds);
        let count = entries.len();
        for at in 0..count {
            let entry = &mut entries[(at + round) % count];
            let pause = LOADS.iter().find(|(name, _)| *name == entry.load);
            let load = Load {
                readers: READERS,
                pause: pause.map_or(Duration::ZERO, |&(_, pause)| pause),
                turn,
            };
            let outcome = stage.run(entry.target, load);
            let latency = &outcome.latency_ns;
            let quantile = |q| latency.value_at_quantile(q) as f64;
            entry
                .rounds
                .push([quantile(0.5), quantile(0.99), latency.max() as f64]);
            entry.total.merge(&outcome);
        }
    }
    rounds::progress(effort.rounds, effort.rounds);
    stage.check()?;
    Ok(entries)
}

/// The samples to keep: per round, three series for each entry.
pub fn series(entries: &[Entry]) -> Vec<Series> {
    let mut series = Vec::new();
    for entry in entries {
        for (at, quantile) in ["p50", "p99", "max"].into_iter().enumerate() {
            series.push(Series {
                scenario: format!("{} {quantile}", entry.load),
                depth: 2,
                contender: entry.target.name().to_owned(),
                threads: READERS,
                unit: "ns".to_owned(),
                samples: entry.rounds.iter().map(|round| round[at]).collect(),
            });
        }
    }
    series
}

/// The table: percentiles of all reads, and how the 99th varied from round to round.
pub fn table(entries: &[Entry]) -> Table {
    let mut table = Table::new();
    table.load_style(presets::ASCII_MARKDOWN);
    table.set_header([
        "load",
        "read",
        "reads",
        "p50 us",
        "p99 us",
        "max us",
        "p99 of the rounds us",
        "slots a read",
        "broken",
    ]);
    for entry in entries {
        let latency = &entry.total.latency_ns;
        let us = |ns: u64| format!("{:.1}", ns as f64 / 1e3);
        let p99 = entry.rounds.iter().map(|round| round[1] as u64);
        let (min, max) = (p99.clone().min(), p99.max());
        let broken = match entry.target {
            // Nobody knows the truth about the kernel's figures.
            Target::Kernel => "-".to_owned(),
            _ => entry.broken().to_string(),
        };
        table.add_row([
            entry.load.to_owned(),
            entry.target.name().to_owned(),
            latency.len().to_string(),
            us(latency.value_at_quantile(0.5)),
            us(entry.p99_ns()),
            us(latency.max()),
            format!("{} - {}", us(min.unwrap_or(0)), us(max.unwrap_or(0))),
            match entry.target {
                Target::Kernel => "-".to_owned(),
                _ => entry.slots().to_string(),
            },
            broken,
        ]);
    }
    if entries.iter().all(|entry| entry.target != Target::Kernel) {
        table.add_row(["-", Target::Kernel.name(), "unavailable here"]);
    }
    table
}
