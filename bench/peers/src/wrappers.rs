//! Wrappers of the system's allocator that count: `stats_alloc`, `cap`, `tracking-allocator`; and any other allocator, global
//! or of collections, as a [`Library`].

use std::alloc::{GlobalAlloc, Layout, System};
use std::ptr::{self, NonNull};
use std::sync::Once;
use std::sync::atomic::{AtomicUsize, Ordering};

use allocator_api2::alloc::Allocator as OfBlocks;
use tracking_allocator::{
    AllocationGroupId, AllocationGroupToken, AllocationRegistry, AllocationTracker, Allocator,
};

use crate::{Heap, Library};

/// A global allocator, called like any other.
pub struct Global<A>(A);

// SAFETY: what a global allocator returns for a layout is null, or such a block.
unsafe impl<A: GlobalAlloc + Send + Sync> Library for Global<A> {
    #[inline(always)]
    fn alloc(&self, bytes: usize) -> *mut u8 {
        // SAFETY: of more than 0 bytes: the blocks of a `Heap` are.
        unsafe { self.0.alloc(layout(bytes)) }
    }

    #[inline(always)]
    unsafe fn free(&self, start: NonNull<u8>, bytes: usize) {
        // SAFETY: the caller says that it came from `alloc(bytes)`, and so from this layout.
        unsafe { self.0.dealloc(start.as_ptr(), layout(bytes)) }
    }
}

#[inline(always)]
fn layout(bytes: usize) -> Layout {
    assert!(bytes > 0 && bytes < 1 << 32);
    Layout::from_size_align(bytes, 8).expect("fewer than 2^63 bytes")
}

/// Blocks of any global allocator.
pub fn global<A: GlobalAlloc + Send + Sync, const BYTES: usize>(
    allocator: A,
) -> Heap<Global<A>, BYTES> {
    Heap(Global(allocator))
}

/// An allocator of collections, called like any other.
pub struct OfCollections<A>(A);

// SAFETY: what an allocator returns for a layout is an error, or such a block.
unsafe impl<A: OfBlocks + Send + Sync> Library for OfCollections<A> {
    #[inline(always)]
    fn alloc(&self, bytes: usize) -> *mut u8 {
        let block = self.0.allocate(layout(bytes));
        block.map_or(ptr::null_mut(), |block| block.cast().as_ptr())
    }

    #[inline(always)]
    unsafe fn free(&self, start: NonNull<u8>, bytes: usize) {
        // SAFETY: the caller says that it came from `alloc(bytes)`, and so from this layout.
        unsafe { self.0.deallocate(start, layout(bytes)) }
    }
}

/// Blocks of any allocator of collections.
pub fn of_collections<A: OfBlocks + Send + Sync, const BYTES: usize>(
    allocator: A,
) -> Heap<OfCollections<A>, BYTES> {
    Heap(OfCollections(allocator))
}

/// The system's allocator.
pub fn bare<const BYTES: usize>() -> Heap<Global<System>, BYTES> {
    global(System)
}

/// Counts allocations, frees, and bytes of each in shared words.
pub fn stats_alloc<const BYTES: usize>() -> Heap<Global<stats_alloc::StatsAlloc<System>>, BYTES> {
    global(stats_alloc::StatsAlloc::system())
}

/// Counts what is in use, against a limit, in shared words.
pub fn cap<const BYTES: usize>() -> Heap<Global<cap::Cap<System>>, BYTES> {
    global(cap::Cap::new(System, usize::MAX))
}

/// Tells a tracker whose block it is: here the least that counts what all of [`in_tracked_group`] use together.
pub fn tracking<const BYTES: usize>() -> Heap<Global<Tracked>, BYTES> {
    static SET: Once = Once::new();
    SET.call_once(|| {
        AllocationRegistry::set_global_tracker(OneTenant).expect("set once");
        AllocationRegistry::enable_tracking();
    });
    global(Tracked(Allocator::system()))
}

/// Runs `run` in a group of `tracking-allocator` that is part of one tenant.
///
/// Only one thread at a time can be in a group of it, so each call has a new one, and it is the tracker that knows them as the
/// same tenant.
pub fn in_tracked_group<R>(run: impl FnOnce() -> R) -> R {
    // `None` when another thread registered between the two steps of `register`, not only when numbers run out.
    let mut token = loop {
        if let Some(token) = AllocationGroupToken::register() {
            break token;
        }
    };
    let guard = token.enter();
    let result = run();
    drop(guard);
    result
}

/// `tracking-allocator` over the system's.
pub struct Tracked(Allocator<System>);

// SAFETY: the allocator that it is a wrapper of.
unsafe impl GlobalAlloc for Tracked {
    #[inline(always)]
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        // SAFETY: as the caller guarantees.
        unsafe { self.0.alloc(layout) }
    }

    #[inline(always)]
    unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
        // SAFETY: as the caller guarantees.
        unsafe { self.0.dealloc(block, layout) }
    }
}

/// Bytes in use in no group, and in all groups, each on cache lines of its own: two, as the processor fetches
/// them in pairs.
static USED: [Word; 2] = [const { Word(AtomicUsize::new(0)) }; 2];

#[repr(align(128))]
struct Word(AtomicUsize);

/// Counter of the bytes of a group.
#[inline(always)]
fn used(group: &AllocationGroupId) -> &'static AtomicUsize {
    &USED[usize::from(*group != AllocationGroupId::ROOT)].0
}

/// A word for the tenant whose groups all are.
struct OneTenant;

impl AllocationTracker for OneTenant {
    fn allocated(&self, _: usize, _: usize, wrapped_bytes: usize, group: AllocationGroupId) {
        // Relaxed, here and below: a sum, which orders nothing.
        used(&group).fetch_add(wrapped_bytes, Ordering::Relaxed);
    }

    fn deallocated(
        &self,
        _: usize,
        _: usize,
        wrapped_bytes: usize,
        source: AllocationGroupId,
        _: AllocationGroupId,
    ) {
        used(&source).fetch_sub(wrapped_bytes, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Pages;
    use crate::heap::tests::no_two_overlap;

    #[test]
    fn all_hand_out_blocks_and_tracked_threads_are_one_tenant() {
        no_two_overlap(&bare::<64>(), 64, 1000, 8);
        no_two_overlap(&stats_alloc::<64>(), 64, 1000, 8);
        no_two_overlap(&cap::<64>(), 64, 1000, 8);
        let tracked = tracking::<64>();
        in_tracked_group(|| no_two_overlap(&tracked, 64, 1000, 8));
        // Relaxed, here and below: threads that are joined.
        assert_eq!(USED[1].0.load(Ordering::Relaxed), 0);
        let blocks = [0, 1].map(|_| {
            let alloc = || in_tracked_group(|| tracked.alloc().unwrap());
            std::thread::scope(|scope| scope.spawn(alloc).join().unwrap())
        });
        assert_eq!(USED[1].0.load(Ordering::Relaxed), 2 * (64 + 8));
        blocks.into_iter().for_each(|block| tracked.free(block));
        assert_eq!(USED[1].0.load(Ordering::Relaxed), 0);
    }

    #[test]
    fn threads_enter_groups_at_the_same_time() {
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| (0..500_000).for_each(|_| in_tracked_group(|| ())));
            }
        });
    }
}
