//! The interface of all rules to queries.

use super::query::Query;

/// Reason why a query does not get what it asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Denied {
    /// There is no memory, and it may not wait for any.
    Refused,
    /// It must give back so many MiB to go on, and then asks again.
    Spill(u64),
    /// It was told to stop.
    Stopped,
    /// The run is over.
    Over,
}

/// A try of a query that wishes to begin.
#[derive(Clone, Copy, Debug)]
pub(super) struct Start<'a> {
    pub(super) query: &'a Query,
    pub(super) tenant: u64,
    /// Number of the try, from 1 on.
    pub(super) nth: u64,
    /// MiB that the tries before turned out to need.
    pub(super) needed_mib: u64,
}

/// Numbers of a moment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Moment {
    pub(super) limit_mib: u64,
    pub(super) used_mib: u64,
}

/// Decides which queries begin, wait, spill and stop. Calls that say so block the calling task.
pub(super) trait Desk: Sync {
    /// Lets a query begin, sooner or later. Returns its number.
    fn begin(&self, start: &Start<'_>) -> Result<u64, Denied>;
    /// Gives a query so many MiB more, sooner or later.
    fn grow(&self, id: u64, mib: u64) -> Result<(), Denied>;
    /// Lets a query go on to its next batch, sooner or later.
    fn go_on(&self, id: u64) -> Result<(), Denied>;
    /// Takes back what a query has written to disk.
    fn spilled(&self, id: u64, mib: u64);
    /// Takes back all that a query has.
    fn end(&self, id: u64);
    /// Looks at what only time changes.
    fn tick(&self);
    /// Sets another limit.
    fn lower(&self, limit_mib: u64);
    /// Ends the run: nobody waits any more.
    fn close(&self);
    fn now(&self) -> Moment;
    /// Queries that were told to stop so far.
    fn stops(&self) -> u64;
}
