//! The allocator of collections, block by block: a model says what each operation charges, how long what it returns is, and what
//! is in it.

use std::alloc::System;
use std::panic::{AssertUnwindSafe, catch_unwind, panic_any};
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use allocator_api2::alloc::{AllocError, Allocator, Layout};
use bursar::Limits;
use bursar::pages::{Order, Zeroed};
use bursar_alloc::GroupAlloc;
use bursar_rig::random::Random;

use crate::{PAGES, group, memory_of, page_bytes, random, small_bytes, usage};

fn layout(size: usize, align: usize) -> Layout {
    Layout::from_size_align(size, align).unwrap()
}

/// A block, as the model has it.
struct Block {
    address: NonNull<u8>,
    layout: Layout,
    /// Bytes of its pages; `None` for one of the inner allocator.
    pages: Option<usize>,
    /// Value that each of its bytes should have.
    fill: u8,
}

/// Number of bytes at either end of a large block are looked at.
const END_BYTES: usize = 8 << 10;

impl Block {
    fn len(&self) -> usize {
        self.pages.unwrap_or(self.layout.size())
    }

    fn charged(&self) -> usize {
        self.pages
            .unwrap_or_else(|| small_bytes(self.layout.size()))
    }

    fn bytes(&self, from: usize, to: usize) -> &[u8] {
        assert!(from <= to && to <= self.len());
        // SAFETY: inside the block, and written before.
        unsafe { std::slice::from_raw_parts(self.address.add(from).as_ptr(), to - from) }
    }

    /// Whether the first `bytes` are as they were written.
    fn check(&self, bytes: usize) {
        let all_are = |from: usize, to: usize| {
            let found = self.bytes(from, to);
            assert!(found.iter().all(|&byte| byte == self.fill), "{from}..{to}");
        };
        all_are(0, bytes.min(END_BYTES));
        all_are(bytes.saturating_sub(END_BYTES), bytes);
    }

    fn write(&mut self, fill: u8) {
        self.fill = fill;
        let len = self.len();
        let end = len.min(END_BYTES);
        // SAFETY: inside the block.
        unsafe {
            self.address.write_bytes(fill, end);
            let last = self.address.add(len - end);
            last.write_bytes(fill, end);
            // These may become the last bytes of a smaller block by a later copy.
            let size = self.layout.size();
            let near = size.saturating_sub(END_BYTES);
            self.address.add(near).write_bytes(fill, size - near);
        }
    }

    fn assert_zero(&self, from: usize) {
        let found = self.bytes(from, self.len());
        assert!(found.iter().all(|&byte| byte == 0), "from {from}");
    }

    fn is_well_placed(&self, returned: NonNull<[u8]>) {
        assert_eq!(returned.len(), self.len(), "{:?}", self.layout);
        assert_eq!(
            self.address.as_ptr().align_offset(self.layout.align()),
            0,
            "{:?}",
            self.layout
        );
    }

    /// Any layout that fits: between what was asked for and what was returned.
    fn fitting(&self, random: &mut Random) -> Layout {
        let spare = self.len() - self.layout.size();
        let more = random.below(spare as u64 + 1) as usize;
        layout(self.layout.size() + more, self.layout.align())
    }
}

fn any_layout(random: &mut Random) -> Layout {
    let align = match random.below(8) {
        0 => 1 << random.below(22),
        _ => 1 << random.below(7),
    };
    // As likely of each power of two, and often just at one.
    let power = 1_usize << random.below(24);
    let size = match random.below(3) {
        0 => power,
        1 => power - 1 + random.below(3) as usize,
        _ => power + random.below(power as u64) as usize,
    };
    layout(size.max(1), align)
}

fn allocate(alloc: &GroupAlloc, random: &mut Random, layout: Layout) -> Block {
    let zeroed = random.happens(2);
    let returned = if zeroed {
        alloc.allocate_zeroed(layout)
    } else {
        alloc.allocate(layout)
    };
    let returned = returned.unwrap();
    let mut block = Block {
        address: returned.cast(),
        layout,
        pages: page_bytes(layout),
        fill: 0,
    };
    block.is_well_placed(returned);
    if zeroed {
        block.assert_zero(0);
    }
    block.write(random.number() as u8 | 1);
    block
}

