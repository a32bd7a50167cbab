//! Collections on a group: the group is charged with exactly what they hold. `blocks.rs` has the blocks that they are made of.

mod common;

use std::alloc::System;
use std::sync::Mutex;

use allocator_api2::boxed::Box as GroupBox;
use allocator_api2::vec::Vec as GroupVec;
use bursar::pages::PageOptions;
use bursar::{Freshness, Group, Limits, Memory};
use bursar_alloc::GroupAlloc;
use bursar_rig::random::Random;
use common::Short;
use hashbrown::{DefaultHashBuilder, HashMap};

const PAGES_FROM: usize = 32 << 10;

fn memory() -> Memory {
    let options = PageOptions {
        bytes_per_node: Some(256 << 20),
        ..PageOptions::default()
    };
    Memory::builder().pages(options).build().unwrap()
}

fn group(memory: &Memory, limits: Limits) -> Group {
    memory.root().child("collections", limits).unwrap()
}

fn usage(group: &Group) -> usize {
    let value = group.read(Freshness::Exact).unwrap().usage().value;
    usize::try_from(value).unwrap()
}

/// Bytes charged for a block of so many bytes, by the documentation.
fn charged(bytes: usize) -> usize {
    match bytes {
        0 => 0,
        PAGES_FROM.. => bytes.next_power_of_two(),
        _ => (bytes + 8).div_ceil(16).max(2) * 16,
    }
}

/// What one thread allocates, others free, and it comes back to the group that was charged.
#[test]
fn blocks_are_freed_on_other_threads() {
    const THREADS: u64 = 3;
    let memory = memory();
    let groups = [0, 1].map(|number| {
        let name = format!("tenant-{number}");
        memory.make(&name)
    });
    let allocs = [0, 1].map(|number| GroupAlloc::new(&groups[number]));
    let shelf: Mutex<Vec<GroupVec<u8, GroupAlloc>>> = Mutex::default();
    std::thread::scope(|scope| {
        for thread in 0..THREADS {
            let (allocs, shelf) = (&allocs, &shelf);
            scope.spawn(move || {
                let mut random = Random::fork(7, thread);
                for _ in 0..2000 {
                    let alloc = allocs[random.below(2) as usize].clone();
                    let power = random.below(18);
                    let len = random.below(1 << power) as usize;
                    let mut bytes = GroupVec::with_capacity_in(len, alloc);
                    bytes.resize(len, thread as u8);
                    let mut shelf = shelf.lock().unwrap();
                    shelf.push(bytes);
                    let at = random.below(shelf.len() as u64) as usize;
                    let other = shelf.swap_remove(at);
                    if shelf.len() < 50 && random.happens(2) {
                        shelf.push(other);
                    } else {
                        std::mem::drop(shelf);
                        assert!(other.iter().all(|&byte| byte == other[0]));
                    }
                }
            });
        }
    });
    let shelf = shelf.into_inner().unwrap();
    assert!(!shelf.is_empty());
    let expected: usize = shelf.iter().map(|bytes| charged(bytes.capacity())).sum();
    assert_eq!(usage(&memory.root()), expected);
    drop(shelf);
    assert_eq!(groups.each_ref().map(usage), [0; 2]);
    assert_eq!(usage(&memory.root()), 0);
}

#[test]
fn a_limit_makes_try_reserve_fail() {
    let memory = memory();
    let group = group(&memory, Limits::max(1 << 20));
    let mut rows = GroupVec::new_in(GroupAlloc::new(&group));
    rows.extend_from_slice(&[7_u32; 1000]);
    assert!(rows.try_reserve(1 << 20).is_err());
    assert_eq!(usage(&group), 4016, "nothing was taken");
    assert!(rows.try_reserve(1 << 15).is_ok());
    assert!(rows.iter().all(|&row| row == 7) && rows.len() == 1000);

    let alloc = GroupAlloc::new(&group);
    let mut map = HashMap::<u64, u64, _, _>::with_hasher_in(DefaultHashBuilder::default(), &alloc);
    map.insert(1, 2);
    assert!(map.try_reserve(1 << 20).is_err());
    assert_eq!(map.get(&1), Some(&2));
    group.set_max(u64::MAX);
    assert!(map.try_reserve(1 << 16).is_ok());
    drop((rows, map));
    assert_eq!(usage(&group), 0);
}

#[test]
fn another_inner_allocator() {
    let memory = memory();
    let group = group(&memory, Limits::none());
    // SAFETY: the global allocator of this test is the system's.
    let alloc = unsafe { GroupAlloc::new_in(&group, allocator_api2::alloc::Global) };
    let text = GroupBox::new_in([1_u8; 56], alloc.clone());
    let buffer: GroupVec<u8, _> = GroupVec::with_capacity_in(100 << 10, alloc);
    assert_eq!(usage(&group), 64 + (128 << 10));
    drop((text, buffer));
    assert_eq!(usage(&memory.root()), 0);
}

#[test]
fn it_goes_between_threads() {
    fn goes<T: Send + Sync + Clone + 'static>() {}
    goes::<GroupAlloc>();
    goes::<GroupAlloc<System>>();
    assert_eq!(size_of::<GroupAlloc>(), size_of::<usize>());
}
