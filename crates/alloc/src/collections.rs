//! Collections on a group: an allocator for `allocator-api2`, which is what `hashbrown` and others take today.
//!
//! # Where a block lies
//! By the larger of its size and its alignment, as it was asked for:
//!
//! | bytes | from | charged |
//! |---|---|---|
//! | below 32 KiB | the inner allocator | the size and 8 bytes, rounded up to 16, at least 32: what glibc's `malloc` takes |
//! | up to 4 MiB | pages of the group | the next power of two: what the pages are |
//! | beyond | the inner allocator | as the small ones |
//!
//! Pages are cached per CPU, and known to be zero or not. If there are none left, the inner allocator stands in. So layouts
//! alone do not tell where a block of the middle class lies: its address does. All layouts between what was asked for and what
//! was returned are of one class, hence what is freed goes back where it came from.
//!
//! # What is rejected
//! A word before each block that names its group, as the global allocator has it: a collection knows its allocator, and the
//! allocator its group. Splitting pages in place when a block shrinks: their record is one for each block.

use std::alloc::System;
use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::ptr::NonNull;
use std::sync::Arc;

use allocator_api2::alloc::{AllocError, Allocator, Layout};
use bursar::pages::{Order, Zeroed};
use bursar::{AllocPagesError, Charge, Group, Memory};

use crate::raw::{FromRawError, from_raw, into_raw};

/// From here on a block is of pages: order 3, where the kernel draws its line too (`PAGE_ALLOC_COSTLY_ORDER`). What is smaller
/// is used up sooner than a page's record and a power of two are worth.
const PAGES_FROM_BYTES: usize = 32 << 10;

/// Who gives blocks of this size and alignment out.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Class {
    /// The inner allocator.
    Small,
    /// Pages of that order, or the inner allocator if there are none.
    Pages(Order),
    /// The inner allocator: no order is so large.
    Huge,
}

