//! The state that an arbiter shows: grants, waiters, and counts by reason.

use std::fmt;
use std::time::Duration;

use crate::ask::AdmitError;

/// State of an arbiter at one moment; see [`crate::Arbiter::admissions`].
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Admissions {
    /// Grants that have not ended, oldest first.
    pub grants: Vec<Granted>,
    /// Asks that wait: tenants in the order in which they come next, and each tenant's in its own order.
    pub waiting: Vec<Waiting>,
    /// The last asks that were refused, oldest first: at most 16.
    pub refusals: Vec<Refused>,
    /// Events since the arbiter was made.
    pub counts: Counts,
}

/// One grant.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Granted {
    /// Path of its group.
    pub path: String,
    /// Bytes that it may have; `u64::MAX` if no limit was on its way.
    pub bytes: u64,
    /// Bytes that are charged to it, stock included.
    pub charged: u64,
    /// Number of partitions.
    pub width: u32,
    /// Time that its ask waited.
    pub waited: Duration,
    /// Time since it was granted.
    pub age: Duration,
}

/// One ask that waits.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Waiting {
    /// Path of the group that it was asked for.
    pub group: String,
    /// Name of the query.
    pub name: String,
    /// Bytes without which it cannot run, at its smallest width.
    pub least: u64,
    /// Time that it waits.
    pub waited: Duration,
    /// Number of times that it was passed while it was the first of its group.
    pub passed: u32,
    /// Whether room is kept for it.
    pub is_kept_room: bool,
    /// Path of the group whose limit is in the way of the first waiter of its group.
    pub blocked_by: String,
}

/// One ask that was refused.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Refused {
    /// Path of the group that it was asked for.
    pub group: String,
    /// Name of the query.
    pub name: String,
    /// The reason.
    pub why: AdmitError,
    /// Time since then.
    pub age: Duration,
}

/// Events since an arbiter was made, and the asks that wait.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Counts {
    /// Asks that wait now.
    pub waiting: u64,
    /// Asks that were granted.
    pub admitted: u64,
    /// Of these, those that waited.
    pub waited: u64,
    /// Of these, those that got fewer partitions than they wished.
    pub narrowed: u64,
    /// Of these, those that were served from the grant that they were inside of.
    pub nested: u64,
    /// Grants that ended.
    pub ended: u64,
    /// Grants that were made larger because their query needed more.
    pub widened: u64,
    /// Grants that were not, because others waited or there was no room.
    pub not_widened: u64,
    /// Grants that were made smaller because others waited.
    pub shrunk: u64,
    /// Charges that had to wait for memory while their query ran.
    pub growth_waits: u64,
    /// Of these, those that were refused because nobody could yield.
    pub growth_refused: u64,
    /// Queries that were asked to give back memory.
    pub asked: u64,
    /// Of these, those that gave back nothing.
    pub asked_in_vain: u64,
    /// Queries that were stopped so that others can go on.
    pub stopped: u64,
    /// Queries that were asked or stopped, and did not do it in their time.
    pub unanswered: u64,
    /// Number of times that a first waiter was passed.
    pub passes: u64,
    /// Waits that their callers gave up.
    pub cancelled: u64,
    /// Asks that were refused because they can never fit.
    pub never_fits: u64,
    /// Asks that were not served in their time.
    pub timed_out: u64,
    /// Asks inside a grant that has too little left.
    pub nested_refused: u64,
    /// Asks whose group was removed.
    pub removed: u64,
    /// Asks with numbers that make no sense, or for a group that cannot be made.
    pub bad: u64,
}

impl Counts {
    /// Grants that have not ended.
    pub fn running(&self) -> u64 {
        self.admitted - self.ended
    }

    /// All counters of events: name, explanation for people, and number. Exporters read this table.
    #[rustfmt::skip]
    #[allow(clippy::type_complexity, reason = "a row of a table")]
    pub const COUNTERS: [(&'static str, &'static str, fn(&Self) -> u64); 21] = [
        ("admitted", "Asks that were granted", |counts| counts.admitted),
        ("waited", "Asks that were granted after a wait", |counts| counts.waited),
        ("narrowed", "Asks that were granted fewer partitions than they wished", |counts| counts.narrowed),
        ("nested", "Asks that were served from the grant that they were inside of", |counts| counts.nested),
        ("ended", "Grants that ended", |counts| counts.ended),
        ("widened", "Grants that were made larger because their query needed more", |counts| counts.widened),
        ("not_widened", "Grants that were not, because others waited or there was no room", |counts| counts.not_widened),
        ("shrunk", "Grants that were made smaller because others waited", |counts| counts.shrunk),
        ("growth_waits", "Charges that waited for memory while their query ran", |counts| counts.growth_waits),
        ("growth_refused", "Of these, those that were refused because nobody could yield", |counts| counts.growth_refused),
        ("asked", "Queries that were asked to give back memory", |counts| counts.asked),
        ("asked_in_vain", "Queries that were asked to give back memory, and gave none", |counts| counts.asked_in_vain),
        ("stopped", "Queries that were stopped so that others can go on", |counts| counts.stopped),
        ("unanswered", "Queries that were asked or stopped, and did not do it in their time", |counts| counts.unanswered),
        ("passes", "Times that a first waiter was passed", |counts| counts.passes),
        ("cancelled", "Waits that their callers gave up", |counts| counts.cancelled),
        ("never_fits", "Asks that were refused because they can never fit", |counts| counts.never_fits),
        ("timed_out", "Asks that were not served in their time", |counts| counts.timed_out),
        ("nested_refused", "Asks inside a grant that has too little left", |counts| counts.nested_refused),
        ("removed", "Asks whose group was removed", |counts| counts.removed),
        ("bad", "Asks with numbers that make no sense, or for a group that cannot be made", |counts| counts.bad),
    ];

    pub(crate) fn refuse(&mut self, error: &AdmitError) {
        let count = match error {
            AdmitError::NeverFits { .. } => &mut self.never_fits,
            AdmitError::TimedOut { .. } => &mut self.timed_out,
            AdmitError::Nested { .. } => &mut self.nested_refused,
            AdmitError::Removed { .. } => &mut self.removed,
            _ => &mut self.bad,
        };
        *count += 1;
    }
}

/// Reason why a grant cannot have more.
#[derive(Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum NotWidened {
    /// Others wait for a limit on its way.
    OthersWait,
    /// All memory that is there is charged or promised.
    NoRoom,
    /// Another task makes the grant smaller at this moment.
    Busy,
    /// The grant has ended.
    Ended,
}

bursar::debug_as_message!(
    enum NotWidened {
        OthersWait,
        NoRoom,
        Busy,
        Ended,
    }
);

impl fmt::Display for NotWidened {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::OthersWait => "others wait for memory",
            Self::NoRoom => "all memory that is there is charged or promised",
            Self::Busy => "the grant is being made smaller",
            Self::Ended => "the grant has ended",
        })
    }
}

impl std::error::Error for NotWidened {}
