//! Snapshots: what they hold, how they are drawn, and that children and own part add up to each group, whatever runs.

use std::future::Future;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::task::{Context, Wake, Waker};
use std::time::Duration;

use crate::common::world::Stop;
use crate::common::{
    BALANCE, BATCHED, EAGER, ROWS, Random, STATISTICS, Short, UNIT, memory, numbers, seed, units,
};
use bursar::{
    Bytes, FlushPolicy, Freshness, Group, GroupSnapshot, Level, Limits, Memory, Snapshot, Statistic,
};

fn paths(snapshot: &Snapshot) -> Vec<&str> {
    snapshot.iter().map(|group| &*group.path).collect()
}

/// Children and own part make each group; paths and depths are those of a tree.
fn check_sums(snapshot: &Snapshot) {
    let groups = snapshot.groups();
    for (at, group) in groups.iter().enumerate() {
        let below = groups[at + 1..]
            .iter()
            .take_while(|below| below.depth > group.depth);
        let children: Vec<_> = below
            .filter(|below| below.depth == group.depth + 1)
            .collect();
        let names: Vec<_> = children.iter().map(|child| child.name()).collect();
        assert!(names.is_sorted_by(|one, other| one < other), "{names:?}");
        let mut sums = numbers(&group.reading).map(|(_, own)| own);
        for child in children {
            let parent = child.path.rsplit_once('/').unwrap().0;
            assert_eq!(parent, group.path.trim_end_matches('/'));
            let parts = numbers(&child.reading).map(|(value, _)| value);
            sums.iter_mut()
                .zip(parts)
                .for_each(|(sum, part)| *sum += part);
        }
        let whole = numbers(&group.reading).map(|(value, _)| value);
        assert_eq!(sums, whole, "own part and children of {}", group.path);
        let usage = group.reading.usage();
        assert!(0 <= usage.lo && usage.lo <= usage.value && usage.value <= usage.hi);
    }
}

#[test]
fn groups_come_depth_first_with_all_their_numbers() {
    let memory = memory();
    let root = memory.root();
    let b = root.make_with("b", Limits::max(8 << 20).low(1 << 20));
    let a = root.make("a");
    let scan = a.make("scan");
    let charge = scan.try_charge(3 << 20).unwrap();
    drop(a.try_charge(2 << 20).unwrap());
    let nearly_all = b.try_charge(8 << 20).unwrap();
    assert!(b.try_charge(16 << 20).is_err());
    scan.add(ROWS, 7);
    a.add(EAGER, -2);
    let snapshot = memory.snapshot(Freshness::Exact).unwrap();
    check_sums(&snapshot);
    assert_eq!(paths(&snapshot), ["/", "/a", "/a/scan", "/b"]);
    assert_eq!(snapshot.get("a/scan/"), snapshot.get("/a/scan"));
    assert!(snapshot.get("/a/b").is_none() && snapshot.get("scan").is_none());
    for group in &snapshot {
        let handle = memory.find(&group.path).unwrap();
        assert_eq!(group.name(), handle.name());
        assert_eq!(group.limits, handle.limits());
        assert_eq!(group.reading, handle.exact());
        assert_eq!(
            (group.reserved, group.peak),
            (handle.reserved(), handle.peak())
        );
        assert_eq!(group.events, handle.events());
        assert_eq!(group.own_events, handle.own_events());
        assert_eq!(group.pressure, handle.pressure());
    }
    assert_eq!(snapshot.get("/b").unwrap().own_events.refused, 1);
    assert_eq!(snapshot.get("/").unwrap().reading.usage_bytes(), 11 << 20);
    let pressure = |path| snapshot.get(path).unwrap().pressure.level;
    assert_eq!(
        (pressure("/b"), pressure("/")),
        (Level::Critical, Level::None)
    );
    drop(nearly_all);

    // Of a part of the tree, and of a group that is no more.
    let part = a.snapshot(Freshness::Exact).unwrap();
    assert_eq!(paths(&part), ["/a", "/a/scan"]);
    assert_eq!(part.groups()[1].depth, 1);
    scan.remove().unwrap();
    let part = a.snapshot(Freshness::Exact).unwrap();
    assert_eq!(paths(&part), ["/a"]);
    assert_eq!(part.groups()[0].reading.own_usage(), 3 << 20);
    let removed = scan.snapshot(Freshness::Exact).unwrap();
    assert_eq!(paths(&removed), ["/a/scan"]);
    assert_eq!(removed.groups()[0].reading.usage_bytes(), 3 << 20);
    drop(charge);
}

