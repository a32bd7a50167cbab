//! The program's allocator, charged to groups: conservation, whichever thread frees a block.

use std::alloc::{GlobalAlloc, Layout, System};
use std::collections::BTreeMap;
use std::sync::mpsc;
use std::task::{Context, Waker};

use bursar::{By, Freshness, Group, Limits, Memory};
use bursar_alloc::{Charged, GroupExt, Twin, Usable, current, heap_drift, outside, with_current};
use bursar_rig::random::Random;

/// Asks about each block, so that sums can be compared to the byte.
#[global_allocator]
static HEAP: Charged<System, Usable> = Charged::over(System);

fn usage(group: &Group) -> i64 {
    // A reading is made of allocations itself.
    outside(|| group.read(Freshness::Exact).unwrap().usage().value)
}

/// Real size of a block of the test, its label included.
#[cfg(target_os = "linux")]
fn real(block: &[u8]) -> i64 {
    // SAFETY: the start of a block of the system's allocator, in use.
    let usable = unsafe { libc::malloc_usable_size(block.as_ptr().cast_mut().cast()) };
    usable as i64 + 8
}

#[cfg(target_os = "linux")]
#[test]
fn each_block_is_its_groups_until_it_is_freed() {
    let memory = Memory::host().unwrap();
    let tenant = memory.root().child("tenant", Limits::none()).unwrap();
    let groups: Vec<Group> = (0..3)
        .map(|k| tenant.child(k.to_string(), Limits::none()).unwrap())
        .collect();
    let mut random = Random::new(0x5eed);
    let mut below = |bound: usize| random.below(bound as u64) as usize;
    // The model: blocks with their group. It lives in no group.
    let mut blocks: Vec<(usize, Vec<u8>)> = Vec::with_capacity(512);
    for step in 0..20_000 {
        let at = below(groups.len());
        let size = 1 << below(20);
        let bytes = 1 + below(size);
        match below(5) {
            0 | 1 if blocks.len() < 500 => {
                blocks.push((at, groups[at].scope(|| Vec::with_capacity(bytes))));
            }
            2 if blocks.len() < 500 => {
                let _entered = groups[at].enter();
                blocks.push((at, vec![0; bytes]));
            }
            3 if !blocks.is_empty() => {
                // Grown or shrunk in another group: it stays where it was.
                let which = below(blocks.len());
                let block = &mut blocks[which].1;
                let filled = block.len();
                groups[at].scope(|| {
                    block.resize(block.capacity(), 1);
                    if bytes > filled {
                        block.reserve_exact(bytes);
                    } else {
                        block.truncate(bytes);
                        block.shrink_to_fit();
                    }
                });
                assert!(block.iter().take(filled.min(bytes)).all(|&byte| byte <= 1));
            }
            _ if !blocks.is_empty() => {
                let (_, block) = blocks.swap_remove(below(blocks.len()));
                groups[at].scope(|| drop(block));
            }
            _ => {}
        }
        if step % 500 == 0 {
            let mut expected = BTreeMap::new();
            for (at, block) in &blocks {
                *expected.entry(*at).or_insert(0) += real(block);
            }
            for (at, group) in groups.iter().enumerate() {
                assert_eq!(
                    usage(group),
                    expected.get(&at).copied().unwrap_or(0),
                    "{group}"
                );
            }
            assert_eq!(usage(&tenant), expected.values().sum::<i64>());
        }
    }
    drop(blocks);
    assert_eq!(usage(&tenant), 0);
}

