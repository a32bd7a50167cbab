//! Errors of charging and of removing groups. And the report of the tree around a limit that they show, as data and as text.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use super::pressure_policy::Level;
use crate::bytes::Bytes;
use crate::limit::Limits;
use crate::outline::{self, Row};
use crate::tree::printable;

/// Reason why a charge was refused. Nothing was charged.
#[derive(Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum ChargeError {
    /// The `max` of the group, or of a group above it, is in the way. The charge first took back the stock of all
    /// CPUs, and the memory was not there. Or the charge is larger than that limit ([`LimitReached::never_fits`]).
    LimitReached(Box<LimitReached>),
    /// The group was removed.
    Removed {
        /// The path that the group had.
        group: Box<str>,
    },
    /// More bytes than any machine has (2^56).
    TooLarge {
        /// Bytes asked for.
        requested: u64,
    },
}

/// The limit that refused a charge, and the groups that use the memory.
#[derive(Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct LimitReached {
    /// The path of the group that the caller charged.
    pub charged: String,
    /// The path of the group whose limit refused: the charged group or an ancestor.
    pub limited: String,
    /// Bytes asked for.
    pub requested: u64,
    /// Bytes used by the limiting group and all groups below it. Includes stock if the charge never fits.
    pub usage: u64,
    /// Its `max`, bytes.
    pub max: u64,
    /// Biggest children of the limiting group with their usage in bytes, biggest first, at most five. The list is renewed at most
    /// every 100 ms; see `largest_age`.
    pub largest: Vec<(String, u64)>,
    /// The age of `largest` and `report`; zero if this refusal renewed them.
    pub largest_age: Duration,
    /// The tree around the limit: the way to the root, and the biggest groups below at any depth. Shown by `{:#}`.
    pub report: Arc<TreeReport>,
}

impl LimitReached {
    /// Whether the charge is larger than the limit. If so, waiting and reclaim cannot help until the limit is raised. Such a charge
    /// is refused at once: it takes back no stock, asks no reclaimer, and wakes no task.
    pub fn never_fits(&self) -> bool {
        self.requested > self.max
    }
}

/// `{:#}` also draws the tree around the limit that refused.
impl fmt::Display for ChargeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::LimitReached(reached) => reached.fmt(f),
            Self::Removed { group } => {
                write!(f, "cannot charge {}: it was removed", printable(group))
            }
            Self::TooLarge { requested } => {
                write!(f, "cannot charge {requested} bytes: more than 2^56")
            }
        }
    }
}

bursar_machine::debug_as_message!(
    struct LimitReached {
        charged, limited, requested, usage, max, largest, largest_age, report,
    }
);

impl fmt::Display for LimitReached {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (requested, max) = (Bytes(self.requested), Bytes::display_limit(self.max));
        let (charged, limited) = (printable(&self.charged), printable(&self.limited));
        write!(f, "cannot charge {requested} to {charged}: ")?;
        let never_fits = self.never_fits();
        if never_fits {
            write!(f, "the limit of {limited} is {max}")?;
        } else {
            write!(f, "{limited} uses {} of {max}", Bytes(self.usage))?;
        }
        for (position, (name, usage)) in self.largest.iter().enumerate() {
            if never_fits {
                // The users of the memory are not the reason.
                break;
            }
            match (position, self.largest_age.as_millis()) {
                (0, 0) => f.write_str("; largest below it: ")?,
                (0, age_ms) => write!(f, "; largest below it {age_ms} ms ago: ")?,
                _ => f.write_str(", ")?,
            }
            write!(f, "{} {}", printable(name), Bytes(*usage))?;
        }
        if f.alternate() {
            write!(f, "\n{}", self.report)?;
        }
        Ok(())
    }
}

bursar_machine::debug_as_message!(
    enum ChargeError {
        LimitReached(reached),
        Removed { group },
        TooLarge { requested },
    }
);

impl std::error::Error for ChargeError {}

/// Reason why [`Engine::try_charge_nowait`](crate::engine::Engine::try_charge_nowait) refused. The error itself allocates nothing. Nothing was charged.
#[derive(Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum NowaitError {
    /// The charge does not fit unless stock of other CPUs is taken back, which [`crate::Group::try_charge`] does.
    LimitReached,
    /// Another task drains the group or one above it. Or this is a forked child before its first operation that is not for
    /// signal handlers (see [`crate::Memory`]).
    Busy,
    /// The group was removed.
    Removed,
    /// More bytes than any machine has (2^56).
    TooLarge,
}

impl fmt::Display for NowaitError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::LimitReached => "a limit is reached, as far as can be told without waiting",
            Self::Busy => {
                "the group is being drained, or this is a forked child that has only begun"
            }
            Self::Removed => "the group was removed",
            Self::TooLarge => "more than 2^56 bytes",
        })
    }
}

bursar_machine::debug_as_message!(
    enum NowaitError {
        LimitReached,
        Busy,
        Removed,
        TooLarge,
    }
);

impl std::error::Error for NowaitError {}

/// Reason why a group could not be removed. Nothing changed.
#[derive(Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum RemoveError {
    /// The group has children. Remove them first.
    HasChildren {
        /// The number of children.
        children: usize,
    },
    /// The group is the root, which cannot be removed.
    Root,
}

impl fmt::Display for RemoveError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::HasChildren { children: 1 } => {
                f.write_str("cannot remove: it has 1 child; remove it first")
            }
            Self::HasChildren { children } => {
                write!(
                    f,
                    "cannot remove: it has {children} children; remove them first"
                )
            }
            Self::Root => f.write_str("cannot remove: it is the root"),
        }
    }
}

bursar_machine::debug_as_message!(enum RemoveError { HasChildren { children }, Root });

impl std::error::Error for RemoveError {}

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
    /// Time of the report, by the machine's clock ([`bursar_machine::Machine::now_ns`]), nanoseconds.
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_to_remove_first() {
        let shown = |children| RemoveError::HasChildren { children }.to_string();
        assert_eq!(shown(1), "cannot remove: it has 1 child; remove it first");
        assert_eq!(
            shown(2),
            "cannot remove: it has 2 children; remove them first"
        );
    }
}