fn grow(alloc: &GroupAlloc, random: &mut Random, block: &mut Block) {
    let old = block.fitting(random);
    let mut new = any_layout(random);
    new = layout(new.size().max(old.size()), new.align());
    let zeroed = random.happens(2);
    let kept = block.layout.size();
    // SAFETY: the block is ours, and its layout fits.
    let returned = unsafe {
        if zeroed {
            alloc.grow_zeroed(block.address, old, new)
        } else {
            alloc.grow(block.address, old, new)
        }
    };
    let returned = returned.unwrap();
    let is_small = old.size().max(old.align()) < *PAGES.start();
    block.pages = match (block.pages, page_bytes(new)) {
        (Some(bytes), Some(wanted)) => Some(bytes.max(wanted)),
        (Some(_), None) => None,
        (None, wanted) if is_small => wanted,
        (None, _) => None,
    };
    block.address = returned.cast();
    block.layout = new;
    block.is_well_placed(returned);
    block.check(kept);
    if zeroed {
        block.assert_zero(old.size());
    }
}

fn shrink(alloc: &GroupAlloc, random: &mut Random, block: &mut Block) {
    let old = block.fitting(random);
    let mut new = any_layout(random);
    new = layout(new.size().min(old.size()), new.align());
    // SAFETY: the block is ours, and its layout fits.
    let returned = unsafe { alloc.shrink(block.address, old, new) }.unwrap();
    let kept = block.layout.size().min(new.size());
    // One of the inner allocator stays with it; so does, from then on, one whose pages are not aligned so.
    let had = block.pages;
    block.pages = page_bytes(new).filter(|&wanted| had >= Some(wanted));
    block.address = returned.cast();
    block.layout = new;
    block.is_well_placed(returned);
    block.check(kept.min(END_BYTES));
}

fn free(alloc: &GroupAlloc, random: &mut Random, block: Block) {
    block.check(block.layout.size());
    let fitting = block.fitting(random);
    // SAFETY: the block is ours, and its layout fits.
    unsafe { alloc.deallocate(block.address, fitting) };
}

#[test]
fn random_blocks_are_charged_as_documented() {
    let mut random = random();
    let memory = memory_of(1 << 30);
    let group = group(&memory, Limits::none());
    let alloc = GroupAlloc::new(&group);
    let mut blocks: Vec<Block> = Vec::new();
    for _ in 0..8000 {
        let at = random.below(blocks.len().max(1) as u64) as usize;
        match random.below(8) {
            0..3 if blocks.len() < 40 => {
                let layout = any_layout(&mut random);
                blocks.push(allocate(&alloc, &mut random, layout));
            }
            0..5 if !blocks.is_empty() => {
                let block = blocks.swap_remove(at);
                free(&alloc, &mut random, block);
            }
            5 if !blocks.is_empty() => {
                shrink(&alloc, &mut random, &mut blocks[at]);
                blocks[at].write(random.number() as u8 | 1);
            }
            6.. if !blocks.is_empty() => {
                grow(&alloc, &mut random, &mut blocks[at]);
                blocks[at].write(random.number() as u8 | 1);
            }
            _ => {}
        }
        let charged: usize = blocks.iter().map(Block::charged).sum();
        assert_eq!(usage(&group), charged);
    }
    for block in blocks {
        free(&alloc, &mut random, block);
    }
    assert_eq!(usage(&group), 0);
    assert_eq!(usage(&memory.root()), 0);
}

#[test]
fn nothing_takes_nothing() {
    let memory = memory_of(16 << 20);
    let group = group(&memory, Limits::max(0));
    let alloc = GroupAlloc::new(&group);
    let none = layout(0, 64);
    let block = alloc.allocate_zeroed(none).unwrap();
    assert_eq!((block.len(), block.cast::<u8>().addr().get()), (0, 64));
    // SAFETY: it is ours, and it grows, shrinks and goes.
    unsafe {
        assert!(alloc.grow(block.cast(), none, layout(1, 64)).is_err());
        group.set_max(u64::MAX);
        let grown = alloc.grow(block.cast(), none, layout(100, 1)).unwrap();
        assert_eq!(usage(&group), 112);
        let shrunk = alloc.shrink(grown.cast(), layout(100, 1), layout(0, 1 << 20));
        let shrunk = shrunk.unwrap();
        assert_eq!(
            (shrunk.len(), shrunk.cast::<u8>().addr().get()),
            (0, 1 << 20)
        );
        assert_eq!(usage(&group), 0);
        alloc.deallocate(shrunk.cast(), layout(0, 1 << 20));
    }
    assert_eq!(usage(&group), 0);
}

