//! The root's limit beside the limit of this process's cgroup, whichever cgroup that is.

use bursar::{Memory, MemoryError};
use bursar_machine::host::CgroupMemory;

/// The limit of the cgroup that this test runs in may change at any time, so it is read on both sides.
#[test]
fn the_root_follows_the_cgroup_of_this_process() {
    let _alone = crate::common::fork::alone();
    const KEEP_FREE: u64 = 1 << 20;
    let limit = || CgroupMemory::of_this_process().and_then(|cgroup| Ok(cgroup.read()?.max));
    let before = limit();
    let built = Memory::builder()
        .max(1 << 40)
        .max_from_cgroup(KEEP_FREE)
        .build();
    let reread = built.as_ref().ok().map(Memory::reread_cgroup);
    if before != limit() {
        return;
    }
    match (built, before) {
        (Ok(memory), Ok(max)) => {
            let left = max.map_or(u64::MAX, |max| max.saturating_sub(KEEP_FREE));
            assert_eq!(memory.root().max(), left.min(1 << 40));
            assert_eq!(reread, Some(Ok(max)));
        }
        (Err(MemoryError::Cgroup(error)), Err(seen)) => assert_eq!(error, seen),
        (built, limit) => panic!("{built:?} {limit:?}"),
    }
}

#[test]
fn rereading_without_a_wish_changes_nothing() {
    let _alone = crate::common::fork::alone();
    let memory = Memory::builder().max(12_345).build().unwrap();
    let read = memory.reread_cgroup();
    assert_eq!(memory.root().max(), 12_345, "{read:?}");
    memory.set_max(54_321);
    assert_eq!(memory.root().max(), 54_321);
}
