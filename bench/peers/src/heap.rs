//! Owned blocks over an allocator that hands out bare addresses.

use std::marker::PhantomData;
use std::ptr::NonNull;

use crate::{FRAME_BYTES, Pages};

/// An allocator with a pair of functions, as C has them.
///
/// # Safety
/// If `bytes` is not 0, `alloc(bytes)` returns null, or the start of `bytes` bytes that may be read and written, and that no other code uses
/// until they are given to `free` of this or another value of the same type.
pub unsafe trait Library: Send + Sync {
    /// Allocates.
    fn alloc(&self, bytes: usize) -> *mut u8;

    /// Frees.
    ///
    /// # Safety
    /// `start` came from `alloc(bytes)` of a value of this type, and was not freed since.
    unsafe fn free(&self, start: NonNull<u8>, bytes: usize);
}

/// A block of `BYTES` bytes of an `L`.
pub struct Block<L, const BYTES: usize> {
    start: NonNull<u8>,
    of: PhantomData<fn() -> L>,
}

// SAFETY: a block is memory that nobody else uses, wherever it goes; `Library` frees it on any thread.
unsafe impl<L, const BYTES: usize> Send for Block<L, BYTES> {}

impl<L, const BYTES: usize> Block<L, BYTES> {
    /// # Safety
    /// The `BYTES` bytes at `start` may be read and written, and nobody else uses them as long as the block is not freed.
    pub(crate) unsafe fn new(start: NonNull<u8>) -> Self {
        let of = PhantomData;
        Self { start, of }
    }

    pub(crate) fn address(&self) -> usize {
        self.start.addr().get()
    }

    pub(crate) fn touch(&mut self) {
        // SAFETY: the first byte of a block is its holder's.
        unsafe { self.start.write_volatile(1) };
    }

    pub(crate) fn fill(&mut self) {
        for offset in (0..BYTES).step_by(FRAME_BYTES) {
            // SAFETY: `offset` is within the block, which is its holder's.
            unsafe { self.start.add(offset).write_volatile(1) };
        }
    }
}

/// Blocks of `BYTES` bytes from an `L`.
pub struct Heap<L, const BYTES: usize>(pub(crate) L);

impl<L: Library, const BYTES: usize> Pages for Heap<L, BYTES> {
    type Block = Block<L, BYTES>;

    #[inline(always)]
    fn alloc(&self) -> Option<Self::Block> {
        const { assert!(BYTES > 0, "jemalloc must not be asked for nothing") };
        let start = NonNull::new(self.0.alloc(BYTES))?;
        // SAFETY: a `Library` promises just that of what it allocates.
        Some(unsafe { Block::new(start) })
    }

    #[inline(always)]
    fn free(&self, block: Self::Block) {
        // SAFETY: by its type the block came from `alloc(BYTES)` of an `L`; it is owned, so it was not freed yet.
        unsafe { self.0.free(block.start, BYTES) };
    }

    fn address(block: &Self::Block) -> usize {
        block.address()
    }

    fn touch(block: &mut Self::Block) {
        block.touch();
    }

    fn fill(block: &mut Self::Block) {
        block.fill();
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// Takes `count` blocks, which must not overlap, writes them all, and gives them back.
    pub fn no_two_overlap<P: Pages>(pages: &P, bytes: usize, count: usize, alignment: usize) {
        for _ in 0..2 {
            let mut held: Vec<P::Block> = (0..count).map(|_| pages.alloc().unwrap()).collect();
            held.iter_mut().for_each(P::fill);
            let mut starts: Vec<usize> = held.iter().map(P::address).collect();
            starts.sort_unstable();
            assert!(starts.iter().all(|start| start.is_multiple_of(alignment)));
            assert!(starts.windows(2).all(|pair| pair[0] + bytes <= pair[1]));
            held.into_iter().for_each(|block| pages.free(block));
        }
    }
}
