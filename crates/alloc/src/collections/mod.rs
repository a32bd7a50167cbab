//! Collections on a group: an allocator for `allocator-api2`, which `hashbrown` and others use today.
//!
//! | file | concept |
//! |---|---|
//! | `place.rs` | the origin of a block, and the bytes it is charged with |
//! | `mod.rs` | the allocator: allocating and freeing |
//! | `resize.rs` | blocks that grow and shrink |
//!
//! # Rejected designs
//! A word before each block that names its group, as the global allocator has: a collection knows its allocator, and
//! the allocator its group. Splitting pages in place when a block shrinks: each block has one record of its pages.

mod place;
mod resize;

use std::alloc::System;
use std::fmt;
use std::ptr::NonNull;
use std::sync::Arc;

use allocator_api2::alloc::{AllocError, Allocator, Layout};
use bursar::pages::{Order, Zeroed};
use bursar::{AllocPagesError, Charge, Group, Memory};
use bursar_machine::caught;

use crate::raw::{FromRawError, from_raw, into_raw};
use place::{Class, exactly, nothing, taken_bytes};

/// An allocator whose blocks are charged to a group, for collections that take an [`Allocator`] of `allocator-api2`.
///
/// A limit that refuses is an [`AllocError`]: `try_reserve` fails and the process lives. (`push` and similar calls
/// abort the process, as with any allocator.) A removed group refuses all allocations, and accepts frees. Any thread
/// may free a block; its bytes return to the group that was charged. Clones are the same allocator, and cost one
/// contended atomic operation; a reference is an allocator too.
///
/// Blocks below 32 KiB come from the inner allocator `A`. Their charge is what glibc's `malloc` takes: the size and 8
/// bytes, rounded up to 16, at least 32. Blocks from 32 KiB to 4 MiB are pages of the group, and are charged as pages.
/// So the returned length is the whole power of two, and blocks grow within it without moving.
///
/// Allocating and growing may wait and call reclaimers, as [`Group::try_charge`] does. Freeing may call wakers and
/// subscribers of pressure. Shrinking may do both; it fails if the inner allocator does, never for a limit. If a
/// reclaimer panics, the call that allocates, grows or shrinks unwinds, and nothing has changed. Freeing does not
/// unwind, even if a waker or a subscriber panics. Freeing a block of pages twice is detected, and panics.
///
/// `A` is [`System`] unless you choose another, and not the global allocator. A global allocator that charges groups
/// would charge the same bytes again, to the current group.
///
/// ```
/// use allocator_api2::vec::Vec;       // hashbrown's maps take it too
/// use bursar::{Freshness, Limits, Memory};
/// use bursar_alloc::GroupAlloc;
///
/// let memory = Memory::host()?;
/// let query = memory.root().child("query-7", Limits::max(1 << 20))?;
/// let mut rows = Vec::new_in(GroupAlloc::new(&query));
/// rows.extend_from_slice(&[1_u64, 2, 3, 4]);
/// assert_eq!(query.read(Freshness::Exact)?.usage().value, 48);
/// assert!(rows.try_reserve(1 << 20).is_err(), "8 MiB are too much");
/// drop(rows);
/// assert_eq!(query.read(Freshness::Exact)?.usage().value, 0);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct GroupAlloc<A: Allocator = System> {
    /// Shared, so that a collection carries one word.
    books: Arc<Books>,
    inner: A,
}

struct Books {
    group: Group,
    memory: Memory,
}

impl GroupAlloc {
    /// Makes an allocator that charges `group`, and keeps the group's record.
    pub fn new(group: &Group) -> Self {
        // SAFETY: the system's allocator knows nothing of our pages.
        unsafe { Self::new_in(group, System) }
    }
}

impl<A: Allocator> GroupAlloc<A> {
    /// Makes an allocator that charges `group`, with small and huge blocks from `inner`.
    ///
    /// # Safety
    /// `inner` must give out no pages of the group's memory, also not through another allocator: an address in such a
    /// page marks a block as this allocator's own.
    pub unsafe fn new_in(group: &Group, inner: A) -> Self {
        let books = Arc::new(Books {
            group: group.clone(),
            memory: group.memory(),
        });
        Self { books, inner }
    }

    /// Returns the group that is charged.
    pub fn group(&self) -> &Group {
        &self.books.group
    }

