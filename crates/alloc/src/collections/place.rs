//! The origin of a block, chosen by the larger of its requested size and alignment:
//!
//! | bytes | from | charged |
//! |---|---|---|
//! | below 32 KiB | the inner allocator | the size and 8 bytes, rounded up to 16, at least 32, as glibc's `malloc` takes |
//! | up to 4 MiB | pages of the group | the next power of two, as the pages are |
//! | beyond | the inner allocator | as the small ones |
//!
//! Pages are cached per CPU, and known to be zero or not. The inner allocator stands in if no pages are left, and where
//! a block of pages shrinks to a larger alignment than the pages have. So a layout alone does not tell the origin of a
//! middle-sized block: its address does. All layouts between the requested and the returned size are of one class, so a
//! free goes back to the block's origin.

use std::ptr::NonNull;

use allocator_api2::alloc::Layout;
use bursar::Memory;
use bursar::pages::Order;

/// From this size on a block is made of pages: order 3, where the kernel draws its line too
/// (`PAGE_ALLOC_COSTLY_ORDER`). Smaller blocks do not justify a page's record and a power of two.
const PAGES_FROM_BYTES: usize = 32 << 10;

/// Origin of blocks of a size and alignment.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Class {
    /// The inner allocator.
    Small,
    /// Pages of that order, or the inner allocator in place of them.
    Pages(Order),
    /// The inner allocator: no order is large enough.
    Huge,
}

impl Class {
    pub(super) fn of(layout: Layout) -> Self {
        let bytes = layout.size().max(layout.align());
        if bytes < PAGES_FROM_BYTES {
            return Self::Small;
        }
        match Order::for_bytes(bytes) {
            Some(order) => Self::Pages(order),
            None => Self::Huge,
        }
    }
}

/// Origin of a block.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Place {
    Inner,
    Pages(Order),
}

impl Place {
    /// Finds the origin of a block.
    pub(super) fn of(memory: &Memory, block: NonNull<u8>, layout: Layout) -> Self {
        if !matches!(Class::of(layout), Class::Pages(_)) {
            return Self::Inner;
        }
        let Some((pfn, _)) = memory.frames().find_map(|frames| frames.page_at(block)) else {
            return Self::Inner;
        };
        // Nobody frees it meanwhile: it is the caller's.
        let (_, order) = memory.raw_block(pfn).expect("a block of ours");
        Self::Pages(order)
    }
}

/// Returns the bytes that a block of the inner allocator is charged with. A function of the size alone, so a free
/// computes the same.
pub(super) fn taken_bytes(layout: Layout) -> u64 {
    // The size of a layout is at most `isize::MAX`.
    (layout.size() + 8).next_multiple_of(16).max(32) as u64
}

/// Returns an empty block, well aligned.
pub(super) fn nothing(layout: Layout) -> NonNull<[u8]> {
    let address = std::ptr::without_provenance_mut(layout.align());
    let address = NonNull::new(address).expect("an alignment is not zero");
    NonNull::slice_from_raw_parts(address, 0)
}

/// Returns a block of the inner allocator cut to the requested length, which is the length that is charged.
pub(super) fn exactly(block: NonNull<[u8]>, layout: Layout) -> NonNull<[u8]> {
    NonNull::slice_from_raw_parts(block.cast(), layout.size())
}
