//! Single cases, and random operations against a map of pages.

use bursar_machine::pages::{Frames as _, MAX_ORDER, Owner, ReserveOptions};
use bursar_machine::{Host, Machine};
use bursar_rig::random::Random;

use super::*;

type HostFrames = <Host as Machine>::Frames;

const ZERO: Order = Order::ZERO;

/// Makes a zone of `spans` blocks of the largest order.
fn zone(spans: u64) -> (HostFrames, Buddy) {
    let host = Host::start().expect("the host has a backend");
    let options = ReserveOptions::pages(spans * u64::from(SPAN_PAGES));
    let (frames, span) = host.reserve(&options).expect("address space");
    let buddy = Buddy::new(span, frames.first());
    (frames, buddy)
}

fn order(order: u8) -> Order {
    Order::new(order)
}

/// Number of free blocks of each order.
fn free_blocks(buddy: &Buddy) -> [u64; MAX_ORDER as usize + 1] {
    core::array::from_fn(|at| buddy.free_blocks(order(at as u8)))
}

/// Number of frames that an operation touched.
fn touched<R>(buddy: &mut Buddy, operation: impl FnOnce(&mut Buddy) -> R) -> (R, u64) {
    let before = buddy.frames.touched.get();
    let result = operation(buddy);
    (result, buddy.frames.touched.get() - before)
}

#[test]
fn the_smallest_block_that_suffices_is_cut() {
    let (_, mut buddy) = zone(2);
    let page = buddy.alloc(ZERO).unwrap();
    let four = buddy.alloc(order(2)).unwrap();
    assert_eq!(four.pfn().0, page.pfn().0 + 4);
    let two = buddy.alloc(order(1)).unwrap();
    assert_eq!(two.pfn().0, page.pfn().0 + 2);
    // The free pages are now 1, and 8 and later.
    let again = buddy.alloc(order(1)).unwrap();
    assert_eq!(again.pfn().0, page.pfn().0 + 8);
    for block in [four, again, page, two] {
        buddy.free(block);
    }
    assert_eq!(buddy.free_blocks(Order::MAX), 2);
}

#[test]
fn pages_never_used_come_last_and_whole_ones_touch_no_frames() {
    let (frames, mut buddy) = zone(3);
    let first = frames.first().0;
    let (whole, count) = touched(&mut buddy, |buddy| buddy.alloc(Order::MAX).unwrap());
    assert_eq!((whole.pfn().0, count), (first, 0));
    assert!(buddy.frames.tables[0].is_some(), "for its free");
    assert!(buddy.frames.tables[1].is_none());
    assert!(!buddy.is_free(whole.pfn()) && buddy.is_free(Pfn(first + SPAN_PAGES)));
    buddy.free(whole);
    let page = buddy.alloc(ZERO).unwrap();
    assert_eq!(page.pfn().0, first, "not one that was never used");
    let whole = buddy.alloc(Order::MAX).unwrap();
    assert_eq!(whole.pfn().0, first + SPAN_PAGES);
    let last = buddy.alloc(Order::MAX).unwrap();
    assert_eq!(buddy.alloc(Order::MAX), None);
    assert_eq!(buddy.free_pages(), 1_023);
    for block in [last, whole, page] {
        buddy.free(block);
    }
    assert_eq!(buddy.free_blocks(Order::MAX), 3);
}

#[test]
fn what_was_freed_last_is_taken_first() {
    let (_, mut buddy) = zone(1);
    // Every other pair, so that none can be joined.
    let blocks: Vec<_> = (0..16).map(|_| buddy.alloc(order(1)).unwrap()).collect();
    let mut kept = Vec::new();
    let mut freed = Vec::new();
    for (nth, block) in blocks.into_iter().enumerate() {
        if nth % 4 == 0 {
            freed.push(block.pfn());
            buddy.free(block);
        } else {
            kept.push(block);
        }
    }
    while let Some(last) = freed.pop() {
        assert_eq!(buddy.alloc(order(1)).unwrap().pfn(), last);
    }
}

