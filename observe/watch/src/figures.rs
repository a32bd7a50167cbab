//! Figures of a run: what tables show and verdicts are based on.

use std::collections::{BTreeMap, BTreeSet};

use serde::Serialize;

use crate::event::RSTAT;
use crate::seen::{
    Burst, BurstKind, Context, Flush, FlushFor, Hold, LockKind, ROOT, RefreshCaller, Seen, Stale,
    StatRead, Upkeep, Wait,
};

/// Summary of numbers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Distribution {
    /// Count of numbers.
    pub samples: u64,
    /// Mean.
    pub mean: f64,
    /// Median.
    pub p50: u64,
    /// 99th percentile.
    pub p99: u64,
    /// Largest.
    pub max: u64,
    /// Sum.
    pub sum: u64,
}

impl Distribution {
    /// 99th percentile, if there are enough numbers: of fewer than 100 it is the largest.
    #[must_use]
    pub fn tail(&self) -> Option<u64> {
        (self.samples >= 100).then_some(self.p99)
    }

    /// Summarises numbers. `None` if there are none.
    pub fn of(numbers: impl IntoIterator<Item = u64>) -> Option<Self> {
        let mut numbers: Vec<u64> = numbers.into_iter().collect();
        numbers.sort_unstable();
        let samples = numbers.len();
        // Smallest number that is no less than this share of all.
        let rank = |percent: usize| {
            numbers
                .get((samples * percent).div_ceil(100).max(1) - 1)
                .copied()
        };
        let sum = numbers
            .iter()
            .fold(0_u64, |sum, it| sum.saturating_add(*it));
        Some(Self {
            samples: samples as u64,
            mean: sum as f64 / samples as f64,
            p50: rank(50)?,
            p99: rank(99)?,
            max: *numbers.last()?,
            sum,
        })
    }
}

/// Numbers of one quantity, by powers of two.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Histogram {
    /// The quantity.
    pub name: &'static str,
    /// Powers of two, in order, each with the count of numbers below it and not below the one before. 1 has the zeros.
    pub octaves: Vec<(u64, u64)>,
}

impl Histogram {
    /// Counts numbers. `None` if there are none.
    fn of(name: &'static str, numbers: impl IntoIterator<Item = u64>) -> Option<Self> {
        let mut octaves: BTreeMap<u64, u64> = BTreeMap::new();
        for number in numbers {
            let below = 1_u64 << (u64::BITS - number.leading_zeros()).min(63);
            *octaves.entry(below).or_default() += 1;
        }
        (!octaves.is_empty()).then(|| Self {
            name,
            octaves: octaves.into_iter().collect(),
        })
    }
}

/// Figures of a run. A figure that this kernel or mode does not show is `None`.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Figures {
    /// Length of the run.
    pub seconds: f64,
    /// Calls of `vmstat_update`.
    pub upkeep: Option<UpkeepFigures>,
    /// Calls of `refresh_cpu_vm_stats()` itself, where the kernel permits probes.
    pub refresh_cpu_vm_stats: RefreshFigures,
    /// CPUs whose upkeep falls together.
    pub herd: Option<Herd>,
    /// Bursts, by direction.
    pub bursts: Vec<BurstFigures>,
    /// Work in which pages are freed, most pages first. Empty: it is not known.
    pub frees: Vec<FreeFigures>,
    /// Waits for spin locks, by lock.
    pub waits: Vec<WaitFigures>,
    /// Requests for statistics of cgroups.
    pub flushes: Option<FlushFigures>,
    /// Reads of `memory.stat` by the observation itself.
    pub reads: Option<ReadFigures>,
    /// Tasks that ask for statistics, most frequent first.
    pub readers: Vec<Reader>,
    /// Durations, ns.
    pub durations_ns: Vec<Histogram>,
}

