//! Owner of an instance or of a group of probes, by its name.

use std::fs;
use std::path::{Path, PathBuf};

/// Whether the owner of an instance, or of a group of probes, has ended.
pub(super) fn is_gone(name: &str) -> bool {
    owner(&name.replace('_', "-")).is_some_and(|(pid, start)| start_time(pid) != Some(start))
}

/// A directory for an instance of this process.
pub(super) fn own_path(instances: &Path) -> PathBuf {
    let pid = std::process::id();
    instances.join(format!("bursar-{pid}-{}", start_time(pid).unwrap_or(0)))
}

/// Process and start time in the name of an instance of ours.
fn owner(name: &str) -> Option<(u32, u64)> {
    let (pid, start) = name.strip_prefix("bursar-")?.split_once('-')?;
    Some((pid.parse().ok()?, start.parse().ok()?))
}

/// Start time of a process, in ticks since the system began.
fn start_time(pid: u32) -> Option<u64> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The name, in parentheses, may contain anything.
    let after_name = stat.rsplit_once(')')?.1;
    after_name.split_whitespace().nth(19)?.parse().ok()
}
