//! The feature `serde`: what is written, and which limits are read.
#![cfg(feature = "serde")]

use crate::common::{ROWS, Short, UNIT, memory, units};
use std::future::Future;
use std::pin::pin;
use std::task::{Context, Waker};
use std::time::Duration;

use bursar::{Events, Freshness, Level, Limits, Memory, Value};
use serde_json::{Value as Json, from_str, json, to_value};

#[test]
fn limits_come_from_config_files() {
    #[derive(serde::Deserialize)]
    struct Config {
        tenants: std::collections::BTreeMap<String, Limits>,
    }
    let config = "
        [tenants.acme]
        max = 4294967296
        low = 1073741824
        [tenants.umbrella]
        high = 0
        [tenants.free]
    ";
    let tenants = toml::from_str::<Config>(config).unwrap().tenants;
    assert_eq!(tenants["acme"], Limits::max(4 << 30).low(1 << 30));
    assert_eq!(tenants["umbrella"], Limits::none().high(0));
    assert_eq!(tenants["free"], Limits::none());
    // `null` is no limit; `u64::MAX` too, where a format has it.
    let limits: Limits = from_str(r#"{"max": null, "high": 18446744073709551615}"#).unwrap();
    assert_eq!(limits, Limits::none());
    for bad in [
        r#"{"maximum": 1}"#,
        r#"{"max": -1}"#,
        r#"{"max": "4 GiB"}"#,
        r#"{"low": null}"#,
        "4096",
        "[4096]",
        "[1, 2, 3, 4]",
    ] {
        assert!(from_str::<Limits>(bad).is_err(), "{bad}");
    }
}

#[test]
fn limits_are_read_as_they_were_written() {
    for (limits, written) in [
        (Limits::none(), json!({"low": 0, "min": 0})),
        (
            Limits::max(0).high(3).low(2).min(1),
            json!({"max": 0, "high": 3, "low": 2, "min": 1}),
        ),
    ] {
        assert_eq!(to_value(limits).unwrap(), written);
        assert_eq!(serde_json::from_value::<Limits>(written).unwrap(), limits);
        let text = toml::to_string(&limits).unwrap();
        assert_eq!(toml::from_str::<Limits>(&text).unwrap(), limits);
    }
}

#[test]
fn bounds_that_are_unknown_are_left_out() {
    let value = |lo, hi| to_value(Value { value: 5, lo, hi }).unwrap();
    assert_eq!(value(5, 7), json!({"value": 5, "lo": 5, "hi": 7}));
    assert_eq!(value(i64::MIN, i64::MAX), json!({"value": 5}));
}

/// Each number is written under its own name.
#[test]
fn no_two_numbers_change_places() {
    let mut events = Events::default();
    events.low = 1;
    events.high = 2;
    events.max = 3;
    events.refused = 4;
    events.overshot = 5;
    events.drained_bytes = 6;
    events.reclaimed_bytes = 7;
    events.reclaim_failed = 8;
    events.throttled = Duration::from_nanos(9);
    events.over_returned_bytes = 10;
    events.panicked_callbacks = 11;
    events.reclaim_unreturned = 12;
    events.gave_up = 13;
    assert_eq!(
        to_value(events).unwrap(),
        json!({
            "low": 1, "high": 2, "max": 3, "refused": 4, "overshot": 5, "drained_bytes": 6, "reclaimed_bytes": 7,
            "reclaim_failed": 8, "throttled_ns": 9, "over_returned_bytes": 10, "panicked_callbacks": 11,
            "reclaim_unreturned": 12, "gave_up": 13,
        })
    );
    let mut pressure = memory().root().pressure();
    (pressure.level, pressure.by_usage) = (Level::Critical, Level::Low);
    pressure.by_stall = Level::High;
    let (some, full) = (&mut pressure.stall.some, &mut pressure.stall.full);
    (some.avg10, some.avg60, some.avg300) = (0.5, 0.25, 0.125);
    some.total = Duration::from_micros(1);
    (full.avg10, full.avg60, full.avg300) = (0.75, 1.0, 0.0);
    full.total = Duration::MAX;
    assert_eq!(
        to_value(pressure).unwrap(),
        json!({
            "level": "critical", "by_usage": "low", "by_stall": "high",
            "stall": {
                "some": {"avg10": 0.5, "avg60": 0.25, "avg300": 0.125, "total_ns": 1000},
                "full": {"avg10": 0.75, "avg60": 1.0, "avg300": 0.0, "total_ns": u64::MAX},
            },
        })
    );
}

#[test]
fn a_snapshot_is_a_list_of_groups() {
    let memory = memory();
    let group = memory.make_max("group", units(4));
    let _charge = group.try_charge(UNIT).unwrap();
    let child = group.make("child");
    drop(child.try_charge(3 * UNIT).unwrap());
    assert!(child.try_charge(8 * UNIT).is_err());
    child.set_max(0);
    assert!(child.try_charge(1).is_err());
    child.add(ROWS, 2);
    group.add(ROWS, 5);
    let snapshot = memory.snapshot(Freshness::Exact).unwrap();
    let written = to_value(&snapshot).unwrap();
    assert_eq!(written.as_array().unwrap().len(), 3);
    assert_eq!(
        (&written[0]["path"], &written[1]["path"]),
        (&json!("/"), &json!("/group"))
    );
    let mut group = written[1].clone();
    let age = group["reading"]["age_ns"].take();
    assert!(age.is_u64(), "{age}");
    let zero = json!({"value": 0, "lo": 0, "hi": 0, "own": 0});
    let share = json!({"avg10": 0.0, "avg60": 0.0, "avg300": 0.0, "total_ns": 0});
    let events = |count: u64| {
        json!({
            "low": 0, "high": 0, "max": count, "refused": count, "overshot": 0, "drained_bytes": 0,
            "reclaimed_bytes": 0, "reclaim_failed": 0, "throttled_ns": 0, "over_returned_bytes": 0,
            "panicked_callbacks": 0, "reclaim_unreturned": 0, "gave_up": 0,
        })
    };
    assert_eq!(
        group,
        json!({
            "path": "/group",
            "depth": 1,
            "limits": {"max": units(4), "low": 0, "min": 0},
            "reading": {
                "age_ns": Json::Null,
                "usage": {"value": UNIT, "lo": UNIT, "hi": UNIT, "own": UNIT},
                "over_returned": 0,
                "statistics": {
                    "rows": {"value": 7, "lo": 7, "hi": 7, "own": 5},
                    "balance": zero, "eager": zero, "batched": zero,
                },
            },
            "reserved": UNIT,
            "peak": units(4),
            "events": events(2),
            "own_events": events(1),
            "pressure": {
                "level": "none", "by_usage": "none", "by_stall": "none",
                "stall": {"some": share, "full": share},
            },
        })
    );
}

#[test]
fn those_that_wait_are_written() {
    let memory = memory();
    let group = memory.make_max("group", units(4));
    let child = group.make("child");
    let held = child.try_charge(units(3)).unwrap();
    let mut waits = pin!(child.charge_async(units(2)));
    let mut context = Context::from_waker(Waker::noop());
    assert!(waits.as_mut().poll(&mut context).is_pending());
    let snapshot = memory.snapshot(Freshness::Exact).unwrap();
    let written = to_value(&snapshot).unwrap();
    assert_eq!(
        written[2].get("waiting"),
        None,
        "its own limit is not in the way"
    );
    let mut waiting = written[1]["waiting"].clone();
    let waited = waiting[0]["waited_ns"].take();
    assert!(waited.is_u64(), "{waited}");
    let expected = json!([{"charged": "/group/child", "bytes": units(2), "waited_ns": null}]);
    assert_eq!(waiting, expected);
    drop(held);
    assert!(waits.as_mut().poll(&mut context).is_ready());
    let snapshot = memory.snapshot(Freshness::Exact).unwrap();
    assert!(snapshot.iter().all(|group| group.waiting.is_empty()));
}

#[test]
fn shares_of_nodes_are_written() {
    const PER_NODE: &[bursar::Statistic] = &[bursar::Statistic::counter("pages").per_node()];
    let memory = Memory::builder().statistics(PER_NODE).build().unwrap();
    memory
        .root()
        .add(bursar::Counter::from_name(PER_NODE, "pages"), 3);
    let reading = memory.exact();
    let written = to_value(&reading).unwrap();
    let shares = written["statistics"]["pages"]["per_node"]
        .as_array()
        .unwrap();
    assert_eq!(shares.iter().filter_map(Json::as_i64).sum::<i64>(), 3);
}
