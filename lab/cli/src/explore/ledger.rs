//! The file of the ledger.

use std::fs::{self, OpenOptions};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use bursar_check::explore::{Document, Ledger, Row, Target};
use bursar_term::failure::Failure;
use bursar_term::grid::Grid;
use bursar_term::markup::Markup;

use super::document::REVISION;
use crate::units::thousands;

/// A ledger, and the file that it is in.
pub struct File {
    path: PathBuf,
    ledger: Ledger,
}

impl File {
    /// Reads a file, which must be a ledger.
    pub fn open(path: &Path) -> Result<Self, Failure> {
        let text = fs::read_to_string(path);
        let text = text
            .map_err(|error| Failure::usage(format!("cannot read {}: {error}", path.display())))?;
        if !text.is_empty() && !text.ends_with('\n') {
            // A row would be added to it, and no program could read the two apart.
            return Err(Failure::usage(format!(
                "{}: its last line has no end",
                path.display()
            )));
        }
        let ledger = text.parse();
        let ledger = ledger
            .map_err(|error: String| Failure::usage(format!("{}: {error}", path.display())))?;
        Ok(Self {
            path: path.to_owned(),
            ledger,
        })
    }

    /// The seed whose schedules can be added: `asked`, or the lowest above all rows.
    pub fn seed(&self, asked: Option<u64>, targets: &[Target]) -> Result<u64, Failure> {
        let path = self.path.display();
        let Some(seed) = asked.or_else(|| self.ledger.next_seed()) else {
            let message = format!("{path}: a row has the greatest seed; choose one by --seed");
            return Err(Failure::usage(message));
        };
        let is_there = |target: &&Target| {
            let sections = target.sections_name();
            self.ledger.has(target.name(), sections, REVISION, seed)
        };
        match targets.iter().find(is_there) {
            None => Ok(seed),
            Some(target) => Err(Failure::usage(format!(
                "{path}: it has schedules of seed {seed} for {} at this commit, and they would count twice; leave --seed out",
                target.name()
            ))),
        }
    }

    /// Adds a row for each result in which nothing failed.
    pub fn add(&mut self, document: &Document, seconds: f64) -> Result<(), Failure> {
        let append = || -> io::Result<Vec<Row>> {
            let peak_kib = peak_kib()?;
            let mut file = OpenOptions::new().append(true).open(&self.path)?;
            let mut rows = Vec::new();
            for result in &document.results {
                if result.failure.is_some() || result.schedules == 0 {
                    continue;
                }
                let row = Row {
                    protocol: result.protocol.clone(),
                    sections: result.sections.to_owned(),
                    commit: REVISION.to_owned(),
                    seed: document.seed,
                    schedules: result.schedules,
                    seconds: seconds.round() as u64,
                    peak_kib,
                };
                // At once: a part of it would make the ledger unreadable.
                let end = file.metadata()?.len();
                if let Err(error) = file.write_all(format!("{row}\n").as_bytes()) {
                    file.set_len(end)?;
                    return Err(error);
                }
                rows.push(row);
            }
            Ok(rows)
        };
        let rows = append().map_err(|error| {
            Failure::unavailable(format!("cannot write {}: {error}", self.path.display()))
        })?;
        rows.into_iter().for_each(|row| self.ledger.push(row));
        Ok(())
    }

    /// Table of all schedules of each protocol and kind of sections.
    pub fn sums(&self, form: Markup) -> String {
        let sums = self.ledger.sums();
        let all: u64 = sums.values().sum();
        let title = format!("{} schedules in {}", thousands(all), self.path.display());
        let mut table = Grid::new(["protocol", "sections", "schedules"]).right(2..3);
        for ((protocol, sections), schedules) in sums {
            table.row(vec![
                protocol.to_owned(),
                sections.to_owned(),
                thousands(schedules),
            ]);
        }
        format!("\n{}{}", form.heading(&title), form.table(&table))
    }
}

/// Peak of this process's resident memory.
fn peak_kib() -> io::Result<u64> {
    let status = fs::read_to_string("/proc/self/status")?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    let kib = line.and_then(|line| line.trim().strip_suffix(" kB")?.parse().ok());
    kib.ok_or_else(|| io::Error::other("/proc/self/status has no VmHWM"))
}
