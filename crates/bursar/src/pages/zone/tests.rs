use bursar_machine::Host;

use super::super::{HoldBounds, PageOptions, Watermarks, Zones};
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
    let zones = Zones::new(&Host::start().unwrap(), options).unwrap();
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
