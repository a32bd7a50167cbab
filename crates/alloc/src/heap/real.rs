//! What a block really takes.

use std::alloc::{Layout, System};

/// Says what blocks of the allocator `A` really take.
pub trait RealSize<A> {
    /// Bytes that the block at `block`, allocated with `layout`, takes of the allocator's memory, its overhead included. The same
    /// for the whole life of the block (until it is reallocated), and at least `layout.size()`. It may not allocate, nor wait.
    ///
    /// # Safety
    /// `allocator` allocated `block` with `layout`, and it was not freed.
    unsafe fn real_size(allocator: &A, block: *mut u8, layout: Layout) -> usize;
}

/// For any allocator: the size that was asked for, rounded up to 16 bytes. What an allocator adds is not seen.
#[derive(Clone, Copy, Debug)]
pub struct ByLayout;

impl<A> RealSize<A> for ByLayout {
    #[inline(always)]
    unsafe fn real_size(_allocator: &A, _block: *mut u8, layout: Layout) -> usize {
        // A layout's size is at most `isize::MAX`.
        layout.size().next_multiple_of(16)
    }
}

/// For [`System`]: what the C library says, where it does (glibc and musl, macOS); as [`ByLayout`] elsewhere.
///
/// On glibc that is `malloc_usable_size`, and the eight bytes before each block that hold its size.
#[derive(Clone, Copy, Debug)]
pub struct Usable;

impl RealSize<System> for Usable {
    #[inline(always)]
    unsafe fn real_size(_allocator: &System, block: *mut u8, layout: Layout) -> usize {
        #[cfg(target_os = "linux")]
        {
            let _ = layout;
            // SAFETY: `System` is `malloc` and its kin here, and the block is in use.
            unsafe { libc::malloc_usable_size(block.cast()) + size_of::<usize>() }
        }
        #[cfg(target_vendor = "apple")]
        {
            let _ = layout;
            // SAFETY: as above.
            unsafe { libc::malloc_size(block.cast()) }
        }
        #[cfg(not(any(target_os = "linux", target_vendor = "apple")))]
        // SAFETY: as the caller says.
        unsafe {
            ByLayout::real_size(_allocator, block, layout)
        }
    }
}
