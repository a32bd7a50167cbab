//! Queries that wait for memory, and those that were asked to give some back.

use std::sync::Arc;
use std::task::Waker;

use crate::engine::Stop;
use crate::grow_error::GrowError;

/// A query that waits for memory.
pub(super) struct Grower {
    pub(super) grant: u64,
    pub(super) bytes: u64,
    pub(super) since_ns: u64,
    /// A limit above its grant has refused the charge, so a promise is not enough.
    pub(super) needs_room: bool,
    /// Whether its grant keeps what is promised.
    pub(super) is_kept: bool,
    pub(super) waker: Option<Waker>,
    pub(super) blocked_at: Option<u32>,
    pub(super) decided: Option<Result<(), GrowError>>,
}

/// A query that was asked to give back, or told to stop.
#[derive(Clone, Debug)]
pub(super) struct Leaving {
    pub(super) decision: u64,
    /// Bytes that are expected of it.
    pub(super) bytes: u64,
    /// Bytes that were charged to it.
    pub(super) charged: u64,
    /// Bytes that it has drawn since ([`super::Ledger::draw`]).
    pub(super) drawn: u64,
    pub(super) until_ns: u64,
    pub(super) is_stop: bool,
}

/// Bytes that a query needs beyond those that it has charged.
#[derive(Clone, Copy, Debug)]
pub(crate) struct GrowNeed {
    pub(crate) bytes: u64,
    /// A limit above its grant has refused the charge, so a promise is not enough.
    pub(crate) needs_room: bool,
    /// Whether its grant keeps what is promised, because the query charges it later.
    pub(crate) is_kept: bool,
    /// Time since when it waits, if it has waited before.
    pub(crate) since_ns: Option<u64>,
}

/// Answer to a query that needs more.
pub(crate) enum Grown {
    Now,
    /// Queued, with this number.
    Waits(u64),
}

/// A call of an engine, for the time after the lock.
pub(crate) enum Call {
    Ask { bytes: u64, decision: u64 },
    Stop(Arc<Stop>),
}