/// Calls of `vmstat_update`.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct UpkeepFigures {
    /// Durations.
    pub duration_ns: Distribution,
    /// Durations of calls on a tick of their own.
    pub alone_ns: Option<Distribution>,
    /// Durations of calls that share a tick with another CPU's.
    pub together_ns: Option<Distribution>,
    /// Time from the timer to the call.
    pub start_delay_ns: Option<Distribution>,
    /// Ticks from the wheel's slot to the timer's expiry. An idle CPU's timer waits until the CPU wakes.
    pub late_ticks: Option<Distribution>,
    /// Calls without a timer that led to them: the shepherd's.
    pub without_timer: u64,
    /// Pages given back in a call. Deep mode only.
    pub pages: Option<Distribution>,
    /// Share of all CPUs' time.
    pub cpu_share: f64,
}

/// Calls of `refresh_cpu_vm_stats()` itself, with the cost of the probe at its end.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct RefreshFigures {
    /// Durations of calls by `vmstat_update`.
    pub periodic_ns: Option<Distribution>,
    /// Durations of calls before a CPU sleeps.
    pub idle_entry_ns: Option<Distribution>,
}

/// CPUs whose upkeep falls together.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Herd {
    /// Calls that a timer led to.
    pub calls: u64,
    /// Distinct ticks in a second for which timers were set, before the wheel rounds them.
    pub targets_per_s: Option<f64>,
    /// Distinct slots of the wheel in a second.
    pub slots_per_s: f64,
    /// Distinct ticks in a second at which timers expired.
    pub instants_per_s: f64,
    /// CPUs on one slot, as a call meets them on average.
    pub cpus_per_slot: f64,
    /// CPUs on one slot, at most.
    pub cpus_per_slot_max: u64,
    /// CPUs on one tick, as a call meets them on average.
    pub cpus_per_tick: f64,
    /// CPUs on one tick, at most.
    pub cpus_per_tick_max: u64,
    /// CPUs on one slot, as a call would meet them on average if as many calls came at random slots of the wheel.
    pub cpus_per_slot_random: f64,
}

/// Bursts of one direction.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct BurstFigures {
    /// Direction.
    pub kind: BurstKind,
    /// Pages in a burst.
    pub pages: Distribution,
    /// Durations from the first to the last page. The kernel's events make them longer.
    pub duration_ns: Distribution,
    /// Holds that the kernel reported.
    pub traced: u64,
    /// Bursts that were one hold of the lock.
    pub proven: u64,
    /// Bursts that were not.
    pub refuted: u64,
    /// Bursts of which nothing is known.
    pub unknown: u64,
    /// Durations of the holds that were reported or proven.
    pub hold_ns: Option<Distribution>,
}

/// Bursts of frees in one kind of work.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct FreeFigures {
    /// The work.
    pub context: Context,
    /// Bursts.
    pub bursts: u64,
    /// Pages of all these bursts.
    pub pages: u64,
    /// Pages of the largest burst.
    pub pages_max: u64,
    /// Time of all these bursts.
    pub sum_ns: u64,
}

/// Waits for one kind of lock.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct WaitFigures {
    /// Kind of lock.
    pub lock: LockKind,
    /// Durations.
    pub wait_ns: Distribution,
    /// Share of all CPUs' time.
    pub cpu_share: f64,
}

/// Requests for statistics of cgroups.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct FlushFigures {
    /// Requests and flushes.
    pub seen: u64,
    /// Requests that the kernel skipped. `None`: this kernel does not show requests.
    pub skipped: Option<u64>,
    /// Requests that always flush, as by the periodic flusher.
    pub forced: Option<u64>,
    /// Updates that were not folded when a request was skipped.
    pub skipped_pending: Option<Distribution>,
    /// Ages of the values that skipped requests got: times since the last flush of the cgroup or of one above it. Only where
    /// that flush was seen.
    pub skipped_age_ns: Option<Distribution>,
    /// Times of flushes for readers: waits for the lock, and holds.
    pub reader_ns: Option<Distribution>,
    /// Times of periodic and forced flushes.
    pub period_ns: Option<Distribution>,
    /// Times of flushes of cgroups that were removed. Nobody waits for these.
    pub removal_ns: Option<Distribution>,
    /// Waits for the lock, of flushes that waited.
    pub wait_ns: Option<Distribution>,
    /// Longest hold of each flush.
    pub hold_ns: Option<Distribution>,
}

