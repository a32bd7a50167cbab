//! Owner of an instance, by its name.

use std::fs;
use std::path::{Path, PathBuf};

/// Whether a name is that of an instance of ours whose owner has ended.
pub(super) fn is_gone(name: &str) -> bool {
    owner(name).is_some_and(|(pid, start)| start_time(pid) != Some(start))
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_carry_their_owner() {
        assert_eq!(owner("bursar-12-345"), Some((12, 345)));
        for other in ["bursar-12", "bursar-x-1", "other-12-345", "bursar-12-345-6"] {
            assert_eq!(owner(other), None, "{other}");
        }
    }

    #[test]
    #[cfg(target_os = "linux")]
    fn a_process_has_a_start_time_and_one_that_ended_has_none() {
        assert!(start_time(std::process::id()).is_some());
        assert_eq!(start_time(u32::MAX), None);
    }
}
