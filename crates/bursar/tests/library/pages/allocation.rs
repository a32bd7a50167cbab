//! Promises of pages to their users, on the host.

use crate::common::Short;
use crate::common::model_pages::options;
use std::time::Duration;

use bursar::pages::{Order, PageOptions, Watermarks, Zeroed, ZoneReport};
use bursar::{AllocPagesError, ChargeError, Memory, Page, PageRequest};
use bursar_machine::host::resident;

const ZERO: Order = Order::ZERO;

fn memory(options: PageOptions) -> Memory {
    Memory::builder().pages(options).build().unwrap()
}

/// Empties all lists, so that the buddy has everything that nobody holds.
fn free_pages(memory: &Memory) -> u64 {
    let too_much = || {
        let root = memory.root();
        root.alloc_many(Order::MAX, 1 << 20, Zeroed::No)
    };
    assert!(matches!(too_much(), Err(AllocPagesError::Exhausted { .. })));
    let _ = too_much();
    let info = memory.zone_info().unwrap();
    let zones = info.zones.iter();
    zones.map(|zone| zone.free + zone.listed + zone.depot).sum()
}

#[test]
fn pages_are_charged_written_and_returned() {
    let group = memory(options(64 << 20)).make("a");
    let mut page = group.alloc_pages(Order::new(2), Zeroed::Yes).unwrap();
    assert_eq!((page.len(), page.order().get()), (16 << 10, 2));
    assert!(page.bytes().iter().all(|&byte| byte == 0));
    assert_eq!(page.bytes().as_ptr().align_offset(16 << 10), 0);
    page.bytes_mut()[5] = 7;
    assert_eq!(page.bytes()[5], 7);
    assert_eq!(group.used(), 16 << 10);
    assert_eq!(page.group().unwrap(), group);
    std::thread::spawn(move || drop(page)).join().unwrap();
    assert_eq!(group.used(), 0);
}

#[test]
fn what_is_not_written_is_not_read() {
    let mut page = memory(options(16 << 20))
        .alloc_pages(ZERO, Zeroed::No)
        .unwrap();
    let read = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| page.bytes().len()));
    assert!(read.is_err());
    page.copy_from(b"abc");
    assert_eq!(&page.bytes()[..4], b"abc\0");
    assert_eq!(page.uninit_mut().len(), page.len());
    page.uninit_mut()[0].write(1);
    page.init_with(|bytes| bytes.write_copy_of_slice(&[3; 4096]));
    assert_eq!(page.bytes()[4095], 3);
}

#[test]
fn another_group_never_sees_them() {
    let memory = memory(options(16 << 20));
    let (one, other) = (memory.make("one"), memory.make("other"));
    let mut page = one.alloc_pages(ZERO, Zeroed::Yes).unwrap();
    page.bytes_mut().fill(0xaa);
    let pfn = page.pfn();
    drop(page);
    let held: Vec<Page> = std::iter::repeat_with(|| other.alloc_pages(ZERO, Zeroed::No).unwrap())
        .take(2_000)
        .collect();
    let same = held.iter().find(|page| page.pfn() == pfn);
    assert!(same.expect("one of them is the same page").is_known_zero());
}

#[test]
fn a_group_that_wants_it_leaves_nothing_behind() {
    let memory = memory(options(16 << 20));
    let group = memory.make("secret");
    group.set_zero_on_free(Zeroed::Yes);
    // Nor does its copy in a forked child.
    let (_fresh, copies) = memory.reset_after_fork().unwrap();
    for group in [&group, &copies[0]] {
        let mut page = group.alloc_pages(ZERO, Zeroed::Yes).unwrap();
        page.bytes_mut().fill(0xaa);
        let pfn = page.pfn();
        drop(page);
        let page = group.alloc_pages(ZERO, Zeroed::No).unwrap();
        assert_eq!(
            (page.pfn(), page.is_known_zero()),
            (pfn, true),
            "its own, and zero"
        );
    }
    // The process itself asks for nothing of the kind.
    drop(memory.alloc_pages(ZERO, Zeroed::No).unwrap());
}

#[test]
fn a_limit_refuses_and_nothing_is_lost() {
    let memory = memory(options(64 << 20));
    let group = memory.make_max("small", 1 << 20);
    let pages = group.alloc_many(ZERO, 256, Zeroed::No).unwrap();
    let error = group.alloc_pages(ZERO, Zeroed::No).unwrap_err();
    let AllocPagesError::Refused(ChargeError::LimitReached(reached)) = &error else {
        panic!("{error}");
    };
    assert_eq!(reached.limited, "/small");
    assert!(group.alloc_many(ZERO, 300, Zeroed::No).is_err());
    drop(pages);
    assert_eq!(group.used(), 0);
    assert_eq!(free_pages(&memory), (64 << 20) / 4096);
}