#[test]
fn a_limit_refuses_and_nothing_changes() {
    let memory = memory_of(64 << 20);
    let group = group(&memory, Limits::max(256 << 10));
    let alloc = GroupAlloc::new(&group);
    let small = layout(1000, 8);
    let block = alloc.allocate(small).unwrap();
    let pages = layout(100 << 10, 8);
    let large = alloc.allocate(pages).unwrap();
    assert_eq!(
        (large.len(), usage(&group)),
        (128 << 10, (128 << 10) + 1008)
    );
    for refused in [
        layout(130 << 10, 8),
        layout(128 << 10, 8),
        layout(5 << 20, 8),
        layout(1 << 40, 8),
        layout(1, 1 << 21),
    ] {
        assert_eq!(alloc.allocate(refused), Err(AllocError), "{refused:?}");
        assert_eq!(alloc.allocate_zeroed(refused), Err(AllocError));
        let refused = layout(refused.size().max(128 << 10) + 1, refused.align());
        // SAFETY: both are ours, and stay.
        unsafe {
            assert_eq!(alloc.grow(block.cast(), small, refused), Err(AllocError));
            assert_eq!(
                alloc.grow_zeroed(large.cast(), pages, refused),
                Err(AllocError)
            );
        }
        assert_eq!(usage(&group), (128 << 10) + 1008);
    }
    // SAFETY: both are ours.
    unsafe {
        // A size that fits the pages that are there needs no more pages.
        let grown = alloc
            .grow(large.cast(), pages, layout(128 << 10, 8))
            .unwrap();
        assert_eq!((grown.len(), grown.cast()), (128 << 10, large.cast::<u8>()));
        alloc.deallocate(large.cast(), layout(128 << 10, 8));
        alloc.deallocate(block.cast(), small);
    }
    assert_eq!(usage(&group), 0);
}

/// Shrinking never fails for a limit, in whichever class the block ends.
#[test]
fn shrinking_needs_no_room() {
    let memory = memory_of(64 << 20);
    for wanted in [
        layout(40 << 10, 8),
        layout(3000, 8),
        layout(1, 1),
        // Larger alignments than those of its pages.
        layout(200 << 10, 512 << 10),
        layout(3000, 4 << 20),
        layout(100 << 10, 8 << 20),
    ] {
        let group = group(&memory, Limits::none());
        let alloc = GroupAlloc::new(&group);
        let large = layout(200 << 10, 8);
        let block = alloc.allocate(large).unwrap();
        // SAFETY: it is ours, and becomes smaller.
        let shrunk = unsafe {
            block.cast::<u8>().write_bytes(7, 200 << 10);
            group.set_max(1);
            alloc.shrink(block.cast(), large, wanted).unwrap()
        };
        let address = shrunk.cast::<u8>().as_ptr();
        assert_eq!(address.align_offset(wanted.align()), 0);
        let stays = page_bytes(wanted).is_some_and(|bytes| bytes <= 256 << 10);
        assert_eq!(shrunk.cast() == block.cast::<u8>(), stays);
        let charged = if stays {
            256 << 10
        } else {
            small_bytes(wanted.size())
        };
        assert_eq!(usage(&group), charged);
        // SAFETY: as long as that, and initialized.
        unsafe {
            let bytes = std::slice::from_raw_parts(address, wanted.size());
            assert!(bytes.iter().all(|&byte| byte == 7));
            // Any layout that fits frees it, and it may grow where it is.
            let last = layout(shrunk.len(), wanted.align());
            if stays {
                let grown = alloc.grow(shrunk.cast(), wanted, last).unwrap();
                assert_eq!(grown, block);
            }
            alloc.deallocate(shrunk.cast(), last);
        }
        assert_eq!(usage(&group), 0);
    }
}

