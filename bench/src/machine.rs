//! Under which conditions a run was made: machine, commit, command.

use std::fmt;
use std::path::Path;
use std::process::Command;

use bursar_machine::host;
use serde::{Deserialize, Serialize};

use crate::timing;

/// What a figure means nothing without.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Conditions {
    /// Processor, as the system names it.
    pub model: String,
    /// CPUs this process may use.
    pub cpus: usize,
    /// Whether the CPUs are virtual: those understate contention and add noise.
    pub virtual_machine: bool,
    /// Kernel release.
    pub kernel: String,
    /// Which of Bursar's backends ran.
    pub backend: String,
    /// Commit of the source, with `-dirty` where the working tree differs from it.
    pub commit: String,
    /// The command, without directories.
    pub command: String,
    /// Day of the run, UTC.
    pub date: String,
    /// Rounds.
    pub rounds: usize,
    /// Length of a turn, nanoseconds; 0 if a turn is over when its work is done.
    pub slice_ns: u64,
}

impl Conditions {
    /// Those of this process.
    pub fn here(effort: timing::Effort) -> Self {
        let cpuinfo = read("/proc/cpuinfo");
        Self {
            model: field(&cpuinfo, "model name").unwrap_or_else(unknown),
            cpus: host::allowed_cpus().len(),
            virtual_machine: field(&cpuinfo, "flags")
                .is_some_and(|flags| flags.split(' ').any(|flag| flag == "hypervisor")),
            kernel: Some(read("/proc/sys/kernel/osrelease").trim().to_owned())
                .filter(|release| !release.is_empty())
                .unwrap_or_else(unknown),
            backend: host::report().backend.to_string(),
            commit: commit().unwrap_or_else(unknown),
            command: command(),
            date: today(),
            rounds: effort.rounds,
            slice_ns: effort.slice.ns,
        }
    }
}

impl fmt::Display for Conditions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let kind = if self.virtual_machine {
            " (virtual)"
        } else {
            ""
        };
        writeln!(f, "machine: {}, {} CPUs{kind}", self.model, self.cpus)?;
        writeln!(f, "kernel: {}; backend: {}", self.kernel, self.backend)?;
        writeln!(f, "commit: {}; date: {}", self.commit, self.date)?;
        writeln!(f, "command: {}", self.command)?;
        write!(f, "rounds: {}", self.rounds)?;
        if self.slice_ns == 0 {
            return Ok(());
        }
        let slice_ms = self.slice_ns as f64 / 1e6;
        write!(f, ", {slice_ms} ms a turn")
    }
}

/// The day, UTC, as year-month-day.
pub fn today() -> String {
    date(timing::unix_seconds())
}

fn unknown() -> String {
    "unknown".to_owned()
}

fn read(path: &str) -> String {
    std::fs::read_to_string(path).unwrap_or_default()
}

/// The first `name : value` of a file in the format of `/proc/cpuinfo`.
fn field(text: &str, name: &str) -> Option<String> {
    text.lines()
        .filter_map(|line| line.split_once(':'))
        .find(|(key, _)| key.trim() == name)
        .map(|(_, value)| value.trim().to_owned())
}

fn git(arguments: &[&str]) -> Option<String> {
    let source = Path::new(env!("CARGO_MANIFEST_DIR"));
    let output = Command::new("git")
        .arg("-C")
        .arg(source)
        .args(arguments)
        .output()
        .ok()
        .filter(|output| output.status.success())?;
    Some(String::from_utf8_lossy(&output.stdout).trim().to_owned())
}

fn commit() -> Option<String> {
    let commit = git(&["rev-parse", "--short=12", "--verify", "HEAD"])?;
    let dirty = git(&["status", "--porcelain"])?;
    Some(if dirty.is_empty() {
        commit
    } else {
        format!("{commit}-dirty")
    })
}

/// The command line, with the program's name only: directories say nothing about the run.
fn command() -> String {
    let mut arguments = std::env::args();
    let program = arguments.next().unwrap_or_default();
    let name = Path::new(&program).file_name().unwrap_or_default();
    let mut words = vec![name.to_string_lossy().into_owned()];
    words.extend(arguments);
    words.join(" ")
}

/// The day, as year-month-day, of a time in seconds since 1970 (the civil calendar, by Hinnant's `civil_from_days`).
fn date(unix_seconds: u64) -> String {
    let days = unix_seconds / 86_400 + 719_468;
    let era = days / 146_097;
    let day_of_era = days % 146_097;
    let year_of_era =
        (day_of_era - day_of_era / 1_460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let shifted_month = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * shifted_month + 2) / 5 + 1;
    let month = (shifted_month + 2) % 12 + 1;
    let year = era * 400 + year_of_era + u64::from(month <= 2);
    format!("{year:04}-{month:02}-{day:02}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dates_follow_the_calendar() {
        assert_eq!(date(0), "1970-01-01");
        assert_eq!(date(951_782_400), "2000-02-29");
        assert_eq!(date(1_767_225_599), "2025-12-31");
    }

    #[test]
    fn fields_are_found() {
        let text = "processor\t: 0\nmodel name\t: Some CPU\n";
        assert_eq!(field(text, "model name").as_deref(), Some("Some CPU"));
        assert_eq!(field(text, "flags"), None);
    }

    #[test]
    fn the_command_names_no_directory() {
        assert!(
            !command()
                .split(' ')
                .next()
                .unwrap_or_default()
                .contains('/')
        );
    }
}