/// Reads of one cgroup's `memory.stat`.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct ReadFigures {
    /// Number of the cgroup's directory.
    pub cgroup: u64,
    /// Path of the cgroup, if it was found.
    pub path: Option<String>,
    /// Durations, in which the reader may have waited for a CPU.
    pub duration_ns: Distribution,
    /// CPU times, with waits for spin locks.
    pub cpu_ns: Distribution,
    /// Reads that gave the same answer as before although usage had changed by more than 1 MiB.
    pub stale: u64,
    /// Longest time for which such an answer did not change.
    pub unchanged_ns_max: u64,
    /// Largest change of usage that such an answer did not show.
    pub moved_bytes_max: u64,
}

/// Tasks of one name that ask for statistics of a cgroup.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Reader {
    /// Name of the tasks. `None`: they had ended when names were looked up.
    pub task: Option<String>,
    /// Number of tasks.
    pub tasks: usize,
    /// Number of the cgroup's directory.
    pub cgroup: u64,
    /// Path of the cgroup, if it was found.
    pub path: Option<String>,
    /// Requests.
    pub requests: u64,
    /// Requests a second, of all these tasks.
    pub requests_per_s: f64,
    /// Requests that the kernel skipped. `None`: they are not shown.
    pub skipped: Option<u64>,
    /// Ages of the values that skipped requests got, as in [`FlushFigures::skipped_age_ns`].
    pub skipped_age_ns: Option<Distribution>,
    /// Longest wait for the lock. `None`: waits are not shown.
    pub wait_ns_max: Option<u64>,
}

impl Figures {
    /// Computes all figures.
    pub fn of(seen: &Seen) -> Self {
        let seconds = seen.duration_ns() as f64 / 1e9;
        let ages = ages(seen);
        Self {
            seconds,
            upkeep: upkeep(seen),
            refresh_cpu_vm_stats: refreshes(seen),
            herd: herd(seen),
            bursts: [BurstKind::Drain, BurstKind::Refill]
                .into_iter()
                .filter_map(|it| bursts(seen, it))
                .collect(),
            frees: frees(seen),
            waits: [LockKind::Zone, LockKind::Other]
                .into_iter()
                .filter_map(|it| waits(seen, it))
                .collect(),
            flushes: flushes(&seen.flushes, &ages),
            reads: reads(seen),
            readers: readers(seen, &ages),
            durations_ns: histograms(seen),
        }
    }
}

fn histograms(seen: &Seen) -> Vec<Histogram> {
    let bursts = |kind| {
        let of = seen.bursts.iter().filter(move |it| it.kind == kind);
        of.map(|it| it.end_ns.saturating_sub(it.start_ns))
    };
    let waits = seen.waits.iter().filter(|it| it.lock == LockKind::Zone);
    let flushes = flushes_for(&seen.flushes, FlushFor::Reader);
    let all = [
        Histogram::of("vmstat_update", seen.upkeep.iter().map(duration)),
        Histogram::of("burst of frees", bursts(BurstKind::Drain)),
        Histogram::of("burst of takes", bursts(BurstKind::Refill)),
        Histogram::of(
            "wait for a zone lock",
            waits.map(|it| it.end_ns.saturating_sub(it.start_ns)),
        ),
        Histogram::of("flush for a reader", flushes.map(Flush::time_ns)),
    ];
    all.into_iter().flatten().collect()
}

/// Share of all CPUs' time.
pub(crate) fn cpu_share(sum_ns: u64, seen: &Seen) -> f64 {
    let all = seen.duration_ns() as f64 * seen.machine.cpus.max(1) as f64;
    if all > 0.0 { sum_ns as f64 / all } else { 0.0 }
}

