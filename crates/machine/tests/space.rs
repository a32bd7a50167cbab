//! Address space that reservations take. The only test of its program, because others would map memory at the same time.
#![cfg(target_os = "linux")]

use bursar_machine::pages::{Order, ReserveOptions};
use bursar_machine::{Host, Machine};

fn mapped_bytes() -> usize {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let size = status.lines().find_map(|line| line.strip_prefix("VmSize:"));
    let number = size.unwrap().trim().strip_suffix(" kB").unwrap();
    number.parse::<usize>().unwrap() << 10
}

/// The system maps more, and what lies beside the aligned part is given back.
#[test]
fn a_reservation_takes_the_space_of_its_pages() {
    const RESERVATIONS: usize = 16;
    /// Between two reservations, so that the next is not aligned by chance.
    const GAP: usize = 5 << 20;
    let host = Host::start().unwrap();
    let before = mapped_bytes();
    let mut gaps: Vec<Vec<u8>> = Vec::new();
    for _ in 0..RESERVATIONS {
        gaps.push(Vec::with_capacity(GAP));
        let (_, _pages) = host.reserve(&ReserveOptions::pages(1)).unwrap();
    }
    let taken = mapped_bytes() - before;
    let wanted = RESERVATIONS * (Order::MAX.bytes() + GAP);
    // A page or so for each gap.
    assert!(taken < wanted + Order::MAX.bytes(), "{taken} of {wanted}");
}
