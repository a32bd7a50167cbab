//! `read`: how long `Exact` reads take while 64 threads read and one writes, and whether any of them is stale.
//!
//! A writer counts 1 in each of 1,000 leaves in turn, without end, so that (nearly) all are dirty at any time. After
//! each it notes, in words of its own, how much is complete. A reader takes that note, reads, and compares: a value below
//! the note is a *broken* read. 64 threads read for a turn, either as fast as they can (`flat out`: with fewer CPUs than
//! threads, most of the time of a read is waiting for a CPU) or each about every 10 ms (`paced`).
//!
//! Beside them, where it can be read, the kernel's `memory.stat` of this process's own cgroup, read in the same way by as
//! many threads. It is a scale, not a rival: that cgroup's tree is another one.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use bursar::{Freshness, Group, Limits, Memory};
use hdrhistogram::Histogram;

use crate::timing::{Stopwatch, spin_until};
use crate::tree::{self, ROWS};

/// Number of readers, and their time.
#[derive(Clone, Copy)]
pub struct Load {
    /// Threads that read.
    pub readers: usize,
    /// Pause of a reader after each read.
    pub pause: Duration,
    /// Time for which all of them read.
    pub turn: Duration,
}

/// Scope of a read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Target {
    /// One leaf.
    Leaf,
    /// The group above all leaves.
    Tenant,
    /// The kernel's file.
    Kernel,
}

impl Target {
    pub const ALL: [Self; 3] = [Self::Leaf, Self::Tenant, Self::Kernel];

    /// Name in tables and files.
    pub fn name(self) -> &'static str {
        match self {
            Self::Leaf => "bursar, one leaf",
            Self::Tenant => "bursar, the tenant",
            Self::Kernel => "kernel, memory.stat",
        }
    }
}

/// Observations of the readers.
#[derive(Clone)]
pub struct Outcome {
    /// Time of each read, nanoseconds.
    pub latency_ns: Histogram<u64>,
    /// Reads that missed an update which was complete before they began.
    pub broken: u64,
    /// Slots that reads looked at, and reads that looked: not those that used another's walk.
    pub slots: u64,
    pub looks: u64,
}

impl Outcome {
    /// Nothing so far.
    pub fn new() -> Self {
        let latency_ns = Histogram::new(3).expect("three digits are a valid precision");
        Self {
            latency_ns,
            broken: 0,
            slots: 0,
            looks: 0,
        }
    }

    /// Adds what others saw.
    pub fn merge(&mut self, other: &Self) {
        let merged = self.latency_ns.add(&other.latency_ns);
        merged.expect("histograms that grow take any value");
        self.broken += other.broken;
        self.slots += other.slots;
        self.looks += other.looks;
    }
}

/// The tree that is read, what its writer completed, and the kernel's file.
pub struct Stage {
    memory: Memory,
    tenant: Group,
    leaves: Vec<Group>,
    /// Complete updates: for each leaf, and of all leaves.
    complete: Vec<AtomicU64>,
    complete_in_all: AtomicU64,
    kernel: Option<File>,
}

impl Stage {
    /// A tenant with `leaves` leaves.
    pub fn new(leaves: usize) -> Self {
        let memory = tree::memory();
        let tenant = memory
            .root()
            .child("tenant", Limits::none())
            .expect("a new group");
        let leaf = |index| tenant.child(format!("leaf-{index}"), Limits::none());
        let groups = (0..leaves).map(|index| leaf(index).expect("room for a group"));
        Self {
            leaves: groups.collect(),
            complete: (0..leaves).map(|_| AtomicU64::new(0)).collect(),
            complete_in_all: AtomicU64::new(0),
            kernel: own_memory_stat(),
            tenant,
            memory,
        }
    }

    /// Whether `target` can be read here.
    pub fn offers(&self, target: Target) -> bool {
        target != Target::Kernel || self.kernel.is_some()
    }

