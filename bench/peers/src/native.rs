//! mimalloc, snmalloc and jemalloc, built from source with the options of their crates and used as a Rust program would.

use std::ptr::NonNull;

use crate::heap::{Heap, Library};
use crate::{Absent, FRAME_BYTES};

/// Microsoft's mimalloc.
pub struct Mimalloc(());

/// Blocks from mimalloc.
///
/// # Errors
/// None: it is built in.
pub fn mimalloc<const BYTES: usize>() -> Result<Heap<Mimalloc, BYTES>, Absent> {
    Ok(Heap(Mimalloc(())))
}

// SAFETY: mimalloc hands out memory of the size asked for, to one caller at a time.
unsafe impl Library for Mimalloc {
    #[inline(always)]
    fn alloc(&self, bytes: usize) -> *mut u8 {
        // SAFETY: the alignment is a power of two.
        unsafe { libmimalloc_sys::mi_malloc_aligned(bytes, FRAME_BYTES).cast() }
    }

    #[inline(always)]
    unsafe fn free(&self, start: NonNull<u8>, _bytes: usize) {
        // SAFETY: the caller says that it came from `alloc` and was not freed.
        unsafe { libmimalloc_sys::mi_free(start.as_ptr().cast()) };
    }
}

/// Microsoft Research's snmalloc.
pub struct Snmalloc(());

/// Blocks from snmalloc.
///
/// # Errors
/// None: it is built in.
pub fn snmalloc<const BYTES: usize>() -> Result<Heap<Snmalloc, BYTES>, Absent> {
    Ok(Heap(Snmalloc(())))
}

// SAFETY: snmalloc hands out memory of the size asked for, to one caller at a time.
unsafe impl Library for Snmalloc {
    #[inline(always)]
    fn alloc(&self, bytes: usize) -> *mut u8 {
        // SAFETY: the alignment is a power of two.
        unsafe { snmalloc_sys::sn_rust_alloc(FRAME_BYTES, bytes).cast() }
    }

    #[inline(always)]
    unsafe fn free(&self, start: NonNull<u8>, bytes: usize) {
        // SAFETY: the caller says that it came from `alloc(bytes)`, which asked for this alignment, and was not freed.
        unsafe { snmalloc_sys::sn_rust_dealloc(start.as_ptr().cast(), FRAME_BYTES, bytes) };
    }
}

/// jemalloc, as TiKV packs it.
pub struct Jemalloc(());

/// Blocks from jemalloc.
///
/// # Errors
/// None: it is built in.
pub fn jemalloc<const BYTES: usize>() -> Result<Heap<Jemalloc, BYTES>, Absent> {
    Ok(Heap(Jemalloc(())))
}

const ALIGNED: i32 = tikv_jemalloc_sys::MALLOCX_ALIGN(FRAME_BYTES);

// SAFETY: jemalloc hands out memory of the size asked for, to one caller at a time.
unsafe impl Library for Jemalloc {
    #[inline(always)]
    fn alloc(&self, bytes: usize) -> *mut u8 {
        // SAFETY: the size is not 0: that of a `Heap` never is.
        unsafe { tikv_jemalloc_sys::mallocx(bytes, ALIGNED).cast() }
    }

    #[inline(always)]
    unsafe fn free(&self, start: NonNull<u8>, bytes: usize) {
        // SAFETY: the caller says that it came from `alloc(bytes)`, with the same flags, and was not freed.
        unsafe { tikv_jemalloc_sys::sdallocx(start.as_ptr().cast(), bytes, ALIGNED) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::heap::tests::no_two_overlap;

    #[test]
    fn no_two_blocks_overlap() {
        no_two_overlap(&mimalloc::<4096>().unwrap(), 4096, 500, FRAME_BYTES);
        no_two_overlap(&mimalloc::<65536>().unwrap(), 65536, 50, FRAME_BYTES);
        no_two_overlap(&snmalloc::<4096>().unwrap(), 4096, 500, FRAME_BYTES);
        no_two_overlap(&snmalloc::<65536>().unwrap(), 65536, 50, FRAME_BYTES);
        no_two_overlap(&jemalloc::<4096>().unwrap(), 4096, 500, FRAME_BYTES);
        no_two_overlap(&jemalloc::<65536>().unwrap(), 65536, 50, FRAME_BYTES);
    }
}
