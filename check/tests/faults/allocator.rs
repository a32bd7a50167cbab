//! The program's allocator, which fails as a thread asks it to.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::ptr;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// The n-th allocation fails alone.
    Once,
    /// The n-th fails, and all that come after it.
    Always,
}

/// State of a thread. No part of it has a destructor, so the thread may allocate until its last instruction.
#[derive(Clone, Copy)]
struct State {
    /// Number of allocations until the first that fails; 0 if none does.
    left: u64,
    mode: Mode,
    has_failed: bool,
    /// Whether the first that fails shows where it was made.
    shows: bool,
}

thread_local! {
    static STATE: Cell<State> = const {
        Cell::new(State { left: 0, mode: Mode::Once, has_failed: false, shows: false })
    };
}

/// Fails allocations of this thread, until dropped.
pub struct Armed(());

impl Armed {
    pub fn new(mode: Mode, nth: u64) -> Self {
        let shows = std::env::var_os("BURSAR_FAULT_TRACE").is_some();
        STATE.set(State {
            left: nth,
            mode,
            has_failed: false,
            shows,
        });
        Self(())
    }

    /// Whether an allocation has failed.
    pub fn has_failed(&self) -> bool {
        STATE.get().has_failed
    }
}

impl Drop for Armed {
    fn drop(&mut self) {
        STATE.set(State {
            left: 0,
            ..STATE.get()
        });
    }
}

/// Whether the allocation that this thread makes now fails.
fn fails() -> bool {
    let state = STATE.get();
    let fails = state.left == 1;
    let stays = fails && state.mode == Mode::Always;
    STATE.set(State {
        left: if stays {
            1
        } else {
            state.left.saturating_sub(1)
        },
        has_failed: state.has_failed || fails,
        ..state
    });
    if fails && state.shows && !state.has_failed {
        show();
    }
    fails
}

/// Shows where the thread is. Allocates, so nothing fails meanwhile.
#[cold]
fn show() {
    let state = STATE.get();
    STATE.set(State { left: 0, ..state });
    eprintln!("{}", std::backtrace::Backtrace::force_capture());
    STATE.set(state);
}

struct Failing;

// SAFETY: `System` allocates, or nothing does: a null pointer means that.
unsafe impl GlobalAlloc for Failing {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        match fails() {
            true => ptr::null_mut(),
            // SAFETY: the caller's contract is the same.
            false => unsafe { System.alloc(layout) },
        }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        match fails() {
            true => ptr::null_mut(),
            // SAFETY: as above.
            false => unsafe { System.alloc_zeroed(layout) },
        }
    }

    unsafe fn realloc(&self, block: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        match fails() {
            // The block stays, as the caller must expect.
            true => ptr::null_mut(),
            // SAFETY: as above.
            false => unsafe { System.realloc(block, layout, size) },
        }
    }

    unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
        // SAFETY: as above.
        unsafe { System.dealloc(block, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Failing = Failing;
