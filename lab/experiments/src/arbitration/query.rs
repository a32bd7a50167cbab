//! Queries: what one needs, and for how long.

use super::parameters::{Parameters, of_percent};
use crate::random::Random;

/// One query: it builds a table, batch by batch, and then probes it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Query {
    /// Queries of a higher score matter more.
    pub(super) score: u32,
    /// Batches that each take memory.
    pub(super) builds: u64,
    /// Batches after these, that take none.
    pub(super) probes: u64,
    /// MiB that one of the first takes.
    pub(super) batch_mib: u64,
    /// Its CPU time.
    pub(super) batch_ns: u64,
    /// Whether it can write what it has built to disk.
    pub(super) can_spill: bool,
    /// Its planner's estimate of its peak, MiB.
    pub(super) estimate_mib: u64,
}

/// Score of the queries that matter more.
pub(super) const HIGH: u32 = 10;

impl Query {
    /// Draws the next query of a client of a tenant.
    pub(super) fn draw(
        own: &Parameters,
        (tenant, is_high): (u64, bool),
        cpus: usize,
        random: &mut Random,
    ) -> Self {
        let mut largest = own.largest_mib(cpus);
        if tenant.is_multiple_of(2) {
            largest = largest.min(own.even_peak_mib_max);
        }
        // Those that people wait for are the smaller ones.
        let largest = if is_high { largest / 8 } else { largest };
        let peak_mib = log_uniform(own.peak_mib_min, largest, random);
        let builds = peak_mib.div_ceil(own.batch_mib);
        let error = (own.estimate_error as f64).powf(2.0 * part(random) - 1.0);
        Self {
            score: if is_high { HIGH } else { 0 },
            builds,
            probes: of_percent(builds, own.probe_percent),
            batch_mib: own.batch_mib,
            batch_ns: own.batch_us * 1_000,
            can_spill: random.below(100) < own.spillable_percent,
            estimate_mib: ((builds * own.batch_mib) as f64 * error).max(1.0) as u64,
        }
    }

    /// The query of an adversary: it takes a MiB at a time, slowly, and never ends by itself.
    pub(super) fn creeper(own: &Parameters) -> Self {
        Self {
            score: 0,
            builds: u64::MAX,
            probes: 0,
            batch_mib: 1,
            batch_ns: own.batch_us * 1_000,
            can_spill: false,
            estimate_mib: 1,
        }
    }

    /// CPU time that it takes if it is alone, with memory for all.
    pub(super) fn work_ns(&self) -> u64 {
        (self.builds + self.probes) * self.batch_ns
    }
}

/// Draws a number from `least` to `most`, as likely between 1 and 2 times `least` as between half of `most` and all.
fn log_uniform(least: u64, most: u64, random: &mut Random) -> u64 {
    let ratio = most.max(least) as f64 / least as f64;
    let drawn = least as f64 * ratio.powf(part(random));
    (drawn as u64).clamp(least, most.max(least))
}

/// Draws a number from 0 to 1.
fn part(random: &mut Random) -> f64 {
    const STEPS: u64 = 1 << 32;
    random.below(STEPS) as f64 / STEPS as f64
}