#[test]
fn freshness_is_that_of_every_group() {
    let builder = Memory::builder().statistics(STATISTICS);
    let memory = builder.flush_period(Duration::from_secs(3600)).build();
    let memory = memory.unwrap();
    let group = memory.make("group");
    let mut charge = group.try_charge(5 << 20).unwrap();
    group.add(BATCHED, 10);
    let flushes = || memory.flush_counts().root;
    let usage = |snapshot: &Snapshot| snapshot.get("group").unwrap().reading.usage();

    let cached = memory.snapshot(Freshness::Cached).unwrap();
    let old = memory.snapshot(Freshness::AtMost(Duration::from_secs(3600)));
    for snapshot in [&cached, &old.unwrap()] {
        check_sums(snapshot);
        let usage = usage(snapshot);
        assert!(usage.value == 0 && usage.hi >= 5 << 20, "{usage:?}");
    }
    // The bytes that a batch holds back are known, but not the usage.
    let within = memory.snapshot(Freshness::UsageWithin(1 << 30)).unwrap();
    assert!(usage(&within).hi >= 5 << 20);
    assert_eq!(flushes(), 0);
    let within = memory.snapshot(Freshness::UsageWithin(1 << 10)).unwrap();
    assert_eq!((usage(&within).value, flushes()), (5 << 20, 1));
    let new = memory.snapshot(Freshness::AtMost(Duration::ZERO)).unwrap();
    assert_eq!((usage(&new).error(), flushes()), (0, 2));
    assert!(new.age() < Duration::from_secs(3600));
    let exact = memory.snapshot(Freshness::Exact).unwrap();
    assert_eq!((usage(&exact).value, flushes()), (5 << 20, 3));

    // A charge has moved: the root's usage is known, and not where the bytes are.
    let to = memory.make("to");
    charge.move_to(&to).unwrap();
    assert_eq!(
        memory
            .root()
            .read(Freshness::UsageWithin(1 << 10))
            .unwrap()
            .usage()
            .error(),
        0
    );
    let within = memory.snapshot(Freshness::UsageWithin(1 << 10)).unwrap();
    assert_eq!((usage(&within).value, flushes()), (0, 4));
    charge.move_to(&group).unwrap();
    memory.exact();

    // A group that was flushed by itself is newer than the one above, and they still add up.
    let inner = group.make("inner");
    let _more = inner.try_charge(1 << 20).unwrap();
    group.exact();
    let cached = memory.snapshot(Freshness::Cached).unwrap();
    check_sums(&cached);
    assert_eq!(cached.get("/").unwrap().reading.usage().value, 6 << 20);
}

/// More children than are looked up at once, some of which are removed.
#[test]
fn a_group_may_have_many_children() {
    let group = memory().make("group");
    let children: Vec<Group> = (0..300).map(|at| group.make(format!("{at:03}"))).collect();
    for child in &children {
        child.add(ROWS, 1);
    }
    let (removed, kept) = children.split_at(100);
    removed.iter().for_each(|child| child.remove().unwrap());
    let snapshot = group.snapshot(Freshness::Exact).unwrap();
    check_sums(&snapshot);
    let names = snapshot.iter().skip(1).map(GroupSnapshot::name);
    assert!(names.eq(kept.iter().map(|child| child.name())));
    let reading = &snapshot.groups()[0].reading;
    assert_eq!((reading.get(ROWS).value, reading.own(ROWS)), (300, 100));
}

