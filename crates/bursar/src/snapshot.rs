//! Snapshots: the numbers of a whole subtree at once, as a value.

use std::fmt;
use std::slice;
use std::time::Duration;
use std::vec;

use bursar_machine::{AtomicWord, Machine, MemoryOrder};

use crate::bytes::Bytes;
use crate::group::Group;
use crate::limit::{Events, Limits};
use crate::outline::{self, Row};
use crate::react::{Pressure, WaitingCharge, fork, pressure, wait};
use crate::tree::{self, Freshness, NotFresh, ROOT, Reading};

/// A group and everything below it, read at once; see [`Group::snapshot`].
///
/// Groups come depth first: each parent before its children, and siblings by name. The first is the group that was read.
///
/// # Consistency
/// For the usage and for each statistic, the values of a group's children and its own part ([`Reading::own`]) add up to the
/// group's value, whatever runs meanwhile. A charge that moves to another group meanwhile ([`crate::Charge::move_to`]) may count
/// in both groups or in neither, and likewise in the groups above. A charge or a return that runs meanwhile may be included or not, as
/// in any [`Reading`].
///
/// Limits, reserved bytes, peaks, events, pressure and waiting charges are taken from each group when the walk passes it. They do not add up.
///
/// A group that is removed meanwhile is either there, or part of its parent's own numbers. A group that is made meanwhile may be
/// missing.
///
/// # Text
/// [`fmt::Display`] draws the tree in lines of at most 80 characters:
///
/// ```
/// use bursar::{Freshness, Limits, Memory};
///
/// let memory = Memory::builder().max(96 << 20).build()?;
/// let acme = memory.root().child("acme", Limits::max(64 << 20))?;
/// let report = acme.child("report", Limits::none())?;
/// let charge = report.try_charge(48 << 20)?;
/// let snapshot = memory.snapshot(Freshness::Exact)?;
/// assert_eq!(
///     snapshot.to_string(),
///     "/           48.0 MiB of 96.0 MiB\n\
///     \x20 acme      48.0 MiB of 64.0 MiB\n\
///     \x20   report  48.0 MiB"
/// );
/// # drop(charge);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, PartialEq)]
pub struct Snapshot {
    groups: Vec<GroupSnapshot>,
}

/// Short enough for a line of a log; [`fmt::Display`] draws the tree.
impl fmt::Debug for Snapshot {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let top = &self.groups[0];
        f.debug_struct("Snapshot")
            .field("path", &top.path)
            .field("groups", &self.groups.len())
            .field(
                "usage",
                &format_args!("{}", Bytes(top.reading.usage_bytes())),
            )
            .finish_non_exhaustive()
    }
}

/// One group of a [`Snapshot`].
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct GroupSnapshot {
    /// The names from the root on, each after a `/`, unescaped ([`crate::printable`]); `/` for the root.
    pub path: String,
    /// Number of levels below the group that was read.
    pub depth: usize,
    /// The limits, bytes.
    pub limits: Limits,
    /// Usage and statistics.
    pub reading: Reading,
    /// Bytes reserved for the group and all below it, stock included ([`Group::reserved`]).
    pub reserved: u64,
    /// The highest number of bytes that were ever reserved.
    pub peak: u64,
    /// Events at the group and below ([`Group::events`]).
    pub events: Events,
    /// Events at the group's own limits ([`Group::own_events`]).
    pub own_events: Events,
    /// Pressure on the group.
    pub pressure: Pressure,
    /// Charges that wait for this group's limit ([`Group::charge_async`]), the first that came first; at most 16 of them.
    pub waiting: Vec<WaitingCharge>,
}

impl GroupSnapshot {
    /// The name, unescaped; empty for the root.
    pub fn name(&self) -> &str {
        self.path.rsplit('/').next().unwrap_or_default()
    }
}

impl Snapshot {
    /// All groups, depth first. There is at least one.
    pub fn groups(&self) -> &[GroupSnapshot] {
        &self.groups
    }

