//! Numbers told to a recorder of the facade `metrics`, beside those of a scrape.

use std::collections::BTreeMap;
use std::fmt::Display;
use std::sync::Arc;

use bursar::{Counter, Gauge, Group, Limits, Memory, Statistic};
use bursar_arbiter::{Arbiter, Ask, Policy};
use bursar_prometheus::{Collector, Publisher, openmetrics};
use metrics_util::MetricKind;
use metrics_util::debugging::{DebugValue, DebuggingRecorder, Snapshotter};
use openmetrics_parser::openmetrics::parse_openmetrics;
use openmetrics_parser::{MetricNumber, OpenMetricsType, OpenMetricsValue};

const STATISTICS: &[Statistic] = &[Statistic::counter("rows"), Statistic::gauge("open_files")];
const ROWS: Counter = Counter::from_name(STATISTICS, "rows");
const OPEN_FILES: Gauge = Gauge::from_name(STATISTICS, "open_files");

/// Type, unit and help of a family, and its numbers by labels.
type Family = (MetricKind, String, String, BTreeMap<String, f64>);
type Families = BTreeMap<String, Family>;

fn memory() -> Memory {
    Memory::builder()
        .statistics(STATISTICS)
        .build()
        .expect("a small memory")
}

fn labels<T: Display>(all: impl Iterator<Item = (T, T)>) -> String {
    let mut all: Vec<String> = all.map(|(name, value)| format!("{name}={value}")).collect();
    all.sort();
    all.join(",")
}

fn told(recorder: &Snapshotter) -> Families {
    let mut found = Families::new();
    for (key, unit, help, number) in recorder.snapshot().into_vec() {
        let (kind, key) = key.into_parts();
        let number = match number {
            DebugValue::Counter(count) => count as f64,
            DebugValue::Gauge(number) => number.into_inner(),
            DebugValue::Histogram(_) => panic!("{key}: a histogram"),
        };
        let unit = unit.map_or("", |unit| unit.as_str()).to_owned();
        let help = help.unwrap_or_default().into_owned();
        let empty = (kind, unit, help, BTreeMap::new());
        let family = found.entry(key.name().to_owned()).or_insert(empty);
        let labels = labels(key.labels().map(|label| (label.key(), label.value())));
        assert_eq!(family.3.insert(labels, number), None, "{key} twice");
    }
    found
}

fn scraped(collector: &Arc<Collector>) -> Families {
    let text = openmetrics(collector);
    let parsed = parse_openmetrics(&text).unwrap_or_else(|error| panic!("{error}\n{text}"));
    let mut found = Families::new();
    for (name, family) in &parsed.families {
        let (kind, total) = match family.family_type {
            OpenMetricsType::Counter => (MetricKind::Counter, "_total"),
            OpenMetricsType::Gauge => (MetricKind::Gauge, ""),
            other => panic!("{name}: {other:?}"),
        };
        let numbers = family.iter_samples().map(|sample| {
            let of = sample.get_labelset().expect("names of labels");
            let number = match &sample.value {
                OpenMetricsValue::Gauge(number) => number,
                OpenMetricsValue::Counter(counter) => &counter.value,
                other => panic!("{name}: {other:?}"),
            };
            let number = match number {
                MetricNumber::Int(whole) => *whole as f64,
                MetricNumber::Float(float) => *float,
            };
            (labels(of.iter()), number)
        });
        // The text has a full stop after the help.
        let help = family.help.trim_end_matches('.').to_owned();
        let family = (kind, family.unit.clone(), help, numbers.collect());
        found.insert(format!("{name}{total}"), family);
    }
    found
}

fn publish(publisher: &mut Publisher, recorder: &DebuggingRecorder) {
    metrics::with_local_recorder(recorder, || publisher.publish());
}

fn number(of: &Families, family: &str, labels: &str) -> Option<f64> {
    of[family].3.get(labels).copied()
}

fn refuse(group: &Group, times: usize) {
    for _ in 0..times {
        group.try_charge(2 << 20).unwrap_err();
    }
}

