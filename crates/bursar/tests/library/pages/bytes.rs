//! Pages as shared bytes: `Page::freeze`.
#![cfg(feature = "bytes")]

use crate::common::Short;
use bursar::Memory;
use bursar::pages::{Order, PageOptions, Zeroed};

fn memory() -> Memory {
    let options = PageOptions {
        bytes_per_node: Some(16 << 20),
        ..PageOptions::default()
    };
    Memory::builder().pages(options).build().unwrap()
}

#[test]
fn the_last_one_returns_and_uncharges_the_page() {
    let memory = memory();
    let group = memory.make("blocks");
    let in_use = || -> u64 {
        let info = memory.zone_info().unwrap();
        info.zones.iter().map(|zone| zone.in_use()).sum()
    };
    let mut page = group.alloc_pages(Order::new(2), Zeroed::No).unwrap();
    page.copy_from(b"abcdef");
    let start = page.bytes().as_ptr();
    let frozen = page.freeze();
    assert_eq!(
        (frozen.as_ptr(), frozen.len()),
        (start, 16 << 10),
        "not copied"
    );
    let clone = frozen.clone();
    let slice = frozen.slice(2..4);
    drop(frozen);
    drop(clone);
    assert_eq!(
        (&slice[..], slice.as_ptr()),
        (&b"cd"[..], start.wrapping_add(2))
    );
    assert_eq!((group.used(), in_use()), (16 << 10, 4));
    std::thread::spawn(move || drop(slice)).join().unwrap();
    assert_eq!((group.used(), in_use()), (0, 0));
}

#[test]
fn what_is_not_written_is_not_shared() {
    let page = memory().alloc_pages(Order::ZERO, Zeroed::No).unwrap();
    let frozen = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| page.freeze().len()));
    assert!(frozen.is_err());
}
