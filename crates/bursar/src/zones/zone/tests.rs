use bursar_machine::Host;

use super::super::alloc::Begun;
use super::super::refusing::Refusing;
use super::super::{HoldBounds, PageOptions, Watermarks, Zones, fixture, upkeep};
use super::*;

fn zones(hold: HoldBounds) -> Zones<Host> {
    let options = PageOptions {
        bytes_per_node: Some(16 << 20),
        watermarks: Some(Watermarks {
            min: 100,
            low: 200,
            high: 300,
        }),
        hold,
        ..PageOptions::default()
    };
    let zones = Zones::new(&Host::start().unwrap(), options, &mut Begun::nothing()).unwrap();
    // Holds end early while tables are made for the first time.
    let mut blocks = Vec::new();
    while !zones.zone(0).buddy(Work::Report).has_spare_table() || blocks.len() < 2_000 {
        zones.zone(0).take(Order::ZERO, 100, Mark::Low, &mut blocks);
    }
    zones.zone(0).give(&mut blocks, Work::Free);
    zones
}

#[test]
fn no_hold_moves_more_than_its_bound() {
    let zones = zones(HoldBounds {
        blocks: 10,
        ns: u64::MAX,
    });
    let zone = zones.zone(0);
    let mut blocks = Vec::new();
    assert_eq!(zone.take(Order::ZERO, 1_000, Mark::Low, &mut blocks), 10);
    while blocks.len() < 1_000 {
        assert_eq!(zone.take(Order::ZERO, 1_000, Mark::Low, &mut blocks), 10);
    }
    let before = zone.buddy(Work::Report).times().0.count();
    zone.give(&mut blocks, Work::Free);
    let after = zone.buddy(Work::Report).times().0.count();
    // The look before counts as well.
    assert_eq!(after - before, 1 + 100);
}

#[test]
fn a_hold_whose_time_is_over_ends_with_its_block() {
    let zones = zones(HoldBounds {
        blocks: u32::MAX,
        ns: 0,
    });
    let mut blocks = Vec::new();
    let taken = zones
        .zone(0)
        .take(Order::ZERO, 1_000, Mark::Low, &mut blocks);
    assert_eq!(taken, 1);
    zones.zone(0).give(&mut blocks, Work::Free);
}

#[test]
fn each_mark_leaves_what_it_says() {
    let zones = zones(HoldBounds {
        blocks: u32::MAX,
        ns: u64::MAX,
    });
    let zone = zones.zone(0);
    let mut blocks = Vec::new();
    for (mark, leaves) in [(Mark::Low, 200), (Mark::Min, 100), (Mark::Reserve, 0)] {
        while zone.take(Order::ZERO, 10_000, mark, &mut blocks) > 0 {}
        assert_eq!(zone.free_pages(), leaves);
    }
    assert_eq!(zone.take(Order::ZERO, 1, Mark::Reserve, &mut blocks), 0);
    zone.give(&mut blocks, Work::Free);
    assert_eq!(zone.free_pages(), zone.managed);
}

/// Raises `high` of all CPUs' lists of single pages to its maximum.
fn raise(zone: &Zone<Host>) -> u32 {
    let most = zone.lists.lists[0].high_max;
    for shard in zone.shards() {
        let tuned = super::super::tuned::Tuned::new(most);
        zone.lists.set_tuned(shard, 0, tuned);
    }
    most
}

#[test]
fn lists_are_looked_after_once_a_period_whoever_comes() {
    let zones = zones(HoldBounds::default());
    let zone = zones.zone(0);
    let options = PageOptions {
        decay_period: std::time::Duration::from_secs(3_600),
        ..zones.options.clone()
    };
    let most = raise(zone);
    let high = |shard| zone.lists.tuned(Shard(shard), 0).high;
    let extra = zone.machine.cpus() as u32;
    assert!(
        upkeep::tick_cpu(zone, Shard(0), &options),
        "it will decay further"
    );
    let once = high(0);
    assert!(once < most && high(extra) == most, "{once} {most}");
    assert!(upkeep::tick_cpu(zone, Shard(0), &options));
    assert_eq!(high(0), once, "not twice");
    upkeep::tick(zone, &options, &|_| false);
    assert_eq!(
        (high(0), high(extra)),
        (once, once),
        "only those that were not"
    );
    upkeep::tick_cpu(zone, Shard(extra), &options);
    assert_eq!(high(extra), once);
}

