//! The load that a recording shows. Times are nanoseconds since the recording's beginning, and may be before it.

use std::collections::BTreeMap;
use std::fmt;

use bursar_rig::timer::tick_ns;
use bursar_watch::event::{LATENESS, REQUESTS, RSTAT, TARGETS, WAITS};
use bursar_watch::seen::{BurstKind, Flush, Hold, LockKind, Seen, Upkeep, Wait};

use crate::clock::{Clock, repeat_ticks};
use crate::measure::{MEASURES, Measure, Part};
use crate::policy::Stock;
use bursar_experiments::measure::Unit;

/// Greatest number of CPUs of a simulated machine.
const CPUS_MAX: u32 = 4_096;
/// Longest replay.
const DURATION_NS_MAX: u64 = 300_000_000_000;
/// Greatest number of bursts, and of flushes, that are replayed.
const EVENTS_MAX: usize = 60_000;
/// Greatest number of pages of a burst.
const PAGES_MAX: u64 = 1 << 18;
/// Greatest number of pages of all bursts together.
const ALL_PAGES_MAX: u64 = 1 << 23;
/// Greatest number of intervals of all CPUs together.
const INTERVALS_MAX: u64 = 1 << 20;
/// Longest time of a call without pages that is believed.
const CALL_NS_MAX: u64 = 1_000_000_000;
/// Longest interval of upkeep: a simulated clock ends after 78 hours, and the warm-up takes four intervals.
const INTERVAL_MS_MAX: u64 = 3_600_000;
/// Longest time of a page that is believed.
const PAGE_NS_MAX: u64 = 10_000;
/// Interval of upkeep where the kernel does not say.
const INTERVAL_S: u32 = 1;
/// Greatest number of calls of upkeep that are looked at.
const CALLS_MAX: usize = 200_000;
/// Greatest number of bursts within a call that are looked at.
const BURSTS_OF_CALL_MAX: usize = 2_048;
/// Greatest number of groups that are flushed; requests for further ones are for the root.
const GROUPS_MAX: usize = 1_000;
/// Ticks of lateness above which a timer had waited for its CPU to wake up.
const DEFERRED_TICKS: u64 = 2;

/// Reason why a recording cannot be replayed.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum LoadError {
    /// It has nothing that could be replayed.
    Empty,
    /// The kernel's `HZ` is not known.
    UnknownHz,
    /// Its interval of upkeep is too long to be simulated.
    LongInterval {
        /// The interval, milliseconds.
        interval_ms: u64,
    },
    /// It is of more CPUs than a simulated machine has.
    TooManyCpus {
        /// The CPUs.
        cpus: u32,
    },
}

impl fmt::Display for LoadError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Empty => f.write_str("it has no upkeep, no bursts and no flushes"),
            Self::UnknownHz => {
                f.write_str("it does not say how many ticks a second the kernel has")
            }
            Self::LongInterval { interval_ms } => write!(
                f,
                "its interval of upkeep (vm.stat_interval) is {interval_ms} ms; at most {INTERVAL_MS_MAX} can be replayed"
            ),
            Self::TooManyCpus { cpus } => write!(
                f,
                "it is of {cpus} CPUs, and a simulated machine has at most {CPUS_MAX}"
            ),
        }
    }
}

impl std::error::Error for LoadError {}

/// A stretch of time: its beginning, and its end, which is outside.
pub(crate) type Stretch = (i64, i64);

/// Pages to be moved on a CPU.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Move {
    pub(crate) at_ns: i64,
    pub(crate) kind: BurstKind,
    pub(crate) pages: u32,
}

/// A request to flush.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Request {
    pub(crate) at_ns: i64,
    pub(crate) cpu: u32,
    /// Index of its group in [`Load::groups`].
    pub(crate) group: usize,
    pub(crate) is_forced: bool,
    /// Updates that were pending, if they were recorded.
    pub(crate) pending: Option<u64>,
    /// Whether nothing was flushed.
    pub(crate) is_skipped: bool,
}

