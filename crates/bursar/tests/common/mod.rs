//! Shared by the tests: a small generator of random numbers that a seed determines, and the statistics they use.
#![allow(dead_code, reason = "each test uses a part")]

pub mod child;
#[cfg(unix)]
pub mod fork;
#[cfg(unix)]
pub mod signals;
pub mod world;

use bursar::{Counter, Gauge, Memory, Statistic};

pub const STATISTICS: &[Statistic] = &[
    Statistic::counter("rows"),
    Statistic::gauge("balance"),
    Statistic::gauge("eager").eager(),
    Statistic::gauge("batched").batch(64),
];
pub const ROWS: Counter = Counter::of(STATISTICS, "rows");
pub const BALANCE: Gauge = Gauge::of(STATISTICS, "balance");
pub const EAGER: Gauge = Gauge::of(STATISTICS, "eager");
pub const BATCHED: Gauge = Gauge::of(STATISTICS, "batched");

pub fn memory() -> Memory {
    Memory::builder()
        .statistics(STATISTICS)
        .build()
        .expect("the host starts")
}

/// SplitMix64 (Steele, Lea, Flood 2014): enough for choosing operations.
pub struct Random(pub u64);

impl Random {
    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    pub fn below(&mut self, limit: usize) -> usize {
        (self.next() % limit as u64) as usize
    }
}

/// The seed of this run: `BURSAR_SEED`, else a fixed one. Printed when a test fails.
pub fn seed() -> u64 {
    let seed = std::env::var("BURSAR_SEED")
        .ok()
        .and_then(|seed| seed.parse().ok())
        .unwrap_or(20_261_121);
    println!("replay with BURSAR_SEED={seed}");
    seed
}
