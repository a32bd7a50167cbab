//! The observed machine, as `/proc` and `/sys` describe it.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use crate::seen::{Cgroup, HzSource, Machine, Task, Zone};
use crate::shown::shown;

/// Depth of cgroups that are looked at.
const DEPTH: u32 = 16;

/// Describes this machine. `hz` is a guess by the kernel's configuration, if that can be read.
pub fn machine() -> Machine {
    let read = |path: &str| fs::read_to_string(path).unwrap_or_default();
    let kernel = read("/proc/sys/kernel/osrelease").trim().to_owned();
    let config = read(&format!("/boot/config-{kernel}"));
    let hz = config
        .lines()
        .find_map(|line| line.strip_prefix("CONFIG_HZ=")?.parse().ok());
    Machine {
        cpus: cpus(),
        hz,
        hz_source: hz.map(|_| HzSource::Config),
        interval_s: read("/proc/sys/vm/stat_interval").trim().parse().ok(),
        virtualized: Some(read("/proc/cpuinfo").lines().any(|line| {
            line.starts_with("flags") && line.split(' ').any(|flag| flag == "hypervisor")
        })),
        zones: zones(&read("/proc/zoneinfo")),
        kernel,
    }
}

/// CPUs that are online.
pub fn cpus() -> usize {
    list_length(&fs::read_to_string("/sys/devices/system/cpu/online").unwrap_or_default())
}

/// Size of a page.
#[cfg(target_os = "linux")]
pub fn page_bytes() -> u64 {
    rustix::param::page_size() as u64
}

/// No page of a kernel that can be observed.
#[cfg(not(target_os = "linux"))]
pub fn page_bytes() -> u64 {
    0
}

/// Time of the kernel's monotonic clock, which the events have.
#[cfg(target_os = "linux")]
pub fn now_ns() -> u64 {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
    now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64
}

/// CPU time of this thread.
#[cfg(target_os = "linux")]
pub fn thread_cpu_ns() -> u64 {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64
}

/// No CPU time of a kernel that can be observed.
#[cfg(not(target_os = "linux"))]
pub fn thread_cpu_ns() -> u64 {
    0
}

/// No clock of a kernel that can be observed.
#[cfg(not(target_os = "linux"))]
pub fn now_ns() -> u64 {
    0
}

/// CPUs in a list such as `0-3,8`.
fn list_length(list: &str) -> usize {
    let parts = list.trim().split(',').filter_map(|part| {
        let (from, to) = part.split_once('-').unwrap_or((part, part));
        let [from, to]: [usize; 2] = [from.parse().ok()?, to.parse().ok()?];
        to.checked_sub(from).map(|more| more + 1)
    });
    parts.sum()
}

/// Zones with pages, in a text of `/proc/zoneinfo`.
fn zones(text: &str) -> Vec<Zone> {
    let mut zones: Vec<Zone> = Vec::new();
    // Numbers before the first line of page lists are the zone's.
    let mut is_in_lists = false;
    for line in text.lines() {
        let mut words = line.split_whitespace();
        let (Some(key), value) = (words.next(), words.next()) else {
            continue;
        };
        if key == "Node" {
            let node = value.and_then(|it| it.trim_end_matches(',').parse().ok());
            let name = line
                .split_whitespace()
                .last()
                .unwrap_or_default()
                .to_owned();
            zones.push(Zone {
                node: node.unwrap_or(0),
                name,
                ..Zone::default()
            });
            is_in_lists = false;
            continue;
        }
        let Some(zone) = zones.last_mut() else {
            continue;
        };
        is_in_lists |= key == "pagesets";
        let number = || value.and_then(|it| it.parse::<u64>().ok()).unwrap_or(0);
        match (key, is_in_lists) {
            ("min", false) => zone.min_pages = number(),
            ("low", false) => zone.low_pages = number(),
            ("high", false) => zone.high_pages = number(),
            ("spanned", false) => zone.spanned_pages = number(),
            ("managed", false) => zone.managed_pages = number(),
            ("batch:", true) => zone.pcp_batch = number() as u32,
            ("high:", true) => zone.pcp_high = zone.pcp_high.max(number()),
            ("start_pfn:", _) => zone.start_pfn = number(),
            _ => {}
        }
    }
    zones.retain(|zone| zone.managed_pages > 0);
    zones
}

/// Memory that can still be used, in KiB.
pub fn available_kb() -> Option<u64> {
    let text = fs::read_to_string("/proc/meminfo").ok()?;
    let line = text
        .lines()
        .find_map(|line| line.strip_prefix("MemAvailable:"))?;
    line.split_whitespace().next()?.parse().ok()
}