/// The load of a CPU.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct OfCpu {
    /// Stretches in which the CPU changes counters.
    pub(crate) active: Vec<Stretch>,
    /// Moments at which it has changed counters that are folded before its upkeep runs.
    pub(crate) in_vain_ns: Vec<i64>,
    /// Stretches in which it is idle, and a deferrable timer waits.
    pub(crate) asleep: Vec<Stretch>,
    /// Moments at which pages become due to be given back by upkeep, and how many.
    pub(crate) due_pages: Vec<(i64, u32)>,
    pub(crate) moves: Vec<Move>,
}

/// The work of a call besides pages.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Fold {
    /// The time of a call that gave no pages back: their median.
    Fixed {
        time_ns: u64,
        /// Whether most calls were such.
        is_median: bool,
    },
    /// Pages are not known, so calls last as long as the recorded ones did, one after the other.
    Recorded(Vec<u64>),
}

/// A load to be replayed.
#[derive(Clone, Debug)]
pub struct Load {
    pub(crate) hz: u32,
    pub(crate) interval_ns: u64,
    pub(crate) duration_ns: u64,
    /// Length of the beginning in which bursts and flushes are replayed.
    pub(crate) events_ns: u64,
    /// Phase of the ticks at the beginning.
    pub(crate) phase_ns: u64,
    pub(crate) cpus: Vec<OfCpu>,
    pub(crate) fold: Fold,
    pub(crate) batch: u32,
    pub(crate) zone_pages: u64,
    /// Time of a page under the zone's lock as seen, nanoseconds.
    pub(crate) page_ns: Option<u64>,
    /// Parents of the groups that are flushed; the first is the root.
    pub(crate) groups: Vec<Option<usize>>,
    pub(crate) requests: Vec<Request>,
    pub(crate) seen: Window,
    stock: Stock,
    unknown: Vec<String>,
}

/// The records that the figures as seen are computed from: those within the replayed time.
#[derive(Clone, Debug, Default)]
pub(crate) struct Window {
    pub(crate) clock: Option<Clock>,
    pub(crate) upkeeps: Vec<Upkeep>,
    /// Directions and times of bursts outside upkeep.
    pub(crate) bursts_ns: Vec<(BurstKind, u64)>,
    /// Directions, pages and times of bursts that were one hold for certain.
    pub(crate) holds: Vec<(BurstKind, u64, u64)>,
    pub(crate) zone_waits: Vec<Wait>,
    pub(crate) flushes: Vec<Flush>,
    pub(crate) has_zone_waits: bool,
    pub(crate) has_bursts: bool,
}

impl Load {
    /// Makes the load of a recording.
    ///
    /// # Errors
    /// [`LoadError`] says why it cannot be replayed.
    pub fn of(recording: &Seen) -> Result<Self, LoadError> {
        let mut recording = recording.clone();
        recording.sort();
        recording.upkeep.truncate(CALLS_MAX);
        let recording = &recording;
        let machine = &recording.machine;
        if recording.records() == 0 {
            return Err(LoadError::Empty);
        }
        let hz = machine.hz.ok_or(LoadError::UnknownHz)?;
        let cpus = cpus(recording);
        if cpus > CPUS_MAX {
            return Err(LoadError::TooManyCpus { cpus });
        }
        let start_ns = recording.start_ns;
        let interval_s = machine.interval_s.unwrap_or(INTERVAL_S).max(1);
        let interval_ms = u64::from(interval_s) * 1_000;
        if interval_ms > INTERVAL_MS_MAX {
            return Err(LoadError::LongInterval { interval_ms });
        }
        let interval_ns = interval_ms * 1_000_000;
        let all_intervals_ns = interval_ns.saturating_mul((INTERVALS_MAX / u64::from(cpus)).max(1));
        let duration_ns = recording
            .duration_ns()
            .min(all_intervals_ns)
            .clamp(1, DURATION_NS_MAX);
        let events_ns = events_ns(recording, duration_ns);
        let clock = Clock::of(&recording.upkeep, hz);
        let zone = machine.zones.iter().max_by_key(|zone| zone.managed_pages);
        let within = |at_ns: u64, length_ns: u64| {
            (start_ns..start_ns.saturating_add(length_ns)).contains(&at_ns)
        };
        let seen = Window::of(
            recording,
            clock,
            |at_ns| within(at_ns, duration_ns),
            |at_ns| within(at_ns, events_ns),
        );
        let mut load = Self {
            hz,
            interval_ns,
            duration_ns,
            events_ns,
            phase_ns: clock.map_or(0, |clock| clock.phase_ns(start_ns, hz)),
            cpus: vec![OfCpu::default(); cpus as usize],
            fold: fold(recording),
            batch: zone.map_or(63, |zone| zone.pcp_batch.clamp(1, 1 << 12)),
            zone_pages: zone.map_or(1 << 20, |zone| zone.managed_pages.clamp(1 << 15, 1 << 34)),
            page_ns: page_ns(recording),
            groups: vec![None],
            requests: Vec::new(),
            seen,
            stock: Stock::of(recording),
            unknown: Vec::new(),
        };
        load.add_upkeep(recording, clock);
        load.add_moves(recording);
        load.add_requests(recording);
        load.unknown = unknown(recording, &load);
        Ok(load)
    }

