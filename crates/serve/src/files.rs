//! The files of a group, as in cgroup v2: the same names, forms and units.

use bursar::{Events, Freshness, Group, StallShare};

/// Names of all files.
pub(crate) const FILES: &[&str] = &[
    "memory.current",
    "memory.events",
    "memory.events.local",
    "memory.high",
    "memory.low",
    "memory.max",
    "memory.min",
    "memory.peak",
    "memory.pressure",
    "memory.stat",
];

/// The text of a group's file; `None` if there is no file of this name.
pub(crate) fn read(group: &Group, file: &str) -> Option<String> {
    let limits = group.limits();
    Some(match file {
        // With stock, as in the kernel, so that it compares with the limits.
        "memory.current" => format!("{}\n", group.reserved()),
        "memory.events" => events(&group.events()),
        "memory.events.local" => events(&group.own_events()),
        "memory.high" => limit(limits.high),
        "memory.low" => limit(limits.low),
        "memory.max" => limit(limits.max),
        "memory.min" => limit(limits.min),
        "memory.peak" => format!("{}\n", group.peak()),
        "memory.pressure" => {
            let stall = group.pressure().stall;
            format!("some {}full {}", share(stall.some), share(stall.full))
        }
        "memory.stat" => stat(group),
        _ => return None,
    })
}

fn limit(bytes: u64) -> String {
    match bytes {
        u64::MAX => "max\n".to_owned(),
        _ => format!("{bytes}\n"),
    }
}

/// Lines of `memory.events`: the kernel's keys, then the keys that only groups have. Kills are 0, because Bursar kills
/// nothing.
fn events(events: &Events) -> String {
    let mut text = String::new();
    for (name, _, get) in Events::COUNTERS {
        let count = get(events);
        text += &match name {
            "throttled_ns" => format!("throttled_usec {}\n", count / 1_000),
            "max" => {
                let refused = events.refused;
                format!("max {count}\noom {refused}\noom_kill 0\noom_group_kill 0\n")
            }
            _ => format!("{name} {count}\n"),
        };
    }
    text
}

/// In percent and microseconds.
fn share(share: StallShare) -> String {
    format!(
        "avg10={:.2} avg60={:.2} avg300={:.2} total={}\n",
        share.avg10 * 100.0,
        share.avg60 * 100.0,
        share.avg300 * 100.0,
        share.total.as_micros(),
    )
}

/// The usage without stock, and all statistics, as the last flush left them.
fn stat(group: &Group) -> String {
    let reading = match group.read(Freshness::Cached) {
        Ok(reading) => reading,
        Err(not_fresh) => not_fresh.cached,
    };
    let mut text = format!("usage {}\n", reading.usage_bytes());
    for (name, value) in reading.iter() {
        // A key is one word.
        let key = name.replace(|character: char| character.is_whitespace(), "_");
        text += &format!("{key} {}\n", value.value);
    }
    text
}