#[test]
fn a_removed_group_refuses_and_frees() {
    let memory = memory_of(64 << 20);
    let group = group(&memory, Limits::none());
    let alloc = GroupAlloc::new(&group);
    let layouts = [layout(100, 8), layout(50 << 10, 8), layout(5 << 20, 8)];
    let blocks = layouts.map(|layout| alloc.allocate(layout).unwrap());
    group.remove().unwrap();
    let charged = small_bytes(100) + (64 << 10) + small_bytes(5 << 20);
    assert_eq!(usage(&memory.root()), charged);
    for (layout_of, block) in layouts.into_iter().zip(blocks) {
        assert_eq!(alloc.allocate(layout_of), Err(AllocError));
        // SAFETY: it is ours; it grows as long as that takes nothing, can shrink, and goes.
        unsafe {
            let more = layout(layout_of.size() + 4, 8);
            let grown = alloc.grow(block.cast(), layout_of, more);
            assert_eq!(grown.map(|block| block.len() >= more.size()), Ok(true));
            let block = grown.unwrap();
            let larger = layout(layout_of.size() * 2, 8);
            let grown = alloc.grow(block.cast(), more, larger);
            assert_eq!(grown, Err(AllocError));
            let smaller = layout(layout_of.size() / 10, 8);
            let shrunk = alloc.shrink(block.cast(), more, smaller).unwrap();
            alloc.deallocate(shrunk.cast(), smaller);
        }
    }
    assert_eq!(usage(&memory.root()), 0);
    // Another has its name, and pays for none of this.
    let other = memory.root().child("group", Limits::none()).unwrap();
    assert_eq!(
        (alloc.allocate(layout(1, 1)), usage(&other)),
        (Err(AllocError), 0)
    );
}

/// Without pages, the inner allocator stands in, and the books say which of both it was.
#[test]
fn without_pages_the_inner_allocator_stands_in() {
    let memory = memory_of(16 << 20);
    let group = group(&memory, Limits::none());
    let alloc = GroupAlloc::new(&group);
    let mut taken = Vec::new();
    for order in (0..=Order::MAX.get()).rev() {
        while let Ok(page) = memory.alloc_pages(Order::new(order), Zeroed::No) {
            taken.push(page);
        }
    }
    for (size, align) in [(50 << 10, 8), (4 << 20, 8), (100, 2 << 20)] {
        let old = layout(size, align);
        let mut block = alloc.allocate_zeroed(old).unwrap();
        assert_eq!((block.len(), usage(&group)), (size, small_bytes(size)));
        // It stays when there are pages again, grows, and shrinks.
        let had = taken.pop();
        let new = layout(size + 1000, align);
        // SAFETY: it is ours.
        unsafe {
            block = alloc.grow(block.cast(), old, new).unwrap();
            assert_eq!(usage(&group), small_bytes(size + 1000));
            assert_eq!(block.cast::<u8>().as_ptr().align_offset(align), 0);
            block = alloc.shrink(block.cast(), new, old).unwrap();
            assert_eq!(usage(&group), small_bytes(size));
            alloc.deallocate(block.cast(), old);
        }
        assert_eq!(usage(&group), 0);
        taken.extend(had);
    }
}

#[test]
fn a_block_of_pages_cannot_be_freed_twice() {
    let memory = memory_of(16 << 20);
    let group = group(&memory, Limits::none());
    let alloc = GroupAlloc::new(&group);
    let pages = layout(64 << 10, 8);
    let block = alloc.allocate(pages).unwrap();
    // SAFETY: the first time it is ours; the second is what the test is about, and touches nothing.
    let again = unsafe {
        alloc.deallocate(block.cast(), pages);
        catch_unwind(AssertUnwindSafe(|| alloc.deallocate(block.cast(), pages)))
    };
    let said = again.unwrap_err();
    let said = said.downcast_ref::<String>().unwrap();
    assert!(said.contains("double free"), "{said}");
    assert_eq!(usage(&group), 0);
}

/// An inner allocator that fails or panics when told to.
#[derive(Clone)]
struct Moody(Arc<AtomicBool>, Mood);

#[derive(Clone, Copy)]
enum Mood {
    Fails,
    Panics,
}

impl Moody {
    fn check(&self) -> Result<(), AllocError> {
        // Relaxed: one thread.
        match (self.0.load(Ordering::Relaxed), self.1) {
            (false, _) => Ok(()),
            (true, Mood::Fails) => Err(AllocError),
            (true, Mood::Panics) => panic!("moody"),
        }
    }
}