/// Block by block: nearly always what the C library says, and never further off than the documentation allows for.
#[cfg(target_os = "linux")]
#[test]
fn by_class_a_small_block_is_at_most_16_bytes_off() {
    let by_class: Charged<System> = Charged::new(System);
    let memory = Memory::host().unwrap();
    let group = memory.root().child("group", Limits::none()).unwrap();
    let mut random = Random::new(0xc1a55);
    let mut below = |bound: usize| random.below(bound as u64) as usize;
    let mut blocks: Vec<(*mut u8, Layout)> = Vec::with_capacity(1000);
    let mut off = 0;
    const BLOCKS: usize = 10_000;
    for _ in 0..BLOCKS {
        if blocks.len() > below(1000) {
            let (block, layout) = blocks.swap_remove(below(blocks.len()));
            // SAFETY: allocated so, and taken out.
            unsafe { by_class.dealloc(block, layout) };
        }
        let layout = Layout::from_size_align(1 + below(1500), 1 << below(7)).unwrap();
        let before = usage(&group);
        // SAFETY: not of size zero.
        let block = group.scope(|| unsafe { by_class.alloc(layout) });
        let charged = usage(&group) - before;
        // SAFETY: the start of a block of the system's allocator, in use.
        let real = unsafe { libc::malloc_usable_size(block.cast()) } as i64 + 8;
        if charged != real {
            off += 1;
            let is_small = layout.size() + 8 <= 1024 && layout.align() <= 16;
            assert!(is_small, "{layout:?}: {charged}, really {real}");
            assert!(
                (charged - real).abs() <= 16,
                "{layout:?}: {charged}, really {real}"
            );
        }
        blocks.push((block, layout));
    }
    assert!(off < BLOCKS / 20, "{off} of {BLOCKS} are off");
    for (block, layout) in blocks {
        // SAFETY: as above.
        unsafe { by_class.dealloc(block, layout) };
    }
    assert_eq!(usage(&group), 0);
}

#[test]
fn blocks_are_freed_on_other_threads_and_after_their_group() {
    let memory = Memory::host().unwrap();
    let (sender, receiver) = mpsc::sync_channel::<Vec<Box<[u64; 32]>>>(16);
    let tenant = memory.root().child("tenant", Limits::none()).unwrap();
    std::thread::scope(|scope| {
        for k in 0..3 {
            let (tenant, sender) = (&tenant, sender.clone());
            scope.spawn(move || {
                for round in 0..200 {
                    let query = tenant
                        .child(format!("{k}-{round}"), Limits::none())
                        .unwrap();
                    let blocks = query.scope(|| (0..50).map(|n| Box::new([n; 32])).collect());
                    assert!(usage(&query) >= 50 * 256);
                    // The group goes before its blocks.
                    drop(query);
                    sender.send(blocks).unwrap();
                }
            });
        }
        drop(sender);
        for blocks in receiver {
            assert!(
                blocks
                    .iter()
                    .enumerate()
                    .all(|(n, block)| block[31] == n as u64)
            );
        }
    });
    assert_eq!(usage(&tenant), 0);
    assert!(tenant.children().is_empty());
    memory.tick();
    assert_eq!(memory.removed_groups(), 0);
}

#[test]
fn guards_may_be_nested_and_crossed() {
    let memory = Memory::host().unwrap();
    let [one, two, three] =
        ["one", "two", "three"].map(|name| memory.root().child(name, Limits::none()).unwrap());
    let mut kept = Vec::with_capacity(16);
    let mut spent = [0_i64; 3];
    let mut allocate_in = |expected: Option<usize>| {
        let before = [&one, &two, &three].map(usage);
        kept.push(vec![1_u8; 5000]);
        let after = [&one, &two, &three].map(usage);
        for at in 0..3 {
            let more = after[at] - before[at];
            assert_eq!(more >= 5000, expected == Some(at), "{at}: {more}");
            spent[at] += more;
        }
    };
    allocate_in(None);
    let first = one.enter();
    allocate_in(Some(0));
    let second = two.enter();
    allocate_in(Some(1));
    let third = three.enter();
    allocate_in(Some(2));
    // Crossed: the one in the middle first, then the first.
    drop(second);
    allocate_in(Some(2));
    drop(first);
    allocate_in(Some(2));
    let again = one.enter();
    allocate_in(Some(0));
    drop(third);
    allocate_in(Some(0));
    drop(again);
    allocate_in(None);
    assert!(spent.iter().all(|&bytes| bytes >= 5000));
    drop(kept);
    assert_eq!([&one, &two, &three].map(usage), [0; 3]);
}

#[test]
fn a_panic_leaves_the_group() {
    let memory = Memory::host().unwrap();
    let group = memory.root().child("group", Limits::none()).unwrap();
    let caught = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
        group.scope(|| {
            let _entered = group.enter();
            let _held = vec![1_u8; 100_000];
            // Not `panic!`: what the hook reads to print a backtrace stays cached, and would be the group's.
            with_current(|_| std::panic::resume_unwind(Box::new("while charged")))
        })
    }));
    drop(caught.unwrap_err());
    assert_eq!(current(), None);
    assert_eq!(usage(&group), 0);
    let outside = vec![1_u8; 10_000];
    assert_eq!(usage(&group), 0);
    drop(outside);
}

