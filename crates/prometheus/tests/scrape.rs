//! Scrapes, read back by another parser.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use bursar::{Counter, Freshness, Gauge, Group, Limits, Memory, Statistic};
use bursar_arbiter::{Arbiter, Ask, Counts, Policy};
use bursar_prometheus::{Collector, openmetrics};
use openmetrics_parser::openmetrics::parse_openmetrics;
use openmetrics_parser::{MetricNumber, OpenMetricsValue};

const STATISTICS: &[Statistic] = &[Statistic::counter("rows"), Statistic::gauge("open_files")];
const ROWS: Counter = Counter::from_name(STATISTICS, "rows");
const OPEN_FILES: Gauge = Gauge::from_name(STATISTICS, "open_files");

/// By family and by labels as text.
type Scrape = BTreeMap<(String, String), f64>;

fn collector(memory: &Memory) -> Collector {
    Collector::new(memory).freshness(Freshness::Exact)
}

fn scrape(collector: &Arc<Collector>) -> Scrape {
    let text = openmetrics(collector);
    let parsed = parse_openmetrics(&text).unwrap_or_else(|error| panic!("{error}\n{text}"));
    let mut found = Scrape::new();
    for (name, family) in &parsed.families {
        for sample in family.iter_samples() {
            let labels = sample.get_labelset().expect("names of labels");
            let labels: Vec<String> = labels
                .iter()
                .map(|(name, value)| format!("{name}={value}"))
                .collect();
            let number = match &sample.value {
                OpenMetricsValue::Gauge(number) | OpenMetricsValue::Unknown(number) => number,
                OpenMetricsValue::Counter(counter) => &counter.value,
                other => panic!("{name}: {other:?}"),
            };
            let number = match number {
                MetricNumber::Int(whole) => *whole as f64,
                MetricNumber::Float(float) => *float,
            };
            let before = found.insert((name.clone(), labels.join(",")), number);
            assert_eq!(before, None, "{name} {labels:?} twice");
        }
    }
    found
}

fn of(scrape: &Scrape, family: &str, labels: &str) -> Option<f64> {
    scrape.get(&(family.to_owned(), labels.to_owned())).copied()
}

fn memory() -> Memory {
    Memory::builder()
        .statistics(STATISTICS)
        .build()
        .expect("a small memory")
}

#[test]
fn a_scrape_shows_usage_limits_events_and_statistics() {
    let memory = memory();
    let acme = memory
        .root()
        .child("acme", Limits::max(1 << 20).low(4096))
        .unwrap();
    let query = acme.child("query", Limits::none()).unwrap();
    let _charge = query.try_charge(300_000).unwrap();
    assert!(query.try_charge(1 << 20).is_err());
    query.add(ROWS, 7);
    query.add(OPEN_FILES, 2);
    let scrape = scrape(&Arc::new(collector(&memory)));
    #[rustfmt::skip]
    let expected = [
        ("bursar_group_usage_bytes", "group=/acme,parent=/", 300_000.0),
        ("bursar_group_usage_bytes", "group=/acme/query,parent=/acme", 300_000.0),
        ("bursar_group_usage_bytes", "group=/,parent=", 300_000.0),
        ("bursar_group_max_bytes", "group=/acme,parent=/", 1_048_576.0),
        ("bursar_group_low_bytes", "group=/acme,parent=/", 4096.0),
        ("bursar_group_refused", "group=/acme,parent=/", 1.0),
        ("bursar_group_refused", "group=/,parent=", 1.0),
        ("bursar_group_statistic", "group=/acme,parent=/,statistic=open_files", 2.0),
        ("bursar_group_statistic_count", "group=/acme,parent=/,statistic=rows", 7.0),
        ("bursar_group_pressure_level", "by=all,group=/acme/query,parent=/acme", 0.0),
        ("bursar_group_throttled_seconds", "group=/,parent=", 0.0),
        ("bursar_removed_groups", "", 0.0),
    ];
    for (family, labels, number) in expected {
        assert_eq!(
            of(&scrape, family, labels),
            Some(number),
            "{family} {labels}"
        );
    }
    assert_eq!(
        of(
            &scrape,
            "bursar_group_max_bytes",
            "group=/acme/query,parent=/acme"
        ),
        None
    );
    // Nothing to tell: no series, but at the root.
    let quiet = [
        ("bursar_group_above_max", ""),
        ("bursar_group_throttled_seconds", ""),
        ("bursar_group_stall_seconds", ",kind=some"),
        ("bursar_group_pressure_level", ",by=usage"),
    ];
    let labelled = |labels: &str, more: &str| match more {
        ",by=usage" => format!("by=usage,{labels}"),
        ",kind=some" => labels.replace(",parent", ",kind=some,parent"),
        _ => labels.to_owned(),
    };
    for (family, more) in quiet {
        let at = |labels: &str| of(&scrape, family, &labelled(labels, more));
        assert!(at("group=/,parent=").is_some(), "{family}");
        assert_eq!(at("group=/acme/query,parent=/acme"), None, "{family}");
    }
    let above = of(&scrape, "bursar_group_above_max", "group=/acme,parent=/");
    assert_eq!(above, Some(1.0));
    let reserved = of(
        &scrape,
        "bursar_group_reserved_bytes",
        "group=/acme,parent=/",
    )
    .unwrap();
    assert!((300_000.0..=1_048_576.0).contains(&reserved), "{reserved}");
}

