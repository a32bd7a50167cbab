//! Trees of groups for the benchmarks.

use bursar::{Counter, Group, Limits, Memory, Statistic};

/// The statistics of the benchmarks' memories.
pub const STATISTICS: &[Statistic] = &[Statistic::counter("rows")];
/// The one that is counted.
pub const ROWS: Counter = Counter::from_name(STATISTICS, "rows");

/// A limit that no benchmark comes near, bytes.
const FAR_AWAY: u64 = 1 << 50;
/// The depths at which charging and counting are measured.
pub const DEPTHS: [usize; 4] = [1, 3, 5, 10];
/// The depth at which peers that know no depth stand beside the others.
pub const COMMON_DEPTH: usize = 5;

/// A memory of its own for each scenario, so that none profits or suffers from what another left behind.
pub fn memory() -> Memory {
    let builder = Memory::builder().statistics(STATISTICS);
    builder.build().expect("a memory on this machine")
}

/// `count` groups at `depth` below the root that part at the last level, with a limit at every level.
pub fn leaves(memory: &Memory, depth: usize, count: usize) -> Vec<Group> {
    let child = |parent: &Group, name: &str| {
        let limits = Limits::max(FAR_AWAY);
        parent.child(name, limits).expect("a new group")
    };
    let mut parent = memory.root();
    for level in 1..depth {
        parent = child(&parent, &format!("level-{level}"));
    }
    (0..count)
        .map(|index| child(&parent, &format!("leaf-{index}")))
        .collect()
}
