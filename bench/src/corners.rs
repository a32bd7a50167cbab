//! `corners`: operations whose cost must not grow with the number of other groups, and the worst of what they hold up.
//!
//! * *Lower the limit*: `set_max` of a parent whose children all hold stock. Beside it, a thread charges a sibling of these
//!   children more than stock may cover, so that it needs none of the stock that is taken back. The figures are the time of the
//!   whole call and the longest of those charges.
//! * *Birth and end*: `child` and the drop of its handle, beside removed groups that are still referred to by handles, or that
//!   have bytes charged and no handle.
//! * *Refuse*: charges that a group's limit refuses, by the number of its children that use memory.
//! * *Remove*: `Group::remove` of a leaf beside threads that read the root `Exact`, each after it has counted in a leaf of its own.
//!
//! With two CPUs or fewer, the longest times include those in which a thread waited for a CPU.

use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};

use bursar::{Charge, ChargeError, Freshness, Group, Limits};

use crate::series::Summary;
use crate::timing::{Slice, Spent, Stopwatch, on_cpus, spin_until};
use crate::tree::{self, ROWS};

/// Charge of each group that is to hold stock or to use memory, bytes.
const SMALL: u64 = 4096;
/// A charge that is larger than the stock of a CPU, bytes.
const LARGE: u64 = 65 << 20;
/// Threads that read the root while leaves are removed.
const READERS: usize = 32;

/// One row of the table for each figure.
pub struct Figure {
    pub name: &'static str,
    pub unit: &'static str,
}

/// One operation beside some number of groups.
pub trait Corner {
    fn scenario(&self) -> &'static str;
    /// The groups that it is done beside.
    fn beside(&self) -> &str;
    fn figures(&self) -> &'static [Figure];
    /// The most rounds that this corner takes part in.
    fn rounds_max(&self) -> usize;
    /// One turn, which measures each figure once.
    fn turn(&self, cpus: &[usize], slice: Slice) -> Vec<f64>;
    /// After all turns: whether the books balance.
    ///
    /// # Errors
    /// Returns the first inconsistency, if any.
    fn check(&self) -> Result<(), String>;
}

/// Numbers of groups beside which the calls are made.
pub struct Sizes {
    pub holding: Vec<usize>,
    pub removed: Vec<usize>,
    pub using: Vec<usize>,
    /// Leaves that are removed in a turn.
    pub leaves: usize,
}

impl Sizes {
    /// Returns the sizes of a run, with 400,000 groups that hold stock if `is_large`.
    pub fn full(is_large: bool) -> Self {
        let mut holding = vec![1_000, 10_000, 100_000];
        holding.extend(is_large.then_some(400_000));
        Self {
            holding,
            removed: vec![10_000, 20_000],
            using: vec![0, 1_000, 10_000, 100_000],
            leaves: 300,
        }
    }

    /// A few, to see whether everything works. The figures are not representative.
    pub fn quick() -> Self {
        Self {
            holding: vec![10, 1_000],
            removed: vec![100],
            using: vec![0, 100],
            leaves: 20,
        }
    }
}

/// Makes the corners whose "scenario beside" contains `filter`.
pub fn corners(sizes: &Sizes, filter: Option<&str>) -> Vec<Box<dyn Corner>> {
    type Make = Box<dyn FnOnce(String) -> Box<dyn Corner>>;
    let mut plans: Vec<(&str, String, Make)> = Vec::new();
    for &size in &sizes.holding {
        let make: Make = Box::new(move |beside| Box::new(Lowering::new(beside, size)));
        plans.push((LOWER, format!("{size} that hold stock"), make));
    }
    let make: Make = Box::new(|beside| Box::new(Births::new(beside, 0, Kept::Handle)));
    plans.push((BIRTH, "0 removed".into(), make));
    for &size in &sizes.removed {
        for kept in [Kept::Handle, Kept::Charge] {
            let make: Make = Box::new(move |beside| Box::new(Births::new(beside, size, kept)));
            plans.push((BIRTH, format!("{size} removed, {}", kept.name()), make));
        }
    }
    for &size in &sizes.using {
        let make: Make = Box::new(move |beside| Box::new(Refusals::new(beside, size)));
        plans.push((REFUSE, format!("{size} with usage"), make));
    }
    let leaves = sizes.leaves;
    let make: Make = Box::new(move |beside| Box::new(Removals::new(beside, leaves)));
    plans.push((REMOVE, format!("{READERS} readers"), make));

    let is_wanted = |scenario: &str, beside: &str| {
        filter.is_none_or(|filter| format!("{scenario} {beside}").contains(filter))
    };
    plans
        .into_iter()
        .filter(|(scenario, beside, _)| is_wanted(scenario, beside))
        .map(|(_, beside, make)| make(beside))
        .collect()
}