impl Class {
    fn of(layout: Layout) -> Self {
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
enum Place {
    Inner,
    Pages(Order),
}

/// Bytes that a block of the inner allocator is charged with. A function of the size alone, which is the same when it is
/// freed.
fn taken_bytes(layout: Layout) -> usize {
    // The size of a layout is at most `isize::MAX`.
    (layout.size() + 8).next_multiple_of(16).max(32)
}

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
/// Allocating may wait and call reclaimers, as [`Group::try_charge`]; freeing may call who waits for memory or watches pressure.
/// If a reclaimer panics, allocating unwinds, and nothing has changed; freeing never unwinds.
///
/// `A` is [`System`] unless you say otherwise, and not the global allocator: where that charges groups itself, it would charge the same bytes
/// once more, to the current group.
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

    fn charge(&self, bytes: usize) -> Result<Charge, AllocError> {
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

    /// Who gave a block out.
    fn place(&self, block: NonNull<u8>, layout: Layout) -> Place {
        if !matches!(Class::of(layout), Class::Pages(_)) {
            return Place::Inner;
        }
        let memory = &self.books.memory;
        let Some((pfn, _)) = memory.frames().find_map(|frames| frames.page_at(block)) else {
            return Place::Inner;
        };
        // Nobody frees it meanwhile: it is the caller's.
        let (_, order) = memory.raw_block(pfn).expect("a block of ours");
        Place::Pages(order)
    }

    /// Moves what a block holds to `fresh`, and frees it.
    ///
    /// # Safety
    /// 1. `block` was given out by this allocator for `layout`, as [`Allocator::deallocate`] wants it;
    /// 2. `fresh` is another block with room for `bytes`, and so is `block`.
    unsafe fn relocate(
        &self,
        block: NonNull<u8>,
        layout: Layout,
        fresh: NonNull<[u8]>,
        bytes: usize,
    ) {
        // SAFETY: by (2) both have that many bytes, and do not overlap.
        unsafe { fresh.cast::<u8>().copy_from_nonoverlapping(block, bytes) };
        // SAFETY: by (1), and the caller forgets the address.
        unsafe { self.deallocate(block, layout) };
    }

    /// # Safety
    /// That of [`Allocator::grow`].
    unsafe fn grow_as(
        &self,
        block: NonNull<u8>,
        old: Layout,
        new: Layout,
        zeroed: Zeroed,
    ) -> Result<NonNull<[u8]>, AllocError> {
        debug_assert!(new.size() >= old.size(), "growing is to no less");
        if old.size() == 0 {
            return self.allocate_as(new, zeroed);
        }
        let class = Class::of(new);
        match (self.place(block, old), class) {
            (Place::Pages(order), Class::Pages(wanted)) if wanted <= order => {
                if zeroed == Zeroed::Yes {
                    let rest = order.bytes() - old.size();
                    // SAFETY: the block has as many bytes as its pages, and is the caller's.
                    unsafe { block.add(old.size()).write_bytes(0, rest) };
                }
                Ok(NonNull::slice_from_raw_parts(block, order.bytes()))
            }
            // What has grown to the size of pages moves there; what had to do without them does not try again.
            (Place::Inner, class)
                if !(Class::of(old) == Class::Small && matches!(class, Class::Pages(_))) =>
            {
                // SAFETY: the caller's, and the place says that it is the inner allocator's.
                unsafe { self.grow_inner(block, old, new, zeroed) }
            }
            _ => {
                let fresh = self.allocate_as(new, zeroed)?;
                // SAFETY: the caller's block, and a new one that is no smaller.
                unsafe { self.relocate(block, old, fresh, old.size()) };
                Ok(fresh)
            }
        }
    }

    /// # Safety
    /// That of [`Allocator::grow`], for a block of the inner allocator.
    unsafe fn grow_inner(
        &self,
        block: NonNull<u8>,
        old: Layout,
        new: Layout,
        zeroed: Zeroed,
    ) -> Result<NonNull<[u8]>, AllocError> {
        let more = taken_bytes(new) - taken_bytes(old);
        // A charge of nothing would be refused by a group that was removed.
        let charge = if more > 0 {
            Some(self.charge(more)?)
        } else {
            None
        };
        let grown = match zeroed {
            // SAFETY: the caller's contract is the same.
            Zeroed::No => unsafe { self.inner.grow(block, old, new) },
            // SAFETY: the caller's contract is the same.
            Zeroed::Yes => unsafe { self.inner.grow_zeroed(block, old, new) },
        }?;
        charge.map(Charge::forget);
        Ok(exactly(grown, new))
    }

    /// # Safety
    /// That of [`Allocator::shrink`], for a block of pages of that order.
    unsafe fn shrink_pages(
        &self,
        block: NonNull<u8>,
        old: Layout,
        new: Layout,
        order: Order,
    ) -> Result<NonNull<[u8]>, AllocError> {
        let fresh = match Class::of(new) {
            Class::Pages(wanted) if wanted == order => {
                return Ok(NonNull::slice_from_raw_parts(block, order.bytes()));
            }
            // Without room for both, it stays. Its address says that it is of pages, and their record how many.
            Class::Pages(wanted) if wanted < order => {
                match self.allocate_pages(wanted, Zeroed::No) {
                    Ok(fresh) => fresh,
                    Err(_) => return Ok(NonNull::slice_from_raw_parts(block, order.bytes())),
                }
            }
            // It cannot stay, as its layout will say that it is small; and who shrinks is not to fail for a limit. For the
            // time of copying the group may overstep by this much, and then it has freed more.
            Class::Small => {
                let charge = self.books.group.charge(taken_bytes(new));
                self.allocate_inner(new, Zeroed::No, charge)?
            }
            // It shrinks and wants a larger alignment.
            _ => self.allocate_as(new, Zeroed::No)?,
        };
        // SAFETY: the caller's block, and a new one with room for what is left of it.
        unsafe { self.relocate(block, old, fresh, new.size()) };
        Ok(fresh)
    }
}

/// Nothing, well aligned.
fn nothing(layout: Layout) -> NonNull<[u8]> {
    let address = std::ptr::without_provenance_mut(layout.align());
    let address = NonNull::new(address).expect("an alignment is not zero");
    NonNull::slice_from_raw_parts(address, 0)
}

/// A block of the inner allocator, no longer than was asked for: the charge is by that length.
fn exactly(block: NonNull<[u8]>, layout: Layout) -> NonNull<[u8]> {
    NonNull::slice_from_raw_parts(block.cast(), layout.size())
}

/// Calls what may call others, after a block is gone: whoever freed or moved it must not be told by unwinding that it is still
/// there. What the panic had to say, its hook has said.
fn without_unwinding(tell: impl FnOnce()) {
    drop(catch_unwind(AssertUnwindSafe(tell)));
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
        debug_assert!(new.size() <= old.size(), "shrinking is to no more");
        if new.size() == 0 {
            // SAFETY: the caller's contract.
            unsafe { self.deallocate(block, old) };
            return Ok(nothing(new));
        }
        match self.place(block, old) {
            // SAFETY: the caller's contract, and its place.
            Place::Pages(order) => unsafe { self.shrink_pages(block, old, new, order) },
            Place::Inner => {
                // SAFETY: the caller's contract, and its place.
                let shrunk = unsafe { self.inner.shrink(block, old, new) }?;
                let less = taken_bytes(old) - taken_bytes(new);
                without_unwinding(|| self.books.group.uncharge(less));
                Ok(exactly(shrunk, new))
            }
        }
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