/// Names of these tasks, as far as they still run.
pub fn tasks(pids: impl IntoIterator<Item = i32>) -> Vec<Task> {
    let task = |pid| {
        let name = fs::read_to_string(format!("/proc/{pid}/comm")).ok()?;
        Some(Task {
            pid,
            // Any user may choose it.
            name: shown(name.trim_end()),
        })
    };
    pids.into_iter().filter_map(task).collect()
}

/// Threads of `kswapd`.
pub fn kswapds() -> BTreeSet<i32> {
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
    let pids = entries.filter_map(|it| it.file_name().to_str()?.parse().ok());
    let named = tasks(pids).into_iter();
    let kswapds = named.filter(|it| it.name.starts_with("kswapd"));
    kswapds.map(|it| it.pid).collect()
}

/// Mount point of the memory controller, or of the unified hierarchy.
pub fn memory_mount() -> Option<PathBuf> {
    let mounts = fs::read_to_string("/proc/self/mounts").ok()?;
    let point = |wanted: fn(&str, &str) -> bool| {
        mounts.lines().find_map(|line| {
            let words: Vec<_> = line.split(' ').collect();
            let [_, point, kind, options, ..] = words[..] else {
                return None;
            };
            wanted(kind, options).then(|| PathBuf::from(point))
        })
    };
    point(|kind, options| kind == "cgroup" && options.split(',').any(|it| it == "memory"))
        .or_else(|| point(|kind, _| kind == "cgroup2"))
}

/// Paths of these cgroups, by the numbers of their directories.
pub fn cgroups(ids: &[u64]) -> Vec<Cgroup> {
    let mut found = BTreeMap::new();
    if let (Some(mount), false) = (memory_mount(), ids.is_empty()) {
        look(&mount, &mount, ids, DEPTH, &mut found);
    }
    found
        .into_iter()
        .map(|(id, path)| Cgroup { id, path })
        .collect()
}

fn look(
    mount: &Path,
    directory: &Path,
    ids: &[u64],
    depth: u32,
    found: &mut BTreeMap<u64, String>,
) {
    if let Ok(metadata) = fs::metadata(directory)
        && ids.contains(&metadata.ino())
    {
        let below = directory.strip_prefix(mount).unwrap_or(directory);
        found.insert(metadata.ino(), shown(&format!("/{}", below.display())));
    }
    if depth == 0 || found.len() == ids.len() {
        return;
    }
    for entry in fs::read_dir(directory).into_iter().flatten().flatten() {
        if entry.file_type().is_ok_and(|it| it.is_dir()) {
            look(mount, &entry.path(), ids, depth - 1, found);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Any user may name a thread, or a cgroup that is the user's.
    #[test]
    fn names_that_a_terminal_would_obey_are_shown_without_that() {
        let of_thread = || {
            let link = fs::read_link("/proc/thread-self").expect("a thread");
            let number = link
                .file_name()
                .and_then(|name| name.to_str()?.parse().ok());
            tasks(number).remove(0).name
        };
        let thread = std::thread::Builder::new().name("a\u{1b}[2J".to_owned());
        let thread = thread.spawn(of_thread).expect("another thread");
        assert_eq!(thread.join().expect("no panic"), "a[2J");
        let mount = std::env::temp_dir().join(format!("bursar-names-{}", std::process::id()));
        let directory = mount.join("a\u{1b}[2J");
        fs::create_dir_all(&directory).expect("a temporary directory");
        let id = fs::metadata(&directory).expect("the directory").ino();
        let mut found = BTreeMap::new();
        look(&mount, &mount, &[id], DEPTH, &mut found);
        fs::remove_dir_all(&mount).expect("the directory goes");
        assert_eq!(found.into_values().collect::<Vec<_>>(), ["/a[2J"]);
    }

    #[test]
    fn lists_of_cpus_are_counted() {
        assert_eq!(list_length("0-3,8\n"), 5);
        assert_eq!(list_length("0"), 1);
        assert_eq!(list_length(""), 0);
    }

    #[test]
    fn zones_have_their_own_numbers_and_not_those_of_lists() {
        let text = "Node 0, zone      DMA\n  per-node stats\n      nr_inactive_anon 1006\n  pages free     3840\n        \
            min      49\n        low      61\n        high     73\n        spanned  4095\n        managed  3840\n  \
            pagesets\n    cpu: 0\n              count:    9\n              high:     52\n              batch:    1\n    \
            cpu: 1\n              high:     90\n              batch:    1\n  start_pfn:           1\n\
            Node 1, zone  Movable\n        managed  0\n";
        let zones = zones(text);
        let expected = Zone {
            node: 0,
            name: "DMA".to_owned(),
            start_pfn: 1,
            spanned_pages: 4095,
            managed_pages: 3840,
            min_pages: 49,
            low_pages: 61,
            high_pages: 73,
            pcp_batch: 1,
            pcp_high: 90,
        };
        assert_eq!(zones, [expected]);
    }
}
