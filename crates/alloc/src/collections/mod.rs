//! Collections on a group: an allocator for `allocator-api2`, which is what `hashbrown` and others take today.
//!
//! | file | concept |
//! |---|---|
//! | `place.rs` | where a block lies, and what it is charged with |
//! | `mod.rs` | the allocator: blocks that come and go |
//! | `resize.rs` | blocks that grow and shrink |
//!
//! # What is rejected
//! A word before each block that names its group, as the global allocator has it: a collection knows its allocator, and the
//! allocator its group. Splitting pages in place when a block shrinks: their record is one for each block.

mod place;
mod resize;

use std::alloc::System;
use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::ptr::NonNull;
use std::sync::Arc;

use allocator_api2::alloc::{AllocError, Allocator, Layout};
use bursar::pages::{Order, Zeroed};
use bursar::{AllocPagesError, Charge, Group, Memory};

use crate::raw::{FromRawError, from_raw, into_raw};
use place::{Class, exactly, nothing, taken_bytes};

/// An allocator whose blocks are charged to a group, for collections that take an [`Allocator`] of `allocator-api2`.
///
/// A limit that refuses is an [`AllocError`]: `try_reserve` fails and the process lives (`push` and the like abort it, as they
/// do with any allocator). A removed group refuses all, and takes back what is freed. Blocks may be freed by any thread; each
/// goes back to the group that was charged. Clones are the same allocator, and cost one contended atomic operation; a
/// reference is an allocator too.
///
/// Blocks below 32 KiB are of the inner allocator `A`, and charged with what glibc's `malloc` takes for them: the size and 8
/// bytes, rounded up to 16, at least 32. Blocks from 32 KiB to 4 MiB are pages of the group, and charged as those are. So the
/// length that is returned is the whole power of two, and blocks grow within it without moving.
///
/// Allocating and growing may wait and call reclaimers, as [`Group::try_charge`]; freeing may call who waits for memory or watches
/// pressure; shrinking may do both, and fails if the inner allocator does, never for a limit. If a reclaimer panics, who
/// allocates, grows or shrinks unwinds, and nothing has changed. Freeing does not unwind, whatever those do who are told. A
/// block of pages that is freed twice is noticed, and that is a panic.
///
/// `A` is [`System`] unless you say otherwise, and not the global allocator: where that charges groups itself, it would charge
/// the same bytes once more, to the current group.
///
/// ```
/// use allocator_api2::vec::Vec;
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
    /// An allocator that charges `group`, and keeps its record.
    pub fn new(group: &Group) -> Self {
        // SAFETY: the system's allocator knows nothing of our pages.
        unsafe { Self::new_in(group, System) }
    }
}

impl<A: Allocator> GroupAlloc<A> {
    /// An allocator that charges `group`, with small and huge blocks from `inner`.
    ///
    /// # Safety
    /// `inner` gives out no pages of the group's memory, also not by way of another allocator: an address in such a page says
    /// that it is this allocator's own.
    pub unsafe fn new_in(group: &Group, inner: A) -> Self {
        let books = Arc::new(Books {
            group: group.clone(),
            memory: group.memory(),
        });
        Self { books, inner }
    }

    /// The group that is charged.
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

    /// A block that is paid for.
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

/// Calls what may call others, after a block is gone: whoever freed or moved it must not be told by unwinding that it is still
/// there. What the panic had to say, its hook has said. What it threw is dropped, and stays for ever if that panics in turn.
fn without_unwinding(tell: impl FnOnce()) {
    if let Err(thrown) = catch_unwind(AssertUnwindSafe(tell))
        && let Err(thrown) = catch_unwind(AssertUnwindSafe(|| drop(thrown)))
    {
        std::mem::forget(thrown);
    }
}

// SAFETY:
// 1. blocks stay until they are freed: those of the inner allocator, since ours lives as long as its clones; pages, since
//    `from_raw` alone has them back;
// 2. all clones have the same group and memory, and an inner allocator that is the same as ours by its own contract;
// 3. a block is as long as its slice says. Of the inner allocator no more than was asked for; of pages all of them. Any layout
//    between what was asked for and that is of the same class, so that `place` and `deallocate` find who gave it out.
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
        without_unwinding(|| self.books.group.uncharge(taken_bytes(layout)));
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

    /// Fails for the inner allocator only, and never for a limit.
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
