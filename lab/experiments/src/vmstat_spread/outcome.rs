//! The results of a run of one variant with one seed.

use std::collections::{BTreeMap, BTreeSet};

use bursar_kernel::pages::{Cause, HoldFigures};
use bursar_kernel::upkeep::Firing;
use bursar_rig::timer::{TimerKind, tick_ns};

use super::parameters::Parameters;
use super::record::{self, Call, Part, Queuer};
use super::tasks::Done;
use crate::document::Metrics;
use crate::measure::interval::mean;
use crate::measure::{Distribution, Metric, Of, Timeline, Unit};
use crate::metrics::MetricInfo;
use crate::metrics::vmstat_spread::*;

/// Delay after which upkeep must have waited for its CPU to wake up: no run queue is as long.
const DEFERRED_NS: u64 = 20_000_000;

/// The machine, and the measured time.
#[derive(Clone, Copy, Debug)]
pub(super) struct Frame {
    pub(super) firing: Firing,
    pub(super) cpus: usize,
    pub(super) hz: u32,
    pub(super) span: (u64, u64),
    /// Least number of CPUs that share an instant.
    pub(super) cpus_per_instant: f64,
    /// Whether deferrable timers leave idle CPUs asleep.
    pub(super) defers: bool,
}

/// A call, and the moment when it was due or could begin.
#[derive(Clone, Copy, Debug)]
struct Fired {
    call: Call,
    at_ns: u64,
    /// Whether another rounded timer of its CPU had just expired.
    is_shared: bool,
    /// Whether its own timer may have woken its CPU.
    wakes: bool,
}

/// Measurements of one run.
pub(super) struct Outcome {
    frame: Frame,
    seed: u64,
    interval_ns: u64,
    /// By CPU, in the order of time.
    fired: Vec<Vec<Fired>>,
    idle: Vec<Call>,
    /// Wake-ups by other rounded timers, and by those of upkeep that was done early.
    others: u64,
    in_vain: u64,
    passes: f64,
    swapped: u64,
    refused: u64,
    holds: HoldFigures,
}

/// A time of a call, ns.
type TimeOf = fn(&Call) -> u64;

impl Outcome {
    pub(super) fn new(
        frame: Frame,
        parameters: &Parameters,
        parts: Vec<Part>,
        done: &[Done],
        holds: HoldFigures,
    ) -> Self {
        let is_inside = |at_ns: u64| (frame.span.0..frame.span.1).contains(&at_ns);
        let (mut fired, mut idle) = (Vec::new(), Vec::new());
        let (mut others, mut in_vain) = (0, 0);
        for Part {
            calls,
            others_ns,
            in_vain_ns,
        } in parts
        {
            let inside = |all: &[u64]| all.iter().filter(|&&at| is_inside(at)).count() as u64;
            others += inside(&others_ns);
            in_vain += inside(&in_vain_ns);
            let (entries, periodic): (Vec<Call>, Vec<Call>) = calls
                .into_iter()
                .filter(|call| is_inside(call.began_ns))
                .partition(|call| call.cause == record::Cause::Idle);
            idle.extend(entries);
            let of_cpu = periodic
                .into_iter()
                .map(|call| Fired::new(call, &frame, &others_ns));
            fired.push(of_cpu.collect());
        }
        let pass = parameters.pages_of_pass(frame.cpus) as f64;
        Self {
            frame,
            seed: parameters.seed,
            interval_ns: parameters.interval_ms * 1_000_000,
            fired,
            idle,
            others,
            in_vain,
            passes: done.iter().map(|done| done.pages as f64 / pass).sum(),
            swapped: done.iter().map(|done| done.swapped).sum(),
            refused: done.iter().map(|done| done.refused).sum(),
            holds,
        }
    }

    /// Returns the metrics for a document.
    pub(super) fn metrics(self) -> Metrics {
        let mut metrics = Metrics::default();
        self.push_refreshes(&mut metrics);
        self.push_herds(&mut metrics);
        self.push_periods(&mut metrics);
        self.push_wakeups(&mut metrics);
        self.push_waits(&mut metrics);
        metrics.figure(
            STRESS_OPS_PER_SECOND,
            self.seed,
            self.passes / self.seconds(),
        );
        metrics.count(PAGES_SWAPPED, self.swapped);
        metrics.count(PAGES_REFUSED, self.refused);
        metrics.push(HERD_TIMELINE.name, Metric::Timeline(self.timeline()));
        metrics
    }