#[test]
fn series_end_with_their_group() {
    let memory = memory();
    let collector = Arc::new(collector(&memory));
    let group = memory.root().child("short", Limits::none()).unwrap();
    let usage = |of_what: &Scrape| of(of_what, "bursar_group_usage_bytes", "group=/short,parent=/");
    assert_eq!(usage(&scrape(&collector)), Some(0.0));
    drop(group);
    assert_eq!(usage(&scrape(&collector)), None);
}

#[test]
fn hostile_names_are_labels_of_their_own() {
    let memory = memory();
    let long = "x".repeat(255);
    let names = [
        "quote\"",
        "new\nline",
        r"new\nline",
        r"back\slash",
        "\u{202e}rtl",
        "other",
        "{}=,",
        "Zürich",
        &long,
    ];
    let groups: Vec<Group> = names
        .iter()
        .map(|name| memory.root().child(name, Limits::none()).unwrap())
        .collect();
    let charges: Vec<_> = groups
        .iter()
        .zip(1..)
        .map(|(group, bytes)| group.try_charge(bytes).unwrap())
        .collect();
    let scrape = scrape(&Arc::new(collector(&memory)));
    let shown = scrape.iter().filter(|((family, labels), _)| {
        family == "bursar_group_usage_bytes" && labels.ends_with("parent=/")
    });
    let mut bytes: Vec<f64> = shown.map(|(_, bytes)| *bytes).collect();
    bytes.sort_by(f64::total_cmp);
    let expected: Vec<f64> = (1..=names.len()).map(|bytes| bytes as f64).collect();
    assert_eq!(bytes, expected);
    assert_eq!(
        of(
            &scrape,
            "bursar_group_usage_bytes",
            r"group=/new\nline,parent=/"
        )
        .or(of(
            &scrape,
            "bursar_group_usage_bytes",
            r"group=/new\\nline,parent=/"
        )),
        Some(2.0)
    );
    drop(charges);
}

#[test]
fn children_beyond_the_bound_are_added_up() {
    let memory = memory();
    let groups: Vec<Group> = (0..50)
        .map(|number| {
            memory
                .root()
                .child(format!("g{number:02}"), Limits::none())
                .unwrap()
        })
        .collect();
    let mut charges: Vec<_> = groups
        .iter()
        .zip(1..)
        .map(|(group, bytes)| group.try_charge(bytes * 10_000).unwrap())
        .collect();
    groups.iter().for_each(|group| group.add(OPEN_FILES, 1));
    // Numbers of the program wrap, as they do in the parent.
    groups[..2]
        .iter()
        .for_each(|group| group.add(OPEN_FILES, i64::MAX));
    let collector = Arc::new(collector(&memory).groups_max(11));
    let first = scrape(&collector);
    let usage = "bursar_group_usage_bytes";
    let children = |scrape: &Scrape| -> Vec<String> {
        let of_root = scrape
            .keys()
            .filter(|(family, labels)| family == usage && labels.ends_with("parent=/"));
        of_root.map(|(_, labels)| labels.clone()).collect()
    };
    let shown = children(&first);
    assert_eq!(shown.len(), 11, "ten children and the others: {shown:?}");
    for number in 40..50 {
        assert!(
            shown.contains(&format!("group=/g{number},parent=/")),
            "{shown:?}"
        );
    }
    let sum = |scrape: &Scrape| -> f64 {
        children(scrape)
            .iter()
            .map(|labels| of(scrape, usage, labels).unwrap())
            .sum()
    };
    assert_eq!(Some(sum(&first)), of(&first, usage, "group=/,parent="));
    assert_eq!(
        of(&first, "bursar_groups_folded", "group=other,parent=/"),
        Some(40.0)
    );
    assert_eq!(
        of(
            &first,
            "bursar_group_statistic",
            "group=other,parent=/,statistic=open_files"
        ),
        Some(38.0)
    );
    assert_eq!(
        of(&first, "bursar_group_refused", "group=other,parent=/"),
        None
    );
    // A little more than the smallest of those shown takes no place from it; much more does.
    charges.push(groups[0].try_charge(450_000).unwrap());
    assert_eq!(children(&scrape(&collector)), shown);
    charges.push(groups[0].try_charge(1_000_000).unwrap());
    let swapped = scrape(&collector);
    assert!(children(&swapped).contains(&"group=/g00,parent=/".to_owned()));
    assert_eq!(children(&swapped).len(), 11);
    assert_eq!(Some(sum(&swapped)), of(&swapped, usage, "group=/,parent="));
}