#[test]
fn what_may_soon_be_part_of_more_is_taken_last() {
    // Pages 2 and 3 are one block. Page 0 would make it a block of four if page 1 came, and the other way round.
    for half in [0, 1] {
        let (_, mut buddy) = zone(1);
        let pages: Vec<_> = (0..16).map(|_| buddy.alloc(ZERO).unwrap()).collect();
        let mut pages: Vec<_> = pages.into_iter().map(Some).collect();
        let mut free = |nth: usize| {
            let page = pages[nth].take().unwrap();
            let pfn = page.pfn();
            buddy.free(page);
            pfn
        };
        let alone = free(8);
        free(2);
        free(3);
        free(half);
        assert_eq!(buddy.alloc(ZERO).unwrap().pfn(), alone);
    }
}

#[test]
fn memory_that_is_there_is_used_first() {
    let (frames, mut buddy) = zone(2);
    let mut pages: Vec<_> = (0..8).map(|_| buddy.alloc(order(3)).unwrap()).collect();
    let mut block = pages.remove(4);
    let backed = block.pfn();
    let _ = frames.uninit(&mut block);
    assert_eq!(block.content(), Content::Unknown);
    assert_eq!(buddy.backed_pages(), 0);
    buddy.free(block);
    assert_eq!(buddy.backed_pages(), 8);
    buddy.free(pages.remove(2));
    buddy.free(pages.remove(0));
    assert_eq!(buddy.free_blocks(order(3)), 3);
    assert_eq!(buddy.alloc(order(3)).unwrap().pfn(), backed);
    assert_eq!(buddy.backed_pages(), 0);
}

#[test]
fn zeroes_that_were_written_are_memory_too() {
    let (frames, mut buddy) = zone(1);
    let mut block = buddy.alloc(order(3)).unwrap();
    let _ = frames.uninit(&mut block);
    frames.zero(&mut block);
    assert_eq!(block.content(), Content::Zero);
    buddy.free(block);
    assert_eq!(
        buddy.backed_pages(),
        1_024,
        "all of what it was joined with"
    );
}

#[test]
fn a_large_block_with_memory_is_not_cut_for_one_without() {
    let (frames, mut buddy) = zone(2);
    let mut whole = buddy.alloc(Order::MAX).unwrap();
    let page = buddy.alloc(ZERO).unwrap();
    let _ = frames.uninit(&mut whole);
    buddy.free(whole);
    assert_eq!(buddy.alloc(ZERO).unwrap().pfn().0, page.pfn().0 + 1);
    assert_eq!(buddy.backed_pages(), 1_024);
}

#[test]
fn what_was_free_longest_is_given_back_first() {
    let (frames, mut buddy) = zone(3);
    let mut blocks: Vec<_> = (0..3).map(|_| buddy.alloc(Order::MAX).unwrap()).collect();
    let pfns: Vec<_> = blocks.iter().map(Block::pfn).collect();
    for block in &mut blocks {
        let _ = frames.uninit(block);
    }
    for block in blocks {
        buddy.free(block);
    }
    for pfn in pfns {
        let block = buddy.take_backed(Order::MAX, Order::MAX).unwrap();
        assert_eq!(block.pfn(), pfn);
    }
    assert_eq!(buddy.take_backed(ZERO, Order::MAX), None);
}

#[test]
fn the_largest_blocks_with_memory_are_given_back_first() {
    let (frames, mut buddy) = zone(4);
    let mut blocks: Vec<_> = (0..4).map(|_| buddy.alloc(Order::MAX).unwrap()).collect();
    for nth in [0, 2] {
        let _ = frames.uninit(&mut blocks[nth]);
    }
    let (first, third) = (blocks[0].pfn(), blocks[2].pfn());
    for block in blocks {
        buddy.free(block);
    }
    assert_eq!(buddy.backed_pages(), 2_048);
    // Cuts the block that was freed last of those with memory.
    let small = buddy.alloc(order(4)).unwrap();
    assert_eq!(small.pfn(), third);
    let mut whole = buddy.take_backed(order(6), Order::MAX).unwrap();
    assert_eq!((whole.pfn(), whole.order()), (first, Order::MAX));
    assert!(!buddy.is_free(first));
    assert!(frames.discard(&mut whole));
    buddy.free(whole);
    let half = buddy.take_backed(order(6), Order::MAX).unwrap();
    assert_eq!(half.order(), order(9));
    let quarter = buddy.take_backed(order(6), order(8)).unwrap();
    assert_eq!(quarter.order(), order(8));
    buddy.free(quarter);
    assert_eq!(
        buddy.take_backed(order(3), order(2)),
        None,
        "no such orders"
    );
    buddy.free(half);
    assert_eq!(buddy.backed_pages(), 1_024 - 16);
    let mut given_back = 0;
    while let Some(mut block) = buddy.take_backed(order(6), Order::MAX) {
        given_back += u64::from(block.order().pages());
        assert!(frames.discard(&mut block));
        buddy.free(block);
    }
    assert_eq!(given_back, 512 + 256 + 128 + 64);
    assert_eq!(buddy.backed_pages(), 32 + 16);
    buddy.free(small);
    assert_eq!(buddy.free_pages(), buddy.managed_pages());
}