    /// Number of CPUs of the recorded machine.
    pub fn cpus(&self) -> usize {
        self.cpus.len()
    }

    /// Ticks a second of the recorded kernel.
    pub fn hz(&self) -> u32 {
        self.hz
    }

    /// Length of the replayed time, seconds.
    pub fn seconds(&self) -> f64 {
        self.duration_ns as f64 / 1e9
    }

    /// The policies that the recorded kernel had.
    pub fn stock(&self) -> &Stock {
        &self.stock
    }

    /// Limits of the recording, in sentences.
    pub fn unknown(&self) -> &[String] {
        &self.unknown
    }

    /// Whether the time of a call depends on its pages in the replay. Otherwise it is the recorded one.
    pub fn has_pages(&self) -> bool {
        matches!(self.fold, Fold::Fixed { .. })
    }

    /// Whether the load has anything for a part of the kernel.
    pub fn has(&self, part: Part) -> bool {
        match part {
            Part::Upkeep => !self.seen.upkeeps.is_empty(),
            Part::Pages => self.has_bursts() || self.has_pages(),
            Part::Flushes => self.has_flushes(),
        }
    }

    /// Whether the recording alone sets a measure, so that neither agreement nor a change would mean anything.
    pub fn sets(&self, measure: &Measure) -> bool {
        let is_duration = measure.part == Part::Upkeep && measure.unit == Unit::Ns;
        let is_set = match self.fold {
            Fold::Recorded(_) => true,
            // The median call has no pages, and their time is the recorded one.
            Fold::Fixed { is_median, .. } => is_median && measure.name == "upkeep_p50_ns",
        };
        measure.is_input || is_duration && is_set
    }

    /// Whether the recording has too little for the replay to give a measure that could agree: times of flushes depend on
    /// the updates that are pending, and a forced flush covers groups that are not recorded.
    pub fn lacks(&self, measure: &Measure) -> bool {
        let is_time = measure.part == Part::Flushes && measure.unit == Unit::Ns;
        is_time
            && (self.requests.iter()).any(|request| request.is_forced || request.pending.is_none())
    }

    /// Whether anything is flushed.
    pub fn has_flushes(&self) -> bool {
        !self.requests.is_empty()
    }

    /// Whether there are bursts outside upkeep.
    pub fn has_bursts(&self) -> bool {
        self.cpus.iter().any(|cpu| !cpu.moves.is_empty())
    }

    /// Moment of the simulated clock at which the recording begins: late enough for a warm-up.
    pub(crate) fn origin_ns(&self) -> u64 {
        let repeat_ns = repeat_ticks(self.hz) * tick_ns(self.hz);
        let warm_up_ns = self.warm_up_ns();
        let missing = warm_up_ns.saturating_sub(self.phase_ns);
        self.phase_ns + missing.div_ceil(repeat_ns) * repeat_ns
    }