// SAFETY: the system's, or nothing. Growing and shrinking allocate.
unsafe impl Allocator for Moody {
    fn allocate(&self, layout: Layout) -> Result<NonNull<[u8]>, AllocError> {
        self.check()?;
        System.allocate(layout)
    }

    unsafe fn deallocate(&self, block: NonNull<u8>, layout: Layout) {
        // SAFETY: the caller's contract.
        unsafe { System.deallocate(block, layout) };
    }
}

#[test]
fn failures_and_panics_inside_leave_the_books_right() {
    for mood in [Mood::Fails, Mood::Panics] {
        let memory = memory_of(64 << 20);
        let group = group(&memory, Limits::none());
        let moody = Moody(Arc::default(), mood);
        // SAFETY: its blocks are the system's.
        let alloc = unsafe { GroupAlloc::new_in(&group, moody.clone()) };
        let small = layout(100, 8);
        let pages = layout(100 << 10, 8);
        let block = alloc.allocate(small).unwrap();
        let large = alloc.allocate(pages).unwrap();
        let before = usage(&group);
        // Relaxed: one thread.
        moody.0.store(true, Ordering::Relaxed);
        let fails = |what: &dyn Fn() -> Result<NonNull<[u8]>, AllocError>| {
            let outcome = catch_unwind(AssertUnwindSafe(what));
            assert!(!matches!(outcome, Ok(Ok(_))));
            assert_eq!(usage(&group), before);
        };
        fails(&|| alloc.allocate(small));
        fails(&|| alloc.allocate_zeroed(layout(8 << 20, 8)));
        // SAFETY: all of them fail, so the blocks stay ours.
        unsafe {
            fails(&|| alloc.grow(block.cast(), small, layout(200, 8)));
            fails(&|| alloc.shrink(block.cast(), small, layout(10, 8)));
            fails(&|| alloc.shrink(large.cast(), pages, small));
            fails(&|| alloc.grow(large.cast(), pages, layout(5 << 20, 8)));
            alloc.deallocate(block.cast(), small);
            alloc.deallocate(large.cast(), pages);
        }
        assert_eq!(usage(&group), 0);
    }
}

/// A payload of a panic that panics with another when it is dropped; the last one does not.
struct Bomb(u32);

impl Drop for Bomb {
    fn drop(&mut self) {
        if self.0 > 0 {
            panic_any(Self(self.0 - 1));
        }
    }
}

/// A callback that is told of free memory may panic, with any payload. The block is gone then, or moved, and its owner is
/// told that and nothing else.
#[test]
fn a_panic_of_who_is_told_does_not_reach_who_frees() {
    let memory = memory_of(64 << 20);
    let small = layout(100, 8);
    // Of pages, and of the inner allocator.
    for (size, max) in [(4 << 20, 4 << 20), (5 << 20, 6 << 20)] {
        let large = layout(size, 8);
        let group = group(&memory, Limits::max(max));
        let alloc = GroupAlloc::new(&group);
        let is_armed = Arc::new(AtomicBool::new(false));
        let armed = is_armed.clone();
        let _registration = group.on_pressure(move |_| {
            // Relaxed, here and below: one thread.
            if armed.swap(false, Ordering::Relaxed) {
                panic_any(Bomb(2));
            }
        });
        let block = alloc.allocate(large).unwrap();
        is_armed.store(true, Ordering::Relaxed);
        // SAFETY: it is ours, and goes.
        unsafe { alloc.deallocate(block.cast(), large) };
        assert!(!is_armed.load(Ordering::Relaxed), "somebody was told");
        assert_eq!(usage(&group), 0);

        let block = alloc.allocate(large).unwrap();
        is_armed.store(true, Ordering::Relaxed);
        // SAFETY: it is ours, and becomes smaller, and goes.
        unsafe {
            let shrunk = alloc.shrink(block.cast(), large, small).unwrap();
            assert!(!is_armed.load(Ordering::Relaxed), "somebody was told");
            assert_eq!(usage(&group), 112);
            alloc.deallocate(shrunk.cast(), small);
        }
        assert_eq!(usage(&group), 0);
    }
}
