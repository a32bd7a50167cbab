//! Where a block lies: by the larger of its size and its alignment, as it was asked for:
//!
//! | bytes | from | charged |
//! |---|---|---|
//! | below 32 KiB | the inner allocator | the size and 8 bytes, rounded up to 16, at least 32: what glibc's `malloc` takes |
//! | up to 4 MiB | pages of the group | the next power of two: what the pages are |
//! | beyond | the inner allocator | as the small ones |
//!
//! Pages are cached per CPU, and known to be zero or not. The inner allocator stands in if there are none left, and where a block
//! of pages shrinks and wants a larger alignment than those have. So layouts alone do not tell where a block of the middle class
//! lies: its address does. All layouts between what was asked for and what was returned are of one class, hence what is freed
//! goes back where it came from.

use std::ptr::NonNull;

use allocator_api2::alloc::Layout;
use bursar::Memory;
use bursar::pages::Order;

/// From here on a block is of pages: order 3, where the kernel draws its line too (`PAGE_ALLOC_COSTLY_ORDER`). What is smaller
/// is used up sooner than a page's record and a power of two are worth.
const PAGES_FROM_BYTES: usize = 32 << 10;

/// Who gives blocks of this size and alignment out.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Class {
    /// The inner allocator.
    Small,
    /// Pages of that order, or the inner allocator in their place.
    Pages(Order),
    /// The inner allocator: no order is so large.
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

/// Who gave a block out.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Place {
    Inner,
    Pages(Order),
}

impl Place {
    /// Who gave a block out.
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

/// Bytes that a block of the inner allocator is charged with. A function of the size alone, which is the same when it is
/// freed.
pub(super) fn taken_bytes(layout: Layout) -> u64 {
    // The size of a layout is at most `isize::MAX`.
    (layout.size() + 8).next_multiple_of(16).max(32) as u64
}

/// Nothing, well aligned.
pub(super) fn nothing(layout: Layout) -> NonNull<[u8]> {
    let address = std::ptr::without_provenance_mut(layout.align());
    let address = NonNull::new(address).expect("an alignment is not zero");
    NonNull::slice_from_raw_parts(address, 0)
}

/// A block of the inner allocator, no longer than was asked for: the charge is by that length.
pub(super) fn exactly(block: NonNull<[u8]>, layout: Layout) -> NonNull<[u8]> {
    NonNull::slice_from_raw_parts(block.cast(), layout.size())
}
