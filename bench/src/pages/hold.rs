//! *hold*: how long Bursar's zone lock is held while many pages are freed and allocated again, in zones of two sizes.
//!
//! Each thread holds a part of the zone, and gives back and takes again more than the lists and the depot have room for, so that
//! most of it goes through the buddy; from random places, so that what is worked on there is in no cache. The bound is what
//! the library states ([`HoldBounds`]).

use bursar::pages::{HoldBounds, Order, PageOptions, Zeroed};
use bursar::{Memory, Page};
use bursar_machine::host;
use bursar_rig::random::Random;

use crate::timing::Stopwatch;

/// Pages that a thread gives back at a time.
const MANY: usize = 16 << 10;
/// Zones, GiB.
pub const ZONES_GIB: [u64; 2] = [1, 32];

/// Name of the figure of a zone of `gib` GiB.
pub fn name(gib: u64) -> String {
    format!("p99.9 in {gib} GiB")
}

/// The time that 99.9 % of the holds took at most, divided by the stated bound, in a zone of `gib` GiB.
///
/// # Errors
/// Text of the failure.
pub fn run(gib: u64, cpus: &[usize], duration_ns: u64) -> Result<f64, String> {
    let options = PageOptions {
        bytes_per_node: Some(gib << 30),
        ..PageOptions::default()
    };
    let memory = Memory::builder().pages(options).build();
    let memory = memory.map_err(|error| error.to_string())?;
    let pages = (gib << 30) as usize / Order::ZERO.bytes() / 4 / cpus.len();
    std::thread::scope(|scope| {
        let turns = cpus.iter().map(|&cpu| {
            let memory = &memory;
            scope.spawn(move || turn(memory, cpu, pages, duration_ns))
        });
        let turns: Vec<_> = turns.collect();
        let mut ends = turns
            .into_iter()
            .map(|turn| turn.join().expect("no thread panics"));
        ends.try_for_each(|end| end)
    })?;
    let info = memory.zone_info().ok_or("there are pages")?;
    let holds = &info.zones[0].zone_holds;
    if holds.count() < 1_000 {
        return Err(format!(
            "{} holds are too few for a quantile",
            holds.count()
        ));
    }
    Ok(holds.quantile_ns(0.999) as f64 / HoldBounds::default().ns as f64)
}

fn turn(memory: &Memory, cpu: usize, pages: usize, duration_ns: u64) -> Result<(), String> {
    // Where it may not be pinned it runs anywhere.
    let _ = host::pin_to(cpu);
    let root = memory.root();
    let take = |count| {
        root.alloc_many(Order::ZERO, count, Zeroed::No)
            .map_err(|error| error.to_string())
    };
    let mut held = take(pages)?;
    let mut random = Random::new(cpu as u64 + 1);
    let watch = Stopwatch::start();
    while watch.ns() < duration_ns {
        let some: Vec<Page> = (0..MANY.min(held.len()))
            .map(|_| held.swap_remove(random.below(held.len() as u64) as usize))
            .collect();
        let count = some.len();
        Page::free_many(some);
        held.extend(take(count)?);
    }
    Ok(())
}