    /// Iterates over all groups, depth first.
    pub fn iter(&self) -> slice::Iter<'_, GroupSnapshot> {
        self.groups.iter()
    }

    /// The group at a path of names separated by `/`, from the root, as [`crate::Memory::find`] takes it. Looks at each group.
    pub fn get(&self, path: &str) -> Option<&GroupSnapshot> {
        let is_same = |group: &&GroupSnapshot| names(&group.path).eq(names(path));
        self.groups.iter().find(is_same)
    }

    /// The age of the numbers when the snapshot was taken: they miss no update that was older than this.
    pub fn age(&self) -> Duration {
        self.groups[0].reading.age()
    }
}

fn names(path: &str) -> impl Iterator<Item = &str> {
    path.split('/').filter(|name| !name.is_empty())
}

impl<'a> IntoIterator for &'a Snapshot {
    type Item = &'a GroupSnapshot;
    type IntoIter = slice::Iter<'a, GroupSnapshot>;

    fn into_iter(self) -> Self::IntoIter {
        self.groups.iter()
    }
}

impl IntoIterator for Snapshot {
    type Item = GroupSnapshot;
    type IntoIter = vec::IntoIter<GroupSnapshot>;

    fn into_iter(self) -> Self::IntoIter {
        self.groups.into_iter()
    }
}

/// A line for each group: name, usage, limit, and the range of the usage where it is not exact. Names are shown by
/// [`crate::printable`], and cut where the line would be too long. No newline at the end.
impl fmt::Display for Snapshot {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let row = |group: &GroupSnapshot| Row::of(&group.path, group.depth, numbers(group));
        outline::write(f, self.iter().map(row))
    }
}

/// Usage, limit, and the range of the usage.
fn numbers(group: &GroupSnapshot) -> String {
    let usage = group.reading.usage();
    let mut shown = format!("{:>8}", Bytes(group.reading.usage_bytes()).to_string());
    if group.limits.max != u64::MAX {
        shown += &format!(" of {}", Bytes(group.limits.max));
    }
    let bytes = |bytes: i64| Bytes(bytes.max(0) as u64);
    match (usage.lo, usage.hi) {
        (lo, hi) if lo == hi => {}
        (lo, i64::MAX) => shown += &format!(" (at least {})", bytes(lo)),
        (lo, hi) => shown += &format!(" ({} to {})", bytes(lo), bytes(hi)),
    }
    shown
}

/// Reads a group and everything below it at once.
pub(crate) fn snapshot<M: Machine>(
    group: &Group<M>,
    freshness: Freshness,
) -> Result<Snapshot, NotFresh> {
    let _operation = fork::operation(group.core());
    match freshness {
        Freshness::Exact => group.flush()?,
        // Flushes if need be.
        _ => group.read(freshness)?,
    };
    if freshness == Freshness::Exact {
        return Ok(walk(group, true));
    }
    let snapshot = walk(group, false);
    let is_within = |group: &GroupSnapshot| group.reading.is_within(freshness);
    if snapshot.iter().all(is_within) {
        return Ok(snapshot);
    }
    group.flush()?;
    Ok(walk(group, true))
}

fn walk<M: Machine>(group: &Group<M>, is_exact: bool) -> Snapshot {
    let core = group.core();
    let top = match group.index() {
        ROOT => String::new(),
        _ => group.path(),
    };
    let note = |index: u32| {
        let counter = core.counters.counter(index);
        // Full, and relaxed: as in `Group::reserved` and `Group::peak`.
        let reserved = core.counters.counter(index).reserved();
        let peak = counter.peak.load(MemoryOrder::Relaxed);
        let events = (counter.events.total(), counter.events.own());
        let state = (pressure::now(core, index), wait::waiting(core, index));
        (core.counters.limits(index), reserved, peak, events, state)
    };
    let usage_range = |index: u32| core.counters.usage_range(index);
    let parts = tree::snapshot(core.tree(), group.index(), is_exact, usage_range, note);
    let groups = parts.into_iter().map(|part| {
        let (limits, reserved, peak, (events, own_events), (pressure, waiting)) = part.noted;
        let path = format!("{top}{}", part.path);
        GroupSnapshot {
            path: if path.is_empty() {
                "/".to_owned()
            } else {
                path
            },
            depth: part.depth,
            limits,
            reading: part.reading.with_over_returned(events.over_returned_bytes),
            reserved,
            peak,
            events,
            own_events,
            pressure,
            waiting,
        }
    });
    Snapshot {
        groups: groups.collect(),
    }
}