/// A group below the root, and `count` groups below that.
fn family(count: usize) -> (Group, Vec<Group>) {
    let root = tree::memory().root();
    let parent = root.child("parent", Limits::none()).expect("a new group");
    let child = |index| parent.child(format!("group-{index}"), Limits::none());
    let children = (0..count).map(|index| child(index).expect("room for a group"));
    let children = children.collect();
    (parent, children)
}

fn is_uncharged(group: &Group) -> Result<(), String> {
    let reading = group.read(Freshness::Exact).expect("the group exists");
    match reading.usage().value {
        0 => Ok(()),
        bytes => Err(format!("{bytes} bytes are charged after all returns")),
    }
}

const LOWER: &str = "lower the limit";

struct Lowering {
    beside: String,
    parent: Group,
    children: Vec<Group>,
    sibling: Group,
    /// Lowered by one byte in each turn, so that it never is in the way.
    max: AtomicU64,
}

impl Lowering {
    fn new(beside: String, size: usize) -> Self {
        let (parent, children) = family(size);
        let sibling = parent.child("sibling", Limits::none());
        Self {
            beside,
            sibling: sibling.expect("a new group"),
            parent,
            children,
            max: AtomicU64::new(1 << 50),
        }
    }

    /// Charges until `over`; returns the longest charge, nanoseconds.
    fn charge_until(&self, begun: &AtomicBool, over: &AtomicBool) -> u64 {
        let mut worst_ns = 0;
        while !over.load(Ordering::Acquire) {
            let watch = Stopwatch::start();
            let charge = self.sibling.try_charge(LARGE).expect("the limit is far");
            worst_ns = worst_ns.max(watch.ns());
            drop(charge);
            begun.store(true, Ordering::Release);
        }
        worst_ns
    }
}

impl Corner for Lowering {
    fn scenario(&self) -> &'static str {
        LOWER
    }

    fn beside(&self) -> &str {
        &self.beside
    }

    fn figures(&self) -> &'static [Figure] {
        &[
            Figure {
                name: "the call",
                unit: "ms",
            },
            Figure {
                name: "longest charge beside it",
                unit: "ms",
            },
        ]
    }

    fn rounds_max(&self) -> usize {
        match self.children.len() {
            0..100_000 => usize::MAX,
            100_000..400_000 => 5,
            _ => 2,
        }
    }

    fn turn(&self, cpus: &[usize], _: Slice) -> Vec<f64> {
        for child in &self.children {
            drop(child.try_charge(SMALL).expect("the limit is far"));
        }
        let (begun, over) = (AtomicBool::new(false), AtomicBool::new(false));
        let times_ns = [const { AtomicU64::new(0) }; 2];
        on_cpus(&[cpus[0], cpus[cpus.len() - 1]], |thread, meeting| {
            meeting.join();
            let ns = if thread == 0 {
                spin_until(|| begun.load(Ordering::Acquire));
                let max = self.max.fetch_sub(1, Ordering::Relaxed);
                let watch = Stopwatch::start();
                self.parent.set_max(max);
                let ns = watch.ns();
                over.store(true, Ordering::Release);
                ns
            } else {
                self.charge_until(&begun, &over)
            };
            times_ns[thread].store(ns, Ordering::Relaxed);
            Spent::default()
        });
        let ms = |ns: AtomicU64| ns.into_inner() as f64 / 1e6;
        times_ns.map(ms).into()
    }

    fn check(&self) -> Result<(), String> {
        match self.parent.reserved() {
            0 => is_uncharged(&self.parent),
            bytes => Err(format!("{bytes} bytes of stock are left below the limit")),
        }
    }
}

