//! The interface of an engine for a running query: it can be asked to give memory back, and told to stop.

use std::fmt;
use std::sync::{Arc, Weak};

use bursar::{Bytes, Host, Machine};

use crate::arbiter::Inner;

/// The side of an engine that an arbiter talks to, for one query; see [`crate::Grant::attach`].
///
/// All calls come without a lock of the arbiter, from any thread. They must return soon: note what is asked, and do it on a thread of the
/// query. They may come from inside a poll of any query's [`crate::Grow`], so hold no lock there that they take. A panic in [`Engine::ask`] counts as
/// an answer that nothing was given back.
pub trait Engine<M: Machine = Host>: Send + Sync {
    /// Bytes that the query could give back if it were asked now, by writing them to disk for example; 0 for none. A query that reports 0 is not asked.
    fn reclaimable(&self) -> u64;

    /// Asks the query to give back `bytes` or more. The answer says how many it gave. After
    /// [`crate::Yielding::ask_max`] nothing is expected of it any more.
    fn ask(&self, bytes: u64, answer: Answer<M>);

    /// Tells the query to end with an error. It has [`crate::Yielding::stop_max`] to return its bytes. Then the next one may be stopped.
    fn stop(&self, stop: &Arc<Stop>);
}

/// Reason why a query was stopped. An error of its engine shows it to the user.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Stop {
    /// Number of the decision: see [`crate::Decision::number`].
    pub decision: u64,
    /// Path of the query's group.
    pub query: String,
    /// Bytes that were charged to it.
    pub charged: u64,
    /// Path of the group of the query that needed memory.
    pub needed_by: String,
    /// Bytes that were missing.
    pub missing: u64,
    /// Path of the group whose limit was in the way.
    pub limited: String,
}

impl fmt::Display for Stop {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{} was stopped with {}, because {} needed {} more below the limit of {} (decision {})",
            bursar::printable(&self.query),
            Bytes(self.charged),
            bursar::printable(&self.needed_by),
            Bytes(self.missing),
            bursar::printable(&self.limited),
            self.decision
        )
    }
}

/// The answer to one [`Engine::ask`]. Dropping it is no answer.
#[must_use = "an answer that is dropped is none"]
pub struct Answer<M: Machine = Host> {
    pub(crate) inner: Weak<Inner<M>>,
    pub(crate) grant: u64,
    pub(crate) decision: u64,
}

impl<M: Machine> fmt::Debug for Answer<M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Answer")
            .field("decision", &self.decision)
            .finish_non_exhaustive()
    }
}

impl<M: Machine> Answer<M> {
    /// Says that the query has given back so many bytes. The record of the decision has both that number and what was seen to return.
    pub fn freed(self, bytes: u64) {
        if let Some(inner) = self.inner.upgrade() {
            inner.answered(self.grant, self.decision, bytes);
        }
    }

    /// Says that the query can give back nothing. It is not asked again before it has grown.
    pub fn cannot(self) {
        self.freed(0);
    }
}
