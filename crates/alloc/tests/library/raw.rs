//! Pages as raw memory: nothing is lost, and what must not be freed is not.

use std::num::NonZero;
use std::ptr::NonNull;
use std::sync::Barrier;

use bursar::pages::{Order, Zeroed};
use bursar::{AllocPagesError, Group, Limits, Memory, Page};
use bursar_alloc::{FromRawError, from_raw, into_raw};

use crate::{memory_of, usage};

fn memory() -> Memory {
    memory_of(16 << 20)
}

fn group(memory: &Memory) -> Group {
    crate::group(memory, Limits::none())
}

/// Frees an address that must not be freed.
fn refused(memory: &Memory, address: NonNull<u8>) -> FromRawError {
    // SAFETY: it is none that may be freed, which is what the test is about.
    unsafe { from_raw(memory, address) }.unwrap_err()
}

fn had_back(memory: &Memory, address: NonNull<u8>) -> Page {
    // SAFETY: tests give what `into_raw` returned, once, and use it no more.
    unsafe { from_raw(memory, address) }.unwrap()
}

/// All pages can be had, each once: nothing was lost, and nothing is there twice.
fn assert_whole(memory: &Memory) {
    let mut addresses = Vec::new();
    loop {
        match memory.alloc_pages(Order::ZERO, Zeroed::No) {
            Ok(page) => addresses.push(into_raw(page)),
            Err(AllocPagesError::Exhausted { .. }) => break,
            Err(error) => panic!("{error}"),
        }
    }
    let count = addresses.len();
    addresses.sort_unstable();
    addresses.dedup();
    assert_eq!(addresses.len(), count);
    let info = memory.zone_info().unwrap();
    let kept: u64 = info.zones.iter().map(|zone| zone.watermarks.min).sum();
    let all: u64 = info.zones.iter().map(|zone| zone.managed).sum();
    assert_eq!(count as u64, all - kept);
    for address in addresses {
        drop(had_back(memory, address));
    }
}

#[test]
fn there_and_back() {
    let memory = memory();
    let group = group(&memory);
    let mut page = group.alloc_pages(Order::new(2), Zeroed::Yes).unwrap();
    page.bytes_mut()[4096] = 7;
    let pfn = page.pfn();
    let address = into_raw(page);
    assert_eq!(address.as_ptr().align_offset(16 << 10), 0);
    // SAFETY: 16 KiB that are ours.
    unsafe {
        assert_eq!(*address.add(4096).as_ptr(), 7);
        address.write_bytes(3, 16 << 10);
    }
    let mut page = had_back(&memory, address);
    assert_eq!((page.pfn(), page.len()), (pfn, 16 << 10));
    assert_eq!(page.group().unwrap(), group);
    let read = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| page.bytes().len()));
    assert!(read.is_err(), "nobody knows what was written");
    page.zero();
    assert!(page.bytes().iter().all(|&byte| byte == 0));
    drop(page);
    assert_eq!(usage(&group), 0);
    assert_whole(&memory);
}

#[test]
fn it_stays_charged_and_its_group_stays() {
    let memory = memory();
    let group = group(&memory);
    let address = into_raw(group.alloc_pages(Order::new(4), Zeroed::No).unwrap());
    assert_eq!(usage(&group), 64 << 10);
    drop(group);
    // Its record is that of nobody else, for the bytes keep it.
    let other = memory.root().child("group", Limits::none());
    let page = had_back(&memory, address);
    let paid_by = page.group().unwrap();
    assert!(other.is_err() || other.unwrap() != paid_by);
    drop(page);
    assert_eq!(usage(&memory.root()), 0);
}

#[test]
fn what_nobody_pays_for_goes_there_and_back() {
    let memory = memory();
    let address = into_raw(memory.alloc_pages(Order::MAX, Zeroed::No).unwrap());
    let page = had_back(&memory, address);
    assert!(page.group().is_none());
    assert_eq!(page.order(), Order::MAX);
}

#[test]
fn twice() {
    let memory = memory();
    let address = into_raw(memory.alloc_pages(Order::ZERO, Zeroed::No).unwrap());
    let page = had_back(&memory, address);
    let number = address.addr().get();
    let error = refused(&memory, address);
    assert_eq!(error, FromRawError::AlreadyFreed { address: number });
    assert_eq!(
        error.to_string(),
        format!("{number:#x} was freed already: a double free")
    );
    drop(page);
    assert_eq!(refused(&memory, address), error);
    assert_whole(&memory);
}

