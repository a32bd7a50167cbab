//! Blocks of the heap, charged to the group that the thread is in.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::RefCell;
use std::ffi::{c_int, c_void};
use std::ptr;

use bursar_alloc::{Charged, Entered, GroupExt, outside};

use crate::error::{Error, Failure, guard};
use crate::group::group_of;
use crate::handles::GroupHandle;

/// Not the library's own allocator, which charges nobody.
static HEAP: Charged<System> = Charged::new(System);

/// C aligns each block so that it can hold any number.
const ALIGN: usize = 16;
/// Bytes before a block: its size is in the first of them.
const BEFORE: usize = ALIGN;

thread_local! {
    static ENTERED: RefCell<Vec<Entered>> = const { RefCell::new(Vec::new()) };
}

/// # Safety
/// `error` is NULL, or can be written to.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bursar_enter(group: GroupHandle, error: *mut *mut Error) -> c_int {
    let run = || {
        let (group, _) = group_of(group)?;
        let entered = group.enter();
        // An ended thread enters nothing.
        let kept = ENTERED.try_with(|all| outside(|| all.borrow_mut().push(entered)));
        kept.map_err(|_| Failure::Argument("the thread ends"))?;
        Ok(0)
    };
    // SAFETY: as the caller's.
    unsafe { guard(error, run) as c_int }
}

#[unsafe(no_mangle)]
pub extern "C" fn bursar_leave() -> c_int {
    let run = || {
        let last = ENTERED.try_with(|all| all.borrow_mut().pop());
        match last.ok().flatten() {
            Some(entered) => {
                drop(entered);
                Ok(0)
            }
            None => Err(Failure::Argument("the thread is in no group")),
        }
    };
    // SAFETY: no error is wanted.
    unsafe { guard(ptr::null_mut(), run) as c_int }
}

fn layout(size: usize) -> Option<Layout> {
    Layout::from_size_align(size.checked_add(BEFORE)?, ALIGN).ok()
}

/// Writes the size before a new block, and returns where the program's bytes begin.
///
/// # Safety
/// `start` is NULL, or a block of `layout(size)`.
unsafe fn sized(start: *mut u8, size: usize) -> *mut c_void {
    if start.is_null() {
        return ptr::null_mut();
    }
    // SAFETY: there is room for it, and it is aligned. Volatile, as a label of `Charged` is: a program that links this library with
    // link-time optimisation may inline one of these functions and not the other.
    unsafe {
        start.cast::<usize>().write_volatile(size);
        start.add(BEFORE).cast()
    }
}

#[unsafe(no_mangle)]
pub extern "C" fn bursar_malloc(size: usize) -> *mut c_void {
    let Some(layout) = layout(size) else {
        return ptr::null_mut();
    };
    // SAFETY: not of size zero; then a block of that layout.
    unsafe { sized(HEAP.alloc(layout), size) }
}

#[unsafe(no_mangle)]
pub extern "C" fn bursar_calloc(count: usize, size: usize) -> *mut c_void {
    let size = count.checked_mul(size);
    let Some((size, layout)) = size.and_then(|size| Some((size, layout(size)?))) else {
        return ptr::null_mut();
    };
    // SAFETY: as in `bursar_malloc`.
    unsafe { sized(HEAP.alloc_zeroed(layout), size) }
}

/// # Safety
/// `block` is NULL, or a block of these functions that is in use.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bursar_malloc_size(block: *const c_void) -> usize {
    if block.is_null() {
        return 0;
    }
    // SAFETY: its size is before it. Volatile: see `sized`.
    unsafe {
        block
            .cast::<u8>()
            .sub(BEFORE)
            .cast::<usize>()
            .read_volatile()
    }
}

/// # Safety
/// As above. If it returns a block, the old one is not used again.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bursar_realloc(block: *mut c_void, size: usize) -> *mut c_void {
    if block.is_null() {
        return bursar_malloc(size);
    }
    let Some(wanted) = layout(size) else {
        return ptr::null_mut();
    };
    // SAFETY: as the caller's; it was allocated with that layout, so this one is there again.
    unsafe {
        let before = layout(bursar_malloc_size(block)).unwrap_unchecked();
        let start = block.cast::<u8>().sub(BEFORE);
        sized(HEAP.realloc(start, before, wanted.size()), size)
    }
}

/// # Safety
/// As above, and the block is not used again.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bursar_free(block: *mut c_void) {
    if block.is_null() {
        return;
    }
    // SAFETY: as in `bursar_realloc`.
    unsafe {
        let before = layout(bursar_malloc_size(block)).unwrap_unchecked();
        HEAP.dealloc(block.cast::<u8>().sub(BEFORE), before);
    }
}

version!(1: bursar_enter, bursar_leave, bursar_malloc, bursar_calloc, bursar_malloc_size, bursar_realloc, bursar_free);