    /// One turn of reading `target`.
    pub fn run(&self, target: Target, load: Load) -> Outcome {
        let over = AtomicBool::new(false);
        let begun = AtomicBool::new(false);
        let mut total = Outcome::new();
        let before = self.memory.flush_counts();
        std::thread::scope(|scope| {
            scope.spawn(|| self.write(&begun, &over));
            // The first lap of the writer, which touches every leaf for the first time, is not measured.
            spin_until(|| begun.load(Ordering::Relaxed));
            let readers: Vec<_> = (0..load.readers)
                .map(|reader| {
                    let over = &over;
                    scope.spawn(move || self.read_until(over, reader, target, load.pause))
                })
                .collect();
            std::thread::sleep(load.turn);
            over.store(true, Ordering::Relaxed);
            for reader in readers {
                total.merge(&reader.join().expect("a reader panicked"));
            }
        });
        let after = self.memory.flush_counts();
        total.slots = after.slots - before.slots;
        let joined = after.joined - before.joined;
        total.looks = total.latency_ns.len().saturating_sub(joined);
        total
    }

    /// Checks, when no thread reads or writes, whether the tenant counts what its leaves were told.
    ///
    /// # Errors
    /// Returns the first inconsistency, if any.
    pub fn check(&self) -> Result<(), String> {
        let reading = self
            .tenant
            .read(Freshness::Exact)
            .expect("the group exists");
        let (read, complete) = (reading.get(ROWS).value as u64, &self.complete_in_all);
        match complete.load(Ordering::Acquire) {
            complete if complete == read => Ok(()),
            complete => Err(format!("{complete} times 1 were read as {read}")),
        }
    }

    fn write(&self, begun: &AtomicBool, over: &AtomicBool) {
        while !over.load(Ordering::Relaxed) {
            for (leaf, complete) in self.leaves.iter().zip(&self.complete) {
                leaf.add(ROWS, 1);
                // Release, both: pair with the Acquire of readers. A reader that sees the note must find the
                // update.
                complete.fetch_add(1, Ordering::Release);
                self.complete_in_all.fetch_add(1, Ordering::Release);
            }
            begun.store(true, Ordering::Relaxed);
        }
    }

    fn read_until(
        &self,
        over: &AtomicBool,
        reader: usize,
        target: Target,
        pause: Duration,
    ) -> Outcome {
        let mut outcome = Outcome::new();
        let mut buffer = vec![0; 1 << 16];
        // Readers start at leaves and times of their own.
        let mut leaf = reader * self.leaves.len() / 64;
        std::thread::sleep(pause * (reader as u32 % 64) / 64);
        while !over.load(Ordering::Relaxed) {
            leaf = (leaf + 1) % self.leaves.len();
            let (group, complete) = match target {
                Target::Leaf => (&self.leaves[leaf], &self.complete[leaf]),
                Target::Tenant | Target::Kernel => (&self.tenant, &self.complete_in_all),
            };
            let expected = complete.load(Ordering::Acquire);
            let watch = Stopwatch::start();
            let found = match (target, &self.kernel) {
                (Target::Kernel, Some(file)) => {
                    file.read_at(&mut buffer, 0)
                        .expect("the file could be read before");
                    expected
                }
                _ => {
                    let reading = group.read(Freshness::Exact).expect("the group exists");
                    reading.get(ROWS).value as u64
                }
            };
            let recorded = outcome.latency_ns.record(watch.ns());
            recorded.expect("histograms that grow take any value");
            outcome.broken += u64::from(found < expected);
            std::thread::sleep(pause);
        }
        outcome
    }
}

/// This process's own memory.stat, of cgroup v2 or v1, if it is there and can be read.
fn own_memory_stat() -> Option<File> {
    let groups = std::fs::read_to_string("/proc/self/cgroup").ok()?;
    groups.lines().find_map(|line| {
        let mut fields = line.splitn(3, ':').skip(1);
        let (controllers, path) = (fields.next()?, fields.next()?);
        let root = match controllers {
            "" => "/sys/fs/cgroup",
            "memory" => "/sys/fs/cgroup/memory",
            _ => return None,
        };
        let file = File::open(format!("{root}{path}/memory.stat")).ok()?;
        file.read_at(&mut [0; 64], 0)
            .ok()
            .filter(|&read| read > 0)?;
        Some(file)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_exact_read_is_broken() {
        let stage = Stage::new(20);
        let load = Load {
            readers: 4,
            pause: Duration::ZERO,
            turn: Duration::from_millis(5),
        };
        for target in Target::ALL {
            if stage.offers(target) {
                assert_eq!(stage.run(target, load).broken, 0, "{target:?}");
            }
        }
        stage.check().unwrap();
    }
}