    fn push_refreshes(&self, metrics: &mut Metrics) {
        let periodic: Vec<Call> = self.all_fired().map(|fired| fired.call).collect();
        let all = periodic.iter().chain(&self.idle);
        let refresh = Distribution::of(REFRESH.unit, all.map(Call::all_ns));
        let summary = refresh.summary();
        let cpu_seconds = self.frame.cpus as f64 * self.seconds();
        metrics.distribution(REFRESH, refresh);
        let parts: [(MetricInfo, TimeOf); 5] = [
            (REFRESH_PERIODIC, Call::all_ns),
            (REFRESH_FOLD, |call| call.fold_ns),
            (REFRESH_PAGES, |call| call.pages_ns),
            (REFRESH_LOCK_WAIT, |call| call.lock_wait_ns),
            (REFRESH_RUN_QUEUE_WAIT, |call| call.run_queue_ns),
        ];
        for (info, part) in parts {
            metrics.spread(info, periodic.iter().map(part));
        }
        metrics.spread(REFRESH_IDLE, self.idle.iter().map(Call::all_ns));
        let by_timer = periodic
            .iter()
            .filter(|call| call.cause == record::Cause::Periodic);
        let lateness = by_timer.map(|call| call.began_ns.saturating_sub(call.due.expires_ns));
        metrics.spread(START_LATENESS, lateness);
        for (info, value) in [
            (REFRESH_MEAN, summary.number(Of::Mean)),
            (REFRESH_P50, summary.number(Of::P50)),
            (REFRESH_P99, summary.number(Of::P99)),
            (
                REFRESH_SAMPLES_PER_CPU_SECOND,
                Some(summary.samples as f64 / cpu_seconds),
            ),
        ] {
            metrics.figure(info, self.seed, value);
        }
    }

    /// Adds how many CPUs' upkeep fired on a tick, as each of them sees it.
    fn push_herds(&self, metrics: &mut Metrics) {
        let mut ticks: BTreeMap<u64, BTreeSet<u32>> = BTreeMap::new();
        let tick_ns = tick_ns(self.frame.hz);
        for fired in self.all_fired() {
            let cpus = ticks.entry(fired.at_ns / tick_ns).or_default();
            cpus.insert(fired.call.cpu);
        }
        let as_seen = ticks
            .values()
            .flat_map(|cpus| cpus.iter().map(|_| cpus.len() as u64));
        let herd = Distribution::of(HERD.unit, as_seen);
        let summary = herd.summary();
        metrics.distribution(HERD, herd);
        metrics.figure(HERD_MEAN, self.seed, summary.number(Of::Mean));
        metrics.figure(HERD_MAX, self.seed, summary.number(Of::Max));
        metrics.figure(
            INSTANTS_PER_SECOND,
            self.seed,
            ticks.len() as f64 / self.seconds(),
        );
        metrics.figure(CPUS_PER_INSTANT, self.seed, self.frame.cpus_per_instant);
    }

    /// Adds the time from one firing of a CPU to its next, if the call queued itself again, and how far the firings
    /// have moved.
    fn push_periods(&self, metrics: &mut Metrics) {
        let mut period = Vec::new();
        let mut drifts = Vec::new();
        for of_cpu in &self.fired {
            let (mut moved_ns, mut periods) = (0.0, 0.0);
            for pair in of_cpu.windows(2) {
                let (one, next) = (pair[0], pair[1]);
                if next.call.due.queuer != Queuer::Itself {
                    continue;
                }
                let passed_ns = next.at_ns.saturating_sub(one.at_ns);
                period.push(passed_ns);
                moved_ns += passed_ns as f64 - self.interval_ns as f64;
                periods += 1.0;
            }
            if periods > 0.0 {
                drifts.push(moved_ns / periods);
            }
        }
        metrics.spread(PERIOD, period);
        let has_any = !drifts.is_empty();
        let drift = mean(&drifts);
        metrics.figure(DRIFT, self.seed, has_any.then_some(drift));
        // A shift that all CPUs have in common moves none of them against another.
        let squares: Vec<f64> = drifts.iter().map(|it| (it - drift).powi(2)).collect();
        let apart = has_any.then(|| mean(&squares).sqrt());
        metrics.figure(DRIFT_APART, self.seed, apart);
    }