fn duration(upkeep: &Upkeep) -> u64 {
    upkeep.end_ns.saturating_sub(upkeep.start_ns)
}

fn upkeep(seen: &Seen) -> Option<UpkeepFigures> {
    let all = &seen.upkeep;
    let duration_ns = Distribution::of(all.iter().map(duration))?;
    let by_tick = by_jiffy(all, |it| it.expire_jiffy);
    let is_shared = |upkeep: &&Upkeep| Some(by_tick.get(&upkeep.expire_jiffy?)?.len() > 1);
    let of = |shared| {
        Distribution::of(
            all.iter()
                .filter(|it| is_shared(it) == Some(shared))
                .map(duration),
        )
    };
    let delay = |it: &Upkeep| Some(it.start_ns.saturating_sub(it.expire_ns?));
    let late = |it: &Upkeep| Some(it.expire_jiffy?.saturating_sub(it.slot_jiffy?));
    Some(UpkeepFigures {
        alone_ns: of(false),
        together_ns: of(true),
        start_delay_ns: Distribution::of(all.iter().filter_map(delay)),
        late_ticks: Distribution::of(all.iter().filter_map(late)),
        without_timer: all.iter().filter(|it| it.expire_ns.is_none()).count() as u64,
        pages: Distribution::of(all.iter().filter_map(|it| it.pages)),
        cpu_share: cpu_share(duration_ns.sum, seen),
        duration_ns,
    })
}

fn refreshes(seen: &Seen) -> RefreshFigures {
    let of = |caller| {
        let calls = seen.refreshes.iter().filter(|it| it.caller == caller);
        Distribution::of(calls.map(|it| it.end_ns.saturating_sub(it.start_ns)))
    };
    RefreshFigures {
        periodic_ns: of(RefreshCaller::Periodic),
        idle_entry_ns: of(RefreshCaller::IdleEntry),
    }
}

/// CPUs at each jiffy.
fn by_jiffy(
    all: &[Upkeep],
    jiffy: impl Fn(&Upkeep) -> Option<u64>,
) -> BTreeMap<u64, BTreeSet<u32>> {
    let mut found: BTreeMap<u64, BTreeSet<u32>> = BTreeMap::new();
    for upkeep in all {
        if let Some(jiffy) = jiffy(upkeep) {
            found.entry(jiffy).or_default().insert(upkeep.cpu);
        }
    }
    found
}

fn herd(seen: &Seen) -> Option<Herd> {
    let all = &seen.upkeep;
    let calls = all.iter().filter(|it| it.expire_jiffy.is_some()).count() as u64;
    let seconds = seen.duration_ns() as f64 / 1e9;
    let hz = f64::from(seen.machine.hz?);
    if calls == 0 || seconds <= 0.0 {
        return None;
    }
    let met = |groups: &BTreeMap<u64, BTreeSet<u32>>| {
        let sizes = || groups.values().map(BTreeSet::len);
        let squares: usize = sizes().map(|size| size * size).sum();
        let most = sizes().max().unwrap_or(0) as u64;
        (squares as f64 / sizes().sum::<usize>().max(1) as f64, most)
    };
    let slots = by_jiffy(all, |it| {
        it.slot_jiffy.filter(|_| it.expire_jiffy.is_some())
    });
    let ticks = by_jiffy(all, |it| it.expire_jiffy);
    let targets = by_jiffy(all, |it| it.target_jiffy);
    let [
        (cpus_per_slot, cpus_per_slot_max),
        (cpus_per_tick, cpus_per_tick_max),
    ] = [met(&slots), met(&ticks)];
    let interval = f64::from(seen.machine.interval_s.unwrap_or(1).max(1));
    // Other CPUs that call in an interval. Those that sleep do not.
    let most = seen.machine.cpus.saturating_sub(1) as f64;
    let others = (calls as f64 / seconds * interval - 1.0).clamp(0.0, most);
    Some(Herd {
        calls,
        targets_per_s: (!targets.is_empty()).then(|| targets.len() as f64 / seconds),
        slots_per_s: slots.len() as f64 / seconds,
        instants_per_s: ticks.len() as f64 / seconds,
        cpus_per_slot,
        cpus_per_slot_max,
        cpus_per_tick,
        cpus_per_tick_max,
        cpus_per_slot_random: 1.0 + others * grain(hz * interval) / (hz * interval),
    })
}

