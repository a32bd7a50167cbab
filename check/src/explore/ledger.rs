//! Ledger of explored schedules: a text with a row for each protocol and kind of sections of each long exploration.
//!
//! Rows are only added. The schedules of a row are the first ones of its seed, so rows of the same protocol, kind and commit need seeds
//! of their own to count as different schedules.

use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;

/// Columns, in the first line.
const HEADER: &str = "protocol\tsections\tcommit\tseed\tschedules\tseconds\tpeak_kib";

/// Schedules of one protocol and kind of sections that were explored, and in which nothing failed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Row {
    /// Name of the protocol on the command line.
    pub protocol: String,
    /// Name of the kind of sections on the command line.
    pub sections: String,
    /// Revision of the program.
    pub commit: String,
    /// Seed of the schedules.
    pub seed: u64,
    /// Number of schedules, from the first on.
    pub schedules: u64,
    /// Time that they took.
    pub seconds: u64,
    /// Peak of the program's resident memory until they had ended, KiB. Processes for pieces of protocols that fork are not in it.
    pub peak_kib: u64,
}

impl fmt::Display for Row {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            protocol,
            sections,
            commit,
            seed,
            schedules,
            seconds,
            peak_kib,
        } = self;
        write!(
            f,
            "{protocol}\t{sections}\t{commit}\t{seed}\t{schedules}\t{seconds}\t{peak_kib}"
        )
    }
}

impl FromStr for Row {
    type Err = String;

    fn from_str(line: &str) -> Result<Self, String> {
        let bad = || format!("`{line}` is no row of a ledger; its columns are {HEADER:?}");
        let columns: Vec<&str> = line.split('\t').collect();
        let [protocol, sections, commit, numbers @ ..] = &columns[..] else {
            return Err(bad());
        };
        let is_name = |text: &&str| text.chars().all(|letter| letter.is_ascii_graphic());
        if ![protocol, sections, commit].into_iter().all(is_name) {
            return Err(bad());
        }
        let numbers: Result<Vec<u64>, _> = numbers.iter().map(|text| text.parse()).collect();
        let Ok(&[seed, schedules, seconds, peak_kib]) = numbers.as_deref() else {
            return Err(bad());
        };
        Ok(Self {
            protocol: (*protocol).to_owned(),
            sections: (*sections).to_owned(),
            commit: (*commit).to_owned(),
            seed,
            schedules,
            seconds,
            peak_kib,
        })
    }
}

/// All rows; see the module.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Ledger {
    rows: Vec<Row>,
}

impl FromStr for Ledger {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let mut lines = text.lines();
        if lines.next() != Some(HEADER) {
            return Err(format!("a ledger begins with the line {HEADER:?}"));
        }
        let rows = lines.map(str::parse).collect::<Result<_, _>>()?;
        Ok(Self { rows })
    }
}

impl Ledger {
    /// Adds a row.
    pub fn push(&mut self, row: Row) {
        self.rows.push(row);
    }

    /// Lowest seed above all of the rows; none if a row has the greatest.
    pub fn next_seed(&self) -> Option<u64> {
        let seeds = self.rows.iter().map(|row| row.seed);
        seeds.max().unwrap_or(0).checked_add(1)
    }

    /// Whether schedules of a seed have been counted for a protocol and kind of sections at a commit.
    pub fn has(&self, protocol: &str, sections: &str, commit: &str, seed: u64) -> bool {
        self.rows.iter().any(|row| {
            (&*row.protocol, &*row.sections, &*row.commit, row.seed)
                == (protocol, sections, commit, seed)
        })
    }

    /// Schedules of each protocol and kind of sections.
    pub fn sums(&self) -> BTreeMap<(&str, &str), u64> {
        let mut sums = BTreeMap::new();
        for row in &self.rows {
            *sums
                .entry((&row.protocol[..], &row.sections[..]))
                .or_default() += row.schedules;
        }
        sums
    }
}
