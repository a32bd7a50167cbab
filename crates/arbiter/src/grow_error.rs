//! Reasons why a running query does not get more memory.

use std::fmt;
use std::sync::Arc;

use bursar::{Bytes, ChargeError, MoveError};

use crate::engine::Stop;

/// Reason why a query does not get more memory.
#[derive(Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum GrowError {
    /// The query was stopped, so that others can go on.
    Stopped(Arc<Stop>),
    /// A limit is smaller than what the query would have.
    NeverFits {
        /// Path of the group whose limit that is.
        limited: String,
        /// Its `max`, bytes.
        max: u64,
        /// Bytes that the query would have.
        needed: u64,
    },
    /// Nobody who holds memory can yield, and nobody runs who may end.
    NobodyYields {
        /// Path of the group whose limit is in the way.
        limited: String,
        /// Bytes that are missing.
        missing: u64,
        /// Number of the decision.
        decision: u64,
    },
    /// The grant is inside of another, and that one has too little left. Such a query never waits, because the query around it may wait for it.
    Nested {
        /// Path of the group of the grant around it.
        grant: String,
        /// Bytes that that grant has left.
        left: u64,
    },
    /// A limit inside of the grant, or one that was set meanwhile, refuses the charge.
    Charge(ChargeError),
    /// The memory was not there in time: in that of [`crate::Yielding::room_max`], or the caller's.
    TimedOut {
        /// Bytes that the query waited for.
        bytes: u64,
    },
    /// The grant has ended, or its group was removed.
    Ended,
}

/// Reason why a query cannot draw from the bytes that are kept for those that are asked to give back memory.
#[derive(Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum DrawError {
    /// The query is not asked to give back memory now, or its time for that is over.
    NotAsked,
    /// The lowest limit on its way has not kept so many.
    Exhausted {
        /// Bytes that it has.
        left: u64,
    },
    /// The group of the query refuses the bytes: it was removed, or its limit was set meanwhile.
    Move(MoveError),
}

bursar::debug_as_message!(
    enum DrawError {
        NotAsked,
        Exhausted { left },
        Move(error),
    }
);

impl fmt::Display for DrawError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotAsked => f.write_str("the query is not asked to give back memory"),
            Self::Exhausted { left } => write!(
                f,
                "{} are left of the bytes that are kept for queries that give back memory",
                Bytes(*left)
            ),
            Self::Move(error) => error.fmt(f),
        }
    }
}

impl std::error::Error for DrawError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Move(error) => Some(error),
            _ => None,
        }
    }
}

bursar::debug_as_message!(
    enum GrowError {
        Stopped(stop),
        NeverFits { limited, max, needed },
        NobodyYields { limited, missing, decision },
        Nested { grant, left },
        Charge(error),
        TimedOut { bytes },
        Ended,
    }
);

impl fmt::Display for GrowError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Stopped(stop) => stop.fmt(f),
            Self::NeverFits {
                limited,
                max,
                needed,
            } => write!(
                f,
                "the query would have {}, and {} may have at most {}",
                Bytes(*needed),
                bursar::printable(limited),
                Bytes(*max)
            ),
            Self::NobodyYields {
                limited,
                missing,
                decision,
            } => write!(
                f,
                "{} are missing below the limit of {}, and no other query can give them back (decision {decision})",
                Bytes(*missing),
                bursar::printable(limited)
            ),
            Self::Nested { grant, left } => write!(
                f,
                "the grant {} that the query runs in has {} left",
                bursar::printable(grant),
                Bytes(*left)
            ),
            Self::Charge(error) => error.fmt(f),
            Self::TimedOut { bytes } => {
                write!(f, "there was no room for {} in time", Bytes(*bytes))
            }
            Self::Ended => f.write_str("the grant has ended"),
        }
    }
}

impl std::error::Error for GrowError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Charge(error) => Some(error),
            _ => None,
        }
    }
}
