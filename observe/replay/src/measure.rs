//! The measures that are compared.

use std::collections::{BTreeMap, BTreeSet};

use bursar_watch::figures::Distribution;
use bursar_watch::seen::BurstKind;

use bursar_experiments::measure::Unit;

/// Part of the kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Part {
    /// Periodic upkeep of each CPU.
    Upkeep,
    /// Page lists and the zone's lock.
    Pages,
    /// Flushes of statistics.
    Flushes,
}

impl Part {
    /// Heading of the part's table.
    pub fn heading(self) -> &'static str {
        match self {
            Self::Upkeep => "Upkeep (vmstat_update)",
            Self::Pages => "Bursts of pages and the zone's lock",
            Self::Flushes => "Flushes of statistics",
        }
    }
}

/// One measure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Measure {
    /// Its name in JSON.
    pub name: &'static str,
    /// Its name in tables.
    pub label: &'static str,
    /// Unit of its values.
    pub unit: Unit,
    /// The part that it is about.
    pub part: Part,
    /// Whether the recording sets it: agreement then shows nothing.
    pub is_input: bool,
}

/// Defines all measures: part, name in JSON, name in tables, unit, whether the recording sets it.
macro_rules! measures {
    ($($part:ident $name:literal $label:literal $unit:ident $is_input:literal;)*) => {
        /// All measures, in the order of tables.
        pub const MEASURES: &[Measure] = &[$(Measure {
            name: $name,
            label: $label,
            unit: Unit::$unit,
            part: Part::$part,
            is_input: $is_input,
        }),*];
    };
}

measures! {
    Upkeep "calls_per_cpu_second" "calls a CPU and second" PerSecond false;
    Upkeep "slot_herd_mean" "CPUs in one slot, mean of all calls" Count false;
    Upkeep "slot_herd_max" "CPUs in one slot, max" Count false;
    Upkeep "herd_mean" "CPUs on one tick, mean of all calls" Count false;
    Upkeep "herd_max" "CPUs on one tick, max" Count false;
    Upkeep "instants_per_second" "distinct ticks a second" PerSecond false;
    Upkeep "upkeep_mean_ns" "duration, mean" Ns false;
    Upkeep "upkeep_p50_ns" "duration, p50" Ns false;
    Upkeep "upkeep_p99_ns" "duration, p99" Ns false;
    Upkeep "upkeep_max_ns" "duration, max" Ns false;
    Pages "free_bursts_per_second" "bursts of frees a second" PerSecond true;
    Pages "free_burst_p50_ns" "burst of frees, p50" Ns false;
    Pages "free_burst_p99_ns" "burst of frees, p99" Ns false;
    Pages "free_burst_max_ns" "burst of frees, max" Ns false;
    Pages "free_hold_pages_max" "pages of a hold for frees, max" Count false;
    Pages "free_hold_max_ns" "hold for frees, max" Ns false;
    Pages "take_bursts_per_second" "bursts of takes a second" PerSecond true;
    Pages "take_burst_p50_ns" "burst of takes, p50" Ns false;
    Pages "take_burst_p99_ns" "burst of takes, p99" Ns false;
    Pages "take_burst_max_ns" "burst of takes, max" Ns false;
    Pages "take_hold_pages_max" "pages of a hold for takes, max" Count false;
    Pages "take_hold_max_ns" "hold for takes, max" Ns false;
    Pages "zone_waits_per_second" "waits for the lock a second" PerSecond false;
    Pages "zone_wait_p99_ns" "wait for the lock, p99 of waits" Ns false;
    Pages "zone_wait_max_ns" "wait for the lock, max" Ns false;
    Flushes "flush_requests_per_second" "requests a second" PerSecond true;
    Flushes "flush_skipped" "share of requests skipped" Ratio false;
    Flushes "flush_p50_ns" "time of a request, p50" Ns false;
    Flushes "flush_p99_ns" "time of a request, p99" Ns false;
    Flushes "flush_max_ns" "time of a request, max" Ns false;
}

/// Figures by a measure's name.
pub type Figures = BTreeMap<&'static str, f64>;