    /// Adds the wake-ups that timers may cause: a busy CPU is not woken, but the timer cannot know that in advance.
    fn push_wakeups(&self, metrics: &mut Metrics) {
        let fired = self.all_fired().count() as u64;
        let shared = self.all_fired().filter(|fired| fired.is_shared).count() as u64;
        let own = self.all_fired().filter(|fired| fired.wakes).count() as u64;
        let wakeups = self.others + own + self.in_vain;
        let cpu_seconds = self.frame.cpus as f64 * self.seconds();
        metrics.share(WAKEUPS_SHARED, self.seed, shared, fired);
        metrics.figure(
            WAKEUPS_PER_CPU_SECOND,
            self.seed,
            wakeups as f64 / cpu_seconds,
        );
    }

    /// Adds waits for the lock of `Normal`: those of allocations and frees, and those of bulk frees by path.
    fn push_waits(&self, metrics: &mut Metrics) {
        let waits = Distribution::of_histogram(Unit::Ns, &self.holds.traffic_waited_ns);
        metrics.distribution(ZONE_LOCK_WAIT, waits);
        let decays = [
            DECAYS_CONTENDED,
            DECAYS_CONTENDED_WAIT,
            DECAYS_CONTENDED_MAX,
        ];
        let frees = [FREES_CONTENDED, FREES_CONTENDED_WAIT, FREES_CONTENDED_MAX];
        for (cause, infos) in [(Cause::Decay, decays), (Cause::Free, frees)] {
            let waited = self.holds.by_cause[cause as usize]
                .waited_ns
                .iter_recorded();
            let waited = waited.map(|it| (it.value_iterated_to(), it.count_at_value()));
            let contended: Vec<(u64, u64)> = waited.filter(|(wait_ns, _)| *wait_ns > 0).collect();
            let count: u64 = contended.iter().map(|(_, count)| count).sum();
            let all_ns: u64 = contended
                .iter()
                .map(|(wait_ns, count)| wait_ns * count)
                .sum();
            let longest_ns = contended.last().map_or(0, |(wait_ns, _)| *wait_ns);
            let values = [
                count as f64 / self.seconds(),
                all_ns as f64 / self.seconds(),
                longest_ns as f64,
            ];
            for (info, value) in infos.into_iter().zip(values) {
                metrics.figure(info, self.seed, value);
            }
        }
    }

    /// Returns the firings of the last second.
    fn timeline(&self) -> Timeline {
        let (start_ns, end_ns) = self.frame.span;
        let from_ns = start_ns.max(end_ns.saturating_sub(1_000_000_000));
        let points = self
            .all_fired()
            .filter(|fired| (from_ns..end_ns).contains(&fired.at_ns))
            .map(|fired| (fired.call.cpu, (fired.at_ns - from_ns) / 1_000));
        Timeline::of(self.seed, points.collect())
    }

    fn all_fired(&self) -> impl Iterator<Item = &Fired> {
        self.fired.iter().flatten()
    }

    fn seconds(&self) -> f64 {
        (self.frame.span.1 - self.frame.span.0) as f64 / 1e9
    }
}

impl Fired {
    fn new(call: Call, frame: &Frame, others_ns: &[u64]) -> Self {
        let due_ns = call.due.expires_ns;
        let was_deferred = call.began_ns.saturating_sub(due_ns) > DEFERRED_NS;
        let is_early = call.cause == record::Cause::Early;
        let at_ns = if is_early || was_deferred {
            call.began_ns
        } else {
            due_ns
        };
        let tick_ns = tick_ns(frame.hz);
        // In the same tick, or the one before: a deferred call begins when the other one has woken its CPU.
        let before = others_ns.partition_point(|other_ns| *other_ns <= at_ns);
        let last_ns = before.checked_sub(1).map(|place| others_ns[place]);
        let is_shared = is_early || last_ns.is_some_and(|last_ns| at_ns - last_ns < tick_ns);
        // A deferrable timer wakes no idle CPU, but for work that was due when it was queued.
        let is_deferrable = frame.firing.kind() == TimerKind::Deferrable && frame.defers;
        let wakes = !is_shared && (!is_deferrable || call.due.queuer == Queuer::Shepherd);
        Self {
            call,
            at_ns,
            is_shared,
            wakes,
        }
    }
}
