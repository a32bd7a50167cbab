//! The bytes that a block really takes.

use std::alloc::{Layout, System};
use std::sync::atomic::{AtomicU16, AtomicU32, Ordering};

/// Reports the bytes that a block of the allocator `A` really takes.
///
/// # Safety
/// [`RealSize::real_size`] returns at least `layout.size()`. A result of 65,536 or more must be the same for each call
/// with that block until it is reallocated. The function neither allocates nor waits, and does not unwind.
pub unsafe trait RealSize<A> {
    /// Returns the bytes of the allocator's memory that the block at `block`, allocated with `layout`, takes, with its
    /// overhead.
    ///
    /// # Safety
    /// `allocator` allocated `block` with `layout`, and the block has not been freed.
    unsafe fn real_size(allocator: &A, block: *mut u8, layout: Layout) -> usize;
}

/// The requested size, rounded up to 16 bytes; for any allocator. Ignores the allocator's overhead.
#[derive(Clone, Copy, Debug)]
pub struct ByLayout;

// SAFETY: the size, rounded up: a function of the layout alone.
unsafe impl<A> RealSize<A> for ByLayout {
    #[inline(always)]
    unsafe fn real_size(_allocator: &A, _block: *mut u8, layout: Layout) -> usize {
        // A layout's size is at most `isize::MAX`.
        layout.size().next_multiple_of(16)
    }
}

/// The C library's answer for each block, for [`System`] on glibc, musl and macOS. Elsewhere the same as [`ByLayout`].
///
/// On glibc it is `malloc_usable_size` plus the eight bytes before each block that hold its size. [`UsableByClass`]
/// costs less.
#[derive(Clone, Copy, Debug)]
pub struct Usable;

// SAFETY: what the C library says of a block in use is at least what was asked for, and stays as it is.
unsafe impl RealSize<System> for Usable {
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

/// The C library's answers by size class, for [`System`]; the default. As [`Usable`], rounded up to 8 bytes, but the C
/// library is asked only a few times for each small size, and its answer stands for the other blocks of that size.
///
/// Where sizes are classes (jemalloc, mimalloc, TCMalloc, macOS), that is the size of each block. glibc may give a
/// block 16 bytes more than another of its size, if the rest would be too small to be a block. So the error is at most
/// 16 bytes for a block of up to 1 KiB. It is 0 for larger blocks and for blocks aligned to more than 16 bytes.
#[derive(Clone, Copy, Debug)]
pub struct UsableByClass;

/// Larger blocks, labels included, are asked about one by one: the call costs little beside the use of such a block.
const SMALL_MAX: usize = 1024;
/// Least difference of sizes that the allocator of any C library makes, bytes.
const STEP: usize = 8;
/// Alignment that the C library gives without being asked, bytes.
const ALIGN_MAX: usize = 16;
/// Answers for a class, of which the least counts. Any number keeps the bound. More answers make it less likely that
/// all of them came from blocks with too small a rest; a test sees fewer than one such block in twenty.
const ANSWERS: u32 = 8;

/// Number of classes: sizes, rounded up to `STEP`.
const CLASSES: usize = SMALL_MAX / STEP + 1;

/// Bytes that blocks of a class really take; 0 while there are too few answers.
static KNOWN: [AtomicU16; CLASSES] = [const { AtomicU16::new(0) }; CLASSES];
/// Answers so far: their number, in units of `ANSWER`, and the least of them.
static ANSWERED: [AtomicU32; CLASSES] = [const { AtomicU32::new(0) }; CLASSES];
const ANSWER: u32 = 1 << 16;

// SAFETY: no answer that counts is less than the largest size of its class, or as much as 65,536; larger blocks are always asked.
unsafe impl RealSize<System> for UsableByClass {
    #[inline(always)]
    unsafe fn real_size(allocator: &System, block: *mut u8, layout: Layout) -> usize {
        if layout.size() > SMALL_MAX || layout.align() > ALIGN_MAX {
            // SAFETY: as the caller says.
            return unsafe { Usable::real_size(allocator, block, layout) };
        }
        let class = layout.size().div_ceil(STEP);
        // Relaxed, here and below: a number that stands for itself.
        let real = match KNOWN[class].load(Ordering::Relaxed) {
            0 => {
                // SAFETY: as the caller says.
                let real = unsafe { Usable::real_size(allocator, block, layout) };
                note_answer(class, real)
            }
            known => known,
        };
        usize::from(real)
    }
}

/// Records an answer, and returns the value that counts.
#[cold]
#[inline(never)]
fn note_answer(class: usize, real: usize) -> u16 {
    // No less than the largest size of the class; the upper bound is for unknown allocators.
    let real = real.clamp(class * STEP, usize::from(u16::MAX)) as u16;
    let before = ANSWERED[class].load(Ordering::Relaxed);
    let least = match before % ANSWER {
        0 => real,
        least => real.min(least as u16),
    };
    let answers = (before / ANSWER + 1).min(ANSWERS);
    let after = answers * ANSWER + u32::from(least);
    // On failure another thread's answer was recorded.
    let counts =
        ANSWERED[class].compare_exchange(before, after, Ordering::Relaxed, Ordering::Relaxed);
    if counts.is_ok() && answers == ANSWERS {
        KNOWN[class].store(least, Ordering::Relaxed);
    }
    real
}
