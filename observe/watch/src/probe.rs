//! A reader of a cgroup's `memory.stat`: how long a read takes, and whether its answer is old.
//!
//! The memory that a cgroup uses is exact and cheap to read. If it changes and `memory.stat` does not, the kernel answered from
//! old values. A read may make the kernel fold the statistics, so a probe also makes answers fresher than they would be.

use std::fs;
use std::io::{self, ErrorKind};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use crate::seen::{Seen, Stale, StatRead};
use crate::system::{self, now_ns, thread_cpu_ns};

/// The least change of usage that a fresh answer must show.
const CHANGE_BYTES_MIN: u64 = 1 << 20;
/// Pages that a CPU keeps in stock for a cgroup: `MEMCG_CHARGE_BATCH` of the kernel. They count as usage, and no statistics have them.
const STOCK_PAGES: u64 = 64;

/// Reads of one cgroup.
#[derive(Debug, Default)]
pub struct Probe {
    stat: PathBuf,
    usage: PathBuf,
    cgroup: u64,
    reads: Vec<StatRead>,
    /// A change of usage that a fresh answer must show.
    change_bytes: u64,
    /// Last answer, the usage when it was new, and the time.
    answer: Option<(String, u64, u64)>,
}

impl Probe {
    /// A probe of the cgroup in this directory, of version 1 or 2.
    pub fn open(cgroup: &Path) -> io::Result<Self> {
        let stat = cgroup.join("memory.stat");
        fs::read_to_string(&stat)?;
        // Of version 1, only the root has this file.
        if cgroup.join("release_agent").exists() {
            return Err(io::Error::other("it is the root"));
        }
        let files = ["memory.current", "memory.usage_in_bytes"];
        // The root cgroup of version 2 has no usage.
        let usage = files
            .map(|file| cgroup.join(file))
            .into_iter()
            .find(|file| file.exists());
        let usage = usage.ok_or_else(|| {
            io::Error::new(ErrorKind::NotFound, "no memory.current beside memory.stat")
        })?;
        Ok(Self {
            stat,
            usage,
            cgroup: fs::metadata(cgroup)?.ino(),
            change_bytes: change_bytes(system::cpus(), system::page_bytes()),
            ..Self::default()
        })
    }

    /// Reads once.
    pub fn read(&mut self) -> io::Result<()> {
        let (start_ns, began_ns) = (now_ns(), thread_cpu_ns());
        let answer = fs::read_to_string(&self.stat)?;
        let (cpu_ns, end_ns) = (thread_cpu_ns().saturating_sub(began_ns), now_ns());
        let usage = fs::read_to_string(&self.usage)?.trim().parse().unwrap_or(0);
        let read = StatRead {
            cgroup: self.cgroup,
            start_ns,
            end_ns,
            cpu_ns,
            stale: None,
        };
        self.take(read, answer, usage);
        Ok(())
    }

    fn take(&mut self, mut read: StatRead, answer: String, usage: u64) {
        match &self.answer {
            Some((before, usage_then, since_ns)) if *before == answer => {
                let moved_bytes = usage.abs_diff(*usage_then);
                read.stale = (moved_bytes > self.change_bytes).then(|| Stale {
                    unchanged_ns: read.end_ns.saturating_sub(*since_ns),
                    moved_bytes,
                });
            }
            _ => self.answer = Some((answer, usage, read.end_ns)),
        }
        self.reads.push(read);
    }

    /// Adds the reads to what was seen, and the path of the cgroup.
    pub fn finish(self, seen: &mut Seen) {
        seen.reads = self.reads;
        if !seen.cgroups.iter().any(|it| it.id == self.cgroup) {
            seen.cgroups.extend(system::cgroups(&[self.cgroup]));
        }
    }
}

/// A change of usage that a fresh answer must show: twice what these CPUs keep in stock.
fn change_bytes(cpus: usize, page_bytes: u64) -> u64 {
    let stock = (cpus as u64).saturating_mul(STOCK_PAGES * page_bytes);
    stock.saturating_mul(2).max(CHANGE_BYTES_MIN)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_root_of_version_1_is_refused() {
        let name = format!("bursar-probe-{}", std::process::id());
        let cgroup = std::env::temp_dir().join(name);
        fs::create_dir_all(&cgroup).expect("a temporary directory");
        for file in ["memory.stat", "memory.usage_in_bytes"] {
            fs::write(cgroup.join(file), "1\n").expect("room");
        }
        assert!(Probe::open(&cgroup).is_ok());
        fs::write(cgroup.join("release_agent"), "\n").expect("room");
        let refused = Probe::open(&cgroup).expect_err("the root");
        assert_eq!(refused.to_string(), "it is the root");
        fs::remove_dir_all(&cgroup).expect("a temporary directory");
    }

    #[test]
    fn what_cpus_keep_in_stock_is_no_change() {
        assert_eq!(change_bytes(1, 4_096), 1 << 20);
        assert_eq!(change_bytes(64, 4_096), 32 << 20);
        assert_eq!(change_bytes(64, 65_536), 512 << 20);
    }

    #[test]
    fn an_answer_is_stale_if_usage_moves_and_it_does_not() {
        let mut probe = Probe {
            change_bytes: change_bytes(2, 4_096),
            ..Probe::default()
        };
        const MIB: u64 = 1 << 20;
        for (start_ns, answer, usage) in [
            (0, "a", MIB),
            (100, "a", 2 * MIB),
            (200, "a", 3 * MIB),
            (300, "b", 3 * MIB),
        ] {
            let read = StatRead {
                start_ns,
                end_ns: start_ns + 10,
                ..StatRead::default()
            };
            probe.take(read, answer.to_owned(), usage);
        }
        let mut seen = Seen::default();
        probe.finish(&mut seen);
        let stale: Vec<_> = seen.reads.iter().map(|it| it.stale).collect();
        let third = Stale {
            unchanged_ns: 200,
            moved_bytes: 2 * MIB,
        };
        assert_eq!(stale, [None, None, Some(third), None]);
    }
}
