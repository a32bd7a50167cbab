//! Conditions under which a figure was measured, and the median of its samples. For benchmarks, examples that measure, and
//! the tool; no library of the project needs it.

#![forbid(unsafe_code)]
#![warn(missing_docs)]

mod date;
mod median;

use std::fmt;
use std::path::Path;
use std::process::Command;
use std::time::{SystemTime, UNIX_EPOCH};

use bursar_machine::host;
pub use median::median;
use serde::{Deserialize, Serialize};

/// Machine, source, command and day. Unknown parts are `unknown`.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Conditions {
    /// Processor, as the system names it.
    pub model: String,
    /// CPUs this process may use.
    pub cpus: usize,
    /// Whether the CPUs are virtual: virtual CPUs understate contention and add noise.
    pub virtual_machine: bool,
    /// Kernel release.
    pub kernel: String,
    /// Bursar's backend.
    pub backend: String,
    /// Commit of the source, with `-dirty` where the working tree differs from it.
    pub commit: String,
    /// The command, without directories.
    pub command: String,
    /// Day of the run, UTC, as year-month-day.
    pub date: String,
}

impl Conditions {
    /// Returns the conditions of this process.
    pub fn here() -> Self {
        let unknown = || "unknown".to_owned();
        Self {
            model: host::cpu_model().unwrap_or_else(unknown),
            cpus: host::allowed_cpus().len(),
            virtual_machine: field(&read("/proc/cpuinfo"), "flags")
                .is_some_and(|flags| flags.split(' ').any(|flag| flag == "hypervisor")),
            kernel: Some(read("/proc/sys/kernel/osrelease").trim().to_owned())
                .filter(|release| !release.is_empty())
                .unwrap_or_else(unknown),
            backend: host::report().backend.to_string(),
            commit: commit().unwrap_or_else(unknown),
            command: command(),
            date: today(),
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
        write!(f, "command: {}", self.command)
    }
}

/// The day, UTC, as year-month-day.
#[expect(
    clippy::disallowed_methods,
    reason = "the report says when it was made"
)]
pub fn today() -> String {
    let now = SystemTime::now().duration_since(UNIX_EPOCH);
    date::of(now.map_or(0, |since| since.as_secs()))
}

fn read(path: &str) -> String {
    std::fs::read_to_string(path).unwrap_or_default()
}

/// Returns the first `name : value` of a file in the format of `/proc/cpuinfo`.
fn field(text: &str, name: &str) -> Option<String> {
    text.lines()
        .filter_map(|line| line.split_once(':'))
        .find(|(key, _)| key.trim() == name)
        .map(|(_, value)| value.trim().to_owned())
}

fn git(arguments: &[&str]) -> Option<String> {
    let output = Command::new("git")
        .arg("-C")
        .arg(env!("CARGO_MANIFEST_DIR"))
        .args(arguments)
        .output()
        .ok()
        .filter(|output| output.status.success())?;
    Some(String::from_utf8_lossy(&output.stdout).trim().to_owned())
}

fn commit() -> Option<String> {
    let commit = git(&["rev-parse", "--short=12", "--verify", "HEAD"])?;
    let changes = git(&["status", "--porcelain"])?;
    Some(if changes.is_empty() {
        commit
    } else {
        format!("{commit}-dirty")
    })
}

/// Returns the command line, with the program's name only: directories say nothing about the run.
fn command() -> String {
    let mut arguments = std::env::args();
    let program = arguments.next().unwrap_or_default();
    let name = Path::new(&program).file_name().unwrap_or_default();
    let mut words = vec![name.to_string_lossy().into_owned()];
    words.extend(arguments);
    words.join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

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
