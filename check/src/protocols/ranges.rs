//! Cached reads: the truth always lies in the range that comes with the number, also while groups come and go and idle slots are
//! retired.

use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

use bursar::{Counter, Freshness, Group, Limits, Memory, Statistic, Value};
use bursar_rig::Watched;

use super::books::run;
use crate::random::Random;

const STATISTICS: &[Statistic] = &[Statistic::counter("bytes").batch(3)];
const BYTES: Counter = Counter::from_name(STATISTICS, "bytes");

/// Sums that must be there and that may be, now and since a read began. Not the machine's words: recording costs no
/// step.
#[derive(Default)]
struct Sum {
    least: AtomicI64,
    most: AtomicI64,
    lowest: AtomicI64,
    highest: AtomicI64,
}

// Relaxed throughout: one thread of the host runs all tasks.
impl Sum {
    fn change<R>(&self, by: i64, work: impl FnOnce() -> R) -> R {
        // Bytes on their way down need not be there any more.
        let (before, after) = match by {
            0.. => (&self.most, &self.least),
            _ => (&self.least, &self.most),
        };
        before.fetch_add(by, Ordering::Relaxed);
        self.note();
        let result = work();
        after.fetch_add(by, Ordering::Relaxed);
        self.note();
        result
    }

    fn note(&self) {
        self.lowest.fetch_min(self.least(), Ordering::Relaxed);
        self.highest.fetch_max(self.most(), Ordering::Relaxed);
    }

    /// Begins a read; there is one reader.
    fn begin(&self) {
        self.lowest.store(self.least(), Ordering::Relaxed);
        self.highest.store(self.most(), Ordering::Relaxed);
    }

    /// Checks that the range that was read contains the truth of some moment since.
    fn check(&self, what: &str, read: Value) {
        let (lowest, highest) = [&self.lowest, &self.highest]
            .map(|bound| bound.load(Ordering::Relaxed))
            .into();
        assert!(
            read.lo <= highest && lowest <= read.hi,
            "{what}: {read:?}, and there were {lowest} to {highest}"
        );
        assert!(
            read.lo <= read.value && read.value <= read.hi,
            "{what}: {read:?} is no range"
        );
    }

    fn least(&self) -> i64 {
        self.least.load(Ordering::Relaxed)
    }

    fn most(&self) -> i64 {
        self.most.load(Ordering::Relaxed)
    }
}

/// Makes a root, and a leaf with a limit below.
fn two_groups<M: Watched>(machine: &M) -> (Memory<M>, [Group<M>; 2]) {
    let memory = Memory::builder()
        .statistics(STATISTICS)
        // Each read does a step of a pass over idle slots.
        .retire_period(Duration::ZERO)
        .build_on(machine.clone())
        .expect("a small memory");
    let root = memory.root();
    let leaf = root.child("leaf", Limits::max(1000)).expect("a name");
    (memory, [root, leaf])
}

pub(super) fn scenario<M: Watched>(machine: &M, seed: u64) {
    let mut random = Random::fork(seed, 0);
    match random.below(5) {
        0 => batched(machine, seed),
        1 => returned(machine, seed, random),
        2 => drained(machine, seed),
        _ => everything(machine, seed),
    }
}

/// Lets tasks add far more than a batch to the same batched statistic, and read it at once. Some flush.
fn batched<M: Watched>(machine: &M, seed: u64) {
    let (_, [root, leaf]) = &two_groups(machine);
    let rows = &Sum::default();
    let work = move |mut random: Random| {
        for _ in 0..3 {
            let by = 20 + random.below(40);
            rows.change(by as i64, || leaf.add(BYTES, by));
            if random.below(2) == 0 {
                root.read(Freshness::Exact).expect("readers may flush");
            }
            // Numbers only grow here, so no reader needs bounds of its own.
            let least = rows.least();
            let reading = root.read(Freshness::Cached).expect("cached");
            let (read, most) = (reading.get(BYTES), rows.most());
            assert!(
                read.lo <= most && least <= read.hi,
                "rows: {read:?}, and there were {least} to {most}"
            );
        }
    };
    // Two of them begin on the same CPU.
    run(machine, seed, || (), tasks![work, work, work]);
}