    /// Time before the beginning in which upkeep comes into its rhythm.
    pub(crate) fn warm_up_ns(&self) -> u64 {
        4 * self.interval_ns
    }

    fn add_upkeep(&mut self, recording: &Seen, clock: Option<Clock>) {
        let has_timers = !(recording.loses(TARGETS) && recording.loses(LATENESS));
        let mut of_cpus: BTreeMap<u32, Vec<&Upkeep>> = BTreeMap::new();
        for upkeep in &recording.upkeep {
            of_cpus.entry(upkeep.cpu).or_default().push(upkeep);
        }
        let from_start = Relative(recording.start_ns);
        for (cpu, calls) in of_cpus {
            let of_cpu = &mut self.cpus[cpu as usize];
            let rhythm = Rhythm {
                calls: &calls,
                has_timers,
                interval_ns: self.interval_ns,
            };
            for (index, call) in calls.iter().enumerate() {
                let start = from_start.of(call.start_ns);
                let reach = match rhythm.is_own(index) {
                    true => 2 * self.interval_ns,
                    false => self.interval_ns,
                } as i64;
                let before = match index.checked_sub(1) {
                    Some(before) => from_start.of(calls[before].end_ns),
                    // The CPU did the same before the recording.
                    None if rhythm.is_own(index) => i64::MIN,
                    None => start - reach,
                };
                let from = if before == i64::MIN {
                    before
                } else {
                    before.max(start - reach)
                };
                if rhythm.found_work(index) {
                    of_cpu.active.push((from, start));
                } else if !rhythm.is_own(index) {
                    let half = start - self.interval_ns as i64 / 2;
                    of_cpu.in_vain_ns.push(half.max(before.saturating_add(1)));
                }
                if let Some(pages) = pages_of(call, recording).filter(|pages| *pages > 0) {
                    let pages = pages.min(PAGES_MAX) as u32;
                    of_cpu
                        .due_pages
                        .push((start - self.interval_ns as i64 / 2, pages));
                }
                if let Some(asleep) = asleep(call, clock, self.hz) {
                    of_cpu
                        .asleep
                        .push((from_start.of(asleep.0), from_start.of(asleep.1)));
                }
            }
            // Nor does it stop when the recording ends.
            if let Some(last) = calls.last()
                && rhythm.found_work(calls.len() - 1)
            {
                of_cpu.active.push((from_start.of(last.start_ns), i64::MAX));
            }
        }
    }

    fn add_moves(&mut self, recording: &Seen) {
        let from_start = Relative(recording.start_ns);
        let mut calls: BTreeMap<u32, Vec<(u64, u64)>> = BTreeMap::new();
        for upkeep in &recording.upkeep {
            let of_cpu = calls.entry(upkeep.cpu).or_default();
            of_cpu.push((upkeep.start_ns, upkeep.end_ns));
        }
        for burst in &recording.bursts {
            let at_ns = from_start.of(burst.start_ns);
            if !(0..self.events_ns as i64).contains(&at_ns) || burst.pages == 0 {
                continue;
            }
            if is_within(calls.get(&burst.cpu), burst.start_ns) {
                continue;
            }
            let time_ns = burst.end_ns - burst.start_ns;
            self.seen.bursts_ns.push((burst.kind, time_ns));
            if matches!(burst.hold, Hold::Traced | Hold::Proven) {
                self.seen.holds.push((burst.kind, burst.pages, time_ns));
            }
            self.cpus[burst.cpu as usize].moves.push(Move {
                at_ns,
                kind: burst.kind,
                pages: burst.pages.min(PAGES_MAX) as u32,
            });
        }
    }

