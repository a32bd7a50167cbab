//! Real threads on real CPUs.
//!
//! | part | file |
//! |---|---|
//! | the backend, its choice and the reason | `backend.rs`, `start.rs`, `selftest.rs` |
//! | restartable sequences | `rseq.rs`, `rseq/` (Linux on x86-64 and 64-bit Arm), `rseq_absent.rs` (elsewhere) |
//! | memory of per-CPU words, their operations | `chunk.rs`, `slots.rs` |
//! | per-CPU stacks of pages, the memory of pages | `stacks.rs`, `frames.rs` |
//! | membarrier, shared by its callers | `fence.rs` |
//! | operations that a fork waits for | `fork.rs` |
//! | words, locks, completions | `sync.rs` |
//! | clock, pauses | `time.rs` |
//! | CPUs, their name, nodes, affinity | `topology.rs` |
//! | the memory that this process may use, the limit of its cgroup | `cgroup.rs` |
//! | the resident size of this process | `resident.rs` |
//! | a thread that ticks | `ticker.rs` |

mod backend;
mod cgroup;
mod chunk;
mod fence;
mod fork;
mod frames;
mod resident;
#[cfg_attr(
    all(
        target_os = "linux",
        any(
            target_arch = "x86_64",
            all(target_arch = "aarch64", target_endian = "little")
        )
    ),
    path = "rseq.rs"
)]
#[cfg_attr(
    not(all(
        target_os = "linux",
        any(
            target_arch = "x86_64",
            all(target_arch = "aarch64", target_endian = "little")
        )
    )),
    path = "rseq_absent.rs"
)]
mod rseq;
mod selftest;
mod slots;
mod stacks;
mod start;
mod sync;
mod ticker;
mod time;
mod topology;

use std::fmt;
use std::io::Write;
use std::time::Duration;

pub use backend::Backend;
pub use cgroup::{CgroupError, CgroupLimits, CgroupMemory, CgroupVersion};
pub use fork::{HostOperation, is_in_operation};
pub use frames::HostFrames;
pub use resident::{Resident, ResidentError, resident};
pub use slots::HostSlot;
pub use stacks::HostStacks;
pub use start::{Check, Report, StartError};
pub use sync::{HostEvent, HostMutex, HostSpin, HostWord, lock_waits};
pub use ticker::Ticker;
pub use topology::{allowed_cpus, cpu_model, pin_to};

use crate::pages::{ReserveError, ReserveOptions, Span};
use crate::{Machine, OutOfMemory, Shard};

/// Machine this process runs on. All values of this type are the same machine; each gives out slots of its own.
#[derive(Clone, Copy)]
pub struct Host {
    report: &'static Report,
}

/// Shows the backend and the number of CPUs. [`Host::report`] has the rest.
impl fmt::Debug for Host {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Report { backend, cpus, .. } = self.report;
        f.debug_struct("Host")
            .field("backend", &format_args!("{backend}"))
            .field("cpus", cpus)
            .finish_non_exhaustive()
    }
}

impl Host {
    /// Starts the host with the backend that the self-test chose at the first call (or that `BURSAR_BACKEND` forces).
    ///
    /// The first call takes about a millisecond.
    ///
    /// # Errors
    /// [`StartError`], for example if `BURSAR_BACKEND` names a backend that does not exist or does not work here.
    pub fn start() -> Result<Self, StartError> {
        fork::register().map_err(|error| StartError::NoForkHandlers {
            reason: error.to_string(),
        })?;
        // A fork must not cut work that is done once in a process.
        let _operation = fork::operation();
        let host = start::start().map(|report| Self { report })?;
        host.now_ns();
        Ok(host)
    }

    /// Set-up of this machine.
    pub fn report(&self) -> &'static Report {
        self.report
    }
}

/// Set-up of this process; sets it up if necessary.
///
/// # Panics
/// If [`Host::start`] would fail.
pub fn report() -> &'static Report {
    match Host::start() {
        Ok(host) => host.report,
        Err(error) => panic!("{error}"),
    }
}

impl Machine for Host {
    type Word = HostWord;
    type Mutex<T: Send + 'static> = HostMutex<T>;
    type Spin<T: Send + 'static> = HostSpin<T>;
    type Event = HostEvent;
    type Slot = HostSlot;
    /// Shared values on the host live as long as the process. A reference count would be a line that all CPUs write for
    /// each charge.
    type Shared<T: Send + Sync + 'static> = &'static T;
    type Operation = fork::HostOperation;
    type Frames = HostFrames;
    type Stacks = HostStacks;

    fn share<T: Send + Sync + 'static>(value: T) -> &'static T {
        Box::leak(Box::new(value))
    }

    fn try_share<T: Send + Sync + 'static>(value: T) -> Option<&'static T> {
        let mut one = Vec::new();
        one.try_reserve_exact(1).ok()?;
        one.push(value);
        let one: &'static [T] = one.leak();
        one.first()
    }

    fn cpus(&self) -> usize {
        self.report.cpus
    }

    fn nodes(&self) -> usize {
        self.report.nodes
    }

    fn node_of(&self, shard: Shard) -> Option<usize> {
        self.report.node_of_cpu.get(shard.index()).copied()
    }

    fn current_shard(&self) -> Shard {
        slots::current_shard()
    }

    fn slots(&self, words: usize) -> Result<Vec<HostSlot>, OutOfMemory> {
        slots::chunk_of_slots(words)
    }

    fn reserve(&self, options: &ReserveOptions) -> Result<(HostFrames, Span), ReserveError> {
        frames::reserve(options, self.report.nodes)
    }

    fn memory_bytes(&self) -> u64 {
        cgroup::memory_bytes()
    }

    fn stacks(&self, capacities: &[u16]) -> Result<HostStacks, OutOfMemory> {
        stacks::chunk_of_stacks(capacities)
    }

    fn fence(&self) {
        if self.report.backend == Backend::Rseq {
            fence::combined();
        }
    }

    fn warn(&self, message: fmt::Arguments<'_>) {
        // A closed stderr is no reason to fail.
        let _ = writeln!(std::io::stderr(), "bursar: {message}");
    }

    fn now_ns(&self) -> u64 {
        time::now_ns()
    }

    fn spins(&self) -> u32 {
        // Fewer than where each task has a CPU: a thread that waits may keep the CPU that the other needs.
        32
    }

    fn relax(&self, round: u32) {
        time::relax(round);
    }

    fn sleep_until(&self, deadline_ns: u64) {
        let now = self.now_ns();
        if deadline_ns > now {
            std::thread::sleep(Duration::from_nanos(deadline_ns - now));
        }
    }

    fn task(&self) -> u64 {
        fork::task()
    }

    fn operation(&self) -> fork::HostOperation {
        fork::operation()
    }

    fn forks(&self) -> u64 {
        fork::forks()
    }
}
