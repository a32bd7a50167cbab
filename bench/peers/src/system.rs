//! Allocators that every Linux has: the C library's, and the kernel's mappings.

use std::ptr::{NonNull, null_mut};

use crate::heap::{Heap, Library};
use crate::{Absent, FRAME_BYTES};

/// The C library's `posix_memalign` and `free`.
pub struct Glibc(());

/// Blocks from the C library.
///
/// # Errors
/// None: it is always there.
pub fn glibc<const BYTES: usize>() -> Result<Heap<Glibc, BYTES>, Absent> {
    Ok(Heap(Glibc(())))
}

// SAFETY: the C library hands out memory of the size asked for, to one caller at a time.
unsafe impl Library for Glibc {
    #[inline(always)]
    fn alloc(&self, bytes: usize) -> *mut u8 {
        let mut start = null_mut();
        // SAFETY: `start` may be written; the alignment is a power of two and a multiple of a pointer's size.
        let error = unsafe { libc::posix_memalign(&mut start, FRAME_BYTES, bytes) };
        if error == 0 { start.cast() } else { null_mut() }
    }

    #[inline(always)]
    unsafe fn free(&self, start: NonNull<u8>, _bytes: usize) {
        // SAFETY: the caller says that it came from `alloc` and was not freed.
        unsafe { libc::free(start.as_ptr().cast()) };
    }
}

/// A mapping of its own for each block.
pub struct Mmap(());

/// Blocks from the kernel.
///
/// # Errors
/// None: it is always there.
pub fn mmap<const BYTES: usize>() -> Result<Heap<Mmap, BYTES>, Absent> {
    Ok(Heap(Mmap(())))
}

// SAFETY: the kernel maps new pages where nothing else is.
unsafe impl Library for Mmap {
    #[inline(always)]
    fn alloc(&self, bytes: usize) -> *mut u8 {
        let (read_write, flags) = (
            libc::PROT_READ | libc::PROT_WRITE,
            libc::MAP_PRIVATE | libc::MAP_ANONYMOUS,
        );
        // SAFETY: a new mapping, at no given address, changes nothing that exists.
        let start = unsafe { libc::mmap(null_mut(), bytes, read_write, flags, -1, 0) };
        if start == libc::MAP_FAILED {
            return null_mut();
        }
        start.cast()
    }

    #[inline(always)]
    unsafe fn free(&self, start: NonNull<u8>, bytes: usize) {
        // SAFETY: the caller says that the mapping came from `alloc(bytes)`; nobody uses it any more.
        let result = unsafe { libc::munmap(start.as_ptr().cast(), bytes) };
        assert_eq!(result, 0, "munmap: {}", std::io::Error::last_os_error());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::heap::tests::no_two_overlap;

    #[test]
    fn no_two_blocks_overlap() {
        no_two_overlap(&glibc::<4096>().unwrap(), 4096, 500, FRAME_BYTES);
        no_two_overlap(&glibc::<65536>().unwrap(), 65536, 50, FRAME_BYTES);
        no_two_overlap(&mmap::<4096>().unwrap(), 4096, 500, FRAME_BYTES);
        no_two_overlap(&mmap::<65536>().unwrap(), 65536, 50, FRAME_BYTES);
    }
}