    fn add_requests(&mut self, recording: &Seen) {
        let paths = recording.cgroups.iter().map(|it| (it.id, &it.path));
        let paths: BTreeMap<u64, &String> = paths.collect();
        let from_start = Relative(recording.start_ns);
        let wanted = self.seen.flushes.iter();
        let mut numbers: Vec<u64> = wanted.map(|flush| flush.cgroup).collect();
        numbers.sort_unstable();
        numbers.dedup();
        numbers.truncate(GROUPS_MAX);
        // Parents first: a path is shorter than those below it.
        let length = |number: &u64| paths.get(number).map_or(usize::MAX, |path| path.len());
        numbers.sort_by_key(|number| (length(number), *number));
        let mut places: BTreeMap<u64, usize> = BTreeMap::new();
        for number in numbers {
            let path = paths.get(&number).map(|path| path.as_str());
            if path == Some("/") {
                places.insert(number, 0);
                continue;
            }
            let is_above = |above: &str| {
                let rest = path.and_then(|path| path.strip_prefix(above));
                above != "/" && rest.is_some_and(|rest| rest.starts_with('/'))
            };
            let above = places.iter().filter_map(|(above, place)| {
                let above = paths.get(above)?;
                is_above(above).then_some((above.len(), *place))
            });
            let parent = above.max().map_or(0, |(_, place)| place);
            places.insert(number, self.groups.len());
            self.groups.push(Some(parent));
        }
        self.requests = (self.seen.flushes.iter())
            .map(|flush| Request {
                at_ns: from_start.of(flush.start_ns),
                cpu: flush.cpu,
                group: places.get(&flush.cgroup).copied().unwrap_or(0),
                is_forced: flush.forced == Some(true),
                pending: flush.pending.and_then(|it| u64::try_from(it).ok()),
                is_skipped: flush.skipped == Some(true),
            })
            .collect();
    }
}

/// Times relative to the recording's beginning.
#[derive(Clone, Copy)]
struct Relative(u64);

impl Relative {
    fn of(self, at_ns: u64) -> i64 {
        // Both are at most 2^61.
        at_ns as i64 - self.0 as i64
    }
}

/// The calls of a CPU, one after the other.
struct Rhythm<'a> {
    calls: &'a [&'a Upkeep],
    has_timers: bool,
    interval_ns: u64,
}

impl Rhythm<'_> {
    /// Whether the call before had queued this one.
    fn is_own(&self, index: usize) -> bool {
        let call = self.calls[index];
        let timer = call.target_jiffy.or(call.expire_jiffy);
        if self.has_timers || timer.is_some() {
            return timer.or(call.slot_jiffy).is_some();
        }
        index.checked_sub(1).is_none_or(|before| {
            call.start_ns.saturating_sub(self.calls[before].end_ns) < 2 * self.interval_ns
        })
    }

    /// Whether a call found anything to do, so that it queued the next one.
    fn found_work(&self, index: usize) -> bool {
        let next = (index + 1).min(self.calls.len() - 1);
        self.is_own(next)
    }
}

fn cpus(recording: &Seen) -> u32 {
    let upkeeps = recording.upkeep.iter().map(|it| it.cpu);
    let bursts = recording.bursts.iter().map(|it| it.cpu);
    let flushes = recording.flushes.iter().map(|it| it.cpu);
    let most = upkeeps.chain(bursts).chain(flushes).max().unwrap_or(0);
    (recording.machine.cpus as u32).max(most + 1)
}

/// Length of the time in which there are no more bursts and flushes than are replayed.
fn events_ns(recording: &Seen, duration_ns: u64) -> u64 {
    let start_ns = recording.start_ns;
    let of = |at_ns: Option<u64>| at_ns.map_or(duration_ns, |at_ns| at_ns.saturating_sub(start_ns));
    let bursts = of(recording.bursts.get(EVENTS_MAX).map(|it| it.start_ns));
    let mut pages: u64 = 0;
    let too_many = recording.bursts.iter().find(|burst| {
        pages += burst.pages.min(PAGES_MAX);
        pages > ALL_PAGES_MAX
    });
    let too_many = of(too_many.map(|it| it.start_ns));
    let flushes = of(recording.flushes.get(EVENTS_MAX).map(|it| it.start_ns));
    duration_ns.min(bursts).min(too_many).min(flushes).max(1)
}

/// Whether a moment is within one of the stretches, which are in the order of time.
fn is_within(stretches: Option<&Vec<(u64, u64)>>, at_ns: u64) -> bool {
    stretches.is_some_and(|all| {
        let before = all.partition_point(|(start_ns, _)| *start_ns <= at_ns);
        before > 0 && at_ns <= all[before - 1].1
    })
}