/// Ticks to which the kernel's timer wheel rounds a timer that is so many ticks ahead: levels of 64 slots, each eight times as
/// coarse as the one before. The lab's `wheel_granularity` says the same, and this crate does without the lab.
fn grain(ahead: f64) -> f64 {
    let (mut grain, mut reach) = (1.0, 63.0);
    while reach <= ahead {
        (grain, reach) = (grain * 8.0, reach * 8.0);
    }
    grain
}

fn bursts(seen: &Seen, kind: BurstKind) -> Option<BurstFigures> {
    let all = || seen.bursts.iter().filter(move |burst| burst.kind == kind);
    let duration = |burst: &Burst| burst.end_ns.saturating_sub(burst.start_ns);
    let with = |hold: Hold| all().filter(move |burst| burst.hold == hold);
    Some(BurstFigures {
        kind,
        pages: Distribution::of(all().map(|burst| burst.pages))?,
        duration_ns: Distribution::of(all().map(duration))?,
        traced: with(Hold::Traced).count() as u64,
        proven: with(Hold::Proven).count() as u64,
        refuted: with(Hold::Refuted).count() as u64,
        unknown: with(Hold::Unknown).count() as u64,
        hold_ns: Distribution::of(with(Hold::Traced).chain(with(Hold::Proven)).map(duration)),
    })
}

fn frees(seen: &Seen) -> Vec<FreeFigures> {
    let mut found: BTreeMap<Context, FreeFigures> = BTreeMap::new();
    for burst in seen.bursts.iter().filter(|it| it.kind == BurstKind::Drain) {
        let Some(context) = burst.context else {
            return Vec::new();
        };
        let free = found.entry(context).or_insert(FreeFigures {
            context,
            bursts: 0,
            pages: 0,
            pages_max: 0,
            sum_ns: 0,
        });
        free.bursts += 1;
        free.pages = free.pages.saturating_add(burst.pages);
        free.pages_max = free.pages_max.max(burst.pages);
        let time_ns = burst.end_ns.saturating_sub(burst.start_ns);
        free.sum_ns = free.sum_ns.saturating_add(time_ns);
    }
    let mut found: Vec<_> = found.into_values().collect();
    found.sort_by_key(|it| std::cmp::Reverse(it.pages));
    found
}

/// Waits for all spin locks together, as those for others.
pub(crate) fn all_waits(seen: &Seen) -> Option<WaitFigures> {
    waits_of(seen, LockKind::Other, |_| true)
}

fn waits(seen: &Seen, lock: LockKind) -> Option<WaitFigures> {
    waits_of(seen, lock, |wait| wait.lock == lock)
}

fn waits_of(seen: &Seen, lock: LockKind, are: impl Fn(&Wait) -> bool) -> Option<WaitFigures> {
    let all = seen.waits.iter().filter(|wait| are(wait));
    let wait_ns = Distribution::of(all.map(|wait| wait.end_ns.saturating_sub(wait.start_ns)))?;
    Some(WaitFigures {
        lock,
        cpu_share: cpu_share(wait_ns.sum, seen),
        wait_ns,
    })
}

