//! Families of metrics.

use std::fmt;

use bursar::{Events, GroupSnapshot, Level, Memory, Snapshot, Statistic};
use bursar_arbiter::Counts;
use prometheus_client::metrics::MetricType;
use prometheus_client::registry::Unit;

use crate::shown::{Labels, Others, Shown};

/// The label `group` of the series of a group's children that have none of their own.
const OTHER: &str = "other";

/// Taker of families: the encoder of a registry, or a recorder of the facade `metrics`.
pub(crate) trait Sink {
    /// Takes a family with all its series. There is at least one.
    fn family(&mut self, family: &Family<'_>, all: &[(Series<'_>, Number)]) -> fmt::Result;
}

/// Labels of one series.
pub(crate) struct Series<'a> {
    /// The labels `group` and `parent`; `None` for the memory as a whole.
    group: Option<[(&'static str, &'a str); 2]>,
    more: Option<(&'static str, &'static str)>,
}

impl<'a> Series<'a> {
    pub(crate) fn labels(&self) -> impl Iterator<Item = (&'static str, &'a str)> {
        self.group.into_iter().flatten().chain(self.more)
    }
}

/// Number of one series.
#[derive(Clone, Copy)]
pub(crate) enum Number {
    Gauge(i64),
    Counter(u64),
    Seconds(f64),
}

/// A family: name without unit, explanation, unit, type.
pub(crate) struct Family<'a>(
    pub(crate) &'a str,
    pub(crate) &'static str,
    pub(crate) Option<Unit>,
    pub(crate) MetricType,
);

const fn bytes(name: &'static str, help: &'static str) -> Family<'static> {
    Family(name, help, Some(Unit::Bytes), MetricType::Gauge)
}

const fn gauge(name: &'static str, help: &'static str) -> Family<'static> {
    Family(name, help, None, MetricType::Gauge)
}

const fn counter(name: &'static str, help: &'static str) -> Family<'static> {
    Family(name, help, None, MetricType::Counter)
}

const fn counter_of(name: &'static str, unit: Unit, help: &'static str) -> Family<'static> {
    Family(name, help, Some(unit), MetricType::Counter)
}

/// Gauges of bytes that only groups have; `None` for a limit that is not set.
type BytesOf = fn(&GroupSnapshot) -> Option<u64>;

#[rustfmt::skip]
const BYTES: [(Family<'static>, BytesOf); 5] = [
    (bytes("bursar_group_peak", "The most bytes that were ever reserved"), |group| Some(group.peak)),
    (bytes("bursar_group_max", "Limit above which charges are refused"), |group| limit(group.limits.max)),
    (bytes("bursar_group_high", "Limit above which charges are slowed down"), |group| limit(group.limits.high)),
    (bytes("bursar_group_low", "Bytes that reclaim takes last"), |group| protection(group.limits.low)),
    (bytes("bursar_group_min", "Bytes that reclaim never takes"), |group| protection(group.limits.min)),
];

fn limit(bytes: u64) -> Option<u64> {
    (bytes != u64::MAX).then_some(bytes)
}

fn protection(bytes: u64) -> Option<u64> {
    (bytes != 0).then_some(bytes)
}

/// Whether a group has a series of something that most groups never have: if there is anything to tell, and at the root, whose counts
/// include all others. So an alert on the root misses nothing.
fn has(group: &GroupSnapshot, is_there: bool) -> bool {
    is_there || group.depth == 0
}

/// Counters of events that each group has a series of.
const ALWAYS: [&str; 2] = ["refused", "overshot"];

/// Name and unit of the family of a counter of events. `low`, `high` and `max` are limits.
fn event_family(counter: &str) -> (String, Option<Unit>) {
    let (name, unit) = match counter {
        "low" => ("below_low", None),
        "high" => ("above_high", None),
        "max" => ("above_max", None),
        _ => match counter.rsplit_once('_') {
            Some((name, "bytes")) => (name, Some(Unit::Bytes)),
            Some((name, "ns")) => (name, Some(Unit::Seconds)),
            _ => (counter, None),
        },
    };
    (format!("bursar_group_{name}"), unit)
}

/// Writes families of the groups shown.
struct Writer<'a> {
    shown: &'a Shown<'a>,
    sink: &'a mut dyn Sink,
}