#[test]
fn families_are_those_of_a_scrape() {
    let memory = memory();
    let limits = Limits::max(1 << 20).low(4096);
    let acme = memory.root().child("acme", limits).unwrap();
    let hostile = memory.root().child("a\\b\"\n", Limits::none()).unwrap();
    let query = acme.child("query", Limits::none()).unwrap();
    let _charges = [
        query.try_charge(300_000).unwrap(),
        hostile.try_charge(200_000).unwrap(),
    ];
    refuse(&query, 1);
    query.add(ROWS, 7);
    query.add(OPEN_FILES, 2);
    let _folded = memory.root().child("small", Limits::none()).unwrap();
    let arbiter = Arbiter::new(&memory, Policy::default());
    let ask = Ask::new(&acme, "fits").least(4096, 0).wanted(4096);
    let _grant = arbiter.try_admit(ask).unwrap();

    let collector = || Collector::new(&memory).arbiter(&arbiter).groups_max(4);
    let recorder = DebuggingRecorder::new();
    publish(&mut Publisher::new(collector()), &recorder);
    let mut told = told(&recorder.snapshotter());
    let mut scraped = scraped(&Arc::new(collector()));
    // These change from one snapshot to the next.
    for family in ["bursar_age_seconds", "bursar_walks_total"] {
        for of in [&mut told, &mut scraped] {
            of.get_mut(family).unwrap().3.clear();
        }
    }
    // Whole seconds.
    for (kind, unit, _, numbers) in scraped.values_mut() {
        if *kind == MetricKind::Counter && unit == "seconds" {
            numbers
                .values_mut()
                .for_each(|number| *number = number.floor());
        }
    }
    let names = |of: &Families| of.keys().cloned().collect::<Vec<_>>();
    assert_eq!(names(&told), names(&scraped));
    for (name, family) in &scraped {
        assert_eq!(told[name], *family, "{name}");
    }
    let acme = "group=/acme,parent=/";
    assert_eq!(number(&told, "bursar_group_refused_total", acme), Some(1.0));
    let other = "group=other,parent=/";
    assert_eq!(number(&told, "bursar_groups_folded", other), Some(1.0));
}

#[test]
fn gauges_of_ended_series_are_0_and_counters_go_on() {
    let memory = memory();
    let recorder = DebuggingRecorder::new();
    let publisher = &mut Publisher::new(Collector::new(&memory));
    let make = || memory.root().child("short", Limits::max(1 << 20)).unwrap();
    let group = make();
    let charge = group.try_charge(1000).unwrap();
    refuse(&group, 3);
    publish(publisher, &recorder);
    publish(publisher, &recorder);
    drop((charge, group));
    publish(publisher, &recorder);
    let first = told(&recorder.snapshotter());
    let short = "group=/short,parent=/";
    for family in ["usage_bytes", "reserved_bytes", "max_bytes", "peak_bytes"] {
        let family = format!("bursar_group_{family}");
        assert_eq!(number(&first, &family, short), Some(0.0), "{family}");
    }
    let refused = "bursar_group_refused_total";
    assert_eq!(number(&first, refused, short), Some(3.0));

    // The recorder begins at 0 again. A new group's counts are its own, also if no call came between it and the one before.
    let group = make();
    refuse(&group, 4);
    publish(publisher, &recorder);
    drop(group);
    let group = make();
    refuse(&group, 2);
    publish(publisher, &recorder);
    let second = told(&recorder.snapshotter());
    assert_eq!(number(&second, refused, short), Some(6.0));
    assert_eq!(number(&second, refused, "group=/,parent="), Some(6.0));
    let usage = number(&second, "bursar_group_usage_bytes", short);
    assert_eq!(usage, Some(0.0));
}

#[test]
fn a_group_that_lost_its_series_for_a_while_is_counted_once() {
    let memory = memory();
    let recorder = DebuggingRecorder::new();
    let publisher = &mut Publisher::new(Collector::new(&memory).groups_max(2));
    let limits = Limits::max(1 << 20);
    let [small, big] = ["small", "big"].map(|name| memory.root().child(name, limits).unwrap());
    let charge = small.try_charge(1000).unwrap();
    refuse(&small, 3);
    publish(publisher, &recorder);
    let more = big.try_charge(900_000).unwrap();
    refuse(&small, 1);
    publish(publisher, &recorder);
    drop(more);
    let more = small.try_charge(500_000).unwrap();
    publish(publisher, &recorder);
    let all = told(&recorder.snapshotter());
    let refused = |group: &str| {
        number(
            &all,
            "bursar_group_refused_total",
            &format!("group=/{group},parent=/"),
        )
    };
    assert_eq!((refused("small"), refused("big")), (Some(4.0), Some(0.0)));
    let other = number(&all, "bursar_group_usage_bytes", "group=other,parent=/");
    assert!(other.is_some());
    drop((charge, more));
}
