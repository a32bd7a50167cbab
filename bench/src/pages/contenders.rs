//! Contenders.

use bursar_bench_peers as peers;
use bursar_bench_peers::Absent;

use crate::pages::ours;
use crate::pages::scenario::{Job, SMALL_BYTES, Scenario};

/// The peer whose latencies the targets name.
pub const MIMALLOC: &str = "mimalloc";
/// In *churn*: reading the clock twice with nothing in between. It is in everybody's latencies.
pub const CLOCK: &str = "the clock alone";

const PEERS: [&str; 8] = [
    "glibc",
    "mmap",
    MIMALLOC,
    "snmalloc",
    "jemalloc",
    "buddy_system_allocator",
    "Mutex<Vec>",
    "ArrayQueue",
];

/// Everybody who takes part in a scenario.
pub fn names(scenario: Scenario) -> impl Iterator<Item = &'static str> {
    let clock = (scenario == Scenario::Churn).then_some(CLOCK);
    let peers = (scenario != Scenario::Hold).then_some(PEERS);
    let ours = ours::names(scenario).iter().copied();
    ours.chain(peers.into_iter().flatten()).chain(clock)
}

/// Slots of *churn* for each thread: 128 MiB of small blocks, 256 MiB of large ones; half of them hold a block.
pub const fn slots(bytes: usize) -> usize {
    match bytes {
        SMALL_BYTES => 1 << 15,
        _ => 1 << 12,
    }
}

/// Blocks of a pool that is made beforehand: more than any scenario holds at a time, and 3 MiB for each of 64 threads.
const fn pool_blocks(bytes: usize) -> usize {
    2 * slots(bytes) + 64 * (3 << 20) / bytes + 8192
}

/// Does `job` with blocks of `BYTES` bytes of the allocator called `name`.
///
/// # Errors
/// Why that is not possible here.
pub fn with<const BYTES: usize, J: Job>(name: &str, job: J) -> Result<J::Output, Absent> {
    let count = pool_blocks(BYTES);
    Ok(match name {
        "glibc" => job.run(&peers::glibc::<BYTES>()?),
        "mmap" => job.run(&peers::mmap::<BYTES>()?),
        #[cfg(feature = "native-peers")]
        MIMALLOC => job.run(&peers::mimalloc::<BYTES>()?),
        #[cfg(feature = "native-peers")]
        "snmalloc" => job.run(&peers::snmalloc::<BYTES>()?),
        #[cfg(feature = "native-peers")]
        "jemalloc" => job.run(&peers::jemalloc::<BYTES>()?),
        #[cfg(not(feature = "native-peers"))]
        MIMALLOC | "snmalloc" | "jemalloc" => {
            return Err(Absent("not built (feature native-peers)".to_owned()));
        }
        "buddy_system_allocator" => job.run(&peers::buddy::<BYTES>(count)?),
        "Mutex<Vec>" => job.run(&peers::stack::<BYTES>(count)?),
        "ArrayQueue" => job.run(&peers::queue::<BYTES>(count)?),
        name => return ours::with::<BYTES, J>(name, job),
    })
}