/// Ages of the values that each skipped request got. `None` for the other requests, and where no flush of the cgroup or of one
/// above it was seen before.
fn ages(seen: &Seen) -> Vec<Option<u64>> {
    let ids: BTreeMap<&str, u64> = (seen.cgroups.iter())
        .map(|it| (it.path.as_str(), it.id))
        .collect();
    let paths: BTreeMap<u64, &str> = (seen.cgroups.iter())
        .map(|it| (it.id, it.path.as_str()))
        .collect();
    // A path is below all of its beginnings that end before a slash.
    let above = |cgroup: u64| {
        let path = paths.get(&cgroup).copied().unwrap_or_default();
        let ends = path.match_indices('/').map(|(at, _)| at);
        ends.filter_map(|at| ids.get(if at == 0 { "/" } else { &path[..at] }).copied())
            .chain([cgroup, ROOT])
    };
    let mut flushed: BTreeMap<u64, u64> = BTreeMap::new();
    let age = |flush: &Flush| {
        if flush.skipped != Some(true) {
            let end = flushed.entry(flush.cgroup).or_default();
            *end = flush.end_ns.max(*end);
            return None;
        }
        let ended = above(flush.cgroup).filter_map(|id| flushed.get(&id));
        let last = ended.filter(|end| **end <= flush.start_ns).max()?;
        Some(flush.start_ns - last)
    };
    seen.flushes.iter().map(age).collect()
}

fn flushes(all: &[Flush], ages: &[Option<u64>]) -> Option<FlushFigures> {
    if all.is_empty() {
        return None;
    }
    let requests = || all.iter().filter(|it| it.skipped.is_some());
    let is_shown = requests().next().is_some();
    let count = |is: fn(&&Flush) -> bool| is_shown.then(|| requests().filter(is).count() as u64);
    let flushed = all.iter().filter(|it| it.holds > 0);
    let times = |of| Distribution::of(flushes_for(all, of).map(Flush::time_ns));
    let skipped = all.iter().filter(|it| it.skipped == Some(true));
    Some(FlushFigures {
        seen: all.len() as u64,
        skipped: count(|it| it.skipped == Some(true)),
        forced: count(|it| it.forced == Some(true)),
        skipped_pending: Distribution::of(skipped.filter_map(|it| u64::try_from(it.pending?).ok())),
        skipped_age_ns: Distribution::of(ages.iter().copied().flatten()),
        reader_ns: times(FlushFor::Reader),
        period_ns: times(FlushFor::Period),
        removal_ns: times(FlushFor::Removal),
        wait_ns: Distribution::of(all.iter().map(|it| it.wait_ns).filter(|wait| *wait > 0)),
        hold_ns: Distribution::of(flushed.filter_map(|it| it.held_ns_max)),
    })
}

/// Flushes that were done for this beneficiary.
pub(crate) fn flushes_for(all: &[Flush], of: FlushFor) -> impl Iterator<Item = &Flush> {
    let done = all.iter().filter(|it| it.holds > 0);
    done.filter(move |it| it.beneficiary() == of)
}

fn reads(seen: &Seen) -> Option<ReadFigures> {
    let all = || seen.reads.iter();
    let cgroup = all().next()?.cgroup;
    let stale = || all().filter_map(|it| it.stale);
    let most = |of: fn(&Stale) -> u64| stale().map(|it| of(&it)).max().unwrap_or(0);
    let duration = |it: &StatRead| it.end_ns.saturating_sub(it.start_ns);
    let path = seen.cgroups.iter().find(|it| it.id == cgroup);
    Some(ReadFigures {
        cgroup,
        path: path.map(|it| it.path.clone()),
        duration_ns: Distribution::of(all().map(duration))?,
        cpu_ns: Distribution::of(all().map(|it| it.cpu_ns))?,
        stale: stale().count() as u64,
        unchanged_ns_max: most(|it| it.unchanged_ns),
        moved_bytes_max: most(|it| it.moved_bytes),
    })
}

