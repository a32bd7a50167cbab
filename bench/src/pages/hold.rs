//! *hold*: how long Bursar's zone lock is held while many pages are freed and allocated again, in zones of two sizes.
//!
//! Each thread holds a part of the zone, and gives back and takes again more than the lists and the depot have room for, so that
//! most of it goes through the buddy; from random places, so that what is worked on there is in no cache. The bound is what
//! the library states ([`HoldBounds`]).
//!
//! The clock also runs while a holder is off its CPU, and while a hypervisor has stopped the CPU, which no clock of CPU time tells. So each
//! thread also times a wait of the bound's length, without a lock and without memory, in turns with its holds. A part of these is too
//! long for no other reason. The holds beyond that part were too long while their holder ran.

use bursar::pages::{Histogram, HoldBounds, Order, PageOptions, Zeroed};
use bursar::{Memory, Page};
use bursar_machine::host;
use bursar_rig::random::Random;

use crate::timing::Stopwatch;

/// Pages that a thread gives back at a time.
const MANY: usize = 16 << 10;
/// Zones, GiB.
pub const ZONES_GIB: [u64; 2] = [1, 32];

/// Timed waits of a thread after it has given back and taken again: about as many as that takes holds.
const WAITS: u64 = 2_000;
/// Times the bound that a hold may take.
pub const TOO_LONG: f64 = 1.5;

/// Figures of a zone.
pub struct Holds {
    /// The time that 99.9 % of the holds took at most, divided by the stated bound.
    pub p999: f64,
    /// Holds that took longer than [`TOO_LONG`], %.
    pub too_long: f64,
    /// Waits without a lock that took longer, %.
    pub stopped: f64,
}

impl Holds {
    /// Names of the figures of a zone of `gib` GiB, their units and values.
    pub fn figures(&self, gib: u64) -> [(String, &'static str, f64); 4] {
        let ran = (self.too_long - self.stopped).max(0.0);
        [
            (format!("p99.9 in {gib} GiB"), "x the bound", self.p999),
            (format!("too long in {gib} GiB"), "%", self.too_long),
            (format!("stopped in {gib} GiB"), "%", self.stopped),
            (ran_too_long(gib), "%", ran),
        ]
    }
}

/// Name of the figure that has a target.
pub fn ran_too_long(gib: u64) -> String {
    format!("ran too long in {gib} GiB")
}

/// Measures the holds in a zone of `gib` GiB.
///
/// # Errors
/// Text of the failure.
pub fn run(gib: u64, cpus: &[usize], duration_ns: u64) -> Result<Holds, String> {
    let options = PageOptions {
        bytes_per_node: Some(gib << 30),
        ..PageOptions::default()
    };
    let memory = Memory::builder().pages(options).build();
    let memory = memory.map_err(|error| error.to_string())?;
    let pages = (gib << 30) as usize / Order::ZERO.bytes() / 4 / cpus.len();
    let waits = std::thread::scope(|scope| {
        let turns = cpus.iter().map(|&cpu| {
            let memory = &memory;
            scope.spawn(move || turn(memory, cpu, pages, duration_ns))
        });
        let turns: Vec<_> = turns.collect();
        let mut waits = Histogram::default();
        for turn in turns {
            waits.merge(&turn.join().expect("no thread panics")?);
        }
        Ok::<_, String>(waits)
    })?;
    let info = memory.zone_info().ok_or("there are pages")?;
    let holds = &info.zones[0].zone_holds;
    if holds.count() < 1_000 {
        return Err(format!(
            "{} holds are too few for a quantile",
            holds.count()
        ));
    }
    let bound_ns = HoldBounds::default().ns as f64;
    Ok(Holds {
        p999: holds.quantile_ns(0.999) as f64 / bound_ns,
        too_long: percent_above(holds, TOO_LONG * bound_ns),
        stopped: percent_above(&waits, TOO_LONG * bound_ns),
    })
}

/// Durations above `ns`, %; those of the bucket that has `ns` are not above it.
fn percent_above(durations: &Histogram, ns: f64) -> f64 {
    let mut limit = Histogram::default();
    limit.record(ns as u64);
    let limit_ns = limit.buckets().next().map_or(0, |(upper_ns, _)| upper_ns);
    let above = durations.buckets().filter(|(ns, _)| *ns > limit_ns);
    let above: u64 = above.map(|(_, count)| count).sum();
    100.0 * above as f64 / durations.count().max(1) as f64
}

/// Returns the times of the waits.
fn turn(memory: &Memory, cpu: usize, pages: usize, duration_ns: u64) -> Result<Histogram, String> {
    // Where it may not be pinned it runs anywhere.
    let _ = host::pin_to(cpu);
    let root = memory.root();
    let take = |count| {
        root.alloc_many(Order::ZERO, count, Zeroed::No)
            .map_err(|error| error.to_string())
    };
    let mut held = take(pages)?;
    let mut random = Random::new(cpu as u64 + 1);
    let mut waits = Histogram::default();
    let watch = Stopwatch::start();
    while watch.ns() < duration_ns {
        let some: Vec<Page> = (0..MANY.min(held.len()))
            .map(|_| held.swap_remove(random.below(held.len() as u64) as usize))
            .collect();
        let count = some.len();
        Page::free_many(some);
        held.extend(take(count)?);
        for _ in 0..WAITS {
            let wait = Stopwatch::start();
            let is_over = || wait.ns() >= HoldBounds::default().ns;
            while !is_over() {}
            waits.record(wait.ns());
        }
    }
    Ok(waits)
}
