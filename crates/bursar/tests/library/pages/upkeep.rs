//! Upkeep of page lists, CPU by CPU, on real threads.

use crate::common::Short;
use std::time::Duration;

use bursar::housekeeping::Options;
use bursar::pages::{Order, PageOptions, Zeroed, ZoneReport};
use bursar::{Host, Machine, Memory, Page};
use bursar_machine::host::{allowed_cpus, pin_to};

fn memory() -> Memory {
    let pages = PageOptions {
        bytes_per_node: Some(64 << 20),
        decay_period: Duration::ZERO,
        ..PageOptions::default()
    };
    let memory = Memory::builder().pages(pages).build();
    memory.expect("settings that make sense")
}

fn options() -> Options {
    Options::every(Duration::from_millis(1))
}

/// Leaves pages on lists, some of them on this CPU's.
fn use_pages(memory: &Memory) {
    let group = memory.make("a");
    let pages = group.alloc_many(Order::ZERO, 2_000, Zeroed::No);
    let mut pages = pages.expect("there are pages");
    pages.iter_mut().for_each(|page| page.copy_from(&[1; 4096]));
    Page::free_many(pages);
}

fn retained(memory: &Memory) -> u64 {
    let info = memory.zone_info().expect("pages were used");
    info.zones.iter().map(ZoneReport::retained_bytes).sum()
}

fn listed_on(memory: &Memory, cpu: u32) -> u64 {
    let info = memory.zone_info().expect("pages were used");
    let sets = info.zones.iter().flat_map(|zone| &zone.pagesets);
    let lists = sets
        .filter(|set| set.cpu == cpu)
        .flat_map(|set| set.lists.iter());
    lists.map(|list| list.count).sum()
}

#[test]
fn threads_of_ours_give_memory_back_without_any_tick() {
    let memory = memory();
    let upkeeper = memory.housekeeping(options()).expect("sense");
    let threads = upkeeper.start(2).expect("threads");
    use_pages(&memory);
    let keeps = (memory.machine().cpus() as u64) << 20;
    // Never ends if nobody looks after them.
    while retained(&memory) > keeps {
        std::thread::yield_now();
    }
    drop(threads);
}

#[test]
fn lists_of_isolated_cpus_are_left_alone_until_no_page_is_left() {
    let Some(cpu) = allowed_cpus()
        .into_iter()
        .next()
        .filter(|&cpu| pin_to(cpu).is_ok())
    else {
        return;
    };
    let shard = Host::start().expect("a host").current_shard();
    if shard.index() != cpu {
        // A backend that does not go by CPUs.
        return;
    }
    let memory = memory();
    let isolated = Options {
        isolated: vec![shard.0],
        ..options()
    };
    let upkeeper = memory.housekeeping(isolated).expect("sense");
    use_pages(&memory);
    let before = listed_on(&memory, shard.0);
    assert!(before > 0, "or this shows nothing");
    let machine = memory.machine();
    for _ in 0..20 {
        memory.tick();
        machine.sleep_until(upkeeper.tick());
    }
    assert_eq!(listed_on(&memory, shard.0), before);
    // From another CPU: a thread that finds no other page may take those on the list.
    let (taken, listed) = std::thread::scope(|scope| {
        let take = || {
            let _ = allowed_cpus().into_iter().next_back().map(pin_to);
            let group = memory.make("b");
            let pages = std::iter::from_fn(|| group.alloc_pages(Order::ZERO, Zeroed::No).ok());
            let pages: Vec<Page> = pages.collect();
            (pages.len(), listed_on(&memory, shard.0))
        };
        scope.spawn(take).join().expect("ends")
    });
    assert!(taken > 0);
    assert_eq!(listed, 0);
}

#[test]
fn without_isolation_the_same_lists_are_emptied() {
    let memory = memory();
    let upkeeper = memory.housekeeping(options()).expect("sense");
    use_pages(&memory);
    let machine = memory.machine();
    let listed = || {
        let info = memory.zone_info().expect("pages were used");
        info.zones.iter().map(|zone| zone.listed).sum::<u64>()
    };
    assert!(listed() > 0, "or this shows nothing");
    while listed() > 0 {
        machine.sleep_until(upkeeper.tick());
    }
}
