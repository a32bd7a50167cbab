//! The rounds and the table of `sim`. Each turn has a process of its own, so that its peak of memory is its own and no row
//! finds the stacks and caches of another.

use std::process::Command;

use comfy_table::{Table, presets};
use serde::{Deserialize, Serialize};

use crate::rounds;
use crate::series::{Series, Summary};
use crate::sim::{self, ROWS, Row, Turn};
use crate::table;

/// Most rounds: a turn is longer than those of the other benchmarks, and one thread's speed varies less.
const ROUNDS_MAX: usize = 7;

/// With and without run-ahead, as series and command lines have it.
const MODES: [(&str, bool); 2] = [("run-ahead", true), ("step by step", false)];

/// Measurements of the rounds of one row, in one mode.
pub struct Entry {
    pub row: Row,
    mode: &'static str,
    run_ahead: bool,
    reports: Vec<Report>,
}

/// Report of a process that did one turn.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Report {
    turn: Turn,
    /// The most memory that the process ever had, KiB.
    peak_kib: u64,
}

impl Entry {
    /// Whether this is the mode that users have.
    pub fn is_usual(&self) -> bool {
        self.run_ahead
    }

    /// One sample of each round.
    fn samples(&self, of: impl Fn(&Report) -> f64) -> Vec<f64> {
        self.reports.iter().map(of).collect()
    }

    /// Operations a second.
    pub fn per_second(&self) -> Vec<f64> {
        self.samples(|report| report.turn.per_second())
    }

    /// Peak of memory, MiB.
    pub fn peak_mib(&self) -> Vec<f64> {
        self.samples(|report| report.peak_kib as f64 / 1024.0)
    }

    /// Virtual nanoseconds from the beginning of a task's operation to the beginning of its next.
    pub fn virtual_ns(&self) -> Vec<f64> {
        self.samples(|report| report.turn.virtual_ns as f64 / self.row.each as f64)
    }
}

/// Arguments on the command line of such a process.
pub struct Job {
    pub row: String,
    pub step_by_step: bool,
    pub quick: bool,
}

/// Work of such a process: one turn. Returns what it prints.
///
/// # Errors
/// If there is no such row or the turn failed.
pub fn job(job: &Job) -> Result<String, String> {
    let row = ROWS.into_iter().find(|row| row.name == job.row);
    let row = row.ok_or_else(|| format!("no row is called {}", job.row))?;
    let row = if job.quick { row.quick() } else { row };
    let turn = sim::turn(&row, !job.step_by_step)?;
    let peak_kib = peak_kib().ok_or("/proc/self/status: no VmHWM")?;
    serde_json::to_string(&Report { turn, peak_kib }).map_err(|error| error.to_string())
}

/// The most memory that this process ever had.
fn peak_kib() -> Option<u64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    line?.trim().strip_suffix(" kB")?.parse().ok()
}

/// Number of rounds that are run when `rounds` are asked for.
pub fn rounds(rounds: usize) -> usize {
    rounds.min(ROUNDS_MAX)
}

/// Runs all rounds of the rows whose name contains `filter`.
///
/// # Errors
/// If a turn failed, or two turns of a row were not the same run: in another round, or without run-ahead.
pub fn run(count: usize, quick: bool, filter: Option<&str>) -> Result<Vec<Entry>, String> {
    let mut entries = Vec::new();
    for row in ROWS {
        if filter.is_some_and(|filter| !row.name.contains(filter)) {
            continue;
        }
        let row = if quick { row.quick() } else { row };
        let modes = MODES.into_iter();
        let modes = modes.filter(|&(_, run_ahead)| run_ahead || row.has_run_ahead());
        entries.extend(modes.map(|(mode, run_ahead)| Entry {
            row,
            mode,
            run_ahead,
            reports: Vec::new(),
        }));
    }
    if entries.is_empty() {
        return Err("--filter: no row of sim contains that".to_owned());
    }
    for round in 0..count {
        rounds::progress(round, count);
        let entrants = entries.len();
        for at in 0..entrants {
            let entry = &mut entries[(at + round) % entrants];
            let report = in_a_process(entry, quick)
                .map_err(|error| format!("sim, {}, {}: {error}", entry.row.name, entry.mode))?;
            entry.reports.push(report);
        }
    }
    rounds::progress(count, count);
    check(&entries)?;
    Ok(entries)
}

fn in_a_process(entry: &Entry, quick: bool) -> Result<Report, String> {
    let program = std::env::current_exe().map_err(|error| error.to_string())?;
    let mut command = Command::new(program);
    command.args(["sim", "--row", entry.row.name]);
    if !entry.run_ahead {
        command.arg("--step-by-step");
    }
    if quick {
        command.arg("--quick");
    }
    let output = command.output().map_err(|error| error.to_string())?;
    if !output.status.success() {
        return Err(String::from_utf8_lossy(&output.stderr).trim().to_owned());
    }
    serde_json::from_slice(&output.stdout).map_err(|error| error.to_string())
}