    fn allocate_as(&self, layout: Layout, zeroed: Zeroed) -> Result<NonNull<[u8]>, AllocError> {
        if layout.size() == 0 {
            return Ok(nothing(layout));
        }
        if let Class::Pages(order) = Class::of(layout) {
            match self.allocate_pages(order, zeroed) {
                Err(AllocPagesError::Refused(_)) => return Err(AllocError),
                // There are no pages.
                Err(_) => {}
                Ok(block) => return Ok(block),
            }
        }
        let charge = self.charge(taken_bytes(layout))?;
        self.allocate_inner(layout, zeroed, charge)
    }

    fn charge(&self, bytes: u64) -> Result<Charge, AllocError> {
        self.books.group.try_charge(bytes).map_err(|_| AllocError)
    }

    fn allocate_pages(
        &self,
        order: Order,
        zeroed: Zeroed,
    ) -> Result<NonNull<[u8]>, AllocPagesError> {
        let page = self.books.group.alloc_pages(order, zeroed)?;
        Ok(NonNull::slice_from_raw_parts(into_raw(page), order.bytes()))
    }

    /// Allocates a block that is paid for already.
    fn allocate_inner(
        &self,
        layout: Layout,
        zeroed: Zeroed,
        charge: Charge,
    ) -> Result<NonNull<[u8]>, AllocError> {
        let block = match zeroed {
            Zeroed::No => self.inner.allocate(layout),
            Zeroed::Yes => self.inner.allocate_zeroed(layout),
        }?;
        // From now on the block's layout stands for it.
        charge.forget();
        Ok(exactly(block, layout))
    }
}

/// Runs callbacks after a block is gone. A panic must not tell the caller, by unwinding, that the block it freed or
/// moved still exists.
fn without_unwinding(tell: impl FnOnce()) {
    caught(tell);
}

// SAFETY:
// 1. blocks stay until they are freed: those of the inner allocator, since ours lives as long as its clones; pages, since
//    `from_raw` alone has them back;
// 2. all clones have the same group and memory, and an inner allocator that is the same as ours by its own contract;
// 3. a block is as long as its slice says. Of the inner allocator no more than was asked for; of pages all of them. Any
//    layout between what was asked for and that is of the same class, so that `place` and `deallocate` find its origin.
unsafe impl<A: Allocator> Allocator for GroupAlloc<A> {
    fn allocate(&self, layout: Layout) -> Result<NonNull<[u8]>, AllocError> {
        self.allocate_as(layout, Zeroed::No)
    }

    fn allocate_zeroed(&self, layout: Layout) -> Result<NonNull<[u8]>, AllocError> {
        self.allocate_as(layout, Zeroed::Yes)
    }

    unsafe fn deallocate(&self, block: NonNull<u8>, layout: Layout) {
        if layout.size() == 0 {
            return;
        }
        if let Class::Pages(_) = Class::of(layout) {
            // SAFETY: if it is of pages, it is from `into_raw`, and the caller gives it up.
            match unsafe { from_raw(&self.books.memory, block) } {
                Ok(page) => return without_unwinding(|| drop(page)),
                Err(FromRawError::Foreign { .. }) => {}
                Err(error) => panic!("{error}"),
            }
        }
        // SAFETY: the caller's contract, and no page of ours, so it is the inner allocator's.
        unsafe { self.inner.deallocate(block, layout) };
        without_unwinding(|| self.books.group.engine().uncharge(taken_bytes(layout)));
    }

    unsafe fn grow(
        &self,
        block: NonNull<u8>,
        old: Layout,
        new: Layout,
    ) -> Result<NonNull<[u8]>, AllocError> {
        // SAFETY: the caller's contract.
        unsafe { self.grow_as(block, old, new, Zeroed::No) }
    }

    unsafe fn grow_zeroed(
        &self,
        block: NonNull<u8>,
        old: Layout,
        new: Layout,
    ) -> Result<NonNull<[u8]>, AllocError> {
        // SAFETY: the caller's contract.
        unsafe { self.grow_as(block, old, new, Zeroed::Yes) }
    }

    /// Fails only if the inner allocator does, never for a limit.
    unsafe fn shrink(
        &self,
        block: NonNull<u8>,
        old: Layout,
        new: Layout,
    ) -> Result<NonNull<[u8]>, AllocError> {
        // SAFETY: the caller's contract.
        unsafe { self.shrink_as(block, old, new) }
    }
}

impl<A: Allocator + Clone> Clone for GroupAlloc<A> {
    fn clone(&self) -> Self {
        Self {
            books: self.books.clone(),
            inner: self.inner.clone(),
        }
    }
}

impl<A: Allocator> fmt::Debug for GroupAlloc<A> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("GroupAlloc")
            .field(&self.books.group.path())
            .finish()
    }
}