/// Adds figures that exist.
pub(crate) fn put<const N: usize>(figures: &mut Figures, named: [(&'static str, Option<f64>); N]) {
    for (name, value) in named {
        debug_assert!(
            MEASURES.iter().any(|measure| measure.name == name),
            "{name}"
        );
        if let Some(value) = value {
            figures.insert(name, value);
        }
    }
}

fn p50(of: Distribution) -> f64 {
    of.p50 as f64
}

fn p99(of: Distribution) -> f64 {
    of.p99 as f64
}

fn max(of: Distribution) -> f64 {
    of.max as f64
}

/// One call of upkeep, seen or replayed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Call {
    pub(crate) cpu: u32,
    /// Tick on which it fired.
    pub(crate) tick: u64,
    /// Tick of the wheel's slot in which its timer was; the same where there was no timer of the wheel.
    pub(crate) slot: u64,
    pub(crate) length_ns: u64,
}

/// Number of distinct ticks, and how many CPUs fire on the tick of each call, as each of the CPUs sees it.
fn herds(calls: impl Iterator<Item = (u64, u32)>) -> (usize, Option<Distribution>) {
    let mut ticks: BTreeMap<u64, BTreeSet<u32>> = BTreeMap::new();
    for (tick, cpu) in calls {
        ticks.entry(tick).or_default().insert(cpu);
    }
    let sizes = ticks.values().map(BTreeSet::len);
    let seen = sizes.flat_map(|size| std::iter::repeat_n(size as u64, size));
    (ticks.len(), Distribution::of(seen))
}

/// Adds the figures of upkeep.
pub(crate) fn put_upkeep(figures: &mut Figures, calls: &[Call], cpus: usize, seconds: f64) {
    if calls.is_empty() {
        return;
    }
    let (instants, by_tick) = herds(calls.iter().map(|call| (call.tick, call.cpu)));
    let (_, by_slot) = herds(calls.iter().map(|call| (call.slot, call.cpu)));
    let lengths = Distribution::of(calls.iter().map(|call| call.length_ns));
    put(
        figures,
        [
            (
                "calls_per_cpu_second",
                Some(calls.len() as f64 / cpus as f64 / seconds),
            ),
            ("slot_herd_mean", by_slot.map(|it| it.mean)),
            ("slot_herd_max", by_slot.map(max)),
            ("herd_mean", by_tick.map(|it| it.mean)),
            ("herd_max", by_tick.map(max)),
            ("instants_per_second", Some(instants as f64 / seconds)),
            ("upkeep_mean_ns", lengths.map(|it| it.mean)),
            ("upkeep_p50_ns", lengths.map(p50)),
            ("upkeep_p99_ns", lengths.map(p99)),
            ("upkeep_max_ns", lengths.map(max)),
        ],
    );
}

/// The most pages of a hold, and the length of the longest, of each direction.
pub(crate) type LongestHolds = [(BurstKind, [Option<f64>; 2]); 2];

/// Adds the figures of bursts, frees and takes apart.
pub(crate) fn put_bursts(figures: &mut Figures, bursts_ns: &[(BurstKind, u64)], seconds: f64) {
    for (kind, names) in [
        (
            BurstKind::Drain,
            [
                "free_bursts_per_second",
                "free_burst_p50_ns",
                "free_burst_p99_ns",
                "free_burst_max_ns",
            ],
        ),
        (
            BurstKind::Refill,
            [
                "take_bursts_per_second",
                "take_burst_p50_ns",
                "take_burst_p99_ns",
                "take_burst_max_ns",
            ],
        ),
    ] {
        let of_kind = bursts_ns.iter().filter(|burst| burst.0 == kind);
        let lengths = Distribution::of(of_kind.map(|burst| burst.1));
        let values = [
            lengths.map(|it| it.samples as f64 / seconds),
            lengths.map(p50),
            lengths.map(p99),
            lengths.map(max),
        ];
        put(
            figures,
            std::array::from_fn::<_, 4, _>(|at| (names[at], values[at])),
        );
    }
}

/// Adds the figures of holds.
pub(crate) fn put_holds(figures: &mut Figures, longest: LongestHolds) {
    for (kind, [pages, time_ns]) in longest {
        let names = match kind {
            BurstKind::Drain => ["free_hold_pages_max", "free_hold_max_ns"],
            BurstKind::Refill => ["take_hold_pages_max", "take_hold_max_ns"],
        };
        put(figures, [(names[0], pages), (names[1], time_ns)]);
    }
}

/// Adds the figures of waits for the zone's lock; a wait of 0 is none.
pub(crate) fn put_waits(figures: &mut Figures, waits_ns: impl Iterator<Item = u64>, seconds: f64) {
    let waits = Distribution::of(waits_ns);
    put(
        figures,
        [
            (
                "zone_waits_per_second",
                Some(waits.map_or(0, |it| it.samples) as f64 / seconds),
            ),
            ("zone_wait_p99_ns", waits.map(p99)),
            ("zone_wait_max_ns", waits.map(max)),
        ],
    );
}

/// Adds the figures of flushes.
pub(crate) fn put_flushes(
    figures: &mut Figures,
    times_ns: Vec<u64>,
    skipped: Option<f64>,
    seconds: f64,
) {
    let Some(times) = Distribution::of(times_ns) else {
        return;
    };
    put(
        figures,
        [
            (
                "flush_requests_per_second",
                Some(times.samples as f64 / seconds),
            ),
            ("flush_skipped", skipped),
            ("flush_p50_ns", Some(p50(times))),
            ("flush_p99_ns", Some(p99(times))),
            ("flush_max_ns", Some(max(times))),
        ],
    );
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn herds_count_each_cpu_of_a_tick_once() {
        let call = |cpu, tick| Call {
            cpu,
            tick,
            slot: tick / 2,
            length_ns: 10,
        };
        let mut figures = Figures::new();
        let calls = [call(0, 5), call(1, 5), call(1, 5), call(2, 9)];
        put_upkeep(&mut figures, &calls, 3, 2.0);
        assert_eq!(figures["herd_max"], 2.0);
        assert_eq!(figures["herd_mean"], 5.0 / 3.0);
        // Slots 2 and 4.
        assert_eq!(figures["slot_herd_max"], 2.0);
        assert_eq!(figures["instants_per_second"], 1.0);
        assert_eq!(figures["calls_per_cpu_second"], 4.0 / 6.0);
    }

    #[test]
    fn names_are_given_once() {
        for measure in MEASURES {
            let same = MEASURES.iter().filter(|other| other.name == measure.name);
            assert_eq!(same.count(), 1, "{}", measure.name);
        }
    }
}