fn readers(seen: &Seen, ages: &[Option<u64>]) -> Vec<Reader> {
    let seconds = seen.duration_ns() as f64 / 1e9;
    let names: BTreeMap<i32, &String> = seen
        .tasks
        .iter()
        .map(|task| (task.pid, &task.name))
        .collect();
    let mut readers = BTreeMap::new();
    let flushes = seen.flushes.iter().zip(ages);
    for (flush, age_ns) in flushes.filter(|(it, _)| it.beneficiary() == FlushFor::Reader) {
        let task = names.get(&flush.pid).copied();
        let (reader, pids, reader_ages) =
            readers.entry((task, flush.cgroup)).or_insert_with(|| {
                let reader = Reader {
                    task: task.cloned(),
                    tasks: 0,
                    cgroup: flush.cgroup,
                    path: seen
                        .cgroups
                        .iter()
                        .find(|it| it.id == flush.cgroup)
                        .map(|it| it.path.clone()),
                    requests: 0,
                    requests_per_s: 0.0,
                    skipped: None,
                    skipped_age_ns: None,
                    wait_ns_max: (!seen.loses(RSTAT)).then_some(0),
                };
                (reader, BTreeSet::new(), Vec::new())
            });
        pids.insert(flush.pid);
        reader.tasks = pids.len();
        reader.requests += 1;
        if let Some(is_skipped) = flush.skipped {
            *reader.skipped.get_or_insert(0) += u64::from(is_skipped);
        }
        reader_ages.extend(*age_ns);
        let wait_ns_max = reader.wait_ns_max;
        reader.wait_ns_max = wait_ns_max.map(|most| most.max(flush.wait_ns));
    }
    let finish = |(reader, _, ages): (Reader, BTreeSet<i32>, Vec<u64>)| Reader {
        requests_per_s: reader.requests as f64 / seconds.max(f64::MIN_POSITIVE),
        skipped_age_ns: Distribution::of(ages),
        ..reader
    };
    let mut readers: Vec<_> = readers.into_values().map(finish).collect();
    readers.sort_by_key(|reader| std::cmp::Reverse(reader.requests));
    readers
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::seen::{Cgroup, Machine};

    #[test]
    fn percentiles_are_numbers_that_were_seen() {
        let of = |numbers: &[u64]| Distribution::of(numbers.iter().copied());
        assert_eq!(of(&[]), None);
        let all: Vec<u64> = (1..=200).rev().collect();
        let all = of(&all).expect("numbers");
        assert_eq!(
            (all.p50, all.p99, all.max, all.mean),
            (100, 198, 200, 100.5)
        );
        assert_eq!(of(&[7]).map(|it| (it.p50, it.p99)), Some((7, 7)));
    }

    #[test]
    fn histograms_count_by_powers_of_two() {
        let of = |numbers: &[u64]| Histogram::of("", numbers.iter().copied());
        assert_eq!(of(&[]), None);
        let octaves = of(&[0, 1, 2, 3, 1023, 1024, u64::MAX]).map(|it| it.octaves);
        let expected = vec![(1, 1), (2, 1), (4, 2), (1024, 1), (2048, 1), (1 << 63, 1)];
        assert_eq!(octaves, Some(expected));
    }

    #[test]
    fn the_wheel_is_coarser_for_timers_that_are_further_ahead() {
        let levels = [62, 63, 100, 250, 503, 504, 1_000, 4_031, 4_032, 10_000];
        let grains = levels.map(|it| grain(f64::from(it)));
        let expected = [1.0, 8.0, 8.0, 8.0, 8.0, 64.0, 64.0, 64.0, 512.0, 512.0];
        assert_eq!(grains, expected);
    }

    fn at(cpu: u32, target: u64, slot: u64, tick: u64, took: u64) -> Upkeep {
        Upkeep {
            cpu,
            target_jiffy: Some(target),
            slot_jiffy: Some(slot),
            expire_jiffy: Some(tick),
            expire_ns: Some(1000),
            start_ns: 1500,
            end_ns: 1500 + took,
            pages: None,
        }
    }

    #[test]
    fn a_herd_is_told_by_slots_and_by_ticks() {
        let seen = Seen {
            machine: Machine {
                cpus: 3,
                hz: Some(250),
                ..Machine::default()
            },
            end_ns: 2_000_000_000,
            upkeep: vec![
                at(0, 245, 248, 248, 10),
                at(1, 247, 248, 248, 20),
                at(2, 241, 248, 250, 30),
                at(0, 495, 496, 496, 40),
            ],
            ..Seen::default()
        };
        let herd = herd(&seen).expect("a herd");
        assert_eq!(
            (herd.calls, herd.cpus_per_slot_max, herd.cpus_per_tick_max),
            (4, 3, 2)
        );
        assert_eq!(
            (herd.slots_per_s, herd.instants_per_s, herd.targets_per_s),
            (1.0, 1.5, Some(2.0))
        );
        // Three calls meet three CPUs on their slot, and one meets itself.
        assert_eq!(herd.cpus_per_slot, 2.5);
        assert_eq!(herd.cpus_per_tick, 1.5);
        // Two calls a second: one other CPU, and slots of 8 ticks.
        assert_eq!(herd.cpus_per_slot_random, 1.032);
        let upkeep = upkeep(&seen).expect("calls");
        assert_eq!(upkeep.together_ns.map(|it| it.max), Some(20));
        assert_eq!(upkeep.alone_ns.map(|it| it.samples), Some(2));
        assert_eq!(upkeep.late_ticks.map(|it| it.max), Some(2));
        assert_eq!(upkeep.start_delay_ns.map(|it| it.p50), Some(500));
    }

    #[test]
    fn the_age_of_an_answer_is_that_of_the_last_flush_at_or_above_its_cgroup() {
        let flush = |cgroup, skipped, end_ns| Flush {
            cgroup,
            skipped: Some(skipped),
            start_ns: end_ns - 1,
            end_ns,
            ..Flush::default()
        };
        let cgroup = |id, path: &str| Cgroup {
            id,
            path: path.to_owned(),
        };
        let seen = Seen {
            end_ns: 2_000_000_000,
            flushes: vec![
                // Nothing is known yet.
                flush(7, true, 50),
                flush(5, false, 100),
                flush(7, true, 201),
                // A flush beside it, with a longer name, does not count.
                flush(6, false, 300),
                flush(7, true, 301),
                flush(ROOT, false, 400),
                flush(7, true, 501),
            ],
            cgroups: vec![
                cgroup(5, "/web"),
                cgroup(6, "/web-2"),
                cgroup(7, "/web/a/b"),
            ],
            ..Seen::default()
        };
        assert_eq!(
            ages(&seen),
            [None, None, Some(100), None, Some(200), None, Some(100)]
        );
        let figures = Figures::of(&seen);
        let reader = figures.readers.iter().find(|it| it.cgroup == 7);
        let reader = reader.expect("a reader");
        assert_eq!((reader.requests, reader.requests_per_s), (4, 2.0));
        assert_eq!(reader.skipped_age_ns.map(|it| it.max), Some(200));
    }

    #[test]
    fn the_periodic_flusher_is_no_reader() {
        let flush = |pid, forced, skipped| Flush {
            pid,
            forced: Some(forced),
            skipped: Some(skipped),
            pending: Some(10),
            ..Flush::default()
        };
        let flushes = vec![
            flush(1, true, false),
            flush(2, false, true),
            flush(2, false, false),
            flush(3, false, false),
        ];
        let seen = Seen {
            flushes,
            ..Seen::default()
        };
        let figures = Figures::of(&seen);
        let readers: Vec<_> = figures
            .readers
            .iter()
            .map(|it| (it.tasks, it.requests, it.skipped))
            .collect();
        assert_eq!(readers, [(2, 3, Some(1))]);
        let flushes = figures.flushes.expect("flushes");
        assert_eq!(
            (flushes.seen, flushes.skipped, flushes.forced),
            (4, Some(1), Some(1))
        );
    }
}