#[test]
fn many_pages_are_counted_in_advance() {
    let group = memory(options(16 << 20)).make("a");
    let many = |order, count| group.alloc_many(order, count, Zeroed::No);
    let error = many(Order::MAX, usize::MAX).unwrap_err();
    assert!(matches!(error, AllocPagesError::TooMany { .. }), "{error}");
    assert!(many(ZERO, 0).unwrap().is_empty());
    assert_eq!(group.used(), 0);
}

#[test]
fn a_list_too_large_for_the_address_space_is_refused() {
    let group = memory(options(16 << 20)).make("a");
    let error = group.alloc_many(ZERO, 1 << 44, Zeroed::No).unwrap_err();
    assert!(matches!(error, AllocPagesError::TooMany { .. }), "{error}");
    let text = error.to_string();
    assert!(text.contains("no memory for a list"), "{text}");
    assert_eq!((group.used(), group.peak()), (0, 0));
}

fn retained(memory: &Memory) -> u64 {
    let info = memory.zone_info().unwrap();
    info.zones.iter().map(ZoneReport::retained_bytes).sum()
}

#[test]
fn what_nobody_uses_goes_back_to_the_system() {
    let memory = memory(PageOptions {
        decay_period: Duration::ZERO,
        ..options(256 << 20)
    });
    let group = memory.make("a");
    let mut pages = group.alloc_many(ZERO, 20_000, Zeroed::No).unwrap();
    pages.iter_mut().for_each(|page| page.copy_from(&[1; 4096]));
    let before = resident().unwrap().anonymous_bytes;
    Page::free_many(pages);
    assert!(retained(&memory) >= 20_000 << 12);
    for _ in 0..100 {
        memory.tick();
    }
    let cpus = memory.machine().report().cpus as u64;
    assert!(retained(&memory) <= cpus << 20, "{}", retained(&memory));
    let counts = memory.zone_info().unwrap().counts();
    assert!(counts.pgreturn >= 20_000 - 256 * cpus, "{counts}");
    // Half: other tests of this process take memory meanwhile.
    let after = resident().unwrap().anonymous_bytes;
    assert!(after + (20_000 << 11) < before, "{before} {after}");
    // And it is there again, as zeroes.
    let page = group.alloc_pages(Order::new(3), Zeroed::Yes).unwrap();
    assert!(page.bytes().iter().all(|&byte| byte == 0));
}

#[test]
fn a_reserve_is_left_for_emergencies() {
    let group = memory(PageOptions {
        watermarks: Some(Watermarks {
            min: 64,
            low: 96,
            high: 128,
        }),
        ..options(4 << 20)
    })
    .make("a");
    let held: Vec<Page> = std::iter::from_fn(|| group.alloc_pages(ZERO, Zeroed::No).ok()).collect();
    assert_eq!(held.len(), 1024 - 64);
    let request = PageRequest::new(ZERO);
    let error = request.alloc(&group).unwrap_err();
    assert!(
        error.to_string().contains("64 pages free, 64 of them kept"),
        "{error}"
    );
    let first = request.urgent().alloc(&group).unwrap();
    assert!(
        request.alloc(&group).is_err(),
        "the reserve is not put on lists"
    );
    let urgent: Vec<Page> = std::iter::from_fn(|| request.urgent().alloc(&group).ok()).collect();
    assert_eq!(urgent.len(), 63);
    drop(first);
    drop(held);
    assert_eq!(group.used(), 63 << 12);
}

#[test]
fn reports_add_up() {
    let memory = memory(options(16 << 20));
    assert!(
        memory.zone_info().is_none(),
        "nothing is reserved before it is wanted"
    );
    let group = memory.make("a");
    let held = group.alloc_many(Order::new(1), 100, Zeroed::No).unwrap();
    drop(group.alloc_pages(Order::MAX, Zeroed::No).unwrap());
    let info = memory.zone_info().unwrap();
    let zone = &info.zones[0];
    assert_eq!(zone.in_use(), 200);
    assert_eq!(info.counts().pgalloc, 200 + 1024);
    assert_eq!(info.counts().pgfree, 1024);
    let text = info.to_string();
    for line in [
        "Node 0, zone   Normal",
        "        managed  4096",
        "      nr_in_use      200",
        "  pagesets",
    ] {
        assert!(text.contains(line), "{line:?} is not in {text}");
    }
    drop(held);
    assert_eq!(memory.zone_info().unwrap().counts().pgfree, 200 + 1024);
}

