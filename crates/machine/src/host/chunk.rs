//! Memory of per-CPU words: zeroed, taken from the system at its first use, never given back. Its layout.

use core::ptr::NonNull;

use crate::OutOfMemory;

/// Log2 of the distance between the copies of a slot or list.
pub(super) const STRIDE_SHIFT: u32 = 16;
/// Bytes between the copies of a slot or list.
pub(super) const STRIDE: usize = 1 << STRIDE_SHIFT;
/// Number of bytes of a list's header.
pub(super) const LIST_HEADER: usize = 64;
/// Offset of a list's limit in its header; the floor follows.
pub(super) const LIST_LIMIT: usize = 8;

/// Reserves `copies` strides of zeroed memory, one for each shard, with `padding` bytes behind the last, and returns
/// the first.
///
/// The memory stays mapped until the process ends, because handles into it are plain copies, and charges outlive
/// everything.
pub(super) fn reserve(copies: usize, padding: usize) -> Result<NonNull<u8>, OutOfMemory> {
    let bytes = copies
        .checked_mul(STRIDE)
        .and_then(|bytes| bytes.checked_add(padding))
        .ok_or(OutOfMemory)?;
    // SAFETY: an anonymous private mapping at an address of the system's choice touches no existing memory.
    let address = unsafe {
        libc::mmap(
            core::ptr::null_mut(),
            bytes,
            libc::PROT_READ | libc::PROT_WRITE,
            libc::MAP_PRIVATE | libc::MAP_ANON | libc::MAP_NORESERVE,
            -1,
            0,
        )
    };
    if address == libc::MAP_FAILED {
        return Err(OutOfMemory);
    }
    // A huge page would span the copies of 32 CPUs, so one touch would take memory for all of them, on one node.
    #[cfg(target_os = "linux")]
    // SAFETY: advice about the mapping just made; failure changes nothing.
    unsafe {
        libc::madvise(address, bytes, libc::MADV_NOHUGEPAGE);
    }
    NonNull::new(address.cast()).ok_or(OutOfMemory)
}