#[test]
fn levels_below_the_depth_are_in_the_group_above() {
    let memory = memory();
    let mut group = memory.root();
    for level in 0..5 {
        group = group
            .child(format!("level{level}"), Limits::none())
            .unwrap();
    }
    let _charge = group.try_charge(1000).unwrap();
    let scrape = scrape(&Arc::new(collector(&memory).depth_max(1)));
    assert_eq!(
        of(
            &scrape,
            "bursar_group_usage_bytes",
            "group=/level0,parent=/"
        ),
        Some(1000.0)
    );
    let shown = scrape
        .keys()
        .filter(|(family, _)| family == "bursar_group_usage_bytes");
    assert_eq!(shown.count(), 2);
}

/// Groups come and go while others scrape: each text is valid, and no series is there twice.
#[test]
fn groups_may_come_and_go_meanwhile() {
    let memory = &memory();
    struct Done(AtomicBool);
    struct Ends<'a>(&'a Done);
    impl Drop for Ends<'_> {
        fn drop(&mut self) {
            self.0.0.store(true, Ordering::Relaxed);
        }
    }
    let done = &Done(AtomicBool::new(false));
    thread::scope(|scope| {
        for worker in 0..2 {
            scope.spawn(move || {
                while !done.0.load(Ordering::Relaxed) {
                    let tenant = memory
                        .root()
                        .child(format!("tenant{worker}"), Limits::none())
                        .unwrap();
                    let queries: Vec<_> = (0..20)
                        .map(|number| tenant.child(format!("{number}"), Limits::none()).unwrap())
                        .collect();
                    let _charges: Vec<_> = queries
                        .iter()
                        .map(|query| query.try_charge(100_000).unwrap())
                        .collect();
                }
            });
        }
        // Also if a check fails.
        let _ends = Ends(done);
        let collector = Arc::new(collector(memory).groups_max(8));
        for _ in 0..300 {
            let scrape = scrape(&collector);
            let usage = scrape
                .keys()
                .filter(|(family, _)| family == "bursar_group_usage_bytes");
            assert!(usage.count() <= 16);
        }
    });
}

#[test]
fn admissions_are_counted_by_reason() {
    let memory = memory();
    let acme = memory.root().child("acme", Limits::max(8 << 20)).unwrap();
    let arbiter = Arbiter::new(&memory, Policy::default());
    let ask = |name, bytes| Ask::new(&acme, name).least(bytes, 0).wanted(bytes);
    let _grant = arbiter.try_admit(ask("fits", 1 << 20)).unwrap();
    arbiter.try_admit(ask("never", 9 << 20)).unwrap_err();
    let with = scrape(&Arc::new(collector(&memory).arbiter(&arbiter)));
    let of_arbiter = |name: &str| of(&with, &format!("bursar_admission_{name}"), "");
    for (name, _, _) in Counts::COUNTERS {
        let expected = f64::from(u8::from(["admitted", "never_fits"].contains(&name)));
        assert_eq!(of_arbiter(name), Some(expected), "{name}");
    }
    assert_eq!(of_arbiter("grants"), Some(1.0));
    assert_eq!(of_arbiter("waiting"), Some(0.0));
    let without = scrape(&Arc::new(collector(&memory)));
    assert!(
        without
            .keys()
            .all(|(family, _)| !family.starts_with("bursar_admission"))
    );
}