/// Pages that a call gave back: as recorded, or those of the drains within it.
fn pages_of(call: &Upkeep, recording: &Seen) -> Option<u64> {
    if call.pages.is_some() || !has_pages(recording, BurstKind::Drain) {
        return call.pages;
    }
    let bursts = &recording.bursts;
    let first = bursts.partition_point(|burst| burst.start_ns < call.start_ns);
    let within = bursts[first..].iter().take(BURSTS_OF_CALL_MAX);
    let within = within.take_while(|burst| burst.start_ns <= call.end_ns);
    let drains = within.filter(|it| it.cpu == call.cpu && it.kind == BurstKind::Drain);
    Some(drains.fold(0, |sum: u64, burst| sum.saturating_add(burst.pages)))
}

/// The stretch in which a call's timer waited for its CPU to wake up.
fn asleep(call: &Upkeep, clock: Option<Clock>, hz: u32) -> Option<(u64, u64)> {
    let slot_ns = clock?.at(call.slot_jiffy?);
    let expire_ns = call.expire_ns?;
    let is_late = expire_ns.saturating_sub(slot_ns) > DEFERRED_TICKS * tick_ns(hz);
    is_late.then_some((slot_ns, expire_ns))
}

/// Whether a timer was late by so little that its CPU did not sleep.
fn is_a_little_late(call: &Upkeep) -> bool {
    let late = call.expire_jiffy.zip(call.slot_jiffy);
    late.is_some_and(|(expired, slot)| (1..=DEFERRED_TICKS).contains(&expired.saturating_sub(slot)))
}

fn fold(recording: &Seen) -> Fold {
    let calls = recording.upkeep.iter();
    let mut without_pages: Vec<u64> = calls
        .clone()
        .filter(|call| pages_of(call, recording) == Some(0))
        .map(|call| call.end_ns - call.start_ns)
        .collect();
    without_pages.sort_unstable();
    if let Some(median) = without_pages.get(without_pages.len() / 2) {
        return Fold::Fixed {
            time_ns: (*median).min(CALL_NS_MAX),
            is_median: without_pages.len() * 2 > calls.count(),
        };
    }
    let times = calls.map(|call| call.end_ns - call.start_ns);
    Fold::Recorded(times.map(|time_ns| time_ns.min(CALL_NS_MAX)).collect())
}

/// Time of a page in bursts of some length: the sum of all times by the sum of all pages.
fn page_ns(recording: &Seen) -> Option<u64> {
    const LONG_PAGES: u64 = 16;
    let long = || {
        recording
            .bursts
            .iter()
            .filter(|burst| burst.pages >= LONG_PAGES)
    };
    let times_ns: f64 = long()
        .map(|burst| (burst.end_ns - burst.start_ns) as f64)
        .sum();
    let pages: f64 = long().map(|burst| burst.pages as f64).sum();
    (pages > 0.0).then(|| ((times_ns / pages) as u64).clamp(1, PAGE_NS_MAX))
}

impl Window {
    fn of(
        recording: &Seen,
        clock: Option<Clock>,
        is_replayed: impl Fn(u64) -> bool,
        is_event: impl Fn(u64) -> bool,
    ) -> Self {
        let upkeeps = recording.upkeep.iter();
        let flushes = recording.flushes.iter();
        let waits = (recording.waits.iter()).filter(|it| it.lock == LockKind::Zone);
        let kinds = [BurstKind::Drain, BurstKind::Refill];
        Self {
            clock,
            upkeeps: upkeeps
                .filter(|it| is_replayed(it.start_ns))
                .copied()
                .collect(),
            bursts_ns: Vec::new(),
            holds: Vec::new(),
            zone_waits: waits.filter(|it| is_event(it.start_ns)).copied().collect(),
            flushes: flushes
                .filter(|it| is_event(it.start_ns))
                .copied()
                .collect(),
            has_zone_waits: has_waits(recording) && !recording.may_be_guest(),
            has_bursts: kinds.iter().any(|kind| has_pages(recording, *kind)),
        }
    }
}

