//! Raw pages, the allocator of collections, and the current group. Without `Charged`: any global allocator will do.

mod blocks;
mod collections;
mod current;
mod raw;

use allocator_api2::alloc::Layout;
use bursar::pages::PageOptions;
use bursar::{Freshness, Group, Limits, Memory};
use bursar_rig::random::Random;

/// Sizes of blocks that are made of pages.
const PAGES: std::ops::RangeInclusive<usize> = 32 << 10..=4 << 20;

fn memory_of(bytes: u64) -> Memory {
    let options = PageOptions {
        bytes_per_node: Some(bytes),
        ..PageOptions::default()
    };
    Memory::builder().pages(options).build().unwrap()
}

fn group(memory: &Memory, limits: Limits) -> Group {
    memory.root().child("group", limits).unwrap()
}

fn usage(group: &Group) -> usize {
    let value = group.read(Freshness::Exact).unwrap().usage().value;
    usize::try_from(value).unwrap()
}

/// The documented charge of a block of the inner allocator.
fn small_bytes(size: usize) -> usize {
    (size + 8).div_ceil(16).max(2) * 16
}

/// The pages of a block, if its layout is one for pages.
fn page_bytes(layout: Layout) -> Option<usize> {
    let bytes = layout.size().max(layout.align());
    PAGES.contains(&bytes).then(|| bytes.next_power_of_two())
}

/// A source of random numbers whose seed can be set.
fn random() -> Random {
    let seed = std::env::var("BURSAR_SEED").map_or(20_261_122, |seed| seed.parse().unwrap());
    println!("replay with BURSAR_SEED={seed}");
    Random::new(seed)
}
