//! Measurements, and their names on the command line.

use std::fmt;
use std::str::FromStr;

use crate::pages::contenders;
use crate::pages::scenario::Scenario;

const SCENARIOS: [(Scenario, &str, &[usize]); 7] = [
    (Scenario::Pair, "pair", &[1, 2]),
    (Scenario::Deep, "deep", &[1, 2]),
    (Scenario::Remote, "remote", &[2]),
    (Scenario::Churn, "churn", &[2]),
    (Scenario::Worst, "worst", &[32]),
    (Scenario::Retained, "retained", &[64]),
    (Scenario::Hold, "hold", &[2]),
];

impl Scenario {
    /// Its name.
    pub fn name(self) -> &'static str {
        let found = SCENARIOS.iter().find(|(scenario, ..)| *scenario == self);
        found.map_or("", |(_, name, _)| name)
    }

    /// Whether each thread needs a CPU of its own.
    fn is_parallel(self) -> bool {
        !matches!(self, Self::Worst | Self::Retained)
    }
}

/// Bytes of a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Size {
    Small,
    Large,
}

impl Size {
    /// Both.
    pub const ALL: [Self; 2] = [Self::Small, Self::Large];

    /// Its name.
    pub fn name(self) -> &'static str {
        match self {
            Self::Small => "4K",
            Self::Large => "64K",
        }
    }
}

/// One measurement: one cell, or a few, of the tables.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Row {
    pub scenario: Scenario,
    pub size: Size,
    pub threads: usize,
    pub contender: &'static str,
}

impl Row {
    /// Name of what this row measures, for the samples and the tables.
    pub fn series_name(scenario: Scenario, size: Size, what: &str) -> String {
        let name = format!("{} {} {what}", scenario.name(), size.name());
        name.trim_end().to_owned()
    }

    /// Whether `other` is the same measurement of somebody else.
    pub fn is_heat_of(&self, other: &Self) -> bool {
        (self.scenario, self.size, self.threads) == (other.scenario, other.size, other.threads)
    }
}

impl fmt::Display for Row {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (scenario, size) = (self.scenario.name(), self.size.name());
        write!(f, "{scenario} {size} {} {}", self.threads, self.contender)
    }
}

impl FromStr for Row {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let mut rows = rows(usize::MAX);
        let found = rows.find(|row| row.to_string() == text);
        found.ok_or_else(|| format!("no row is called {text}"))
    }
}

/// All rows that a machine with `cpus` CPUs can measure; those of one heat in a row.
pub fn rows(cpus: usize) -> impl Iterator<Item = Row> {
    let heats = SCENARIOS.iter().flat_map(|&(scenario, _, threads)| {
        Size::ALL.into_iter().flat_map(move |size| {
            threads
                .iter()
                .map(move |&threads| (scenario, size, threads))
        })
    });
    let possible = move |&(scenario, _, threads): &(Scenario, Size, usize)| {
        !scenario.is_parallel() || threads <= cpus
    };
    // The work under the lock has no size.
    let once = |&(scenario, size, _): &(Scenario, Size, usize)| {
        scenario != Scenario::Hold || size == Size::Small
    };
    heats
        .filter(possible)
        .filter(once)
        .flat_map(|(scenario, size, threads)| {
            contenders::names(scenario).map(move |contender| Row {
                scenario,
                size,
                threads,
                contender,
            })
        })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_lead_back_to_rows() {
        let all: Vec<Row> = rows(2).collect();
        assert!(all.len() > 100);
        for row in all {
            assert_eq!(row.to_string().parse(), Ok(row));
        }
        "pair 5K 1 glibc".parse::<Row>().unwrap_err();
    }

    #[test]
    fn one_cpu_measures_what_it_can() {
        let alone: Vec<Row> = rows(1).collect();
        assert!(alone.iter().all(|row| row.scenario != Scenario::Remote));
        assert!(alone.iter().any(|row| row.scenario == Scenario::Worst));
    }
}