#[test]
fn what_is_known_of_pages_survives_cuts_and_joins() {
    let (frames, mut buddy) = zone(1);
    let mut whole = buddy.alloc(Order::MAX).unwrap();
    let _ = frames.uninit(&mut whole);
    whole.set_owner(Owner::new(7));
    buddy.free(whole);
    let pages: Vec<_> = (0..SPAN_PAGES)
        .map(|_| buddy.alloc(ZERO).unwrap())
        .collect();
    for page in &pages {
        assert_eq!(
            (page.owner(), page.content()),
            (Owner::new(7), Content::Unknown)
        );
    }
    for page in pages {
        buddy.free(page);
    }
    let whole = buddy.alloc(Order::MAX).unwrap();
    assert_eq!(
        (whole.owner(), whole.content()),
        (Owner::new(7), Content::Unknown)
    );
    buddy.free(whole);
    let mut page = buddy.alloc(ZERO).unwrap();
    page.set_owner(Owner::new(8));
    buddy.free(page);
    let whole = buddy.alloc(Order::MAX).unwrap();
    assert_eq!(whole.owner(), Owner::NOBODY);
    buddy.free(whole);
}

#[test]
fn random_operations_agree_with_a_map_of_pages() {
    for seed in 0..4 {
        agrees_with_a_map(seed, 25_000);
    }
}

/// A page of the map.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Page {
    Free,
    Used(Owner, Content),
}

fn agrees_with_a_map(seed: u64, operations: u32) {
    const SPANS: u64 = 5;
    let (frames, mut buddy) = zone(SPANS);
    let first = frames.first().0;
    let pages = buddy.managed_pages() as usize;
    let mut map = vec![Page::Free; pages];
    let mut free_pages = pages as u64;
    let mut random = Random::new(seed);
    let mut held: Vec<Block> = Vec::new();
    let mut most = 0;
    let span = |block: &Block| {
        let at = (block.pfn().0 - first) as usize;
        at..at + block.order().pages() as usize
    };
    for operation in 0..operations {
        // Alternates between filling and emptying.
        let is_filling = operation / 2_500 % 2 == 0;
        let (is_alloc, count);
        if random.below(10) < if is_filling { 7 } else { 3 } {
            // Small blocks more often.
            let largest = 1 + random.below(u64::from(MAX_ORDER) + 1);
            let wanted = order(random.below(largest) as u8);
            let (block, touches) = touched(&mut buddy, |buddy| buddy.alloc(wanted));
            (is_alloc, count) = (true, touches);
            match block {
                None => {
                    let size = wanted.pages() as usize;
                    let is_free = |block: &[Page]| block.iter().all(|page| *page == Page::Free);
                    assert!(
                        !map.chunks(size).any(is_free),
                        "seed {seed}: refused {wanted:?}"
                    );
                }
                Some(mut block) => {
                    assert_eq!(block.order(), wanted);
                    if random.happens(2) {
                        let _ = frames.uninit(&mut block);
                    }
                    block.set_owner(Owner::new(random.below(3) as u32));
                    let taken = Page::Used(block.owner(), block.content());
                    for page in &mut map[span(&block)] {
                        assert_eq!(*page, Page::Free, "seed {seed}: taken twice");
                        *page = taken;
                    }
                    free_pages -= u64::from(wanted.pages());
                    held.push(block);
                }
            }
        } else {
            let Some(last) = held.len().checked_sub(1) else {
                continue;
            };
            let nth = random.below(last as u64 + 1) as usize;
            held.swap(nth, last);
            let block = held.pop().unwrap();
            map[span(&block)].fill(Page::Free);
            free_pages += u64::from(block.order().pages());
            let ((), touches) = touched(&mut buddy, |buddy| buddy.free(block));
            (is_alloc, count) = (false, touches);
        }
        // For each order a look, and a few frames unlinked or linked.
        most = most.max(count);
        assert!(count <= 64, "{count} frames, alloc: {is_alloc}");
        assert_eq!(buddy.free_pages(), free_pages);
        let at = random.below(pages as u64) as usize;
        let pfn = Pfn(first + at as u32);
        assert_eq!(buddy.is_free(pfn), map[at] == Page::Free, "{pfn}");
        if random.happens(1_000) {
            check_lists(&buddy, &map);
        }
    }
    assert!(most > 20, "an operation that joins or cuts all orders");
    check_lists(&buddy, &map);
    for block in held {
        let Page::Used(owner, content) = map[span(&block)][0] else {
            panic!("held and free")
        };
        assert_eq!((block.owner(), block.content()), (owner, content));
        buddy.free(block);
    }
    assert_eq!(buddy.free_blocks(Order::MAX), SPANS, "all is joined");
    assert_eq!(buddy.free_pages(), buddy.managed_pages());
}