impl Writer<'_> {
    /// Writes a family, if it has any series. `of_group` and `of_others` push the numbers, each with one more label where it has
    /// one.
    fn family(
        &mut self,
        family: &Family<'_>,
        of_group: impl Fn(&GroupSnapshot, &mut Numbers),
        of_others: impl Fn(&Others, &mut Numbers),
    ) -> fmt::Result {
        let shown = self.shown;
        let mut all: Vec<(Series<'_>, Number)> = Vec::with_capacity(shown.groups.len());
        let mut numbers = Numbers::new();
        for (at, (labels, of)) in shown.groups.iter().enumerate() {
            let Labels { group, parent } = labels;
            let mut add = |group, parent, numbers: &mut Numbers| {
                let group = Some([("group", group), ("parent", parent)]);
                let series = |(more, number)| (Series { group, more }, number);
                all.extend(numbers.drain(..).map(series));
            };
            of_group(of, &mut numbers);
            add(group.as_str(), parent.as_str(), &mut numbers);
            if let Some(others) = shown.others.get(&at) {
                of_others(others, &mut numbers);
                add(OTHER, group, &mut numbers);
            }
        }
        // Parsers do not expect a family without series.
        if all.is_empty() {
            return Ok(());
        }
        self.sink.family(family, &all)
    }

    /// Writes a family that the series [`OTHER`] does not have.
    fn groups_only(
        &mut self,
        family: &Family<'_>,
        of_group: impl Fn(&GroupSnapshot, &mut Numbers),
    ) -> fmt::Result {
        self.family(family, of_group, |_, _| ())
    }

    /// Writes a family of the memory as a whole.
    fn single(&mut self, family: &Family<'_>, number: Number) -> fmt::Result {
        let (group, more) = (None, None);
        self.sink
            .family(family, &[(Series { group, more }, number)])
    }
}

/// Numbers of a group in one family, and the label that tells them apart.
type Numbers = Vec<(Option<(&'static str, &'static str)>, Number)>;

fn signed(count: u64) -> Number {
    Number::Gauge(i64::try_from(count).unwrap_or(i64::MAX))
}

fn level(level: Level) -> Number {
    Number::Gauge(match level {
        Level::None => 0,
        Level::Low => 1,
        Level::High => 2,
        Level::Critical => 3,
    })
}