/// Lets three or four tasks return their bytes at once, all on one CPU. Then no byte is charged, and all reserved bytes
/// are stock. A reader of an earlier flush's result must allow for all of it.
fn returned<M: Watched>(machine: &M, seed: u64, mut random: Random) {
    let (_, groups) = &two_groups(machine);
    let [root, leaf] = groups;
    // As much as a CPU may hold as stock, nearly.
    let mut charge = || leaf.try_charge(65 + random.below(15));
    let held: Vec<_> = (0..3 + seed % 2)
        .map(|_| charge().expect("there is room"))
        .collect();
    // Takes the stock back, so that each finds a CPU without any.
    leaf.set_max(999);
    root.read(Freshness::Exact).expect("readers may flush");
    let charged = &AtomicI64::new(held.iter().map(|charge| charge.bytes() as i64).sum());
    let mut tasks: Vec<Box<dyn FnOnce(Random) + Send>> = Vec::new();
    for charge in held {
        tasks.push(Box::new(move |_| {
            let bytes = charge.bytes() as i64;
            drop(charge);
            charged.fetch_sub(bytes, Ordering::Relaxed);
        }));
        // On the other CPU.
        tasks.push(Box::new(|_| {
            let most = charged.load(Ordering::Relaxed);
            let usage = leaf.read(Freshness::Cached).expect("cached").usage();
            assert!(usage.lo <= most, "{usage:?}, and {most} are charged");
        }));
    }
    run(machine, seed, || (), tasks);
    for group in groups {
        for freshness in [Freshness::Cached, Freshness::UsageWithin(100)] {
            let usage = group.read(freshness).expect("readers may flush").usage();
            assert!(
                usage.lo <= 0 && 0 <= usage.hi,
                "{group:?}, {freshness:?}: {usage:?}, and nothing is charged"
            );
        }
    }
}

/// Lets all stock be drained while a reader looks at the usage and at the bound on the stock. Less is charged than the last flush found.
fn drained<M: Watched>(machine: &M, seed: u64) {
    const LEFT: u64 = 10;
    let (_, groups) = &two_groups(machine);
    let [root, leaf] = groups;
    let held = leaf.try_charge(LEFT).expect("there is room");
    let more = leaf.try_charge(20).expect("there is room");
    root.read(Freshness::Exact).expect("readers may flush");
    drop(more);
    let read = |mut random: Random| {
        let group = &groups[random.below(2) as usize];
        let usage = group.read(Freshness::Cached).expect("cached").usage();
        let left = LEFT as i64;
        assert!(
            usage.lo <= left && left <= usage.hi,
            "{group:?}: {usage:?}, and {left} are charged"
        );
    };
    run(
        machine,
        seed,
        || (),
        tasks![read, |_| leaf.set_max(999), read],
    );
    drop(held);
}

fn everything<M: Watched>(machine: &M, seed: u64) {
    let (memory, [root, leaf]) = &two_groups(machine);
    let (rows, bytes) = (&Sum::default(), &Sum::default());
    let work = move |mut random: Random| {
        let mut held = Vec::new();
        for _ in 0..4 {
            let size = 1 + random.below(120);
            match random.below(3) {
                0 => {
                    let by = 1 + random.below(4);
                    rows.change(by as i64, || leaf.add(BYTES, by));
                }
                1 => held.push(bytes.change(size as i64, || {
                    leaf.try_charge(size).expect("there is room")
                })),
                _ => {
                    if let Some(charge) = held.pop() {
                        bytes.change(-(charge.bytes() as i64), || drop(charge));
                    }
                }
            }
        }
        for charge in held {
            bytes.change(-(charge.bytes() as i64), || drop(charge));
        }
    };
    let add = move |mut random: Random| {
        // Perhaps in a group that ends afterwards.
        let child = || leaf.child("child", Limits::none());
        let child = (random.below(3) == 0).then(child).and_then(Result::ok);
        let group = child.as_ref().unwrap_or(leaf);
        for _ in 0..3 {
            let by = 1 + random.below(4);
            rows.change(by as i64, || group.add(BYTES, by));
        }
    };
    let read = move |mut random: Random| {
        for _ in 0..3 {
            if random.below(4) == 0 {
                memory.tick();
            }
            let group = [root, leaf][random.below(2) as usize];
            let freshness = match random.below(3) {
                0 => Freshness::Exact,
                1 => match random.below(20) {
                    error if error % 2 == 0 => Freshness::UsageWithin(error),
                    error => Freshness::CounterWithin(BYTES, error),
                },
                _ => Freshness::Cached,
            };
            rows.begin();
            bytes.begin();
            let reading = group.read(freshness).expect("readers may flush");
            rows.check(&format!("rows, {freshness:?}"), reading.get(BYTES));
            // A value that a flush of this very read found has no range, and may count a return on one CPU without the
            // charge on another, both of them under way: then it is below what was held at any moment.
            let usage = reading.usage();
            if freshness == Freshness::Cached || usage.error() > 0 {
                bytes.check(&format!("usage, {freshness:?}"), usage);
            }
        }
    };
    run(
        machine,
        seed,
        || {
            let (held, reserved) = (bytes.least(), leaf.reserved());
            assert!(
                held <= reserved as i64,
                "{held} bytes held, {reserved} reserved"
            );
        },
        tasks![work, add, read, add, work],
    );
    for group in [root, leaf] {
        rows.begin();
        bytes.begin();
        let reading = group.read(Freshness::Cached).expect("cached");
        rows.check("rows in the end", reading.get(BYTES));
        bytes.check("usage in the end", reading.usage());
        let reading = group.read(Freshness::Exact).expect("readers may flush");
        assert_eq!(reading.get(BYTES).value, rows.least(), "rows in the end");
        assert_eq!(reading.usage().value, 0, "bytes in the end");
    }
}