/// Checks that the free blocks are those of the map of pages, each as large as possible.
fn check_lists(buddy: &Buddy, map: &[Page]) {
    let mut expected = [0_u64; MAX_ORDER as usize + 1];
    let mut at = 0;
    while at < map.len() {
        let fits = |&order: &u8| {
            let size = 1 << order;
            at.is_multiple_of(size) && map[at..at + size].iter().all(|page| *page == Page::Free)
        };
        match (0..=MAX_ORDER).rev().find(fits) {
            None => at += 1,
            Some(order) => {
                expected[usize::from(order)] += 1;
                at += 1 << order;
            }
        }
    }
    assert_eq!(free_blocks(buddy), expected);
}

#[test]
fn a_tebibyte_costs_four_mebibytes_before_it_is_used() {
    let granules = (1_u64 << 40) / (Order::MAX.bytes() as u64);
    assert_eq!(
        granules * size_of_val(&zone(1).1.frames.tables[0]) as u64,
        4 << 20
    );
}

#[test]
#[should_panic(expected = "is not of")]
fn a_block_of_another_zone_is_refused() {
    let ((_, mut one), (_, mut other)) = (zone(1), zone(1));
    let block = one.alloc(ZERO).unwrap();
    other.free(block);
}

#[test]
#[should_panic(expected = "is free already")]
fn a_block_that_is_free_is_refused() {
    let (_, mut buddy) = zone(1);
    let block = buddy.alloc(order(3)).unwrap();
    let index = buddy.frames.index_in_zone(block.pfn());
    // As if a token had been forged for its last page, and freed.
    buddy.frames.mark_free(index + 7, ZERO);
    buddy.free(block);
}

#[test]
#[should_panic(expected = "is free already")]
fn a_block_that_was_never_handed_out_is_refused() {
    let (_, mut other) = zone(1);
    let block = other.alloc(ZERO).unwrap();
    let host = Host::start().expect("the host has a backend");
    let options = ReserveOptions::pages(u64::from(SPAN_PAGES));
    let (_, span) = host.reserve(&options).expect("address space");
    Buddy::new(span, block.pfn()).free(block);
}

#[test]
fn pages_of_other_zones_are_not_free_here() {
    let (frames, buddy) = zone(1);
    let first = frames.first().0;
    assert!(buddy.is_free(Pfn(first)) && buddy.is_free(Pfn(first + SPAN_PAGES - 1)));
    assert!(!buddy.is_free(Pfn(first + SPAN_PAGES)));
    assert!(first == 0 || !buddy.is_free(Pfn(first - 1)));
}
