//! Memory of an exploration: schedules leave none allocated, however many have run.

use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::{AtomicUsize, Ordering};

use bursar_check::protocols;
use bursar_sim::{Explorer, SectionKind, Sim, Topology};

/// Schedules whose memory is measured, after as many that fill what is kept for reuse.
const SCHEDULES: u64 = 200;
/// Bytes that they may leave all together: room for a list that grows once more.
const SLACK_BYTES: usize = SCHEDULES as usize;

struct Counting;

/// Bytes that are allocated now.
static LIVE_BYTES: AtomicUsize = AtomicUsize::new(0);

// SAFETY: `System` allocates; the count is no part of it.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        // Relaxed, here and below: the test has one thread.
        LIVE_BYTES.fetch_add(layout.size(), Ordering::Relaxed);
        // SAFETY: the caller's contract is the same.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
        LIVE_BYTES.fetch_sub(layout.size(), Ordering::Relaxed);
        // SAFETY: as above.
        unsafe { System.dealloc(block, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// One test, because it counts the blocks of the whole process.
#[test]
fn only_protocols_whose_tasks_fork_leave_memory_allocated() {
    for protocol in protocols::all::<Sim>() {
        for sections in [SectionKind::Restartable, SectionKind::Atomic] {
            let explorer = Explorer {
                topology: Topology::new(protocol.cpus, 1, 1000),
                sections,
                seed: 1,
            };
            let explore = |first| {
                let explored = explorer.explore(&protocol.scenario, first, SCHEDULES, |_| ());
                assert_eq!(explored.found, None, "{}", protocol.name);
                LIVE_BYTES.load(Ordering::Relaxed)
            };
            let before = explore(0);
            let left = explore(SCHEDULES).saturating_sub(before);
            assert_eq!(
                left > SLACK_BYTES,
                protocol.forks,
                "{left} bytes left by {} with {sections:?} sections",
                protocol.name
            );
        }
    }
}
