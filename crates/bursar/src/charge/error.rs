//! What a caller of a charge acts on.

use std::fmt;
use std::time::Duration;

use super::Bytes;
use crate::stats::printable;

/// Why a charge was refused.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ChargeError {
    /// The limit of the group or of one above it. The memory was not there: stock of all CPUs was taken back first.
    LimitReached(Box<LimitReached>),
    /// The group was removed.
    Removed {
        /// Its path when it lived.
        group: Box<str>,
    },
    /// More bytes than any machine has (2^56).
    TooLarge {
        /// Bytes asked for.
        requested: u64,
    },
}

/// Which limit refused a charge, and who uses the memory.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct LimitReached {
    /// The path of the group that was to be charged.
    pub charged: String,
    /// The path of the group at fault: itself or an ancestor.
    pub limited: String,
    /// Bytes asked for.
    pub requested: u64,
    /// Bytes used by the group at fault and all below it.
    pub usage: u64,
    /// Its limit, bytes.
    pub max: u64,
    /// Its biggest children with their usage in bytes, biggest first, at most five. Once a group has
    /// looked at its children for this, it looks again at most each 100 ms; see `largest_age`.
    pub largest: Vec<(String, u64)>,
    /// The age of `largest`: zero if this refusal looked at the children.
    pub largest_age: Duration,
}

impl LimitReached {
    /// Whether the charge is larger than the limit, so that waiting and reclaim are in vain until the limit is raised.
    pub fn never_fits(&self) -> bool {
        self.requested > self.max
    }
}

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

impl fmt::Display for LimitReached {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "cannot charge {} to {}: {} uses {} of {}",
            Bytes(self.requested),
            printable(&self.charged),
            printable(&self.limited),
            Bytes(self.usage),
            Bytes::of_limit(self.max)
        )?;
        for (position, (name, usage)) in self.largest.iter().enumerate() {
            match (position, self.largest_age.as_millis()) {
                (0, 0) => f.write_str("; largest below it: ")?,
                (0, age_ms) => write!(f, "; largest below it {age_ms} ms ago: ")?,
                _ => f.write_str(", ")?,
            }
            write!(f, "{} {}", printable(name), Bytes(*usage))?;
        }
        Ok(())
    }
}

impl std::error::Error for ChargeError {}

/// Why [`crate::Group::try_charge_nowait`] refused. Carries nothing that needs memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum NowaitError {
    /// It does not fit without looking for stock elsewhere; [`crate::Group::try_charge`] might find some.
    LimitReached,
    /// Somebody is draining the group or one above it; or this is a forked child before its first operation that is not
    /// for signal handlers (see [`crate::Memory`]).
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

impl std::error::Error for NowaitError {}

/// Why a group could not be removed.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum RemoveError {
    /// It has children; remove them first.
    HasChildren {
        /// How many.
        children: usize,
    },
    /// The root stays.
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

impl std::error::Error for RemoveError {}

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