#[test]
fn a_policy_that_forbids_the_flush_is_told() {
    let builder = Memory::builder().statistics(STATISTICS);
    let memory = builder.policy(FlushPolicy::PeriodicOnly).build().unwrap();
    let group = memory.make("group");
    let _charge = group.try_charge(5 << 20).unwrap();
    assert!(memory.snapshot(Freshness::Exact).is_err());
    let cached = memory.snapshot(Freshness::Cached).unwrap();
    assert_eq!(cached.groups().len(), 2);
    // The printed tree has the numbers of now, and says so.
    let shown = memory.to_string();
    assert!(shown.contains("0 B ("), "{shown}");
    assert_eq!(shown.lines().count(), 2);
}

#[test]
fn a_tree_is_drawn_in_80_columns() {
    let memory = Memory::builder().max(96 << 20).build().unwrap();
    let acme = memory.make_max("acme", 64 << 20);
    let evil = "evil\n2026-01-01 ERROR root logged in\x1b[2J";
    let evil = acme.make(evil);
    let _charge = evil.try_charge(1536 << 10).unwrap();
    assert_eq!(
        memory.to_string(),
        "/                                                   1.50 MiB of 96.0 MiB\n\
        \x20 acme                                              1.50 MiB of 64.0 MiB\n\
        \x20   evil\\n2026-01-01 ERROR root logged in\\u{1b}[2J  1.50 MiB"
    );
    assert_eq!(
        evil.snapshot(Freshness::Exact)
            .unwrap()
            .to_string()
            .lines()
            .count(),
        1
    );

    // Deep and long.
    let mut at = acme;
    let mut deep = Vec::new();
    for level in 0..62 {
        let name = format!("{level}-{}", "ü".repeat(100));
        at = at.make_max(&name, u64::MAX / 2);
        deep.push(at.clone());
    }
    for shown in [
        memory.to_string(),
        memory.snapshot(Freshness::Cached).unwrap().to_string(),
    ] {
        assert_eq!(shown.lines().count(), 65);
        for line in shown.lines() {
            assert!(line.chars().count() <= 80, "{line}");
            assert!(line.contains("MiB") || line.contains(" 0 B"), "{line}");
        }
    }
}

/// Threads count, charge, and let groups come and go while others read everything.
#[test]
fn children_and_own_part_add_up_while_everything_runs() {
    const READINGS: usize = 2_000;
    let seed = seed();
    let memory = memory();
    let tenants = ["acme", "umbrella"].map(|name| memory.root().child(name, Limits::none()));
    let tenants = tenants.map(Result::unwrap);
    let is_over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        for thread in 0..3_u64 {
            let (tenants, is_over) = (&tenants, &is_over);
            let mut random = Random(seed ^ thread << 32);
            scope.spawn(move || {
                let mut queries: Vec<Group> = Vec::new();
                let mut held = Vec::new();
                while !is_over.load(Ordering::Relaxed) {
                    let tenant = &tenants[random.below(2)];
                    match random.below(8) {
                        0 => {
                            // Often the name of one that was removed and holds bytes.
                            let name = format!("q{thread}-{}", random.below(3));
                            queries.extend(tenant.child(&name, Limits::none()));
                        }
                        1 if !queries.is_empty() => {
                            let query = queries.swap_remove(random.below(queries.len()));
                            query.remove().unwrap();
                            query.add(ROWS, 1);
                        }
                        2 => held.truncate(random.below(8)),
                        3 => drop(queries.last().map(|query| query.read(Freshness::Exact))),
                        4 => drop(tenant.read(Freshness::Exact)),
                        _ => {
                            let group = queries.last().unwrap_or(tenant);
                            group.add(ROWS, 3);
                            group.add(BALANCE, -2);
                            group.add(EAGER, 1);
                            group.add(BATCHED, 5);
                            held.extend(group.try_charge(1 + random.below(100_000) as u64));
                        }
                    }
                }
            });
        }
        let stop = Stop(&is_over);
        let mut rows = 0;
        for round in 0..READINGS {
            let freshness = match round % 4 {
                0 => Freshness::Cached,
                1 => Freshness::UsageWithin(1 << 20),
                _ => Freshness::Exact,
            };
            let snapshot = memory.snapshot(freshness).unwrap();
            check_sums(&snapshot);
            let now = snapshot.groups()[0].reading.get(ROWS).value;
            assert!(now >= rows, "{now} rows, after {rows}");
            rows = now;
            check_sums(&tenants[0].snapshot(freshness).unwrap());
            memory.tick();
        }
        drop(stop);
    });
    // Nothing runs: each group is what a reading of its own says.
    let snapshot = memory.snapshot(Freshness::Exact).unwrap();
    check_sums(&snapshot);
    for group in &snapshot {
        let alone = memory.find(&group.path).unwrap();
        assert_eq!(group.reading, alone.exact());
    }
}

