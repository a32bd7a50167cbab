//! What a block really takes.

use std::alloc::{Layout, System};
use std::sync::atomic::{AtomicU16, AtomicU32, Ordering};

/// Says what blocks of the allocator `A` really take.
///
/// # Safety
/// [`RealSize::real_size`] returns at least `layout.size()`; and a number of 65,536 or more again whenever it is asked of that block
/// (until it is reallocated). It neither allocates nor waits, and does not unwind.
pub unsafe trait RealSize<A> {
    /// Bytes that the block at `block`, allocated with `layout`, takes of the allocator's memory, its overhead included.
    ///
    /// # Safety
    /// `allocator` allocated `block` with `layout`, and it was not freed.
    unsafe fn real_size(allocator: &A, block: *mut u8, layout: Layout) -> usize;
}

/// For any allocator: the size that was asked for, rounded up to 16 bytes. What an allocator adds is not seen.
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

/// For [`System`]: what the C library says of each block, where it does (glibc and musl, macOS); as [`ByLayout`] elsewhere.
///
/// On glibc that is `malloc_usable_size`, and the eight bytes before each block that hold its size. See [`UsableByClass`] for what
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

/// For [`System`], and the default: as [`Usable`], rounded up to 8 bytes, but of small blocks the C library is asked a few times
/// for each size, and what it said is believed of the others.
///
/// Where sizes are classes (jemalloc, mimalloc, TCMalloc, macOS), that is what each block takes. glibc may give a block 16 bytes
/// more than another of its size, if the rest would be too small to be a block. So the error is no more than 16 bytes for a block
/// of up to 1 KiB, and none for larger ones and those aligned to more than 16 bytes.
#[derive(Clone, Copy, Debug)]
pub struct UsableByClass;

/// Larger blocks, their labels included, are each asked about: there the call costs little beside what is done with them.
const SMALL_MAX: usize = 1024;
/// No allocator of a C library tells smaller differences apart.
const STEP: usize = 8;
/// As the C library aligns what is not asked to be aligned.
const ALIGN_MAX: usize = 16;
/// So many answers, of which the least counts. Any number serves the bound: the more, the less likely that all of them were blocks
/// with too small a rest, of which a test sees fewer than one in twenty.
const ANSWERS: u32 = 8;

/// Sizes, rounded up to `STEP`.
const CLASSES: usize = SMALL_MAX / STEP + 1;

/// What blocks of a class really take; 0 while there are too few answers.
static KNOWN: [AtomicU16; CLASSES] = [const { AtomicU16::new(0) }; CLASSES];
/// The answers until then: how many, in units of `ANSWER`, and the least.
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

/// Returns the answer as it counts.
#[cold]
#[inline(never)]
fn note_answer(class: usize, real: usize) -> u16 {
    // No less than the largest size of the class; the upper bound is for an allocator that nobody has seen.
    let real = real.clamp(class * STEP, usize::from(u16::MAX)) as u16;
    let before = ANSWERED[class].load(Ordering::Relaxed);
    let least = match before % ANSWER {
        0 => real,
        least => real.min(least as u16),
    };
    let answers = (before / ANSWER + 1).min(ANSWERS);
    let after = answers * ANSWER + u32::from(least);
    // Who fails lost an answer to another.
    let counts =
        ANSWERED[class].compare_exchange(before, after, Ordering::Relaxed, Ordering::Relaxed);
    if counts.is_ok() && answers == ANSWERS {
        KNOWN[class].store(least, Ordering::Relaxed);
    }
    real
}
