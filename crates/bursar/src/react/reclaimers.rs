//! The reclaimers of a group, and what they are asked.

use std::sync::Arc;

/// Reason why a reclaimer is asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Reason {
    /// A charge left the usage above `high`, or `high` was set below the usage. Bytes that are not freed slow the charging task
    /// down, or become its debt.
    High,
    /// A charge does not fit below `max`, or `max` was set below the usage. Charges are refused if nothing is freed.
    Max,
    /// [`crate::Group::reclaim`].
    Asked,
}

/// Request to a reclaimer. One charge may ask several times, and several charges may ask at once.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct ReclaimRequest {
    /// Bytes wanted of this reclaimer in this call, at least 1. It may free more.
    pub target: u64,
    /// The reason.
    pub reason: Reason,
    /// The path of the group whose limit is in the way: the reclaimer's own group or one above it.
    pub scope: String,
}

/// The functions that users register.
pub(crate) type ReclaimFn = dyn Fn(&ReclaimRequest) -> u64 + Send + Sync;

struct Reclaimer {
    number: u64,
    order: i32,
    call: Arc<ReclaimFn>,
}

/// The reclaimers of one group, in the order in which they are asked.
#[derive(Default)]
pub(crate) struct Reclaimers {
    list: Vec<Reclaimer>,
    registered: u64,
}

impl Reclaimers {
    /// Registers a reclaimer behind others of the same order. Returns its number.
    pub(super) fn add(&mut self, order: i32, call: Arc<ReclaimFn>) -> u64 {
        let number = self.registered;
        self.registered += 1;
        let at = self.list.partition_point(|other| other.order <= order);
        let reclaimer = Reclaimer {
            number,
            order,
            call,
        };
        self.list.insert(at, reclaimer);
        number
    }

    /// Ends a registration. The caller drops the value outside of locks, because that runs the user's code.
    pub(super) fn remove(&mut self, number: u64) -> Option<Arc<ReclaimFn>> {
        let at = self.list.iter().position(|one| one.number == number);
        at.map(|at| self.list.remove(at).call)
    }

    pub(super) fn is_empty(&self) -> bool {
        self.list.is_empty()
    }

    pub(super) fn calls(&self) -> Vec<Arc<ReclaimFn>> {
        self.list.iter().map(|one| one.call.clone()).collect()
    }
}
