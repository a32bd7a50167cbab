//! Blocks that grow and shrink: in place where possible, else by a move of the bytes to a new block.

use std::ptr::NonNull;

use allocator_api2::alloc::{AllocError, Allocator, Layout};
use bursar::Charge;
use bursar::pages::{Order, Zeroed};

use super::place::{Class, Place, exactly, nothing, taken_bytes};
use super::{GroupAlloc, without_unwinding};

impl<A: Allocator> GroupAlloc<A> {
    /// Moves the contents of a block to `fresh`, and frees the block.
    ///
    /// # Safety
    /// 1. `block` was given out by this allocator for `layout`, as [`Allocator::deallocate`] requires;
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
    /// The same as of [`Allocator::grow`].
    pub(super) unsafe fn grow_as(
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
        match (Place::of(&self.books.memory, block, old), class) {
            (Place::Pages(order), Class::Pages(wanted)) if wanted <= order => {
                if zeroed == Zeroed::Yes {
                    let rest = order.bytes() - old.size();
                    // SAFETY: the block has as many bytes as its pages, and is the caller's.
                    unsafe { block.add(old.size()).write_bytes(0, rest) };
                }
                Ok(NonNull::slice_from_raw_parts(block, order.bytes()))
            }
            // A block that has grown to the size of pages moves there; a block that had to do without them does not try
            // again.
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
    /// The same as of [`Allocator::grow`], for a block of the inner allocator.
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
    /// The same as of [`Allocator::shrink`].
    pub(super) unsafe fn shrink_as(
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
        match Place::of(&self.books.memory, block, old) {
            // SAFETY: the caller's contract, and its place.
            Place::Pages(order) => unsafe { self.shrink_pages(block, old, new, order) },
            Place::Inner => {
                // SAFETY: the caller's contract, and its place.
                let shrunk = unsafe { self.inner.shrink(block, old, new) }?;
                let less = taken_bytes(old) - taken_bytes(new);
                without_unwinding(|| self.books.group.engine().uncharge(less));
                Ok(exactly(shrunk, new))
            }
        }
    }

    /// # Safety
    /// The same as of [`Allocator::shrink`], for a block of pages of that order.
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
            // It cannot stay: its layout will say that it is small or huge, or it wants a larger alignment than its
            // pages have. Shrinking must not fail for a limit, so the inner allocator has it, where pages may be
            // refused. For the time of copying the group may overstep by this much; then it has freed as much, but for
            // 16 bytes.
            _ => {
                let charge = self.books.group.charge(taken_bytes(new));
                self.allocate_inner(new, Zeroed::No, charge)?
            }
        };
        // SAFETY: the caller's block, and a new one with room for what is left of it.
        unsafe { self.relocate(block, old, fresh, new.size()) };
        Ok(fresh)
    }
}