#[test]
fn twice_at_the_same_time() {
    let memory = memory();
    let group = group(&memory);
    for _ in 0..200 {
        let page = group.alloc_pages(Order::ZERO, Zeroed::No).unwrap();
        let address = into_raw(page).expose_provenance();
        let start = Barrier::new(2);
        let free = || {
            start.wait();
            let address = NonNull::with_exposed_provenance(address);
            // SAFETY: one of both owns it, and we know of both which.
            let freed = unsafe { from_raw(&memory, address) };
            freed.map_err(|error| error.to_string())
        };
        let (one, other) = std::thread::scope(|scope| {
            let (one, other) = (scope.spawn(free), scope.spawn(free));
            (one.join().unwrap(), other.join().unwrap())
        });
        assert_ne!(one.is_ok(), other.is_ok());
    }
    assert_eq!(usage(&group), 0);
    assert_whole(&memory);
}

#[test]
fn what_is_not_ours() {
    let (memory, other) = (memory(), memory());
    let mut on_stack = 0_u8;
    let mut on_heap = Box::new([0_u8; 8192]);
    let foreign = NonNull::from(&mut on_stack);
    // Before the first page there is nothing that could be ours.
    let no_page = FromRawError::Foreign {
        address: foreign.addr().get(),
    };
    assert_eq!(refused(&memory, foreign), no_page);
    let page = into_raw(memory.alloc_pages(Order::ZERO, Zeroed::No).unwrap());
    let others = into_raw(other.alloc_pages(Order::ZERO, Zeroed::No).unwrap());
    let on_heap = NonNull::from(&mut on_heap[0]);
    for address in [foreign, on_heap, others, NonNull::dangling()] {
        let number = address.addr().get();
        let error = refused(&memory, address);
        assert_eq!(error, FromRawError::Foreign { address: number });
        assert!(error.to_string().contains(&format!("{number:#x}")));
    }
    drop((had_back(&memory, page), had_back(&other, others)));
    assert_whole(&memory);
    assert_whole(&other);
}

#[test]
fn not_at_the_beginning() {
    let memory = memory();
    let address = into_raw(memory.alloc_pages(Order::new(3), Zeroed::No).unwrap());
    let start = address.addr().get();
    for offset in [1, 16, 4095, 4096, 4097, 5 * 4096, (32 << 10) - 1] {
        // SAFETY: within the 32 KiB that are ours.
        let inside = unsafe { address.add(offset) };
        let error = refused(&memory, inside);
        assert_eq!(
            error,
            FromRawError::Middle {
                address: start + offset,
                start,
                bytes: 32 << 10
            }
        );
        let text = error.to_string();
        assert!(text.contains(&format!("{offset} bytes into")), "{text}");
        assert!(text.contains(&format!("{start:#x}")), "{text}");
    }
    drop(had_back(&memory, address));
    // SAFETY: within the reservation.
    let inside = unsafe { address.add(4096) };
    assert!(matches!(
        refused(&memory, inside),
        FromRawError::NotRaw { .. }
    ));
    assert_whole(&memory);
}

/// Each page was given out alone before, and freed. Its entry still says so.
#[test]
fn in_the_middle_of_a_block_whose_pages_were_raw_alone() {
    let memory = memory();
    assert_whole(&memory);
    memory.drain_pages();
    let address = into_raw(memory.alloc_pages(Order::new(3), Zeroed::No).unwrap());
    let start = address.addr().get();
    for offset in (4096..32 << 10).step_by(4096) {
        // SAFETY: within the 32 KiB that are ours.
        let inside = unsafe { address.add(offset) };
        let expected = FromRawError::Middle {
            address: start + offset,
            start,
            bytes: 32 << 10,
        };
        assert_eq!(refused(&memory, inside), expected);
    }
    drop(had_back(&memory, address));
    // No block is around them any more.
    // SAFETY: within the reservation.
    let inside = unsafe { address.add(4096) };
    let number = inside.addr().get();
    let error = FromRawError::AlreadyFreed { address: number };
    assert_eq!(refused(&memory, inside), error);
    assert_whole(&memory);
}

#[test]
fn what_is_held_by_its_token() {
    let memory = memory();
    let mut page = memory.alloc_pages(Order::ZERO, Zeroed::Yes).unwrap();
    let address = NonNull::from(&mut page.bytes_mut()[0]);
    let number = address.addr().get();
    assert_eq!(
        refused(&memory, address),
        FromRawError::NotRaw { address: number }
    );
    page.bytes_mut()[0] = 1;
    drop(page);
    assert_whole(&memory);
}

#[test]
fn by_another_thread() {
    let memory = memory();
    let group = group(&memory);
    let addresses: Vec<NonZero<usize>> = (0..1_000)
        .map(|_| into_raw(group.alloc_pages(Order::ZERO, Zeroed::No).unwrap()))
        .map(|address| address.expose_provenance())
        .collect();
    assert_eq!(usage(&group), 1_000 * 4096);
    std::thread::scope(|scope| {
        for some in addresses.chunks(250) {
            let memory = &memory;
            scope.spawn(move || {
                for &address in some {
                    let address = NonNull::with_exposed_provenance(address);
                    drop(had_back(memory, address));
                }
            });
        }
    });
    assert_eq!(usage(&group), 0);
    assert_whole(&memory);
}