const BIRTH: &str = "birth and end";

/// Reasons for which the record of a removed group is kept.
#[derive(Clone, Copy)]
enum Kept {
    Handle,
    Charge,
}

impl Kept {
    fn name(self) -> &'static str {
        match self {
            Self::Handle => "with handles",
            Self::Charge => "with bytes charged",
        }
    }
}

struct Births {
    beside: String,
    parent: Group,
    _handles: Vec<Group>,
    charges: Vec<Charge>,
}

impl Births {
    fn new(beside: String, size: usize, kept: Kept) -> Self {
        let (parent, mut handles) = family(size);
        let mut charges = Vec::new();
        match kept {
            Kept::Handle => {
                let removed = |handle: &Group| handle.remove().expect("it has no children");
                handles.iter().for_each(removed);
            }
            Kept::Charge => {
                let charge = |handle: Group| handle.try_charge(SMALL).expect("there is no limit");
                charges = handles.drain(..).map(charge).collect();
            }
        }
        Self {
            beside,
            parent,
            _handles: handles,
            charges,
        }
    }
}

impl Corner for Births {
    fn scenario(&self) -> &'static str {
        BIRTH
    }

    fn beside(&self) -> &str {
        &self.beside
    }

    fn figures(&self) -> &'static [Figure] {
        &[Figure {
            name: "both",
            unit: "ns",
        }]
    }

    fn rounds_max(&self) -> usize {
        usize::MAX
    }

    fn turn(&self, cpus: &[usize], slice: Slice) -> Vec<f64> {
        const BLOCK: u64 = 8;
        let spent = on_cpus(&cpus[..1], |_, meeting| {
            slice.run(
                || meeting.join(),
                || {
                    for _ in 0..BLOCK {
                        let born = self.parent.child("born", Limits::none());
                        drop(born.expect("the name is free"));
                    }
                    BLOCK
                },
            )
        });
        vec![spent.ns_per_operation()]
    }

    fn check(&self) -> Result<(), String> {
        let reading = self.parent.read(Freshness::Exact);
        let read = reading.expect("the group exists").usage().value;
        let held: u64 = self.charges.iter().map(Charge::bytes).sum();
        if read != held as i64 {
            return Err(format!("{held} bytes are held, {read} were read"));
        }
        Ok(())
    }
}

const REFUSE: &str = "refuse";

struct Refusals {
    beside: String,
    parent: Group,
    asker: Group,
    children: Vec<Group>,
    charges: Vec<Charge>,
    refused: AtomicU64,
}

impl Refusals {
    fn new(beside: String, size: usize) -> Self {
        let (parent, children) = family(size);
        let asker = parent.child("asker", Limits::none());
        let charge = |child: &Group| child.try_charge(SMALL).expect("there is no limit yet");
        let charges = children.iter().map(charge).collect();
        parent.set_max(size as u64 * SMALL);
        Self {
            beside,
            asker: asker.expect("a new group"),
            parent,
            children,
            charges,
            refused: AtomicU64::new(0),
        }
    }
}

