//! The kernel's tracing file system: where it is, and a trace buffer of our own in it.

mod instance;
mod janitor;
mod owner;
pub mod probes;
mod text;
mod unavailable;

use std::fs;
use std::path::{Path, PathBuf};

pub(crate) use instance::lost_events;
pub use instance::{Instance, Trigger};
pub use janitor::{Janitor, tidy};
pub use unavailable::Unavailable;

/// Name of a mount point of ours, before the number of the process.
const OWN: &str = "bursar-tracefs-";

/// A mounted tracefs.
#[derive(Debug)]
pub struct Tracefs {
    root: PathBuf,
    /// Mount point that this run made.
    mounted: Option<PathBuf>,
}

impl Tracefs {
    /// Finds tracefs. If it is not mounted and this user may mount, mounts it in a private directory.
    pub fn find() -> Result<Self, Unavailable> {
        let mounts = fs::read_to_string("/proc/self/mounts").unwrap_or_default();
        if let Some(root) = mount_point(&mounts) {
            return Ok(Self {
                root,
                mounted: None,
            });
        }
        // Old systems: below debugfs, where a look mounts it.
        let below = Path::new("/sys/kernel/debug/tracing");
        if below.join("instances").is_dir() {
            return Ok(Self {
                root: below.to_owned(),
                mounted: None,
            });
        }
        let known = fs::read_to_string("/proc/filesystems").unwrap_or_default();
        if !known.lines().any(|line| line.trim() == "nodev\ttracefs") {
            return Err(Unavailable::Kernel);
        }
        let root = std::env::temp_dir().join(format!("{OWN}{}", std::process::id()));
        janitor::mount(&root).map_err(|error| Unavailable::NotMounted { error })?;
        Ok(Self {
            mounted: Some(root.clone()),
            root,
        })
    }

    /// Top directory.
    pub fn root(&self) -> &Path {
        &self.root
    }

    /// Mount point that must be removed at the end.
    pub fn mounted(&self) -> Option<&Path> {
        self.mounted.as_deref()
    }
}

impl Drop for Tracefs {
    fn drop(&mut self) {
        if let Some(root) = &self.mounted {
            janitor::unmount(root);
        }
    }
}

/// Mount point of the first tracefs in a text of the form of `/proc/mounts`. Those that another run made end with that run.
fn mount_point(mounts: &str) -> Option<PathBuf> {
    let found = mounts.lines().find_map(|line| {
        let mut words = line.split(' ').skip(1);
        let [point, kind] = [words.next()?, words.next()?];
        (kind == "tracefs" && !point.contains(OWN)).then_some(point)
    });
    // The file escapes blanks.
    found.map(|point| PathBuf::from(point.replace("\\040", " ")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_mount_is_found_by_its_kind() {
        let mounts =
            "nodev /sys sysfs rw 0 0\nnodev /a\\040b tracefs rw 0 0\nx /c tracefs rw 0 0\n";
        assert_eq!(mount_point(mounts), Some(PathBuf::from("/a b")));
        assert_eq!(mount_point("tracefs /sys sysfs rw 0 0\n"), None);
        let of_a_run = "x /tmp/bursar-tracefs-7 tracefs rw 0 0\n";
        assert_eq!(mount_point(of_a_run), None);
        let both = format!("{of_a_run}{mounts}");
        assert_eq!(mount_point(&both), Some(PathBuf::from("/a b")));
    }
}