#[test]
fn a_limit_is_overstepped_and_seen() {
    let memory = Memory::host().unwrap();
    let tenant = memory.root().child("tenant", Limits::max(1 << 20)).unwrap();
    let fits = tenant.scope(|| vec![0_u8; 1 << 19]);
    assert!(!tenant.is_over_max());
    let large = tenant.scope(|| vec![0_u8; 1 << 20]);
    assert!(tenant.is_over_max());
    assert!(tenant.own_events().overshot >= 1);
    assert!(tenant.try_charge(1 << 20).is_err());
    drop(large);
    assert!(!tenant.is_over_max());
    drop(tenant.try_charge(1 << 18).unwrap());
    drop(fits);
    assert_eq!(usage(&tenant), 0);
}

#[test]
fn real_bytes_beside_reservations() {
    let memory = Memory::host().unwrap();
    let tenant = memory
        .root()
        .child("tenant", Limits::max(64 << 20))
        .unwrap();
    let query = tenant.child("query", Limits::none()).unwrap();
    let twin = Twin::new().unwrap();
    let heap = twin.of(&query).unwrap();
    assert_eq!(heap.path(), query.path());
    assert!(twin.of(&query).unwrap() == heap);
    let reservation = query.try_charge(1 << 20).unwrap();
    assert_eq!(heap_drift(&query, &heap).unwrap().unreserved(), -(1 << 20));
    // A large block has whole pages of the system, of at most 64 KiB. This one, with its label and its record, has 3 MiB.
    let table = heap.scope(|| vec![0_u8; (3 << 20) - 4096]);
    let drift = heap_drift(&query, &heap).unwrap();
    assert_eq!(drift.reserved, 1 << 20);
    #[cfg(target_os = "linux")]
    assert_eq!(drift.unreserved(), real(&table) - (1 << 20));
    assert!(((2 << 20) - 4096..(2 << 20) + 16384).contains(&drift.unreserved()));
    assert_eq!(
        drift.to_string(),
        "reserved 1.00 MiB, really 3.00 MiB (+2.00 MiB)"
    );
    drop((table, reservation));
    assert_eq!(heap_drift(&query, &heap).unwrap().unreserved(), 0);
}

/// Bursar's own allocations while a task is in the group are charged to nobody: they are reused, so the group
/// would never be empty.
#[test]
fn bursars_own_records_are_nobodys() {
    let memory = Memory::host().unwrap();
    let tenant = memory.root().child("tenant", Limits::max(4 << 20)).unwrap();
    tenant.scope(|| {
        // More than the books have room for at first, so that each table has to grow.
        let children: Vec<Group> = (0..300)
            .map(|k| {
                tenant
                    .child(format!("child {k}"), Limits::max(1 << 20))
                    .unwrap()
            })
            .collect();
        let nested = children[0].child("nested", Limits::none()).unwrap();
        nested.protection();
        for child in &children {
            drop(child.try_charge(100).unwrap());
            child.try_charge(1 << 30).unwrap_err();
            drop(child.emergency_reserve(100).unwrap());
        }
        drop((
            nested.read(Freshness::Exact).unwrap(),
            tenant.read(Freshness::Exact).unwrap(),
        ));
        drop((
            tenant.snapshot(Freshness::Exact).unwrap(),
            tenant.top(3, By::Reserved),
            tenant.largest_children(3),
        ));
        drop(tenant.choose_victim().unwrap());
        drop(tenant.add_reclaimer(0, |_| 0));
        drop(tenant.on_pressure(|_| ()));
        let held = children[1].try_charge(1 << 20).unwrap();
        let waiting: Vec<_> = (0..100)
            .map(|_| {
                let mut waiting = Box::pin(children[1].charge_async(1 << 20));
                let mut context = Context::from_waker(Waker::noop());
                assert!(waiting.as_mut().poll(&mut context).is_pending());
                let mut emptied = Box::pin(children[2].emptied());
                assert!(emptied.as_mut().poll(&mut context).is_pending());
                (waiting, emptied)
            })
            .collect();
        drop((waiting, held, children, nested));
        memory.tick();
    });
    tenant.close().unwrap();
    assert_eq!(tenant.reserved(), 0);
    tenant.emptied().wait();
}