impl Corner for Refusals {
    fn scenario(&self) -> &'static str {
        REFUSE
    }

    fn beside(&self) -> &str {
        &self.beside
    }

    fn figures(&self) -> &'static [Figure] {
        &[Figure {
            name: "refusals",
            unit: "1/s",
        }]
    }

    fn rounds_max(&self) -> usize {
        usize::MAX
    }

    fn turn(&self, cpus: &[usize], slice: Slice) -> Vec<f64> {
        let block = if self.children.len() < 10_000 { 64 } else { 1 };
        // More than is left, and not more than the limit: that is refused at once.
        let bytes = LARGE.min(self.parent.limits().max);
        let spent = on_cpus(&cpus[..1], |_, meeting| {
            slice.run(
                || meeting.join(),
                || {
                    for _ in 0..block {
                        let refused = self.asker.try_charge(bytes);
                        let is_refused = matches!(refused, Err(ChargeError::LimitReached(_)));
                        self.refused
                            .fetch_add(u64::from(is_refused), Ordering::Relaxed);
                    }
                    block
                },
            )
        });
        vec![1e9 / spent.ns_per_operation()]
    }

    fn check(&self) -> Result<(), String> {
        let held: u64 = self.charges.iter().map(Charge::bytes).sum();
        let reserved = self.parent.reserved();
        if reserved != held {
            return Err(format!("{held} bytes are held, {reserved} are reserved"));
        }
        let counted = self.parent.own_events().refused;
        match self.refused.load(Ordering::Relaxed) {
            seen if seen == counted => Ok(()),
            seen => Err(format!("{seen} refusals were seen, {counted} counted")),
        }
    }
}

const REMOVE: &str = "remove a leaf";

struct Removals {
    beside: String,
    parent: Group,
    readers: Vec<Group>,
    leaves: usize,
    counted: AtomicU64,
}

impl Removals {
    fn new(beside: String, leaves: usize) -> Self {
        let (parent, readers) = family(READERS);
        Self {
            beside,
            parent,
            readers,
            leaves,
            counted: AtomicU64::new(0),
        }
    }

    fn count(&self, group: &Group) {
        group.add(ROWS, 1);
        self.counted.fetch_add(1, Ordering::Relaxed);
    }
}

impl Corner for Removals {
    fn scenario(&self) -> &'static str {
        REMOVE
    }

    fn beside(&self) -> &str {
        &self.beside
    }

    fn figures(&self) -> &'static [Figure] {
        &[
            Figure {
                name: "median of a turn",
                unit: "us",
            },
            Figure {
                name: "longest of a turn",
                unit: "us",
            },
        ]
    }

    fn rounds_max(&self) -> usize {
        5
    }

    fn turn(&self, _: &[usize], _: Slice) -> Vec<f64> {
        let leaf = |index| {
            let leaf = self.parent.child(format!("leaf-{index}"), Limits::none());
            let leaf = leaf.expect("the name is free");
            self.count(&leaf);
            leaf
        };
        let leaves: Vec<Group> = (0..self.leaves).map(leaf).collect();
        let root = self.parent.memory().root();
        let (over, reading) = (AtomicBool::new(false), AtomicUsize::new(0));
        let mut times_us = Vec::new();
        std::thread::scope(|scope| {
            for own in &self.readers {
                let (root, over, reading) = (&root, &over, &reading);
                scope.spawn(move || {
                    let mut reads = 0;
                    while !over.load(Ordering::Relaxed) {
                        self.count(own);
                        root.read(Freshness::Exact).expect("reads may flush");
                        reads += 1;
                        if reads == 1 {
                            reading.fetch_add(1, Ordering::Relaxed);
                        }
                    }
                });
            }
            spin_until(|| reading.load(Ordering::Relaxed) == READERS);
            for leaf in &leaves {
                let watch = Stopwatch::start();
                leaf.remove().expect("it has no children");
                times_us.push(watch.ns() as f64 / 1e3);
            }
            over.store(true, Ordering::Relaxed);
        });
        let times = Summary::of(&times_us).expect("a turn removes some leaf");
        vec![times.median, times.max]
    }

    fn check(&self) -> Result<(), String> {
        let reading = self.parent.read(Freshness::Exact);
        let read = reading.expect("the group exists").get(ROWS).value as u64;
        match self.counted.load(Ordering::Relaxed) {
            counted if counted == read => Ok(()),
            counted => Err(format!("{counted} times 1 were read as {read}")),
        }
    }
}
