//! Pools that programs put together themselves: a buddy allocator, a stack and a queue, each over an arena of
//! fixed size.

use std::alloc::Layout;
use std::ptr::{NonNull, null_mut};
use std::sync::{Mutex, PoisonError};

use buddy_system_allocator::LockedHeap;
use crossbeam_queue::ArrayQueue;

use crate::arena::Arena;
use crate::heap::{Block, Heap, Library};
use crate::{Absent, FRAME_BYTES, Pages};

/// Orders of the buddy allocator, those below a page included: blocks of up to 64 GiB.
const ORDERS: usize = 36;

/// `buddy_system_allocator`'s heap under its spin lock.
pub struct Buddy(LockedHeap<ORDERS>);

/// Blocks from a buddy allocator that has room for `count`.
///
/// # Errors
/// If there is no address space for them.
pub fn buddy<const BYTES: usize>(count: usize) -> Result<Heap<Buddy, BYTES>, Absent> {
    let arena = Arena::new(count * BYTES)?;
    let heap = LockedHeap::new();
    let start = arena.start().addr().get();
    // SAFETY: the arena lives as long as the process, and nobody else uses it.
    unsafe { heap.lock().init(start, count * BYTES) };
    Ok(Heap(Buddy(heap)))
}

fn layout(bytes: usize) -> Layout {
    Layout::from_size_align(bytes, FRAME_BYTES).expect("the size of a block")
}

// SAFETY: the heap hands out parts of arenas, each to one caller at a time. A block of another heap of this type is, when
// it is freed here, memory for this heap like any other.
unsafe impl Library for Buddy {
    #[inline(always)]
    fn alloc(&self, bytes: usize) -> *mut u8 {
        let block = self.0.lock().alloc(layout(bytes));
        block.map_or(null_mut(), NonNull::as_ptr)
    }

    #[inline(always)]
    unsafe fn free(&self, start: NonNull<u8>, bytes: usize) {
        // SAFETY: the caller says that it came from `alloc(bytes)`, so it has this layout, and was not freed.
        unsafe { self.0.lock().dealloc(start, layout(bytes)) };
    }
}

/// The blocks of an arena that holds `count`.
fn blocks<const BYTES: usize>(
    count: usize,
) -> Result<impl Iterator<Item = Block<Arena, BYTES>>, Absent> {
    let starts = Arena::new(count * BYTES)?.into_blocks(BYTES);
    // SAFETY: each block of the arena, which lives as long as the process, is made an owned one once.
    Ok(starts.map(|start| unsafe { Block::new(start) }))
}

/// A stack of blocks under a mutex.
pub struct Stack<const BYTES: usize>(Mutex<Vec<Block<Arena, BYTES>>>);

/// A stack with `count` blocks.
///
/// # Errors
/// If there is no address space for them.
pub fn stack<const BYTES: usize>(count: usize) -> Result<Stack<BYTES>, Absent> {
    Ok(Stack(Mutex::new(blocks(count)?.collect())))
}

impl<const BYTES: usize> Pages for Stack<BYTES> {
    type Block = Block<Arena, BYTES>;

    #[inline(always)]
    fn alloc(&self) -> Option<Self::Block> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).pop()
    }

    #[inline(always)]
    fn free(&self, block: Self::Block) {
        let mut stack = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        stack.push(block);
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

/// Blocks in crossbeam's bounded queue.
pub struct Queue<const BYTES: usize>(ArrayQueue<Block<Arena, BYTES>>);

/// A queue with `count` blocks.
///
/// # Errors
/// If there is no address space for them.
pub fn queue<const BYTES: usize>(count: usize) -> Result<Queue<BYTES>, Absent> {
    let queue = ArrayQueue::new(count);
    for block in blocks(count)? {
        // There is room for all of them.
        let _ = queue.push(block);
    }
    Ok(Queue(queue))
}

impl<const BYTES: usize> Pages for Queue<BYTES> {
    type Block = Block<Arena, BYTES>;

    #[inline(always)]
    fn alloc(&self) -> Option<Self::Block> {
        self.0.pop()
    }

    #[inline(always)]
    fn free(&self, block: Self::Block) {
        assert!(self.0.push(block).is_ok(), "more blocks than there are");
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
mod tests {
    use super::*;
    use crate::heap::tests::no_two_overlap;

    #[test]
    fn no_two_blocks_overlap() {
        no_two_overlap(&buddy::<4096>(512).unwrap(), 4096, 500, FRAME_BYTES);
        no_two_overlap(&buddy::<65536>(64).unwrap(), 65536, 50, FRAME_BYTES);
        no_two_overlap(&stack::<4096>(500).unwrap(), 4096, 500, FRAME_BYTES);
        no_two_overlap(&queue::<65536>(50).unwrap(), 65536, 50, FRAME_BYTES);
    }

    #[test]
    fn an_empty_pool_says_so() {
        let stack = stack::<4096>(1).unwrap();
        let block = stack.alloc().unwrap();
        assert!(stack.alloc().is_none());
        stack.free(block);
        assert!(stack.alloc().is_some());
    }
}
