//! Under which conditions a run was made: a figure means nothing without.

use std::fmt;
use std::path::Path;
use std::process::Command;

use bursar_machine::host;
use serde::Serialize;

/// Machine, source and command.
#[derive(Clone, Debug, Serialize)]
pub struct Conditions {
    /// Processor, as the system names it.
    model: String,
    /// CPUs this process may use.
    cpus: usize,
    /// Kernel release.
    kernel: String,
    /// Which of Bursar's backends ran.
    backend: String,
    /// Commit of the source, with `-dirty` where the working tree differs from it.
    commit: String,
    /// The command, without directories.
    command: String,
}

impl Conditions {
    /// Those of this process. What cannot be found out is `unknown`.
    pub fn here() -> Self {
        let unknown = || "unknown".to_owned();
        Self {
            model: model().unwrap_or_else(unknown),
            cpus: host::allowed_cpus().len(),
            kernel: std::fs::read_to_string("/proc/sys/kernel/osrelease")
                .map_or_else(|_| unknown(), |release| release.trim().to_owned()),
            backend: host::report().backend.to_string(),
            commit: commit().unwrap_or_else(unknown),
            command: command(),
        }
    }
}

impl fmt::Display for Conditions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "machine: {}, {} CPUs", self.model, self.cpus)?;
        writeln!(f, "kernel: {}; backend: {}", self.kernel, self.backend)?;
        writeln!(f, "commit: {}", self.commit)?;
        write!(f, "command: {}", self.command)
    }
}

fn model() -> Option<String> {
    let text = std::fs::read_to_string("/proc/cpuinfo").ok()?;
    let mut fields = text.lines().filter_map(|line| line.split_once(':'));
    let (_, model) = fields.find(|(key, _)| key.trim() == "model name")?;
    Some(model.trim().to_owned())
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
    let is_clean = git(&["status", "--porcelain"])?.is_empty();
    Some(if is_clean {
        commit
    } else {
        format!("{commit}-dirty")
    })
}

fn command() -> String {
    let mut arguments = std::env::args();
    let program = arguments.next().unwrap_or_default();
    let name = Path::new(&program).file_name().unwrap_or_default();
    let mut words = vec![name.to_string_lossy().into_owned()];
    words.extend(arguments);
    words.join(" ")
}
