//! Records of decisions in shortages.

use std::time::Duration;

/// Kind of a decision.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum DecisionKind {
    /// A query was asked to give back memory.
    Ask,
    /// A query was stopped.
    Stop,
    /// A query that waited for memory was refused, because nobody could give back enough.
    Refuse,
}

impl DecisionKind {
    /// Its name in documents: `ask`, `stop` or `refuse`.
    pub fn name(self) -> &'static str {
        match self {
            Self::Ask => "ask",
            Self::Stop => "stop",
            Self::Refuse => "refuse",
        }
    }
}

/// A decision that an arbiter made in a shortage; see [`crate::Arbiter::decisions`].
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Decision {
    /// Its number, from 1 on.
    pub number: u64,
    /// Kind of the decision.
    pub kind: DecisionKind,
    /// Path of the group of the query that it is about.
    pub query: String,
    /// Path of the group of the query that needed memory; empty if a limit was lowered.
    pub needed_by: String,
    /// Path of the group whose limit was in the way.
    pub limited: String,
    /// Bytes that were missing.
    pub missing: u64,
    /// Bytes that were charged to the query.
    pub charged: u64,
    /// Bytes that were expected of it.
    pub expected: u64,
    /// Bytes that its engine said it had given back.
    pub said: Option<u64>,
    /// Bytes by which its charge had fallen when it answered, ended, or its time was over; `None` until then.
    pub seen: Option<u64>,
    /// Time since then.
    pub age: Duration,
}
