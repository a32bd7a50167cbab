//! The tree around a limit at one moment, as plain data.

use std::fmt;

use super::pressure_policy::Level;
use crate::bytes::Bytes;
use crate::limit::Limits;
use crate::outline::{self, Row};

/// One group in a [`TreeReport`].
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct GroupState {
    /// The path from the root, unescaped.
    pub path: String,
    /// Its limits, bytes.
    pub limits: Limits,
    /// Bytes reserved for the group and all below it, stock included.
    pub reserved: u64,
    /// An upper bound on the stock among them, bytes.
    pub stock_max: u64,
    /// The highest number of bytes that were ever reserved.
    pub peak: u64,
    /// Charges that its own limit has refused.
    pub refused: u64,
    /// Level of its pressure.
    pub pressure: Level,
}

/// The tree around one group: the way to the root, and the biggest groups below it.
///
/// The groups are looked at one after the other, so their numbers may differ by what was charged and returned meanwhile. A group that
/// is removed meanwhile is left out.
///
/// [`fmt::Display`] draws the tree in lines of at most 80 characters.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct TreeReport {
    /// When it was made, by the machine's clock ([`bursar_machine::Machine::now_ns`]), nanoseconds.
    pub made_ns: u64,
    /// The groups from the root to the group that the report is about.
    pub way: Vec<GroupState>,
    /// The biggest groups below it, at any depth, by bytes reserved: at most 16, parents before their children.
    pub largest: Vec<GroupState>,
}

impl TreeReport {
    /// The path of the group that the report is about.
    pub fn path(&self) -> &str {
        self.way.last().map_or("/", |group| &group.path)
    }
}

impl fmt::Display for TreeReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let depth = |path: &str| path.matches('/').count() - usize::from(path == "/");
        let row = |group: &GroupState| Row::of(&group.path, depth(&group.path), numbers(group));
        outline::write(f, self.way.iter().chain(&self.largest).map(row))
    }
}

/// Bytes, limit, and what is unusual about the group.
fn numbers(group: &GroupState) -> String {
    let mut shown = format!("{:>8}", Bytes(group.reserved).to_string());
    if group.limits.max != u64::MAX {
        shown += &format!(" of {}", Bytes(group.limits.max));
    }
    if group.refused > 0 {
        shown += &format!(", refused {}", group.refused);
    }
    if group.pressure != Level::None {
        shown += &format!(", pressure {}", group.pressure);
    }
    shown
}