/// Takes snapshots in each call, and counts the calls.
struct Observer {
    memory: Memory,
    calls: AtomicUsize,
}

impl Observer {
    fn observe(&self) {
        for freshness in [Freshness::Exact, Freshness::Cached] {
            let snapshot = self.memory.snapshot(freshness).unwrap();
            check_sums(&snapshot);
            assert_eq!(snapshot.groups().len(), 2);
        }
        self.calls.fetch_add(1, Ordering::Relaxed);
    }

    fn calls(&self) -> usize {
        self.calls.swap(0, Ordering::Relaxed)
    }
}

impl Wake for Observer {
    fn wake(self: Arc<Self>) {
        self.observe();
    }
}

#[test]
fn callbacks_take_snapshots() {
    let memory = memory();
    let group = memory.make_max("group", units(4));
    let observer = Arc::new(Observer {
        memory: memory.clone(),
        calls: AtomicUsize::new(0),
    });
    let observing = observer.clone();
    let reclaimer = group.add_reclaimer(0, move |_| {
        observing.observe();
        0
    });
    let held = group.try_charge(UNIT).unwrap();
    assert!(group.try_charge(4 * UNIT).is_err());
    assert!(observer.calls() > 0, "no reclaimer");
    drop((reclaimer, held));
    let observing = observer.clone();
    let watcher = group.on_pressure(move |_| observing.observe());
    let charge = group.try_charge(4 * UNIT).unwrap();
    assert!(observer.calls() > 0, "no pressure");
    drop(watcher);
    observer.calls();
    let waker = Waker::from(observer.clone());
    let mut context = Context::from_waker(&waker);
    let mut waits = pin!(group.charge_async(UNIT));
    assert!(waits.as_mut().poll(&mut context).is_pending());
    assert_eq!(observer.calls(), 0);
    drop(charge);
    assert!(observer.calls() > 0, "no waker");
    assert!(waits.as_mut().poll(&mut context).is_ready());
    // A waker of the group's watchers, which a snapshot locks too.
    let mut changed = pin!(group.pressure_changed(Level::None));
    assert!(changed.as_mut().poll(&mut context).is_pending());
    observer.calls();
    let _charge = group.try_charge(4 * UNIT).unwrap();
    assert!(observer.calls() > 0, "no waker of pressure");
}

#[test]
fn shares_of_nodes_add_up() {
    const PER_NODE: &[Statistic] = &[Statistic::counter("pages").per_node()];
    let pages = bursar::Counter::from_name(PER_NODE, "pages");
    let memory = Memory::builder().statistics(PER_NODE).build().unwrap();
    let group = memory.make("group");
    let child = group.make("child");
    group.add(pages, 3);
    child.add(pages, 4);
    let snapshot = memory.snapshot(Freshness::Exact).unwrap();
    for (path, value) in [("/", 7), ("/group", 7), ("/group/child", 4)] {
        let reading = &snapshot.get(path).unwrap().reading;
        assert_eq!(reading.get(pages).value, value);
        assert_eq!(reading.per_node(pages).unwrap().iter().sum::<i64>(), value);
    }
    assert_eq!(Bytes(snapshot.groups()[0].reserved).to_string(), "0 B");
}
