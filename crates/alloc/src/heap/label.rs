//! Labels: eight bytes behind each block.
//!
//! The label is behind the block, not before it: the address stays the inner allocator's. So any alignment costs no
//! more than without a label, growing in place stays in place, and small blocks often have the room anyway. The upper
//! 48 bits are the address of a [`Record`]; no supported system gives a program higher addresses unless it asks for
//! them. The lower 16 bits are the bytes that the block takes beyond the requested size.
//!
//! # Labels are volatile
//! The compiler knows the program's global allocator: it may take each store to a block for dead that no code reads before the
//! block is freed, and each byte of a new block for uninitialized. Both are true of the user's bytes, and false of the label,
//! which `alloc` writes and `dealloc` reads. Where one of the two functions is inlined into the program and the other is not, the
//! compiler sees only half of the label's life. With plain accesses it then drops the store, or reads an undefined
//! value: release builds hung or crashed. So labels are written and read by volatile accesses alone. The language
//! promises that these are neither removed, nor invented, nor reordered among themselves, whatever is inlined. They are the same
//! instructions as plain ones. (`#[inline(never)]` would only hide the fault: it is a hint.)

use std::alloc::Layout;
use std::ptr;

use super::record::{ADDRESS_BITS, Record};

/// Bytes of a label.
pub(super) const BYTES: usize = size_of::<u64>();

/// Bits for the excess.
const EXCESS_BITS: u32 = u64::BITS - ADDRESS_BITS;
/// Marks an excess that the label cannot hold; the allocator is asked again.
const EXCESS_UNKNOWN: u64 = (1 << EXCESS_BITS) - 1;

/// Payer for a block, and the bytes beyond its size.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Label(u64);

/// A label in memory: a block's size, and so the label's address, may be any number. Volatile accesses must be aligned, and this
/// type is, everywhere.
#[repr(C, packed)]
struct Unaligned(u64);

/// Bytes that a block takes beyond its size.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Excess {
    Bytes(usize),
    /// The allocator gives the same answer as when the block was charged.
    AskAgain,
}

/// Returns the layout of a block with its label; `None` if there is no such layout.
#[inline(always)]
pub(super) fn with_label(layout: Layout) -> Option<Layout> {
    let bytes = layout.size().checked_add(BYTES)?;
    Layout::from_size_align(bytes, layout.align()).ok()
}

impl Label {
    /// Label of a block that is charged to no group.
    pub(super) const NOBODY: Self = Self(0);

    #[inline(always)]
    pub(super) fn new(record: &'static Record, excess: usize) -> Self {
        let address = ptr::from_ref(record).expose_provenance() as u64;
        Self(address << EXCESS_BITS | (excess as u64).min(EXCESS_UNKNOWN))
    }

    /// Returns the payer and the excess; `None` if the block is charged to no group.
    #[inline(always)]
    pub(super) fn charged(self) -> Option<(&'static Record, Excess)> {
        if self == Self::NOBODY {
            return None;
        }
        let record: *const Record = ptr::with_exposed_provenance((self.0 >> EXCESS_BITS) as usize);
        let excess = match self.0 & EXCESS_UNKNOWN {
            EXCESS_UNKNOWN => Excess::AskAgain,
            excess => Excess::Bytes(excess as usize),
        };
        // SAFETY: made in `new` of a record, which is never freed.
        Some((unsafe { &*record }, excess))
    }

    /// Reads the label of a block.
    ///
    /// # Safety
    /// The block at `block` has `bytes` bytes and a label behind them.
    #[inline(always)]
    pub(super) unsafe fn of(block: *const u8, bytes: usize) -> Self {
        // SAFETY: the caller says so; `Unaligned` is aligned anywhere. Volatile: see above.
        Self(unsafe { block.add(bytes).cast::<Unaligned>().read_volatile() }.0)
    }

    /// Writes the label of a block.
    ///
    /// # Safety
    /// The block at `block` has `bytes` bytes and room for a label behind them, and the caller owns it.
    #[inline(always)]
    pub(super) unsafe fn put(self, block: *mut u8, bytes: usize) {
        // SAFETY: the caller says so; `Unaligned` is aligned anywhere. Volatile: see above.
        unsafe {
            block
                .add(bytes)
                .cast::<Unaligned>()
                .write_volatile(Unaligned(self.0))
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use bursar::{Limits, Memory};

    use super::*;

    #[test]
    fn a_label_tells_what_it_was_told() {
        assert!(Label::NOBODY.charged().is_none());
        let memory = Memory::host().unwrap();
        let group = memory.root().child("group", Limits::none()).unwrap();
        let record = Record::of(&group);
        for (excess, expected) in [
            (0, Excess::Bytes(0)),
            (24, Excess::Bytes(24)),
            (65534, Excess::Bytes(65534)),
            (65535, Excess::AskAgain),
            (1 << 20, Excess::AskAgain),
        ] {
            let (found, said) = Label::new(record, excess).charged().unwrap();
            assert!(ptr::eq(found, record));
            assert_eq!(said, expected, "{excess}");
        }
    }

    #[test]
    fn there_are_sizes_too_large_for_a_label() {
        let huge = Layout::from_size_align(isize::MAX as usize - 7, 1).unwrap();
        assert_eq!(with_label(huge), None);
        let fits = Layout::from_size_align(isize::MAX as usize - 8, 1).unwrap();
        assert!(with_label(fits).is_some());
    }

    #[test]
    fn threads_that_make_a_record_at_once_have_one() {
        let memory = Memory::host().unwrap();
        let child = |n: u32| memory.root().child(n.to_string(), Limits::none()).unwrap();
        let groups: Vec<_> = (0..2000).map(child).collect();
        let arrived = AtomicUsize::new(0);
        // Both begin each group at the same moment, because a record takes a fraction of a microsecond.
        let make = || {
            let records = (1..).zip(&groups).map(|(turn, group)| {
                arrived.fetch_add(1, Ordering::Relaxed);
                let mut looks = 0;
                while arrived.load(Ordering::Relaxed) < 2 * turn {
                    looks += 1;
                    match looks % 1000 {
                        0 => std::thread::yield_now(),
                        _ => std::hint::spin_loop(),
                    }
                }
                ptr::from_ref(Record::of(group)).addr()
            });
            records.collect::<Vec<_>>()
        };
        let [one, other] = std::thread::scope(|scope| {
            [(); 2]
                .map(|()| scope.spawn(make))
                .map(|it| it.join().unwrap())
        });
        assert!(one == other, "a group has two records");
    }

    #[test]
    fn one_record_for_each_place() {
        let memory = Memory::host().unwrap();
        let (one, other) = (memory.root(), Memory::host().unwrap().root());
        let child = memory.root().child("child", Limits::none()).unwrap();
        let records = [&one, &other, &child].map(|group| ptr::from_ref(Record::of(group)));
        assert!(records[0] != records[1] && records[0] != records[2]);
        assert_eq!(
            records,
            [&one, &other, &child].map(|group| ptr::from_ref(Record::of(group)))
        );
    }
}
