//! The interface of an engine for a running query: it can be asked to give memory back, and told to stop.

use std::fmt;
use std::sync::{Arc, Weak};

use bursar::{Bytes, Machine};
use bursar_machine::caught;

/// The side of an engine that an arbiter talks to, for one query; see [`crate::Grant::attach`].
///
/// All calls come without a lock of the arbiter, from any thread. They must return soon: note what is asked, and do it on a thread of the
/// query. They may come from inside a poll of any query's [`crate::Grow`], so hold no lock there that they take. A panic in [`Engine::ask`] counts as
/// an answer that nothing was given back.
pub trait Engine: Send + Sync {
    /// Bytes that the query could give back if it were asked now, by writing them to disk for example; 0 for none. A query that reports 0 is not asked.
    fn reclaimable(&self) -> u64;

    /// Asks the query to give back `bytes` or more. The answer says how many it gave. After
    /// [`crate::Yielding::ask_max`] nothing is expected of it any more.
    fn ask(&self, bytes: u64, answer: Answer);

    /// Tells the query to end with an error. It has [`crate::Yielding::stop_max`] to return its bytes and to end its grant, whose promise counts
    /// until then. Then the next one may be stopped.
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
    /// Path of the group of the query that needed memory; empty if a limit was lowered, or the process really takes too much.
    pub needed_by: String,
    /// Bytes that were missing.
    pub missing: u64,
    /// Path of the group whose limit was in the way.
    pub limited: String,
}

impl fmt::Display for Stop {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (query, limited) = (
            bursar::printable(&self.query),
            bursar::printable(&self.limited),
        );
        let (charged, missing) = (Bytes(self.charged), Bytes(self.missing));
        write!(f, "{query} was stopped with {charged}, because ")?;
        match self.needed_by.as_str() {
            "" => write!(f, "{limited} has {missing} too much")?,
            needed_by => {
                let needed_by = bursar::printable(needed_by);
                write!(
                    f,
                    "{needed_by} needed {missing} more below the limit of {limited}"
                )?;
            }
        }
        write!(f, " (decision {})", self.decision)
    }
}

/// An arbiter, as an answer knows it.
pub(crate) trait Asks: Send + Sync {
    /// Notes that a query gave back so many bytes, as its engine says.
    fn answered(&self, grant: u64, decision: u64, bytes: u64);

    /// Whether a query has time left to answer.
    fn is_expected(&self, grant: u64, decision: u64) -> bool;
}

/// The answer to one [`Engine::ask`]. Dropping it is no answer.
#[must_use = "an answer that is dropped is none"]
pub struct Answer {
    pub(crate) asks: Weak<dyn Asks>,
    pub(crate) grant: u64,
    pub(crate) decision: u64,
}

impl fmt::Debug for Answer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Answer")
            .field("decision", &self.decision)
            .finish_non_exhaustive()
    }
}

impl Answer {
    /// Says that the query has given back so many bytes. The record of the decision has both that number and what was seen to return.
    pub fn freed(self, bytes: u64) {
        if let Some(asks) = self.asks.upgrade() {
            asks.answered(self.grant, self.decision, bytes);
        }
    }

    /// Number of the decision: see [`crate::Decision::number`].
    pub fn decision(&self) -> u64 {
        self.decision
    }

    /// Whether the arbiter still expects something of the query: its time is not over.
    pub fn is_expected(&self) -> bool {
        let asks = self.asks.upgrade();
        asks.is_some_and(|asks| asks.is_expected(self.grant, self.decision))
    }

    /// Says that the query can give back nothing. It is not asked again before it has grown.
    pub fn cannot(self) {
        self.freed(0);
    }
}

/// Calls a user's code. Its panic must not harm the query that this is done for.
pub(crate) fn call<M: Machine, R>(machine: &M, what: &str, call: impl FnOnce() -> R) -> Option<R> {
    let answer = caught(call);
    if answer.is_none() {
        machine.warn(format_args!("{what} panicked"));
    }
    answer
}
