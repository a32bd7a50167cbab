//! Memory that a target takes: the allocator of the fuzzers counts each thread's bytes.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

thread_local! {
    // Without a destructor, so that an allocator may use them at any time.
    static HELD: Cell<usize> = const { Cell::new(0) };
    static PEAK: Cell<usize> = const { Cell::new(0) };
}

/// The system's allocator, which counts.
struct Counting;

#[global_allocator]
static ALLOCATOR: Counting = Counting;

fn took(bytes: usize) {
    // A thread frees what others allocated, so this may pass below 0.
    let held = HELD.get().wrapping_add(bytes);
    HELD.set(held);
    if held < usize::MAX / 2 {
        PEAK.set(PEAK.get().max(held));
    }
}

// SAFETY: each call is the system's, with the same arguments.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        took(layout.size());
        // SAFETY: the caller's.
        unsafe { System.alloc(layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        took(layout.size());
        // SAFETY: the caller's.
        unsafe { System.alloc_zeroed(layout) }
    }

    unsafe fn realloc(&self, block: *mut u8, layout: Layout, bytes: usize) -> *mut u8 {
        took(bytes.wrapping_sub(layout.size()));
        // SAFETY: the caller's.
        unsafe { System.realloc(block, layout, bytes) }
    }

    unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
        HELD.set(HELD.get().wrapping_sub(layout.size()));
        // SAFETY: the caller's.
        unsafe { System.dealloc(block, layout) }
    }
}

/// Calls a function, and checks that this thread took no more than `bytes_max` bytes besides what it held.
pub(crate) fn within<T>(bytes_max: usize, call: impl FnOnce() -> T) -> T {
    let before = HELD.get();
    PEAK.set(before);
    let outcome = call();
    let peak = PEAK.get().wrapping_sub(before);
    assert!(peak <= bytes_max, "it took {peak} bytes of {bytes_max}");
    outcome
}