#[test]
fn cpus_that_are_left_alone_keep_what_they_have() {
    let zones = zones(HoldBounds::default());
    let zone = zones.zone(0);
    let options = PageOptions {
        decay_period: std::time::Duration::ZERO,
        ..zones.options.clone()
    };
    let most = raise(zone);
    (0..100).for_each(|_| upkeep::tick(zone, &options, &|shard| shard == Shard(0)));
    let high = |shard| zone.lists.tuned(Shard(shard), 0).high;
    let least = zone.lists.lists[0].high_min;
    assert_eq!((high(0), high(zone.machine.cpus() as u32)), (most, least));
}

#[test]
fn a_cpu_whose_lists_are_as_small_as_they_become_has_no_work() {
    let zones = zones(HoldBounds::default());
    let zone = zones.zone(0);
    let options = PageOptions {
        decay_period: std::time::Duration::ZERO,
        ..zones.options.clone()
    };
    assert!(!upkeep::has_work(zone, Shard(0)) && !upkeep::tick_cpu(zone, Shard(0), &options));
    raise(zone);
    let rounds = (0..1_000).take_while(|_| upkeep::tick_cpu(zone, Shard(0), &options));
    assert!((5..100).contains(&rounds.count()));
    assert!(!upkeep::has_work(zone, Shard(0)));
}

#[test]
fn a_block_that_the_system_keeps_does_not_hold_up_smaller_ones() {
    let (machine, refusals) = Refusing::new(1);
    let options = PageOptions {
        bytes_per_node: Some(16 << 20),
        decay_period: std::time::Duration::ZERO,
        retained_bytes_per_cpu: 0,
        ..PageOptions::default()
    };
    let zones = Zones::new(&machine, options, &mut Begun::nothing()).unwrap();
    let zone = zones.zone(0);
    let mut blocks = Vec::new();
    while blocks.len() < 2 {
        zone.take(Order::MAX, 1, Mark::Low, &mut blocks);
    }
    // One block of the largest order that the system keeps, and a half of another.
    let (mut half, _other) = blocks.pop().unwrap().split();
    refusals.kept.store(blocks[0].pfn().0, Ordering::Relaxed);
    let _ = zone.frames.uninit(&mut blocks[0]);
    let _ = zone.frames.uninit(&mut half);
    blocks.push(half);
    zone.give(&mut blocks, Work::Free);
    let backed = || zone.buddy(Work::Report).backed_pages();
    assert_eq!(backed(), 1_024 + 512);
    // The first one only notes the memory that is free.
    (0..2).for_each(|_| upkeep::tick(zone, &zones.options, &|_| false));
    assert_eq!(backed(), 1_024);
    (0..2).for_each(|_| upkeep::tick(zone, &zones.options, &|_| false));
    assert_eq!(backed(), 1_024, "nothing else goes back, and a tick ends");
}

/// Each look at the clock takes 3 ns. After two blocks 6 ns are over, and a third is likely to fit; a fourth is not.
#[test]
fn a_hold_ends_before_a_block_that_would_take_too_long() {
    let (machine, choices) = Refusing::new(1);
    let hold = HoldBounds {
        blocks: u32::MAX,
        ns: 10,
    };
    let options = PageOptions {
        hold,
        ..fixture::options()
    };
    let zones = fixture::zones(&machine, options);
    let zone = zones.zone(0);
    zone.give(&mut fixture::pages(zone, 100), Work::Free);
    choices.now_ns.store(0, Ordering::Relaxed);
    choices.look_ns.store(3, Ordering::Relaxed);
    let mut blocks = Vec::new();
    assert_eq!(zone.take(Order::ZERO, 100, Mark::Low, &mut blocks), 3);
    let longest = zone.buddy(Work::Report).times().0.max_ns();
    assert!(longest >= 9, "{longest}");
}

#[test]
fn a_zone_contains_its_pages() {
    let zones = zones(HoldBounds::default());
    let zone = zones.zone(0);
    let first = zone.frames.first().0;
    let pages = zone.managed as u32;
    for (pfn, is_there) in [
        (first.wrapping_sub(1), false),
        (first, true),
        (first + pages - 1, true),
        (first + pages, false),
    ] {
        assert_eq!(zone.contains(Pfn(pfn)), is_there);
    }
}
