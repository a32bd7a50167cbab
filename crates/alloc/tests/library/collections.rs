//! Collections on a group behave as the standard ones, and the group is charged with exactly what they hold.

use std::alloc::System;
use std::collections::BTreeMap;
use std::sync::Mutex;

use allocator_api2::alloc::Layout;
use allocator_api2::boxed::Box as GroupBox;
use allocator_api2::vec::Vec as GroupVec;
use bursar::Limits;
use bursar_alloc::GroupAlloc;
use bursar_rig::random::Random;
use hashbrown::{DefaultHashBuilder, HashMap};

use crate::{group, memory_of, page_bytes, random, small_bytes, usage};

/// The documented charge of an array.
fn charged<T>(capacity: usize) -> usize {
    let layout = Layout::array::<T>(capacity).unwrap();
    match layout.size() {
        0 => 0,
        size => page_bytes(layout).unwrap_or_else(|| small_bytes(size)),
    }
}

type Map = HashMap<u32, u64, DefaultHashBuilder, GroupAlloc>;

/// A vector, a map and boxes on a group, and the same beside them.
struct Pair {
    vec: GroupVec<u64, GroupAlloc>,
    vec_std: Vec<u64>,
    map: Map,
    map_std: BTreeMap<u32, u64>,
    boxes: Vec<GroupBox<[u8; 40], GroupAlloc>>,
}

impl Pair {
    fn new(alloc: &GroupAlloc) -> Self {
        Self {
            vec: GroupVec::new_in(alloc.clone()),
            vec_std: Vec::new(),
            map: Map::with_hasher_in(DefaultHashBuilder::default(), alloc.clone()),
            map_std: BTreeMap::new(),
            boxes: Vec::new(),
        }
    }

    fn charged(&self) -> usize {
        charged::<u64>(self.vec.capacity())
            + charged::<u8>(self.map.allocation_size())
            + self.boxes.len() * charged::<[u8; 40]>(1)
    }

    fn step(&mut self, random: &mut Random, alloc: &GroupAlloc) {
        let number = random.number();
        let many = 1 << random.below(12);
        match random.below(11) {
            0 | 1 => {
                self.vec.extend((0..many).map(|index| number ^ index));
                self.vec_std.extend((0..many).map(|index| number ^ index));
            }
            2 => {
                let len = random.below(self.vec.len() as u64 + 1) as usize;
                self.vec.truncate(len);
                self.vec_std.truncate(len);
            }
            3 => self.vec.shrink_to_fit(),
            4 => self.vec.reserve(many as usize),
            5 | 6 => {
                for index in 0..many {
                    let key = (number ^ index) as u32 % 20_000;
                    let before = self.map.insert(key, index);
                    assert_eq!(before, self.map_std.insert(key, index));
                }
            }
            7 => {
                let bit = 1 << random.below(14);
                self.map.retain(|key, _| key & bit == 0);
                self.map_std.retain(|key, _| key & bit == 0);
            }
            8 => self.map.shrink_to_fit(),
            9 => {
                let bytes = [number as u8; 40];
                self.boxes.push(GroupBox::new_in(bytes, alloc.clone()));
            }
            _ => {
                drop(self.boxes.pop());
                self.map.reserve(many as usize);
            }
        }
    }

    fn check(&self) {
        assert_eq!(self.vec[..], self.vec_std[..]);
        assert_eq!(self.map.len(), self.map_std.len());
        for (key, value) in &self.map_std {
            assert_eq!(self.map.get(key), Some(value));
        }
        for bytes in &self.boxes {
            assert!(bytes.iter().all(|&byte| byte == bytes[0]));
        }
    }
}

#[test]
fn collections_are_as_the_standard_ones_and_charged_exactly() {
    let mut random = random();
    let memory = memory_of(256 << 20);
    let group = group(&memory, Limits::none());
    let alloc = GroupAlloc::new(&group);
    let mut pairs = [(); 4].map(|()| Pair::new(&alloc));
    for step in 0..3000 {
        let at = random.below(4) as usize;
        pairs[at].step(&mut random, &alloc);
        assert_eq!(
            usage(&group),
            pairs.iter().map(Pair::charged).sum::<usize>()
        );
        if step % 20 == 0 {
            pairs[at].check();
        }
    }
    assert!(usage(&group) > 100_000, "it is about something");
    drop(pairs);
    assert_eq!(usage(&group), 0);
}

/// Blocks that one thread allocates are freed by others, and come back to the group that was charged.
#[test]
fn blocks_are_freed_on_other_threads() {
    const THREADS: u64 = 3;
    let memory = memory_of(256 << 20);
    let groups = [0, 1].map(|number| {
        let name = format!("tenant-{number}");
        memory.root().child(&name, Limits::none()).unwrap()
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
    for group in &groups {
        let own = shelf
            .iter()
            .filter(|bytes| bytes.allocator().group() == group);
        let expected: usize = own.map(|bytes| charged::<u8>(bytes.capacity())).sum();
        assert_eq!(usage(group), expected);
    }
    drop(shelf);
    assert_eq!(usage(&memory.root()), 0);
}

#[test]
fn a_limit_makes_try_reserve_fail() {
    let memory = memory_of(256 << 20);
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
    let memory = memory_of(256 << 20);
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