/// One seed, one run: whatever the round and the mode.
fn check(entries: &[Entry]) -> Result<(), String> {
    for entry in entries {
        let same = |other: &&Entry| other.row.name == entry.row.name;
        let all = entries.iter().filter(same).flat_map(|other| &other.reports);
        let outcome = |report: &Report| {
            let Turn {
                events,
                virtual_ns,
                hash,
                ..
            } = report.turn;
            (events, virtual_ns, hash)
        };
        let mut outcomes: Vec<_> = all.map(outcome).collect();
        outcomes.dedup();
        if outcomes.len() > 1 {
            let name = entry.row.name;
            return Err(format!(
                "sim, {name}: not the same run each time (events, virtual ns, hash): {outcomes:x?}"
            ));
        }
    }
    Ok(())
}

/// The samples to keep.
pub fn series(entries: &[Entry]) -> Vec<Series> {
    let mut series = Vec::new();
    for entry in entries {
        let unit = format!("{}/s", entry.row.unit());
        let kept = [
            ("speed", unit, entry.per_second()),
            (
                "events",
                "events/s".to_owned(),
                entry.samples(|report| report.turn.events_per_second()),
            ),
            (
                "virtual time of an operation",
                "ns".to_owned(),
                entry.virtual_ns(),
            ),
            ("peak", "MiB".to_owned(), entry.peak_mib()),
        ];
        for (what, unit, samples) in kept {
            series.push(Series {
                scenario: format!("{} {what}", entry.row.name),
                depth: 0,
                contender: entry.mode.to_owned(),
                threads: 1,
                unit,
                samples,
            });
        }
    }
    series
}

/// One row for each row and mode.
pub fn table(entries: &[Entry]) -> Table {
    let mut table = Table::new();
    table.load_style(presets::ASCII_MARKDOWN);
    table.set_header([
        "row",
        "CPUs",
        "tasks",
        "mode",
        "counted",
        "M/s",
        "M events/s",
        "virtual ns an operation",
        "peak MiB",
        "events hash",
    ]);
    for entry in entries {
        let millions = |samples: Vec<f64>| summary(&samples, 1e-6);
        let virtual_ns = match entry.row.has_run_ahead() {
            true => summary(&entry.virtual_ns(), 1.0),
            false => "-".to_owned(),
        };
        let hash = entry.reports.first().map(|report| report.turn.hash);
        let hash = hash.filter(|_| entry.row.has_run_ahead());
        table.add_row([
            entry.row.name.to_owned(),
            entry.row.cpus.to_string(),
            entry.row.tasks.to_string(),
            entry.mode.to_owned(),
            entry.row.unit().to_owned(),
            millions(entry.per_second()),
            millions(entry.samples(|report| report.turn.events_per_second())),
            virtual_ns,
            summary(&entry.peak_mib(), 1.0),
            hash.map_or_else(|| "-".to_owned(), |hash| format!("{hash:016x}")),
        ]);
    }
    table
}

fn summary(samples: &[f64], factor: f64) -> String {
    let scaled: Vec<f64> = samples.iter().map(|sample| sample * factor).collect();
    Summary::of(&scaled).map_or_else(|| "-".to_owned(), table::with_range)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(run_ahead: bool, hashes: &[u64]) -> Entry {
        let report = |&hash: &u64| Report {
            turn: Turn {
                operations: 10,
                ns: 1_000,
                events: 20,
                virtual_ns: 5_000,
                hash,
            },
            peak_kib: 2_048,
        };
        Entry {
            row: Row { each: 5, ..ROWS[0] },
            mode: MODES[usize::from(!run_ahead)].0,
            run_ahead,
            reports: hashes.iter().map(report).collect(),
        }
    }

    #[test]
    fn runs_that_differ_are_an_error() {
        assert_eq!(check(&[entry(true, &[7, 7]), entry(false, &[7])]), Ok(()));
        check(&[entry(true, &[7, 8])]).unwrap_err();
        let error = check(&[entry(true, &[7]), entry(false, &[8])]).unwrap_err();
        assert!(error.contains("not the same run each time"), "{error}");
    }

    #[test]
    fn a_process_says_what_another_reads() {
        let said = job(&Job {
            row: "word-8".to_owned(),
            step_by_step: false,
            quick: true,
        });
        let report: Report = serde_json::from_str(&said.unwrap()).unwrap();
        assert!(report.turn.operations > 0 && report.peak_kib > 100);
        let unknown = Job {
            row: "word-9".to_owned(),
            step_by_step: false,
            quick: true,
        };
        assert_eq!(job(&unknown).unwrap_err(), "no row is called word-9");
    }

    #[test]
    fn samples_are_per_operation() {
        let entry = entry(true, &[7]);
        assert_eq!(entry.per_second(), [1e7]);
        assert_eq!(entry.virtual_ns(), [1_000.0]);
        assert_eq!(entry.peak_mib(), [2.0]);
        let text = table(&[entry]).to_string();
        assert!(text.contains("10.00 (10.00-10.00)"), "{text}");
    }
}