#[test]
fn a_refused_allocation_of_many_keeps_no_group() {
    let memory = memory(options(4 << 20));
    let group = memory.make("x");
    let all = memory.alloc_pages(Order::MAX, Zeroed::No).unwrap();
    assert!(group.alloc_many(ZERO, 1, Zeroed::No).is_err());
    drop((group, all));
    drop(memory.make("x"));
}

#[test]
fn what_was_taken_from_whoever_panics_is_freed() {
    let memory = memory(options(16 << 20));
    let group = memory.make("a");
    let pages = group.alloc_many(ZERO, 1_000, Zeroed::No).unwrap();
    let mut left = 900;
    let freed = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
        Page::free_many(pages.into_iter().inspect(|_| {
            left -= 1;
            assert!(left > 0, "as planned");
        }));
    }));
    assert!(freed.is_err());
    assert_eq!(group.used(), 0);
    assert_eq!(memory.zone_info().unwrap().zones[0].in_use(), 0);
}

#[test]
fn nothing_is_known_of_a_page_that_was_raw() {
    let memory = memory(options(4 << 20));
    let (writes, reads) = (memory.make("a"), memory.make("b"));
    writes.set_zero_on_free(Zeroed::Yes);
    let page = writes.alloc_pages(ZERO, Zeroed::Yes).unwrap();
    assert!(page.is_known_zero(), "or this shows nothing");
    let (pfn, frames) = (page.pfn(), *page.frames());
    let block = page.into_block();
    // SAFETY: the block is ours, and nothing else refers to its bytes.
    unsafe { frames.address(&block).as_ptr().write_bytes(7, 4_096) };
    let page = memory.claim(pfn).unwrap().page(&memory, block);
    assert!(!page.is_known_zero());
    drop(page);
    let each = std::iter::from_fn(|| reads.alloc_pages(ZERO, Zeroed::Yes).ok());
    let all: Vec<Page> = each.collect();
    let again = all.iter().find(|page| page.pfn() == pfn).unwrap();
    assert!(again.bytes().iter().all(|&byte| byte == 0));
}

/// Some of the pages are there, and those return what they were charged.
#[test]
fn a_request_for_too_many_pages_leaves_other_charges_alone() {
    let memory = memory(options(4 << 20));
    let group = memory.make("group");
    let held = group.try_charge(1 << 20).unwrap();
    let too_many = group.alloc_many(ZERO, 1025, Zeroed::No).unwrap_err();
    assert!(matches!(too_many, AllocPagesError::Exhausted { .. }));
    assert_eq!(group.used(), 1 << 20);
    assert_eq!(group.events().over_returned_bytes, 0);
    drop(held);
    assert_eq!(group.used(), 0);
}

#[test]
fn free_pages_are_those_of_the_zones() {
    let memory = memory(options(4 << 20));
    let held: Vec<Page> = memory.root().alloc_many(ZERO, 100, Zeroed::No).unwrap();
    drop(held);
    let free = || {
        let info = memory.zone_info().unwrap();
        info.zones.iter().map(|zone| zone.free).sum::<u64>()
    };
    assert_eq!(memory.free_pages(), free());
    let listed = 1024 - free();
    assert!(listed > 1);
    let drained = memory.drain_pages();
    assert!((2..=listed).contains(&drained), "{drained} of {listed}");
    assert_eq!((memory.free_pages(), memory.drain_pages()), (1024, 0));
}

/// A page that was claimed is given out again, as a part of a bigger block.
#[test]
fn a_page_inside_a_raw_block_cannot_be_claimed() {
    let memory = memory(options(4 << 20));
    let one = |order| memory.alloc_pages(order, Zeroed::No).ok();
    let mut all: Vec<Page> = std::iter::from_fn(|| one(ZERO)).collect();
    all.sort_by_key(Page::pfn);
    let page = all.pop().expect("the last of its pair");
    let inside = page.pfn();
    let block = page.into_block();
    assert_eq!(memory.raw_block(inside), Some((inside, ZERO)));
    drop(memory.claim(inside).unwrap().page(&memory, block));
    assert_eq!(memory.raw_block(inside), None);
    let freed = memory.claim(inside).unwrap_err();
    assert!(freed.to_string().ends_with("was freed already"), "{freed}");
    drop(all);
    memory.drain_pages();
    let pair = Order::new(1);
    let pairs: Vec<Page> = std::iter::from_fn(|| one(pair)).collect();
    let last = pairs.into_iter().max_by_key(Page::pfn).unwrap();
    let first = last.pfn();
    let block = last.into_block();
    assert_eq!(memory.raw_block(inside), Some((first, pair)));
    let never = memory.claim(inside).unwrap_err();
    assert!(never.to_string().contains("was never given out"), "{never}");
    drop(memory.claim(first).unwrap().page(&memory, block));
}
