//! The measures that are compared.

use std::collections::BTreeMap;

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

/// Values of one quantity, for mean and quantiles.
#[derive(Clone, Debug, Default)]
pub(crate) struct Values(Vec<u64>);

impl FromIterator<u64> for Values {
    fn from_iter<I: IntoIterator<Item = u64>>(values: I) -> Self {
        let mut values: Vec<u64> = values.into_iter().collect();
        values.sort_unstable();
        Self(values)
    }
}

impl Values {
    pub(crate) fn len(&self) -> usize {
        self.0.len()
    }

    pub(crate) fn mean(&self) -> Option<f64> {
        let sum: f64 = self.0.iter().map(|value| *value as f64).sum();
        (!self.0.is_empty()).then(|| sum / self.0.len() as f64)
    }

    /// The least value that so many percent do not exceed.
    pub(crate) fn percentile(&self, percent: usize) -> Option<f64> {
        let rank = (self.0.len() * percent).div_ceil(100);
        self.0
            .get(rank.saturating_sub(1))
            .map(|value| *value as f64)
    }

    pub(crate) fn max(&self) -> Option<f64> {
        self.0.last().map(|value| *value as f64)
    }
}

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

/// CPUs that fire at the same time.
struct Herds {
    /// Size of the herd of each call and its tick, as each of the CPUs sees it.
    sizes: Values,
    /// Number of distinct ticks.
    instants: usize,
}

impl Herds {
    fn of(calls: impl Iterator<Item = (u64, u32)>) -> Self {
        let mut ticks: BTreeMap<u64, Vec<u32>> = BTreeMap::new();
        for (tick, cpu) in calls {
            ticks.entry(tick).or_default().push(cpu);
        }
        let size = |cpus: &mut Vec<u32>| {
            cpus.sort_unstable();
            cpus.dedup();
            cpus.len()
        };
        let sizes = ticks.values_mut().map(size).collect::<Vec<_>>();
        Self {
            instants: sizes.len(),
            sizes: (sizes.into_iter())
                .flat_map(|size| std::iter::repeat_n(size as u64, size))
                .collect(),
        }
    }
}

/// Adds the figures of upkeep.
pub(crate) fn put_upkeep(figures: &mut Figures, calls: &[Call], cpus: usize, seconds: f64) {
    if calls.is_empty() {
        return;
    }
    let by_tick = Herds::of(calls.iter().map(|call| (call.tick, call.cpu)));
    let by_slot = Herds::of(calls.iter().map(|call| (call.slot, call.cpu)));
    let lengths: Values = calls.iter().map(|call| call.length_ns).collect();
    put(
        figures,
        [
            (
                "calls_per_cpu_second",
                Some(calls.len() as f64 / cpus as f64 / seconds),
            ),
            ("slot_herd_mean", by_slot.sizes.mean()),
            ("slot_herd_max", by_slot.sizes.max()),
            ("herd_mean", by_tick.sizes.mean()),
            ("herd_max", by_tick.sizes.max()),
            (
                "instants_per_second",
                Some(by_tick.instants as f64 / seconds),
            ),
            ("upkeep_mean_ns", lengths.mean()),
            ("upkeep_p50_ns", lengths.percentile(50)),
            ("upkeep_p99_ns", lengths.percentile(99)),
            ("upkeep_max_ns", lengths.max()),
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
        let lengths: Values = of_kind.map(|burst| burst.1).collect();
        let count = lengths.len();
        let values = [
            (count > 0).then_some(count as f64 / seconds),
            lengths.percentile(50),
            lengths.percentile(99),
            lengths.max(),
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
pub(crate) fn put_waits(figures: &mut Figures, waits_ns: Values, seconds: f64) {
    put(
        figures,
        [
            (
                "zone_waits_per_second",
                Some(waits_ns.len() as f64 / seconds),
            ),
            ("zone_wait_p99_ns", waits_ns.percentile(99)),
            ("zone_wait_max_ns", waits_ns.max()),
        ],
    );
}

/// Adds the figures of flushes.
pub(crate) fn put_flushes(
    figures: &mut Figures,
    times_ns: &Values,
    skipped: Option<f64>,
    seconds: f64,
) {
    if times_ns.len() == 0 {
        return;
    }
    put(
        figures,
        [
            (
                "flush_requests_per_second",
                Some(times_ns.len() as f64 / seconds),
            ),
            ("flush_skipped", skipped),
            ("flush_p50_ns", times_ns.percentile(50)),
            ("flush_p99_ns", times_ns.percentile(99)),
            ("flush_max_ns", times_ns.max()),
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
    fn percentiles_are_values() {
        let values: Values = (1..=200).collect();
        assert_eq!(values.percentile(50), Some(100.0));
        assert_eq!(values.percentile(99), Some(198.0));
        assert_eq!(values.max(), Some(200.0));
        assert_eq!(Values::default().percentile(99), None);
    }

    #[test]
    fn names_are_given_once() {
        for measure in MEASURES {
            let same = MEASURES.iter().filter(|other| other.name == measure.name);
            assert_eq!(same.count(), 1, "{}", measure.name);
        }
    }
}
