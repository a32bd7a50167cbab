//! Text that is printed for people.

use crate::common::Short;
use std::time::Duration;

use bursar::{Bytes, Counter, Freshness, Limits, Memory, Statistic};

/// A server that prints its state with `?` writes it to its log each time.
#[test]
fn a_memory_fits_a_line_of_a_log() {
    let memory = Memory::builder().max(1 << 30).build().unwrap();
    let tenant = memory.make("tenant");
    let query = tenant.make("query");
    let charge = query.try_charge(48 << 20).unwrap();
    let backend = memory.machine().report().backend;
    let cpus = memory.machine().report().cpus;
    let shown = |groups: usize, reserved: &str| {
        format!(
            "Memory {{ machine: Host {{ backend: {backend}, cpus: {cpus}, .. }}, groups: {groups}, reserved: {reserved}, .. }}"
        )
    };
    assert_eq!(format!("{memory:?}"), shown(3, "48.0 MiB"));
    assert!(format!("{memory:?}").len() < 120);
    // Removed, and there until its bytes are returned.
    query.remove().unwrap();
    assert_eq!(format!("{memory:?}"), shown(2, "48.0 MiB"));
    drop((charge, query));
    memory.tick();
    assert_eq!(format!("{memory:?}"), shown(2, "0 B"));
}

#[test]
fn limits_say_what_is_set() {
    let gib = 1 << 30;
    for (limits, shown) in [
        (Limits::none(), "no limit"),
        (Limits::max(0), "max 0 B"),
        (Limits::none().low(gib), "no limit, low 1.00 GiB"),
        (
            Limits::max(4 * gib).high(3 * gib).low(gib).min(gib / 2),
            "max 4.00 GiB, high 3.00 GiB, low 1.00 GiB, min 512 MiB",
        ),
    ] {
        assert_eq!(limits.to_string(), shown);
    }
}

#[test]
fn values_show_their_range() {
    const STATISTICS: &[Statistic] = &[
        Statistic::counter("batched").batch(64),
        Statistic::counter("rows"),
    ];
    const BATCHED: Counter = Counter::from_name(STATISTICS, "batched");
    const ROWS: Counter = Counter::from_name(STATISTICS, "rows");
    // Nothing flushes but a tick, so that what is cached is old.
    let memory = Memory::builder().statistics(STATISTICS);
    let memory = memory.flush_period(Duration::from_secs(3600)).build();
    let memory = memory.unwrap();
    let group = memory.make("group");
    let _charge = group.try_charge(5 << 20).unwrap();
    group.add(BATCHED, 123);
    group.add(ROWS, 7);
    let exact = group.exact();
    assert_eq!(exact.get(BATCHED).to_string(), "123");
    assert_eq!(format!("[{:>5}]", exact.get(ROWS)), "[    7]");
    assert_eq!(exact.usage().to_string(), (5 << 20).to_string());
    assert_eq!(exact.usage_bytes(), 5 << 20);
    assert_eq!(Bytes(exact.usage_bytes()).to_string(), "5.00 MiB");
    assert_eq!(Bytes::display_value(exact.usage()).to_string(), "5.00 MiB");

    let root = memory.root();
    let cached = root.read(Freshness::Cached).unwrap();
    let usage = cached.usage();
    let highest = Bytes(usage.hi as u64);
    assert_eq!(
        Bytes::display_value(usage).to_string(),
        format!("0 B (0 B to {highest})")
    );
    let batched = cached.get(BATCHED);
    assert_ne!(batched.lo, batched.hi, "or this shows nothing");
    assert_eq!(
        batched.to_string(),
        format!("{} ({}..={})", batched.value, batched.lo, batched.hi)
    );
    assert_eq!(cached.get(ROWS).to_string(), "0 (range unknown)");
    let padded = format!("[{:>40}]", cached.get(ROWS));
    assert_eq!(padded.len(), 42, "{padded}");
}

#[test]
fn readings_and_snapshots_fit_a_line_of_a_log() {
    const STATISTICS: &[Statistic] = &[Statistic::counter("rows")];
    let group = Memory::builder()
        .statistics(STATISTICS)
        .build()
        .unwrap()
        .make("group");
    group.add(Counter::from_name(STATISTICS, "rows"), 7);
    let _charge = group.try_charge(48 << 20).unwrap();
    let snapshot = group.snapshot(Freshness::Exact).unwrap();
    assert_eq!(
        format!("{snapshot:?}"),
        r#"Snapshot { path: "/group", groups: 1, usage: 48.0 MiB, .. }"#
    );
    let reading = format!("{:?}", snapshot.groups()[0].reading);
    let numbers = reading.split_once(", usage: ").unwrap().1;
    assert_eq!(numbers, "50331648, rows: 7, .. }", "{reading}");
    let emptied = group.emptied();
    assert_eq!(format!("{emptied:?}"), r#"Emptied(Group("/group"))"#);
}
