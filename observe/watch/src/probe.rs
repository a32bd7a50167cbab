//! A reader of a cgroup's `memory.stat`: how long a read takes, and whether its answer is old.
//!
//! The memory that a cgroup uses is exact and cheap to read. If it changes and `memory.stat` does not, the kernel answered from
//! old values. A read may make the kernel fold the statistics, so a probe also makes answers fresher than they would be.

use std::fs;
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};

use serde::Serialize;

use crate::figures::Distribution;
use crate::system::now_ns;

/// A change of usage that a fresh answer must show: more than CPUs keep in stock for a cgroup.
const CHANGE_BYTES: u64 = 1 << 20;

/// Reads of one cgroup.
#[derive(Debug)]
pub struct Probe {
    stat: PathBuf,
    usage: PathBuf,
    latencies_ns: Vec<u64>,
    /// Last answer, the usage when it was new, and the time.
    answer: Option<(String, u64, u64)>,
    stale: u64,
    stale_ns_max: u64,
}

/// Result of a probe.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Probed {
    /// The file.
    pub file: PathBuf,
    /// Time of a read.
    pub latency_ns: Distribution,
    /// Reads that gave the same answer as before although usage had changed by more than 1 MiB.
    pub stale: u64,
    /// Longest time for which such an answer did not change.
    pub stale_ns_max: u64,
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
            latencies_ns: Vec::new(),
            answer: None,
            stale: 0,
            stale_ns_max: 0,
        })
    }

    /// Reads once.
    pub fn read(&mut self) -> io::Result<()> {
        let begin_ns = now_ns();
        let answer = fs::read_to_string(&self.stat)?;
        let end_ns = now_ns();
        let usage = fs::read_to_string(&self.usage)?.trim().parse().unwrap_or(0);
        self.take(begin_ns, end_ns, answer, usage);
        Ok(())
    }

    fn take(&mut self, begin_ns: u64, end_ns: u64, answer: String, usage: u64) {
        self.latencies_ns.push(end_ns.saturating_sub(begin_ns));
        match &self.answer {
            Some((before, usage_then, since_ns)) if *before == answer => {
                if usage.abs_diff(*usage_then) > CHANGE_BYTES {
                    self.stale += 1;
                    self.stale_ns_max = self.stale_ns_max.max(end_ns.saturating_sub(*since_ns));
                }
            }
            _ => self.answer = Some((answer, usage, end_ns)),
        }
    }

    /// Returns the result. `None`: there was no read.
    pub fn finish(self) -> Option<Probed> {
        Some(Probed {
            latency_ns: Distribution::of(self.latencies_ns)?,
            file: self.stat,
            stale: self.stale,
            stale_ns_max: self.stale_ns_max,
        })
    }
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
    fn an_answer_is_stale_if_usage_moves_and_it_does_not() {
        let mut probe = Probe {
            stat: PathBuf::new(),
            usage: PathBuf::new(),
            latencies_ns: Vec::new(),
            answer: None,
            stale: 0,
            stale_ns_max: 0,
        };
        const MIB: u64 = 1 << 20;
        for (time, answer, usage) in [
            (0, "a", MIB),
            (100, "a", 2 * MIB),
            (200, "a", 3 * MIB),
            (300, "b", 3 * MIB),
        ] {
            probe.take(time, time + 10, answer.to_owned(), usage);
        }
        let found = probe.finish().expect("reads");
        assert_eq!((found.stale, found.stale_ns_max), (1, 200));
        assert_eq!((found.latency_ns.samples, found.latency_ns.max), (4, 10));
    }
}