/// Writes all families.
pub(crate) fn write(
    memory: &Memory,
    admissions: Option<&Counts>,
    snapshot: &Snapshot,
    shown: &Shown<'_>,
    sink: &mut dyn Sink,
) -> fmt::Result {
    let to = &mut Writer { shown, sink };
    to.family(
        &bytes(
            "bursar_group_usage",
            "Bytes charged to the group and all below it",
        ),
        |group, to| to.push((None, Number::Gauge(group.reading.usage().value))),
        |others, to| to.push((None, Number::Gauge(others.usage))),
    )?;
    to.family(
        &bytes(
            "bursar_group_reserved",
            "Usage and stock of CPUs, as limits see it",
        ),
        |group, to| to.push((None, signed(group.reserved))),
        |others, to| to.push((None, signed(others.reserved))),
    )?;
    for (family, of_group) in &BYTES {
        to.groups_only(family, |group, to| {
            to.extend(of_group(group).map(|bytes| (None, signed(bytes))));
        })?;
    }
    for (counter, help, count_of) in Events::COUNTERS {
        let (name, unit) = event_family(counter);
        let is_time = matches!(unit, Some(Unit::Seconds));
        let family = Family(&name, help, unit, MetricType::Counter);
        to.groups_only(&family, |group, to| {
            let count = count_of(&group.events);
            if ALWAYS.contains(&counter) || has(group, count > 0) {
                let number = match is_time {
                    true => Number::Seconds(count as f64 / 1e9),
                    false => Number::Counter(count),
                };
                to.push((None, number));
            }
        })?;
    }
    let stalled = "Time in which some or all tasks waited for memory";
    to.groups_only(
        &counter_of("bursar_group_stall", Unit::Seconds, stalled),
        |group, to| {
            let stall = &group.pressure.stall;
            for (kind, share) in [("some", stall.some), ("full", stall.full)] {
                if has(group, !share.total.is_zero()) {
                    let seconds = Number::Seconds(share.total.as_secs_f64());
                    to.push((Some(("kind", kind)), seconds));
                }
            }
        },
    )?;
    let levels = "Pressure: 0 none, 1 low, 2 high, 3 critical";
    to.groups_only(
        &gauge("bursar_group_pressure_level", levels),
        |group, to| {
            let pressure = &group.pressure;
            let by = [
                ("all", pressure.level),
                ("usage", pressure.by_usage),
                ("stall", pressure.by_stall),
            ];
            let of_group = by
                .into_iter()
                .filter(|&(by, of)| by == "all" || has(group, of != Level::None));
            to.extend(of_group.map(|(by, of)| (Some(("by", by)), level(of))));
        },
    )?;
    statistics(memory.statistics(), to)?;
    to.family(
        &gauge(
            "bursar_groups_folded",
            "Children without series of their own",
        ),
        |_, _| (),
        |others, to| to.push((None, signed(others.groups))),
    )?;
    let age = "Age of the numbers: they miss no older update";
    let age_seconds = Family("bursar_age", age, Some(Unit::Seconds), MetricType::Gauge);
    to.single(&age_seconds, Number::Seconds(snapshot.age().as_secs_f64()))?;
    let removed = gauge(
        "bursar_removed_groups",
        "Removed groups that hold bytes, have a handle, or wait to be cleared",
    );
    to.single(&removed, signed(memory.removed_groups() as u64))?;
    let counts = memory.flush_counts();
    let walks = counter("bursar_walks", "Walks over the tree that readers made");
    to.single(&walks, Number::Counter(counts.root + counts.subtree))?;
    admissions.map_or(Ok(()), |counts| arbiter(counts, to))
}

/// Writes the grants, waiters and counts of an arbiter.
fn arbiter(counts: &Counts, to: &mut Writer<'_>) -> fmt::Result {
    let grants = gauge("bursar_admission_grants", "Grants that have not ended");
    to.single(&grants, signed(counts.running()))?;
    let waiting = gauge("bursar_admission_waiting", "Asks that wait");
    to.single(&waiting, signed(counts.waiting))?;
    for (name, help, count_of) in Counts::COUNTERS {
        let family = format!("bursar_admission_{name}");
        let count = Number::Counter(count_of(counts));
        to.single(&Family(&family, help, None, MetricType::Counter), count)?;
    }
    Ok(())
}

/// Writes the program's own statistics: the gauges, and then the counters.
fn statistics(all: &'static [Statistic], to: &mut Writer<'_>) -> fmt::Result {
    let labelled = |counters: bool| {
        let all = all.iter().enumerate();
        let of_kind = all.filter(move |(_, one)| one.is_counter() == counters);
        of_kind.map(|(at, one)| (at, Some(("statistic", one.name()))))
    };
    let values = |group: &GroupSnapshot| -> Vec<i64> {
        group.reading.iter().map(|(_, value)| value.value).collect()
    };
    to.family(
        &gauge(
            "bursar_group_statistic",
            "Gauges that the program keeps for each group",
        ),
        |group, to| {
            let values = values(group);
            to.extend(labelled(false).map(|(at, label)| (label, Number::Gauge(values[at]))));
        },
        |others, to| {
            let sums = &others.statistics;
            to.extend(labelled(false).map(|(at, label)| (label, Number::Gauge(sums[at]))));
        },
    )?;
    to.groups_only(
        &counter(
            "bursar_group_statistic_count",
            "Counters that the program keeps for each group",
        ),
        |group, to| {
            let values = values(group);
            let count = |at: usize| Number::Counter(values[at].max(0) as u64);
            to.extend(labelled(true).map(|(at, label)| (label, count(at))));
        },
    )
}