/// Whether pages of this direction were recorded.
fn has_pages(recording: &Seen, kind: BurstKind) -> bool {
    let event = match kind {
        BurstKind::Drain => "mm_page_pcpu_drain",
        BurstKind::Refill => "mm_page_alloc_zone_locked",
    };
    recording.deep && !recording.lacks(event)
}

/// Whether waits for spin locks were recorded, with what names their locks.
fn has_waits(recording: &Seen) -> bool {
    recording.deep && !recording.loses(WAITS)
}

/// Limits of a recording: whether each applies, and its sentence.
fn unknown(recording: &Seen, load: &Load) -> Vec<String> {
    let seen = &load.seen;
    let zones = recording.machine.zones.len();
    let is_guest = recording.may_be_guest();
    let lost = recording.losses.events_lost;
    let late = seen
        .upkeeps
        .iter()
        .filter(|it| is_a_little_late(it))
        .count();
    let has_bursts = seen.has_bursts;
    let lacks_times = load.has_flushes() && MEASURES.iter().any(|measure| load.lacks(measure));
    let of_locks = match has_waits(recording) {
        true => {
            "The kernel does not report every wait for a spin lock: a lone second waiter is missing."
        }
        false => "Waits for locks were not recorded.",
    };
    let table = [
        (lost > 0, format!("{lost} events were lost: counts as seen are too low.")),
        (
            recording.duration_ns() > load.duration_ns,
            format!("Only the first {:.0} s are replayed.", load.seconds()),
        ),
        (
            load.events_ns < load.duration_ns,
            format!(
                "Only the bursts and flushes of the first {:.2} s are replayed: there are too many.",
                load.events_ns as f64 / 1e9
            ),
        ),
        (
            seen.clock.is_none(),
            "No timers were recorded: the phase of the ticks is not known, so herds of the replay may fall on other ticks.".to_owned(),
        ),
        (
            !load.has_pages(),
            "Pages of upkeep were not recorded (light mode): the replay takes the recorded durations, so it cannot tell what a policy would do to them.".to_owned(),
        ),
        (
            !has_bursts,
            "Bursts of pages were not recorded: the zone's lock has no other users in the replay.".to_owned(),
        ),
        (
            has_bursts && !seen.bursts_ns.is_empty() && seen.holds.is_empty(),
            "No burst is proven to be one hold of the zone's lock: holds as seen are not known.".to_owned(),
        ),
        (
            zones > 1,
            format!("The replay has one zone, and the machine has {zones}: bursts of different zones wait for one another."),
        ),
        (
            has_bursts && is_guest,
            "In a virtual machine the kernel may report no waits for spin locks, and the hypervisor may stop a CPU: neither is in the figures.".to_owned(),
        ),
        (has_bursts && !is_guest, of_locks.to_owned()),
        (
            load.page_ns.is_some(),
            format!(
                "A page took {} ns in bursts as seen, the time of tracing it included; the replay takes as long, also under other policies.",
                load.page_ns.unwrap_or_default()
            ),
        ),
        (
            late > 0,
            format!(
                "{late} of {} timers expired a tick or two after their slot, because a CPU's tick may come before the jiffies advance. \
                 The replay has no such delay, so it has more CPUs on one tick; compare slots.",
                seen.upkeeps.len()
            ),
        ),
        (
            lacks_times,
            "The groups that a forced flush covers, or the updates that were pending, are not known: times of flushes cannot be compared.".to_owned(),
        ),
        (has_bursts, "Tasks that take single pages from the zone are not in the recording.".to_owned()),
        (
            load.has_flushes(),
            "The CPUs on which updates of statistics were pending are not known: the replay spreads them over all.".to_owned(),
        ),
        (
            recording.loses(RSTAT) && recording.loses(REQUESTS),
            "Flushes of statistics were not recorded.".to_owned(),
        ),
    ];
    let applying = table.into_iter().filter(|(applies, _)| *applies);
    applying.map(|(_, text)| text).collect()
}
